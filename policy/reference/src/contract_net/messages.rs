//! One message: whether it is a repeat, what it meets in the table of acts and states, what it is answered, and what follows
//! (docs/spec/contract-net.md#what-is-legal, docs/spec/messages.md#ms-32 to #ms-36).

use policy_core::{AwardLoss, Cause, Limits, Phase, SessionState};
use schemas::bargain::Conditions;
use schemas::delivery::{Disposition, Receipt, RejectReason, Rejection};
use schemas::payload::{Inform, InformKind, Offer as OfferPayload};
use schemas::policy::OfferRevision;
use schemas::record::Message;
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, OfferId, Payload, Timestamp};

use crate::contract_net::{ContractNet, HeldOffer, Said, Stage, Verdict, english_auction};

use crate::{Moment, Wins, fact, scoring};

pub(crate) type NetVerdict = Verdict<NetAction>;

#[derive(Default)]
pub(crate) enum NetAction {
    #[default]
    Nothing,
    Strike,
    Record(HeldOffer),
    Answer(SessionState, RejectReason),
    Confirm(usize),
    Lose(usize, AwardLoss),
    Perform(usize, Inform),
    AnswerCancel(usize, Option<Inform>),
    Cancel,
    Choose(AgentId),
}

impl ContractNet {
    /// One message of a party.
    pub(crate) fn hear(
        &mut self,
        from: &AgentId,
        digest: Digest,
        message: Message,
        moment: Moment,
        wins: &mut Wins,
        limits: &Limits,
    ) {
        let (msg_id, seq, payload) = (message.envelope.msg_id, message.envelope.seq, message.payload);
        if let Some(session) = self.sessions.get_mut(from) {
            session.was_heard = true;
        }
        let party = &self.parties[from];
        if let Some(earlier) = party.said.iter().find(|said| said.msg_id == msg_id) {
            return self.answer_again(from, &earlier.clone(), digest, &payload);
        }
        let is_full = if self.auction.is_some() && self.outcome.is_none() {
            let is_bid_or_stale = payload.act() == Act::Offer || is_stale(party.last_seq, seq);
            english_auction::is_full(self, from, is_bid_or_stale, limits)
        } else {
            party.said.len() >= limits.messages_per_party_max
        };
        let mut verdict = if is_full && self.outcome.is_none() {
            NetVerdict::of(Disposition::RateLimited)
        } else if is_stale(party.last_seq, seq) {
            NetVerdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            self.judge_after_the_end(from, &payload, moment)
        } else {
            self.judge(from, &payload, moment)
        };
        if self.outcome.is_some() {
            let to = (&msg_id, verdict.disposition);
            verdict.reply = verdict.reply.map(|reply| party.reply_after_end(to, is_full, reply));
        }
        if let (Payload::Failure(failure), NetAction::Lose(..)) = (&payload, &verdict.then) {
            self.note_loss_code(Some(failure.code.clone()));
        }
        self.answer(from, &msg_id, payload.act(), &verdict, moment);
        let act = payload.act();
        let party = self.parties.get_mut(from).expect("a party");
        party.others += usize::from(act != Act::Offer && !is_full);
        party.note(Said { msg_id, digest, disposition: verdict.disposition, reply: verdict.reply }, seq, is_full);
        self.follow(from, verdict.then, moment, wins);
    }

    fn answer(&mut self, from: &AgentId, msg_id: &MsgId, act: Act, verdict: &NetVerdict, moment: Moment) {
        let numbered = [Disposition::Ok, Disposition::Late, Disposition::PolicyReject];
        let has_offer_id = act == Act::Offer && numbered.contains(&verdict.disposition);
        let receipt = Receipt {
            offer_id: has_offer_id.then_some(OfferId(moment.position)),
            award_no: verdict.award_no,
            ..Receipt::new(msg_id.clone(), verdict.disposition)
        };
        self.facts.push(fact::ack(&self.id, from, &receipt));
        self.facts.extend(verdict.reply.clone());
    }

