//! One negotiation: what is known of it, and its timers.

use std::collections::BTreeMap;

use policy_core::{Phase, SessionState};
use schemas::delivery::{Disposition, Outcome, RejectReason, Rejection};
use schemas::payload::Terms;
use schemas::{AgentId, AwardNo, Digest, MsgId, NegotiationId, OfferId, Policy, Position, RegisterKey, Timestamp};

use crate::fact;
use crate::scoring::Ranked;
use crate::{Moment, Wins};

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
pub(crate) enum Window {
    NotBegun,
    EndsAt(Timestamp),
    Past,
}

#[derive(Debug)]
pub(crate) struct Negotiation {
    pub(crate) id: NegotiationId,
    pub(crate) policy: Policy,
    pub(crate) initiator: AgentId,
    pub(crate) currency: Option<String>,
    pub(crate) is_public: bool,
    pub(crate) ends_by: Timestamp,
    pub(crate) parties: BTreeMap<AgentId, Party>,
    pub(crate) sessions: BTreeMap<AgentId, Session>,
    pub(crate) phase: Phase,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) round: u32,
    pub(crate) called_at: Timestamp,
    pub(crate) period_us: u64,
    pub(crate) reply_by: Timestamp,
    pub(crate) extensions: u32,
    pub(crate) window: Window,
    pub(crate) crossing: Option<Timestamp>,
    pub(crate) decide_by: Option<Timestamp>,
    pub(crate) cancel_by: Option<Timestamp>,
    /// Where the input stands that caused the last close.
    pub(crate) closed_at: Option<Position>,
    pub(crate) lots: Vec<Lot>,
    pub(crate) standby: Vec<AgentId>,
    pub(crate) awards: u32,
    pub(crate) past: Vec<(AwardNo, AgentId)>,
    pub(crate) offers: u32,
    pub(crate) facts: Vec<String>,
}

/// What one party has said.
#[derive(Debug, Default)]
pub(crate) struct Party {
    pub(crate) last_seq: Option<u64>,
    pub(crate) said: Vec<Said>,
}

#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) msg_id: MsgId,
    pub(crate) digest: Digest,
    pub(crate) disposition: Disposition,
    /// What was answered beside the receipt.
    pub(crate) reply: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: SessionState,
    pub(crate) round: u32,
    pub(crate) strikes: u32,
    /// Whether anything of it was folded since its last call or ACCEPT.
    pub(crate) was_heard: bool,
    /// Whether CLOSED is its offer's final notice.
    pub(crate) was_bound: bool,
    pub(crate) offer: Option<Offer>,
}

#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) id: OfferId,
    pub(crate) terms: Terms,
    pub(crate) score: u32,
    pub(crate) payment: Option<i64>,
    pub(crate) valid_until: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Lot {
    pub(crate) tries: u32,
    pub(crate) award: Option<Award>,
}

#[derive(Debug, Clone)]
pub(crate) struct Award {
    pub(crate) no: AwardNo,
    pub(crate) contractor: AgentId,
    pub(crate) stage: Stage,
    pub(crate) deadline: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Awarded,
    Committed,
    Done,
    CancelPending,
}

impl Negotiation {
    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.parties.contains_key(agent)
    }

    /// Every timer that is armed.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, Timer)> {
        if self.outcome.is_some() {
            return Vec::new();
        }
        let mut timers = vec![(self.ends_by, Timer::Hard)];
        if self.phase == Phase::Collecting {
            timers.push((self.reply_by, Timer::Collect));
            if let Window::EndsAt(at) = self.window {
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

    pub(crate) fn session(&mut self, contractor: &AgentId) -> &mut Session {
        self.sessions.get_mut(contractor).expect("only contractors are asked for")
    }

    pub(crate) fn state(&self, contractor: &AgentId) -> SessionState {
        self.sessions[contractor].state
    }

    /// The lot a contractor has a live award for.
    pub(crate) fn lot_of(&self, contractor: &AgentId) -> Option<usize> {
        self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(|award| award.contractor == *contractor))
    }

    pub(crate) fn has_stage(&self, stage: Stage) -> bool {
        self.lots.iter().any(|lot| lot.award.as_ref().is_some_and(|award| award.stage == stage))
    }

    /// The valid, unexpired, unwithdrawn offers.
    pub(crate) fn valid(&self, now: Timestamp) -> Vec<(&AgentId, &Offer)> {
        let offered = self.sessions.iter().filter(|(_, session)| session.state == SessionState::Offered);
        let offers = offered.filter_map(|(contractor, session)| Some((contractor, session.offer.as_ref()?)));
        offers.filter(|(_, offer)| offer.valid_until >= now).collect()
    }

    /// Those called in this round, and those of them who have responded.
    pub(crate) fn called_and_responded(&self) -> (u32, u32) {
        let called = || self.sessions.values().filter(|session| session.round == self.round);
        let responded = called().filter(|session| has_responded(session.state)).count();
        (count(called().count()), count(responded))
    }

    /// A contractor's offer gets its REJECT and leaves the running.
    pub(crate) fn reject(&mut self, contractor: &AgentId, reason: RejectReason) {
        if let Some(offer) = self.session(contractor).offer.take() {
            let rejection = Rejection { offer_id: Some(offer.id), reason, code: None };
            self.facts.push(fact::reject(&self.id, contractor, &rejection));
        }
    }

    pub(crate) fn tell_initiator(&mut self, what: &str, contractor: &AgentId, award_no: AwardNo) {
        self.facts.push(fact::inform(&self.id, &self.initiator, what, contractor, award_no));
    }

    pub(crate) fn end_key(&self, lot: usize, award_no: AwardNo) -> String {
        RegisterKey::AwardEnd(self.id.clone(), schemas::Lot(count(lot)), award_no).to_string()
    }

    pub(crate) fn ranked(&self, contractor: &AgentId, wins: &Wins) -> Option<Ranked> {
        let offer = self.sessions[contractor].offer.as_ref()?;
        let last_win = wins.get(contractor).copied();
        Some(Ranked { contractor: contractor.clone(), offer: offer.id, score: offer.score, last_win })
    }
}

/// Counts as a response (docs/spec/contract-net.md): offered, refused, not understood, undelivered, failed, excluded,
/// withdrawn, policy-rejected.
fn has_responded(state: SessionState) -> bool {
    use SessionState as S;
    match state {
        S::Offered
        | S::Refused
        | S::NotUnderstood
        | S::Undelivered
        | S::Failed
        | S::Excluded
        | S::Withdrawn
        | S::PolicyRejected => true,
        S::Invited
        | S::Standby
        | S::Awarded
        | S::Committed
        | S::Done
        | S::Rejected
        | S::Lapsed
        | S::CancelPending
        | S::Cancelled => false,
    }
}

pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a case has a handful of everything")
}
