//! What agents did, as far as the owner of a lane saw it.

use std::cmp::Reverse;
use std::collections::HashMap;

use policy_core::Decision;
use schemas::AgentId;
use schemas::statistics::{AgentActivity, Histogram};

use super::minute;

/// Agents counted. When there are more, the half that did nothing for longest is forgotten: 1024 agents take a lane about
/// a megabyte.
const COUNTED_MAX: usize = 1024;
/// Agents a lane gives the figures of, four times what statistics do: the busiest of the engine are among those of its lanes.
const GIVEN_MAX: usize = 256;
const PPM: u64 = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agents {
    by_id: HashMap<AgentId, AgentTotals>,
    /// Rises with everything that is counted.
    clock: u64,
}

/// What one agent did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentTotals {
    opened: u64,
    calls: u64,
    offers: u64,
    awards: u64,
    fair_ppm: u64,
    acknowledged: Histogram,
    /// [`Agents::clock`] when something was counted last.
    last: u64,
}

impl Agents {
    pub(super) fn count_opened(&mut self, initiator: &str) {
        if let Ok(agent) = AgentId::try_new(initiator) {
            self.of(&agent).opened += 1;
        }
    }

    pub(super) fn count_call(&mut self, agent: &AgentId) {
        self.of(agent).calls += 1;
    }

    pub(super) fn count_offer(&mut self, agent: &AgentId) {
        self.of(agent).offers += 1;
    }

    pub(super) fn count_acknowledged(&mut self, agent: &AgentId, took_us: u64) {
        minute::add(&mut self.of(agent).acknowledged, took_us);
    }

    /// Counts who won, and what each would have won had lots been drawn among the offers.
    pub(super) fn count_decision(&mut self, decision: &Decision) {
        let (awards, offers) = (decision.awards.len() as u64, decision.offers.len() as u64);
        if awards == 0 || offers == 0 {
            return;
        }
        for offer in &decision.offers {
            let is_winner = decision.awards.iter().any(|award| award.offer_id == offer.offer_id);
            let counted = self.of(&offer.contractor);
            counted.fair_ppm = counted.fair_ppm.saturating_add(awards * PPM / offers);
            counted.awards += u64::from(is_winner);
        }
    }

    /// The busiest, with what they did.
    pub(super) fn busiest(&self) -> Vec<(AgentId, AgentTotals)> {
        let mut busiest: Vec<(&AgentId, &AgentTotals)> = self.by_id.iter().collect();
        busiest.sort_by_key(|(agent, counted)| (Reverse(counted.messages()), *agent));
        busiest.into_iter().take(GIVEN_MAX).map(|(agent, counted)| (agent.clone(), counted.clone())).collect()
    }

    fn of(&mut self, agent: &AgentId) -> &mut AgentTotals {
        self.clock += 1;
        if self.by_id.len() >= COUNTED_MAX && !self.by_id.contains_key(agent) {
            self.forget_half();
        }
        let counted = self.by_id.entry(agent.clone()).or_default();
        counted.last = self.clock;
        counted
    }

    fn forget_half(&mut self) {
        let mut last: Vec<u64> = self.by_id.values().map(|counted| counted.last).collect();
        let (_, median, _) = last.select_nth_unstable(COUNTED_MAX / 2);
        let median = *median;
        self.by_id.retain(|_, counted| counted.last >= median);
    }
}

impl AgentTotals {
    /// How busy it was.
    fn messages(&self) -> u64 {
        self.opened + self.calls + self.offers + self.awards
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.calls += other.calls;
        self.offers += other.offers;
        self.awards += other.awards;
        self.fair_ppm = self.fair_ppm.saturating_add(other.fair_ppm);
        self.acknowledged.merge(&other.acknowledged);
    }

    pub(super) fn activity(self, agent: AgentId) -> AgentActivity {
        let Self { opened, calls, offers, awards, fair_ppm, acknowledged, last: _ } = self;
        AgentActivity { agent, opened, calls, offers, awards, fair_ppm, acknowledged: acknowledged.spread() }
    }
}

/// Adds up what lanes counted; the `most` busiest, the busiest first.
pub(super) fn sum(parts: impl Iterator<Item = (AgentId, AgentTotals)>, most: usize) -> Vec<AgentActivity> {
    let mut by_id = HashMap::<AgentId, AgentTotals>::new();
    for (agent, counted) in parts {
        by_id.entry(agent).or_default().merge(&counted);
    }
    let mut all: Vec<(AgentId, AgentTotals)> = by_id.into_iter().collect();
    all.sort_by(|(one, left), (other, right)| right.messages().cmp(&left.messages()).then_with(|| one.cmp(other)));
    all.into_iter().take(most).map(|(agent, counted)| counted.activity(agent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_agents_than_are_counted_those_that_went_quiet_are_forgotten() {
        let mut agents = Agents::default();
        for number in 0..10 * COUNTED_MAX {
            agents.count_call(&agent("busy"));
            agents.count_call(&agent(&format!("guest-{number}")));
            assert!(agents.by_id.len() <= COUNTED_MAX);
        }
        let busiest = agents.busiest();
        assert_eq!(
            (busiest.len(), busiest[0].0.as_str(), busiest[0].1.calls),
            (GIVEN_MAX, "busy", 10 * COUNTED_MAX as u64)
        );
    }

    #[test]
    fn an_agents_figures_in_several_lanes_add_up() {
        let mut lanes = [Agents::default(), Agents::default()];
        lanes[0].count_opened("bob");
        lanes[0].count_call(&agent("bob"));
        lanes[1].count_offer(&agent("bob"));
        lanes[1].count_acknowledged(&agent("bob"), 100);
        lanes[1].count_call(&agent("carol"));
        let sum = sum(lanes.iter().flat_map(Agents::busiest), 1);
        assert_eq!(sum.len(), 1);
        assert_eq!((sum[0].agent.as_str(), sum[0].opened, sum[0].calls, sum[0].offers), ("bob", 1, 1, 1));
        assert_eq!(sum[0].acknowledged.count, 1);
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
