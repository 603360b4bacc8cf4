//! What an agent decides: a pure function from what it is told to what it does.

use std::fmt;
use std::time::Duration;

use schemas::delivery::{Delivery, Misunderstanding};
use schemas::envelope::Scope;
use schemas::ids::Capability;
use schemas::payload::Reasoned;
use schemas::{Act, Address, MsgId, NegotiationId, Payload, Refusal, Timestamp};
use telemetry::TraceContext;

/// An agent's decisions. No clock, no input or output; randomness only from a seed given at construction, so that a
/// strategy can be replayed and tested as a table.
///
/// A strategy hears each delivery once: the session in front of it drops repeats.
/// A plain function `fn(Timestamp, &Delivery) -> Vec<Action>` is a strategy too.
pub trait Strategy: Send {
    /// Reacts to a delivery. `now` is log time: the time of the record that caused the delivery.
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action>;

    /// Learns what became of one of its messages on the way to the log.
    fn handle_sent(&mut self, _now: Timestamp, _sent: &Sent) -> Vec<Action> {
        Vec::new()
    }

    /// The log time at which [`Strategy::handle_timer`] wants to be called next.
    fn poll_timer(&self) -> Option<Timestamp> {
        None
    }

    /// Reacts to time: called when `now`, the log time as far as the agent can tell, has reached
    /// [`Strategy::poll_timer`]. It must move that timer on.
    fn handle_timer(&mut self, _now: Timestamp) -> Vec<Action> {
        Vec::new()
    }
}

impl<F: FnMut(Timestamp, &Delivery) -> Vec<Action> + Send> Strategy for F {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        self(now, delivery)
    }
}

/// What a strategy may ask of the agent that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a message, now or after its delay.
    Send(Box<Outgoing>),
    /// Do not send what still waits for its delay in this negotiation.
    Unschedule(NegotiationId),
    /// Send nothing yet: the answer to the delivery is still being worked out.
    Defer,
    /// This agent's part in the negotiation is over: unschedule, and forget what was said in it.
    Release(NegotiationId),
    /// End the agent, once what it has sent is answered.
    Stop,
}

impl Action {
    /// Answers a delivery at once.
    #[must_use]
    pub fn reply(delivery: &Delivery, payload: Payload) -> Self {
        Outgoing::reply(delivery, payload).into()
    }

    /// Refuses at once what the agent takes no part in: nobody waits for it.
    #[must_use]
    pub fn refuse(delivery: &Delivery, reason: &str) -> Self {
        let refusal = Payload::Refuse(Reasoned { reason: Some(reason.to_owned()), round: None });
        Outgoing::reply(delivery, refusal).once(0).into()
    }
}

impl From<Outgoing> for Action {
    fn from(outgoing: Outgoing) -> Self {
        Self::Send(Box::new(outgoing))
    }
}

/// A message to be sent. The session adds `msg_id`, `seq`, `ts` and `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Its negotiation.
    pub negotiation: NegotiationId,
    /// Act and content.
    pub payload: Payload,
    /// The message it answers.
    pub in_reply_to: Option<MsgId>,
    /// How long to wait first, counted from the moment the agent acts on the action.
    pub delay: Duration,
    /// Makes the message one of a kind in its negotiation: a second one with the same act and number is not written
    /// anew, the first one's bytes are sent again. Rounds and award numbers serve as numbers.
    pub once: Option<u32>,
    /// On a call: to whom.
    pub call_to: Option<Box<CallAddress>>,
    /// W3C trace context.
    pub traceparent: Option<String>,
}

/// Whom a call addresses, and under which conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAddress {
    /// Agents, topics, groups.
    pub to: Vec<Address>,
    /// An agent must share one of these to be invited (empty: any).
    pub capabilities: Vec<Capability>,
    /// Consent and lifetime.
    pub scope: Option<Scope>,
}

impl Outgoing {
    /// A message in a negotiation.
    #[must_use]
    pub fn new(negotiation: NegotiationId, payload: Payload) -> Self {
        Self {
            negotiation,
            payload,
            in_reply_to: None,
            delay: Duration::ZERO,
            once: None,
            call_to: None,
            traceparent: None,
        }
    }

    /// An answer to a delivery; carries on its trace context.
    #[must_use]
    pub fn reply(delivery: &Delivery, payload: Payload) -> Self {
        let envelope = &delivery.envelope;
        Self {
            in_reply_to: MsgId::try_new(&envelope.msg_id.to_string()).ok(),
            traceparent: envelope.traceparent.clone(),
            ..Self::new(envelope.negotiation.clone(), payload)
        }
    }

    /// The same, after a delay in milliseconds.
    #[must_use]
    pub fn after_ms(mut self, ms: u64) -> Self {
        self.delay = Duration::from_millis(ms);
        self
    }

    /// The same, one of a kind (see [`Outgoing::once`]).
    #[must_use]
    pub fn once(mut self, number: u32) -> Self {
        self.once = Some(number);
        self
    }
}

/// What became of one message on the way to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// Its negotiation.
    pub negotiation: NegotiationId,
    /// Its id.
    pub msg_id: MsgId,
    /// Its act.
    pub act: Act,
    /// What became of it.
    pub outcome: SendOutcome,
    /// How it got there.
    pub way: Way,
}

/// How a message was sent: nothing of it decides anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    /// Times it left.
    pub attempts: u32,
    /// The agent's own time at which it was written.
    pub written_at: Timestamp,
    /// Where in a trace it was sent, where spans are made at all.
    pub context: Option<TraceContext>,
}

/// How sending ended.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum SendOutcome {
    /// It is in the log. The sequence of its record, unless only a receipt told us.
    Accepted {
        /// Sequence of the record.
        seq: Option<u64>,
        /// Of a call for offers: the policy that decides it, where the answer said so.
        policy: Option<String>,
    },
    /// A gateway refused it (or, with `overloaded`, the agent itself had no room); it is not in the log.
    Refused(Refusal),
    /// Nobody answered, however often it was repeated: it may or may not be in the log.
    Unanswered,
}

/// Why an act of an agent changed nothing: as the exchange says in NOT_UNDERSTOOD, or a gateway in its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActRefusal {
    /// A reason (`bad_ratings`), the code of a gateway (`out_of_range`), or a disposition (`late`).
    pub reason: String,
    /// JSON pointer into the message to what is at fault, where one member is.
    pub pointer: Option<String>,
}

impl ActRefusal {
    /// A refusal for a reason that lies in no single member.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), pointer: None }
    }
}

impl From<&Misunderstanding> for ActRefusal {
    fn from(why: &Misunderstanding) -> Self {
        Self { reason: why.reason.clone(), pointer: why.pointer.clone() }
    }
}

impl From<&Refusal> for ActRefusal {
    fn from(refusal: &Refusal) -> Self {
        Self { reason: refusal.code.as_str().to_owned(), pointer: refusal.pointer.clone() }
    }
}

impl fmt::Display for ActRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.pointer.iter().try_for_each(|pointer| write!(f, " at {pointer}"))
    }
}

#[cfg(test)]
mod tests;
