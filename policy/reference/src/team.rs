//! A naive team (docs/spec/team.md): who sits where, who leads, who may speak and what is waited for is asked anew of plain
//! lists whenever it matters.

mod assigning;
mod floor;
mod hearing;
pub(crate) mod opening;
mod repetition;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use policy_core::{Cause, Deliver};
use schemas::delivery::{Notification, Outcome, RejectReason, Rejection};
use schemas::ids::Capability;
use schemas::payload::Terms;
use schemas::policy::TieBreak;
use schemas::team::{AtConclusion, Conclusion, ProposedConclusion, TeamRules, WRAP_TIMES};
use schemas::{AgentId, AwardNo, Lot, NegotiationId, OfferId, Policy, RegisterKey, Timestamp};

use crate::contract_net::{Party, count};
use crate::scoring::Ranked;
use crate::{Moment, fact, scoring};
use floor::News;
use tasks::{TaskBoard, TaskOrder};

/// Timers that are due together fire in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TeamTimer {
    Hard,
    Join,
    Vote,
    Speak,
    Wrap,
}

#[derive(Debug)]
pub(crate) struct Team {
    id: NegotiationId,
    rules: TeamRules,
    /// Ranks who joins, where the call names one.
    policy: Option<Policy>,
    /// The levels of sub-teams that may stand below it.
    depth_left: u32,
    /// How many more negotiations its family may open.
    pub(crate) family_room: usize,
    /// What it has concluded, while its task is not told yet.
    raised: Option<String>,
    /// What its tasks run under, unless an assignment names another.
    task_policy: Option<Policy>,
    reputations: BTreeMap<AgentId, u64>,
    is_public: bool,
    join_by: Timestamp,
    pub(crate) ends_by: Timestamp,
    /// The initiator, then the invited by their ids: the order of seats.
    people: Vec<Person>,
    stage: TeamStage,
    turn: u32,
    step: u32,
    /// Whether the time to wrap up has come.
    is_wrapped: bool,
    /// Says that repeat no other: their steps and texts.
    spoken: Vec<(u32, String)>,
    /// Conclusions that were voted down.
    rejected: u32,
    pub(crate) outcome: Option<Outcome>,
    detail: Option<&'static str>,
    conclusion: Option<Conclusion>,
    /// The step of which the sender of the present message hears in its receipt.
    receipt_step: Option<u32>,
    /// The tasks of which it hears so.
    receipt_tasks: Vec<u32>,
    tasks: TaskBoard,
    /// Whether the last receipt was its sender's notice.
    pub(crate) answered_at_once: bool,
    pub(crate) facts: Vec<String>,
}

/// What a team does.
#[derive(Debug, Clone)]
enum TeamStage {
    Forming,
    Discussing {
        speaker: usize,
        act_by: Timestamp,
    },
    /// Until these tasks have ended.
    Waiting {
        setter: usize,
        tasks: Vec<u32>,
        is_sync: bool,
    },
    Concluding {
        speaker: usize,
        act_by: Timestamp,
        asked: Vec<usize>,
    },
    Voting {
        conclusion: ProposedConclusion,
        votes: Vec<(usize, bool)>,
        vote_by: Timestamp,
    },
}

/// The initiator, or one of the invited.
#[derive(Debug)]
struct Person {
    agent: AgentId,
    party: Party,
    answer: JoinAnswer,
    is_seated: bool,
    has_left: bool,
    was_heard: bool,
    strikes: u32,
    capabilities: Vec<Capability>,
}

/// What one of the invited has answered the call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum JoinAnswer {
    None,
    /// Nobody waits for it, and it may still answer.
    Undelivered,
    Joined(OfferId, Terms),
    Declined,
}

impl Person {
    fn called(agent: &AgentId) -> Self {
        Self {
            agent: agent.clone(),
            party: Party::default(),
            answer: JoinAnswer::None,
            is_seated: false,
            has_left: false,
            was_heard: false,
            strikes: 0,
            capabilities: Vec::new(),
        }
    }

    fn is_member(&self) -> bool {
        self.is_seated && !self.has_left
    }
}

impl Team {
    pub(crate) fn id(&self) -> &NegotiationId {
        &self.id
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.people.iter().any(|person| person.agent == *agent)
    }

