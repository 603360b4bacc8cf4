//! What agents saw of one team: its rules and the acts of its members as they were sent, every step as it was told, and the end.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Closing, Disposition, Receipt};
use schemas::team::{Floor, TeamRules, TeamSpec, TeamState};
use schemas::{Act, AgentId, MsgId, NegotiationId};
use serde::Deserialize;

use super::When;
use crate::invariants::{Invariant, Verdict};

/// A call, as far as it makes a team.
#[derive(Deserialize)]
struct TeamCallMessage {
    payload: TeamCallPayload,
}

#[derive(Deserialize)]
struct TeamCallPayload {
    team: Option<TeamSpec>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct TeamSeen {
    /// From the lead's own call: only a negotiation that has rules is a team.
    rules: Option<(AgentId, TeamRules)>,
    /// What was sent under each id.
    acts: BTreeMap<(AgentId, MsgId), Act>,
    joined: BTreeSet<AgentId>,
    /// By step, as each member was told it.
    floors: BTreeMap<u32, BTreeMap<AgentId, Floor>>,
    /// By step: whose act it was, which act, and the turn it led to.
    applied: BTreeMap<u32, (AgentId, Act, Option<u32>)>,
    /// Who was told something that only members may know, and what.
    told: BTreeMap<AgentId, &'static str>,
    closed: BTreeSet<AgentId>,
}

impl TeamSeen {
    pub(super) fn is_one(&self) -> bool {
        self.rules.is_some()
    }

    /// A call was sent.
    pub(super) fn called(&mut self, agent: &AgentId, document: &[u8]) {
        if let Ok(TeamCallMessage { payload: TeamCallPayload { team: Some(team) } }) = serde_json::from_slice(document)
        {
            self.rules = Some((agent.clone(), team.rules));
        }
    }

    /// Who called it.
    pub(super) fn lead(&self) -> Option<&AgentId> {
        self.rules.as_ref().map(|(lead, _)| lead)
    }

    /// Whether an agent has said that it leaves.
    pub(super) fn has_left(&self, agent: &str) -> bool {
        self.is_one() && self.has_said(agent, Act::End)
    }

    fn has_said(&self, agent: &str, said: Act) -> bool {
        self.acts.iter().any(|((by, _), act)| by.as_str() == agent && *act == said)
    }

    /// A message was sent. Only those of a team are of interest, where the call comes first.
    pub(super) fn sent(&mut self, agent: &AgentId, msg_id: &MsgId, act: Act) {
        let is_of_team =
            matches!(act, Act::Join | Act::Say | Act::Assign | Act::Pause | Act::Conclude) || self.is_one();
        if is_of_team {
            self.acts.insert((agent.clone(), msg_id.clone()), act);
        }
    }

    pub(super) fn told_receipt(&mut self, agent: &AgentId, receipt: &Receipt) {
        if receipt.disposition != Disposition::Ok {
            return;
        }
        let Some(act) = self.acts.get(&(agent.clone(), receipt.ack_of.clone())).copied() else { return };
        if act == Act::Join {
            self.joined.insert(agent.clone());
        }
        if let Some(step) = receipt.step {
            self.applied.insert(step, (agent.clone(), act, receipt.turn));
        }
    }

    pub(super) fn told_floor(&mut self, agent: &AgentId, floor: &Floor) {
        self.told.insert(agent.clone(), "a notice");
        self.floors.entry(floor.step).or_default().insert(agent.clone(), floor.clone());
    }

    pub(super) fn told_closed(&mut self, agent: &AgentId, closing: &Closing) {
        if !self.is_one() {
            return;
        }
        self.closed.insert(agent.clone());
        if closing.conclusion.is_some() {
            self.told.insert(agent.clone(), "the conclusion");
        }
    }

