//! An agent that bargains on the exchange: called by others, and calling them.
//!
//! | it hears | it does |
//! |---|---|
//! | CFP with a bargain | JOIN, with its mandate if it has one; or REFUSE, as its [`Planner`] decides |
//! | any other CFP, ASK of a panel | REFUSE |
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

mod party;
mod report;

use std::time::Duration;

use schemas::bargain::{BargainSpec, Join};
use schemas::delivery::{Award, Call, Closing, Delivery, Disposition, Misunderstanding, Notification, Receipt, Turn};
use schemas::envelope::{ConsentMode, Scope};
use schemas::payload::{Cfp, Reasoned};
use schemas::{Act, Address, AgentId, Code, NegotiationId, Payload, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::party::{BargainParty, TurnRules};
use super::plan::{BargainPlan, Planner};
use crate::agent::AgentHandle;
use crate::initiator::{CallError, CallRequest};
use crate::open::OpenNegotiations;
use crate::strategy::{Action, CallAddress, Outgoing, SendOutcome, Sent, Strategy};
use report::Reporter;

pub use report::{BargainEvent, BargainOutcome, BargainReport};

/// How long a message waits that the agent itself had no room for, in milliseconds.
const OVERLOADED_PAUSE_MS: u64 = 1000;

/// See the module.
pub struct Bargainer {
    agent: AgentId,
    planner: Box<dyn Planner>,
    bargains: OpenNegotiations<BargainParty>,
    reporter: Reporter,
}

impl Bargainer {
    /// Most bargains open at a time, some kilobytes each beside what their strategies hold.
    pub const BARGAINS_MAX: usize = 65_536;

    /// An agent that takes part as its planner decides. What happens goes to `events`, which must be read: when it is full,
    /// events are dropped and counted ([`Self::dropped_events`]).
    #[must_use]
    pub fn new(agent: AgentId, planner: impl Planner + 'static, events: mpsc::Sender<BargainEvent>) -> Self {
        let bargains = OpenNegotiations::new(Self::BARGAINS_MAX);
        Self { agent, planner: Box::new(planner), bargains, reporter: Reporter { events, dropped: 0 } }
    }

    /// Number of bargains that have not ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.bargains.len()
    }

    /// Number of events dropped because their receiver was full or gone.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.reporter.dropped
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        match self.join(now, &delivery.envelope.negotiation, call) {
            Ok(join) => {
                let message = Outgoing::reply(delivery, Payload::Join(join)).once(0);
                self.say(message, call.reply_by.0)
            }
            Err(reason) => {
                let action = Action::refuse(delivery, &reason);
                let report = BargainReport::Declined { reason };
                self.reporter.tell(&delivery.envelope.negotiation, now, report);
                vec![action]
            }
        }
    }

    /// Joins, or says why not.
    fn join(&mut self, now: Timestamp, negotiation: &NegotiationId, call: &Call) -> Result<Join, String> {
        let Some(bargain) = &call.bargain else { return Err("takes part in bargains only".to_owned()) };
        let party = bargain.parties.iter().position(|party| *party == self.agent);
        let party = party.ok_or("is no party of this bargain")?;
        if !self.bargains.has_room() {
            return Err("busy".to_owned());
        }
        let rules = TurnRules::try_new(&bargain.rules).map_err(|fault| format!("cannot list the outcomes: {fault}"))?;
        let plan = self.planner.plan(negotiation, bargain, party)?;
        if plan.preferences.utilities().len() != rules.space.len() {
            return Err("has no utility for this outcome space".to_owned());
        }
        let join = Join { mandate: plan.mandate.clone(), ..Join::default() };
        let side = BargainParty::new(self.agent.clone(), party, Some(bargain.parties.len()), rules, plan);
        self.bargains.insert(negotiation, side, call.ends_by.0);
        self.reporter.tell(negotiation, now, BargainReport::Joined { party, parties: bargain.parties.len() });
        Ok(join)
    }

    fn handle_turn(&mut self, now: Timestamp, delivery: &Delivery, turn: &Turn) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(side) = self.bargains.part(negotiation) else { return Vec::new() };
        let message = side.handle_turn(now, turn).map(|said| said.reply_to(delivery));
        self.make(message)
    }

    fn handle_misunderstanding(&mut self, now: Timestamp, delivery: &Delivery, why: &Misunderstanding) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        self.reporter.tell(negotiation, now, BargainReport::Misunderstood(why.clone()));
        self.handle_refused_move(now, negotiation, &why.reason)
    }

    fn handle_refused_move(&mut self, now: Timestamp, negotiation: &NegotiationId, reason: &str) -> Vec<Action> {
        let Some(side) = self.bargains.part(negotiation) else { return Vec::new() };
        if side.has_only_joined() {
            return vec![refuse_to_join(negotiation).into()];
        }
        let message = side.handle_refusal(now, reason).map(|said| said.message(negotiation));
        self.make(message)
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(side) = self.bargains.part(negotiation) else { return Vec::new() };
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if !side.is_open() {
            if disposition != Disposition::Ok {
                return self.close(negotiation, now, BargainReport::TurnedDown(disposition));
            }
            // Only the receipt of a call counts invitations.
            let Some(invited) = receipt.invited else { return Vec::new() };
            let message = side.handle_opened(now, invited).map(|said| said.message(negotiation));
            let report = BargainReport::Opened { invited, left_out: receipt.left_out.unwrap_or(0) };
            self.reporter.tell(negotiation, now, report);
            return self.make(message);
        }
        if disposition == Disposition::Ok {
            side.handle_applied(receipt.offer_id);
        }
        Vec::new()
    }

    fn handle_award(&mut self, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        // Without a part in it nothing was agreed to.
        let payload = match self.bargains.part(negotiation) {
            Some(side) => side.answer_to(award),
            None => Payload::Refuse(Reasoned { reason: Some("knows of no such bargain".to_owned()), round: None }),
        };
        // Apart from the call, which REFUSE has answered as number 0.
        self.say(Outgoing::reply(delivery, payload).once(u32::MAX), award.confirm_by.0)
    }

    fn handle_closing(&mut self, now: Timestamp, delivery: &Delivery, closing: &Closing) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let Some(side) = self.bargains.part(negotiation) else { return vec![Action::Release(negotiation.clone())] };
        let outcome = Box::new(side.outcome(closing));
        self.close(negotiation, now, BargainReport::Ended(outcome))
    }

    /// Tells the last report of a bargain and forgets it.
    fn close(&mut self, negotiation: &NegotiationId, now: Timestamp, report: BargainReport) -> Vec<Action> {
        self.bargains.remove(negotiation);
        self.reporter.tell(negotiation, now, report);
        vec![Action::Release(negotiation.clone())]
    }

    /// Makes a move, if there is one.
    fn make(&mut self, message: Option<Outgoing>) -> Vec<Action> {
        let Some(message) = message else { return Vec::new() };
        let act_by = self.bargains.part(&message.negotiation).map_or(Timestamp::MAX, |side| side.act_by());
        self.say(message, act_by)
    }

    /// Sends a message and remembers it, to send it again should nobody answer until it makes no sense any more.
    fn say(&mut self, message: Outgoing, until: Timestamp) -> Vec<Action> {
        if let Some(side) = self.bargains.part(&message.negotiation) {
            side.handle_said(&message, until);
        }
        vec![message.into()]
    }

    fn expire(&mut self, now: Timestamp) -> Vec<Action> {
        let expired = self.bargains.expire(now);
        for negotiation in &expired {
            self.reporter.tell(negotiation, now, BargainReport::Lost);
        }
        expired.into_iter().map(Action::Release).collect()
    }
}

