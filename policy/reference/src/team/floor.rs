//! Who holds the floor, what every member hears of it, and how a team comes to conclude (docs/spec/team.md#tm-5).

use schemas::delivery::Outcome;
use schemas::team::{
    AtConclusion, Conclusion, Floor, OnRepeat, ProposedConclusion, Spoken, TaskMode, TeamState, TeamTask, VoteCount,
    VoteOf,
};
use schemas::{Digest, NegotiationId, OfferId, Timestamp, WireTime};

use super::{Team, TeamStage, repetition};
use crate::contract_net::count;
use crate::contract_net::task::{TaskCall, TaskStanding};
use crate::{Moment, fact};

/// What is new in a notice, beside how the team stands.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) said: Option<Spoken>,
    /// The tasks that changed.
    pub(super) tasks: Vec<TeamTask>,
    pub(super) has_new_members: bool,
    pub(super) has_new_muted: bool,
}

impl Team {
    pub(super) fn say(&mut self, who: usize, text: String, next: Option<usize>, moment: Moment) {
        let repeats = repetition::most_similar(&self.spoken, &text, self.rules.repeat_ppm);
        if repeats.is_none() {
            self.spoken.push((self.step + 1, text.clone()));
        }
        let said = match repeats.filter(|_| self.rules.on_repeat == OnRepeat::Reference) {
            Some(repeats) => Spoken::Repeats { repeats },
            None => Spoken::Text { text },
        };
        let next = next.unwrap_or_else(|| self.next_seat(who));
        self.advance(next, Some(who), &News { said: Some(said), ..News::default() }, moment);
    }

    /// A member leaves (docs/spec/team.md#tm-47).
    pub(super) fn leave(&mut self, who: usize, moment: Moment) {
        self.people[who].has_left = true;
        self.tasks.member_left(&self.people[who].agent);
        if self.members().len() < 2 {
            return self.end(Outcome::Unconcluded, Some("left"), moment);
        }
        let Some(lead) = self.lead() else {
            let had_the_floor = matches!(self.stage, TeamStage::Discussing { speaker, .. } if speaker == who);
            self.turn += u32::from(had_the_floor);
            return self.end(Outcome::Unconcluded, Some("silence"), moment);
        };
        let news = News { has_new_members: true, ..News::default() };
        match self.stage.clone() {
            TeamStage::Discussing { speaker, .. } if speaker == who => self.advance(lead, Some(who), &news, moment),
            TeamStage::Concluding { speaker, .. } if speaker == who => self.ask_another(Some(who), &news, moment),
            TeamStage::Voting { .. } => self.count_without(who, &news, moment),
            TeamStage::Forming
            | TeamStage::Discussing { .. }
            | TeamStage::Waiting { .. }
            | TeamStage::Concluding { .. } => {
                self.tell(Some(who), &news);
            }
        }
    }

    pub(super) fn assign(&mut self, who: usize, calls: Vec<TaskCall>, mode: TaskMode, moment: Moment) {
        let numbers: Vec<u32> = calls.into_iter().map(|call| self.tasks.add(call)).collect();
        let tasks = numbers.iter().map(|&number| self.tasks.told(number)).collect();
        let news = News { tasks, ..News::default() };
        match mode {
            TaskMode::Sync if !numbers.is_empty() => self.wait(who, numbers.clone(), true, Some(who), &news),
            TaskMode::Sync | TaskMode::Async => self.advance(who, Some(who), &news, moment),
        }
        self.receipt_tasks = numbers;
    }

    pub(super) fn pause(&mut self, who: usize, triggers: &[u32], text: Option<String>, moment: Moment) {
        let open = self.tasks.open();
        let waits: Vec<u32> = open.into_iter().filter(|number| triggers.contains(number)).collect();
        let news = News { said: text.map(|text| Spoken::Text { text }), ..News::default() };
        if waits.is_empty() {
            self.advance(who, Some(who), &news, moment);
        } else {
            self.wait(who, waits, false, Some(who), &news);
        }
    }

    fn wait(&mut self, who: usize, tasks: Vec<u32>, is_sync: bool, by: Option<usize>, news: &News) {
        self.turn += 1;
        self.stage = TeamStage::Waiting { setter: who, tasks, is_sync };
        self.tell(by, news);
    }

    /// One input of a task is over: what became of it (docs/spec/team.md#tm-5).
    pub(crate) fn task_stands(&mut self, task: &NegotiationId, standing: TaskStanding, moment: Moment) {
        if self.outcome.is_some() {
            return;
        }
        let Some(number) = self.tasks.note(task, standing) else { return };
        let news = News { tasks: vec![self.tasks.told(number)], ..News::default() };
        if let TeamStage::Waiting { setter, tasks, .. } = &self.stage
            && self.tasks.open().iter().all(|open| !tasks.contains(open))
        {
            self.discuss(*setter, None, &news, moment);
        } else {
            self.tell(None, &news);
        }
    }

