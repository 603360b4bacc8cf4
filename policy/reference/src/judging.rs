//! What becomes of a message in an open negotiation (docs/spec/contract-net.md#what-is-legal).

use policy_core::{AwardLoss, Phase, SessionState};
use schemas::bargain::Conditions;
use schemas::delivery::{Disposition, RejectReason, Rejection};
use schemas::payload::{InformKind, Offer as OfferPayload};
use schemas::policy::OfferRevision;
use schemas::{Act, AgentId, OfferId, Payload, Timestamp};

use crate::Moment;
use crate::hearing::{Then, Verdict};
use crate::negotiation::{Negotiation, Offer, Stage};
use crate::{fact, scoring};

impl Negotiation {
    /// What the message meets in the table of acts and states.
    pub(crate) fn judge(&self, from: &AgentId, payload: &Payload, moment: Moment) -> Verdict {
        let round = match payload {
            Payload::Offer(offer) => offer.round,
            Payload::Refuse(said) | Payload::NotUnderstood(said) | Payload::Withdraw(said) | Payload::Cancel(said) => {
                said.round
            }
            Payload::Cfp(_)
            | Payload::Accept(_)
            | Payload::Confirm(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Join(_)
            | Payload::End(_) => None,
        };
        match round {
            Some(round) if round < self.round => Verdict::of(Disposition::StaleRound),
            Some(round) if round > self.round => Verdict { then: Then::Nothing, ..self.out_of_turn(from, "bad_round") },
            Some(_) | None if *from == self.initiator => self.judge_initiator(payload, moment),
            Some(_) | None => self.judge_contractor(from, payload, moment),
        }
    }

    fn judge_initiator(&self, payload: &Payload, moment: Moment) -> Verdict {
        let out_of_turn = |reason| Verdict { then: Then::Nothing, ..self.out_of_turn(&self.initiator, reason) };
        match payload {
            Payload::Cancel(_) if self.phase != Phase::Cancelling => Verdict::ok(Then::Cancel),
            Payload::NotUnderstood(_) => Verdict::ok(Then::Nothing),
            Payload::Accept(accept) if self.phase == Phase::Deciding => {
                let valid = self.valid(moment.now);
                let chosen = valid.iter().find(|(_, offer)| offer.id == accept.offer_id);
                match chosen {
                    Some((contractor, _)) => Verdict::ok(Then::Choose((*contractor).clone())),
                    None => out_of_turn("unknown_offer"),
                }
            }
            Payload::Accept(_)
            | Payload::Cancel(_)
            | Payload::Cfp(_)
            | Payload::Offer(_)
            | Payload::Refuse(_)
            | Payload::Withdraw(_)
            | Payload::Confirm(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Join(_)
            | Payload::End(_) => out_of_turn("out_of_turn"),
        }
    }

    fn judge_contractor(&self, from: &AgentId, payload: &Payload, moment: Moment) -> Verdict {
        let live = self.lot_of(from);
        let stage = live.and_then(|lot| Some(self.lots[lot].award.as_ref()?.stage));
        let live_no = live.and_then(|lot| Some(self.lots[lot].award.as_ref()?.no));
        match (payload, live, stage) {
            (Payload::Offer(offer), _, _) => self.judge_offer(from, offer, moment),
            (Payload::Confirm(confirm), _, _) if self.was_revoked(confirm.award_no, from) => {
                self.judge_revoked(from, confirm.award_no)
            }
            (Payload::Confirm(confirm), Some(lot), Some(Stage::Awarded)) if live_no == Some(confirm.award_no) => {
                let then = Then::Confirm(lot);
                Verdict { then, award_no: live_no, ..Verdict::of(Disposition::Committed) }
            }
            (Payload::Refuse(_) | Payload::NotUnderstood(_) | Payload::Withdraw(_), _, _) => {
                self.judge_decline(from, payload, live, stage)
            }
            (Payload::Failure(_), _, _) if self.phase == Phase::Collecting && self.is_awaited_or_undelivered(from) => {
                Verdict::ok(Then::Answer(SessionState::Failed, RejectReason::Withdrawn))
            }
            (Payload::Failure(_), Some(lot), Some(Stage::Awarded)) => Verdict::ok(Then::Lose(lot, AwardLoss::Failed)),
            (Payload::Failure(_), Some(lot), Some(Stage::Committed)) => {
                Verdict::ok(Then::Lose(lot, AwardLoss::PerformFailed))
            }
            (Payload::Failure(_), Some(lot), Some(Stage::CancelPending)) => Verdict::ok(Then::AnswerCancel(lot, None)),
            (Payload::Inform(inform), Some(lot), Some(Stage::CancelPending)) => {
                Verdict::ok(Then::AnswerCancel(lot, Some(inform.kind)))
            }
            (Payload::Inform(inform), Some(lot), Some(Stage::Committed)) if inform.kind != InformKind::Cancelled => {
                Verdict::ok(Then::Perform(lot, inform.kind))
            }
            _ => self.out_of_turn(from, "out_of_turn"),
        }
    }

    fn is_awaited_or_undelivered(&self, contractor: &AgentId) -> bool {
        matches!(self.state(contractor), SessionState::Invited | SessionState::Undelivered)
    }

    fn judge_decline(&self, from: &AgentId, payload: &Payload, lot: Option<usize>, stage: Option<Stage>) -> Verdict {
        if self.phase == Phase::Collecting {
            return match (payload.act(), self.state(from)) {
                (Act::Withdraw, SessionState::Offered) => {
                    Verdict::ok(Then::Answer(SessionState::Withdrawn, RejectReason::Withdrawn))
                }
                (Act::Refuse, SessionState::Invited | SessionState::Undelivered) => {
                    Verdict::ok(Then::Answer(SessionState::Refused, RejectReason::Withdrawn))
                }
                (Act::NotUnderstood, SessionState::Invited | SessionState::Undelivered) => {
                    Verdict::ok(Then::Answer(SessionState::NotUnderstood, RejectReason::Withdrawn))
                }
                _ => self.out_of_turn(from, "out_of_turn"),
            };
        }
        match (lot, stage) {
            (Some(lot), Some(Stage::Awarded)) => Verdict::ok(Then::Lose(lot, AwardLoss::Refused)),
            (_, Some(Stage::Committed)) if payload.act() == Act::NotUnderstood => self.out_of_turn(from, "out_of_turn"),
            (_, Some(Stage::Committed)) => self.out_of_turn(from, "use_failure_decommit"),
            _ => Verdict::of(Disposition::Closed),
        }
    }

    fn judge_offer(&self, from: &AgentId, payload: &OfferPayload, moment: Moment) -> Verdict {
        use SessionState as S;
        // What nobody would judge must not look as if it bound anyone.
        let has_predicates = matches!(payload.conditions, Some(Conditions::Predicates(_)));
        if has_predicates {
            let reply = Some(fact::not_understood(&self.id, from, "condition", Some("/payload/conditions")));
            return Verdict { reply, ..Verdict::of(Disposition::Malformed) };
        }
        if self.phase != Phase::Collecting {
            return Verdict { reply: Some(self.late(from)), ..Verdict::of(Disposition::Late) };
        }
        let session = &self.sessions[from];
        let may_revise = session.state == S::Offered && self.policy.offer_revision == OfferRevision::Replace;
        let may_offer =
            may_revise || matches!(session.state, S::Invited | S::Undelivered | S::Withdrawn | S::PolicyRejected);
        if session.round != self.round || !may_offer {
            return self.out_of_turn(from, "out_of_turn");
        }
        let valid_until = match (payload.valid_for_ms, payload.valid_until) {
            (Some(ms), _) => moment.now.plus_ms(ms),
            (None, Some(until)) => until.0,
            (None, None) => Timestamp::MAX,
        };
        let id = OfferId(moment.position);
        match scoring::gate_failed(&self.policy, self.currency.as_deref(), payload, valid_until, moment.now) {
            Some(code) => {
                let rejection = Rejection { offer_id: Some(id), reason: RejectReason::Policy, code: Some(code) };
                let reply = Some(fact::reject(&self.id, from, &rejection));
                let then = Then::Answer(S::PolicyRejected, RejectReason::Replaced);
                Verdict { reply, then, ..Verdict::of(Disposition::PolicyReject) }
            }
            None => {
                let (terms, score) = (payload.terms.clone(), scoring::score(&self.policy, &payload.terms));
                Verdict::ok(Then::Record(Offer { id, terms, score, payment: None, valid_until }))
            }
        }
    }

    fn out_of_turn(&self, to: &AgentId, reason: &str) -> Verdict {
        let reply = Some(fact::not_understood(&self.id, to, reason, None));
        Verdict { reply, then: Then::Strike, ..Verdict::of(Disposition::OutOfTurn) }
    }
}
