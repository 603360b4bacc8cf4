//! What agents saw of one team: its rules and the acts of its members as they were sent, every step as it was told, and the end.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Closing, Delivery, DeliveryEnvelope, Disposition, Notification, Receipt};
use schemas::team::{Floor, TaskStatus, TeamRules, TeamSpec, TeamState, TeamTask};
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, NegotiationId, Timestamp};
use serde::Deserialize;

use super::task::TaskSeen;
use super::{ProtocolWatch, WatchedAgents, When, payload};
use crate::invariants::{Invariant, Verdict};

mod sub_team;
mod waiting;

use sub_team::SubTeamOfTask;
use waiting::WaitingSteps;

/// A call, as far as it makes a team.
#[derive(Deserialize)]
struct SentTeam {
    team: Option<TeamSpec>,
}

/// A conclusion, as far as it has a text.
#[derive(Deserialize)]
struct SentConclusion {
    text: String,
}

/// A pause, as far as it names tasks.
#[derive(Deserialize)]
struct SentPause {
    triggers: Vec<u32>,
}

/// An act that was applied.
#[derive(Debug, Clone)]
struct AppliedAct {
    by: AgentId,
    act: Act,
    /// The turn it led to.
    turn: Option<u32>,
    /// The tasks that it opened, or is to wait for.
    tasks: Vec<u32>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct TeamSeen {
    /// The rules of each call that was sent: only a negotiation that has some is a team.
    calls: BTreeMap<(AgentId, MsgId), TeamRules>,
    /// The call that opened it, as its sender was told: others were refused.
    opened: Option<(AgentId, MsgId)>,
    /// What was sent under each id.
    acts: BTreeMap<(AgentId, MsgId), Act>,
    joined: BTreeSet<AgentId>,
    /// When somebody was called to it.
    called_at: Option<Timestamp>,
    /// By step, as each member was told it.
    floors: BTreeMap<u32, BTreeMap<AgentId, Floor>>,
    /// The time of the record that led to each step.
    stepped_at: BTreeMap<u32, Timestamp>,
    /// The tasks that each pause names.
    triggers: BTreeMap<(AgentId, MsgId), Vec<u32>>,
    /// By step.
    applied: BTreeMap<u32, AppliedAct>,
    /// Who was told something that only members may know, what, and when last.
    told: BTreeMap<AgentId, (&'static str, Timestamp)>,
    /// Who left, and when.
    left: BTreeMap<AgentId, Timestamp>,
    /// As each was told first.
    closed: BTreeMap<AgentId, Closing>,
    /// When the end was told, by the message that it was told in reply to: who asks later is told it again.
    ends: BTreeMap<Option<(AgentId, MsgId)>, Timestamp>,
    /// The texts of every conclusion that anybody was told.
    concluded: BTreeSet<String>,
    /// The texts of every conclusion that anybody sent.
    proposed: BTreeSet<String>,
}

/// What is known of a task.
pub(super) struct TaskFound<'a> {
    pub(super) task: &'a TaskSeen,
    /// Whom deliveries in it have not reached.
    pub(super) unreached: &'a BTreeSet<AgentId>,
    /// The sub-teams that worked for it.
    pub(super) sub_teams: Vec<SubTeamFound<'a>>,
}

/// What is known of a sub-team.
pub(super) struct SubTeamFound<'a> {
    /// The award that it worked for.
    pub(super) award_no: AwardNo,
    pub(super) team: &'a TeamSeen,
    /// Whom deliveries in it have not reached.
    pub(super) unreached: &'a BTreeSet<AgentId>,
}

/// What is known of a task by its number.
type FindTask<'a> = dyn Fn(u32) -> Option<TaskFound<'a>> + 'a;

impl ProtocolWatch for TeamSeen {
    fn is_one(&self) -> bool {
        !self.calls.is_empty()
    }

