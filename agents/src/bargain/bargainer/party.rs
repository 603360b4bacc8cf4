//! One party's side of one bargain: what it knows, what it has done, what it does next. Pure.

use std::collections::BTreeSet;

use schemas::bargain::mandate::holds;
use schemas::bargain::{ATTR_ROUND, BargainSpec, PPM, Predicate};
use schemas::delivery::{Award, Closing, Delivery, Disposition, Standing, Turn};
use schemas::payload::{Accept, AttrValue, Confirm, Offer, Reasoned};
use schemas::{Act, AgentId, Digest, NegotiationId, OfferId, Payload, Timestamp};

use super::Bargainer;
use super::report::BargainOutcome;
use crate::bargain::DocumentFault;
use crate::bargain::plan::{BargainPlan, Fallback};
use crate::bargain::space::Space;
use crate::bargain::strategy::{Move, OfferMade, OpenTurn, TurnView};
use crate::strategy::Outgoing;

/// Moves of one turn that the exchange may refuse before the party ends the bargain. A strategy that is refused again and
/// again has misunderstood the bargain, and every refused message is in the log.
const REFUSALS_MAX: u32 = 7;
/// Moves of one turn, the ending included: they number the messages of a step.
const MOVES_PER_STEP: u32 = REFUSALS_MAX + 2;

/// The rules of a bargain, as far as a party needs them.
pub(super) struct TurnRules {
    pub(super) space: Space,
    rounds: Option<u32>,
    forbid_repeat: bool,
}

impl TurnRules {
    pub(super) fn try_new(bargain: &BargainSpec) -> Result<Self, DocumentFault> {
        let space = Space::try_new(bargain.issues.clone())?;
        Ok(Self { space, rounds: bargain.rounds, forbid_repeat: bargain.forbid_repeat })
    }
}

/// See the module.
pub(super) struct BargainParty {
    agent: AgentId,
    /// Its place in the order of turns.
    party: usize,
    /// The initiator learns it when its call is open.
    parties: Option<usize>,
    rules: TurnRules,
    plan: BargainPlan,
    /// How the bargain stands, by the latest step told of.
    turn: Option<Turn>,
    /// By step.
    offers: Vec<OfferMade>,
    /// What it has done in its latest turn, unless that was refused.
    made: Option<Made>,
    /// Moves refused in this turn.
    refusals: u32,
    /// Outcomes it must not offer again, because they are outside its mandate.
    outside: BTreeSet<usize>,
    /// Outcomes it must not offer again for another reason: it has, and repeats are forbidden.
    refused: BTreeSet<usize>,
    /// A standing offer that it tried in vain to accept.
    unacceptable: Option<OfferId>,
    /// What it said last, and until when it makes sense.
    said: Option<(Outgoing, Timestamp)>,
}

/// A move made.
#[derive(Debug, Clone, Copy)]
struct Made {
    step: u32,
    what: Move,
    /// A receipt has shown that it was applied.
    is_confirmed: bool,
}

/// For whoever decides a party's turns elsewhere.
impl Bargainer {
    /// Whether it is known who takes part in a bargain.
    pub fn is_open(&mut self, negotiation: &NegotiationId) -> bool {
        self.bargains.part(negotiation).is_some_and(|side| side.is_open())
    }

    /// How a turn of this agent stands, unless it has acted in it.
    pub fn open_turn(&mut self, now: Timestamp, negotiation: &NegotiationId, turn: &Turn) -> Option<OpenTurn> {
        let side = self.bargains.part(negotiation)?;
        side.note_standing(turn, side.parties?);
        let is_late = side.turn.as_ref().is_some_and(|known| turn.step < known.step);
        if is_late || turn.party != side.agent || side.has_acted(turn.step) {
            return None;
        }
        let standing = side.standing(now, turn).map(|(outcome, ..)| outcome);
        Some(OpenTurn::of(&side.view(turn, standing, &side.offers)))
    }

    /// What was decided for a turn of a round; its strategy may make use of it.
    pub fn advise(&mut self, negotiation: &NegotiationId, round: u32, next: Move) {
        if let Some(side) = self.bargains.part(negotiation) {
            side.plan.strategy.advise(round, next);
        }
    }
}

/// What a party says.
#[derive(Debug)]
pub(super) struct PartyMove {
    payload: Payload,
    number: u32,
}

impl PartyMove {
    pub(super) fn reply_to(self, delivery: &Delivery) -> Outgoing {
        Outgoing::reply(delivery, self.payload).once(self.number)
    }

