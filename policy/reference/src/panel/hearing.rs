//! One message of somebody who takes part (docs/spec/panel.md#what-is-legal).

use policy_core::Limits;
use policy_core::panel::key::key;
use schemas::delivery::{Disposition, Outcome, Receipt};
use schemas::panel::PanelAnswer;
use schemas::record::Message;
use schemas::{AgentId, Digest, Payload};

use super::reviewing::is_one_each;
use super::{Panel, PanelVerdict, Reply, Then};
use crate::contract_net::Said;
use crate::contract_net::messages::is_stale;
use crate::{Moment, fact};

impl Panel {
    /// One message of somebody who takes part.
    pub(crate) fn hear(&mut self, from: &AgentId, digest: Digest, message: Message, moment: Moment, limits: &Limits) {
        let (msg_id, seq, payload) = (message.envelope.msg_id, message.envelope.seq, message.payload);
        let party = &self.people[from].party;
        if let Some(earlier) = party.said.iter().find(|said| said.msg_id == msg_id) {
            let earlier = earlier.clone();
            let is_same = earlier.digest == digest;
            let again = if is_same { Disposition::Duplicate } else { Disposition::Conflict };
            self.facts.push(fact::ack_again(&self.id, from, &earlier.msg_id, again, earlier.disposition));
            if is_same && (self.outcome.is_none() || earlier.disposition == Disposition::Closed) {
                self.facts.extend(earlier.reply);
            }
            return;
        }
        let is_stale = is_stale(party.last_seq, seq);
        let cancels = *from == self.initiator && matches!(&payload, Payload::Cancel(said) if said.round.is_none());
        let ends_it = self.outcome.is_none() && !is_stale && cancels;
        let is_full = party.said.len() >= limits.messages_per_party_max && !ends_it;
        let verdict = if is_full && self.outcome.is_none() {
            PanelVerdict::of(Disposition::RateLimited)
        } else if is_stale {
            PanelVerdict::of(Disposition::StaleSeq)
        } else if self.outcome.is_some() {
            let reply = party.reply_after_end((&msg_id, Disposition::Closed), is_full, self.closed(from));
            PanelVerdict { reply: Some(reply), ..PanelVerdict::of(Disposition::Closed) }
        } else {
            self.judge(from, &payload, moment)
        };
        let PanelVerdict { disposition, reply, then, .. } = verdict;
        self.facts.push(fact::ack(&self.id, from, &Receipt::new(msg_id.clone(), disposition)));
        self.facts.extend(reply.clone());
        let party = &mut self.people.get_mut(from).expect("it takes part").party;
        party.note(Said { msg_id, digest, disposition, reply }, seq, is_full);
        self.follow(from, then, moment);
    }

    fn judge(&self, from: &AgentId, payload: &Payload, moment: Moment) -> PanelVerdict {
        let round = if let Payload::Answer(said) = payload { Some(said.round) } else { payload.round() };
        if round.is_some_and(|round| round < self.number()) {
            return PanelVerdict::of(Disposition::StaleRound);
        }
        if round.is_some_and(|round| round > self.number()) {
            return PanelVerdict { then: Then::Nothing, ..self.strike(from, "bad_round") };
        }
        let is_seat = self.seats.contains(from);
        if self.is_dropped(from) && !matches!(payload, Payload::Cancel(_)) {
            return self.strike(from, "not_asked");
        }
        let is_reviewer = self.reviewers().contains(from);
        match (payload, *from == self.initiator) {
            (Payload::Answer(said), _) if is_seat => self.judge_answer(from, said, moment),
            (Payload::Answer(said), _) if is_reviewer => self.judge_review(from, said, moment),
            (Payload::Answer(said), _) => self.judge_order(from, said, moment),
            (Payload::Refuse(_) | Payload::NotUnderstood(_), _)
                if (is_seat || self.ranker() == Some(from) || is_reviewer) && !self.people[from].has_left =>
            {
                PanelVerdict::ok(Then::Leave)
            }
            (Payload::Cancel(_), true) => PanelVerdict::ok(Then::Cancel),
            (Payload::Cancel(_), false) => PanelVerdict { then: Then::Nothing, ..self.strike(from, "out_of_turn") },
            (_, _) => self.strike(from, "out_of_turn"),
        }
    }

    pub(super) fn strike(&self, from: &AgentId, reason: &str) -> PanelVerdict {
        let told = fact::not_understood(&self.id, from, reason, None);
        PanelVerdict { reply: Some(told), then: Then::Strike, ..PanelVerdict::of(Disposition::OutOfTurn) }
    }