    /// Repeats (docs/spec/messages.md#ms-33). After the end less is remembered: only late offers, outdated
    /// confirmations and CLOSED are told again.
    fn answer_again(&mut self, from: &AgentId, earlier: &Said, digest: Digest, payload: &Payload) {
        let is_same = earlier.digest == digest;
        let disposition = if is_same { Disposition::Duplicate } else { Disposition::Conflict };
        self.facts.push(fact::ack_again(&self.id, from, &earlier.msg_id, disposition, earlier.disposition));
        if !is_same {
            return;
        }
        let Some(outcome) = self.outcome else {
            self.facts.extend(earlier.reply.clone());
            return;
        };
        let again = match (earlier.disposition, payload) {
            (Disposition::Closed, _) => Some(fact::closed(&self.id, from, outcome)),
            (Disposition::Late, _) => Some(self.late(from)),
            (Disposition::Revoked, Payload::Confirm(confirm)) => Some(self.revoked(from, confirm.award_no)),
            _ => None,
        };
        let (party, to) = (&self.parties[from], (&earlier.msg_id, earlier.disposition));
        self.facts.extend(again.map(|reply| party.reply_after_end(to, false, reply)));
    }

    /// After the end (docs/spec/contract-net.md#cn-63).
    fn judge_after_the_end(&self, from: &AgentId, payload: &Payload, moment: Moment) -> NetVerdict {
        if let Payload::Offer(offer) = payload
            && self.sessions.contains_key(from)
        {
            return if moment.now > self.ends_by {
                NetVerdict::of(Disposition::Expired)
            } else if offer.round.is_some_and(|round| round < self.round) {
                NetVerdict::of(Disposition::StaleRound)
            } else {
                NetVerdict { reply: Some(self.late(from)), ..NetVerdict::of(Disposition::Late) }
            };
        }
        if let Payload::Confirm(confirm) = payload
            && self.was_revoked(confirm.award_no, from)
        {
            return self.judge_revoked(from, confirm.award_no);
        }
        let closed = self.outcome.map(|outcome| fact::closed(&self.id, from, outcome));
        NetVerdict { reply: closed, ..NetVerdict::of(Disposition::Closed) }
    }

    pub(super) fn late(&self, to: &AgentId) -> String {
        fact::reject(&self.id, to, &Rejection { offer_id: None, reason: RejectReason::Late, code: None })
    }

    fn revoked(&self, to: &AgentId, award_no: AwardNo) -> String {
        fact::cancel(&self.id, to, award_no, "revoked")
    }

    fn was_revoked(&self, award_no: AwardNo, contractor: &AgentId) -> bool {
        self.past.contains(&(award_no, contractor.clone()))
    }

    fn judge_revoked(&self, from: &AgentId, award_no: AwardNo) -> NetVerdict {
        let reply = Some(self.revoked(from, award_no));
        NetVerdict { reply, award_no: Some(award_no), ..NetVerdict::of(Disposition::Revoked) }
    }

    fn follow(&mut self, from: &AgentId, then: NetAction, moment: Moment, wins: &mut Wins) {
        match then {
            NetAction::Nothing => {}
            NetAction::Strike => self.strike(from, moment, wins),
            NetAction::Record(offer) => self.record(from, offer, moment, wins),
            NetAction::Answer(state, reason) => self.answer_without_offer(from, state, reason, moment, wins),
            NetAction::Confirm(lot) => self.confirm(lot, moment),
            NetAction::Lose(lot, loss) => self.lose(lot, loss, moment, wins),
            NetAction::Perform(lot, inform) => self.perform(lot, &inform, moment),
            NetAction::AnswerCancel(lot, informed) => self.answer_cancel(lot, informed, moment),
            NetAction::Cancel => self.cancel(moment),
            NetAction::Choose(contractor) => {
                self.reject_expired(moment.now);
                self.decide(Some(&contractor), Cause::Initiator, moment, wins);
            }
        }
    }
}

/// Whether a message comes behind a later one of its sender. Who has numbered a message once must go on doing so.
pub(crate) fn is_stale(last: Option<u64>, seq: Option<u64>) -> bool {
    match (last, seq) {
        (Some(last), Some(seq)) => seq <= last,
        (Some(_), None) => true,
        (None, Some(_) | None) => false,
    }
}

