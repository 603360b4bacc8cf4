//! Time. The only clock of the exchange is the timestamp of a log record, in microseconds; agents read RFC 3339.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::text;

/// A point of log time: microseconds since 1970-01-01T00:00:00Z. Never a reading of a local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The last representable instant; stands for "no deadline".
    pub const MAX: Self = Self(u64::MAX);

    /// From whole milliseconds since the epoch.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// This instant plus a duration in milliseconds, saturating.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Microseconds from `earlier` to this instant, 0 when it lies in the future.
    #[must_use]
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Largest wire time, 9998-12-31: later years overflow other languages' date types.
const WIRE_TIME_US_MAX: i64 = 253_370_764_799_999_999;

/// An absolute time in a document: RFC 3339 in UTC, with milliseconds (microseconds when it has them).
///
/// A time without seconds, as the LLM-X paper writes it (`2025-08-21T18:45Z`), is accepted and normalised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireTime(pub Timestamp);

/// Why a text is not a wire time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time with a zone, between 1970 and 9998")]
pub struct TimeError(pub String);

impl WireTime {
    /// Parses RFC 3339; a zone is required, seconds are not.
    ///
    /// # Errors
    /// [`TimeError`] when the zone is missing, the date does not exist, or the year lies outside 1970..=9998.
    pub fn try_new(text: &str) -> Result<Self, TimeError> {
        let refuse = || TimeError(text.chars().take(40).collect());
        // Shortest is the paper's form, 17 bytes; longest has nanoseconds and a numeric offset.
        let bytes = text.as_bytes();
        let has_shape = (17..=35).contains(&bytes.len())
            && text.is_ascii()
            && bytes[4] == b'-'
            && bytes[7] == b'-'
            && matches!(bytes[10], b'T' | b't')
            && bytes[13] == b':';
        // `:60` would be clamped by the parser; a leap second is no instant of log time.
        // The parser takes zones and fractions of ISO 8601 as well, and offsets of more than a day.
        let has_zone = text.ends_with(['Z', 'z'])
            || matches!(bytes.last_chunk(), Some([b'+' | b'-', tens, ones, b':', minutes, _])
                if (*tens, *ones) < (b'2', b'4') && *minutes < b'6');
        if !has_shape || !has_zone || bytes.get(17..19) == Some(b"60") || text.contains(['[', ',']) {
            return Err(refuse());
        }
        let instant: jiff::Timestamp = text.parse().map_err(|_| refuse())?;
        let us = instant.as_microsecond();
        match u64::try_from(us) {
            Ok(value) if us <= WIRE_TIME_US_MAX => Ok(Self(Timestamp(value))),
            Ok(_) | Err(_) => Err(refuse()),
        }
    }
}

impl fmt::Display for WireTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = i64::try_from(self.0.0).unwrap_or(WIRE_TIME_US_MAX).min(WIRE_TIME_US_MAX);
        let instant = jiff::Timestamp::from_microsecond(us).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        if us % 1000 == 0 { write!(f, "{instant:.3}") } else { write!(f, "{instant:.6}") }
    }
}

crate::debug_as_shown!(WireTime);

text!(WireTime, |time: &Self, serializer: S| serializer.collect_str(time), Self::try_new);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_time_without_seconds_is_normalised() {
        assert_eq!(WireTime::try_new("2025-08-21T18:45Z").unwrap().to_string(), "2025-08-21T18:45:00.000Z");
    }

    #[test]
    fn microseconds_survive_the_round_trip() {
        let time = WireTime::try_new("2026-11-20T21:00:00.123456+01:00").unwrap();
        assert_eq!(time.to_string(), "2026-11-20T20:00:00.123456Z");
        assert_eq!(WireTime::try_new(&time.to_string()).unwrap(), time);
    }

    #[test]
    fn every_offset_of_rfc_3339_is_read() {
        let time = WireTime::try_new("2026-11-20T12:00:00Z").unwrap();
        for same in
            ["2026-11-21T11:59:00+23:59", "2026-11-19T12:01:00-23:59", "2026-11-20t12:00:00z", "2026-11-20T12:00-00:00"]
        {
            assert_eq!(WireTime::try_new(same).unwrap(), time, "{same}");
        }
    }

    #[test]
    fn times_without_zone_or_outside_the_range_are_refused() {
        for bad in [
            "2025-08-21T18:45:00",
            "2025-08-21",
            "1969-12-31T23:59:59Z",
            "9999-12-31T23:59:59Z",
            "2016-12-31T23:59:60Z",
            "2025-02-30T00:00:00Z",
            "20250821T184500Z",
            "2025-08-21T18:45:00Z[UTC]",
            "2025-08-21T18:45:00+24:00",
            "2025-08-21T18:45:00-25:59",
            "2025-08-21T18:45:00+01:60",
            "2025-08-21T18:45:00+01:00:30",
            "2025-08-21T18:45:00+0100",
            "2025-08-21T18:45:00+01",
            "2025-08-21T18:45:00,5Z",
            "now",
            "",
        ] {
            assert!(WireTime::try_new(bad).is_err(), "{bad}");
        }
    }
}
