//! Steps 6 to 10 of the ladder: what becomes of a message that is neither a repeat nor out of its sender's order. Judging
//! changes nothing.

use schemas::bargain::Conditions;
use schemas::delivery::Disposition;
use schemas::payload::{Confirm, Failure, INTEGER_MAX, Inform, InformKind, Offer as OfferPayload};
use schemas::policy::OfferRevision;
use schemas::{Act, MsgId, OfferId, Payload, Timestamp};

use crate::acceptance::{gate, score};
use crate::contract_net::admission::{Action, CancelAnswer, Speaker, Verdict, said};
use crate::contract_net::state::SessionState;
use crate::effect::AwardLoss;
use crate::ladder::round_of;
use crate::lane::RULES_WITH_BARGAINS;
use crate::negotiation::Negotiation;
use crate::policy::PRICE;
use crate::session::{AwardStage, LiveAward, Offer, Pointed, Reply};
use crate::state::{ActSet, Misread, Phase};
use crate::step::Step;

impl Negotiation {
    /// Steps 6 to 10.
    pub(super) fn judge_message(
        &self,
        speaker: Speaker,
        payload: &Payload,
        msg_id: &MsgId,
        step: &Step<'_>,
    ) -> Verdict {
        if let Some(round) = round_of(payload) {
            if round < self.round {
                return Verdict::refused(Disposition::StaleRound, Reply::None);
            }
            if round > self.round {
                let reply = Reply::NotUnderstood(Misread::BadRound, self.expected_acts(speaker));
                return Verdict::refused(Disposition::OutOfTurn, reply);
            }
        }
        match speaker {
            Speaker::Initiator => self.judge_initiator(payload, step),
            Speaker::Contractor(index) => self.judge_contractor(index, payload, msg_id, step),
        }
    }

    fn judge_initiator(&self, payload: &Payload, step: &Step<'_>) -> Verdict {
        match payload {
            Payload::Cancel(_) if self.phase != Phase::Cancelling => Verdict::ok(Action::Cancel),
            Payload::Accept(accept) if self.phase == Phase::Deciding => match self.chosen(accept.offer_id, step.now) {
                Some(index) => Verdict::ok(Action::Choose(index)),
                None => self.out_of_turn(Speaker::Initiator, Misread::UnknownOffer),
            },
            // "What you sent me makes no sense" voids nothing (section 8).
            Payload::NotUnderstood(_) => Verdict::ok(Action::Nothing),
            Payload::Cancel(_)
            | Payload::Accept(_)
            | Payload::Cfp(_)
            | Payload::Offer(_)
            | Payload::Refuse(_)
            | Payload::Withdraw(_)
            | Payload::Confirm(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Join(_)
            | Payload::End(_) => self.out_of_turn(Speaker::Initiator, Misread::OutOfTurn),
        }
    }

    fn judge_contractor(&self, index: usize, payload: &Payload, msg_id: &MsgId, step: &Step<'_>) -> Verdict {
        match payload {
            Payload::Offer(offer) => self.judge_offer(index, offer, msg_id, step),
            Payload::Refuse(_) => self.judge_decline(index, Act::Refuse),
            Payload::NotUnderstood(_) => self.judge_decline(index, Act::NotUnderstood),
            Payload::Withdraw(_) => self.judge_decline(index, Act::Withdraw),
            Payload::Confirm(confirm) => self.judge_confirm(index, confirm),
            Payload::Inform(inform) => self.judge_inform(index, inform),
            Payload::Failure(failure) => self.judge_failure(index, failure),
            Payload::Cfp(_) | Payload::Accept(_) | Payload::Cancel(_) | Payload::Join(_) | Payload::End(_) => {
                self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn)
            }
        }
    }