impl ContractNet {
    /// What the message meets in the table of acts and states.
    pub(crate) fn judge(&self, from: &AgentId, payload: &Payload, moment: Moment) -> NetVerdict {
        match payload.round() {
            Some(round) if round < self.round => NetVerdict::of(Disposition::StaleRound),
            Some(round) if round > self.round => {
                NetVerdict { then: NetAction::Nothing, ..self.out_of_turn(from, "bad_round") }
            }
            Some(_) | None if self.is_for_initiator(from, payload) => self.judge_initiator(from, payload, moment),
            Some(_) | None => {
                let judged = english_auction::judge_bidder(self, from, payload, moment);
                judged.unwrap_or_else(|| self.judge_contractor(from, payload, moment))
            }
        }
    }

    /// Whose part an act is of who has both: to call off is the initiator's, all else the contractor's.
    fn is_for_initiator(&self, from: &AgentId, payload: &Payload) -> bool {
        let calls_off = matches!(payload, Payload::Cancel(_)) && (*from == self.initiator || self.is_led_by(from));
        calls_off || !self.sessions.contains_key(from)
    }

    fn judge_initiator(&self, from: &AgentId, payload: &Payload, moment: Moment) -> NetVerdict {
        let out_of_turn = |reason| NetVerdict { then: NetAction::Nothing, ..self.out_of_turn(from, reason) };
        match (payload, self.phase) {
            (Payload::Cancel(_), phase) if phase != Phase::Cancelling => NetVerdict::ok(NetAction::Cancel),
            (Payload::NotUnderstood(_), _) => NetVerdict::ok(NetAction::Nothing),
            (Payload::Accept(accept), Phase::Deciding) => {
                let valid = self.valid(moment.now);
                let chosen = valid.iter().find(|(_, offer)| offer.id == accept.offer_id);
                match chosen {
                    Some((contractor, _)) => NetVerdict::ok(NetAction::Choose((*contractor).clone())),
                    None => out_of_turn("unknown_offer"),
                }
            }
            (_, _) => out_of_turn("out_of_turn"),
        }
    }

    fn judge_contractor(&self, from: &AgentId, payload: &Payload, moment: Moment) -> NetVerdict {
        let live = self.lot_of(from);
        let stage = live.and_then(|lot| Some(self.lots[lot].award.as_ref()?.stage));
        let live_no = live.and_then(|lot| Some(self.lots[lot].award.as_ref()?.no));
        match (payload, live, stage) {
            (Payload::Offer(offer), _, _) => self.judge_offer(from, offer, moment),
            (Payload::Confirm(confirm), _, _) if self.was_revoked(confirm.award_no, from) => {
                self.judge_revoked(from, confirm.award_no)
            }
            (Payload::Confirm(confirm), Some(lot), Some(Stage::Awarded)) if live_no == Some(confirm.award_no) => {
                let then = NetAction::Confirm(lot);
                NetVerdict { then, award_no: live_no, ..NetVerdict::of(Disposition::Committed) }
            }
            (Payload::Refuse(_) | Payload::NotUnderstood(_) | Payload::Withdraw(_), _, _) => {
                self.judge_decline(from, payload, live, stage)
            }
            (Payload::Failure(_), _, _) if self.phase == Phase::Collecting && self.is_awaited_or_undelivered(from) => {
                NetVerdict::ok(NetAction::Answer(SessionState::Failed, RejectReason::Withdrawn))
            }
            (Payload::Failure(_), Some(lot), Some(Stage::Awarded)) => {
                NetVerdict::ok(NetAction::Lose(lot, AwardLoss::Failed))
            }
            (Payload::Failure(_), Some(lot), Some(Stage::Committed)) => {
                NetVerdict::ok(NetAction::Lose(lot, AwardLoss::PerformFailed))
            }
            (Payload::Failure(_), Some(lot), Some(Stage::CancelPending)) => {
                NetVerdict::ok(NetAction::AnswerCancel(lot, None))
            }
            (Payload::Inform(inform), Some(lot), Some(Stage::CancelPending)) => {
                let then = NetAction::AnswerCancel(lot, Some(inform.clone()));
                self.of_another_document(from, inform, lot).unwrap_or(NetVerdict::ok(then))
            }
            (Payload::Inform(inform), Some(lot), Some(Stage::Committed)) if inform.kind != InformKind::Cancelled => {
                let then = NetAction::Perform(lot, inform.clone());
                self.of_another_document(from, inform, lot).unwrap_or(NetVerdict::ok(then))
            }
            _ => self.out_of_turn(from, "out_of_turn"),
        }
    }

