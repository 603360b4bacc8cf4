//! The spans of one lane: `fold`, `write register`, `deliver`, `negotiation`; [`telemetry::trace`] shows how they hang
//! together.
//!
//! Only a lane's live owner records. Where spans are off nothing is remembered, and of a trace that is not kept nothing but
//! that. The trace of a negotiation is its call's; a message may belong to another one (its sender's own), and what it leads
//! to then hangs at the negotiation, so that each trace stays connected.

mod message;
mod spans;

use std::collections::HashMap;

use policy_core::Deliver;
use schemas::delivery::{Disposition, Notification};
use schemas::ids::Position;
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Lane, MsgId, NegotiationId, RegisterKey};
use telemetry::{SpanId, TraceContext, TraceId, Tracer};

use crate::lane::register::WRITES_PENDING_MAX;

pub(crate) use spans::{FinishedNegotiation, FoldedMessage};

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

    /// A negotiation has ended.
    pub(crate) fn handle_end(&mut self, finished: FinishedNegotiation) {
        if self.tracer.is_on() {
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

    /// Takes note of the trace of a negotiation, and of what has waited for it.
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
            Waiting::End(finished) => finished.record(&self.tracer, known.root),
        }
    }

    /// The span of the message whose effects are being done, where its trace is kept.
    fn folded(&self) -> Option<(TraceId, SpanId)> {
        let message = self.cause.as_ref()?.message.as_ref()?;
        Some((message.context.trace, message.folded?))
    }

    fn caused(&self, message: &AdmittedMessage) -> Caused {
        let context = message::context_of(message);
        let msg_id = if self.tracer.keeps(context.trace) { message::id_of(message) } else { None };
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