    /// A message was sent. Only those of a team are of interest, where the call comes first.
    fn sent(&mut self, agent: &AgentId, msg_id: &MsgId, act: Act, document: &[u8]) {
        if act == Act::Cfp
            && let Some(SentTeam { team: Some(team) }) = payload(document)
        {
            self.calls.insert((agent.clone(), msg_id.clone()), team.rules);
        }
        if act == Act::Pause
            && let Some(SentPause { triggers }) = payload(document)
        {
            self.triggers.insert((agent.clone(), msg_id.clone()), triggers);
        }
        if act == Act::Conclude
            && let Some(SentConclusion { text }) = payload(document)
        {
            self.proposed.insert(text);
        }
        let is_of_team =
            matches!(act, Act::Join | Act::Say | Act::Assign | Act::Pause | Act::Conclude) || self.is_one();
        if is_of_team {
            self.acts.insert((agent.clone(), msg_id.clone()), act);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not told of teams")]
    fn told(&mut self, agent: &AgentId, delivery: &Delivery) {
        let at = delivery.envelope.ts.0;
        delivery.receipts_told().for_each(|receipt| self.told_receipt(agent, receipt, at));
        match &delivery.payload {
            Notification::Cfp(_) => self.called_at = Some(self.called_at.map_or(at, |known| known.min(at))),
            Notification::Floor(floor) => {
                self.stepped_at.insert(floor.step, at);
                let told = self.told.entry(agent.clone()).or_insert(("a notice", at));
                told.1 = told.1.max(at);
                self.floors.entry(floor.step).or_default().insert(agent.clone(), Floor::clone(floor));
            }
            Notification::Closed(closing) => self.told_closed(&delivery.envelope, agent, closing),
            _ => {}
        }
    }

    /// Judges what must hold at any time, and at rest that every member was told every step.
    fn judge(&self, id: &NegotiationId, agents: WatchedAgents<'_>, verdict: &mut Verdict) {
        let WatchedAgents { when, unreached, .. } = agents;
        let Some((lead, rules)) = self.call() else { return };
        for (step, told) in &self.floors {
            let mut alike = told.values();
            let first = alike.next();
            let is_same = alike.all(|other| Some(other) == first);
            verdict.check(Invariant::SameStory, is_same, || format!("{id} told step {step} in two ways: {told:?}"));
        }
        self.judge_acts(id, rules, verdict);
        WaitingSteps::of(id).judge(&self.floors, &self.applied, verdict);
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
        self.judge_told(id, &members, self.told.iter().map(|(agent, (what, at))| (agent, *what, *at)), verdict);
        verdict
            .check(Invariant::SameStory, self.concluded.len() <= 1, || format!("{id} concluded {:?}", self.concluded));
        if when == When::AtRest {
            self.judge_steps(id, &members, unreached, verdict);
        }
    }
}

impl TeamSeen {
    fn told_receipt(&mut self, agent: &AgentId, receipt: &Receipt, at: Timestamp) {
        if receipt.disposition != Disposition::Ok {
            return;
        }
        let said = (agent.clone(), receipt.ack_of.clone());
        if receipt.invited.is_some() && self.calls.contains_key(&said) {
            self.opened = Some(said);
            return;
        }
        let Some(act) = self.acts.get(&said).copied() else { return };
        if act == Act::End {
            self.left.insert(agent.clone(), at);
        }
        if act == Act::Join {
            self.joined.insert(agent.clone());
        }
        if let Some(step) = receipt.step {
            let triggers = self.triggers.get(&said).into_iter().flatten();
            let tasks = receipt.tasks.iter().chain(triggers).copied().collect();
            self.applied.insert(step, AppliedAct { by: agent.clone(), act, turn: receipt.turn, tasks });
        }
    }

    fn told_closed(&mut self, envelope: &DeliveryEnvelope, agent: &AgentId, closing: &Closing) {
        let at = envelope.ts.0;
        if let Some(conclusion) = &closing.conclusion {
            self.concluded.insert(conclusion.text.clone());
        }
        if !self.is_one() {
            return;
        }
        let asked = envelope.in_reply_to.clone().map(|msg_id| (agent.clone(), msg_id));
        self.ends.entry(asked).and_modify(|known| *known = at.min(*known)).or_insert(at);
        self.closed.entry(agent.clone()).or_insert_with(|| closing.clone());
        if closing.conclusion.is_some() {
            self.told.insert(agent.clone(), ("the conclusion", at));
        }
    }

    /// Who called it.
    pub(super) fn lead(&self) -> Option<&AgentId> {
        self.call().map(|(lead, _)| lead)
    }

    /// The call that opened it, as far as that is known: where its sender was not told, it is known of an only call.
    fn call(&self) -> Option<(&AgentId, &TeamRules)> {
        let mut calls = self.calls.iter();
        let found = match &self.opened {
            Some(opened) => calls.find(|(call, _)| *call == opened),
            None => calls.next().filter(|_| self.calls.len() == 1),
        };
        found.map(|((lead, _), rules)| (lead, rules))
    }

    /// Whether an agent has said that it leaves.
    pub(super) fn has_left(&self, agent: &str) -> bool {
        self.is_one() && self.has_said(agent, Act::End)
    }

    fn has_said(&self, agent: &str, said: Act) -> bool {
        self.acts.iter().any(|((by, _), act)| by.as_str() == agent && *act == said)
    }

    /// Nobody but members is told what only members may know, and no member once it has left.
    fn judge_told<'a>(
        &self,
        id: &NegotiationId,
        members: &[AgentId],
        told: impl Iterator<Item = (&'a AgentId, &'static str, Timestamp)>,
        verdict: &mut Verdict,
    ) {
        for (agent, what, at) in told {
            let has_seat = members.contains(agent) && self.left.get(agent).is_none_or(|left| at <= *left);
            verdict
                .check(Invariant::MembersOnly, has_seat, || format!("{agent} has no seat in {id} and was told {what}"));
        }
    }

    /// Judges the tasks: each ends once, with what its owner reported, and nobody else hears of it.
    pub(super) fn judge_tasks<'a>(
        &self,
        id: &NegotiationId,
        when: When,
        find: impl Fn(u32) -> Option<TaskFound<'a>> + 'a,
        verdict: &mut Verdict,
    ) {
        let (Some((_, rules)), Some(members)) = (self.call(), self.members()) else { return };
        let mut ended: BTreeMap<u32, (&TeamTask, Timestamp)> = BTreeMap::new();
        for (task, at) in self.ended_tasks() {
            let before = ended.insert(task.task, (task, at));
            verdict.check(Invariant::OneResult, before.is_none(), || {
                format!("task {} of {id} ended as {before:?} and as {task:?}", task.task)
            });
            self.judge_result(id, task, (when, &find), verdict);
        }
        for (number, found) in (1..=rules.tasks).filter_map(|number| Some((number, find(number)?))) {
            self.judge_told(id, &members, found.task.told_to(), verdict);
            for sub_team in &found.sub_teams {
                let ended = ended.get(&number).copied();
                SubTeamOfTask { id, number, task: &found, sub_team, ended }.judge(when, verdict);
            }
        }
    }