    pub(super) fn message(self, negotiation: &NegotiationId) -> Outgoing {
        Outgoing::new(negotiation.clone(), self.payload).once(self.number)
    }
}

impl BargainParty {
    pub(super) fn new(
        agent: AgentId,
        party: usize,
        parties: Option<usize>,
        rules: TurnRules,
        plan: BargainPlan,
    ) -> Self {
        Self {
            agent,
            party,
            parties,
            rules,
            plan,
            turn: None,
            offers: Vec::new(),
            made: None,
            refusals: 0,
            outside: BTreeSet::new(),
            refused: BTreeSet::new(),
            unacceptable: None,
            said: None,
        }
    }

    /// Whether it knows who takes part.
    pub(super) fn is_open(&self) -> bool {
        self.parties.is_some()
    }

    /// Whether its JOIN is all it has said.
    pub(super) fn has_only_joined(&self) -> bool {
        self.said.as_ref().is_some_and(|(message, _)| message.payload.act() == Act::Join)
    }

    /// The initiator's call is open. Its first turn may have been told before.
    pub(super) fn handle_opened(&mut self, now: Timestamp, invited: u32) -> Option<PartyMove> {
        self.parties = Some(1 + usize::try_from(invited).unwrap_or(usize::MAX - 1));
        let turn = self.turn.take()?;
        self.handle_turn(now, &turn)
    }

    /// How the bargain stands. Says something when it is this party's turn and it has not acted in it.
    pub(super) fn handle_turn(&mut self, now: Timestamp, turn: &Turn) -> Option<PartyMove> {
        let Some(parties) = self.parties else {
            // Without the number of parties nothing can be told apart; `handle_opened` comes back to it.
            let is_later = self.turn.as_ref().is_none_or(|known| known.step <= turn.step);
            self.turn = if is_later { Some(turn.clone()) } else { self.turn.take() };
            return None;
        };
        self.note_standing(turn, parties);
        if self.turn.as_ref().is_some_and(|known| turn.step < known.step) {
            return None;
        }
        if self.turn.as_ref().is_none_or(|known| known.step < turn.step) {
            self.refusals = 0;
        }
        self.turn = Some(turn.clone());
        if turn.party != self.agent || self.has_acted(turn.step) {
            return None;
        }
        self.act(now)
    }

    /// The exchange, or a gateway, has refused a message of ours.
    pub(super) fn handle_refusal(&mut self, now: Timestamp, reason: &str) -> Option<PartyMove> {
        let made = self.made?;
        // A move of another time than this turn's: nothing is left to decide.
        if reason == Disposition::OutOfTurn.as_str() || self.turn.as_ref()?.step != made.step {
            return None;
        }
        self.take_back(made);
        self.refusals += 1;
        match made.what {
            Move::Offer(outcome) if reason == Disposition::MandateViolation.as_str() => {
                self.outside.insert(outcome);
            }
            Move::Offer(outcome) => {
                self.refused.insert(outcome);
            }
            Move::Accept => self.unacceptable = self.turn.as_ref()?.standing.as_ref().map(|standing| standing.offer_id),
            // Who may not even leave stays silent.
            Move::End => {
                self.made = Some(made);
                return None;
            }
        }
        self.act_again(now, made.what)
    }

    /// A receipt: the exchange has applied a message of ours, an offer if that has an id now.
    pub(super) fn handle_applied(&mut self, offer_id: Option<OfferId>) {
        if let Some(made) = self.made.as_mut() {
            made.is_confirmed |= matches!(made.what, Move::Offer(_)) == offer_id.is_some();
        }
    }

    /// Remembers what is said, to say it again should nobody answer.
    pub(super) fn handle_said(&mut self, message: &Outgoing, until: Timestamp) {
        self.said = Some((message.clone(), until));
    }

    /// The last message, if it was this act, as long as it makes sense.
    pub(super) fn say_again(&self, now: Timestamp, act: Act) -> Option<Outgoing> {
        let (message, until) = self.said.as_ref()?;
        (message.payload.act() == act && now < *until).then(|| message.clone())
    }

    /// Until when a move of this turn makes sense.
    pub(super) fn act_by(&self) -> Timestamp {
        self.turn.as_ref().map_or(Timestamp::MAX, |turn| turn.act_by.0)
    }

