//! One contract net: what is known of it, its timers, and its end (docs/spec/contract-net.md).

pub(crate) mod english_auction;
pub(crate) mod messages;
pub(crate) mod opening;
mod rounds;
pub(crate) mod task;

use std::collections::BTreeMap;

use policy_core::{AwardLoss, Deliver, Phase, SessionState};
use schemas::delivery::{CloseReason, Disposition, Notification, Outcome, RejectReason, Rejection};
use schemas::document::{CallDocuments, RoutineReport};
use schemas::payload::{Inform, InformKind, Terms};
use schemas::record::{AdmittedMessage, Message};
use schemas::register::AwardEnd;
use schemas::{
    AgentId, AwardNo, Digest, DocumentHash, MsgId, NegotiationId, OfferId, Policy, Position, RegisterKey, Timestamp,
};

use crate::scoring::Ranked;
use crate::{Moment, Wins, fact};

/// Timers that are due together fire in this order: the hard bound first, then collection's own deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Hard,
    Collect,
    Window,
    Threshold,
    Decide,
    Confirm(usize),
    Perform(usize),
    Cancel,
}

/// Where the window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Window {
    NotBegun,
    EndsAt(Timestamp),
    Past,
}

#[derive(Debug)]
pub(crate) struct ContractNet {
    id: NegotiationId,
    policy: Policy,
    initiator: AgentId,
    currency: Option<String>,
    documents: Option<CallDocuments>,
    reputations: BTreeMap<AgentId, u64>,
    is_public: bool,
    pub(crate) ends_by: Timestamp,
    parties: BTreeMap<AgentId, Party>,
    sessions: BTreeMap<AgentId, Session>,
    phase: Phase,
    pub(crate) outcome: Option<Outcome>,
    round: u32,
    called_at: Timestamp,
    period_us: u64,
    reply_by: Timestamp,
    extensions: u32,
    window: Window,
    crossing: Option<Timestamp>,
    decide_by: Option<Timestamp>,
    cancel_by: Option<Timestamp>,
    /// Where the input stands that caused the last close.
    closed_at: Option<Position>,
    lots: Vec<Lot>,
    standby: Vec<AgentId>,
    awards: u32,
    past: Vec<(AwardNo, AgentId)>,
    offers: u32,
    /// Of a task of a team.
    task: Option<task::TaskPart>,
    auction: Option<english_auction::AuctionPart>,
    pub(crate) facts: Vec<String>,
}

/// What one party has said.
#[derive(Debug, Default)]
pub(crate) struct Party {
    pub(crate) last_seq: Option<u64>,
    pub(crate) said: Vec<Said>,
    /// How many of them are no offers.
    others: usize,
}

impl Party {
    /// Its message was answered; one too many is not remembered.
    pub(crate) fn note(&mut self, said: Said, seq: Option<u64>, is_full: bool) {
        if said.disposition != Disposition::RateLimited {
            self.last_seq = self.last_seq.max(seq);
        }
        if !is_full {
            self.said.push(said);
        }
    }

    /// Its call was taken.
    pub(crate) fn note_call(&mut self, message: &AdmittedMessage, decoded: &Message) {
        let msg_id = decoded.envelope.msg_id.clone();
        let said = Said { msg_id, digest: message.digest, disposition: Disposition::Ok, reply: None };
        self.note(said, decoded.envelope.seq, false);
    }

    /// A reply after the end: sent for the first of a party's messages with that disposition (docs/spec/deliveries.md#dl-44).
    pub(crate) fn reply_after_end(&self, to: (&MsgId, Disposition), is_full: bool, reply: String) -> String {
        let (msg_id, disposition) = to;
        let first = self.said.iter().find(|said| said.disposition == disposition);
        let is_sent = first.map_or(!is_full, |first| first.msg_id == *msg_id);
        if is_sent { reply } else { fact::told_before(&reply) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) msg_id: MsgId,
    pub(crate) digest: Digest,
    pub(crate) disposition: Disposition,
    /// What was answered beside the receipt.
    pub(crate) reply: Option<String>,
}

/// What becomes of a message, and what follows.
#[derive(Debug)]
pub(crate) struct Verdict<A> {
    pub(crate) disposition: Disposition,
    pub(crate) reply: Option<String>,
    pub(crate) award_no: Option<AwardNo>,
    pub(crate) then: A,
}

impl<A: Default> Verdict<A> {
    pub(crate) fn of(disposition: Disposition) -> Self {
        Self { disposition, reply: None, award_no: None, then: A::default() }
    }

