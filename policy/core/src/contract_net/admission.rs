//! The ladder (spec section 1): every message that reaches an open negotiation is judged here, in one order, and gets
//! exactly one disposition. `judging.rs` finds the verdict and changes nothing; what follows from it is in the file of each
//! state.
//!
//! Steps 1, 2 and 4 are the gateway's; 5 is the book's; 6 for terminal negotiations is the tombstone's.

use schemas::delivery::{Cancellation, Disposition, Misunderstanding, Receipt, RejectReason, Rejection, Told};
use schemas::payload::{Failure, Inform};
use schemas::{AgentId, AwardNo, Digest, MsgId, OfferId, Payload, RegisterKey};

use crate::contract_net::state::SessionState;
use crate::effect::{AwardLoss, Deliver, Event};
use crate::negotiation::Negotiation;
use crate::session::{LiveAward, Offer, Party, Repeat, Reply, Seen};
use crate::step::Step;

/// A message on its way to a negotiation.
pub(crate) struct Incoming {
    pub(crate) from: AgentId,
    pub(crate) digest: Digest,
    pub(crate) msg_id: MsgId,
    pub(crate) seq: Option<u64>,
    pub(crate) payload: Payload,
}

/// Which party speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Initiator,
    Contractor(usize),
}

/// What follows from a message that was admitted.
#[derive(Debug)]
pub(super) enum Action {
    Nothing,
    Strike,
    Record(Box<Offer>),
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

/// How a contractor answers a CANCEL (row 17).
#[derive(Debug)]
pub(super) enum CancelAnswer {
    Informed(Inform),
    Failed(Failure),
}

/// What becomes of a message.
pub(super) struct Verdict {
    pub(super) disposition: Disposition,
    pub(super) reply: Reply,
    pub(super) action: Action,
    pub(super) score: Option<u32>,
}

impl Verdict {
    pub(super) fn ok(action: Action) -> Self {
        Self { disposition: Disposition::Ok, reply: Reply::None, action, score: None }
    }

    pub(super) fn refused(disposition: Disposition, reply: Reply) -> Self {
        Self { disposition, reply, action: Action::Nothing, score: None }
    }
}

impl Negotiation {
    /// Folds one message. False when its sender takes no part; nothing has changed then.
    pub(crate) fn handle_message(&mut self, incoming: Incoming, step: &mut Step<'_>) -> bool {
        let Some(speaker) = self.speaker(&incoming.from) else { return false };
        self.link(&incoming.digest.0, step);
        if let Speaker::Contractor(index) = speaker {
            self.sessions[index].heard = step.input;
        }
        let party = self.party(speaker);
        match party.repeat(&incoming.msg_id, incoming.digest, incoming.seq) {
            Repeat::Duplicate(first) => self.answer_again(speaker, first, Disposition::Duplicate, step),
            Repeat::Conflict(first) => self.answer_again(speaker, first, Disposition::Conflict, step),
            Repeat::Stale | Repeat::New if party.seen.len() >= step.limits.messages_per_party_max => {
                let verdict = Verdict::refused(Disposition::RateLimited, Reply::None);
                let seen = seen_of(&incoming, &verdict, step);
                self.answer(speaker, &seen, None, step);
            }
            Repeat::Stale => {
                self.settle_message(speaker, &incoming, Verdict::refused(Disposition::StaleSeq, Reply::None), step);
            }
            Repeat::New => {
                let verdict = self.judge(speaker, &incoming.payload, &incoming.msg_id, step);
                self.settle_message(speaker, &incoming, verdict, step);
            }
        }
        true
    }

    fn speaker(&self, agent: &AgentId) -> Option<Speaker> {
        if *agent == self.initiator.agent {
            Some(Speaker::Initiator)
        } else {
            self.session_of(agent).map(Speaker::Contractor)
        }
    }

    fn party(&self, speaker: Speaker) -> &Party {
        match speaker {
            Speaker::Initiator => &self.initiator,
            Speaker::Contractor(index) => &self.sessions[index].party,
        }
    }

    fn party_mut(&mut self, speaker: Speaker) -> &mut Party {
        match speaker {
            Speaker::Initiator => &mut self.initiator,
            Speaker::Contractor(index) => &mut self.sessions[index].party,
        }
    }

    /// Remembers the message, answers it, and does what follows.
    fn settle_message(&mut self, speaker: Speaker, incoming: &Incoming, verdict: Verdict, step: &mut Step<'_>) {
        // `committed` may leave only once the end entry stands in the register, so that write comes first.
        let commitment =
            if let Action::Confirm(lot) = verdict.action { self.register_commitment(lot, step) } else { None };
        let (award_no, after) = commitment.unzip();
        let seen = Seen { award_no: award_no.or(revoked_award(&verdict)), ..seen_of(incoming, &verdict, step) };
        self.party_mut(speaker).remember(seen.clone(), incoming.seq);
        let letter = self.receipt(&seen, seen.disposition, None);
        self.send_receipt(speaker, letter, after, step);
        self.reply(speaker, &seen, step);
        self.note(speaker, &seen, verdict.score, step);
        match (speaker, verdict.action) {
            (_, Action::Cancel) => self.cancel(step),
            (_, Action::Choose(chosen)) => self.choose(chosen, step),
            (Speaker::Contractor(index), action) => self.act_for(index, action, step),
            (Speaker::Initiator, _) => {}
        }
    }

