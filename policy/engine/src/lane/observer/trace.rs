//! The spans of one lane: `fold`, `write register`, `deliver`, `negotiation`; [`telemetry::trace`] shows how they hang
//! together.
//!
//! Only a lane's live owner records. Where spans are off nothing is remembered, and of a trace that is not kept nothing but
//! that. The trace of a negotiation is its call's; a message may belong to another one (its sender's own), and what it leads
//! to then hangs at the negotiation, so that each trace stays connected.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ahash::{HashMap, HashMapExt as _};
use policy_core::{Deliver, Event, Protocol};
use schemas::delivery::{Disposition, Notification, Outcome};
use schemas::ids::Position;
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Act, AgentId, Lane, MsgId, NegotiationId, RegisterKey, Timestamp, subject};
use serde::Deserialize;
use serde::de::IgnoredAny;
use telemetry::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};
use tokio::time::Instant;

use crate::lane::WRITES_PENDING_MAX;
use crate::lane::{DeliveryEvent, DeliveryStep};
use crate::metrics::WriteResult;

/// See the module.
pub(crate) struct Traces {
    tracer: Tracer,
    lane: Lane,
    known: Option<NegotiationTrace>,
    cause: Option<Cause>,
    /// What is recorded once the trace of its negotiation is known: with the next delivery, as a rule of the same input.
    waiting: Vec<Waiting>,
    /// Where the register's writes hang, of kept traces only; at most [`WRITES_PENDING_MAX`].
    writes: HashMap<RegisterKey, TraceContext>,
}

/// The trace of the last negotiation anything was sent in.
struct NegotiationTrace {
    negotiation: NegotiationId,
    /// As its call says, or as its id does.
    root: TraceContext,
    is_kept: bool,
    /// Whether its call has said so.
    is_sure: bool,
}

/// The input whose effects are being done.
struct Cause {
    position: Option<Position>,
    message: Option<Caused>,
}

/// A message that causes something.
struct Caused {
    context: TraceContext,
    /// Absent unless its trace is kept.
    msg_id: Option<MsgId>,
    folded: Option<SpanId>,
}

enum Waiting {
    Write { key: RegisterKey, folded: Option<(TraceId, SpanId)> },
    End(FinishedNegotiation),
}

impl Traces {
    pub(crate) fn new(tracer: Tracer, lane: Lane) -> Self {
        Self { tracer, lane, known: None, cause: None, waiting: Vec::new(), writes: HashMap::new() }
    }

    /// Whether anything is recorded at all.
    pub(crate) fn is_on(&self) -> bool {
        self.tracer.is_on()
    }

    /// The lane has another owner, or begins anew: what was on its way is another's.
    pub(crate) fn forget(&mut self) {
        (self.known, self.cause) = (None, None);
        self.waiting.clear();
        self.writes.clear();
    }

    /// The effects that follow were caused by the input at `position` of `record`.
    pub(crate) fn handle_cause(&mut self, position: Option<Position>, record: &Record) {
        if !self.tracer.is_on() || self.cause.as_ref().is_some_and(|cause| cause.position == position) {
            return;
        }
        let message = message_at(position, record).map(|message| self.caused(message));
        self.cause = Some(Cause { position, message });
    }

    /// Every effect of a record is done.
    pub(crate) fn handle_record_done(&mut self) {
        self.cause = None;
        for waiting in std::mem::take(&mut self.waiting) {
            let negotiation = waiting.negotiation().clone();
            self.know(&negotiation, None);
            self.settle(waiting);
        }
    }

    /// Where a delivery hangs, if its trace is kept.
    pub(crate) fn of_delivery(&mut self, deliver: &Deliver) -> Option<Box<TraceContext>> {
        if !self.tracer.is_on() {
            return None;
        }
        // What a stranger is answered says nothing of the negotiation it names.
        let is_to_stranger =
            matches!(&*deliver.told, Notification::Ack(receipt) if receipt.disposition == Disposition::Unauthorized);
        if is_to_stranger && deliver.traceparent.is_none() {
            return None;
        }
        self.know(&deliver.negotiation, deliver.traceparent.as_deref());
        let known = self.known.as_ref().filter(|known| known.is_kept)?;
        let folded = self.folded();
        Some(Box::new(hanging_at(known.root.trace, &deliver.negotiation, folded)))
    }