    pub(crate) fn ok(then: A) -> Self {
        Self { then, ..Self::of(Disposition::Ok) }
    }
}

#[derive(Debug)]
struct Session {
    state: SessionState,
    round: u32,
    strikes: u32,
    /// Whether anything of it was folded since its last call or ACCEPT.
    was_heard: bool,
    /// Whether CLOSED is its offer's final notice.
    was_bound: bool,
    offer: Option<HeldOffer>,
}

#[derive(Debug, Clone)]
pub(crate) struct HeldOffer {
    id: OfferId,
    terms: Terms,
    score: u32,
    payment: Option<i64>,
    valid_until: Timestamp,
    documents: Vec<DocumentHash>,
}

#[derive(Debug, Default)]
struct Lot {
    tries: u32,
    award: Option<Award>,
}

#[derive(Debug, Clone)]
pub(crate) struct Award {
    no: AwardNo,
    contractor: AgentId,
    stage: Stage,
    deadline: Timestamp,
    document: Option<DocumentHash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Awarded,
    Committed,
    Done,
    CancelPending,
}

impl ContractNet {
    pub(crate) fn id(&self) -> &NegotiationId {
        &self.id
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.parties.contains_key(agent)
    }

    /// Every timer that is armed while it goes on.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, Timer)> {
        let mut timers = vec![(self.ends_by, Timer::Hard)];
        if self.phase == Phase::Collecting {
            timers.push((self.reply_by, Timer::Collect));
            if let Some(auction) = &self.auction {
                timers.extend(auction.quiet_at.map(|at| (at, Timer::Window)));
            } else if let Window::EndsAt(at) = self.window {
                timers.push((at, Timer::Window));
            }
            timers.extend(self.crossing.map(|at| (at, Timer::Threshold)));
        }
        timers.extend(self.decide_by.map(|at| (at, Timer::Decide)));
        timers.extend(self.cancel_by.map(|at| (at, Timer::Cancel)));
        for (index, lot) in self.lots.iter().enumerate() {
            match &lot.award {
                Some(award) if award.stage == Stage::Awarded => timers.push((award.deadline, Timer::Confirm(index))),
                Some(award) if award.stage == Stage::Committed => timers.push((award.deadline, Timer::Perform(index))),
                Some(_) | None => {}
            }
        }
        timers
    }

    pub(crate) fn fire(&mut self, timer: Timer, moment: Moment, wins: &mut Wins) {
        match timer {
            Timer::Hard => self.time_out(moment),
            Timer::Collect if self.auction.is_some() => {
                english_auction::close(self, CloseReason::Deadline, moment, wins)
            }
            Timer::Window if self.auction.is_some() => english_auction::close(self, CloseReason::Window, moment, wins),
            Timer::Collect => self.collection_ends(moment, wins),
            Timer::Window => {
                self.window = Window::Past;
                self.evaluate(moment, wins);
            }
            Timer::Threshold => {
                self.crossing = None;
                self.evaluate(moment, wins);
            }
            Timer::Decide => self.initiator_is_silent(moment, wins),
            Timer::Confirm(lot) => self.lose(lot, policy_core::AwardLoss::ConfirmTimeout, moment, wins),
            Timer::Perform(lot) => self.lose(lot, policy_core::AwardLoss::PerformTimeout, moment, wins),
            Timer::Cancel => self.end(Outcome::Cancelled, moment),
        }
    }

    fn session(&mut self, contractor: &AgentId) -> &mut Session {
        self.sessions.get_mut(contractor).expect("only contractors are asked for")
    }

    fn state(&self, contractor: &AgentId) -> SessionState {
        self.sessions[contractor].state
    }

    /// The lot a contractor has a live award for.
    fn lot_of(&self, contractor: &AgentId) -> Option<usize> {
        self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(|award| award.contractor == *contractor))
    }

    fn has_stage(&self, stage: Stage) -> bool {
        self.lots.iter().any(|lot| lot.award.as_ref().is_some_and(|award| award.stage == stage))
    }

    /// The valid, unexpired, unwithdrawn offers.
    fn valid(&self, now: Timestamp) -> Vec<(&AgentId, &HeldOffer)> {
        let offered = self.sessions.iter().filter(|(_, session)| session.state == SessionState::Offered);
        let offers = offered.filter_map(|(contractor, session)| Some((contractor, session.offer.as_ref()?)));
        offers.filter(|(_, offer)| offer.valid_until >= now).collect()
    }

    /// Those called in this round, and those of them who have responded.
    fn called_and_responded(&self) -> (u32, u32) {
        let called = || self.sessions.values().filter(|session| session.round == self.round);
        let responded = called().filter(|session| has_responded(session.state)).count();
        (count(called().count()), count(responded))
    }

    /// A contractor's offer gets its REJECT and leaves the running.
    fn reject(&mut self, contractor: &AgentId, reason: RejectReason) {
        if let Some(offer) = self.session(contractor).offer.take() {
            let rejection = Rejection { offer_id: Some(offer.id), reason, code: None };
            self.facts.push(fact::reject(&self.id, contractor, &rejection));
        }
    }

    fn tell_initiator(&mut self, what: &str, contractor: &AgentId, award_no: AwardNo, routine: Option<RoutineReport>) {
        let told = fact::inform(&self.id, &self.initiator, what, contractor, award_no);
        self.facts.push(fact::naming(told, routine));
    }

    /// The first of the call's documents that stands in an offer (docs/spec/agora.md#ag-31).
    fn pinned(&self, offer: &HeldOffer) -> Option<DocumentHash> {
        for wanted in &self.documents.as_ref()?.hashes {
            for named in &offer.documents {
                if named == wanted {
                    return Some(*wanted);
                }
            }
        }
        None
    }

    fn end_key(&self, lot: usize, award_no: AwardNo) -> String {
        RegisterKey::AwardEnd(self.id.clone(), schemas::Lot(count(lot)), award_no).to_string()
    }

    fn ranked(&self, contractor: &AgentId, wins: &Wins) -> Option<Ranked> {
        let offer = self.sessions[contractor].offer.as_ref()?;
        let last_win = wins.get(contractor).copied();
        Some(Ranked { contractor: contractor.clone(), offer: offer.id, score: offer.score, last_win })
    }
}

