//! The contract net: one initiator calls, contractors offer, the exchange decides and awards (docs/spec/contract-net.md).
//!
//! Its state is kept in three parts, each with fields of its own: `collection.rs` (who has answered, when it closes),
//! `decision.rs` (ranking, records of decisions, runners-up) and `awards.rs` (what is registered and live). `rules.rs` finds
//! what becomes of a message and changes nothing; what follows is here, in `collection.rs` and in `awarding.rs`.

mod awarding;
pub(crate) mod awards;
mod collection;
mod decision;
pub(crate) mod english_auction;
pub(crate) mod opening;
pub(crate) mod rules;
pub(crate) mod session;
pub(crate) mod task;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;

use schemas::delivery::{
    Call, CloseReason, Notification, OffersReport, Outcome, ProgressReport, RejectReason, Rejection,
};
use schemas::document::CallDocuments;
use schemas::policy::{Decider, OnIncomplete, STEPS_MAX};
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Payload, Policy, RegisterKey, Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use crate::acceptance::decision::AwardLoss;
use crate::acceptance::decision::Cause;
use crate::acceptance::gate::GateFault;
use crate::acceptance::reputation::PinnedReputations;
use crate::acceptance::tie_break::OfferCandidate;
use crate::effect::{Deliver, Event, Invariant};
use crate::limits::Limits;
use crate::negotiation::disposition::{Incoming, ProtocolRules, header_and_phase};
use crate::negotiation::lazy_box::LazyBox;
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{ProtocolEnd, Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{Header, InputContext, NegotiationEnd, Party, Refusal, Ruling, delivery_id};
use crate::policy::PinnedPolicy;
use schemas::protocols::{Phase, Protocol};

use awarding::said;
use awards::{Awards, end_key};
use collection::Collection;
use decision::{CloseFacts, Deciding};
use rules::{ContractNetAction, Rules, Speaker, legal_acts};
pub use session::SessionState;
use session::{CollectedOffer, ContractorSession};
use task::TaskRole;

/// `T_collect`.
const COLLECT: TimerKind = TimerKind::of(Protocol::ContractNet, 1);
/// `T_window`.
const WINDOW: TimerKind = TimerKind::of(Protocol::ContractNet, 2);
/// The falling threshold meets the best score.
const CROSSING: TimerKind = TimerKind::of(Protocol::ContractNet, 3);
/// `decide_by`.
const DECIDE: TimerKind = TimerKind::of(Protocol::ContractNet, 4);
/// `T_confirm` of a lot.
const CONFIRM: TimerKind = TimerKind::of(Protocol::ContractNet, 5);
/// `T_perform` of a lot.
const PERFORM: TimerKind = TimerKind::of(Protocol::ContractNet, 6);
/// `T_cancel`.
const CANCEL: TimerKind = TimerKind::of(Protocol::ContractNet, 7);
/// One open contract net. `P` is what it runs under: its policy, and in a snapshot the digest of that.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContractNet<P = Arc<PinnedPolicy>> {
    header: Header,
    pinned: P,
    initiator: Party,
    /// The contractors, in the order of their ids.
    sessions: Box<[ContractorSession]>,
    currency: Option<Box<str>>,
    #[serde(with = "schemas::text::json")]
    documents: Option<Box<CallDocuments>>,
    /// The call, kept only where it may have to be sent again (more rounds, extensions).
    #[serde(with = "schemas::text::json")]
    call: Option<Arc<Call>>,
    phase: Phase,
    round: u32,
    collection: Collection,
    deciding: LazyBox<Deciding>,
    awards: LazyBox<Awards>,
    /// Offers with disposition `ok`, and final notices given: equal at the end.
    offers: u32,
    finals: u32,
    /// What makes it a task of a team.
    task: Option<Box<TaskRole>>,
    /// What the call pinned for each session.
    reputations: PinnedReputations,
}

impl ProtocolRules for ContractNet {
    type Speaker = Speaker;
    type Action = ContractNetAction;

