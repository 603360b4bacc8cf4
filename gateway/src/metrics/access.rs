use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use schemas::Code;

use super::labels::{Limiter, RefreshResult};
use super::{LATENCY_S, Maker, gauge_value};

/// Tokens, verification keys and rate limits.
pub(crate) struct AccessMetrics {
    auth_accepted: IntCounter,
    auth_decisions: IntCounterVec,
    auth_duration: Histogram,
    keys: IntGauge,
    key_refreshes: IntCounterVec,
    key_refreshed_at: IntGauge,
    limiter_allowed: Vec<IntCounter>,
    limiter_denied: Vec<IntCounter>,
    limiter_keys: IntGaugeVec,
    limiter_cap_hits: IntCounterVec,
    agents_registered: IntGauge,
}

impl AccessMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let auth_decisions = make.counters(
            "exchange_auth_decisions_total",
            "Tokens presented, by result and reason.",
            &["result", "reason"],
        )?;
        let limiter_decisions = make.counters(
            "exchange_rate_limit_decisions_total",
            "Requests charged to a rate limit, by limiter and decision.",
            &["limiter", "decision"],
        )?;
        let decisions = |decision: &str| -> Vec<IntCounter> {
            let handle = |limiter: &Limiter| limiter_decisions.with_label_values(&[limiter.as_str(), decision]);
            Limiter::ALL.iter().map(handle).collect()
        };
        let metrics = Self {
            auth_accepted: auth_decisions.with_label_values(&["accepted", "none"]),
            auth_decisions,
            auth_duration: make.histogram(
                "exchange_auth_duration_seconds",
                "Time to verify a token that is not remembered.",
                &LATENCY_S,
            )?,
            keys: make.gauge("exchange_jwks_keys", "Verification keys in force.")?,
            key_refreshes: make.counters(
                "exchange_jwks_refresh_total",
                "Renewals of the verification keys, by result.",
                &["result"],
            )?,
            key_refreshed_at: make.gauge(
                "exchange_jwks_last_success_timestamp_seconds",
                "When the verification keys were last read successfully.",
            )?,
            limiter_allowed: decisions("allow"),
            limiter_denied: decisions("deny"),
            limiter_keys: make.gauges("exchange_rate_limit_keys", "Keys tracked by a rate limit.", &["limiter"])?,
            limiter_cap_hits: make.counters(
                "exchange_rate_limit_key_cap_hits_total",
                "Requests refused because a rate limit tracks no further key.",
                &["limiter"],
            )?,
            agents_registered: make.gauge("exchange_agents_registered", "Registered agents this gateway knows.")?,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// A token was presented.
    pub(crate) fn decided(&self, refused: Option<Code>) {
        match refused {
            None => self.auth_accepted.inc(),
            Some(code) => self.auth_decisions.with_label_values(&["rejected", code.as_str()]).inc(),
        }
    }

    /// A token that was not remembered took this long.
    pub(crate) fn verified(&self, time: Duration) {
        self.auth_duration.observe(time.as_secs_f64());
    }

    /// The verification keys were read again.
    pub(crate) fn keys_refreshed(&self, result: RefreshResult, keys: usize, now_s: u64) {
        self.key_refreshes.with_label_values(&[result.as_str()]).inc();
        self.keys.set(gauge_value(keys));
        if result != RefreshResult::Failed {
            self.key_refreshed_at.set(i64::try_from(now_s).unwrap_or(i64::MAX));
        }
    }

    /// A limiter decided.
    pub(crate) fn charged(&self, limiter: Limiter, is_allowed: bool) {
        let handles = if is_allowed { &self.limiter_allowed } else { &self.limiter_denied };
        handles[limiter as usize].inc();
    }

    /// A limiter tracks this many keys.
    pub(crate) fn limiter_keys(&self, limiter: Limiter, keys: usize) {
        self.limiter_keys.with_label_values(&[limiter.as_str()]).set(gauge_value(keys));
    }

    /// A limiter tracks no further key.
    pub(crate) fn limiter_full(&self, limiter: Limiter) {
        self.limiter_cap_hits.with_label_values(&[limiter.as_str()]).inc();
    }

    /// So many agents are registered.
    pub(crate) fn agents(&self, count: usize) {
        self.agents_registered.set(gauge_value(count));
    }

    fn begin_at_zero(&self) {
        for code in [Code::Unauthenticated, Code::TokenExpired] {
            self.auth_decisions.with_label_values(&["rejected", code.as_str()]);
        }
        for result in RefreshResult::ALL {
            self.key_refreshes.with_label_values(&[result.as_str()]);
        }
        for limiter in Limiter::ALL {
            self.limiter_keys(limiter, 0);
            self.limiter_cap_hits.with_label_values(&[limiter.as_str()]);
        }
    }
}