/// Counts as a response (docs/spec/contract-net.md): offered, refused, not understood, undelivered, failed, excluded,
/// withdrawn, policy-rejected.
fn has_responded(state: SessionState) -> bool {
    use SessionState as S;
    matches!(state, S::Offered | S::Refused | S::NotUnderstood | S::Undelivered)
        || matches!(state, S::Failed | S::Excluded | S::Withdrawn | S::PolicyRejected)
}

pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a case has a handful of everything")
}

impl ContractNet {
    /// CANCEL of the initiator (docs/spec/contract-net.md#cn-55).
    fn cancel(&mut self, moment: Moment) {
        for contractor in self.contractors_in(&[SessionState::Offered, SessionState::Standby], None) {
            self.reject(&contractor, RejectReason::Cancelled);
            self.session(&contractor).state = SessionState::Rejected;
        }
        self.standby.clear();
        for lot in 0..self.lots.len() {
            self.call_off(lot);
        }
        self.decide_by = None;
        if self.has_stage(Stage::CancelPending) {
            self.phase = Phase::Cancelling;
            self.cancel_by = Some(moment.clock.plus_ms(self.policy.timers_ms.cancel).min(self.ends_by));
        } else {
            self.end(Outcome::Cancelled, moment);
        }
    }

    fn call_off(&mut self, lot: usize) {
        let Some(award) = self.lots[lot].award.clone() else { return };
        if award.stage == Stage::Done {
            return;
        }
        if award.stage == Stage::Awarded {
            self.past.push((award.no, award.contractor.clone()));
            self.facts.push(fact::entry(&self.end_key(lot, award.no), AwardEnd::Revoked));
        }
        self.cancel_award(&award, AwardLoss::Cancelled);
        self.session(&award.contractor).state = SessionState::CancelPending;
        self.lots[lot].award.as_mut().expect("live").stage = Stage::CancelPending;
    }

    /// The contractor answers (docs/spec/contract-net.md#cn-56); `informed` is absent after a FAILURE.
    fn answer_cancel(&mut self, lot: usize, informed: Option<Inform>, moment: Moment) {
        let award = self.lots[lot].award.take().expect("called off");
        let state = match informed {
            Some(Inform { kind, routine, .. }) => {
                self.tell_initiator(word(kind), &award.contractor, award.no, routine);
                if kind == InformKind::Cancelled { SessionState::Cancelled } else { SessionState::Done }
            }
            None => {
                self.facts.push(fact::failed(&self.id, &self.initiator, &award.contractor, award.no));
                SessionState::Failed
            }
        };
        self.session(&award.contractor).state = state;
        if !self.has_stage(Stage::CancelPending) {
            self.end(Outcome::Cancelled, moment);
        }
    }

    /// The hard deadline (docs/spec/contract-net.md#cn-58).
    fn time_out(&mut self, moment: Moment) {
        if self.phase == Phase::Cancelling {
            return self.end(Outcome::Cancelled, moment);
        }
        self.take_all_back(AwardLoss::Timeout);
        self.end(Outcome::Timeout, moment);
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.take_all_back(AwardLoss::Aborted);
        self.end(Outcome::Aborted, moment);
    }

    fn take_all_back(&mut self, loss: AwardLoss) {
        for lot in 0..self.lots.len() {
            if self.lots[lot].award.as_ref().is_some_and(|award| award.stage != Stage::Done) {
                self.take_back(lot, loss);
            }
        }
    }