    /// The refusal of a report that names a document, and not the pinned one (docs/spec/agora.md#ag-36).
    fn of_another_document(&self, from: &AgentId, inform: &Inform, lot: usize) -> Option<NetVerdict> {
        let named = inform.routine?.hash?;
        let pinned = self.lots[lot].award.as_ref()?.document;
        (pinned != Some(named)).then(|| self.malformed(from, "document", "/payload/routine/hash"))
    }

    pub(super) fn malformed(&self, from: &AgentId, reason: &str, pointer: &str) -> NetVerdict {
        let reply = Some(fact::not_understood(&self.id, from, reason, Some(pointer)));
        NetVerdict { reply, ..NetVerdict::of(Disposition::Malformed) }
    }

    fn is_awaited_or_undelivered(&self, contractor: &AgentId) -> bool {
        matches!(self.state(contractor), SessionState::Invited | SessionState::Undelivered)
    }

    fn judge_decline(&self, from: &AgentId, payload: &Payload, lot: Option<usize>, stage: Option<Stage>) -> NetVerdict {
        if self.phase == Phase::Collecting {
            return match (payload.act(), self.state(from)) {
                (Act::Withdraw, SessionState::Offered) => {
                    NetVerdict::ok(NetAction::Answer(SessionState::Withdrawn, RejectReason::Withdrawn))
                }
                (Act::Refuse, SessionState::Invited | SessionState::Undelivered) => {
                    NetVerdict::ok(NetAction::Answer(SessionState::Refused, RejectReason::Withdrawn))
                }
                (Act::NotUnderstood, SessionState::Invited | SessionState::Undelivered) => {
                    NetVerdict::ok(NetAction::Answer(SessionState::NotUnderstood, RejectReason::Withdrawn))
                }
                _ => self.out_of_turn(from, "out_of_turn"),
            };
        }
        match (lot, stage) {
            (Some(lot), Some(Stage::Awarded)) => NetVerdict::ok(NetAction::Lose(lot, AwardLoss::Refused)),
            (_, Some(Stage::Committed)) if payload.act() == Act::NotUnderstood => self.out_of_turn(from, "out_of_turn"),
            (_, Some(Stage::Committed)) => self.out_of_turn(from, "use_failure_decommit"),
            _ => NetVerdict::of(Disposition::Closed),
        }
    }

    fn judge_offer(&self, from: &AgentId, payload: &OfferPayload, moment: Moment) -> NetVerdict {
        use SessionState as S;
        // What nobody would judge must not look as if it bound anyone.
        let has_predicates = matches!(payload.conditions, Some(Conditions::Predicates(_)));
        if has_predicates {
            return self.malformed(from, "condition", "/payload/conditions");
        }
        if self.phase != Phase::Collecting {
            return NetVerdict { reply: Some(self.late(from)), ..NetVerdict::of(Disposition::Late) };
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
        let (currency, asked) = (self.currency.as_deref(), self.documents.as_ref());
        let weighed = scoring::with_reputation(&self.policy, self.reputations.get(from).copied(), payload);
        let failed = match &weighed {
            Some(payload) => scoring::gate_failed(&self.policy, currency, payload, asked, valid_until, moment.now),
            None => Some("reputation.reserved".to_owned()),
        };
        let payload = weighed.as_ref().unwrap_or(payload);
        match failed {
            Some(code) => {
                let rejection = Rejection { offer_id: Some(id), reason: RejectReason::Policy, code: Some(code) };
                let reply = Some(fact::reject(&self.id, from, &rejection));
                let then = NetAction::Answer(S::PolicyRejected, RejectReason::Replaced);
                NetVerdict { reply, then, ..NetVerdict::of(Disposition::PolicyReject) }
            }
            None => {
                let (terms, score) = (payload.terms.clone(), scoring::score(&self.policy, &payload.terms));
                let documents = payload.documents.clone();
                NetVerdict::ok(NetAction::Record(HeldOffer { id, terms, score, payment: None, valid_until, documents }))
            }
        }
    }

    pub(super) fn out_of_turn(&self, to: &AgentId, reason: &str) -> NetVerdict {
        let reply = Some(fact::not_understood(&self.id, to, reason, None));
        NetVerdict { reply, then: NetAction::Strike, ..NetVerdict::of(Disposition::OutOfTurn) }
    }
}
