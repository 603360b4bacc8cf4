//! The end of a bargain: the agreement registered first, then the end itself, then everybody is told.

use std::sync::Arc;

use schemas::delivery::Outcome;
use schemas::{RegisterKey, RegisterValue};

use super::state::Bargain;
use crate::effect::{Event, Protocol};
use crate::limits::Limits;
use crate::negotiation::context::InputContext;
use crate::negotiation::header::NegotiationEnd;
use crate::negotiation::party::Party;
use crate::negotiation::phase::{Phase, TimerKind};
use crate::negotiation::tombstone::{BargainEnd, PastAward, Tombstone};

/// No agreement: somebody did not join.
pub(super) const NOT_JOINED: &str = "not_joined";
/// No agreement: the last round is over.
pub(super) const ROUNDS: &str = "rounds";
/// No agreement: the time is over.
pub(super) const DEADLINE: &str = "deadline";
/// No agreement: a turn took too long.
pub(super) const STEP_TIMEOUT: &str = "step_timeout";
/// No agreement: one was reached, and not confirmed by all.
pub(super) const UNCONFIRMED: &str = "unconfirmed";

impl Bargain {
    /// What a timer does.
    pub(crate) fn fire(&mut self, kind: TimerKind, context: &mut InputContext<'_>) {
        match kind {
            TimerKind::Hard => self.handle_hard_deadline(context),
            TimerKind::Join => self.handle_join_timeout(context),
            TimerKind::Deadline => self.handle_deadline(context),
            TimerKind::Turn => self.handle_turn_timeout(context),
            TimerKind::Standing => self.handle_standing_expired(context),
            TimerKind::Agreement => self.handle_confirm_timeout(context),
            // Of contract nets.
            TimerKind::Collect
            | TimerKind::Window
            | TimerKind::Crossing
            | TimerKind::Decide
            | TimerKind::Confirm(_)
            | TimerKind::Perform(_)
            | TimerKind::Cancel => {}
        }
    }

    /// `T_hard`: whatever the bargain waits for has not come in time.
    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        match self.phase {
            Phase::Joining => self.handle_join_timeout(context),
            Phase::Confirming => self.handle_confirm_timeout(context),
            Phase::Bargaining
            | Phase::Collecting
            | Phase::Deciding
            | Phase::Awarding
            | Phase::Performing
            | Phase::Cancelling
            | Phase::Ended => self.handle_deadline(context),
        }
    }

    /// A delivery was given up. The bargain's own timers judge a party that is not heard of.
    pub(crate) fn handle_delivery_failure(&mut self, context: &mut InputContext<'_>) {
        self.header.link(b"delivery_failed", context);
    }

    /// An engine met a register conflict, or a panic: nothing more may be agreed on.
    pub(crate) fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.header.link(format!("abort:{code}").as_bytes(), context);
        self.end(Outcome::Aborted, Some(code), context);
    }

    /// END of a party, and everything that counts as it (docs/spec/alternating-offers.md#ao-33).
    pub(super) fn end_by(&mut self, index: usize, context: &mut InputContext<'_>) {
        let who = self.agent(index).clone();
        self.end(Outcome::Ended, Some(who.as_str()), context);
    }

    /// Enters the terminal state.
    pub(super) fn end(&mut self, outcome: Outcome, detail: Option<&str>, context: &mut InputContext<'_>) {
        self.header.outcome = Some(outcome);
        let agreement = (outcome == Outcome::Agreement).then(|| self.agreement()).flatten();
        let before = agreement.as_ref().map(|agreement| {
            let (offer_id, terms_digest) = (agreement.offer_id, agreement.terms_digest);
            let value = RegisterValue::Agreement { offer_id, terms_digest, chain: self.header.chain };
            let key: RegisterKey = self.agreement_key();
            context.register(key.clone(), value, None);
            key
        });
        let awards = u32::from(agreement.is_some());
        self.ended = Some(BargainEnd { detail: detail.map(Box::from), agreement: agreement.clone().map(Box::new) });
        let others = self.parties.iter().skip(1).map(|one| &one.party.agent);
        let end = NegotiationEnd { outcome, detail, agreement, before };
        self.header.tell_closed(end, &self.parties[0].party.agent, others, context);
        let rounds = self.rounds_begun();
        self.enter(Phase::Ended, context);
        context.event(Event::Ended {
            negotiation: self.header.id.clone(),
            protocol: Protocol::AlternatingOffers,
            policy: Arc::from(Protocol::AlternatingOffers.as_str()),
            invited: u32::try_from(self.parties.len().saturating_sub(1)).unwrap_or(u32::MAX),
            outcome,
            rounds,
            offers: self.offers,
            awards,
            at: context.now,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
    }

    /// What is left of it, once it has ended.
    pub(crate) fn tombstone(&self, limits: &Limits) -> Tombstone {
        let parties: Vec<&Party> = self.parties.iter().map(|one| &one.party).collect();
        let awards: Box<[PastAward]> = Box::default();
        let bargain = Some(self.ended.clone().unwrap_or_default());
        Tombstone { bargain, ..Tombstone::of(&self.header, self.rounds_begun(), &parties, awards, limits) }
    }
}