    const PROTOCOL: Protocol = Protocol::ContractNet;
    const STRIKE: ContractNetAction = ContractNetAction::Strike;

    header_and_phase!();

    fn view(&self, viewer: &AgentId, _: Timestamp) -> Option<NegotiationView> {
        view::view_of(self, viewer)
    }

    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.take_all_back(AwardLoss::Aborted, context);
        self.end(Outcome::Aborted, Some(code), context);
    }

    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        if self.phase == Phase::Cancelling {
            return self.handle_cancel_timeout(context);
        }
        self.take_all_back(AwardLoss::Timeout, context);
        self.end(Outcome::Timeout, None, context);
    }

    fn next_timer(&self) -> Option<Timer> {
        let hard = (self.header.ends_by, TimerKind::HARD);
        let collecting = if self.phase == Phase::Collecting { self.collection.timers() } else { [None; 3] };
        let own = collecting.into_iter().flatten().chain(self.deciding.timer()).chain(self.awards.timers());
        (self.phase != Phase::Ended).then(|| own.fold(hard, std::cmp::min))
    }

    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>) {
        let lot = usize::try_from(timer.lot).unwrap_or(usize::MAX);
        match timer.of_lot(0) {
            COLLECT => self.handle_collect(context),
            WINDOW => self.handle_window(context),
            CROSSING => self.handle_crossing(context),
            DECIDE => self.handle_decide(context),
            CONFIRM => {
                self.lose_award(lot, AwardLoss::ConfirmTimeout, said("confirm_timeout"), context);
            }
            PERFORM => {
                self.lose_award(lot, AwardLoss::PerformTimeout, said("perform_timeout"), context);
            }
            CANCEL => self.handle_cancel_timeout(context),
            // No timer of it: left alone it would be due for ever.
            _ => self.handle_abort("unknown_timer", context),
        }
    }

    fn tombstone(&self, limits: &Limits) -> Tombstone {
        let parties: Vec<&Party> = self.parties().collect();
        let end = ProtocolEnd::ContractNet(self.awards.past());
        Tombstone::of(&self.header, self.round, &parties, end, limits).with_leads(self.leads())
    }

    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>) {
        let contractors = self.sessions.iter_mut().map(|session| &mut session.party);
        let leads = self.task.iter_mut().flat_map(|task| task.leads_mut());
        (&mut self.header, std::iter::once(&mut self.initiator).chain(contractors).chain(leads).collect())
    }

    fn check(&self) -> Result<(), &'static str> {
        let answered = |session: &&ContractorSession| session.round == self.round && session.state.is_response();
        let is_direct = self.task.as_ref().is_some_and(|task| task.is_direct());
        let answers = u32::try_from(self.sessions.iter().filter(answered).count()).unwrap_or(u32::MAX);
        if self.phase == Phase::Ended || self.header.outcome.is_some() {
            Err("an open negotiation has ended")
        } else if !self.sessions.is_sorted_by(|one, next| one.party.agent < next.party.agent) {
            Err("contractors are not in their order")
        } else if !is_direct && self.sessions.iter().any(ContractorSession::has_unsent_offer) {
            Err("an offer came in no message")
        } else if !self.deciding.is_within(self.sessions.len()) {
            Err("a runner-up is nobody")
        } else if self.phase == Phase::Collecting && answers != self.collection.responded() {
            Err("the answers do not add up")
        } else {
            self.parties().chain(self.leads()).try_for_each(Party::check)?;
            self.awards.check(self.sessions.len(), usize::try_from(STEPS_MAX).unwrap_or(usize::MAX))
        }
    }

    fn speaker(&self, agent: &AgentId) -> Option<Speaker> {
        if let Some(index) = self.session_of(agent) {
            return Some(Speaker::Contractor(index));
        }
        let is_initiator = *agent == self.initiator.agent;
        let lead = || self.leads().iter().position(|lead| lead.agent == *agent).map(Speaker::Lead);
        if is_initiator { Some(Speaker::Initiator) } else { lead() }
    }

    fn party(&self, speaker: Speaker) -> &Party {
        match speaker {
            Speaker::Initiator => &self.initiator,
            Speaker::Contractor(index) => &self.sessions[index].party,
            Speaker::Lead(index) => &self.leads()[index],
        }
    }

    fn party_mut(&mut self, speaker: Speaker) -> &mut Party {
        match speaker {
            Speaker::Initiator => &mut self.initiator,
            Speaker::Contractor(index) => &mut self.sessions[index].party,
            Speaker::Lead(index) => &mut self.leads_mut()[index],
        }
    }

    fn invited(&self) -> usize {
        self.sessions.len()
    }

    /// A CANCEL is only the beginning of an end.
    fn leaves(&self, _: Self::Speaker, _: &Payload) -> bool {
        false
    }

    fn gate_code(&self, fault: GateFault) -> String {
        fault.code(self.policy())
    }

    fn hear(&mut self, speaker: Speaker, context: &InputContext<'_>) {
        if let Speaker::Contractor(index) = speaker {
            self.sessions[index].heard = context.input;
        }
    }

    fn judge(
        &self,
        speaker: Speaker,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<ContractNetAction>, Refusal> {
        Rules::new(self, context).judge(speaker, incoming)
    }

    fn expected_acts(&self, speaker: Speaker) -> ActSet {
        legal_acts(self, speaker)
    }

    fn register(
        &mut self,
        action: &ContractNetAction,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, Option<RegisterKey>)> {
        let ContractNetAction::Confirm(lot) = action else { return None };
        let registered = self.awards.register_commitment(*lot, &self.header, context);
        registered.map(|(award_no, key)| (award_no, Some(key)))
    }

    fn commitment_key(&self, award_no: AwardNo) -> Option<RegisterKey> {
        self.awards.lot_of(award_no).map(|lot| end_key(&self.header, lot, award_no))
    }

    fn follow(&mut self, speaker: Speaker, action: ContractNetAction, context: &mut InputContext<'_>) {
        match (speaker, action) {
            (_, ContractNetAction::Cancel) => self.cancel(context),
            (_, ContractNetAction::Choose(chosen)) => self.choose(chosen, context),
            (Speaker::Contractor(index), action) => self.act_for(index, action, context),
            (Speaker::Initiator | Speaker::Lead(_), _) => {}
        }
    }

    fn policies(&self) -> Vec<&Arc<PinnedPolicy>> {
        vec![&self.pinned]
    }

    /// It counts for a CFP to an INVITED and an ACCEPT to an AWARDED contractor from whom nothing later was folded; otherwise
    /// the contractor lives, and its timers judge it. A CFP nobody waits for any more may still be answered.
    fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        let Some(index) = self.session_of(to) else { return };
        if let Some((position, ordinal)) = self.unanswered_call(index)
            && delivery_id(context.lane, &self.header.id, position, ordinal, to) == delivery
        {
            let state = if may_answer { SessionState::Undelivered } else { SessionState::Failed };
            self.decline(index, state, context);
        } else if let Some(lot) = self.unanswered_accept(index, delivery) {
            self.lose_award(lot, AwardLoss::Undelivered, said("undelivered"), context);
        }
    }
}