    /// Answers a message that is not remembered.
    fn answer(&self, speaker: Speaker, seen: &Seen, first: Option<Disposition>, step: &mut Step<'_>) {
        let receipt = self.receipt(seen, seen.disposition, first);
        self.send_receipt(speaker, receipt, None, step);
        self.note(speaker, seen, None, step);
    }

    /// A duplicate: its disposition names the first one's, whose reply is repeated. A conflict: the first stands.
    fn answer_again(&mut self, speaker: Speaker, first: usize, disposition: Disposition, step: &mut Step<'_>) {
        let seen = self.party(speaker).seen[first].clone();
        let receipt = self.receipt(&seen, disposition, Some(seen.disposition));
        let after = match (seen.disposition, seen.award_no) {
            (Disposition::Committed, Some(award_no)) => {
                self.lot_of_award(award_no).map(|lot| self.end_key(lot, award_no))
            }
            _ => None,
        };
        self.send_receipt(speaker, receipt, after, step);
        if disposition == Disposition::Duplicate {
            self.reply(speaker, &seen, step);
        }
        self.note(speaker, &Seen { disposition, ..seen }, None, step);
    }

    fn send_receipt(&self, speaker: Speaker, receipt: Receipt, after: Option<RegisterKey>, step: &mut Step<'_>) {
        let in_reply_to = Some(receipt.ack_of.clone());
        let letter = self.letter(step, &self.party(speaker).agent, Told::Ack(receipt));
        step.post(Deliver { in_reply_to, after, ..letter });
    }

    fn reply(&self, speaker: Speaker, seen: &Seen, step: &mut Step<'_>) {
        let reject = |reason, code| Told::Reject(Rejection { offer_id: Some(OfferId(seen.position)), reason, code });
        let told = match seen.reply {
            // In a negotiation that goes on, `closed` concerns collection only: there is no outcome to tell.
            Reply::None | Reply::Closed => return,
            Reply::Late => reject(RejectReason::Late, None),
            Reply::Policy(fault) => reject(RejectReason::Policy, Some(fault.code(self.policy()))),
            Reply::NotUnderstood(misread, expected) => Told::NotUnderstood(Misunderstanding {
                reason: misread.as_str().to_owned(),
                expected: expected.to_vec(),
            }),
            Reply::Revoked(award_no) => Told::Cancel(Cancellation { award_no, reason: "revoked".to_owned() }),
        };
        let letter = self.letter(step, &self.party(speaker).agent, told);
        step.post(Deliver { in_reply_to: Some(seen.msg_id.clone()), ..letter });
    }

    fn note(&self, speaker: Speaker, seen: &Seen, score: Option<u32>, step: &mut Step<'_>) {
        step.event(Event::Disposed {
            negotiation: self.id.clone(),
            from: self.party(speaker).agent.clone(),
            act: seen.act,
            disposition: seen.disposition,
            score,
            at: step.now,
        });
    }

    fn act_for(&mut self, index: usize, action: Action, step: &mut Step<'_>) {
        match action {
            // The last two are the initiator's, and done by then.
            Action::Nothing | Action::Cancel | Action::Choose(_) => {}
            Action::Strike => self.strike(index, step),
            Action::Record(offer) => self.record_offer(index, offer, step),
            Action::GateFailed => self.drop_offer(index, step),
            Action::Decline(state) => self.decline(index, state, step),
            Action::Withdraw => self.withdraw(index, step),
            Action::Confirm(lot) => self.commit(lot, step),
            Action::LoseAward(lot, loss, failure) => self.lose_award(lot, loss, failure, step),
            Action::Perform(lot, inform) => self.perform(lot, inform, step),
            Action::AnswerCancel(lot, answer) => self.answer_cancel(lot, answer, step),
        }
    }

    fn lot_of_award(&self, award_no: AwardNo) -> Option<usize> {
        let is_it = |award: &LiveAward| award.award_no == award_no;
        let live = self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(is_it));
        live.or_else(|| self.past_awards.iter().find(|past| past.award_no == award_no).map(|past| past.lot))
    }
}

fn seen_of(incoming: &Incoming, verdict: &Verdict, step: &Step<'_>) -> Seen {
    Seen {
        msg_id: incoming.msg_id.clone(),
        digest: incoming.digest.short(),
        act: incoming.payload.act(),
        disposition: verdict.disposition,
        reply: verdict.reply,
        award_no: None,
        position: step.position,
        at: step.now,
    }
}

fn revoked_award(verdict: &Verdict) -> Option<AwardNo> {
    match verdict.reply {
        Reply::Revoked(award_no) => Some(award_no),
        Reply::None | Reply::Late | Reply::Policy(_) | Reply::NotUnderstood(..) | Reply::Closed => None,
    }
}

/// A failure in the exchange's own words, for what a contractor did not call a failure itself.
pub(super) fn said(code: &str) -> Failure {
    Failure { phase: schemas::payload::FailurePhase::Perform, code: code.to_owned(), retryable: false, penalty: None }
}