    fn judge_offer(&self, index: usize, payload: &OfferPayload, msg_id: &MsgId, step: &Step<'_>) -> Verdict {
        if step.rules >= RULES_WITH_BARGAINS && matches!(payload.conditions, Some(Conditions::Predicates(_))) {
            return self.unread_conditions(index);
        }
        let valid_until = valid_until(payload, step.now);
        let gates = gate::check(self.policy(), self.currency.as_deref(), payload, valid_until, step.now);
        if self.phase != Phase::Collecting {
            let score = gates.is_ok().then(|| score::score(self.policy(), &payload.terms));
            return Verdict { score, ..Verdict::refused(Disposition::Late, Reply::Late) };
        }
        if !self.may_offer(index) {
            return self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn);
        }
        if let Err(fault) = gates {
            let refused = Verdict::refused(Disposition::PolicyReject, Reply::Policy(fault));
            return Verdict { action: Action::GateFailed, ..refused };
        }
        let score = score::score(self.policy(), &payload.terms);
        let offer = Offer {
            id: OfferId(step.position),
            score,
            price: price_of(payload),
            payment: None,
            valid_until,
            terms: canonical_terms(payload),
            msg_id: msg_id.clone(),
        };
        Verdict { score: Some(score), ..Verdict::ok(Action::Record(Box::new(offer))) }
    }

    /// Predicates are judged in bargains only: what nobody would judge must not look as if it bound anyone.
    fn unread_conditions(&self, index: usize) -> Verdict {
        let reply = Reply::Pointed(Box::new(Pointed {
            misread: Misread::Condition,
            expected: self.expected_acts(Speaker::Contractor(index)),
            pointer: Box::from("/payload/conditions"),
        }));
        Verdict::refused(Disposition::Malformed, reply)
    }

    /// Row 2: who may offer now.
    fn may_offer(&self, index: usize) -> bool {
        let session = &self.sessions[index];
        let is_open = session.state.may_answer()
            || matches!(session.state, SessionState::Withdrawn | SessionState::PolicyRejected)
            || (session.state == SessionState::Offered && self.policy().offer_revision == OfferRevision::Replace);
        is_open && session.round == self.round
    }

    /// REFUSE, NOT_UNDERSTOOD and WITHDRAW of a contractor: rows 3, 4, 10, 18 and section 8.
    fn judge_decline(&self, index: usize, act: Act) -> Verdict {
        let speaker = Speaker::Contractor(index);
        let session = &self.sessions[index];
        if self.phase == Phase::Collecting {
            return match (act, session.state) {
                (Act::Withdraw, SessionState::Offered) => Verdict::ok(Action::Withdraw),
                (Act::Refuse, state) if state.may_answer() => Verdict::ok(Action::Decline(SessionState::Refused)),
                (Act::NotUnderstood, state) if state.may_answer() => {
                    Verdict::ok(Action::Decline(SessionState::NotUnderstood))
                }
                (_, _) => self.out_of_turn(speaker, Misread::OutOfTurn),
            };
        }
        let Some((lot, award)) = self.live_award(index) else {
            return Verdict::refused(Disposition::Closed, Reply::Closed);
        };
        match award.stage {
            AwardStage::Awarded => {
                Verdict::ok(Action::LoseAward(lot, AwardLoss::Refused, said(&format!("declined_by_{act}"))))
            }
            AwardStage::Committed if act == Act::NotUnderstood => self.out_of_turn(speaker, Misread::OutOfTurn),
            AwardStage::Committed => self.out_of_turn(speaker, Misread::UseFailureDecommit),
            AwardStage::Done | AwardStage::CancelPending => Verdict::refused(Disposition::Closed, Reply::Closed),
        }
    }

    /// Rows 9 and 13.
    fn judge_confirm(&self, index: usize, confirm: &Confirm) -> Verdict {
        let award_no = confirm.award_no;
        if self.past_awards.iter().any(|past| past.award_no == award_no && past.session == index) {
            return Verdict::refused(Disposition::Revoked, Reply::Revoked(award_no));
        }
        match self.live_award(index) {
            Some((lot, award)) if award.award_no == award_no && award.stage == AwardStage::Awarded => {
                Verdict { disposition: Disposition::Committed, ..Verdict::ok(Action::Confirm(lot)) }
            }
            Some(_) | None => self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn),
        }
    }

    /// Rows 14 and 17.
    fn judge_inform(&self, index: usize, inform: &Inform) -> Verdict {
        match self.live_award(index) {
            Some((lot, award)) if award.stage == AwardStage::CancelPending => {
                Verdict::ok(Action::AnswerCancel(lot, CancelAnswer::Informed(inform.clone())))
            }
            Some((lot, award)) if award.stage == AwardStage::Committed && inform.kind != InformKind::Cancelled => {
                Verdict::ok(Action::Perform(lot, inform.clone()))
            }
            Some(_) | None => self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn),
        }
    }

    /// Rows 3, 10, 15 and 17.
    fn judge_failure(&self, index: usize, failure: &Failure) -> Verdict {
        let session = &self.sessions[index];
        if self.phase == Phase::Collecting {
            return if session.state.may_answer() {
                Verdict::ok(Action::Decline(SessionState::Failed))
            } else {
                self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn)
            };
        }
        let failure = failure.clone();
        match self.live_award(index) {
            Some((lot, award)) => match award.stage {
                AwardStage::Awarded => Verdict::ok(Action::LoseAward(lot, AwardLoss::Failed, failure)),
                AwardStage::Committed => Verdict::ok(Action::LoseAward(lot, AwardLoss::PerformFailed, failure)),
                AwardStage::CancelPending => Verdict::ok(Action::AnswerCancel(lot, CancelAnswer::Failed(failure))),
                AwardStage::Done => self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn),
            },
            None => self.out_of_turn(Speaker::Contractor(index), Misread::OutOfTurn),
        }
    }

    /// Step 8. Contractors are struck for it; the initiator, without whom there is no negotiation, is not.
    fn out_of_turn(&self, speaker: Speaker, misread: Misread) -> Verdict {
        let reply = Reply::NotUnderstood(misread, self.expected_acts(speaker));
        let action = match speaker {
            Speaker::Initiator => Action::Nothing,
            Speaker::Contractor(_) => Action::Strike,
        };
        Verdict { action, ..Verdict::refused(Disposition::OutOfTurn, reply) }
    }

    fn live_award(&self, session: usize) -> Option<(usize, &LiveAward)> {
        let lot = self.lot_of(session)?;
        Some((lot, self.lots[lot].award.as_ref()?))
    }

    /// What a party could legally have said: `expected` of a NOT_UNDERSTOOD.
    fn expected_acts(&self, speaker: Speaker) -> ActSet {
        let Speaker::Contractor(index) = speaker else {
            return match self.phase {
                Phase::Deciding => ActSet::of(&[Act::Accept, Act::Cancel]),
                Phase::Collecting | Phase::Awarding | Phase::Performing => ActSet::of(&[Act::Cancel]),
                Phase::Cancelling | Phase::Joining | Phase::Bargaining | Phase::Confirming | Phase::Ended => {
                    ActSet::NONE
                }
            };
        };
        let state = self.sessions[index].state;
        let is_collecting = self.phase == Phase::Collecting;
        if is_collecting && state.may_answer() {
            ActSet::of(&[Act::Offer, Act::Refuse, Act::NotUnderstood, Act::Failure])
        } else if is_collecting && state == SessionState::Offered {
            if self.may_offer(index) { ActSet::of(&[Act::Offer, Act::Withdraw]) } else { ActSet::of(&[Act::Withdraw]) }
        } else if is_collecting && self.may_offer(index) {
            ActSet::of(&[Act::Offer])
        } else if state == SessionState::Awarded {
            ActSet::of(&[Act::Confirm, Act::Refuse, Act::NotUnderstood, Act::Withdraw, Act::Failure])
        } else if matches!(state, SessionState::Committed | SessionState::CancelPending) {
            ActSet::of(&[Act::Inform, Act::Failure])
        } else {
            ActSet::NONE
        }
    }
}

/// Until when an offer stands. What lies beyond the integers of a JSON document stands for the whole negotiation.
pub(crate) fn valid_until(offer: &OfferPayload, now: Timestamp) -> Timestamp {
    let until = match (offer.valid_for_ms, offer.valid_until) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(until)) => until.0,
        (None, None) => Timestamp::MAX,
    };
    if until.0 > INTEGER_MAX.unsigned_abs() { Timestamp::MAX } else { until }
}

fn price_of(offer: &OfferPayload) -> Option<i64> {
    offer.terms.iter().find(|(name, _)| name.as_str() == PRICE).and_then(|(_, value)| match value {
        schemas::payload::AttrValue::Int(price) => Some(*price),
        schemas::payload::AttrValue::Text(_) => None,
    })
}

/// The terms as RFC 8785 writes them. Attribute names are ASCII and sorted by the map, values are integers and texts, so
/// plain compact JSON is the canonical form.
fn canonical_terms(offer: &OfferPayload) -> Box<str> {
    serde_json::to_string(&offer.terms).expect("terms are names, integers and texts").into_boxed_str()
}
