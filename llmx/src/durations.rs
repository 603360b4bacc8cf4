//! Lengths of time that a person asks for, in seconds.

use std::time::Duration;

use crate::output::Failure;

/// Shortest length of time that can be asked for, in seconds.
const SECONDS_MIN: f64 = 0.001;
/// Longest one: a year.
const SECONDS_MAX: f64 = 31_536_000.0;

/// How long a run lasts: a number of seconds, from none to a year.
///
/// # Errors
/// [`Failure::configuration`] that names `--duration`.
pub fn run_length(seconds: f64) -> Result<Duration, Failure> {
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| length.as_secs_f64() <= SECONDS_MAX);
    length
        .ok_or_else(|| Failure::configuration(format_args!("--duration: at most {SECONDS_MAX} seconds, not {seconds}")))
}

/// A length of time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("a number of seconds from {SECONDS_MIN} to {SECONDS_MAX} is expected");
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    // What is less would be rounded to no time at all, which timers do not take.
    if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(expected()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_between_a_millisecond_and_a_year() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0.001"), Ok(Duration::from_millis(1)));
        assert_eq!(seconds("31536000"), Ok(Duration::from_secs(31_536_000)));
        for bad in ["", "0", "1e-10", "0.0009", "31536001", "1e-400", "-1", "NaN", "inf", "1e99", "ten"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
