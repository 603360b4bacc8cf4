//! Which servers are new enough.

use super::requirement::difference;

/// Oldest server: before it a replicated write-once stream could differ between its copies (nats-server #7607).
const VERSION_MIN: Version = Version(2, 12, 3);

/// A version of nats-server: major, minor, patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u16, u16, u16);

impl Version {
    /// Parses `2.15.1`, with or without a leading `v`. A pre-release (`2.12.3-RC.1`) counts as the version before it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (numbers, is_release) = match text.split_once('-') {
            Some((numbers, _)) => (numbers, false),
            None => (text, true),
        };
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let version = Self(parts.next()??, parts.next()??, parts.next()??);
        match (parts.next(), is_release) {
            (Some(_), _) => None,
            (None, true) => Some(version),
            (None, false) => Some(Self(version.0, version.1, version.2.checked_sub(1)?)),
        }
    }

    /// The difference when a server of this version is too old, or says something that is no version.
    pub(super) fn difference(text: &str) -> Option<String> {
        match Self::parse(text) {
            Some(version) if version >= VERSION_MIN => None,
            Some(_) | None => {
                let Self(major, minor, patch) = VERSION_MIN;
                let needed = format!("{major}.{minor}.{patch} or newer");
                Some(difference("nats-server version", text, &needed, "run scripts/nats-server, or upgrade the server"))
            }
        }
    }
}

/// What is wrong with a server of this version, or of a text that is no version; none when it is new enough.
#[must_use]
pub fn version_difference(version: &str) -> Option<String> {
    Version::difference(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_older_than_the_write_once_fix_are_refused() {
        for (text, is_fine) in [
            ("2.12.3", true),
            ("v2.12.3", true),
            ("2.12.4", true),
            ("2.13.0", true),
            ("2.15.1", true),
            ("3.0.0", true),
            ("2.12.4-RC.1", true),
            ("2.12.3-RC.2", false),
            ("2.12.2", false),
            ("2.9.10", false),
            ("1.99.99", false),
            ("", false),
            ("2.15", false),
            ("2.15.1.1", false),
            ("two", false),
        ] {
            assert_eq!(Version::difference(text).is_none(), is_fine, "{text:?}");
        }
        let told = Version::difference("2.9.10").unwrap();
        assert!(told.starts_with("nats-server version: found 2.9.10, needed 2.12.3 or newer, run "), "{told}");
    }
}