impl ContractNet<Digest> {
    /// What a snapshot holds, under the policy whose digest it names; absent where there is none.
    pub(crate) fn under(self, policy: impl FnOnce(Digest) -> Option<Arc<PinnedPolicy>>) -> Option<ContractNet> {
        Some(ContractNet {
            pinned: policy(self.pinned)?,
            header: self.header,
            initiator: self.initiator,
            sessions: self.sessions,
            currency: self.currency,
            documents: self.documents,
            call: self.call,
            phase: self.phase,
            round: self.round,
            collection: self.collection,
            deciding: self.deciding,
            awards: self.awards,
            offers: self.offers,
            finals: self.finals,
            task: self.task,
            reputations: self.reputations,
        })
    }
}

impl ContractNet {
    fn policy(&self) -> &Policy {
        &self.pinned.policy
    }

    /// Leads of the team whose task it is, that called it off and take no other part in it.
    fn leads(&self) -> &[Party] {
        self.task.as_ref().map_or(&[], |task| task.leads())
    }

    fn leads_mut(&mut self) -> &mut [Party] {
        self.task.as_mut().map_or(&mut [], |task| task.leads_mut())
    }

    fn session_of(&self, agent: &AgentId) -> Option<usize> {
        self.sessions.binary_search_by(|session| session.party.agent.cmp(agent)).ok()
    }