    /// A delivery was given up (docs/spec/contract-net.md#cn-18): counts for the current call to an INVITED, and for
    /// the live ACCEPT to an AWARDED contractor, from whom nothing later was folded.
    pub(crate) fn delivery_failed(&mut self, deliver: &Deliver, may_answer: bool, moment: Moment, wins: &mut Wins) {
        let contractor = &deliver.to;
        if self.sessions[contractor].was_heard {
            return;
        }
        if let Notification::Cfp(call) = &*deliver.told {
            // A bid moves the end of an auction, and nobody is called again.
            let is_current = self.auction.is_some() || (call.round, call.reply_by.0) == (self.round, self.reply_by);
            if self.phase == Phase::Collecting && is_current && self.state(contractor) == SessionState::Invited {
                self.answer_without_offer(
                    contractor,
                    if may_answer { SessionState::Undelivered } else { SessionState::Failed },
                    RejectReason::Withdrawn,
                    moment,
                    wins,
                );
            }
        } else if let Notification::Accept(accept) = &*deliver.told {
            let lot = self.lots.iter().position(|lot| {
                lot.award.as_ref().is_some_and(|award| award.no == accept.award_no && award.stage == Stage::Awarded)
            });
            if let Some(lot) = lot {
                self.lose(lot, AwardLoss::Undelivered, moment, wins);
            }
        }
    }

    /// The end. A completed negotiation tells the initiator and those who were bound, any other end everybody.
    fn end(&mut self, outcome: Outcome, moment: Moment) {
        let reason = if outcome == Outcome::Completed {
            RejectReason::Awarded
        } else if outcome == Outcome::Cancelled {
            RejectReason::Cancelled
        } else {
            RejectReason::Expired
        };
        self.facts.push(fact::closed(&self.id, &self.initiator, outcome));
        for contractor in self.sessions.keys().cloned().collect::<Vec<_>>() {
            let was_bound = self.sessions[&contractor].was_bound;
            let is_told = contractor == self.initiator;
            if !is_told && (outcome != Outcome::Completed || was_bound) {
                self.facts.push(fact::closed(&self.id, &contractor, outcome));
            }
            if !was_bound {
                self.reject(&contractor, reason);
            }
        }
        let counts = [self.round, self.offers, self.awards];
        self.facts.extend(fact::end(&self.id, outcome, self.is_public, counts, moment.now));
        (self.phase, self.outcome) = (Phase::Ended, Some(outcome));
    }
}

fn word(kind: InformKind) -> &'static str {
    match kind {
        InformKind::Done => "done",
        InformKind::Result => "result",
        InformKind::Cancelled => "cancelled",
    }
}

impl ContractNet {
    /// Who leads the team now.
    pub(crate) fn note_lead(&mut self, lead: Option<AgentId>) {
        if let Some(task) = &mut self.task {
            task.lead = lead;
        }
    }

    /// Whether this agent leads the team whose task this is.
    pub(crate) fn is_led_by(&self, agent: &AgentId) -> bool {
        self.task.as_ref().is_some_and(|task| task.lead.as_ref() == Some(agent))
    }

    /// The lead calls off what is not its own: it is heard like a party from then on.
    pub(crate) fn admit(&mut self, agent: &AgentId) {
        self.parties.entry(agent.clone()).or_default();
    }

    /// The team calls it off.
    pub(crate) fn call_task_off(&mut self, moment: Moment) {
        if self.outcome.is_none() && self.phase != Phase::Cancelling {
            self.cancel(moment);
        }
    }

    /// The team has concluded; its lead hears the result, if it is not the assigner.
    pub(crate) fn detach_from_team(&mut self, lead: AgentId) {
        let is_assigner = lead == self.initiator;
        if let Some(task) = &mut self.task {
            task.heir = Some(lead).filter(|_| !is_assigner);
        }
    }

    fn tell_heir(&mut self, what: &str, contractor: &AgentId, award_no: AwardNo) {
        if let Some(heir) = self.task.as_ref().and_then(|task| task.heir.clone()) {
            self.facts.push(fact::inform(&self.id, &heir, what, contractor, award_no));
        }
    }

    fn note_loss_code(&mut self, code: Option<String>) {
        if let Some(task) = &mut self.task {
            task.lost = code;
        }
    }

    /// Why an award is lost, where its contractor has not said.
    fn note_loss(&mut self, loss: AwardLoss) {
        if !matches!(loss, AwardLoss::Failed | AwardLoss::PerformFailed) {
            let is_late = matches!(loss, AwardLoss::ConfirmTimeout | AwardLoss::PerformTimeout);
            self.note_loss_code(is_late.then(|| "timeout".to_owned()));
        }
    }

    /// What is told of a call or an award, with what is to be done.
    pub(super) fn with_brief(&self, told: String) -> String {
        self.task.iter().fold(told, |told, task| fact::with(&told, &task.brief))
    }

    fn note_result(&mut self, result: Option<String>) {
        if let Some(task) = &mut self.task {
            task.result = result;
        }
    }
}
