//! Alternating offers (docs/spec/alternating-offers.md): the second protocol of the fold.
//!
//! ```text
//!   JOINING --all have joined--> BARGAINING --all have accepted--> [CONFIRMING] --> AGREEMENT
//!      |                             |  one turn after the other        |
//!      +--> NO_AGREEMENT, ENDED <----+----------------------------------+   CANCEL: CANCELLED
//! ```
//!
//! The parties take turns in a fixed order, the initiator first. Whose turn it is offers, which replaces the standing offer,
//! or accepts the standing offer; the turn then passes on. An offer accepted by everybody but its proposer is the agreement.
//!
//! Outcome spaces and mandates are arithmetic, and everybody's: [`schemas::bargain`]. Here is what is kept and how it ends;
//! `concession.rs` is what time does to a bargain, `opening.rs` is how a bargain begins, `rules.rs` what is refused, `turns.rs` what follows from a message,
//! `sealed_mandate.rs` what a party is bound to and how its policy accepts for it, `view.rs` what the parties see.
//!
//! # Choices
//! * Notices of a turn go out once per input, with the state after everything the input led to, to everybody but the sender
//!   of the message that was the input.
//! * Every message out of turn is a strike, in every state, except END, WITHDRAW, CANCEL, a wrong round, and an ACCEPT in
//!   one's own turn that names no acceptable offer. The initiator is struck like everybody.
//! * END ends in every state. REFUSE and NOT_UNDERSTOOD do while joining (of those who have not joined), and undo an
//!   agreement that waits for confirmation.
//! * What depends on the rules of time counts from log time: the bargain's clock starts with the first turn.
//! * A call to a bargain names no policy: its initiator's is sealed with the mandate.

mod concession;
pub(crate) mod opening;
mod rules;
pub(crate) mod sealed_mandate;
mod turns;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use schemas::bargain::space::{OutcomeSpace, SpaceFault, check_rules};
use schemas::bargain::{BargainSpec, MESSAGES_SPARE, PARTIES_MAX, Predicate, ROUNDS_MAX, mandate};
use schemas::delivery::{Agreement, Disposition, Outcome};
use schemas::payload::Terms;
use schemas::{AgentId, AwardNo, Digest, Lot, OfferId, Payload, RegisterKey, RegisterValue, Timestamp};
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::negotiation::disposition::{Incoming, ProtocolRules, header_and_phase};
use crate::negotiation::misunderstanding::ActSet;
use crate::negotiation::protocols::{ProtocolEnd, Timer, TimerKind};
use crate::negotiation::tombstone::Tombstone;
use crate::negotiation::view::NegotiationView;
use crate::negotiation::{DIGEST_KEPT, Header, InputContext, NegotiationEnd, Party, Refusal, Ruling, place_of};
use schemas::protocols::{Phase, Protocol};

use concession::relative_time_ppm;
use rules::BargainAction;
use sealed_mandate::PartyMandate;
pub(crate) use sealed_mandate::Sealed;
pub use view::BargainView;

/// `join_by`.
const JOIN: TimerKind = TimerKind::of(Protocol::AlternatingOffers, 8);
/// The deadline of the bargain.
const BARGAIN_END: TimerKind = TimerKind::of(Protocol::AlternatingOffers, 9);
/// A turn's time is up.
const TURN: TimerKind = TimerKind::of(Protocol::AlternatingOffers, 10);
/// The standing offer's validity runs out.
const STANDING: TimerKind = TimerKind::of(Protocol::AlternatingOffers, 11);
/// `confirm_by` of an agreement.
const CONFIRM: TimerKind = TimerKind::of(Protocol::AlternatingOffers, 12);
/// What stands where a contract net names its policy.
const POLICY_WORD: &str = "alternating_offers";
/// No agreement: somebody did not join.
const NOT_JOINED: &str = "not_joined";
/// No agreement: the last round is over.
const ROUNDS: &str = "rounds";
/// No agreement: the time is over.
const DEADLINE: &str = "deadline";
/// No agreement: a turn took too long.
const STEP_TIMEOUT: &str = "step_timeout";
/// No agreement: one was reached, and not confirmed by all.
const UNCONFIRMED: &str = "unconfirmed";

/// The award of a bargain: there is one.
const AWARD: AwardNo = AwardNo(1);