    fn act_for(&mut self, index: usize, action: ContractNetAction, context: &mut InputContext<'_>) {
        match action {
            // The last two are the initiator's, and done by then.
            ContractNetAction::Nothing | ContractNetAction::Cancel | ContractNetAction::Choose(_) => {}
            ContractNetAction::Strike => self.strike(index, context),
            ContractNetAction::Record(offer) => self.record_offer(index, offer, context),
            ContractNetAction::GateFailed => self.drop_offer(index, context),
            ContractNetAction::Decline(state) => self.decline(index, state, context),
            ContractNetAction::Withdraw => self.withdraw(index, context),
            ContractNetAction::Confirm(lot) => self.commit(lot, context),
            ContractNetAction::LoseAward(lot, loss, failure) => self.lose_award(lot, loss, failure, context),
            ContractNetAction::Perform(lot, inform) => self.perform(lot, inform, context),
            ContractNetAction::AnswerCancel(lot, answer) => self.answer_cancel(lot, answer, context),
        }
    }

    /// Changes a session's state and keeps the count of responses.
    fn set_state(&mut self, index: usize, state: SessionState) {
        let session = &mut self.sessions[index];
        if self.phase == Phase::Collecting && session.round == self.round {
            self.collection.count_answer(session.state, state);
        }
        session.state = state;
    }

    /// Delivers a report to the initiator about its call.
    fn report(&self, context: &mut InputContext<'_>, told: Notification, after: Option<RegisterKey>) {
        let delivery = self.header.delivery(context, &self.initiator.agent, told);
        context.deliver(Deliver { in_reply_to: Some(self.header.call_msg_id.clone()), after, ..delivery });
    }

    /// Passes on to the initiator what a contractor says.
    fn report_from(&self, contractor: AgentId, told: Notification, context: &mut InputContext<'_>) {
        let delivery = self.header.delivery(context, &self.initiator.agent, told);
        let in_reply_to = Some(self.header.call_msg_id.clone());
        context.deliver(Deliver { from: Some(contractor), in_reply_to, ..delivery });
    }

    /// The final notice REJECT for the offer a session has in the running; the offer leaves it.
    fn reject(&mut self, index: usize, reason: RejectReason, state: SessionState, context: &mut InputContext<'_>) {
        self.reject_offer(index, reason, context);
        self.set_state(index, state);
    }

    /// As [`Self::reject`], without a change of state.
    fn reject_offer(&mut self, index: usize, reason: RejectReason, context: &mut InputContext<'_>) {
        let session = &mut self.sessions[index];
        let Some(offer) = session.offer.take() else { return };
        self.collection.forget_tally();
        self.finals += 1;
        debug_assert!(self.finals <= self.offers, "an offer has one final notice");
        let told = Notification::Reject(Rejection { offer_id: Some(offer.id), reason, code: None });
        let delivery = self.header.delivery(context, &session.party.agent, told);
        context.deliver(Deliver { in_reply_to: session.message_of(&offer), ..delivery });
    }

    /// Puts an offer into the running, in place of the contractor's earlier one.
    fn replace_offer(&mut self, index: usize, offer: Box<CollectedOffer>, context: &mut InputContext<'_>) {
        self.reject_offer(index, RejectReason::Replaced, context);
        self.offers += 1;
        self.sessions[index].offer = Some(offer);
        self.set_state(index, SessionState::Offered);
    }

