//! One negotiation: what is known of it, and its timers.

use std::collections::BTreeMap;

use policy_core::{Phase, SessionState};
use schemas::delivery::{Disposition, Outcome, RejectReason, Rejection};
use schemas::payload::Terms;
use schemas::{AgentId, AwardNo, Digest, MsgId, NegotiationId, OfferId, Policy, Position, RegisterKey, Timestamp};

use super::{Moment, Wins};
use crate::fact;
use crate::scoring::Ranked;

/// Timers that are due together fire in this order: the hard bound first, then collection's own deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
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
pub(super) enum Window {
    NotBegun,
    EndsAt(Timestamp),
    Past,
}

pub(super) struct Negotiation {
    pub(super) id: NegotiationId,
    pub(super) policy: Policy,
    pub(super) initiator: AgentId,
    pub(super) currency: Option<String>,
    pub(super) is_public: bool,
    pub(super) ends_by: Timestamp,
    pub(super) parties: BTreeMap<AgentId, Party>,
    pub(super) sessions: BTreeMap<AgentId, Session>,
    pub(super) phase: Phase,
    pub(super) outcome: Option<Outcome>,
    pub(super) round: u32,
    pub(super) called_at: Timestamp,
    pub(super) period_us: u64,
    pub(super) reply_by: Timestamp,
    pub(super) extensions: u32,
    pub(super) window: Window,
    pub(super) crossing: Option<Timestamp>,
    pub(super) decide_by: Option<Timestamp>,
    pub(super) cancel_by: Option<Timestamp>,
    /// Where the input stands that caused the last close.
    pub(super) closed_at: Option<Position>,
    pub(super) lots: Vec<Lot>,
    pub(super) standby: Vec<AgentId>,
    pub(super) awards: u32,
    pub(super) past: Vec<(AwardNo, AgentId)>,
    pub(super) offers: u32,
    pub(super) facts: Vec<String>,
}

/// What one party has said.
#[derive(Debug, Default)]
pub(super) struct Party {
    pub(super) last_seq: Option<u64>,
    pub(super) said: Vec<Said>,
}

#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) msg_id: MsgId,
    pub(super) digest: Digest,
    pub(super) disposition: Disposition,
    /// What was answered beside the receipt.
    pub(super) reply: Option<String>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: SessionState,
    pub(super) round: u32,
    pub(super) strikes: u32,
    /// Whether anything of it was folded since its last call or ACCEPT.
    pub(super) was_heard: bool,
    /// Whether CLOSED is its offer's final notice.
    pub(super) was_bound: bool,
    pub(super) offer: Option<Offer>,
}

#[derive(Debug, Clone)]
pub(super) struct Offer {
    pub(super) id: OfferId,
    pub(super) terms: Terms,
    pub(super) score: u32,
    pub(super) payment: Option<i64>,
    pub(super) valid_until: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Lot {
    pub(super) tries: u32,
    pub(super) award: Option<Award>,
}

#[derive(Debug, Clone)]
pub(super) struct Award {
    pub(super) no: AwardNo,
    pub(super) contractor: AgentId,
    pub(super) stage: Stage,
    pub(super) deadline: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Awarded,
    Committed,
    Done,
    CancelPending,
}

impl Negotiation {
    pub(super) fn is_party(&self, agent: &AgentId) -> bool {
        self.parties.contains_key(agent)
    }

    /// Every timer that is armed.
    pub(super) fn timers(&self) -> Vec<(Timestamp, Timer)> {
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

    pub(super) fn fire(&mut self, timer: Timer, moment: Moment, wins: &mut Wins) {
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

    pub(super) fn session(&mut self, contractor: &AgentId) -> &mut Session {
        self.sessions.get_mut(contractor).expect("only contractors are asked for")
    }

    pub(super) fn state(&self, contractor: &AgentId) -> SessionState {
        self.sessions[contractor].state
    }

    /// The lot a contractor has a live award for.
    pub(super) fn lot_of(&self, contractor: &AgentId) -> Option<usize> {
        self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(|award| award.contractor == *contractor))
    }

    pub(super) fn has_stage(&self, stage: Stage) -> bool {
        self.lots.iter().any(|lot| lot.award.as_ref().is_some_and(|award| award.stage == stage))
    }

    /// The valid, unexpired, unwithdrawn offers.
    pub(super) fn valid(&self, now: Timestamp) -> Vec<(&AgentId, &Offer)> {
        let offered = self.sessions.iter().filter(|(_, session)| session.state == SessionState::Offered);
        let offers = offered.filter_map(|(contractor, session)| Some((contractor, session.offer.as_ref()?)));
        offers.filter(|(_, offer)| offer.valid_until >= now).collect()
    }

    /// Those called in this round, and those of them who have responded.
    pub(super) fn called_and_responded(&self) -> (u32, u32) {
        let called = || self.sessions.values().filter(|session| session.round == self.round);
        let responded = called().filter(|session| has_responded(session.state)).count();
        (count(called().count()), count(responded))
    }

    /// A contractor's offer gets its REJECT and leaves the running.
    pub(super) fn reject(&mut self, contractor: &AgentId, reason: RejectReason) {
        if let Some(offer) = self.session(contractor).offer.take() {
            let rejection = Rejection { offer_id: Some(offer.id), reason, code: None };
            self.facts.push(fact::reject(&self.id, contractor, &rejection));
        }
    }

    pub(super) fn tell_initiator(&mut self, what: &str, contractor: &AgentId, award_no: AwardNo) {
        self.facts.push(fact::inform(&self.id, &self.initiator, what, contractor, award_no));
    }

    pub(super) fn end_key(&self, lot: usize, award_no: AwardNo) -> String {
        RegisterKey::AwardEnd(self.id.clone(), schemas::Lot(count(lot)), award_no).to_string()
    }

    pub(super) fn ranked(&self, contractor: &AgentId, wins: &Wins) -> Option<Ranked> {
        let offer = self.sessions[contractor].offer.as_ref()?;
        let last_win = wins.get(contractor).copied();
        Some(Ranked { contractor: contractor.clone(), offer: offer.id, score: offer.score, last_win })
    }
}

/// Spec section 3: offered, refused, not understood, failed, excluded, withdrawn, policy-rejected.
fn has_responded(state: SessionState) -> bool {
    use SessionState as S;
    match state {
        S::Offered | S::Refused | S::NotUnderstood | S::Failed | S::Excluded | S::Withdrawn | S::PolicyRejected => true,
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

pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a case has a handful of everything")
}