/// One open bargain.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bargain {
    header: Header,
    #[serde(with = "schemas::text::json")]
    rules: Box<BargainSpec>,
    /// Currency of prices; offers may repeat it, and name no other.
    currency: Option<Box<str>>,
    /// In the order of their turns: the initiator, then the invited in the order of their ids.
    parties: Vec<BargainParty>,
    /// [`Phase::Joining`], [`Phase::Bargaining`], [`Phase::Confirming`] or [`Phase::Ended`].
    phase: Phase,
    /// Everybody must have joined by then.
    join_by: Timestamp,
    /// Log time of the first turn; of the call before it.
    began_at: Timestamp,
    /// Turns taken.
    steps: u32,
    /// The turn must be taken by then, whatever the deadline of the bargain.
    turn_by: Timestamp,
    standing: Option<Box<StandingOffer>>,
    /// The offer that stood last, where its validity ran out and none stands since.
    lapsed: Option<OfferId>,
    confirm_by: Timestamp,
    /// Offers with disposition `ok`.
    offers: u32,
    /// How it ended. Open bargains, which snapshots hold, have none.
    ended: Option<BargainEnd>,
}

/// One party.
#[derive(Debug, Serialize, Deserialize)]
struct BargainParty {
    party: Party,
    has_joined: bool,
    has_confirmed: bool,
    strikes: u32,
    sealed: Option<Sealed<PartyMandate>>,
    /// Under `forbid_repeat`: digests of the terms it has offered and nobody has accepted. At most one per message of a
    /// party, of which there is a bound.
    offered: BTreeSet<[u8; DIGEST_KEPT]>,
}

/// The standing offer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StandingOffer {
    id: OfferId,
    /// Index of its proposer.
    by: usize,
    #[serde(with = "schemas::text::json")]
    terms: Terms,
    digest: Digest,
    valid_from: Option<Timestamp>,
    /// [`Timestamp::MAX`] when it stands until it is replaced.
    valid_until: Timestamp,
    #[serde(with = "schemas::text::json")]
    conditions: Vec<Predicate>,
    /// Who has accepted it, in the order they did.
    accepted: Vec<usize>,
}

impl BargainParty {
    fn new(agent: AgentId) -> Self {
        Self {
            party: Party::new(agent),
            has_joined: false,
            has_confirmed: false,
            strikes: 0,
            sealed: None,
            offered: BTreeSet::new(),
        }
    }

    /// Whether terms are inside its mandate, if it has one.
    fn allows(&self, space: OutcomeSpace<'_>, terms: &Terms) -> Result<(), SpaceFault> {
        self.sealed.as_ref().map_or(Ok(()), |Sealed(own)| mandate::inside(&own.mandate, space, terms))
    }
}

/// How a bargain ended, beside its outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BargainEnd {
    pub(crate) detail: Option<Box<str>>,
    #[serde(with = "schemas::text::json")]
    pub(crate) agreement: Option<Box<Agreement>>,
}

impl ProtocolRules for Bargain {
    /// The index of the party.
    type Speaker = usize;
    type Action = BargainAction;

    const PROTOCOL: Protocol = Protocol::AlternatingOffers;
    const STRIKE: BargainAction = BargainAction::Strike;

    header_and_phase!();

    fn view(&self, viewer: &AgentId, now: Timestamp) -> Option<NegotiationView> {
        view::view_of(self, viewer, now)
    }

    fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.end(Outcome::Aborted, Some(code), context);
    }

    fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        if self.phase == Phase::Joining {
            self.handle_join_timeout(context);
        } else if self.phase == Phase::Confirming {
            self.handle_confirm_timeout(context);
        } else {
            self.handle_deadline(context);
        }
    }

    fn next_timer(&self) -> Option<Timer> {
        let hard = Some((self.header.ends_by, TimerKind::HARD));
        let is_in = |phase| self.phase == phase;
        let standing = self.standing.as_ref().map(|standing| standing.valid_until);
        let standing = standing.filter(|until| is_in(Phase::Bargaining) && *until < Timestamp::MAX);
        let others = [
            is_in(Phase::Joining).then_some((self.join_by, JOIN)),
            self.deadline().map(|deadline| (deadline, BARGAIN_END)),
            is_in(Phase::Bargaining).then_some((self.turn_by, TURN)),
            standing.map(|until| (until, STANDING)),
            is_in(Phase::Confirming).then_some((self.confirm_by, CONFIRM)),
        ];
        hard.into_iter().filter(|_| !is_in(Phase::Ended)).chain(others.into_iter().flatten()).min()
    }

    fn fire(&mut self, timer: TimerKind, context: &mut InputContext<'_>) {
        match timer {
            JOIN => self.handle_join_timeout(context),
            BARGAIN_END => self.handle_deadline(context),
            TURN => self.handle_turn_timeout(context),
            STANDING => self.handle_standing_expired(context),
            CONFIRM => self.handle_confirm_timeout(context),
            // No timer of it: left alone it would be due for ever.
            _ => self.handle_abort("unknown_timer", context),
        }
    }

    fn tombstone(&self, limits: &Limits) -> Tombstone {
        let parties: Vec<&Party> = self.parties.iter().map(|one| &one.party).collect();
        let end = ProtocolEnd::Bargain(self.ended.clone().unwrap_or_default());
        Tombstone::of(&self.header, self.rounds_begun(), &parties, end, limits)
    }

    fn header_and_parties(&mut self) -> (&mut Header, Vec<&mut Party>) {
        (&mut self.header, self.parties.iter_mut().map(|one| &mut one.party).collect())
    }

    fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, otherwise| if holds { Ok(()) } else { Err(otherwise) };
        let parties = &self.parties;
        let phases = [Phase::Joining, Phase::Bargaining, Phase::Confirming];
        ensure(phases.contains(&self.phase) && self.header.outcome.is_none(), "an open bargain has ended")?;
        ensure((2..=PARTIES_MAX).contains(&parties.len()), "a bargain has too few parties, or too many")?;
        let invited = parties.get(1..).unwrap_or_default();
        ensure(invited.is_sorted_by(|one, next| one.party.agent < next.party.agent), "parties are not in their order")?;
        parties.iter().try_for_each(|one| one.party.check())?;
        let space = check_rules(&self.rules).map_err(|_| "the rules of a bargain contradict themselves")?;
        let fits = |party: &BargainParty| {
            party.sealed.as_ref().is_none_or(|Sealed(own)| mandate::check(&own.mandate, space).is_ok())
        };
        ensure(parties.iter().all(fits), "a mandate does not fit its bargain")?;
        let is_standing = |standing: &StandingOffer| {
            let is_party = |index: &usize| *index < parties.len();
            is_party(&standing.by) && standing.accepted.iter().all(is_party) && space.contains(&standing.terms).is_ok()
        };
        ensure(self.standing.as_deref().is_none_or(is_standing), "a standing offer is nobody's, or no outcome")?;
        ensure(self.phase != Phase::Confirming || self.standing.is_some(), "nothing was agreed on")
    }

    fn speaker(&self, agent: &AgentId) -> Option<usize> {
        place_of(&self.parties, agent, |one| &one.party)
    }

    fn party(&self, speaker: usize) -> &Party {
        &self.parties[speaker].party
    }

    fn party_mut(&mut self, speaker: usize) -> &mut Party {
        &mut self.parties[speaker].party
    }

    fn invited(&self) -> usize {
        self.parties.len().saturating_sub(1)
    }

    fn messages_max(&self, _: &Limits) -> usize {
        let rounds = self.rules.rounds.unwrap_or(ROUNDS_MAX);
        usize::try_from(rounds).unwrap_or(usize::MAX).saturating_add(MESSAGES_SPARE)
    }

    /// One that names a round may be of an earlier one, and ends nothing then.
    fn leaves(&self, speaker: usize, payload: &Payload) -> bool {
        match (payload, speaker) {
            (Payload::End(reasoned), _) | (Payload::Cancel(reasoned), 0) => reasoned.round.is_none(),
            (_, _) => false,
        }
    }

    /// A refused offer is nothing anybody could refer to.
    fn is_numbered(disposition: Disposition) -> bool {
        disposition == Disposition::Ok
    }

    fn judge(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<Ruling<BargainAction>, Refusal> {
        self.judge_message(speaker, incoming, context).map(Ruling::ok)
    }

    fn expected_acts(&self, speaker: usize) -> ActSet {
        self.legal_acts(speaker)
    }

    /// A confirmation binds nobody before the last one: the agreement itself is what is registered.
    fn register(&mut self, action: &BargainAction, _: &mut InputContext<'_>) -> Option<(AwardNo, Option<RegisterKey>)> {
        matches!(action, BargainAction::Confirm).then_some((AWARD, None))
    }

    fn follow(&mut self, speaker: usize, action: BargainAction, context: &mut InputContext<'_>) {
        match action {
            BargainAction::Nothing => {}
            BargainAction::Strike => self.strike(speaker, context),
            BargainAction::Join(sealed) => self.join(speaker, sealed, context),
            BargainAction::Offer(standing) => self.offer(*standing, context),
            BargainAction::Accept => self.accept(speaker, context),
            BargainAction::Withdraw => self.withdraw(speaker, context),
            BargainAction::Confirm => self.confirm(speaker, context),
            BargainAction::Unconfirmed => self.end(Outcome::NoAgreement, Some(UNCONFIRMED), context),
            BargainAction::End => self.end_by(speaker, context),
            BargainAction::Cancel => self.end(Outcome::Cancelled, None, context),
        }
    }
}