impl Strategy for Bargainer {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let mut actions = self.expire(now);
        // What came along is of earlier messages than the delivery, and says that they were applied.
        if let Some(side) = self.bargains.part(&delivery.envelope.negotiation) {
            delivery.receipts.iter().for_each(|receipt| side.handle_applied(receipt.offer_id));
        }
        actions.extend(match &delivery.payload {
            Notification::Cfp(call) => self.handle_call(now, delivery, call),
            Notification::Turn(turn) => self.handle_turn(now, delivery, turn),
            Notification::NotUnderstood(why) => self.handle_misunderstanding(now, delivery, why),
            Notification::Ack(receipt) => self.handle_receipt(now, delivery, receipt),
            Notification::Accept(award) => self.handle_award(delivery, award),
            Notification::Closed(closing) => self.handle_closing(now, delivery, closing),
            Notification::Ask(_) => vec![Action::refuse(delivery, "takes part in bargains only")],
            _ => Vec::new(),
        });
        actions
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let negotiation = &sent.negotiation;
        let Some(side) = self.bargains.part(negotiation) else { return Vec::new() };
        match &sent.outcome {
            SendOutcome::Accepted { .. } => Vec::new(),
            SendOutcome::Unanswered if sent.act == Act::Cfp => self.close(negotiation, now, BargainReport::Unanswered),
            SendOutcome::Unanswered => side.say_again(now, sent.act).map(Action::from).into_iter().collect(),
            SendOutcome::Refused(refusal) if sent.act == Act::Cfp => {
                self.close(negotiation, now, BargainReport::Refused(refusal.clone()))
            }
            SendOutcome::Refused(refusal) if refusal.code == Code::Overloaded => {
                let again = side.say_again(now, sent.act);
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

/// The exchange lets no bargain last longer than a day, in milliseconds.
const BARGAIN_MS_MAX: u64 = 86_400_000;

/// A bargain to be opened.
pub struct BargainRequest {
    /// The call. Its `cfp` has the rules; the mandate is the plan's.
    pub call: CallRequest,
    /// How the initiator goes into it; it is party 0.
    pub plan: BargainPlan,
}

impl BargainRequest {
    /// A call to a bargain that leaves at once. `own_id` is the initiator's own id for it, never used before.
    #[must_use]
    pub fn new(own_id: impl Into<String>, to: Vec<Address>, rules: BargainSpec, plan: BargainPlan) -> Self {
        let cfp = Cfp { bargain: Some(Box::new(rules)), ..Cfp::default() };
        Self { call: CallRequest::new(own_id, to, cfp), plan }
    }
}

impl Bargainer {
    /// Opens a bargain. What becomes of it are events.
    pub fn open(&mut self, now: Timestamp, negotiation: &NegotiationId, request: BargainRequest) -> Vec<Action> {
        let BargainRequest {
            call: CallRequest { to, capabilities, ttl_s, absent, mut cfp, start_at, traceparent, .. },
            plan,
        } = request;
        let side = if self.bargains.contains(negotiation) {
            Err(Refusal::new(Code::Conflict, "a bargain with this id is still open; choose another id"))
        } else if !self.bargains.has_room() {
            Err(Refusal::new(Code::Overloaded, "too many bargains are open; wait for some to end"))
        } else {
            self.own_party(&mut cfp, plan)
        };
        let side = match side {
            Ok(side) => side,
            Err(refusal) => {
                self.reporter.tell(negotiation, now, BargainReport::Refused(refusal));
                return Vec::new();
            }
        };
        let delay = start_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(BARGAIN_MS_MAX);
        self.bargains.insert(negotiation, side, now.plus_ms(delay_ms.saturating_add(BARGAIN_MS_MAX)));
        let mut message = Outgoing::new(negotiation.clone(), Payload::Cfp(cfp)).once(0);
        let scope = Some(Scope { consent: ConsentMode::OptIn, ttl: ttl_s, absent });
        message.call_to = Some(Box::new(CallAddress { to, capabilities, scope }));
        message.traceparent = traceparent;
        message.delay = delay;
        vec![message.into()]
    }

    /// The initiator's side; its mandate goes into the call.
    fn own_party(&self, cfp: &mut Cfp, plan: BargainPlan) -> Result<BargainParty, Refusal> {
        let invalid = |detail: String| Refusal::new(Code::OutOfRange, detail);
        let bargain = cfp.bargain.as_ref().ok_or_else(|| invalid("the call has no `bargain`".to_owned()))?;
        let rules = TurnRules::try_new(bargain)
            .map_err(|fault| invalid(format!("the agent cannot list the outcomes: {fault}")))?;
        if plan.preferences.utilities().len() != rules.space.len() {
            return Err(invalid("the plan has no utility for this outcome space".to_owned()));
        }
        cfp.mandate.clone_from(&plan.mandate);
        Ok(BargainParty::new(self.agent.clone(), 0, None, rules, plan))
    }

    /// Leaves a bargain, which ends it.
    #[must_use]
    pub fn end(&self, negotiation: &NegotiationId, reason: Option<String>) -> Vec<Action> {
        vec![Outgoing::new(negotiation.clone(), Payload::End(Reasoned { reason, round: None })).into()]
    }
}

impl AgentHandle<Bargainer> {
    /// Opens a bargain. Returns at once with the id of the negotiation; what becomes of it are events.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn bargain(&self, request: BargainRequest) -> Result<NegotiationId, CallError> {
        let negotiation = NegotiationId::form(self.agent(), &request.call.own_id)?;
        let id = negotiation.clone();
        self.command(move |bargainer, now| bargainer.open(now, &id, request)).await?;
        Ok(negotiation)
    }
}

#[cfg(test)]
mod tests;