    /// A conclusion binds at once, or is put to the vote, its author being for it.
    pub(super) fn conclude(&mut self, who: usize, text: String, moment: Moment) {
        let terms_digest = Digest::of_bytes(text.as_bytes());
        let by = self.people[who].agent.clone();
        let conclusion = ProposedConclusion { offer_id: OfferId(moment.position), by, text, terms_digest };
        let Some(vote) = self.rules.vote else { return self.bind(&conclusion, None, moment) };
        let vote_by = moment.clock.plus_ms(vote.vote_ms).min(self.ends_by);
        self.stage = TeamStage::Voting { conclusion, votes: vec![(who, true)], vote_by };
        self.tell(Some(who), &News::default());
    }

    pub(super) fn vote(&mut self, who: usize, is_for: bool, moment: Moment) {
        let TeamStage::Voting { votes, .. } = &mut self.stage else { unreachable!("a vote is taken") };
        votes.push((who, is_for));
        if self.must_pass() {
            self.pass(moment);
        } else if self.cannot_pass() {
            self.reject(moment);
        }
    }

    /// A member has left while a vote was taken; its own vote goes with it, and a conclusion with its author.
    fn count_without(&mut self, who: usize, news: &News, moment: Moment) {
        let TeamStage::Voting { conclusion, votes, .. } = &mut self.stage else { unreachable!("a vote is taken") };
        votes.retain(|(voter, _)| *voter != who);
        let is_author = conclusion.by == self.people[who].agent;
        if is_author || self.cannot_pass() {
            self.reject_with(Some(who), news, moment);
        } else if self.must_pass() {
            self.pass(moment);
        } else {
            self.tell(Some(who), news);
        }
    }

    fn votes(&self, is_for: bool) -> u32 {
        let TeamStage::Voting { votes, .. } = &self.stage else { return 0 };
        count(votes.iter().filter(|(_, vote)| *vote == is_for).count())
    }

    fn needed(&self) -> u32 {
        let members = count(self.members().len());
        match self.rules.vote.map(|vote| vote.of) {
            Some(VoteOf::Majority) => members / 2 + 1,
            Some(VoteOf::All) | None => members,
        }
    }

    fn must_pass(&self) -> bool {
        self.votes(true) >= self.needed()
    }

    fn cannot_pass(&self) -> bool {
        count(self.members().len()) - self.votes(false) < self.needed()
    }

    fn pass(&mut self, moment: Moment) {
        let votes = VoteCount { yes: self.votes(true), no: self.votes(false) };
        let TeamStage::Voting { conclusion, .. } = self.stage.clone() else { unreachable!("a vote is taken") };
        self.bind(&conclusion, Some(votes), moment);
    }

    fn bind(&mut self, concluded: &ProposedConclusion, votes: Option<VoteCount>, moment: Moment) {
        let ProposedConclusion { offer_id, by, text, terms_digest } = concluded.clone();
        self.conclusion = Some(Conclusion { by, offer_id, text, digest: terms_digest, turn: self.turn, votes });
        self.end(Outcome::Concluded, None, moment);
    }

    /// The conclusion does not bind: the lead goes on, while votes are left.
    pub(super) fn reject(&mut self, moment: Moment) {
        self.reject_with(None, &News::default(), moment);
    }

    fn reject_with(&mut self, by: Option<usize>, news: &News, moment: Moment) {
        self.rejected += 1;
        let attempts = self.rules.vote.map_or(0, |vote| vote.attempts);
        match self.lead() {
            Some(lead) if self.rejected < attempts => self.advance(lead, by, news, moment),
            Some(_) | None => self.end(Outcome::Unconcluded, Some("rejected"), moment),
        }
    }

    pub(super) fn act_by(&self, moment: Moment) -> Timestamp {
        moment.clock.plus_ms(self.rules.speak_ms).min(self.ends_by)
    }

    /// The next turn begins, for this member or whoever takes its place.
    fn advance(&mut self, to: usize, by: Option<usize>, news: &News, moment: Moment) {
        self.turn += 1;
        self.discuss(to, by, news, moment);
    }

    /// This member may speak, while there is a turn and time left.
    fn discuss(&mut self, to: usize, by: Option<usize>, news: &News, moment: Moment) {
        if self.turn > self.rules.turns || self.is_wrapped {
            return self.begin_to_conclude(by, news, moment);
        }
        self.stage = TeamStage::Discussing { speaker: self.due(to), act_by: self.act_by(moment) };
        self.tell(by, news);
    }

    /// There is only time to conclude.
    fn begin_to_conclude(&mut self, by: Option<usize>, news: &News, moment: Moment) {
        let lead = self.lead().expect("somebody may speak");
        let open = self.tasks.open();
        if !open.is_empty() && self.rules.at_conclusion == AtConclusion::Settle && !self.is_wrapped {
            self.stage = TeamStage::Waiting { setter: lead, tasks: open, is_sync: false };
            return self.tell(by, news);
        }
        self.stage = TeamStage::Concluding { speaker: lead, act_by: self.act_by(moment), asked: vec![lead] };
        self.tell(by, news);
    }

