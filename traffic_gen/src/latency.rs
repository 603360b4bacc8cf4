//! Latency recording: HDR histograms in microseconds, from the intended time of each call.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart, in microseconds: one hour. Longer ones count as one hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// Significant decimal digits kept: errors below 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, SIGNIFICANT_DIGITS);
        Self(histogram.expect("1 us to 1 h with 3 digits are bounds the histogram accepts"))
    }
}

impl Latency {
    /// Adds one duration.
    pub fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.0.saturating_record(us.clamp(1, LATENCY_US_MAX));
    }

    /// Adds all of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both histograms have the same bounds");
    }

    /// What was recorded since this was a copy of `earlier`; everything where it never was.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut later = self.clone();
        match later.0.subtract(&earlier.0) {
            Ok(()) => later,
            Err(_) => self.clone(),
        }
    }

    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The quantile, in milliseconds; 0 when nothing was recorded.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.value_at_quantile(quantile) as f64 / 1000.0 }
    }

    /// The usual quantiles.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile_ms(0.50),
            p95: self.quantile_ms(0.95),
            p99: self.quantile_ms(0.99),
            max: if self.0.is_empty() { 0.0 } else { self.0.max() as f64 / 1000.0 },
            count: self.count(),
        }
    }
}

/// Quantiles of a latency, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// How many were recorded.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut latency = Latency::default();
        for ms in 1..=100 {
            latency.record(Duration::from_millis(ms));
        }
        let quantiles = latency.quantiles();
        assert!((quantiles.p50 - 50.0).abs() < 0.1 && (quantiles.p95 - 95.0).abs() < 0.1, "{quantiles:?}");
        assert!((quantiles.max - 100.0).abs() < 0.1);
        assert_eq!(quantiles.count, 100);
    }

    #[test]
    fn what_was_recorded_since_a_copy_is_told_apart() {
        let mut latency = Latency::default();
        latency.record(Duration::from_millis(900));
        let earlier = latency.clone();
        latency.record(Duration::from_millis(10));
        let since = latency.since(&earlier).quantiles();
        assert!(since.count == 1 && (since.max - 10.0).abs() < 0.1, "{since:?}");
        assert_eq!(earlier.since(&latency).count(), 1, "never a copy: everything");
    }

    #[test]
    fn nothing_recorded_is_zero_and_an_endless_wait_is_an_hour() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantiles().count, 0);
        latency.record(Duration::from_secs(100_000));
        let hour_ms = 3_600_000.0;
        assert!((latency.quantile_ms(0.5) - hour_ms).abs() <= hour_ms / 1000.0, "{:?}", latency.quantiles());
    }
}
