//! What becomes of a message in an open bargain (docs/spec/alternating-offers.md#what-is-legal). Judging changes
//! nothing.

use schemas::bargain::mandate::holds;
use schemas::bargain::space::{SpaceFault, check_predicates};
use schemas::bargain::{ATTR_ELAPSED_MS, ATTR_ROUND, Conditions, Join, Predicate};
use schemas::delivery::Disposition;
use schemas::digest::canonical;
use schemas::payload::{Accept, AttrValue, Confirm, Offer};
use schemas::{Act, Digest, OfferId, Payload, Timestamp};

use super::sealed_mandate::{PartyMandate, Sealed, seal};
use super::{AWARD, Bargain, StandingOffer};
use crate::negotiation::InputContext;
use crate::negotiation::Refusal;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::disposition::valid_until;
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use schemas::protocols::Phase;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum BargainAction {
    #[default]
    Nothing,
    Strike,
    Join(Option<Sealed<PartyMandate>>),
    Offer(Box<StandingOffer>),
    Accept,
    Withdraw,
    Confirm,
    /// The agreement is not confirmed.
    Unconfirmed,
    /// The party has had enough.
    End,
    Cancel,
}

impl Bargain {
    /// What the message meets in the table of acts and states.
    pub(super) fn judge_message(
        &self,
        speaker: usize,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Result<BargainAction, Refusal> {
        Refusal::check_round(incoming.payload.round(), self.round())?;
        match (&incoming.payload, self.phase) {
            (Payload::End(_), _) => Ok(BargainAction::End),
            (Payload::Cancel(_), _) if speaker == 0 => Ok(BargainAction::Cancel),
            (Payload::Withdraw(_), _) if self.may_withdraw(speaker) => Ok(BargainAction::Withdraw),
            (Payload::Cancel(_) | Payload::Withdraw(_), _) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
            (_, Phase::Joining) => self.judge_joining(speaker, incoming),
            (_, Phase::Confirming) => self.judge_confirming(speaker, &incoming.payload),
            (Payload::Offer(offer), _) if self.turn() == speaker => {
                self.judge_offer(speaker, offer, context).map(BargainAction::Offer)
            }
            (Payload::Accept(accept), _) if self.turn() == speaker => {
                self.judge_accept(speaker, accept, context.now).map(|()| BargainAction::Accept)
            }
            (_, _) => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn judge_joining(&self, speaker: usize, incoming: &Incoming) -> Result<BargainAction, Refusal> {
        match (&incoming.payload, self.parties[speaker].has_joined) {
            (Payload::Join(join), false) => self.judge_join(join, incoming),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), false) => Ok(BargainAction::End),
            (_, _) => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn judge_join(&self, join: &Join, incoming: &Incoming) -> Result<BargainAction, Refusal> {
        let Some(mandate) = &join.mandate else { return Ok(BargainAction::Join(None)) };
        let policy = incoming.policy.as_deref().map(|pinned| &pinned.policy);
        seal(mandate.clone(), self.space(), policy).map(|sealed| BargainAction::Join(Some(sealed)))
    }

    fn judge_confirming(&self, speaker: usize, payload: &Payload) -> Result<BargainAction, Refusal> {
        match (payload, self.parties[speaker].has_confirmed) {
            (Payload::Confirm(confirm), false) if confirm.award_no == AWARD => self.judge_confirm(confirm),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _) => Ok(BargainAction::Unconfirmed),
            (_, _) => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn judge_confirm(&self, confirm: &Confirm) -> Result<BargainAction, Refusal> {
        let agreed = self.standing.as_ref().map(|standing| standing.digest);
        if confirm.terms_digest.is_none_or(|digest| Some(digest) == agreed) {
            return Ok(BargainAction::Confirm);
        }
        Err(Refusal::malformed(NotUnderstoodReason::TermsDigest, "/payload/terms_digest"))
    }

    /// An offer in its sender's turn (docs/spec/alternating-offers.md#ao-16).
    fn judge_offer(
        &self,
        speaker: usize,
        offer: &Offer,
        context: &InputContext<'_>,
    ) -> Result<Box<StandingOffer>, Refusal> {
        let space = self.space();
        space.contains(&offer.terms).map_err(|fault| {
            Refusal::malformed(NotUnderstoodReason::OutOfSpace, fault.under("/payload/terms").pointer)
        })?;
        if offer.currency.is_some() && offer.currency.as_deref() != self.currency.as_deref() {
            return Err(Refusal::malformed(NotUnderstoodReason::Currency, "/payload/currency"));
        }
        if !offer.documents.is_empty() {
            return Err(Refusal::malformed(NotUnderstoodReason::Document, "/payload/documents"));
        }
        let valid_from = offer.valid_from.map(|from| from.0).filter(|from| *from > context.now);
        let valid_until = valid_until(offer, context.now);
        if valid_until <= context.now {
            let member = if offer.valid_for_ms.is_some() { "valid_for_ms" } else { "valid_until" };
            return Err(Refusal::at(Disposition::Expired, NotUnderstoodReason::Validity, format!("/payload/{member}")));
        }
        if valid_from.is_some_and(|from| from > valid_until) {
            return Err(Refusal::malformed(NotUnderstoodReason::Validity, "/payload/valid_from"));
        }
        let conditions = self.judge_conditions(offer)?;
        let terms = canonical(&offer.terms).expect("terms are names, integers and texts");
        let digest = Digest::of_bytes(&terms);
        if self.rules.forbid_repeat && self.parties[speaker].offered.contains(&digest.short()) {
            return Err(Refusal::at(Disposition::PolicyReject, NotUnderstoodReason::Repeated, "/payload/terms"));
        }
        self.parties[speaker].allows(space, &offer.terms).map_err(|fault| {
            let pointer = fault.under("/payload/terms").pointer;
            Refusal::at(Disposition::MandateViolation, NotUnderstoodReason::MandateViolation, pointer)
        })?;
        Ok(Box::new(StandingOffer {
            id: OfferId(context.position),
            by: speaker,
            terms: offer.terms.clone(),
            digest,
            valid_from,
            valid_until,
            conditions,
            accepted: Vec::new(),
        }))
    }

    /// Conditions the exchange can judge, and whose part about the terms holds of the offer's own.
    fn judge_conditions(&self, offer: &Offer) -> Result<Vec<Predicate>, Refusal> {
        let malformed = |fault: SpaceFault| {
            Refusal::malformed(NotUnderstoodReason::Condition, fault.under("/payload/conditions").pointer)
        };
        let predicates = match &offer.conditions {
            Some(Conditions::Predicates(predicates)) => predicates,
            // A condition nobody can judge, or is told, must not look as if it bound anyone.
            Some(Conditions::Text(_)) => return Err(malformed(SpaceFault::at("", "predicates, which can be judged"))),
            None => return Ok(Vec::new()),
        };
        check_predicates(predicates, self.space(), &[ATTR_ROUND, ATTR_ELAPSED_MS]).map_err(malformed)?;
        let is_about_terms = |one: &Predicate| ![ATTR_ROUND, ATTR_ELAPSED_MS].contains(&one.attr.as_str());
        let broken = predicates.iter().position(|one| is_about_terms(one) && !holds(one, offer.terms.get(&one.attr)));
        match broken {
            Some(index) => {
                Err(malformed(SpaceFault::at(format!("/{index}"), "does not hold of the offer's own terms")))
            }
            None => Ok(predicates.clone()),
        }
    }

    /// An acceptance in its sender's turn (docs/spec/alternating-offers.md#ao-25).
    fn judge_accept(&self, speaker: usize, accept: &Accept, now: Timestamp) -> Result<(), Refusal> {
        let Some(digest) = accept.terms_digest else {
            return Err(Refusal::malformed(NotUnderstoodReason::TermsDigest, "/payload/terms_digest"));
        };
        let named = |standing: &&StandingOffer| standing.id == accept.offer_id && standing.digest == digest;
        let Some(standing) = self.standing.as_deref().filter(named).filter(|standing| standing.by != speaker) else {
            let is_expired = self.lapsed == Some(accept.offer_id);
            let disposition = if is_expired { Disposition::Expired } else { Disposition::OutOfTurn };
            return Err(Refusal::plain(disposition, NotUnderstoodReason::Standing));
        };
        if standing.valid_from.is_some_and(|from| now < from) {
            return Err(Refusal::out_of_turn(NotUnderstoodReason::NotYetValid));
        }
        if !self.are_met(standing, now) {
            return Err(Refusal::plain(Disposition::PolicyReject, NotUnderstoodReason::Condition));
        }
        self.parties[speaker].allows(self.space(), &standing.terms).map_err(|_| {
            Refusal::at(Disposition::MandateViolation, NotUnderstoodReason::MandateViolation, "/payload/offer_id")
        })
    }

    /// Whether an offer's conditions are met by an acceptance now.
    pub(super) fn are_met(&self, standing: &StandingOffer, now: Timestamp) -> bool {
        let elapsed_ms = i64::try_from(now.since_us(self.began_at) / 1000).unwrap_or(i64::MAX);
        let (round, elapsed) = (AttrValue::Int(i64::from(self.round())), AttrValue::Int(elapsed_ms));
        standing.conditions.iter().all(|condition| match condition.attr.as_str() {
            ATTR_ROUND => holds(condition, Some(&round)),
            ATTR_ELAPSED_MS => holds(condition, Some(&elapsed)),
            _ => holds(condition, standing.terms.get(&condition.attr)),
        })
    }

    /// Who may withdraw now (docs/spec/alternating-offers.md#ao-23).
    fn may_withdraw(&self, speaker: usize) -> bool {
        self.phase == Phase::Bargaining
            && self.standing.as_ref().is_some_and(|standing| standing.by == speaker && standing.accepted.is_empty())
    }

    /// What a party could legally have said: `expected` of a NOT_UNDERSTOOD.
    pub(super) fn legal_acts(&self, speaker: usize) -> ActSet {
        let party = &self.parties[speaker];
        let mut acts = match (self.phase, self.turn() == speaker) {
            (Phase::Joining, _) if !party.has_joined => vec![Act::Join, Act::Refuse, Act::NotUnderstood],
            (Phase::Bargaining, true) => {
                let may_accept = self.standing.as_ref().is_some_and(|standing| standing.by != speaker);
                if may_accept { vec![Act::Offer, Act::Accept] } else { vec![Act::Offer] }
            }
            (Phase::Confirming, _) if party.has_confirmed => vec![Act::Refuse],
            (Phase::Confirming, _) => vec![Act::Confirm, Act::Refuse],
            (_, _) => Vec::new(),
        };
        if self.may_withdraw(speaker) {
            acts.push(Act::Withdraw);
        }
        if speaker == 0 {
            acts.push(Act::Cancel);
        }
        acts.push(Act::End);
        ActSet::of(&acts)
    }
}
