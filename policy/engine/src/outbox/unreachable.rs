//! How much an agent has not acknowledged: what waits for it, and what was given up since it was last acks.

use std::collections::HashMap;
use std::time::Duration;

use schemas::AgentId;
use tokio::time::Instant;

use super::Outbox;
use crate::metrics::DeadLetterReason;

/// Agents of which it is remembered that something was given up.
const AGENTS_MAX: usize = 4096;
/// How long that is remembered from when the last delivery was given up. An agent to which nothing is sent any more has
/// nothing to acknowledge: after this long it is given another chance.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Deliveries given up, by agent.
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
        let is_silence = match reason {
            DeadLetterReason::Attempts | DeadLetterReason::Expired | DeadLetterReason::Overflow => true,
            DeadLetterReason::RegisterConflict | DeadLetterReason::Unwritable => false,
        };
        if is_silence && (self.0.len() < AGENTS_MAX || self.0.contains_key(agent)) {
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

    fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, given_up| {
            let since = *given_up.since.get_or_insert(now);
            now.saturating_duration_since(since) < REMEMBERED
        });
    }
}

impl Outbox {
    /// How many deliveries each agent has not acknowledged: those that wait for it, and those given up since it last
    /// acknowledged one or connected.
    pub(crate) fn backlog(&mut self, now: Instant) -> Vec<(AgentId, usize)> {
        self.unreachable.forget_old(now);
        let given_up = |agent: &AgentId| self.unreachable.0.get(agent).map_or(0, |given_up| given_up.count);
        let waiting = self.recipients.iter().map(|(agent, one)| (agent.clone(), one.live() + given_up(agent)));
        let gone = self.unreachable.0.iter().filter(|(agent, _)| !self.recipients.contains_key(*agent));
        waiting.chain(gone.map(|(agent, given_up)| (agent.clone(), given_up.count))).collect()
    }

    /// Whether any agent has not acknowledged something.
    pub(crate) fn has_backlog(&self) -> bool {
        !(self.recipients.is_empty() && self.unreachable.0.is_empty())
    }
}
