use std::time::Duration;

use prometheus::{Error, Histogram, IntCounter, IntGauge};
use schemas::Code;
use telemetry::metrics::Maker;

use super::labels::{Limiter, RefreshResult};
use super::{LATENCY_S, gauge_value};

/// Tokens, verification keys and rate limits.
pub(crate) struct AccessMetrics {
    auth_accepted: IntCounter,
    auth_rejected: [IntCounter; 4],
    auth_duration: Histogram,
    keys: IntGauge,
    key_refreshes: Vec<IntCounter>,
    key_refreshed_at: IntGauge,
    limiter_allowed: Vec<IntCounter>,
    limiter_denied: Vec<IntCounter>,
    limiter_keys: Vec<IntGauge>,
    limiter_cap_hits: Vec<IntCounter>,
    limiter_evicted: Vec<IntCounter>,
    agents_registered: IntGauge,
    agents_present: IntGauge,
}

/// The reasons why a token is refused, in the order of the handles; the last stands for every other.
fn auth_reasons() -> [&'static str; 4] {
    [Code::Unauthenticated.as_str(), Code::TokenExpired.as_str(), Code::TokenNotYetValid.as_str(), "other"]
}

impl AccessMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let auth_decisions = make.counter_vec(
            "exchange_auth_decisions_total",
            "Tokens presented, by result and reason.",
            &["result", "reason"],
        )?;
        let limiter_decisions = make.counter_vec(
            "exchange_rate_limit_decisions_total",
            "Requests charged to a rate limit, by limiter and decision.",
            &["limiter", "decision"],
        )?;
        let decisions = |decision: &str| -> Vec<IntCounter> {
            let handle = |limiter: &Limiter| limiter_decisions.with_label_values(&[limiter.as_str(), decision]);
            Limiter::ALL.iter().map(handle).collect()
        };
        let limiters = Limiter::ALL.map(Limiter::as_str);
        Ok(Self {
            auth_accepted: auth_decisions.with_label_values(&["accepted", "none"]),
            auth_rejected: auth_reasons().map(|reason| auth_decisions.with_label_values(&["rejected", reason])),
            auth_duration: make.histogram(
                "exchange_auth_duration_seconds",
                "Time to verify a token that is not remembered.",
                &LATENCY_S,
            )?,
            keys: make.gauge("exchange_jwks_keys", "Verification keys in force.")?,
            key_refreshes: make.counters(
                "exchange_jwks_refresh_total",
                "Renewals of the verification keys, by result.",
                "result",
                &RefreshResult::ALL.map(RefreshResult::as_str),
            )?,
            key_refreshed_at: make.gauge(
                "exchange_jwks_last_success_timestamp_seconds",
                "When the verification keys were last read successfully.",
            )?,
            limiter_allowed: decisions("allow"),
            limiter_denied: decisions("deny"),
            limiter_keys: make.gauges(
                "exchange_rate_limit_keys",
                "Keys tracked by a rate limit.",
                "limiter",
                &limiters,
            )?,
            limiter_cap_hits: make.counters(
                "exchange_rate_limit_key_cap_hits_total",
                "Requests refused because a rate limit tracks no further key.",
                "limiter",
                &limiters,
            )?,
            limiter_evicted: make.counters(
                "exchange_rate_limit_keys_evicted_total",
                "Keys a rate limit no longer tracks, because they are back at their full quota.",
                "limiter",
                &limiters,
            )?,
            agents_registered: make.gauge("exchange_agents_registered", "Registered agents this gateway knows.")?,
            agents_present: make
                .gauge("exchange_agents_present", "Registered agents that were heard within their lease.")?,
        })
    }

    /// A token was presented.
    pub(crate) fn decided(&self, refused: Option<Code>) {
        match refused {
            None => self.auth_accepted.inc(),
            Some(code) => {
                let known = auth_reasons().iter().position(|reason| *reason == code.as_str());
                self.auth_rejected[known.unwrap_or(auth_reasons().len() - 1)].inc();
            }
        }
    }

    /// A token that was not remembered took this long.
    pub(crate) fn verified(&self, time: Duration) {
        self.auth_duration.observe(time.as_secs_f64());
    }

    /// The verification keys were read again.
    pub(crate) fn keys_refreshed(&self, result: RefreshResult, keys: usize, now_s: u64) {
        self.key_refreshes[result as usize].inc();
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

    /// A limiter tracks this many keys, and has dropped so many.
    pub(crate) fn limiter_swept(&self, limiter: Limiter, keys: usize, evicted: usize) {
        self.limiter_keys[limiter as usize].set(gauge_value(keys));
        self.limiter_evicted[limiter as usize].inc_by(evicted as u64);
    }

    /// A limiter tracks no further key.
    pub(crate) fn limiter_full(&self, limiter: Limiter) {
        self.limiter_cap_hits[limiter as usize].inc();
    }

    /// So many agents are registered, and so many of them present.
    pub(crate) fn agents(&self, registered: usize, present: usize) {
        self.agents_registered.set(gauge_value(registered));
        self.agents_present.set(gauge_value(present));
    }
}
