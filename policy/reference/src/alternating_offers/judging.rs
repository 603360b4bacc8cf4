//! What becomes of a message in an open bargain (docs/spec/alternating-offers.md#what-is-legal).

use schemas::bargain::{ATTR_ELAPSED_MS, ATTR_ROUND, Conditions, Join, PREDICATES_MAX, Predicate};
use schemas::delivery::{Disposition, Outcome};
use schemas::payload::{Accept, AttrValue, Confirm, INTEGER_MAX, Offer};
use schemas::policy::BargainRule;
use schemas::record::Pinned;
use schemas::{AwardNo, OfferId, Payload, Timestamp};

use super::opening::delegated;
use super::{Bargain, Made, digest, mandate, space};
use crate::contract_net::Verdict;
use crate::{Moment, fact};

pub(crate) type BargainVerdict = Verdict<BargainAction>;

#[derive(Default)]
pub(crate) enum BargainAction {
    #[default]
    Nothing,
    Strike,
    Join(Join, Option<BargainRule>),
    Offer(Made),
    Accept,
    Withdraw,
    Confirm,
    /// How it ends, and the detail.
    End(Outcome, Option<String>),
}

impl Bargain {
    /// What the message meets in the table of acts and states.
    pub(super) fn judge(
        &self,
        seat: usize,
        payload: &Payload,
        pinned: Option<&Pinned>,
        moment: Moment,
    ) -> BargainVerdict {
        let round = payload.round();
        if round.is_some_and(|round| round < self.round()) {
            return BargainVerdict::of(Disposition::StaleRound);
        }
        if round.is_some_and(|round| round > self.round()) {
            return self.refuse(seat, Disposition::OutOfTurn, "bad_round", None);
        }
        let is_turn = self.begun_at.is_some() && self.confirm_by.is_none() && self.turn() == seat;
        let is_invited = self.begun_at.is_none() && !self.seats[seat].has_joined;
        match (payload, is_turn) {
            (Payload::End(_), _) => self.ended_by(seat),
            (Payload::Cancel(_), _) if seat == 0 => BargainVerdict::ok(BargainAction::End(Outcome::Cancelled, None)),
            (Payload::Cancel(_), _) => self.refuse(seat, Disposition::OutOfTurn, "out_of_turn", None),
            (Payload::Withdraw(_), _) => self.judge_withdrawal(seat),
            (Payload::Join(join), _) if is_invited => self.judge_join(seat, join, pinned),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _) if is_invited => self.ended_by(seat),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _) if self.confirm_by.is_some() => {
                BargainVerdict::ok(BargainAction::End(Outcome::NoAgreement, Some("unconfirmed".to_owned())))
            }
            (Payload::Confirm(confirm), _) if self.confirm_by.is_some() && !self.seats[seat].has_confirmed => {
                self.judge_confirm(seat, confirm)
            }
            (Payload::Offer(offer), true) => self.judge_offer(seat, offer, moment),
            (Payload::Accept(accept), true) => self.judge_accept(seat, accept, moment),
            (_, _) => BargainVerdict {
                then: BargainAction::Strike,
                ..self.refuse(seat, Disposition::OutOfTurn, "out_of_turn", None)
            },
        }
    }

    fn refuse(&self, seat: usize, disposition: Disposition, reason: &str, pointer: Option<&str>) -> BargainVerdict {
        let reply = Some(fact::not_understood(&self.id, &self.seats[seat].agent, reason, pointer));
        BargainVerdict { reply, ..BargainVerdict::of(disposition) }
    }

    fn ended_by(&self, seat: usize) -> BargainVerdict {
        BargainVerdict::ok(BargainAction::End(Outcome::Ended, Some(self.seats[seat].agent.to_string())))
    }

    /// A joining (docs/spec/alternating-offers.md#ao-12).
    fn judge_join(&self, seat: usize, join: &Join, pinned: Option<&Pinned>) -> BargainVerdict {
        match delegated(join.mandate.as_deref(), &self.rules, pinned) {
            Ok(rule) => BargainVerdict::ok(BargainAction::Join(join.clone(), rule)),
            Err(misread) => self.refuse(seat, Disposition::Malformed, misread.reason, misread.pointer.as_deref()),
        }
    }

    /// Who may withdraw (docs/spec/alternating-offers.md#ao-23).
    fn judge_withdrawal(&self, seat: usize) -> BargainVerdict {
        let is_own = self.stands().is_some_and(|made| made.by == seat && made.accepted_by.is_empty());
        if is_own && self.confirm_by.is_none() {
            return BargainVerdict::ok(BargainAction::Withdraw);
        }
        self.refuse(seat, Disposition::OutOfTurn, "out_of_turn", None)
    }

    /// A party confirms (docs/spec/alternating-offers.md#ao-37).
    fn judge_confirm(&self, seat: usize, confirm: &Confirm) -> BargainVerdict {
        if confirm.award_no != AwardNo(1) {
            return BargainVerdict {
                then: BargainAction::Strike,
                ..self.refuse(seat, Disposition::OutOfTurn, "out_of_turn", None)
            };
        }
        let agreed = self.stands().map(|made| digest(&made.terms));
        if confirm.terms_digest.is_some() && confirm.terms_digest != agreed {
            return self.refuse(seat, Disposition::Malformed, "terms_digest", Some("/payload/terms_digest"));
        }
        BargainVerdict::ok(BargainAction::Confirm)
    }

    /// An offer in its sender's turn (docs/spec/alternating-offers.md#ao-16).
    fn judge_offer(&self, seat: usize, offer: &Offer, moment: Moment) -> BargainVerdict {
        let refuse = |disposition, reason, pointer: &str| self.refuse(seat, disposition, reason, Some(pointer));
        if let Some(issue) = space::outside(&self.rules, &offer.terms) {
            return refuse(Disposition::Malformed, "out_of_space", &format!("/payload/terms/{issue}"));
        }
        if offer.currency.is_some() && offer.currency != self.currency {
            return refuse(Disposition::Malformed, "currency", "/payload/currency");
        }
        if !offer.documents.is_empty() {
            return refuse(Disposition::Malformed, "document", "/payload/documents");
        }
        let until = validity(offer, moment.now);
        if until.is_some_and(|until| until <= moment.now) {
            let member = if offer.valid_for_ms.is_some() { "valid_for_ms" } else { "valid_until" };
            return refuse(Disposition::Expired, "validity", &format!("/payload/{member}"));
        }
        let from = offer.valid_from.map(|from| from.0).filter(|from| *from > moment.now);
        if from.zip(until).is_some_and(|(from, until)| from > until) {
            return refuse(Disposition::Malformed, "validity", "/payload/valid_from");
        }
        let conditions = match &offer.conditions {
            Some(Conditions::Predicates(conditions)) => conditions.clone(),
            // Nobody could judge it.
            Some(Conditions::Text(_)) => return refuse(Disposition::Malformed, "condition", "/payload/conditions"),
            None => Vec::new(),
        };
        if let Some(pointer) = self.condition_fault(&conditions, offer) {
            return refuse(Disposition::Malformed, "condition", &pointer);
        }
        let is_same = |made: &Made| made.by == seat && made.terms == offer.terms && made.accepted_by.is_empty();
        if self.rules.forbid_repeat && self.offers.iter().any(is_same) {
            return refuse(Disposition::PolicyReject, "repeated", "/payload/terms");
        }
        if let Some(broken) = self.outside_mandate(seat, &offer.terms) {
            return refuse(Disposition::MandateViolation, "mandate_violation", &format!("/payload/terms{broken}"));
        }
        let (id, t_ppm, terms) = (OfferId(moment.position), self.t_ppm(moment.now), offer.terms.clone());
        BargainVerdict::ok(BargainAction::Offer(Made {
            id,
            by: seat,
            terms,
            conditions,
            from,
            until,
            t_ppm,
            accepted_by: Vec::new(),
        }))
    }

    /// The place of a condition that can never be judged, or does not hold of the offer's own terms.
    fn condition_fault(&self, conditions: &[Predicate], offer: &Offer) -> Option<String> {
        if conditions.len() > PREDICATES_MAX {
            return Some("/payload/conditions".to_owned());
        }
        let is_of_acceptance = |one: &Predicate| [ATTR_ROUND, ATTR_ELAPSED_MS].contains(&one.attr.as_str());
        let is_issue = |one: &Predicate| self.rules.issues.iter().any(|issue| issue.name == one.attr);
        let unknown = conditions.iter().position(|one| !is_issue(one) && !is_of_acceptance(one));
        let broken =
            conditions.iter().position(|one| is_issue(one) && !mandate::holds(one, offer.terms.get(&one.attr)));
        unknown.or(broken).map(|index| format!("/payload/conditions/{index}"))
    }

    /// An acceptance in its sender's turn (docs/spec/alternating-offers.md#ao-25).
    fn judge_accept(&self, seat: usize, accept: &Accept, moment: Moment) -> BargainVerdict {
        let Some(said) = accept.terms_digest else {
            return self.refuse(seat, Disposition::Malformed, "terms_digest", Some("/payload/terms_digest"));
        };
        let is_expired =
            self.standing.is_none() && self.expired.is_some_and(|last| self.offers[last].id == accept.offer_id);
        if is_expired {
            return self.refuse(seat, Disposition::Expired, "standing", None);
        }
        let meant = self.stands().filter(|made| made.id == accept.offer_id && digest(&made.terms) == said);
        let Some(made) = meant.filter(|made| made.by != seat) else {
            return self.refuse(seat, Disposition::OutOfTurn, "standing", None);
        };
        if made.from.is_some_and(|from| from > moment.now) {
            return self.refuse(seat, Disposition::OutOfTurn, "not_yet_valid", None);
        }
        if !self.conditions_met(made, moment.now) {
            return self.refuse(seat, Disposition::PolicyReject, "condition", None);
        }
        if self.outside_mandate(seat, &made.terms).is_some() {
            let pointer = Some("/payload/offer_id");
            return self.refuse(seat, Disposition::MandateViolation, "mandate_violation", pointer);
        }
        BargainVerdict::ok(BargainAction::Accept)
    }

    /// Whether every condition of an offer holds now.
    pub(super) fn conditions_met(&self, made: &Made, now: Timestamp) -> bool {
        let elapsed_ms = i64::try_from(self.elapsed_us(now) / 1000).expect("a day at most");
        let facts = [(ATTR_ROUND, i64::from(self.round())), (ATTR_ELAPSED_MS, elapsed_ms)];
        made.conditions.iter().all(|condition| {
            let of_acceptance = facts.iter().find(|(name, _)| *name == condition.attr.as_str());
            match of_acceptance {
                Some((_, value)) => mandate::holds(condition, Some(&AttrValue::Int(*value))),
                None => mandate::holds(condition, made.terms.get(&condition.attr)),
            }
        })
    }

    fn outside_mandate(&self, seat: usize, terms: &schemas::payload::Terms) -> Option<String> {
        let mandate = self.seats[seat].mandate.as_ref()?;
        mandate::outside(mandate, &self.rules, terms)
    }
}

/// Until when an offer stands; what no document can say counts as for ever.
fn validity(offer: &Offer, now: Timestamp) -> Option<Timestamp> {
    let until = match (offer.valid_for_ms, offer.valid_until) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(until)) => until.0,
        (None, None) => return None,
    };
    (until.0 <= INTEGER_MAX.unsigned_abs()).then_some(until)
}
