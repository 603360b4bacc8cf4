//! What follows from a message or a timer: a team forms, the floor passes, members fall silent and leave, a conclusion is
//! voted on (docs/spec/team.md#the-floor).

use std::sync::Arc;

use schemas::delivery::{CloseReason, Notification, Outcome, RejectReason, Rejection};
use schemas::digest::canonical;
use schemas::ids::Capability;
use schemas::team::{AtConclusion, Spoken, VoteRules};
use schemas::{Digest, RegisterKey, RegisterValue};

use super::ballot::{Ballot, ConclusionText, VoteResult};
use super::notices::TeamChange;
use super::roster::{JoinOffer, MemberStanding};
use super::rules::WellSaid;
use super::tasks::TasksAwaited;
use super::{LEFT, ORPHANED, REJECTED, SILENCE, Team};
use crate::acceptance::decision::{Cause, Decision, RankedOffer};
use crate::acceptance::tie_break::{self, OfferCandidate};
use crate::effect::{Deliver, Event, TurnKind};
use crate::negotiation::InputContext;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::family::{FamilyAction, FamilyOrder, TaskOpening, TaskProgress};
use schemas::protocols::Phase;

impl Team {
    /// An invited agent is a candidate for a seat (docs/spec/team.md#tm-15).
    pub(super) fn join(
        &mut self,
        index: usize,
        offer: JoinOffer,
        capabilities: Vec<Capability>,
        context: &mut InputContext<'_>,
    ) {
        let member = self.roster.member_mut(index);
        (member.standing, member.offer, member.capabilities) = (MemberStanding::Joined, Some(offer), capabilities);
        self.form_if_answered(context);
    }

    /// It will not join; what it offered before is void.
    pub(super) fn decline(&mut self, index: usize, standing: MemberStanding, context: &mut InputContext<'_>) {
        let member = self.roster.member_mut(index);
        (member.standing, member.offer) = (standing, None);
        self.form_if_answered(context);
    }

    /// Gives the seats once nobody is waited for (docs/spec/team.md#tm-17).
    fn form_if_answered(&mut self, context: &mut InputContext<'_>) {
        let joined = u32::try_from(self.roster.standing(MemberStanding::Joined).count()).unwrap_or(u32::MAX);
        if self.roster.has_all_answered() {
            self.form(CloseReason::AllResponded, context);
        } else if !self.is_ranked && joined >= self.rules.members.max {
            self.form(CloseReason::KValid, context);
        }
    }

    /// Gives the seats to the lead and the best that joined, or ends a team that too few joined (docs/spec/team.md#tm-18).
    pub(super) fn form(&mut self, reason: CloseReason, context: &mut InputContext<'_>) {
        let joined: Vec<usize> = self.roster.standing(MemberStanding::Joined).filter(|index| *index > 0).collect();
        let seats = usize::try_from(self.rules.members.max.saturating_sub(1)).unwrap_or(usize::MAX);
        if joined.len() + 1 < usize::try_from(self.rules.members.min).unwrap_or(usize::MAX) {
            return self.end(Outcome::NotFormed, None, None, context);
        }
        let ranked = self.ranked(&joined, context);
        let chosen: Vec<usize> = ranked.iter().take(seats).map(|candidate| candidate.session).collect();
        let decision = self.decision(reason, &ranked, chosen.len(), context);
        let digest = decision.digest();
        context.event(Event::Decided(Arc::new(decision)));
        let value = RegisterValue::Formed { decision: digest, chain: self.header.chain };
        context.register(self.formed_key(), value, None);
        for index in self.roster.seat(&chosen) {
            self.reject(index, context);
        }
        self.holder = 0;
        self.turn = 1;
        self.discuss(Some(0), &TeamChange { members: true, ..TeamChange::default() }, context);
    }

    /// Those that joined, best first: by the policy that is named, else by the hash that breaks its ties.
    fn ranked(&self, joined: &[usize], context: &InputContext<'_>) -> Vec<OfferCandidate> {
        let candidate = |index: &usize| {
            let member = self.roster.member(*index);
            let score = member.offer.as_ref().map_or(0, |offer| offer.score);
            Some(OfferCandidate {
                session: *index,
                contractor: member.party.agent.clone(),
                offer_id: member.offer_id()?,
                score,
                last_win: None,
            })
        };
        let mut ranked: Vec<OfferCandidate> = joined.iter().filter_map(candidate).collect();
        if self.is_ranked {
            tie_break::rank(&self.policy.policy, &self.header.id, context.position, &mut ranked);
        } else {
            tie_break::rank_by_hash(&self.header.id, context.position, &mut ranked);
        }
        ranked
    }