    /// The tasks that ended, as steps say, each with the time of the record.
    fn ended_tasks(&self) -> impl Iterator<Item = (&TeamTask, Timestamp)> {
        let floors = self.floors.values().filter_map(|told| told.values().next());
        let tasks = floors.flat_map(|floor| floor.tasks.iter().map(|task| (task, floor.step)));
        let ended = tasks.filter(|(task, _)| matches!(task.status, TaskStatus::Done | TaskStatus::Failed));
        ended.filter_map(|(task, step)| Some((task, *self.stepped_at.get(&step)?)))
    }

    /// Judges how a task ended against what its owner sent, and what the end of the team says of it.
    fn judge_result<'a>(
        &self,
        id: &NegotiationId,
        task: &TeamTask,
        (when, find): (When, &FindTask<'a>),
        verdict: &mut Verdict,
    ) {
        let digest = task.result.as_ref().map(|result| Digest::of_bytes(result.as_bytes()));
        let closings = self.closed.values().flat_map(|closing| &closing.tasks).filter(|told| told.task == task.task);
        for told in closings {
            let is_same = (told.status, &told.owner, told.digest) == (task.status, &task.owner, digest);
            verdict.check(Invariant::OneResult, is_same, || format!("{id} ended with {told:?}, which was {task:?}"));
        }
        if task.status != TaskStatus::Done {
            return;
        }
        let reported = match (&task.owner, find(task.task)) {
            (Some(owner), Some(found)) => {
                let TaskFound { task: seen, unreached, sub_teams } = found;
                // Without confirmation only whoever assigned it is told that it binds.
                let is_bound = seen.has_bound(owner) || when == When::Early || !unreached.is_empty();
                let result = task.result.as_deref();
                let is_conclusion =
                    || sub_teams.iter().any(|found| result.is_some_and(|it| found.team.has_concluded(it, when)));
                is_bound && (seen.has_reported(owner, result) || is_conclusion())
            }
            (_, _) => false,
        };
        verdict.check(Invariant::OneResult, reported, || format!("{id} has {task:?}, which its owner never reported"));
    }

    /// Whether it has this conclusion: with messages still under way, nobody may have been told that it has.
    fn has_concluded(&self, text: &str, when: When) -> bool {
        self.concluded.contains(text) || (when == When::Early && self.proposed.contains(text))
    }

    /// When it ended, as it was told without being asked, or its caller in reply to the call.
    fn ended_at(&self) -> Option<Timestamp> {
        let untold = self.ends.get(&None);
        let called = self.opened.as_ref().and_then(|call| self.ends.get(&Some(call.clone())));
        untold.into_iter().chain(called).min().copied()
    }

    /// Who took a seat, as the first notice says.
    fn members(&self) -> Option<Vec<AgentId>> {
        // Later steps name those that are left.
        let mut told = self.floors.get(&1)?.values().map(|floor| &floor.members);
        told.find(|members| !members.is_empty()).cloned()
    }

    /// How the team stood after a step, as any member was told.
    fn floor(&self, step: u32) -> Option<&Floor> {
        self.floors.get(&step)?.values().next()
    }

    fn judge_acts(&self, id: &NegotiationId, rules: &TeamRules, verdict: &mut Verdict) {
        for (step, AppliedAct { by: agent, act, turn, .. }) in &self.applied {
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
        let stayed = members.iter().filter(|member| self.closed.contains_key(*member) && !unreached.contains(*member));
        let left =
            |member: &&AgentId| self.applied.values().any(|applied| applied.by == **member && applied.act == Act::End);
        for member in stayed.filter(|member| !left(member)) {
            for step in 1..=last {
                let is_told = self.floors.get(&step).is_some_and(|told| told.contains_key(member));
                let is_own = self.applied.get(&step).is_some_and(|applied| applied.by == *member);
                // The last step may be the one that ends the team, which CLOSED tells.
                let is_end =
                    step == last && self.applied.get(&step).is_some_and(|applied| applied.act == Act::Conclude);
                verdict.check(Invariant::SameStory, is_told != is_own || is_end, || {
                    format!("{id}: of step {step} {member} was told {}", if is_told { "twice" } else { "nothing" })
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