    /// Where a delivery hangs whose cause is not known any more, if its trace is kept.
    pub(crate) fn of_old_delivery(&self, deliver: &Deliver) -> Option<Box<TraceContext>> {
        let trace = TraceContext::of(deliver.traceparent.as_deref(), &deliver.negotiation).trace;
        self.tracer.keeps(trace).then(|| Box::new(hanging_at(trace, &deliver.negotiation, None)))
    }

    /// A key is to be written.
    pub(crate) fn handle_write(&mut self, key: &RegisterKey) {
        if self.tracer.is_on() {
            let folded = self.folded();
            self.take(Waiting::Write { key: key.clone(), folded });
        }
    }

    /// The core reported a fact of `record` at this log time: records the spans that end with it.
    pub(crate) fn handle_event(&mut self, event: &Event, at: Timestamp, record: &Record) {
        if !self.tracer.is_on() {
            return;
        }
        if let Event::Disposed { from, act, disposition, .. } = event {
            self.handle_folded(from.as_str(), *act, *disposition, at, record);
        }
        // A call that opens a negotiation has no other disposition.
        if let Event::Started { negotiation, .. } = event {
            self.handle_folded(negotiation.initiator(), Act::Cfp, Disposition::Ok, at, record);
        }
        if let Event::Ended { negotiation, protocol, outcome, at, elapsed_us, .. } = event {
            let (negotiation, protocol, outcome) = (negotiation.clone(), *protocol, *outcome);
            let finished = FinishedNegotiation { negotiation, protocol, outcome, at: *at, elapsed_us: *elapsed_us };
            self.take(Waiting::End(finished));
        }
    }

    /// The trace of a negotiation, for a line of the log. `traceparent` is its call's, if it is known.
    pub(crate) fn trace_of(&self, negotiation: &NegotiationId, traceparent: Option<&str>) -> TraceId {
        let known = self.known.as_ref().filter(|known| known.negotiation == *negotiation && known.is_sure);
        known.map_or_else(|| TraceContext::of(traceparent, negotiation).trace, |known| known.root.trace)
    }

    fn take(&mut self, waiting: Waiting) {
        if self.known.as_ref().is_some_and(|known| known.negotiation == *waiting.negotiation()) {
            self.settle(waiting);
        } else {
            self.waiting.push(waiting);
        }
    }

    /// Remembers a negotiation's trace, and settles the writes and ends that waited for it.
    fn know(&mut self, negotiation: &NegotiationId, traceparent: Option<&str>) {
        let is_known =
            |known: &NegotiationTrace| known.negotiation == *negotiation && (known.is_sure || traceparent.is_none());
        if !self.known.as_ref().is_some_and(is_known) {
            let root = TraceContext::of(traceparent, negotiation);
            let (negotiation, is_kept) = (negotiation.clone(), self.tracer.keeps(root.trace));
            self.known = Some(NegotiationTrace { negotiation, root, is_kept, is_sure: traceparent.is_some() });
        }
        if self.waiting.iter().any(|waiting| waiting.negotiation() == negotiation) {
            let (ready, waiting) =
                std::mem::take(&mut self.waiting).into_iter().partition(|one| one.negotiation() == negotiation);
            self.waiting = waiting;
            ready.into_iter().for_each(|one| self.settle(one));
        }
    }

    /// The trace of its negotiation is known.
    fn settle(&mut self, waiting: Waiting) {
        let Some(known) = &self.known else { return };
        match waiting {
            Waiting::Write { key, folded } => {
                if known.is_kept && self.writes.len() < WRITES_PENDING_MAX {
                    let context = hanging_at(known.root.trace, &known.negotiation, folded);
                    self.writes.insert(key, context);
                }
            }
            Waiting::End(finished) => finished.record(&self.tracer, known.root.around(&known.negotiation)),
        }
    }

    /// The span of the message whose effects are being done, where its trace is kept.
    fn folded(&self) -> Option<(TraceId, SpanId)> {
        let message = self.cause.as_ref()?.message.as_ref()?;
        Some((message.context.trace, message.folded?))
    }

    fn caused(&self, message: &AdmittedMessage) -> Caused {
        let context = context_of(message);
        let msg_id = if self.tracer.keeps(context.trace) { id_of_message(message) } else { None };
        let folded = msg_id.as_ref().map(|msg_id| SpanId::folded(&message.from, msg_id));
        Caused { context, msg_id, folded }
    }
}

impl Waiting {
    fn negotiation(&self) -> &NegotiationId {
        match self {
            Self::Write { key, .. } => key.negotiation(),
            Self::End(finished) => &finished.negotiation,
        }
    }
}

