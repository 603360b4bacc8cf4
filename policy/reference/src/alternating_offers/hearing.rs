//! One message of a party, as far as every protocol judges alike (docs/spec/messages.md#ms-32 to #ms-36), and what follows
//! from it: turns, acceptances in a party's name, agreement, the end.

use policy_core::Limits;
use schemas::bargain::{MESSAGES_SPARE, ROUNDS_MAX};
use schemas::delivery::{Disposition, Outcome, Receipt};
use schemas::record::{Message, Pinned};
use schemas::{Act, AgentId, AwardNo, Digest, Lot, OfferId, Payload, RegisterKey, WireTime};

use super::judging::{BargainAction, BargainVerdict};
use super::{Bargain, Made, mandate};
use crate::contract_net::Said;
use crate::contract_net::messages::is_stale;
use crate::{Moment, fact};

impl Bargain {
    /// One message of a party.
    pub(crate) fn handle_message(
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
            BargainVerdict::of(Disposition::RateLimited)
        } else if is_stale(party.last_seq, seq) {
            BargainVerdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            let reply = party.reply_after_end((&msg_id, Disposition::Closed), is_full, self.closed(seat));
            BargainVerdict { reply: Some(reply), ..BargainVerdict::of(Disposition::Closed) }
        } else {
            self.judge(seat, &payload, pinned, moment)
        };
        let has_offer_id = payload.act() == Act::Offer && verdict.disposition == Disposition::Ok;
        let receipt = Receipt {
            offer_id: has_offer_id.then_some(OfferId(moment.position)),
            award_no: matches!(verdict.then, BargainAction::Confirm).then_some(AwardNo(1)),
            ..Receipt::new(msg_id.clone(), verdict.disposition)
        };
        self.facts.push(fact::ack(&self.id, from, &receipt));
        self.facts.extend(verdict.reply.clone());
        let said = Said { msg_id, digest, disposition: verdict.disposition, reply: verdict.reply };
        self.seats[seat].party.note(said, seq, is_full);
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

impl Bargain {
    fn follow(&mut self, seat: usize, then: BargainAction, moment: Moment) {
        match then {
            BargainAction::Nothing => {}
            BargainAction::Strike => {
                self.seats[seat].strikes += 1;
                if self.seats[seat].strikes >= self.rules.max_strikes {
                    let who = self.seats[seat].agent.to_string();
                    self.end(Outcome::Ended, Some(who), moment);
                }
            }
            BargainAction::Join(join, rule) => {
                let joined = &mut self.seats[seat];
                (joined.has_joined, joined.mandate, joined.rule) = (true, join.mandate.map(|mandate| *mandate), rule);
                if self.seats.iter().all(|seat| seat.has_joined) {
                    self.begin(moment);
                    self.tell_turn(Some(seat), moment);
                }
            }
            BargainAction::Offer(made) => {
                self.offer(made, moment);
                self.go_on(seat, moment);
            }
            BargainAction::Accept => {
                self.accept(seat, moment);
                self.go_on(seat, moment);
            }
            BargainAction::Withdraw => {
                self.standing = None;
                self.tell_turn(Some(seat), moment);
            }
            BargainAction::Confirm => {
                self.seats[seat].has_confirmed = true;
                if self.seats.iter().all(|seat| seat.has_confirmed) {
                    self.agree(moment);
                }
            }
            BargainAction::End(outcome, detail) => self.end(outcome, detail, moment),
        }
    }

    /// The first turn begins (docs/spec/alternating-offers.md#ao-12).
    fn begin(&mut self, moment: Moment) {
        self.begun_at = Some(moment.now);
        self.ends_by = self.end_after(moment.now);
        self.act_by = moment.clock.plus_ms(self.rules.step_ms);
    }

    fn offer(&mut self, made: Made, moment: Moment) {
        self.offers.push(made);
        (self.standing, self.expired) = (Some(self.offers.len() - 1), None);
        self.take_step(moment);
    }

