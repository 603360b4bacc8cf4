//! One message of a party, as far as every protocol judges alike (docs/spec/messages.md#ms-32 to #ms-36).

use schemas::bargain::{MESSAGES_SPARE, ROUNDS_MAX};
use schemas::delivery::{Disposition, Receipt};
use schemas::record::{Message, Pinned};
use schemas::{Act, AgentId, AwardNo, Digest, OfferId, Payload};

use super::Bargain;
use super::judging::{Then, Verdict};
use crate::hearing::is_stale;
use crate::negotiation::Said;
use crate::{Moment, fact};
use policy_core::Limits;

impl Bargain {
    /// One message of a party.
    pub(crate) fn hear(
        &mut self,
        from: &AgentId,
        digest: Digest,
        message: Message,
        pinned: Option<&Pinned>,
        moment: Moment,
        limits: &Limits,
    ) {
        let seat = self.seats.iter().position(|seat| seat.agent == *from).expect("a party");
        let (msg_id, seq, payload) = (message.envelope.msg_id, message.envelope.seq, message.payload);
        let party = &self.seats[seat].party;
        if let Some(earlier) = party.said.iter().find(|said| said.msg_id == msg_id) {
            return self.answer_again(seat, &earlier.clone(), digest);
        }
        // No message can follow one that ends it.
        let ends_it = self.outcome.is_none()
            && !is_stale(party.last_seq, seq)
            && (matches!(&payload, Payload::End(said) if said.round.is_none())
                || matches!(&payload, Payload::Cancel(said) if seat == 0 && said.round.is_none()));
        let is_full = party.said.len() >= self.messages_max(limits) && !ends_it;
        let verdict = if is_full && self.outcome.is_none() {
            Verdict::of(Disposition::RateLimited)
        } else if is_stale(party.last_seq, seq) {
            Verdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            Verdict { reply: Some(self.closed(seat)), ..Verdict::of(Disposition::Closed) }
        } else {
            self.judge(seat, &payload, pinned, moment)
        };
        let has_offer_id = payload.act() == Act::Offer && verdict.disposition == Disposition::Ok;
        let receipt = Receipt {
            ack_of: msg_id.clone(),
            disposition: verdict.disposition,
            first: None,
            offer_id: has_offer_id.then_some(OfferId(moment.position)),
            invited: None,
            left_out: None,
            award_no: matches!(verdict.then, Then::Confirm).then_some(AwardNo(1)),
        };
        self.facts.push(fact::ack(&self.id, from, &receipt));
        self.facts.extend(verdict.reply.clone());
        let party = &mut self.seats[seat].party;
        if verdict.disposition != Disposition::RateLimited {
            party.last_seq = party.last_seq.max(seq);
        }
        if !is_full {
            party.said.push(Said { msg_id, digest, disposition: verdict.disposition, reply: verdict.reply });
        }
        self.follow(seat, verdict.then, moment);
    }

    /// A long bargain has many messages; what is said after its end is remembered like that of any other.
    fn messages_max(&self, limits: &Limits) -> usize {
        if self.outcome.is_some() {
            return limits.messages_per_party_max;
        }
        let rounds = self.rules.rounds.unwrap_or(ROUNDS_MAX);
        usize::try_from(rounds).expect("at most a thousand") + MESSAGES_SPARE
    }

    /// Repeats (docs/spec/messages.md#ms-33). After the end only CLOSED is told again.
    fn answer_again(&mut self, seat: usize, earlier: &Said, digest: Digest) {
        let is_same = earlier.digest == digest;
        let disposition = if is_same { Disposition::Duplicate } else { Disposition::Conflict };
        let to = &self.seats[seat].agent;
        self.facts.push(fact::ack_again(&self.id, to, &earlier.msg_id, disposition, earlier.disposition));
        if is_same && (self.outcome.is_none() || earlier.disposition == Disposition::Closed) {
            self.facts.extend(earlier.reply.clone());
        }
    }
}