/// The message at a position; nothing for a timer or an engine's entry.
fn message_at(position: Option<Position>, record: &Record) -> Option<&AdmittedMessage> {
    let index = usize::try_from(position?.index).ok()?;
    match record.entries.get(index)? {
        Entry::Message(message) => Some(message),
        Entry::Tick | Entry::Engine { .. } => None,
    }
}

/// Under the fold that caused it, if that is in the same trace; otherwise at the negotiation itself.
fn hanging_at(trace: TraceId, negotiation: &NegotiationId, folded: Option<(TraceId, SpanId)>) -> TraceContext {
    let parent = folded.filter(|(of, _)| *of == trace).map_or_else(|| SpanId::of(negotiation), |(_, span)| span);
    TraceContext { trace, parent }
}

/// A negotiation that has ended.
struct FinishedNegotiation {
    negotiation: NegotiationId,
    protocol: Protocol,
    outcome: Outcome,
    at: Timestamp,
    elapsed_us: u64,
}

/// Why a message was not followed.
fn error_of(disposition: Disposition) -> Option<&'static str> {
    // What was done already, or came after the end, is no failure of anybody.
    let fails_nobody = [Disposition::Ok, Disposition::Duplicate, Disposition::Committed, Disposition::Closed];
    (!fails_nobody.contains(&disposition)).then(|| disposition.as_str())
}

impl FinishedNegotiation {
    /// Records the negotiation as a whole. It is the root of its trace, unless its call came from another one.
    fn record(self, tracer: &Tracer, root: TraceContext) {
        let error = (self.outcome == Outcome::Aborted).then_some("aborted");
        let make = || {
            let name = format!("negotiation {}", self.protocol.as_str());
            let end = system_time(self.at);
            let start = end.checked_sub(Duration::from_micros(self.elapsed_us)).unwrap_or(UNIX_EPOCH);
            let id = SpanId::of(&self.negotiation);
            let mut span = Span::new(name, Kind::Internal, root, id, start)
                .with("messaging.message.conversation_id", self.negotiation.to_string())
                .with("llmx.outcome", self.outcome.as_str())
                .failed(error);
            span.end = end;
            span.is_root = root.trace == TraceId::of(&self.negotiation);
            span
        };
        tracer.record(root.trace, error.is_some(), make);
    }
}

impl Traces {
    /// A message was folded at this log time, the one whose effects are being done.
    fn handle_folded(&self, from: &str, act: Act, disposition: Disposition, at: Timestamp, record: &Record) {
        let Some(cause) = self.cause.as_ref() else { return };
        let (Some(caused), Some(message)) = (&cause.message, message_at(cause.position, record)) else { return };
        let error = error_of(disposition);
        let make = || {
            // Of a trace that is not kept the message has not been read yet.
            let msg_id = caused.msg_id.clone().or_else(|| id_of_message(message));
            let id_of = |of: fn(&AgentId, &schemas::MsgId) -> SpanId| {
                msg_id.as_ref().map_or(caused.context.parent, |msg_id| of(&message.from, msg_id))
            };
            let context = TraceContext { trace: caused.context.trace, parent: id_of(SpanId::admitted) };
            let mut span = Span::new(
                format!("fold {}", act.as_str()),
                Kind::Consumer,
                context,
                id_of(SpanId::folded),
                system_time(at),
            );
            span.start = span.start.min(span.end);
            span.on_nats("process", "fold")
                .with("messaging.destination.name", subject::log(self.lane))
                .with("messaging.message.conversation_id", message.negotiation.to_string())
                .with("messaging.message.body.size", message.body.get().len())
                .with("llmx.act", act.as_str())
                .with("llmx.agent", from.to_owned())
                .with("llmx.disposition", disposition.as_str())
                .with("llmx.lane", u32::from(self.lane.0))
                .with_some("messaging.message.id", msg_id.map(|msg_id| msg_id.to_string()))
                .failed(error)
        };
        self.tracer.record(caused.context.trace, error.is_some(), make);
    }