    fn decision(
        &self,
        closed: CloseReason,
        ranked: &[OfferCandidate],
        seats: usize,
        context: &InputContext<'_>,
    ) -> Decision {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let offer = |candidate: &OfferCandidate| {
            let terms = self.roster.member(candidate.session).offer.as_ref().map(|offer| canonical(&offer.terms).ok());
            RankedOffer {
                contractor: candidate.contractor.clone(),
                last_win: None,
                offer_id: candidate.offer_id,
                payment: None,
                price: None,
                reputation: self.reputations.get(candidate.session.saturating_sub(1)),
                score: candidate.score,
                terms: Digest::of_bytes(&terms.flatten().unwrap_or_default()),
                valid_until: None,
            }
        };
        let expected = count(self.roster.invited());
        let silent = count(self.roster.standing(MemberStanding::Invited).count());
        Decision {
            at: context.now,
            awards: Vec::new(),
            cause: Cause::Score,
            chain: self.header.chain,
            closed,
            complete: silent == 0,
            expected,
            negotiation: self.header.id.clone(),
            offers: ranked.iter().map(offer).collect(),
            policy: self.policy.digest,
            position: context.position,
            previous: None,
            responded: expected.saturating_sub(silent),
            round: 1,
            seats: Some(count(seats)),
        }
    }

    /// One that joined and got no seat: its final notice, once the formation is registered.
    fn reject(&self, index: usize, context: &mut InputContext<'_>) {
        let offer_id = self.roster.member(index).offer_id();
        let told = Notification::Reject(Rejection { offer_id, reason: RejectReason::Outscored, code: None });
        let delivery = self.header.delivery(context, self.roster.agent(index), told);
        context.deliver(Deliver { after: Some(self.formed_key()), ..delivery });
    }

    /// The turn has been taken: the next one is that of `next`, or the lead's in its place (docs/spec/team.md#tm-22).
    fn advance(&mut self, next: Option<usize>, change: &TeamChange, context: &mut InputContext<'_>) {
        self.turn = self.turn.saturating_add(1);
        self.discuss(next, change, context);
    }

    /// Discusses with the floor at `next`, unless turns or time are used up (docs/spec/team.md#tm-24).
    fn discuss(&mut self, next: Option<usize>, change: &TeamChange, context: &mut InputContext<'_>) {
        let Some(next) = next.and_then(|next| self.roster.due(next)) else {
            return self.end(Outcome::Unconcluded, Some(SILENCE), None, context);
        };
        if self.turn > self.rules.turns || self.has_wrapped {
            return self.wrap_up(change, context);
        }
        self.give_floor(Phase::Discussing, next, change, context);
    }

    fn give_floor(&mut self, phase: Phase, next: usize, change: &TeamChange, context: &mut InputContext<'_>) {
        self.awaited = None;
        (self.holder, self.act_by) = (next, context.clock.plus_ms(self.rules.speak_ms));
        self.enter(phase, context);
        self.tell(change, context);
    }

    /// Only a conclusion is taken from now on, from the lead first (docs/spec/team.md#tm-41).
    fn wrap_up(&mut self, change: &TeamChange, context: &mut InputContext<'_>) {
        let Some(lead) = self.roster.lead() else {
            return self.end(Outcome::Unconcluded, Some(SILENCE), None, context);
        };
        let open = self.tasks.open();
        if self.rules.at_conclusion == AtConclusion::Settle && !self.has_wrapped && !open.is_empty() {
            return self.wait_for(Phase::Paused, lead, open, change, context);
        }
        self.asked = vec![lead];
        self.give_floor(Phase::Concluding, lead, change, context);
    }

    /// While concluding: the next seat that has not been asked gets the floor, or nobody concludes
    /// (docs/spec/team.md#tm-42).
    fn ask_next(&mut self, change: &TeamChange, context: &mut InputContext<'_>) {
        let next =
            self.roster.seated().find(|index| self.roster.member(*index).is_active() && !self.asked.contains(index));
        match next {
            Some(next) => {
                self.asked.push(next);
                self.give_floor(Phase::Concluding, next, change, context);
            }
            None => self.end(Outcome::Unconcluded, Some(SILENCE), None, context),
        }
    }

    /// SAY (docs/spec/team.md#tm-25).
    pub(super) fn say(&mut self, index: usize, said: WellSaid, context: &mut InputContext<'_>) {
        let WellSaid { text, next, sketch, repeats } = said;
        self.note_turn(if repeats.is_some() { TurnKind::Repeat } else { TurnKind::Say }, context);
        if let (Some(sketch), None) = (sketch, repeats) {
            self.says.keep(self.step.saturating_add(1), sketch);
        }
        let said = Some(match repeats {
            Some(repeats) => Spoken::Repeats { repeats },
            None => Spoken::Text { text: text.to_string() },
        });
        self.note_said(index, text);
        self.advance(Some(next), &TeamChange { by: Some(index), said, ..TeamChange::default() }, context);
    }

