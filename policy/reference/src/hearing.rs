//! One message: what every protocol judges alike (docs/spec/messages.md#ms-32 to #ms-36), what it is answered, and what
//! follows.

use policy_core::{AwardLoss, Cause, Limits, SessionState};
use schemas::delivery::{Disposition, Receipt, RejectReason, Rejection};
use schemas::payload::InformKind;
use schemas::record::Message;
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, OfferId, Payload};

use crate::ending::word;
use crate::fact;
use crate::negotiation::{Negotiation, Offer, Said};
use crate::{Moment, Wins};

/// What becomes of a message, and what follows.
pub(crate) struct Verdict {
    pub(crate) disposition: Disposition,
    pub(crate) reply: Option<String>,
    pub(crate) award_no: Option<AwardNo>,
    pub(crate) then: Then,
}

pub(crate) enum Then {
    Nothing,
    Strike,
    Record(Offer),
    Answer(SessionState, RejectReason),
    Confirm(usize),
    Lose(usize, AwardLoss),
    Perform(usize, InformKind),
    AnswerCancel(usize, Option<InformKind>),
    Cancel,
    Choose(AgentId),
}

impl Negotiation {
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
        let is_full = party.said.len() >= limits.messages_per_party_max;
        let verdict = if is_full && self.outcome.is_none() {
            Verdict::of(Disposition::RateLimited)
        } else if is_stale(party.last_seq, seq) {
            Verdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            self.judge_after_the_end(from, &payload, moment)
        } else {
            self.judge(from, &payload, moment)
        };
        self.answer(from, &msg_id, payload.act(), &verdict, moment);
        let party = self.parties.get_mut(from).expect("a party");
        if verdict.disposition != Disposition::RateLimited {
            party.last_seq = party.last_seq.max(seq);
        }
        if !is_full {
            party.said.push(Said { msg_id, digest, disposition: verdict.disposition, reply: verdict.reply });
        }
        self.follow(from, verdict.then, moment, wins);
    }

    fn answer(&mut self, from: &AgentId, msg_id: &MsgId, act: Act, verdict: &Verdict, moment: Moment) {
        let numbered = [Disposition::Ok, Disposition::Late, Disposition::PolicyReject];
        let has_offer_id = act == Act::Offer && numbered.contains(&verdict.disposition);
        let receipt = Receipt {
            ack_of: msg_id.clone(),
            disposition: verdict.disposition,
            first: None,
            offer_id: has_offer_id.then_some(OfferId(moment.position)),
            invited: None,
            left_out: None,
            award_no: verdict.award_no,
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
        self.facts.extend(again);
    }

    /// After the end (docs/spec/contract-net.md#cn-63).
    fn judge_after_the_end(&self, from: &AgentId, payload: &Payload, moment: Moment) -> Verdict {
        if let Payload::Offer(offer) = payload
            && *from != self.initiator
        {
            return if moment.now > self.ends_by {
                Verdict::of(Disposition::Expired)
            } else if offer.round.is_some_and(|round| round < self.round) {
                Verdict::of(Disposition::StaleRound)
            } else {
                Verdict { reply: Some(self.late(from)), ..Verdict::of(Disposition::Late) }
            };
        }
        if let Payload::Confirm(confirm) = payload
            && self.was_revoked(confirm.award_no, from)
        {
            return self.judge_revoked(from, confirm.award_no);
        }
        let closed = self.outcome.map(|outcome| fact::closed(&self.id, from, outcome));
        Verdict { reply: closed, ..Verdict::of(Disposition::Closed) }
    }

    pub(crate) fn late(&self, to: &AgentId) -> String {
        fact::reject(&self.id, to, &Rejection { offer_id: None, reason: RejectReason::Late, code: None })
    }

    fn revoked(&self, to: &AgentId, award_no: AwardNo) -> String {
        fact::cancel(&self.id, to, award_no, "revoked")
    }

    pub(crate) fn was_revoked(&self, award_no: AwardNo, contractor: &AgentId) -> bool {
        self.past.contains(&(award_no, contractor.clone()))
    }

    pub(crate) fn judge_revoked(&self, from: &AgentId, award_no: AwardNo) -> Verdict {
        let reply = Some(self.revoked(from, award_no));
        Verdict { reply, award_no: Some(award_no), ..Verdict::of(Disposition::Revoked) }
    }

    fn follow(&mut self, from: &AgentId, then: Then, moment: Moment, wins: &mut Wins) {
        match then {
            Then::Nothing => {}
            Then::Strike => self.strike(from, moment, wins),
            Then::Record(offer) => self.record(from, offer, moment, wins),
            Then::Answer(state, reason) => self.answer_without_offer(from, state, reason, moment, wins),
            Then::Confirm(lot) => self.confirm(lot, moment),
            Then::Lose(lot, loss) => self.lose(lot, loss, moment, wins),
            Then::Perform(lot, kind) => self.perform(lot, word(kind), moment),
            Then::AnswerCancel(lot, informed) => self.answer_cancel(lot, informed, moment),
            Then::Cancel => self.cancel(moment),
            Then::Choose(contractor) => {
                self.reject_expired(moment.now);
                self.decide(Some(&contractor), Cause::Initiator, moment, wins);
            }
        }
    }
}

impl Verdict {
    pub(crate) fn of(disposition: Disposition) -> Self {
        Self { disposition, reply: None, award_no: None, then: Then::Nothing }
    }

    pub(crate) fn ok(then: Then) -> Self {
        Self { then, ..Self::of(Disposition::Ok) }
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
