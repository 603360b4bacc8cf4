//! Refusals for now: how often gateways held agents of a run back or did not answer, by which limit, and what to raise.
//!
//! A message that is refused for now leaves again, so it is missing from what is refused for good. At a rate beyond a limit
//! such refusals are the reason of low throughput and long latencies.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use agents::observer::{Observed, Observer};
use parking_lot::Mutex;
use schemas::{AgentId, Code, Refusal};
use serde::{Serialize, Serializer};
use tokio::time::Instant;

/// Least time between two warnings.
const WARNING_PERIOD: Duration = Duration::from_secs(5);

/// Counts the refusals for now of all agents it observes, and logs a warning while they come, at most one in 5 seconds.
#[derive(Debug, Default)]
pub struct DeferralCounter(Mutex<CounterState>);

#[derive(Debug, Default)]
struct CounterState {
    total: Deferrals,
    /// Since the latest warning.
    unwarned: Deferrals,
    warned_at: Option<Instant>,
}

impl DeferralCounter {
    /// What has come so far.
    pub fn total(&self) -> Deferrals {
        self.0.lock().total.clone()
    }

    /// Counts a refusal; returns what a warning is due for.
    fn count(&self, refusal: &Refusal, at: Instant) -> Option<Deferrals> {
        let mut state = self.0.lock();
        state.total.count(refusal);
        state.unwarned.count(refusal);
        if state.warned_at.is_some_and(|warned_at| at.saturating_duration_since(warned_at) < WARNING_PERIOD) {
            return None;
        }
        state.warned_at = Some(at);
        Some(std::mem::take(&mut state.unwarned))
    }
}

impl Observer for DeferralCounter {
    fn handle(&self, _agent: &AgentId, at: Instant, event: Observed<'_>) {
        if let Observed::Deferred { refusal } = event
            && let Some(unwarned) = self.count(refusal, at)
        {
            tracing::warn!("messages are held back or not answered, and sent again: {unwarned}");
        }
    }
}

/// Refusals for now, by code. Serialises as the counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deferrals(BTreeMap<Code, DeferralsOfCode>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DeferralsOfCode {
    count: u64,
    /// The limit, or the fault, as the latest refusal names it.
    reason: String,
}

impl Deferrals {
    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were of this code.
    pub fn of(&self, code: Code) -> u64 {
        self.0.get(&code).map_or(0, |deferrals| deferrals.count)
    }

    fn count(&mut self, refusal: &Refusal) {
        let deferrals = self.0.entry(refusal.code).or_default();
        deferrals.count += 1;
        let reason = refusal.expected.as_ref().unwrap_or(&refusal.detail);
        if deferrals.reason != *reason {
            deferrals.reason.clone_from(reason);
        }
    }
}

impl Serialize for Deferrals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(code, deferrals)| (code.as_str(), deferrals.count)))
    }
}

/// One line: each code with its count, the limit, and what helps where a setting does.
impl fmt::Display for Deferrals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (code, DeferralsOfCode { count, reason })) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{} {count} ({reason})", code.as_str())?;
            if *code == Code::RateLimited {
                write!(f, ": raise these settings of the gateway ([gateway.limits]), or use more agents")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_each_code_its_count_its_limit_and_the_setting_to_raise() {
        let limit = "at most 200 requests per second of one agent (requests_per_s)";
        let limited = || Refusal::new(Code::RateLimited, "the rate is used up").expecting(limit);
        let overloaded = Refusal::new(Code::Overloaded, "too many messages wait for the log");
        let limits = format!(
            "rate_limited 2 ({limit}): raise these settings of the gateway ([gateway.limits]), or use more agents"
        );
        for (refusals, line, json) in [
            (vec![], String::new(), "{}"),
            (vec![limited(), limited()], limits.clone(), r#"{"rate_limited":2}"#),
            (
                vec![overloaded.clone()],
                "overloaded 1 (too many messages wait for the log)".to_owned(),
                r#"{"overloaded":1}"#,
            ),
            (
                vec![overloaded, limited(), limited()],
                format!("{limits}; overloaded 1 (too many messages wait for the log)"),
                r#"{"rate_limited":2,"overloaded":1}"#,
            ),
        ] {
            let mut deferrals = Deferrals::default();
            refusals.iter().for_each(|refusal| deferrals.count(refusal));
            assert_eq!(deferrals.to_string(), line);
            assert_eq!(serde_json::to_string(&deferrals).unwrap(), json);
            assert_eq!((deferrals.is_empty(), deferrals.of(Code::Internal)), (refusals.is_empty(), 0));
        }
    }

    #[test]
    fn a_warning_comes_at_once_and_then_at_most_every_five_seconds_with_what_came_between() {
        let counter = DeferralCounter::default();
        let refusal = Refusal::new(Code::RateLimited, "");
        let start = Instant::now();
        for (ms, warned_of) in
            [(0, Some(1)), (10, None), (4_999, None), (5_000, Some(3)), (9_999, None), (20_000, Some(2))]
        {
            let due = counter.count(&refusal, start + Duration::from_millis(ms));
            assert_eq!(due.map(|deferrals| deferrals.of(Code::RateLimited)), warned_of, "{ms}");
        }
        assert_eq!(counter.total().of(Code::RateLimited), 6);
    }
}
