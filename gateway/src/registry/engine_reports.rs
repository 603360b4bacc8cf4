//! What engines say of agents, for calls: who acknowledges too little is not invited.

use std::collections::{BTreeMap, BTreeSet};

use schemas::AgentId;

/// An engine that says nothing for this long says that nobody is beyond the limit: it repeats itself every second.
const BACKLOG_SILENCE_MS_MAX: u64 = 5_000;
/// Engines heard; further ones are ignored. An exchange has a handful.
const ENGINES_MAX: usize = 64;

/// Which agents acknowledge too little. Time is the gateway's clock.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    by_engine: BTreeMap<String, BacklogReport>,
}

#[derive(Debug)]
struct BacklogReport {
    at_ms: u64,
    agents: BTreeSet<AgentId>,
}

impl Backlogs {
    /// What an engine says; it replaces what that one said before.
    pub(super) fn handle_report(&mut self, engine: &str, agents: Vec<AgentId>, now_ms: u64) {
        self.by_engine.retain(|_, said| now_ms.saturating_sub(said.at_ms) <= BACKLOG_SILENCE_MS_MAX);
        if agents.is_empty() {
            self.by_engine.remove(engine);
        } else if self.by_engine.len() < ENGINES_MAX || self.by_engine.contains_key(engine) {
            self.by_engine
                .insert(engine.to_owned(), BacklogReport { at_ms: now_ms, agents: agents.into_iter().collect() });
        }
    }

    /// Whether any engine says that the agent acknowledges too little.
    pub(crate) fn holds(&self, agent: &AgentId, now_ms: u64) -> bool {
        let is_heard = |said: &&BacklogReport| now_ms.saturating_sub(said.at_ms) <= BACKLOG_SILENCE_MS_MAX;
        self.by_engine.values().filter(is_heard).any(|said| said.agents.contains(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_held_until_its_engine_names_it_no_more_or_falls_silent() {
        let mut backlogs = Backlogs::default();
        backlogs.handle_report("engine-1", vec![agent("bob"), agent("carol")], 1_000);
        backlogs.handle_report("engine-2", vec![agent("carol")], 1_000);
        assert!(backlogs.holds(&agent("bob"), 1_000) && !backlogs.holds(&agent("dave"), 1_000));
        backlogs.handle_report("engine-1", vec![agent("dave")], 2_000);
        assert!(!backlogs.holds(&agent("bob"), 2_000), "named no more");
        assert!(backlogs.holds(&agent("carol"), 6_000) && !backlogs.holds(&agent("carol"), 6_001), "silence");
        backlogs.handle_report("engine-1", vec![], 6_500);
        assert!(!backlogs.holds(&agent("dave"), 6_500));
        assert!(backlogs.by_engine.is_empty(), "the silent are forgotten");
    }

    #[test]
    fn engines_are_bounded() {
        let mut backlogs = Backlogs::default();
        for number in 0..2 * ENGINES_MAX {
            backlogs.handle_report(&format!("engine-{number}"), vec![agent("bob")], 1);
        }
        assert_eq!(backlogs.by_engine.len(), ENGINES_MAX);
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
