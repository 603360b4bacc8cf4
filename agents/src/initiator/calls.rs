//! The initiator's strategy: which news a delivery means, and for whom.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use schemas::delivery::{Delivery, Disposition, News, Receipt, Told};
use schemas::{Act, Code, NegotiationId, Refusal, Timestamp};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{CallEvent, CallNews};
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

    /// Time is read here, where the news leaves the pure part: what it means has been decided without it.
    fn tell(
        &self,
        listener: &mpsc::Sender<CallEvent>,
        negotiation: &NegotiationId,
        log_time: Timestamp,
        news: CallNews,
    ) {
        let event = CallEvent { negotiation: negotiation.clone(), at: Instant::now(), log_time, news };
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
        self.counters.tell(&listener, negotiation, now, CallNews::Refused(refusal));
        false
    }

    /// The trace the caller of an open call gave it.
    pub(super) fn traceparent(&self, negotiation: &NegotiationId) -> Option<String> {
        self.calls_by_negotiation.get(negotiation)?.traceparent.as_deref().map(str::to_owned)
    }

    /// Tells the call's listener; after the last news nobody listens any more.
    fn tell(&mut self, negotiation: &NegotiationId, log_time: Timestamp, news: CallNews) -> Vec<Action> {
        let Some(call) = self.calls_by_negotiation.get(negotiation) else { return Vec::new() };
        let is_last = news.is_last();
        self.counters.tell(&call.listener, negotiation, log_time, news);
        if is_last { self.forget(negotiation) } else { Vec::new() }
    }

    /// Listens to a call no longer.
    pub(super) fn forget(&mut self, negotiation: &NegotiationId) -> Vec<Action> {
        self.calls_by_negotiation.remove(negotiation);
        self.count_open();
        vec![Action::Release(negotiation.clone())]
    }

    fn news_of_receipt(&mut self, negotiation: &NegotiationId, receipt: &Receipt) -> Option<CallNews> {
        let call = self.calls_by_negotiation.get_mut(negotiation).filter(|call| !call.has_receipt)?;
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if disposition != Disposition::Ok {
            call.has_receipt = true;
            return Some(CallNews::TurnedDown(disposition));
        }
        // Only the receipt of a call counts invitations.
        let invited = receipt.invited?;
        call.has_receipt = true;
        Some(CallNews::Opened { invited, left_out: receipt.left_out.unwrap_or(0) })
    }

    fn count_open(&self) {
        self.counters.0.open.store(self.calls_by_negotiation.len(), Ordering::Relaxed);
    }
}

impl Strategy for Calls {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let news = match &delivery.payload {
            Told::Inform(News::Awarded(award)) => Some(CallNews::Awarded(Box::new(award.clone()))),
            Told::Inform(News::Offers(offers)) => Some(CallNews::Offers(offers.clone())),
            Told::Inform(News::Committed(news)) => Some(CallNews::Committed(news.clone())),
            Told::Inform(News::Done(news) | News::Result(news)) => Some(CallNews::Done(news.clone())),
            Told::Inform(News::Cancelled(news)) => Some(CallNews::Stopped(news.clone())),
            Told::Failure(failure) => Some(CallNews::Failed(failure.clone())),
            Told::Closed(closing) => Some(CallNews::Closed(closing.clone())),
            Told::NotUnderstood(misunderstanding) => Some(CallNews::Misunderstood(misunderstanding.clone())),
            Told::Ack(receipt) => self.news_of_receipt(negotiation, receipt),
            // Said to contractors, and to the parties of a bargain.
            Told::Cfp(_) | Told::Accept(_) | Told::Reject(_) | Told::Cancel(_) | Told::Turn(_) => None,
        };
        news.map_or_else(Vec::new, |news| self.tell(negotiation, now, news))
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        news_of_sent(sent).map_or_else(Vec::new, |news| self.tell(&sent.negotiation, now, news))
    }
}

fn news_of_sent(sent: &Sent) -> Option<CallNews> {
    match (&sent.outcome, sent.act) {
        (SendOutcome::Accepted { seq, .. }, Act::Cfp) => Some(CallNews::Accepted { seq: *seq }),
        (SendOutcome::Refused(refusal), Act::Cfp) => Some(CallNews::Refused(refusal.clone())),
        (SendOutcome::Unanswered, Act::Cfp) => Some(CallNews::Unanswered),
        // What is said later in a call does not end it.
        (SendOutcome::Accepted { .. } | SendOutcome::Refused(_) | SendOutcome::Unanswered, _) => None,
    }
}
