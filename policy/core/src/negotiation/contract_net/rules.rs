//! What becomes of a message that is no repeat and comes in its order (docs/spec/contract-net.md#what-is-legal).
//! Judging changes nothing. Whether an offer comes too late is judged here, while the negotiation is open.

use schemas::bargain::Conditions;
use schemas::delivery::Disposition;
use schemas::payload::{Confirm, Failure, Inform, InformKind, Offer as OfferPayload};
use schemas::policy::OfferRevision;
use schemas::{Act, OfferId, Payload};

use super::SessionState;
use crate::acceptance::decision::AwardLoss;
use crate::acceptance::gate::{CallGates, GateFault};
use crate::acceptance::{gate, score};
use crate::negotiation::InputContext;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::awarding::{CancelAnswer, said};
use crate::negotiation::contract_net::awards::{AwardStage, LiveAward};
use crate::negotiation::contract_net::session::{CollectedOffer, amount};
use crate::negotiation::disposition::{Incoming, ProtocolRules, valid_until};
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use crate::negotiation::{FollowUp, Refusal, Ruling};
use crate::policy::PRICE;
use schemas::protocols::Phase;

/// Which party speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    Initiator,
    Contractor(usize),
    /// One that leads the team whose task this is, and takes no other part in it.
    Lead(usize),
}

/// What follows from a message that was admitted.
#[derive(Debug, Default)]
pub(crate) enum ContractNetAction {
    #[default]
    Nothing,
    Strike,
    Record(Box<CollectedOffer>),
    GateFailed,
    Decline(SessionState),
    Withdraw,
    Confirm(usize),
    LoseAward(usize, AwardLoss, Failure),
    Perform(usize, Inform),
    AnswerCancel(usize, CancelAnswer),
    Cancel,
    Choose(usize),
}

/// What becomes of a message, or why it is not followed.
type Judged = Result<Ruling<ContractNetAction>, Refusal>;

/// The rules of a contract net, as it stands when an input comes.
pub(super) struct Rules<'a> {
    net: &'a ContractNet,
    context: &'a InputContext<'a>,
}

impl<'a> Rules<'a> {
    pub(super) fn new(net: &'a ContractNet, context: &'a InputContext<'a>) -> Self {
        Self { net, context }
    }

    /// What the message meets in the table of acts and states; before it, the round it names.
    pub(super) fn judge(&self, speaker: Speaker, incoming: &Incoming) -> Judged {
        let payload = &incoming.payload;
        Refusal::check_round(payload.round(), self.net.round)?;
        match speaker {
            Speaker::Initiator | Speaker::Lead(_) => self.judge_initiator(payload),
            // To call off is the initiator's part, of whoever has both: all else is the contractor's.
            Speaker::Contractor(index) if self.calls_off(index, incoming) => {
                self.judge_initiator(payload).or_else(|refusal| Ok(self.net.refused(Speaker::Initiator, refusal)))
            }
            Speaker::Contractor(index) => self.judge_contractor(index, payload),
        }
    }

    /// Whether a contractor calls a task off that is its own assignment, or that of the team it leads.
    fn calls_off(&self, index: usize, incoming: &Incoming) -> bool {
        let is_initiator = self.net.sessions[index].party.agent == self.net.initiator.agent;
        matches!(incoming.payload, Payload::Cancel(_)) && (is_initiator || incoming.leads)
    }