    pub(super) fn wrap(&mut self, moment: Moment) {
        self.is_wrapped = true;
        match self.stage {
            TeamStage::Discussing { .. } | TeamStage::Waiting { .. } => {
                self.begin_to_conclude(None, &News::default(), moment)
            }
            TeamStage::Forming | TeamStage::Concluding { .. } | TeamStage::Voting { .. } => {}
        }
    }

    /// Whoever holds the floor has let its time pass.
    pub(super) fn fall_silent(&mut self, moment: Moment) {
        match self.stage.clone() {
            TeamStage::Discussing { speaker, .. } => {
                let was_lead = self.lead() == Some(speaker);
                self.people[speaker].strikes += 1;
                self.turn += 1;
                let news = News { has_new_muted: self.is_muted(speaker), ..News::default() };
                let Some(lead) = self.lead() else { return self.end(Outcome::Unconcluded, Some("silence"), moment) };
                let to = if was_lead { self.next_seat(speaker) } else { lead };
                self.discuss(to, None, &news, moment);
            }
            TeamStage::Concluding { .. } => self.ask_another(None, &News::default(), moment),
            TeamStage::Forming | TeamStage::Waiting { .. } | TeamStage::Voting { .. } => {
                unreachable!("nobody holds the floor")
            }
        }
    }

    /// A seat that was not asked to conclude yet gets the floor.
    fn ask_another(&mut self, by: Option<usize>, news: &News, moment: Moment) {
        let TeamStage::Concluding { mut asked, .. } = self.stage.clone() else { unreachable!("it concludes") };
        let next = self.members().into_iter().find(|&who| self.may_speak(who) && !asked.contains(&who));
        let Some(next) = next else { return self.end(Outcome::Unconcluded, Some("silence"), moment) };
        asked.push(next);
        self.stage = TeamStage::Concluding { speaker: next, act_by: self.act_by(moment), asked };
        self.tell(by, news);
    }

    /// A strike of a member; enough of them mute it.
    pub(super) fn strike(&mut self, who: usize, moment: Moment) {
        let was_muted = self.is_muted(who);
        self.people[who].strikes += 1;
        if was_muted || !self.is_muted(who) {
            return;
        }
        if self.lead().is_none() {
            return self.end(Outcome::Unconcluded, Some("silence"), moment);
        }
        self.tell(None, &News { has_new_muted: true, ..News::default() });
    }

    /// One step, told to every member once: to the sender of what caused it by its receipt.
    pub(super) fn tell(&mut self, by: Option<usize>, news: &News) {
        self.step += 1;
        self.receipt_step = by.map(|_| self.step);
        let floor = self.stands(by, news);
        for member in self.members() {
            if Some(member) != by {
                self.facts.push(fact::whole(&self.id, &self.people[member].agent, &floor));
            }
        }
    }

    /// The tasks that are still waited for.
    fn waits(&self) -> Vec<u32> {
        let TeamStage::Waiting { tasks, .. } = &self.stage else { return Vec::new() };
        self.tasks.open().into_iter().filter(|open| tasks.contains(open)).collect()
    }

    fn stands(&self, by: Option<usize>, news: &News) -> Floor {
        let (state, speaker, act_by) = match &self.stage {
            TeamStage::Forming => unreachable!("nobody is told how a team stands before it has formed"),
            TeamStage::Discussing { speaker, act_by } => (TeamState::Discussing, Some(*speaker), Some(*act_by)),
            TeamStage::Waiting { is_sync: true, .. } => (TeamState::Awaiting, None, None),
            TeamStage::Waiting { is_sync: false, .. } => (TeamState::Paused, None, None),
            TeamStage::Concluding { speaker, act_by, .. } => (TeamState::Concluding, Some(*speaker), Some(*act_by)),
            TeamStage::Voting { vote_by, .. } => (TeamState::Voting, None, Some(*vote_by)),
        };
        let name = |who: usize| self.people[who].agent.clone();
        let members = self.members();
        let muted = members.iter().filter(|&&who| self.is_muted(who));
        Floor {
            step: self.step,
            turn: self.turn,
            turns_left: if self.is_wrapped { 0 } else { (self.rules.turns + 1).saturating_sub(self.turn) },
            state,
            speaker: speaker.map(name),
            act_by: act_by.map(WireTime),
            ends_by: WireTime(self.ends_by),
            by: by.map(name),
            said: news.said.clone(),
            tasks: news.tasks.clone(),
            waits: self.waits(),
            members: members.iter().filter(|_| news.has_new_members).map(|&who| name(who)).collect(),
            muted: muted.filter(|_| news.has_new_muted).map(|&who| name(who)).collect(),
            conclusion: if let TeamStage::Voting { conclusion, .. } = &self.stage {
                Some(conclusion.clone())
            } else {
                None
            },
        }
    }
}