    /// Counts a strike; whether it is one too many.
    fn count_strike(&mut self, index: usize) -> bool {
        let session = &mut self.sessions[index];
        session.strikes = session.strikes.saturating_add(1);
        u32::from(session.strikes) >= self.pinned.policy.max_strikes
    }

    /// As [`Self::exclude`], but whether collection closes is not asked. False for who stays.
    fn drop_session(&mut self, index: usize, context: &mut InputContext<'_>) -> bool {
        if !self.sessions[index].state.is_excludable() {
            return false;
        }
        self.deciding.drop_runner_up(index);
        self.reject(index, RejectReason::Withdrawn, SessionState::Excluded, context);
        let contractor = self.sessions[index].party.agent.clone();
        context.event(Event::Excluded { negotiation: self.header.id.clone(), contractor });
        true
    }

    /// Ends the collection; what follows is not decided.
    fn end_collection(&mut self, reason: CloseReason, context: &mut InputContext<'_>) -> CloseFacts {
        let facts = self.collection.close(reason, &self.sessions, (context.position, context.now));
        self.deciding.note_close(facts);
        context.event(Event::Closed {
            negotiation: self.header.id.clone(),
            protocol: context.protocol,
            round: self.round,
            reason,
            complete: facts.complete,
            offers: facts.offers,
            responded: facts.responded,
            expected: facts.expected,
            at: context.now,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
        facts
    }

    /// Decides on an award after the close, or concludes the round.
    fn follow_close(&mut self, facts: CloseFacts, context: &mut InputContext<'_>) {
        self.reject_expired(context);
        let is_failed = self.policy().on_incomplete == OnIncomplete::Fail && !facts.complete;
        if !self.policy().award {
            let outcome = if facts.offers == 0 { Outcome::NoOffers } else { Outcome::Incomplete };
            self.end(outcome, Some("policy_awards_nobody"), context);
        } else if is_failed && facts.is_deadline() {
            self.conclude_round(Outcome::Incomplete, context);
        } else if facts.offers == 0 {
            self.conclude_round(Outcome::NoOffers, context);
        } else if self.policy().decider == Decider::Initiator {
            self.ask_initiator(context);
        } else {
            self.decide(None, Cause::Score, context);
        }
    }

    /// Offers whose validity has run out are no longer in the running.
    fn reject_expired(&mut self, context: &mut InputContext<'_>) {
        for index in 0..self.sessions.len() {
            let session = &self.sessions[index];
            let is_expired = session.offer.as_ref().is_some_and(|offer| !offer.is_valid(context.now));
            if session.state == SessionState::Offered && is_expired {
                self.reject(index, RejectReason::Expired, SessionState::Rejected, context);
            }
        }
    }

    /// Reveals all valid offers to the initiator at once; its ACCEPT, or its silence, decides.
    fn ask_initiator(&mut self, context: &mut InputContext<'_>) {
        let decide_by = context.clock.plus_ms(self.policy().decide_ms).min(self.header.ends_by);
        self.deciding.wait_until(decide_by);
        self.enter(Phase::Deciding, context);
        let offers = decision::revealed(self, context.position);
        let report = ProgressReport::Offers(OffersReport { offers, decide_by: WireTime(decide_by) });
        self.report(context, Notification::Inform(report), None);
    }

    /// The initiator has chosen; the score orders the runners-up.
    fn choose(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.reject_expired(context);
        self.decide(Some(index), Cause::Initiator, context);
    }

    /// `decide_by`: silence falls back to the score, among what is still valid.
    fn handle_decide(&mut self, context: &mut InputContext<'_>) {
        self.deciding.stop_waiting();
        self.reject_expired(context);
        if self.sessions.iter().any(|session| session.state == SessionState::Offered) {
            self.decide(None, Cause::InitiatorSilent, context);
        } else {
            self.conclude_round(Outcome::NoOffers, context);
        }
    }

    /// Ranks the valid offers, awards the lots, holds the runners-up, rejects the rest. `first` is the initiator's choice.
    fn decide(&mut self, first: Option<usize>, cause: Cause, context: &mut InputContext<'_>) {
        let ranked = decision::ranking(self, first, context);
        let winners = self.awards.ensure_lots(self.pinned.policy.awards).min(ranked.len());
        decision::set_payments((&self.pinned.policy, &self.reputations), &mut self.sessions, &ranked, winners);
        let placements = (0..winners).map(|lot| (lot, ranked[lot].session)).collect::<Vec<_>>();
        let digest = self.record_decision(&ranked, &placements, cause, context);
        let held = usize::try_from(self.policy().standby).unwrap_or(usize::MAX).min(ranked.len() - winners);
        let runners_up: Vec<usize> =
            ranked[winners..winners + held].iter().map(|candidate| candidate.session).collect();
        self.deciding.hold_runners_up(runners_up.clone());
        self.deciding.stop_waiting();
        self.enter(Phase::Awarding, context);
        for (lot, session) in placements {
            self.award(lot, session, digest, context);
        }
        for index in runners_up {
            self.set_state(index, SessionState::Standby);
        }
        for candidate in &ranked[winners + held..] {
            self.reject(candidate.session, RejectReason::Outscored, SessionState::Rejected, context);
        }
        self.settle(context);
    }

    /// Writes a decision down and gives its digest.
    fn record_decision(
        &mut self,
        ranked: &[OfferCandidate],
        placements: &[(usize, usize)],
        cause: Cause,
        context: &mut InputContext<'_>,
    ) -> Digest {
        let Some(record) = decision::record(self, ranked, placements, cause, context) else { return self.header.chain };
        let digest = record.digest();
        self.deciding.note_decision(digest);
        context.event(Event::Decided(Arc::new(record)));
        digest
    }

    /// Enters the terminal state: REJECT to every offerer without a final notice, the outcome registered, then CLOSED. A
    /// completed negotiation tells the initiator and those who were bound; any other end tells everybody.
    fn end(&mut self, outcome: Outcome, detail: Option<&str>, context: &mut InputContext<'_>) {
        let reason = if outcome == Outcome::Completed {
            RejectReason::Awarded
        } else if outcome == Outcome::Cancelled {
            RejectReason::Cancelled
        } else {
            RejectReason::Expired
        };
        let told: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| outcome != Outcome::Completed || self.sessions[index].is_owed_closed)
            .filter(|&index| self.sessions[index].party.agent != self.initiator.agent)
            .collect();
        for index in 0..self.sessions.len() {
            if std::mem::take(&mut self.sessions[index].is_owed_closed) {
                // CLOSED after `committed` is this offer's final notice.
                self.finals += u32::from(self.sessions[index].offer.take().is_some());
            } else {
                self.reject_offer(index, reason, context);
            }
        }
        self.deciding.reset_round();
        self.header.outcome = Some(outcome);
        let end = NegotiationEnd { outcome, detail, agreement: None, before: self.awards.take_last_key() };
        let sessions = &self.sessions;
        let told = told.into_iter().map(|index| &sessions[index].party.agent);
        self.header.tell_closed(end, &self.initiator.agent, told, context);
        self.check_finals(context);
        let counts = (self.round, self.offers, self.awards.made());
        self.finish(outcome, Arc::clone(&self.pinned.id), counts, context);
    }

    /// Checks the invariant final-notice where it could break.
    fn check_finals(&self, context: &mut InputContext<'_>) {
        if self.finals != self.offers {
            let negotiation = self.header.id.clone();
            context.event(Event::InvariantViolated { negotiation, invariant: Invariant::FinalNotice, offer: None });
        }
    }

    pub(crate) fn parties(&self) -> impl Iterator<Item = &Party> {
        std::iter::once(&self.initiator).chain(self.sessions.iter().map(|session| &session.party))
    }
}
