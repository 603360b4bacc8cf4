//! The initiator's strategy: what a delivery reports, and for whom.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use schemas::delivery::{Delivery, Disposition, Notification, ProgressReport, Receipt};
use schemas::{Act, Code, NegotiationId, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{CallEvent, CallReport};
use crate::strategy::{Action, SendOutcome, Sent, Strategy};

/// Most calls open at a time. The exchange ends each by its hard deadline, so more mean that it is gone; a call takes
/// some 200 bytes here.
const CALLS_OPEN_MAX: usize = 1_048_576;

/// Calls that have not ended.
pub(super) struct Calls {
    calls_by_negotiation: HashMap<NegotiationId, OpenCall>,
    counters: Counters,
}

struct OpenCall {
    listener: mpsc::Sender<CallEvent>,
    /// The receipt of the call itself has come; every later receipt is for something else.
    has_receipt: bool,
    /// The trace the caller gave it: what is said later in the call belongs to it too.
    traceparent: Option<Box<str>>,
}

/// What the handle reads.
#[derive(Clone, Default)]
pub(super) struct Counters(Arc<Counts>);

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    dropped_events: AtomicU64,
}

impl Counters {
    pub(super) fn open_count(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    pub(super) fn dropped_events(&self) -> u64 {
        self.0.dropped_events.load(Ordering::Relaxed)
    }

    /// Time is read here, where the report leaves the pure part: what it means has been decided without it.
    fn tell(
        &self,
        listener: &mpsc::Sender<CallEvent>,
        negotiation: &NegotiationId,
        log_time: Timestamp,
        report: CallReport,
    ) {
        let event = CallEvent { negotiation: negotiation.clone(), at: Instant::now(), log_time, report };
        if listener.try_send(event).is_err() {
            self.0.dropped_events.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { calls_by_negotiation: HashMap::new(), counters: Counters::default() }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Listens to a call from now on. A call that cannot be opened is told so, and false is returned.
    pub(super) fn open(
        &mut self,
        now: Timestamp,
        negotiation: &NegotiationId,
        listener: mpsc::Sender<CallEvent>,
        traceparent: Option<&str>,
    ) -> bool {
        let refusal = if self.calls_by_negotiation.contains_key(negotiation) {
            Refusal::new(Code::Conflict, "a call with this id is still open; choose another id")
        } else if self.calls_by_negotiation.len() >= CALLS_OPEN_MAX {
            Refusal::new(Code::Overloaded, "too many calls are open; wait for some to end")
        } else {
            let call = OpenCall { listener, has_receipt: false, traceparent: traceparent.map(Into::into) };
            self.calls_by_negotiation.insert(negotiation.clone(), call);
            self.count_open();
            return true;
        };
        self.counters.tell(&listener, negotiation, now, CallReport::Refused(refusal));
        false
    }

    /// The trace the caller of an open call gave it.
    pub(super) fn traceparent(&self, negotiation: &NegotiationId) -> Option<String> {
        self.calls_by_negotiation.get(negotiation)?.traceparent.as_deref().map(str::to_owned)
    }

    /// Tells the call's listener; after the last report nobody listens any more.
    fn tell(&mut self, negotiation: &NegotiationId, log_time: Timestamp, report: CallReport) -> Vec<Action> {
        let Some(call) = self.calls_by_negotiation.get(negotiation) else { return Vec::new() };
        let is_last = report.is_last();
        self.counters.tell(&call.listener, negotiation, log_time, report);
        if is_last { self.forget(negotiation) } else { Vec::new() }
    }

    /// Listens to a call no longer.
    pub(super) fn forget(&mut self, negotiation: &NegotiationId) -> Vec<Action> {
        self.calls_by_negotiation.remove(negotiation);
        self.count_open();
        vec![Action::Release(negotiation.clone())]
    }

    fn report_of_receipt(&mut self, negotiation: &NegotiationId, receipt: &Receipt) -> Option<CallReport> {
        let call = self.calls_by_negotiation.get_mut(negotiation).filter(|call| !call.has_receipt)?;
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if disposition != Disposition::Ok {
            call.has_receipt = true;
            return Some(CallReport::TurnedDown(disposition));
        }
        // Only the receipt of a call counts invitations.
        let invited = receipt.invited?;
        call.has_receipt = true;
        Some(CallReport::Opened { invited, left_out: receipt.left_out.unwrap_or(0) })
    }

    fn count_open(&self) {
        self.counters.0.open.store(self.calls_by_negotiation.len(), Ordering::Relaxed);
    }
}

impl Strategy for Calls {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let report = match &delivery.payload {
            Notification::Inform(ProgressReport::Awarded(award)) => Some(CallReport::Awarded(Box::new(award.clone()))),
            Notification::Inform(ProgressReport::Offers(offers)) => Some(CallReport::Offers(offers.clone())),
            Notification::Inform(ProgressReport::Committed(report)) => Some(CallReport::Committed(report.clone())),
            Notification::Inform(ProgressReport::Done(report) | ProgressReport::Result(report)) => {
                Some(CallReport::Done(report.clone()))
            }
            Notification::Inform(ProgressReport::Cancelled(report)) => Some(CallReport::Stopped(report.clone())),
            Notification::Failure(failure) => Some(CallReport::Failed(failure.clone())),
            Notification::Closed(closing) => Some(CallReport::Closed(closing.clone())),
            Notification::NotUnderstood(misunderstanding) => Some(CallReport::Misunderstood(misunderstanding.clone())),
            Notification::Ack(receipt) => self.report_of_receipt(negotiation, receipt),
            // Said to contractors, and to the parties of a bargain.
            Notification::Cfp(_)
            | Notification::Accept(_)
            | Notification::Reject(_)
            | Notification::Cancel(_)
            | Notification::Turn(_) => None,
        };
        report.map_or_else(Vec::new, |report| self.tell(negotiation, now, report))
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        report_of_sent(sent).map_or_else(Vec::new, |report| self.tell(&sent.negotiation, now, report))
    }
}

fn report_of_sent(sent: &Sent) -> Option<CallReport> {
    match (&sent.outcome, sent.act) {
        (SendOutcome::Accepted { seq, .. }, Act::Cfp) => Some(CallReport::Accepted { seq: *seq }),
        (SendOutcome::Refused(refusal), Act::Cfp) => Some(CallReport::Refused(refusal.clone())),
        (SendOutcome::Unanswered, Act::Cfp) => Some(CallReport::Unanswered),
        // What is said later in a call does not end it.
        (SendOutcome::Accepted { .. } | SendOutcome::Refused(_) | SendOutcome::Unanswered, _) => None,
    }
}