impl Bargain {
    fn space(&self) -> OutcomeSpace<'_> {
        OutcomeSpace::of_checked(&self.rules.issues)
    }

    fn agent(&self, index: usize) -> &AgentId {
        &self.parties[index].party.agent
    }

    /// Whose turn it is.
    fn turn(&self) -> usize {
        usize::try_from(self.steps).unwrap_or(usize::MAX) % self.parties.len().max(1)
    }

    /// The round, counted from 1.
    fn round(&self) -> u32 {
        let parties = u32::try_from(self.parties.len().max(1)).unwrap_or(u32::MAX);
        self.steps / parties + 1
    }

    /// Rounds in which a turn was begun: 0 while joining. What was agreed on, or ended, in the last turn of a round did not
    /// begin another.
    fn rounds_begun(&self) -> u32 {
        let parties = u32::try_from(self.parties.len().max(1)).unwrap_or(u32::MAX);
        if !self.parties.iter().all(|party| party.has_joined) {
            0
        } else if self.is_agreed() {
            self.steps.saturating_sub(1) / parties + 1
        } else {
            self.rules.rounds.map_or(self.round(), |rounds| self.round().min(rounds))
        }
    }

    /// Whether everybody but its proposer has accepted the standing offer.
    fn is_agreed(&self) -> bool {
        self.standing.as_ref().is_some_and(|standing| standing.accepted.len() + 1 >= self.parties.len())
    }

    /// When the rules' deadline is; absent without one, and before the first turn.
    fn deadline(&self) -> Option<Timestamp> {
        let deadline_ms = self.rules.deadline_ms.filter(|_| self.phase == Phase::Bargaining)?;
        Some(self.began_at.plus_ms(deadline_ms))
    }

    fn t_ppm(&self, now: Timestamp) -> u32 {
        relative_time_ppm(&self.rules, self.round(), now.since_us(self.began_at))
    }

    /// When the turn is over: its own time, or the bargain's.
    fn act_by(&self) -> Timestamp {
        let bounds = [Some(self.turn_by), self.deadline(), Some(self.header.ends_by)];
        bounds.into_iter().flatten().min().unwrap_or(self.turn_by)
    }

    /// What was agreed on: the standing offer, once everybody has accepted it.
    fn agreement(&self) -> Option<Agreement> {
        let standing = self.standing.as_deref()?;
        Some(Agreement {
            offer_id: standing.id,
            by: self.agent(standing.by).clone(),
            terms: standing.terms.clone(),
            terms_digest: standing.digest,
            round: self.rounds_begun(),
            step: self.steps,
        })
    }

    fn agreement_key(&self) -> RegisterKey {
        RegisterKey::Award(self.header.id.clone(), Lot(0), AWARD)
    }

    /// END of a party, and everything that counts as it (docs/spec/alternating-offers.md#ao-33).
    fn end_by(&mut self, index: usize, context: &mut InputContext<'_>) {
        let who = self.agent(index).clone();
        self.end(Outcome::Ended, Some(who.as_str()), context);
    }

    /// Enters the terminal state.
    fn end(&mut self, outcome: Outcome, detail: Option<&str>, context: &mut InputContext<'_>) {
        debug_assert!(self.header.outcome.is_none(), "a bargain has one end");
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
        let counts = (self.rounds_begun(), self.offers, awards);
        self.finish(outcome, Arc::from(POLICY_WORD), counts, context);
    }
}