    /// PAUSE: waits for those of the tasks that are open (docs/spec/team.md#tm-28), or goes on (docs/spec/team.md#tm-29).
    pub(super) fn pause(
        &mut self,
        index: usize,
        triggers: &[u32],
        text: Option<Box<str>>,
        context: &mut InputContext<'_>,
    ) {
        self.note_turn(TurnKind::Pause, context);
        let said = text.map(|text| Spoken::Text { text: text.into() });
        let change = TeamChange { by: Some(index), said, ..TeamChange::default() };
        let waits: Vec<u32> = self.tasks.open().into_iter().filter(|number| triggers.contains(number)).collect();
        if waits.is_empty() {
            return self.advance(Some(index), &change, context);
        }
        self.turn = self.turn.saturating_add(1);
        self.wait_for(Phase::Paused, index, waits, &change, context);
    }

    /// The floor was held in silence (docs/spec/team.md#tm-31, #tm-42).
    pub(super) fn handle_silence(&mut self, context: &mut InputContext<'_>) {
        self.note_turn(TurnKind::Silence, context);
        if self.phase == Phase::Concluding {
            return self.ask_next(&TeamChange::default(), context);
        }
        let silent = self.holder;
        let next = if self.roster.lead() == Some(silent) { self.roster.next_after(silent) } else { self.roster.lead() };
        let muted = self.roster.strike(silent, self.rules.max_strikes);
        self.advance(next, &TeamChange { muted, ..TeamChange::default() }, context);
    }

    fn note_turn(&self, kind: TurnKind, context: &mut InputContext<'_>) {
        context.event(Event::TurnTaken { negotiation: self.header.id.clone(), kind });
    }

    /// An act out of turn (docs/spec/team.md#tm-39). Whoever does it holds no floor, so that none passes.
    pub(super) fn strike(&mut self, index: usize, context: &mut InputContext<'_>) {
        if !self.roster.strike(index, self.rules.max_strikes) {
            return;
        }
        if self.roster.lead().is_none() {
            return self.end(Outcome::Unconcluded, Some(SILENCE), None, context);
        }
        self.tell(&TeamChange { muted: true, ..TeamChange::default() }, context);
    }

    /// CONCLUDE (docs/spec/team.md#tm-30).
    pub(super) fn conclude(&mut self, conclusion: ConclusionText, context: &mut InputContext<'_>) {
        self.note_turn(TurnKind::Conclude, context);
        let Some(vote) = self.rules.vote else {
            return self.end(Outcome::Concluded, None, Some((conclusion, None)), context);
        };
        let by = conclusion.by;
        self.attempts = self.attempts.saturating_add(1);
        self.ballot = Some(Ballot::new(conclusion, context.clock.plus_ms(vote.vote_ms)));
        self.enter(Phase::Voting, context);
        self.tell(&TeamChange { by: Some(by), ..TeamChange::default() }, context);
        self.settle_vote(vote, false, &TeamChange::default(), context);
    }

    /// A member's vote.
    pub(super) fn vote(&mut self, index: usize, is_for: bool, context: &mut InputContext<'_>) {
        if let (Some(ballot), Some(vote)) = (&mut self.ballot, self.rules.vote) {
            ballot.vote(index, is_for);
            self.settle_vote(vote, false, &TeamChange::default(), context);
        }
    }

    /// The time to vote is over.
    pub(super) fn handle_vote_timeout(&mut self, context: &mut InputContext<'_>) {
        if let Some(vote) = self.rules.vote {
            self.settle_vote(vote, true, &TeamChange::default(), context);
        }
    }

    /// Ends the vote once it must pass or cannot (docs/spec/team.md#tm-35).
    fn settle_vote(&mut self, vote: VoteRules, is_over: bool, change: &TeamChange, context: &mut InputContext<'_>) {
        let Some(ballot) = &self.ballot else { return };
        match ballot.result(vote.of, &self.roster, is_over) {
            VoteResult::Open => {
                if change.members {
                    self.tell(change, context);
                }
            }
            VoteResult::Passed => {
                let (conclusion, count) = (ballot.conclusion.clone(), ballot.count(&self.roster));
                self.end(Outcome::Concluded, None, Some((conclusion, Some(count))), context);
            }
            VoteResult::Rejected if self.attempts >= vote.attempts => {
                self.end(Outcome::Unconcluded, Some(REJECTED), None, context);
            }
            VoteResult::Rejected => {
                self.ballot = None;
                let lead = self.roster.lead();
                self.advance(lead, change, context);
            }
        }
    }