    fn accept(&mut self, seat: usize, moment: Moment) {
        let standing = self.standing.expect("only what stands is accepted");
        self.offers[standing].accepted_by.push(seat);
        self.take_step(moment);
    }

    fn take_step(&mut self, moment: Moment) {
        self.step += 1;
        self.act_by = moment.clock.plus_ms(self.rules.step_ms);
    }

    /// After a step: policies accept as long as they do, then all are told, or it is over.
    fn go_on(&mut self, by: usize, moment: Moment) {
        loop {
            if self.is_agreed() {
                return self.ask_or_agree(moment);
            }
            if self.rules.rounds.is_some_and(|rounds| self.round() > rounds) {
                return self.no_agreement("rounds", moment);
            }
            if !mandate::accepts(self, self.turn(), moment.now) {
                return self.tell_turn(Some(by), moment);
            }
            self.accept(self.turn(), moment);
        }
    }

    /// Whether all but its proposer have accepted what stands.
    fn is_agreed(&self) -> bool {
        self.stands().is_some_and(|made| made.accepted_by.len() + 1 == self.seats.len())
    }

    /// Everybody has accepted (docs/spec/alternating-offers.md#ao-36).
    fn ask_or_agree(&mut self, moment: Moment) {
        let Some(confirm_ms) = self.rules.confirm_ms else { return self.agree(moment) };
        let confirm_by = moment.clock.plus_ms(confirm_ms);
        self.confirm_by = Some(confirm_by);
        let offer = self.stands().expect("it is agreed on").id;
        for seat in &self.seats {
            let accept = fact::accept(&self.id, &seat.agent, offer, Lot(0), AwardNo(1), None, WireTime(confirm_by));
            self.facts.push(accept);
        }
    }

    fn agree(&mut self, moment: Moment) {
        let agreement = self.agreement();
        let key = RegisterKey::Award(self.id.clone(), Lot(0), AwardNo(1)).to_string();
        self.facts.push(fact::agreed(&key, agreement.offer_id, agreement.terms_digest));
        self.end(Outcome::Agreement, None, moment);
    }

    pub(super) fn no_agreement(&mut self, detail: &str, moment: Moment) {
        self.end(Outcome::NoAgreement, Some(detail.to_owned()), moment);
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.end(Outcome::Aborted, None, moment);
    }

    /// Everybody is told the same.
    fn end(&mut self, outcome: Outcome, detail: Option<String>, moment: Moment) {
        (self.outcome, self.detail) = (Some(outcome), detail);
        let closed: Vec<String> = (0..self.seats.len()).map(|seat| self.closed(seat)).collect();
        self.facts.extend(closed);
        let rounds = match self.begun_at {
            None => 0,
            // The last acceptance began no other.
            Some(_) if self.is_agreed() => self.agreement().round,
            Some(_) => self.rules.rounds.map_or(self.round(), |rounds| rounds.min(self.round())),
        };
        let offers = crate::contract_net::count(self.offers.len());
        let awards = u32::from(outcome == Outcome::Agreement);
        let counts = [rounds, offers, awards];
        self.facts.extend(fact::end(&self.id, outcome, self.is_public, counts, moment.now));
    }

    /// How it ended, as everybody is told; nobody is told of words.
    fn closed(&self, seat: usize) -> String {
        let outcome = self.outcome.expect("it has ended");
        let agreement = (outcome == Outcome::Agreement).then(|| self.agreement());
        let (to, detail) = (&self.seats[seat].agent, self.detail.as_deref());
        fact::bargain_closed(&self.id, to, outcome, detail, agreement.as_ref())
    }

    /// How it stands, to everybody but the one who did it.
    pub(super) fn tell_turn(&mut self, but: Option<usize>, moment: Moment) {
        let turn = self.turn_notice(moment);
        for (index, seat) in self.seats.iter().enumerate() {
            if Some(index) != but {
                self.facts.push(fact::whole(&self.id, &seat.agent, &turn));
            }
        }
    }
}