    pub(super) fn malformed(&self, from: &AgentId, reason: &str, pointer: &str) -> PanelVerdict {
        let told = fact::not_understood(&self.id, from, reason, Some(pointer));
        PanelVerdict { reply: Some(told), ..PanelVerdict::of(Disposition::Malformed) }
    }

    fn judge_answer(&self, seat: &AgentId, said: &PanelAnswer, moment: Moment) -> PanelVerdict {
        let Some(answer) = &said.answer else { return self.strike(seat, "out_of_turn") };
        let round = self.round();
        let wave = round.waves.iter().find(|wave| wave.asked.contains(seat));
        let Some(wave) = wave.filter(|_| !self.people[seat].has_left) else { return self.strike(seat, "not_asked") };
        if round.replies.contains_key(seat) {
            return self.strike(seat, "out_of_turn");
        }
        if round.closed_at.is_some() || moment.now > wave.answer_by {
            return PanelVerdict::of(Disposition::Late);
        }
        if let Some(member) = said.oversized() {
            return self.malformed(seat, "bad_answer", &format!("/payload{member}"));
        }
        let answer = match answer.as_ref().map(|text| key(&self.rules.answer, text).map(|key| (text.clone(), key))) {
            None => None,
            Some(Ok(opinion)) => Some(opinion),
            Some(Err(_)) => return self.malformed(seat, "bad_answer", "/payload/answer"),
        };
        let (_, shown) = self.rated_by(seat);
        let may_rate = self.rules.rate && self.number() > 1;
        if said.ratings.as_ref().is_some_and(|ratings| !may_rate || !is_one_each(ratings, &shown)) {
            return self.malformed(seat, "bad_ratings", "/payload/ratings");
        }
        let reply = Reply { answer, text: said.text.clone(), shown, ratings: said.ratings.clone() };
        PanelVerdict::ok(Then::Reply(Box::new(reply), said.usage))
    }

    fn judge_order(&self, from: &AgentId, said: &PanelAnswer, moment: Moment) -> PanelVerdict {
        let is_ranker = self.ranker() == Some(from) && !self.people[from].has_left;
        let Some(order) = said.order.as_ref().filter(|_| is_ranker) else { return self.strike(from, "out_of_turn") };
        let Some(ranking) = &self.ranking else { return self.strike(from, "not_asked") };
        if moment.now > ranking.rank_by {
            return PanelVerdict::of(Disposition::Late);
        }
        if order.is_empty() {
            return self.malformed(from, "bad_order", "/payload/order");
        }
        let keep = self.rules.select.as_ref().map_or(0, |select| select.keep as usize);
        let mut chosen = Vec::new();
        for (index, place) in order.iter().enumerate() {
            let candidate = (*place as usize).checked_sub(1).and_then(|place| ranking.candidates.get(place));
            match candidate.filter(|candidate| index < keep && !chosen.contains(*candidate)) {
                Some(candidate) => chosen.push(candidate.clone()),
                None => return self.malformed(from, "bad_order", &format!("/payload/order/{index}")),
            }
        }
        PanelVerdict::ok(Then::Order(chosen, said.usage))
    }

    fn follow(&mut self, from: &AgentId, then: Then, moment: Moment) {
        match then {
            Then::Nothing => {}
            Then::Strike => {
                let one = self.people.get_mut(from).expect("it takes part");
                one.strikes += 1;
                if one.strikes >= self.rules.max_strikes && !one.has_left {
                    if self.round().closed_at.is_none() {
                        self.round_mut().replies.remove(from);
                    }
                    if let Some(review) = self.running_review() {
                        review.replies.remove(from);
                    }
                    self.leave(from, moment);
                }
            }
            Then::Reply(reply, usage) => {
                self.note_answered(from, usage);
                self.round_mut().replies.insert(from.clone(), *reply);
                self.wait_no_more_for(from, moment);
            }
            Then::Order(chosen, usage) => {
                self.note_answered(from, usage);
                self.select(Some(chosen), moment);
            }
            Then::Review(said, usage) => self.note_review(from, *said, usage, moment),
            Then::Leave => self.leave(from, moment),
            Then::Cancel => self.end(Outcome::Cancelled, None, 0, moment),
        }
    }

    fn leave(&mut self, agent: &AgentId, moment: Moment) {
        self.people.get_mut(agent).expect("it takes part").has_left = true;
        self.wait_no_more_for(agent, moment);
    }
}
