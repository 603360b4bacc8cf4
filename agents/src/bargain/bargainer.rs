//! An agent that bargains on the exchange: called by others, and calling them.
//!
//! | it hears | it does |
//! |---|---|
//! | CFP with a bargain | JOIN, with its mandate if it has one; or REFUSE, as its [`Planner`] decides |
//! | any other CFP | REFUSE |
//! | TURN, and it is its turn | what its strategy decides: OFFER, ACCEPT, END |
//! | TURN of an earlier step, or of one it has acted in | notes the offer it tells of, no more |
//! | NOT_UNDERSTOOD of its JOIN | REFUSE, so that nobody waits for it |
//! | NOT_UNDERSTOOD of its move | another move: see [`Fallback`](super::Fallback) |
//! | ACCEPT: the agreement, to be confirmed | CONFIRM if it may agree to the terms, otherwise REFUSE |
//! | CLOSED | reports the [`BargainOutcome`] and forgets the bargain |
//!
//! A move that nobody answers is sent again with the same bytes, as long as its turn may last; so it is made once at most.
//! What happens is told as [`BargainEvent`]s. At most [`Bargainer::BARGAINS_MAX`] bargains are open at a time, each forgotten
//! at the latest when it must have ended; with no room left the agent refuses.

mod book;
mod opening;
mod report;
mod seat;

use schemas::bargain::Join;
use schemas::delivery::{Award, Call, Closing, Delivery, Disposition, Misunderstanding, Notification, Receipt, Turn};
use schemas::payload::Reasoned;
use schemas::{Act, AgentId, Code, NegotiationId, Payload, Timestamp};
use tokio::sync::mpsc;

pub use opening::BargainRequest;
pub use report::{BargainEvent, BargainOutcome, BargainReport};

use super::plan::Planner;
use crate::strategy::{Action, Outgoing, SendOutcome, Sent, Strategy};
use book::Book;
use report::Reporter;
use seat::{Seat, TurnRules};

/// How long a message waits that the agent itself had no room for, in milliseconds.
const OVERLOADED_PAUSE_MS: u64 = 1000;

/// See the module.
pub struct Bargainer {
    agent: AgentId,
    planner: Box<dyn Planner>,
    book: Book,
    reporter: Reporter,
}

impl Bargainer {
    /// Most bargains open at a time, some kilobytes each beside what their strategies hold.
    pub const BARGAINS_MAX: usize = 65_536;

    /// An agent that takes part as its planner decides. What happens goes to `events`, which must be read: when it is full,
    /// events are dropped and counted ([`Self::dropped_events`]).
    #[must_use]
    pub fn new(agent: AgentId, planner: impl Planner + 'static, events: mpsc::Sender<BargainEvent>) -> Self {
        let book = Book::new(Self::BARGAINS_MAX);
        Self { agent, planner: Box::new(planner), book, reporter: Reporter::new(events) }
    }