    /// What it says to an agreement that is to be confirmed.
    pub(super) fn answer_to(&self, award: &Award) -> Payload {
        let refuse = |reason: &str| Payload::Refuse(Reasoned { reason: Some(reason.to_owned()), round: None });
        let is_whole = Digest::of(&award.terms).is_ok_and(|digest| digest == award.terms_digest);
        let outcome = self.rules.space.outcome(&award.terms);
        if !is_whole {
            return refuse("terms and digest differ");
        }
        if !outcome.is_some_and(|outcome| self.plan.preferences.is_acceptable(outcome)) {
            return refuse("may not agree to these terms");
        }
        Payload::Confirm(Confirm { award_no: award.award_no, terms_digest: Some(award.terms_digest) })
    }

    fn has_acted(&self, step: u32) -> bool {
        self.made.is_some_and(|made| made.step >= step)
    }

    /// The standing offer, if this party can accept it now.
    fn standing(&self, now: Timestamp, turn: &Turn) -> Option<(usize, OfferId, Digest)> {
        let standing = turn.standing.as_ref()?;
        let outcome = self.rules.space.outcome(&standing.terms)?;
        let is_open = standing.by != self.agent
            && !standing.accepted_by.contains(&self.agent)
            && self.unacceptable != Some(standing.offer_id)
            && is_valid(standing, now, turn.round);
        is_open.then_some((outcome, standing.offer_id, standing.terms_digest))
    }

    fn view<'a>(&self, turn: &Turn, standing: Option<usize>, offers: &'a [OfferMade]) -> TurnView<'a> {
        // What the exchange counts is rounded down; what can be counted exactly here is the larger.
        let told = f64::from(turn.t_ppm) / f64::from(PPM);
        let counted = self.rules.rounds.map_or(0.0, |rounds| TurnView::relative_time(turn.round, rounds));
        TurnView {
            party: self.party,
            parties: self.parties.unwrap_or(0),
            round: turn.round,
            rounds: self.rules.rounds,
            t: told.max(counted),
            standing,
            offers,
        }
    }
}

/// Whether an offer can be accepted now, as far as a party can tell: how much time has passed it leaves to the exchange.
fn is_valid(standing: &Standing, now: Timestamp, round: u32) -> bool {
    let has_begun = standing.valid_from.is_none_or(|from| from.0 <= now);
    let has_ended = standing.valid_until.is_some_and(|until| until.0 <= now);
    let round = AttrValue::Int(i64::from(round));
    let in_round = |predicate: &Predicate| predicate.attr.as_str() != ATTR_ROUND || holds(predicate, Some(&round));
    has_begun && !has_ended && standing.conditions.iter().all(in_round)
}

impl BargainParty {
    /// Notes the standing offer, in whatever order notices come. The acceptances since tell in which step it was made.
    fn note_standing(&mut self, turn: &Turn, parties: usize) {
        let Some(standing) = turn.standing.as_ref().filter(|standing| standing.by != self.agent) else { return };
        let accepted = u32::try_from(standing.accepted_by.len()).unwrap_or(u32::MAX);
        let step = turn.step.checked_sub(accepted.saturating_add(1));
        if let (Some(step), Some(outcome)) = (step, self.rules.space.outcome(&standing.terms)) {
            self.note(step, outcome, parties);
        }
    }

    fn note(&mut self, step: u32, outcome: usize, parties: usize) {
        let per_round = u32::try_from(parties).unwrap_or(u32::MAX);
        let offer = OfferMade { step, round: step / per_round + 1, party: (step % per_round) as usize, outcome };
        if let Err(at) = self.offers.binary_search_by_key(&step, |offer| offer.step) {
            self.offers.insert(at, offer);
        }
    }

    fn take_back(&mut self, made: Made) {
        self.made = None;
        self.offers.retain(|offer| offer.step != made.step);
    }

    /// How the bargain ended for this party.
    pub(super) fn outcome(&mut self, closing: &Closing) -> BargainOutcome {
        let agreement = closing.agreement.as_deref();
        let last = agreement.map(|agreement| agreement.step);
        let told = self.turn.as_ref().map_or(0, |turn| turn.step);
        // A later step, an agreement or a receipt shows that the last move was applied; otherwise the end came before it.
        let is_applied = |made: Made| made.is_confirmed || made.step < told.max(last.unwrap_or(0));
        if let Some(made) = self.made.filter(|made| !is_applied(*made)) {
            self.take_back(made);
        }
        let steps = last.unwrap_or_else(|| told.max(self.made.map_or(0, |made| made.step + 1)));
        let agreed = agreement.and_then(|agreement| self.rules.space.outcome(&agreement.terms));
        // Accepted in this party's name, the offer was never told; all others accepted it one after the other.
        if let (Some(outcome), Some(last), Some(parties)) = (agreed, last, self.parties)
            && let Some(step) = u32::try_from(parties).ok().and_then(|parties| last.checked_sub(parties))
        {
            self.note(step, outcome, parties);
        }
        BargainOutcome {
            outcome: closing.outcome,
            detail: closing.detail.clone(),
            party: self.party,
            parties: self.parties.unwrap_or(0),
            agreement: agreement.cloned(),
            agreed,
            utility: agreed.map(|outcome| self.plan.preferences.utility(outcome)),
            steps,
            round: agreement
                .map_or_else(|| self.turn.as_ref().map_or(0, |turn| turn.round), |agreement| agreement.round),
            offers: std::mem::take(&mut self.offers),
        }
    }