    /// Judges what must hold at any time, and at rest that every member was told every step.
    pub(super) fn judge(&self, id: &NegotiationId, when: When, unreached: &BTreeSet<AgentId>, verdict: &mut Verdict) {
        let Some((lead, rules)) = &self.rules else { return };
        for (step, told) in &self.floors {
            let mut alike = told.values();
            let first = alike.next();
            let is_same = alike.all(|other| Some(other) == first);
            verdict.check(Invariant::SameStory, is_same, || format!("{id} told step {step} in two ways: {told:?}"));
        }
        self.judge_acts(id, rules, verdict);
        let Some(members) = self.members() else { return };
        let seats = members.len() as u64;
        // With messages still under way, a member may not have been told that it has joined.
        let has_joined = |member: &AgentId| {
            self.joined.contains(member) || (when == When::Early && self.has_said(member.as_str(), Act::Join))
        };
        let is_seated = members.iter().all(|member| member == lead || has_joined(member) || unreached.contains(member));
        let fits = (u64::from(rules.members.min)..=u64::from(rules.members.max)).contains(&seats);
        verdict.check(Invariant::Seated, is_seated && fits, || {
            format!("{id} has {members:?}, of whom {:?} joined", self.joined)
        });
        for (agent, what) in &self.told {
            verdict.check(Invariant::MembersOnly, members.contains(agent), || {
                format!("{agent} has no seat in {id} and was told {what}")
            });
        }
        if when == When::AtRest {
            self.judge_steps(id, &members, unreached, verdict);
        }
    }

    /// Who took a seat, as the first notice says.
    fn members(&self) -> Option<Vec<AgentId>> {
        let told = self.floors.values().flat_map(BTreeMap::values);
        told.map(|floor| &floor.members).find(|members| !members.is_empty()).cloned()
    }

    /// How the team stood after a step, as any member was told.
    fn floor(&self, step: u32) -> Option<&Floor> {
        self.floors.get(&step)?.values().next()
    }

    fn judge_acts(&self, id: &NegotiationId, rules: &TeamRules, verdict: &mut Verdict) {
        for (step, (agent, act, turn)) in &self.applied {
            if !matches!(act, Act::Say | Act::Assign | Act::Pause | Act::Conclude) {
                continue;
            }
            if let Some(before) = step.checked_sub(1).and_then(|before| self.floor(before)) {
                let is_free = matches!(before.state, TeamState::Discussing | TeamState::Concluding);
                let is_holder = is_free && before.speaker.as_ref() == Some(agent);
                verdict.check(Invariant::OneFloor, is_holder, || {
                    format!(
                        "{id}: {agent}'s {act} was applied while {:?} held the floor ({:?})",
                        before.speaker, before.state
                    )
                });
            }
            let is_discussion = *act != Act::Conclude;
            let is_in_time = !is_discussion || turn.is_none_or(|turn| turn <= rules.turns + 1);
            verdict.check(Invariant::TurnLimit, is_in_time, || {
                format!("{id}: {agent}'s {act} was applied behind turn {}", rules.turns)
            });
        }
        for floor in self.floors.values().flat_map(BTreeMap::values) {
            let holds = floor.state != TeamState::Discussing || floor.turn <= rules.turns;
            verdict.check(Invariant::TurnLimit, holds, || format!("{id} discusses in turn {}", floor.turn));
        }
    }

    /// Each member that was there to the end was told each step once: by a notice, or by the receipt of its own act.
    fn judge_steps(
        &self,
        id: &NegotiationId,
        members: &[AgentId],
        unreached: &BTreeSet<AgentId>,
        verdict: &mut Verdict,
    ) {
        let last = self.floors.keys().chain(self.applied.keys()).max().copied().unwrap_or(0);
        let stayed = members.iter().filter(|member| self.closed.contains(*member) && !unreached.contains(*member));
        let left =
            |member: &&AgentId| self.applied.values().any(|(agent, act, _)| agent == *member && *act == Act::End);
        for member in stayed.filter(|member| !left(member)) {
            for step in 1..=last {
                let is_told = self.floors.get(&step).is_some_and(|told| told.contains_key(member));
                let is_own = self.applied.get(&step).is_some_and(|(agent, ..)| agent == member);
                // The last step may be the one that ends the team, which CLOSED tells.
                let is_end = step == last && self.applied.get(&step).is_some_and(|(_, act, _)| *act == Act::Conclude);
                verdict.check(Invariant::SameStory, is_told != is_own || is_end, || {
                    format!("{id}: of step {step} {member} was told {}", if is_told { "twice" } else { "nothing" })
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