    fn judge_initiator(&self, payload: &Payload) -> Judged {
        match (payload, self.net.phase) {
            (Payload::Cancel(_), phase) if phase != Phase::Cancelling => Ok(Ruling::ok(ContractNetAction::Cancel)),
            (Payload::Accept(accept), Phase::Deciding) => match self.chosen(accept.offer_id) {
                Some(index) => Ok(Ruling::ok(ContractNetAction::Choose(index))),
                None => Err(Refusal::out_of_turn(NotUnderstoodReason::UnknownOffer)),
            },
            // "What you sent me makes no sense" voids nothing (docs/spec/messages.md#ms-38).
            (Payload::NotUnderstood(_), _) => Ok(Ruling::ok(ContractNetAction::Nothing)),
            (_, _) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn judge_contractor(&self, index: usize, payload: &Payload) -> Judged {
        match (payload, payload.act()) {
            (Payload::Offer(offer), _) => self.judge_offer(index, offer),
            (_, act @ (Act::Refuse | Act::NotUnderstood | Act::Withdraw)) => self.judge_decline(index, act),
            (Payload::Confirm(confirm), _) => self.judge_confirm(index, confirm),
            (Payload::Inform(inform), _) => self.judge_inform(index, inform),
            (Payload::Failure(failure), _) => self.judge_failure(index, failure),
            (_, _) => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn judge_offer(&self, index: usize, payload: &OfferPayload) -> Judged {
        if matches!(payload.conditions, Some(Conditions::Predicates(_))) {
            // Predicates are judged in bargains only: what nobody would judge must not look as if it bound anyone.
            return Err(Refusal::malformed(NotUnderstoodReason::Condition, "/payload/conditions"));
        }
        let gates = self.score(index, payload);
        if self.net.phase != Phase::Collecting {
            return Ok(Ruling { score: gates.ok(), ..Ruling::refused(Disposition::Late, FollowUp::Late) });
        }
        if !may_offer(self.net, index) {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        let score = match gates {
            Ok(score) => score,
            Err(fault) => {
                let refused = Ruling::refused(Disposition::PolicyReject, FollowUp::Policy(fault));
                return Ok(Ruling { action: ContractNetAction::GateFailed, ..refused });
            }
        };
        let offer = self.collected(payload, score);
        Ok(Ruling { score: Some(score), ..Ruling::ok(ContractNetAction::Record(Box::new(offer))) })
    }

    /// What an offer scores, or the first gate it fails.
    pub(super) fn score(&self, index: usize, payload: &OfferPayload) -> Result<u32, GateFault> {
        let now = self.context.now;
        let (currency, documents) = (self.net.currency.as_deref(), self.net.documents.as_deref());
        let policy = self.net.policy();
        let terms = self.net.reputations.weighed(policy, index, &payload.terms)?;
        gate::check(policy, CallGates { currency, documents }, (payload, &terms), valid_until(payload, now), now)?;
        Ok(score::score(policy, &terms))
    }

    /// The offer as it is kept.
    pub(super) fn collected(&self, payload: &OfferPayload, score: u32) -> CollectedOffer {
        let documents = self.net.documents.as_deref();
        CollectedOffer {
            id: OfferId(self.context.position),
            score,
            price: price_of(payload).map(amount),
            payment: None,
            valid_until: valid_until(payload, self.context.now),
            terms: canonical_terms(payload),
            document: documents.and_then(|documents| documents.pinned(&payload.documents)).map(Box::new),
        }
    }

    /// REFUSE, NOT_UNDERSTOOD and WITHDRAW of a contractor.
    fn judge_decline(&self, index: usize, act: Act) -> Judged {
        let session = &self.net.sessions[index];
        if self.net.phase == Phase::Collecting {
            return match (act, session.state) {
                (Act::Withdraw, SessionState::Offered) => Ok(Ruling::ok(ContractNetAction::Withdraw)),
                (Act::Refuse, state) if state.may_answer() => {
                    Ok(Ruling::ok(ContractNetAction::Decline(SessionState::Refused)))
                }
                (Act::NotUnderstood, state) if state.may_answer() => {
                    Ok(Ruling::ok(ContractNetAction::Decline(SessionState::NotUnderstood)))
                }
                (_, _) => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
            };
        }
        let Some((lot, award)) = self.net.awards.of_session(index) else {
            return Err(Refusal::answered(Disposition::Closed, FollowUp::Closed));
        };
        match award.stage {
            AwardStage::Awarded => Ok(Ruling::ok(ContractNetAction::LoseAward(
                lot,
                AwardLoss::Refused,
                said(&format!("declined_by_{act}")),
            ))),
            AwardStage::Committed if act == Act::NotUnderstood => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
            AwardStage::Committed => Err(Refusal::strike(NotUnderstoodReason::UseFailureDecommit)),
            AwardStage::Done | AwardStage::CancelPending => {
                Err(Refusal::answered(Disposition::Closed, FollowUp::Closed))
            }
        }
    }

    /// CONFIRM of a live award (docs/spec/contract-net.md#cn-41), or of one taken back
    /// (docs/spec/contract-net.md#cn-43).
    fn judge_confirm(&self, index: usize, confirm: &Confirm) -> Judged {
        let award_no = confirm.award_no;
        if self.net.awards.is_revoked(award_no, index) {
            return Err(Refusal::answered(Disposition::Revoked, FollowUp::Revoked(award_no)));
        }
        match self.net.awards.of_session(index) {
            Some((lot, award)) if award.award_no == award_no && award.stage == AwardStage::Awarded => {
                Ok(Ruling { disposition: Disposition::Committed, ..Ruling::ok(ContractNetAction::Confirm(lot)) })
            }
            Some(_) | None => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    /// The report of a bound contractor (docs/spec/contract-net.md#cn-54), or its answer to a CANCEL
    /// (docs/spec/contract-net.md#cn-56). Either names no document but the pinned one (docs/spec/agora.md#ag-36).
    fn judge_inform(&self, index: usize, inform: &Inform) -> Judged {
        let may_report = |award: &LiveAward| match award.stage {
            AwardStage::CancelPending => true,
            AwardStage::Committed => inform.kind != InformKind::Cancelled,
            AwardStage::Awarded | AwardStage::Done => false,
        };
        let Some((lot, award)) = self.net.awards.of_session(index).filter(|(_, award)| may_report(award)) else {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        };
        let named = inform.routine.and_then(|routine| routine.hash);
        if named.is_some() && named != award.document {
            return Err(Refusal::malformed(NotUnderstoodReason::Document, "/payload/routine/hash"));
        }
        Ok(Ruling::ok(if award.stage == AwardStage::CancelPending {
            ContractNetAction::AnswerCancel(lot, CancelAnswer::Informed(inform.clone()))
        } else {
            ContractNetAction::Perform(lot, inform.clone())
        }))
    }

    /// FAILURE: an answer (docs/spec/contract-net.md#cn-14), a lost award (docs/spec/contract-net.md#cn-46, #cn-49), or
    /// an answer to a CANCEL (docs/spec/contract-net.md#cn-56).
    fn judge_failure(&self, index: usize, failure: &Failure) -> Judged {
        let session = &self.net.sessions[index];
        if self.net.phase == Phase::Collecting {
            return if session.state.may_answer() {
                Ok(Ruling::ok(ContractNetAction::Decline(SessionState::Failed)))
            } else {
                Err(Refusal::strike(NotUnderstoodReason::OutOfTurn))
            };
        }
        let failure = failure.clone();
        match self.net.awards.of_session(index) {
            Some((lot, award)) => match award.stage {
                AwardStage::Awarded => Ok(Ruling::ok(ContractNetAction::LoseAward(lot, AwardLoss::Failed, failure))),
                AwardStage::Committed => {
                    Ok(Ruling::ok(ContractNetAction::LoseAward(lot, AwardLoss::PerformFailed, failure)))
                }
                AwardStage::CancelPending => {
                    Ok(Ruling::ok(ContractNetAction::AnswerCancel(lot, CancelAnswer::Failed(failure))))
                }
                AwardStage::Done => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
            },
            None => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    /// The session whose offer the initiator names, if that offer is in the running and still valid.
    fn chosen(&self, offer_id: OfferId) -> Option<usize> {
        let is_named = |offer: &CollectedOffer| offer.id == offer_id && offer.is_valid(self.context.now);
        self.net.sessions.iter().position(|session| {
            session.state == SessionState::Offered && session.offer.as_deref().is_some_and(is_named)
        })
    }
}

/// Who may offer now (docs/spec/contract-net.md#cn-8).
fn may_offer(net: &ContractNet, index: usize) -> bool {
    let session = &net.sessions[index];
    let is_open = session.state.may_answer()
        || matches!(session.state, SessionState::Withdrawn | SessionState::PolicyRejected)
        || (session.state == SessionState::Offered && net.policy().offer_revision == OfferRevision::Replace);
    is_open && session.round == net.round
}

/// What a party could legally have said: `expected` of a NOT_UNDERSTOOD.
pub(super) fn legal_acts(net: &ContractNet, speaker: Speaker) -> ActSet {
    let Speaker::Contractor(index) = speaker else {
        return match (speaker, net.phase) {
            (_, Phase::Deciding) => ActSet::of(&[Act::Accept, Act::Cancel]),
            (_, Phase::Collecting | Phase::Awarding | Phase::Performing) => ActSet::of(&[Act::Cancel]),
            (_, _) => ActSet::NONE,
        };
    };
    let state = net.sessions[index].state;
    let is_collecting = net.phase == Phase::Collecting;
    if is_collecting && state.may_answer() {
        ActSet::of(&[Act::Offer, Act::Refuse, Act::NotUnderstood, Act::Failure])
    } else if is_collecting && state == SessionState::Offered {
        if may_offer(net, index) { ActSet::of(&[Act::Offer, Act::Withdraw]) } else { ActSet::of(&[Act::Withdraw]) }
    } else if is_collecting && may_offer(net, index) {
        ActSet::of(&[Act::Offer])
    } else if state == SessionState::Awarded {
        ActSet::of(&[Act::Confirm, Act::Refuse, Act::NotUnderstood, Act::Withdraw, Act::Failure])
    } else if matches!(state, SessionState::Committed | SessionState::CancelPending) {
        ActSet::of(&[Act::Inform, Act::Failure])
    } else {
        ActSet::NONE
    }
}

pub(super) fn price_of(offer: &OfferPayload) -> Option<i64> {
    offer.terms.iter().find(|(name, _)| name.as_str() == PRICE).and_then(|(_, value)| match value {
        schemas::payload::AttrValue::Int(price) => Some(*price),
        schemas::payload::AttrValue::Text(_) => None,
    })
}

/// The terms as RFC 8785 writes them. Attribute names are ASCII and sorted by the map, values are integers and texts, so
/// plain compact JSON is the canonical form.
pub(super) fn canonical_terms(offer: &OfferPayload) -> Box<str> {
    serde_json::to_string(&offer.terms).expect("terms are names, integers and texts").into_boxed_str()
}