    /// Every timer that is armed while it goes on.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, TeamTimer)> {
        let mut timers = vec![(self.ends_by, TeamTimer::Hard)];
        if !self.is_wrapped {
            timers.push((self.wrap_at(), TeamTimer::Wrap));
        }
        timers.extend(match self.stage {
            TeamStage::Forming => Some((self.join_by, TeamTimer::Join)),
            TeamStage::Discussing { act_by, .. } | TeamStage::Concluding { act_by, .. } => {
                Some((act_by, TeamTimer::Speak))
            }
            TeamStage::Waiting { .. } => None,
            TeamStage::Voting { vote_by, .. } => Some((vote_by, TeamTimer::Vote)),
        });
        timers
    }

    pub(crate) fn fire(&mut self, timer: TeamTimer, moment: Moment) {
        match timer {
            TeamTimer::Hard if matches!(self.stage, TeamStage::Forming) => self.end(Outcome::NotFormed, None, moment),
            TeamTimer::Hard => self.end(Outcome::Unconcluded, Some("deadline"), moment),
            TeamTimer::Join => self.form(moment),
            TeamTimer::Wrap => self.wrap(moment),
            TeamTimer::Speak => self.fall_silent(moment),
            TeamTimer::Vote => self.reject(moment),
        }
    }

    /// When it only concludes from (docs/spec/team.md#tm-5).
    fn wrap_at(&self) -> Timestamp {
        Timestamp(self.ends_by.0 - WRAP_TIMES * self.rules.speak_ms * 1000)
    }

    fn members(&self) -> Vec<usize> {
        (0..self.people.len()).filter(|&index| self.people[index].is_member()).collect()
    }

    fn is_muted(&self, who: usize) -> bool {
        self.people[who].strikes >= self.rules.max_strikes
    }

    fn may_speak(&self, who: usize) -> bool {
        self.people[who].is_member() && !self.is_muted(who)
    }

    /// The initiator, while it may lead, else the first seat that may.
    fn lead(&self) -> Option<usize> {
        (0..self.people.len()).find(|&index| self.may_speak(index))
    }

    /// Who gets the floor that is due to somebody.
    fn due(&self, who: usize) -> usize {
        if self.may_speak(who) { who } else { self.lead().expect("a team whose members are all muted has ended") }
    }

    /// The next seat behind this one that may have the floor.
    fn next_seat(&self, who: usize) -> usize {
        let seats = self.people.len();
        let behind = (1..=seats).map(|distance| (who + distance) % seats);
        behind.into_iter().find(|&index| self.may_speak(index)).expect("a team whose members are all muted has ended")
    }

    /// Everybody who was to answer has, or need not.
    fn form_if_answered(&mut self, moment: Moment) {
        let has_all = self.people[1..].iter().all(|person| person.answer != JoinAnswer::None);
        let joined = count(self.joined().len());
        let is_full = self.policy.is_none() && joined + 1 >= self.rules.members.max;
        if has_all || is_full {
            self.form(moment);
        }
    }

    fn joined(&self) -> Vec<(usize, OfferId)> {
        let joined = self.people.iter().enumerate().filter_map(|(index, person)| match &person.answer {
            JoinAnswer::Joined(offer, _) => Some((index, *offer)),
            JoinAnswer::None | JoinAnswer::Undelivered | JoinAnswer::Declined => None,
        });
        joined.collect()
    }

    /// Seats are given, or there are too few to fill them.
    fn form(&mut self, moment: Moment) {
        if count(self.joined().len()) + 1 < self.rules.members.min {
            return self.end(Outcome::NotFormed, None, moment);
        }
        let ranking = self.ranking(moment);
        self.note_decision(&ranking, moment);
        let seats = usize::try_from(self.rules.members.max - 1).expect("at most 64");
        for (rank, &(index, offer_id)) in ranking.iter().enumerate() {
            if rank < seats {
                self.people[index].is_seated = true;
            } else {
                let rejection = Rejection { offer_id: Some(offer_id), reason: RejectReason::Outscored, code: None };
                self.facts.push(fact::reject(&self.id, &self.people[index].agent, &rejection));
            }
        }
        let key = RegisterKey::Award(self.id.clone(), Lot(0), AwardNo(1)).to_string();
        self.facts.push(fact::formed_entry(&key));
        self.turn = 1;
        self.stage = TeamStage::Discussing { speaker: 0, act_by: self.act_by(moment) };
        self.tell(None, &News { has_new_members: true, ..News::default() });
    }

    /// Who joined, the best first (docs/spec/team.md#tm-15).
    fn ranking(&self, moment: Moment) -> Vec<(usize, OfferId)> {
        let by_hash = Policy { tie_break: TieBreak::Hash, ..policy_core::preset("medium").expect("a preset") };
        let joined = self.joined();
        let offers = joined.iter().map(|&(index, offer)| Ranked {
            contractor: self.people[index].agent.clone(),
            offer,
            score: self.score(index),
            last_win: None,
        });
        let policy = self.policy.as_ref().unwrap_or(&by_hash);
        let ranked = scoring::rank(policy, &self.id, moment.position, offers.collect());
        let index_of = |ranked: Ranked| {
            let index = self.people.iter().position(|person| person.agent == ranked.contractor);
            (index.expect("it has joined"), ranked.offer)
        };
        ranked.into_iter().map(index_of).collect()
    }

    /// What terms are worth to the policy that the call names.
    fn score(&self, index: usize) -> u32 {
        match (&self.policy, &self.people[index].answer) {
            (Some(policy), JoinAnswer::Joined(_, terms)) => scoring::score(policy, terms),
            (_, _) => 0,
        }
    }

    fn note_decision(&mut self, ranking: &[(usize, OfferId)], moment: Moment) {
        let ranked = ranking.iter().map(|&(index, offer)| (offer, self.score(index), None, None, None));
        let ranked: Vec<_> = ranked.collect();
        self.facts.push(fact::decision_fact(&self.id, &Cause::Score, moment.position, moment.now, &ranked, &[]));
    }

    /// A call was given up: its recipient need not answer, and may where nobody waits for it any longer. After anything was
    /// heard of it this counts for nothing (docs/spec/team.md#tm-14).
    pub(crate) fn delivery_failed(&mut self, deliver: &Deliver, may_answer: bool, moment: Moment) {
        let person = self.people.iter_mut().find(|person| person.agent == deliver.to).expect("it was called");
        let is_call = matches!(&*deliver.told, Notification::Cfp(_));
        let is_awaited = person.answer == JoinAnswer::None && !person.was_heard;
        if is_call && is_awaited && matches!(self.stage, TeamStage::Forming) {
            person.answer = if may_answer { JoinAnswer::Undelivered } else { JoinAnswer::Declined };
            self.form_if_answered(moment);
        }
    }

    pub(super) fn end(&mut self, outcome: Outcome, detail: Option<&'static str>, moment: Moment) {
        (self.outcome, self.detail) = (Some(outcome), detail);
        self.raised = self.conclusion.as_ref().map(|conclusion| conclusion.text.clone());
        let has_formed = !matches!(self.stage, TeamStage::Forming);
        let everybody = (0..self.people.len()).filter(|&who| self.people[who].answer != JoinAnswer::Declined);
        let told: Vec<usize> = if has_formed { self.members() } else { everybody.collect() };
        let closed: Vec<String> = told.into_iter().map(|who| self.closed(who)).collect();
        self.facts.extend(closed);
        let counts = [self.turn, 0, u32::from(outcome == Outcome::Concluded)];
        self.facts.extend(fact::end(&self.id, outcome, self.is_public, counts, moment.now));
        match (outcome, self.rules.at_conclusion) {
            (Outcome::Concluded, AtConclusion::Leave) => {
                let lead = self.leader().expect("somebody concluded");
                self.tasks.leave(&lead);
            }
            (Outcome::Aborted, _) => self.tasks.abort(),
            (_, _) => self.tasks.call_off(),
        }
    }

    /// The award it works for is committed no longer.
    pub(crate) fn handle_parent_ended(&mut self, moment: Moment) {
        self.end(Outcome::Cancelled, Some("orphaned"), moment);
    }

    /// What it has concluded just now.
    pub(crate) fn take_raised(&mut self) -> Option<String> {
        self.raised.take()
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.end(Outcome::Aborted, None, moment);
    }

    /// How it ended; what was concluded is for members only.
    pub(super) fn closed(&self, who: usize) -> String {
        let outcome = self.outcome.expect("it has ended");
        let conclusion = self.conclusion.as_ref().filter(|_| self.people[who].is_member());
        let tasks = if self.people[who].is_member() { self.tasks.closed() } else { Vec::new() };
        fact::team_closed(&self.id, &self.people[who].agent, outcome, self.detail, conclusion, &tasks)
    }

    /// Whether an agent was a member, and has left.
    pub(crate) fn has_left(&self, agent: &AgentId) -> bool {
        self.people.iter().any(|person| person.agent == *agent && person.has_left)
    }

    /// The agent that leads, whom its tasks obey.
    pub(crate) fn leader(&self) -> Option<AgentId> {
        self.lead().map(|lead| self.people[lead].agent.clone())
    }

    /// What it does to its tasks, in the order of their ids.
    pub(crate) fn take_orders(&mut self) -> Vec<TaskOrder> {
        self.tasks.take_orders()
    }
}
