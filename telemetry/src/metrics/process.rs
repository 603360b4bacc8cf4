//! What every process tells about itself: what it is, since when it runs, what it uses.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Error, Registry};
use sha2::{Digest, Sha256};

/// Digits of a digest that tell two configurations apart.
const DIGEST_DIGITS: usize = 12;

/// What the program was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build<'a> {
    /// Its version.
    pub version: &'a str,
    /// The commit, or `unknown`.
    pub git_sha: &'a str,
    /// The compiler's version, or `unknown`.
    pub rustc: &'a str,
}

crate::metrics! {
    /// The program, and its start.
    struct ProcessMetrics {
        /// What the program was made from; always 1.
        build: Gauge[version, git_sha, rustc; open] = "exchange_build_info";
        /// When the process began to serve, in seconds since 1970.
        start: Ratio = "exchange_start_time_seconds";
    }
}

crate::metrics! {
    /// How the process is configured.
    struct ConfigMetrics {
        /// Digest of the configuration; always 1.
        digest: Gauge[digest; open] = "exchange_config_info";
    }
}

/// Registers what the system knows of the process (`process_*`), what it was made from and when it started.
///
/// # Errors
/// [`Error::AlreadyReg`] when the registry has them.
pub fn register(registry: &Registry, build: Build<'_>) -> Result<(), Error> {
    registry.register(Box::new(ProcessCollector::for_self()))?;
    let Build { version, git_sha, rustc } = build;
    let metrics = ProcessMetrics::try_new(registry)?;
    metrics.build.with_label_values(&[version, git_sha, rustc]).set(1);
    metrics.start.set(started().as_secs_f64());
    Ok(())
}

/// Registers the digest of a configuration, so that processes that should be configured alike can be compared. Leave out
/// what must differ between them, such as their names. The same configuration has the same digest in the same build.
///
/// # Errors
/// [`Error::AlreadyReg`] when the registry has one.
pub fn register_config(registry: &Registry, config: &impl Debug) -> Result<(), Error> {
    let digest = HEXLOWER.encode(&Sha256::digest(format!("{config:?}")));
    ConfigMetrics::try_new(registry)?.digest.with_label_values(&[&digest[..DIGEST_DIGITS]]).set(1);
    Ok(())
}

/// The first time anybody asked, which is early: since 1970.
fn started() -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::to_text;

    #[test]
    fn a_process_says_what_it_is_and_what_it_uses() {
        let registry = Registry::new();
        register(&registry, Build { version: "1.2.3", git_sha: "abc", rustc: "1.95.0" }).unwrap();
        let text = to_text(&registry).unwrap();
        for line in [
            "exchange_build_info{git_sha=\"abc\",rustc=\"1.95.0\",version=\"1.2.3\"} 1\n",
            "\nprocess_resident_memory_bytes ",
            "\nprocess_open_fds ",
            "\nexchange_start_time_seconds ",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(register(&registry, Build { version: "1", git_sha: "b", rustc: "c" }).is_err());
    }

    #[test]
    fn equal_configurations_have_equal_digests_and_others_have_others() {
        let digest = |config: &[u32]| {
            let registry = Registry::new();
            register_config(&registry, &config).unwrap();
            to_text(&registry).unwrap()
        };
        assert_eq!(digest(&[1, 2]), digest(&[1, 2]));
        assert_ne!(digest(&[1, 2]), digest(&[1, 3]));
        assert!(digest(&[]).contains("exchange_config_info{digest=\""));
    }
}
