//! Writing a message down: number, id, envelope, bytes.

use bytes::Bytes;
use schemas::record::Message;
use schemas::{Act, Address, AgentId, Envelope, MsgId, NegotiationId, Timestamp, WireTime};
use telemetry::{SpanId, TraceContext};

use crate::strategy::{Outgoing, SendOutcome, Sent, Way};

/// Where in a trace a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The trace, and the span that causes the message.
    pub context: TraceContext,
    /// Whether the trace is kept: the message then carries it on.
    pub is_kept: bool,
}

/// A message with everything that stays the same on every attempt.
#[derive(Debug, Clone)]
pub(super) struct ComposedMessage {
    pub(super) negotiation: NegotiationId,
    pub(super) msg_id: MsgId,
    pub(super) act: Act,
    pub(super) document: Bytes,
    pub(super) written_at: Timestamp,
    pub(super) context: Option<TraceContext>,
}

impl ComposedMessage {
    pub(super) fn sent(self, outcome: SendOutcome, attempts: u32) -> Sent {
        let Self { negotiation, msg_id, act, written_at, context, document: _ } = self;
        Sent { negotiation, msg_id, act, outcome, way: Way { attempts, written_at, context } }
    }
}

/// Numbers the messages of one instance of an agent.
#[derive(Debug)]
pub(super) struct Composer {
    agent: AgentId,
    instance: u64,
    /// Number of the last message written.
    last_number: u64,
}

impl Composer {
    pub(super) fn new(agent: AgentId, instance: u64) -> Self {
        Self { agent, instance, last_number: 0 }
    }

    pub(super) fn instance(&self) -> u64 {
        self.instance
    }

    /// The id of a message that is never written.
    pub(super) fn next_msg_id(&mut self) -> MsgId {
        self.last_number += 1;
        self.msg_id(self.last_number)
    }

    pub(super) fn compose(
        &mut self,
        now: Timestamp,
        outgoing: Outgoing,
        origin: Option<Origin>,
    ) -> (u64, ComposedMessage) {
        self.last_number += 1;
        let number = self.last_number;
        let Outgoing { negotiation, payload, in_reply_to, call_to, traceparent, delay: _, once: _ } = outgoing;
        let act = payload.act();
        let msg_id = self.msg_id(number);
        let sent_in = |context: TraceContext| context.under(SpanId::sent(&self.agent, &msg_id)).to_traceparent(true);
        let kept = origin.filter(|origin| origin.is_kept);
        let traceparent = kept.map(|origin| sent_in(origin.context)).or(traceparent);
        // A call names the initiator's own part of the id; the exchange forms the whole.
        let named = match negotiation.as_str().split_once(schemas::ids::NEGOTIATION_SEPARATOR) {
            Some((_, own)) if act == Act::Cfp => own.to_owned(),
            Some(_) | None => negotiation.as_str().to_owned(),
        };
        let (to, capabilities, scope) =
            call_to.map_or_else(Default::default, |call| (call.to, call.capabilities, call.scope));
        let envelope = Envelope {
            msg_id: msg_id.clone(),
            ts: WireTime(now),
            from: Address::Agent(self.agent.clone()),
            to,
            capabilities,
            scope,
            negotiation: Some(named),
            seq: Some(self.instance + number),
            in_reply_to,
            traceparent,
        };
        let document = serde_json::to_vec(&Message { envelope, payload })
            .expect("envelopes and payloads hold only integers, texts and maps with text keys, which JSON can express");
        let context = origin.map(|origin| origin.context);
        (number, ComposedMessage { negotiation, msg_id, act, document: document.into(), written_at: now, context })
    }

    fn msg_id(&self, number: u64) -> MsgId {
        MsgId::try_new(&format!("{:x}-{number:x}", self.instance))
            .expect("two hexadecimal numbers and a hyphen are a name")
    }

    pub(super) fn number_of(&self, msg_id: &MsgId) -> Option<u64> {
        let (instance, number) = msg_id.as_str().split_once('-')?;
        let is_ours = u64::from_str_radix(instance, 16) == Ok(self.instance);
        u64::from_str_radix(number, 16).ok().filter(|_| is_ours)
    }
}