    /// END of a member (docs/spec/team.md#tm-47).
    pub(super) fn leave(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.roster.member_mut(index).standing = MemberStanding::Left;
        let agent = self.roster.agent(index);
        self.order_tasks(|| FamilyAction::MemberLeft(agent.clone()), context);
        if self.roster.seated().count() < 2 {
            return self.end(Outcome::Unconcluded, Some(LEFT), None, context);
        }
        let change = TeamChange { by: Some(index), members: true, ..TeamChange::default() };
        let held_floor = self.holder == index;
        match (self.phase, self.rules.vote) {
            (Phase::Discussing, _) if held_floor => {
                let lead = self.roster.lead();
                self.advance(lead, &change, context);
            }
            (_, _) if self.roster.lead().is_none() => {
                self.end(Outcome::Unconcluded, Some(SILENCE), None, context);
            }
            (Phase::Concluding, _) if held_floor => self.ask_next(&change, context),
            (Phase::Voting, Some(vote)) => self.settle_vote(vote, false, &change, context),
            (_, _) => self.tell(&change, context),
        }
    }

    /// Only a conclusion is taken from now on; while members vote it is only noted (docs/spec/team.md#tm-41).
    pub(super) fn handle_wrap(&mut self, context: &mut InputContext<'_>) {
        self.has_wrapped = true;
        if matches!(self.phase, Phase::Discussing | Phase::Awaiting | Phase::Paused) {
            self.wrap_up(&TeamChange::default(), context);
        }
    }

    /// The award that it works for is committed no longer (docs/spec/team.md#tm-66).
    pub(crate) fn handle_parent_ended(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::Cancelled, Some(ORPHANED), None, context);
    }

    /// ASSIGN (docs/spec/team.md#tm-26): opens the tasks, and waits for them or goes on.
    pub(super) fn assign(
        &mut self,
        index: usize,
        openings: Vec<TaskOpening>,
        is_awaited: bool,
        context: &mut InputContext<'_>,
    ) {
        self.note_turn(TurnKind::Assign, context);
        let first = self.tasks.count() + 1;
        for opening in openings {
            self.tasks.open_next(&opening.brief.title, self.step.saturating_add(1));
            let (to, cause) = (opening.id.clone(), self.header.chain);
            context.orders.give(FamilyOrder { to, cause, action: FamilyAction::OpenTask(Box::new(opening)) });
        }
        let numbers: Vec<u32> = (first..=self.tasks.count()).collect();
        let tasks = numbers.iter().filter_map(|number| self.tasks.told(*number)).collect();
        let change = TeamChange { by: Some(index), tasks, ..TeamChange::default() };
        if is_awaited && !numbers.is_empty() {
            self.turn = self.turn.saturating_add(1);
            self.wait_for(Phase::Awaiting, index, numbers, &change, context);
        } else {
            self.advance(Some(index), &change, context);
        }
    }

    /// Until these tasks have ended; then the setter has the floor.
    fn wait_for(
        &mut self,
        phase: Phase,
        setter: usize,
        tasks: Vec<u32>,
        change: &TeamChange,
        context: &mut InputContext<'_>,
    ) {
        self.awaited = Some(TasksAwaited::new(setter, tasks));
        self.enter(phase, context);
        self.tell(change, context);
    }

    /// The tasks that are still waited for, ascending.
    pub(super) fn waits(&self) -> Vec<u32> {
        self.awaited.as_ref().map(|awaited| awaited.open(&self.tasks)).unwrap_or_default()
    }

    /// A task stands otherwise than before; its end is a step (docs/spec/team.md#tm-45).
    pub(crate) fn handle_progress(&mut self, number: u32, progress: TaskProgress, context: &mut InputContext<'_>) {
        // Of an aborted task nothing may wait for the register: it may hold something else.
        let is_registered = progress.code.as_deref() != Some("aborted");
        if !self.tasks.note(number, progress) {
            return;
        }
        let id = self.header.id.task(number).filter(|_| is_registered);
        let tasks = self.tasks.told(number).into_iter().collect();
        let change = TeamChange { tasks, after: id.map(RegisterKey::Closed), ..TeamChange::default() };
        match &self.awaited {
            Some(awaited) if self.waits().is_empty() => {
                let setter = awaited.setter();
                self.discuss(Some(setter), &change, context);
            }
            Some(_) | None => self.tell(&change, context),
        }
    }

    /// Orders the same of every open task.
    pub(super) fn order_tasks(&self, action: impl Fn() -> FamilyAction, context: &mut InputContext<'_>) {
        for number in self.tasks.open() {
            let Some(to) = self.header.id.task(number) else { continue };
            context.orders.give(FamilyOrder { to, cause: self.header.chain, action: action() });
        }
    }
}