    /// Acts in this turn.
    fn act(&mut self, now: Timestamp) -> Option<PartyMove> {
        let turn = self.turn.clone()?;
        let standing = self.standing(now, &turn);
        // Taken out while the strategy looks at them: it is a part of the party, and may change.
        let offers = std::mem::take(&mut self.offers);
        let view = self.view(&turn, standing.map(|(outcome, ..)| outcome), &offers);
        let decided = self.plan.strategy.decide(&view);
        self.offers = offers;
        let decided = match decided {
            Move::Accept if standing.is_none() => self.instead_of(decided),
            Move::Offer(outcome) if !self.may_offer(outcome) => self.instead_of(decided),
            Move::Offer(_) | Move::Accept | Move::End => decided,
        };
        self.make(now, decided)
    }

    /// Acts again, after a move was refused.
    fn act_again(&mut self, now: Timestamp, refused: Move) -> Option<PartyMove> {
        if self.refusals > REFUSALS_MAX {
            return self.make(now, Move::End);
        }
        match refused {
            // Its offer stands no more, or cannot be accepted: what would the strategy do without it?
            Move::Accept => self.act(now),
            Move::Offer(_) | Move::End => {
                let next = self.instead_of(refused);
                self.make(now, next)
            }
        }
    }

    /// What it does instead of a move that cannot be made.
    fn instead_of(&self, refused: Move) -> Move {
        match self.plan.fallback {
            Fallback::End => Move::End,
            Fallback::NextBest => self.next_best(refused).map_or(Move::End, Move::Offer),
        }
    }

    /// What it may offer next to the refused outcome: the nearest better one when that was outside its mandate, otherwise the
    /// nearest worse one; on the other side when there is none. Instead of anything else, its best.
    fn next_best(&self, refused: Move) -> Option<usize> {
        let preferences = &self.plan.preferences;
        let ranking = preferences.ranking();
        let (at, is_outside) = match refused {
            Move::Offer(outcome) if outcome < self.rules.space.len() => {
                (preferences.position_at_least(preferences.utility(outcome)), self.outside.contains(&outcome))
            }
            Move::Offer(_) | Move::Accept | Move::End => (ranking.len(), false),
        };
        let (worse, better) = ranking.split_at(at);
        let nearest_worse = || worse.iter().rev().copied().find(|&outcome| self.may_offer(outcome));
        let nearest_better = || better.iter().copied().find(|&outcome| self.may_offer(outcome));
        if is_outside { nearest_better().or_else(nearest_worse) } else { nearest_worse().or_else(nearest_better) }
    }

    fn may_offer(&self, outcome: usize) -> bool {
        let is_own = |offer: &OfferMade| offer.party == self.party && offer.outcome == outcome;
        let is_refused = self.outside.contains(&outcome) || self.refused.contains(&outcome);
        let is_repeat = self.rules.forbid_repeat && self.offers.iter().any(is_own);
        outcome < self.rules.space.len() && !is_refused && !is_repeat
    }

    fn make(&mut self, now: Timestamp, decided: Move) -> Option<PartyMove> {
        let turn = self.turn.clone()?;
        let payload = match decided {
            Move::Offer(outcome) => {
                let offer = Payload::Offer(Offer { terms: self.rules.space.terms(outcome)?, ..Offer::default() });
                self.note(turn.step, outcome, self.parties?);
                offer
            }
            Move::Accept => {
                let (_, offer_id, terms_digest) = self.standing(now, &turn)?;
                Payload::Accept(Accept { offer_id, terms_digest: Some(terms_digest) })
            }
            Move::End => Payload::End(Reasoned::default()),
        };
        self.made = Some(Made { step: turn.step, what: decided, is_confirmed: false });
        let number = turn.step.saturating_mul(MOVES_PER_STEP).saturating_add(self.refusals);
        Some(PartyMove { payload, number })
    }
}
