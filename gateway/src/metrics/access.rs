use schemas::Code;

use super::{Answer, LATENCY_S, gauge_value};

telemetry::metrics! {
    /// Tokens, verification keys and rate limits.
    pub(crate) struct AccessMetrics {
        /// Tokens presented, by result and reason.
        auth_decisions: Counter[result: Answer, reason: AuthReason; AuthReason::ANSWERS]
            = "exchange_auth_decisions_total";
        /// Time to verify a token that is not remembered.
        auth_duration: Histogram(LATENCY_S) = "exchange_auth_duration_seconds";
        /// Verification keys in force.
        keys: Gauge = "exchange_jwks_keys";
        /// Renewals of the verification keys, by result.
        key_refreshes: Counter[result: RefreshResult] = "exchange_jwks_refresh_total";
        /// When the verification keys were last read successfully.
        key_refreshed_at: Gauge = "exchange_jwks_last_success_timestamp_seconds";
        /// Requests charged to a rate limit, by limiter and decision.
        limiter_decisions: Counter[limiter: Limiter, decision: LimitDecision] = "exchange_rate_limit_decisions_total";
        /// Keys tracked by a rate limit.
        limiter_keys: Gauge[limiter: Limiter] = "exchange_rate_limit_keys";
        /// Requests refused because a rate limit tracks no further key.
        limiter_cap_hits: Counter[limiter: Limiter] = "exchange_rate_limit_key_cap_hits_total";
        /// Keys a rate limit no longer tracks, because they are back at their full quota.
        limiter_evicted: Counter[limiter: Limiter] = "exchange_rate_limit_keys_evicted_total";
        /// Registered agents this gateway knows.
        agents_registered: Gauge = "exchange_agents_registered";
        /// Registered agents that were heard within their lease.
        agents_present: Gauge = "exchange_agents_present";
    }
}

impl AccessMetrics {
    /// A token was presented.
    pub(crate) fn decided(&self, refused: Option<Code>) {
        let (answer, reason) =
            refused.map_or((Answer::Accepted, AuthReason::None), |code| (Answer::Rejected, AuthReason::of(code)));
        self.auth_decisions.of(answer, reason).inc();
    }

    /// The verification keys were read again.
    pub(crate) fn keys_refreshed(&self, result: RefreshResult, keys: usize, now_s: u64) {
        self.key_refreshes.of(result).inc();
        self.keys.set(gauge_value(keys));
        if result != RefreshResult::Failed {
            self.key_refreshed_at.set(i64::try_from(now_s).unwrap_or(i64::MAX));
        }
    }

    /// A limiter decided.
    pub(crate) fn charged(&self, limiter: Limiter, is_allowed: bool) {
        let decision = if is_allowed { LimitDecision::Allow } else { LimitDecision::Deny };
        self.limiter_decisions.of(limiter, decision).inc();
    }

    /// A limiter tracks this many keys, and has dropped so many.
    pub(crate) fn limiter_swept(&self, limiter: Limiter, keys: usize, evicted: usize) {
        self.limiter_keys.of(limiter).set(gauge_value(keys));
        self.limiter_evicted.of(limiter).inc_by(evicted as u64);
    }

    /// So many agents are registered, and so many of them present.
    pub(crate) fn agents(&self, registered: usize, present: usize) {
        self.agents_registered.set(gauge_value(registered));
        self.agents_present.set(gauge_value(present));
    }
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum AuthReason {
    /// It is not.
    None,
    Unauthenticated,
    TokenExpired,
    TokenNotYetValid,
    Other,
}

impl AuthReason {
    /// What tokens are answered with.
    const ANSWERS: [(Answer, Self); 5] = [
        (Answer::Accepted, Self::None),
        (Answer::Rejected, Self::Unauthenticated),
        (Answer::Rejected, Self::TokenExpired),
        (Answer::Rejected, Self::TokenNotYetValid),
        (Answer::Rejected, Self::Other),
    ];

    fn of(code: Code) -> Self {
        let known = |reason: &Self| <&str>::from(*reason) == code.as_str();
        [Self::Unauthenticated, Self::TokenExpired, Self::TokenNotYetValid]
            .into_iter()
            .find(known)
            .unwrap_or(Self::Other)
    }
}

/// What a renewal of the keys came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum RefreshResult {
    /// New keys are in force.
    Changed,
    /// Nothing new.
    Unchanged,
    /// Not readable or not usable; the old keys stay.
    Failed,
}

/// Rate limiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Limiter {
    /// By agent.
    Agent,
    /// By peer address, for tokens to verify.
    Peer,
}

/// Whether a limit lets something pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum LimitDecision {
    Allow,
    Deny,
}