    /// The register has answered a write that was begun at `started`. `traceparent` is the call's, if it is known.
    pub(crate) fn handle_written(
        &mut self,
        key: &RegisterKey,
        result: WriteResult,
        started: Instant,
        traceparent: Option<&str>,
    ) {
        if !self.is_on() {
            return;
        }
        let error = (result == WriteResult::Different).then_some("register_conflict");
        let kept = self.writes.remove(key);
        if kept.is_none() && error.is_none() {
            return;
        }
        let negotiation = key.negotiation();
        let context = kept.unwrap_or_else(|| hanging_at(self.trace_of(negotiation, traceparent), negotiation, None));
        let make = || {
            let key = key.to_string();
            Span::new("write register", Kind::Client, context, SpanId::registered(&key), began(started))
                .on_nats("send", "write register")
                .with("messaging.destination.name", key)
                .with("messaging.message.conversation_id", negotiation.to_string())
                .with("llmx.result", <&str>::from(result))
                .with("llmx.lane", u32::from(self.lane.0))
                .failed(error)
        };
        self.tracer.record(context.trace, error.is_some(), make);
    }

    /// Something became of a delivery.
    pub(crate) fn handle_delivery(&self, event: &DeliveryEvent) {
        let (Some(context), true) = (event.trace, self.is_on()) else { return };
        let error = match event.step {
            DeliveryStep::Sent => return,
            DeliveryStep::SentOnce | DeliveryStep::Acknowledged => None,
            DeliveryStep::GivenUp(reason) => Some(<&str>::from(reason)),
        };
        let make = || {
            let id = SpanId::delivered(event.id);
            Span::new(format!("deliver {}", event.act.as_str()), Kind::Producer, context, id, began(event.made_at))
                .on_nats("send", "deliver")
                .with("messaging.destination.name", subject::inbox(&event.to))
                .with("messaging.message.id", event.id.to_string())
                .with("messaging.message.conversation_id", event.negotiation.to_string())
                .with("llmx.act", event.act.as_str())
                .with("llmx.agent", event.to.to_string())
                .with("llmx.attempts", event.attempts)
                .with("llmx.lane", u32::from(self.lane.0))
                .failed(error)
        };
        self.tracer.record(context.trace, error.is_some(), make);
    }
}

/// When something began, by the wall clock.
fn began(at: Instant) -> SystemTime {
    SystemTime::now().checked_sub(at.elapsed()).unwrap_or(UNIX_EPOCH)
}

/// Log time as a time of the wall clock.
fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(UNIX_EPOCH)
}

/// Where the payload begins. Inside texts quotes are escaped, and the envelope has no member of this name.
const PAYLOAD: &str = "},\"payload\":";
/// Where the trace context stands.
const TRACEPARENT: &str = "\"traceparent\":\"";

#[derive(Deserialize)]
struct PartialMessage {
    envelope: PartialEnvelope,
    #[serde(rename = "payload")]
    _payload: IgnoredAny,
}

#[derive(Deserialize)]
struct PartialEnvelope {
    msg_id: MsgId,
}

/// The context of a message: its own where it carries one, otherwise its negotiation's.
fn context_of(message: &AdmittedMessage) -> TraceContext {
    TraceContext::of(traceparent(message.body.get()), &message.negotiation)
}

/// The id of a message.
fn id_of_message(message: &AdmittedMessage) -> Option<MsgId> {
    serde_json::from_str::<PartialMessage>(message.body.get()).ok().map(|message| message.envelope.msg_id)
}

/// The `traceparent` of an envelope, in the canonical body of a message: envelope before payload, without white space.
fn traceparent(body: &str) -> Option<&str> {
    let envelope = &body[..body.find(PAYLOAD)?];
    let begin = envelope.find(TRACEPARENT)? + TRACEPARENT.len();
    let length = envelope[begin..].find('"')?;
    Some(&envelope[begin..begin + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_envelope_says_which_trace_a_message_belongs_to() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let with =
            format!(r#"{{"envelope":{{"msg_id":"m","traceparent":"{parent}","ts":"x"}},"payload":{{"act":"offer"}}}}"#);
        assert_eq!(traceparent(&with), Some(parent));
        let scoped = format!(r#"{{"envelope":{{"scope":{{"ttl":1}},"traceparent":"{parent}"}},"payload":{{}}}}"#);
        assert_eq!(traceparent(&scoped), Some(parent));
        for without in [
            r#"{"envelope":{"msg_id":"m"},"payload":{"terms":{"traceparent":"no"}}}"#,
            r#"{"envelope":{"msg_id":"\"traceparent\":\"no"},"payload":{}}"#,
            r#"{"envelope":{"traceparent":"cut"#,
            "",
        ] {
            assert_eq!(traceparent(without), None, "{without}");
        }
    }
}
