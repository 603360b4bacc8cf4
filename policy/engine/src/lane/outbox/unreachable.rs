//! The agents to which deliveries were given up, for the report of who is beyond reach.

use std::time::Duration;

use ahash::HashMap;
use schemas::AgentId;
use tokio::time::Instant;

use crate::metrics::DeadLetterReason;

/// Agents of which it is remembered that something was given up.
const AGENTS_MAX: usize = 4096;
/// How long that is remembered from when the last delivery was given up. An agent to which nothing is sent any more has
/// nothing to acknowledge: after this long it is given another chance.
const REMEMBERED: Duration = Duration::from_secs(300);

/// How many deliveries to each agent were given up since it last acknowledged one or connected. At most [`AGENTS_MAX`] agents.
#[derive(Debug, Default)]
pub(super) struct UnreachableAgents(HashMap<AgentId, GivenUpInARow>);

#[derive(Debug, Default)]
struct GivenUpInARow {
    count: usize,
    /// Counts from the first look since the last one was given up.
    since: Option<Instant>,
}

impl UnreachableAgents {
    /// A delivery to an agent was given up.
    pub(super) fn note(&mut self, agent: &AgentId, reason: DeadLetterReason) {
        let is_unreachable = match reason {
            DeadLetterReason::Attempts | DeadLetterReason::Expired | DeadLetterReason::Overflow => true,
            DeadLetterReason::RegisterConflict | DeadLetterReason::Unwritable => false,
        };
        if is_unreachable && (self.0.len() < AGENTS_MAX || self.0.contains_key(agent)) {
            let given_up = self.0.entry(agent.clone()).or_default();
            given_up.count += 1;
            given_up.since = None;
        }
    }

    /// The agent acknowledged something, or has connected.
    pub(super) fn end(&mut self, agent: &AgentId) {
        // Looked up for each acknowledgement, and nearly always empty.
        if !self.0.is_empty() {
            self.0.remove(agent);
        }
    }

    /// How many deliveries to an agent were given up since it was last heard.
    pub(super) fn count(&self, agent: &AgentId) -> usize {
        self.0.get(agent).map_or(0, |given_up| given_up.count)
    }

    /// The agents with what was given up to each, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&AgentId, usize)> {
        self.0.iter().map(|(agent, given_up)| (agent, given_up.count))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives agents another chance to which nothing was given up for a while.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, given_up| {
            let since = *given_up.since.get_or_insert(now);
            now.saturating_duration_since(since) < REMEMBERED
        });
    }
}
