//! Which keys and subjects both backends take, so that neither accepts what the other refuses.

use schemas::Lane;

use crate::BusError;

/// Longest key; leaves room for the bucket's prefix in a subject.
const KEY_LEN_MAX: usize = 200;
/// Longest subject: nats-server refuses protocol lines over 4096 bytes, and a subject shares its line.
const SUBJECT_LEN_MAX: usize = 1024;
/// Characters of an offending name repeated in an error.
const SHOWN_LEN_MAX: usize = 80;

/// Checks a key: 1 to 200 characters of `A-Z a-z 0-9 _ - ~`.
pub(crate) fn check_key(key: &str) -> Result<(), BusError> {
    let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~');
    if (1..=KEY_LEN_MAX).contains(&key.len()) && key.bytes().all(is_ours) { Ok(()) } else { Err(invalid(key)) }
}

/// Checks a subject to publish to: printable ASCII tokens, none empty, no wildcard.
pub(crate) fn check_subject(subject: &str) -> Result<(), BusError> {
    let is_literal = |token: &str| !token.is_empty() && !token.bytes().any(|byte| matches!(byte, b'*' | b'>'));
    if is_short_and_printable(subject) && subject.split('.').all(is_literal) { Ok(()) } else { Err(invalid(subject)) }
}

/// Checks a subject to subscribe to: as [`check_subject`], plus `*` as a whole token and `>` as the last one.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), BusError> {
    let mut tokens = pattern.split('.').peekable();
    while let Some(token) = tokens.next() {
        let is_fine = match token {
            "" => false,
            "*" => true,
            ">" => tokens.peek().is_none(),
            literal => !literal.bytes().any(|byte| matches!(byte, b'*' | b'>')),
        };
        if !is_fine {
            return Err(invalid(pattern));
        }
    }
    if is_short_and_printable(pattern) { Ok(()) } else { Err(invalid(pattern)) }
}

/// Checks a lane against the log's number of lanes.
pub(crate) fn check_lane(lane: Lane, lanes: u8) -> Result<(), BusError> {
    if lane.0 < lanes { Ok(()) } else { Err(BusError::Invalid(format!("lane {lane} of a log with {lanes} lanes"))) }
}

fn is_short_and_printable(subject: &str) -> bool {
    subject.len() <= SUBJECT_LEN_MAX && subject.bytes().all(|byte| byte.is_ascii_graphic())
}

fn invalid(name: &str) -> BusError {
    BusError::Invalid(name.chars().take(SHOWN_LEN_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_outside_the_alphabet_are_refused() {
        for bad in ["", "a.b", "a b", "a/b", "a=b", "ä", "a*", &"k".repeat(201)] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "alice~job_7-x", &"k".repeat(200)] {
            assert!(check_key(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn only_patterns_may_hold_wildcards_and_only_as_whole_tokens() {
        for (text, is_subject, is_pattern) in [
            ("agent.a.inbox", true, true),
            ("agent.*.inbox", false, true),
            ("award.>", false, true),
            (">", false, true),
            ("award.>.x", false, false),
            ("a*.b", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("", false, false),
            ("a b", false, false),
            ("a\r\nPUB x 0", false, false),
        ] {
            assert_eq!(check_subject(text).is_ok(), is_subject, "{text:?} as a subject");
            assert_eq!(check_pattern(text).is_ok(), is_pattern, "{text:?} as a pattern");
        }
    }
}