    /// Number of bargains that have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.book.len()
    }

    /// Number of events dropped because their receiver was full or gone.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.reporter.dropped()
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        match self.join(now, &delivery.envelope.negotiation, call) {
            Ok(join) => {
                let message = Outgoing::reply(delivery, Payload::Join(join)).once(0);
                self.say(message, call.reply_by.0)
            }
            Err(reason) => {
                let report = BargainReport::Declined { reason: reason.clone() };
                self.reporter.tell(&delivery.envelope.negotiation, now, report);
                let refusal = Payload::Refuse(Reasoned { reason: Some(reason), round: None });
                vec![Outgoing::reply(delivery, refusal).once(0).into()]
            }
        }
    }

    /// Takes a seat, or says why not.
    fn join(&mut self, now: Timestamp, negotiation: &NegotiationId, call: &Call) -> Result<Join, String> {
        let Some(bargain) = &call.bargain else { return Err("takes part in bargains only".to_owned()) };
        let party = bargain.parties.iter().position(|party| *party == self.agent);
        let party = party.ok_or("is no party of this bargain")?;
        if !self.book.has_room() {
            return Err("busy".to_owned());
        }
        let rules = TurnRules::try_new(&bargain.rules).map_err(|fault| format!("cannot list the outcomes: {fault}"))?;
        let plan = self.planner.plan(negotiation, bargain, party)?;
        if plan.preferences.utilities().len() != rules.space.len() {
            return Err("has no utility for this outcome space".to_owned());
        }
        let join = Join { mandate: plan.mandate.clone() };
        let seat = Seat::new(self.agent.clone(), party, Some(bargain.parties.len()), rules, plan);
        self.book.insert(negotiation, seat, call.ends_by.0);
        self.reporter.tell(negotiation, now, BargainReport::Joined { party, parties: bargain.parties.len() });
        Ok(join)
    }

    fn handle_turn(&mut self, now: Timestamp, delivery: &Delivery, turn: &Turn) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(seat) = self.book.seat(negotiation) else { return Vec::new() };
        let message = seat.handle_turn(now, turn).map(|said| said.reply_to(delivery));
        self.make(message)
    }

    fn handle_misunderstanding(&mut self, now: Timestamp, delivery: &Delivery, why: &Misunderstanding) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        self.reporter.tell(negotiation, now, BargainReport::Misunderstood(why.clone()));
        self.handle_refused_move(now, negotiation, &why.reason)
    }

    fn handle_refused_move(&mut self, now: Timestamp, negotiation: &NegotiationId, reason: &str) -> Vec<Action> {
        let Some(seat) = self.book.seat(negotiation) else { return Vec::new() };
        if seat.has_only_joined() {
            return vec![refuse_to_join(negotiation).into()];
        }
        let message = seat.handle_refusal(now, reason).map(|said| said.message(negotiation));
        self.make(message)
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(seat) = self.book.seat(negotiation) else { return Vec::new() };
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if !seat.is_open() {
            if disposition != Disposition::Ok {
                return self.close(negotiation, now, BargainReport::TurnedDown(disposition));
            }
            // Only the receipt of a call counts invitations.
            let Some(invited) = receipt.invited else { return Vec::new() };
            let message = seat.handle_opened(now, invited).map(|said| said.message(negotiation));
            let report = BargainReport::Opened { invited, left_out: receipt.left_out.unwrap_or(0) };
            self.reporter.tell(negotiation, now, report);
            return self.make(message);
        }
        if disposition == Disposition::Ok {
            seat.handle_applied(receipt.offer_id);
        }
        Vec::new()
    }

    fn handle_award(&mut self, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        // Without a seat nothing was agreed to.
        let payload = match self.book.seat(negotiation) {
            Some(seat) => seat.answer_to(award),
            None => Payload::Refuse(Reasoned { reason: Some("knows of no such bargain".to_owned()), round: None }),
        };
        // Apart from the call, which REFUSE has answered as number 0.
        self.say(Outgoing::reply(delivery, payload).once(u32::MAX), award.confirm_by.0)
    }

    fn handle_closing(&mut self, now: Timestamp, delivery: &Delivery, closing: &Closing) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(seat) = self.book.seat(negotiation) else { return vec![Action::Release(negotiation.clone())] };
        let outcome = Box::new(seat.outcome(closing));
        self.close(negotiation, now, BargainReport::Ended(outcome))
    }

    /// Tells the last report of a bargain and forgets it.
    fn close(&mut self, negotiation: &NegotiationId, now: Timestamp, report: BargainReport) -> Vec<Action> {
        self.book.remove(negotiation);
        self.reporter.tell(negotiation, now, report);
        vec![Action::Release(negotiation.clone())]
    }

    /// Makes a move, if there is one.
    fn make(&mut self, message: Option<Outgoing>) -> Vec<Action> {
        let Some(message) = message else { return Vec::new() };
        let act_by = self.book.seat(&message.negotiation).map_or(Timestamp::MAX, |seat| seat.act_by());
        self.say(message, act_by)
    }

    /// Sends a message and remembers it, to send it again should nobody answer until it makes no sense any more.
    fn say(&mut self, message: Outgoing, until: Timestamp) -> Vec<Action> {
        if let Some(seat) = self.book.seat(&message.negotiation) {
            seat.handle_said(&message, until);
        }
        vec![message.into()]
    }

    fn expire(&mut self, now: Timestamp) -> Vec<Action> {
        let expired = self.book.expire(now);
        for negotiation in &expired {
            self.reporter.tell(negotiation, now, BargainReport::Lost);
        }
        expired.into_iter().map(Action::Release).collect()
    }
}

impl Strategy for Bargainer {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let mut actions = self.expire(now);
        actions.extend(match &delivery.payload {
            Notification::Cfp(call) => self.handle_call(now, delivery, call),
            Notification::Turn(turn) => self.handle_turn(now, delivery, turn),
            Notification::NotUnderstood(why) => self.handle_misunderstanding(now, delivery, why),
            Notification::Ack(receipt) => self.handle_receipt(now, delivery, receipt),
            Notification::Accept(award) => self.handle_award(delivery, award),
            Notification::Closed(closing) => self.handle_closing(now, delivery, closing),
            // Of the contract net only.
            Notification::Reject(_) | Notification::Cancel(_) | Notification::Inform(_) | Notification::Failure(_) => {
                Vec::new()
            }
        });
        actions
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let negotiation = &sent.negotiation;
        let Some(seat) = self.book.seat(negotiation) else { return Vec::new() };
        match &sent.outcome {
            SendOutcome::Accepted { .. } => Vec::new(),
            SendOutcome::Unanswered if sent.act == Act::Cfp => self.close(negotiation, now, BargainReport::Unanswered),
            SendOutcome::Unanswered => seat.say_again(now, sent.act).map(Action::from).into_iter().collect(),
            SendOutcome::Refused(refusal) if sent.act == Act::Cfp => {
                self.close(negotiation, now, BargainReport::Refused(refusal.clone()))
            }
            SendOutcome::Refused(refusal) if refusal.code == Code::Overloaded => {
                let again = seat.say_again(now, sent.act);
                again.map(|message| message.after_ms(OVERLOADED_PAUSE_MS).into()).into_iter().collect()
            }
            SendOutcome::Refused(refusal) if sent.act == Act::Join => {
                let mut actions = self.close(negotiation, now, BargainReport::Refused(refusal.clone()));
                actions.push(refuse_to_join(negotiation).into());
                actions
            }
            SendOutcome::Refused(refusal) => self.handle_refused_move(now, negotiation, refusal.code.as_str()),
        }
    }
}

/// Tells the others that they need not wait for an agent whose JOIN was refused.
fn refuse_to_join(negotiation: &NegotiationId) -> Outgoing {
    let reason = Some("cannot join".to_owned());
    Outgoing::new(negotiation.clone(), Payload::Refuse(Reasoned { reason, round: None })).once(0)
}

#[cfg(test)]
mod tests;
