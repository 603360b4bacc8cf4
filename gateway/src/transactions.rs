//! What becomes of the negotiations that this gateway begins for its callers: transactions of Agora.
//!
//! A caller can have begun the negotiation before, with another agent or another task. So nothing counts that is told of it
//! before the receipt of the gateway's own call says `ok`, and no report but that of the agent that was called.
//!
//! A caller's deliveries are heard on one stream of its own, opened with its first transaction and closed a moment after the
//! last. Streams the caller has itself hear the same deliveries. Those of a transaction are acknowledged here, because its
//! caller may have no other way to; those of the caller's other negotiations are left to the caller.

use std::sync::Arc;
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification, Outcome, ProgressReport, Receipt};
use schemas::document::RoutineReport;
use schemas::{AgentId, Code, DeliveryId, NegotiationId, Refusal};
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acknowledgements::Acknowledgements;
use crate::streams::AgentStreams;

/// Transactions of all callers that are watched at once, those included that ended a moment ago.
const WATCHED_MAX: usize = 16_384;
/// Transactions of one caller that are watched at once.
const WATCHED_PER_CALLER_MAX: usize = 4096;
/// How long a transaction is watched: longer than the hard deadline of its policy.
const WATCH_FOR: Duration = Duration::from_secs(100);
/// How long one is watched that has ended: repeats of its last delivery are acknowledged.
const LINGER: Duration = Duration::from_secs(1);
/// How long a gateway that stops hears the ends of the calls it cancels: engines answer within a fraction of it. What is told
/// later waits for the caller's own streams.
const CLOSING_MAX: Duration = Duration::from_secs(3);
/// Between two looks for those whose time has come.
const SWEEP_PERIOD: Duration = Duration::from_millis(500);

/// Watches negotiations for callers. Clones are handles to those of one gateway.
#[derive(Clone)]
pub(crate) struct Transactions(Arc<TransactionParts>);

struct TransactionParts {
    streams: AgentStreams,
    acknowledgements: Acknowledgements,
    tasks: TaskTracker,
    stop: CancellationToken,
    watched: Mutex<WatchedTransactions>,
}

#[derive(Default)]
struct WatchedTransactions {
    by_caller: HashMap<AgentId, CallerTransactions>,
    count: usize,
}

struct CallerTransactions {
    by_negotiation: HashMap<NegotiationId, WatchedTransaction>,
    stream: watch::Receiver<StreamState>,
}

/// A caller's stream.
#[derive(Debug, Clone)]
enum StreamState {
    Opening,
    Open,
    Refused(Refusal),
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransactionEnd {
    /// The contractor reported a result, or that it is done; and what carried it out, where it says.
    Answered(String, Option<RoutineReport>),
    /// The contractor failed, with this code of its own.
    Failed(String),
    /// It ended otherwise.
    Ended(Outcome),
    /// The exchange did not take the call as a new one.
    NotTaken(Disposition),
}

/// A call that is about to be sent.
#[derive(Debug, Clone)]
pub(crate) struct WatchedCall {
    /// Its negotiation.
    pub(crate) negotiation: NegotiationId,
    /// The id of its message.
    pub(crate) msg_id: String,
    /// The agent that is called.
    pub(crate) agent: AgentId,
}

/// A transaction that is watched.
struct WatchedTransaction {
    call: WatchedCall,
    /// Whether the receipt of the call has said `ok`.
    is_taken: bool,
    /// The end, where it came before that receipt.
    early: Option<TransactionEnd>,
    /// Whoever waits for its end.
    waiting: Option<oneshot::Sender<TransactionEnd>>,
    /// What its contractor failed with.
    failure: Option<String>,
    is_closed: bool,
    /// It is no longer watched then.
    forget_at: Instant,
}

/// The end of one transaction, which is watched until it has come, awaited or not.
pub(crate) struct AwaitedEnd(oneshot::Receiver<TransactionEnd>);

impl AwaitedEnd {
    /// The end.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the caller's stream ended before.
    pub(crate) async fn come(&mut self) -> Result<TransactionEnd, Refusal> {
        (&mut self.0).await.map_err(|_| {
            Refusal::new(Code::Unavailable, "the caller's deliveries can be heard no longer").retry_after_ms(1000)
        })
    }
}

impl Transactions {
    pub(crate) fn new(
        streams: AgentStreams,
        acknowledgements: Acknowledgements,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let watched = Mutex::default();
        Self(Arc::new(TransactionParts { streams, acknowledgements, tasks, stop, watched }))
    }

    /// Watches a negotiation that is about to begin. When this returns, its caller's deliveries are heard.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when as many are watched as may be; [`Code::RateLimited`] when the caller has too many streams open;
    /// [`Code::Unavailable`] when the bus does not answer.
    pub(crate) async fn watch(&self, caller: &AgentId, call: WatchedCall) -> Result<AwaitedEnd, Refusal> {
        let (waiting, end) = oneshot::channel();
        let mut stream = self.insert(caller, call, waiting)?;
        let state = stream.wait_for(|state| !matches!(state, StreamState::Opening)).await.map(|state| state.clone());
        match state {
            Ok(StreamState::Open | StreamState::Opening) => Ok(AwaitedEnd(end)),
            Ok(StreamState::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::new(Code::Unavailable, "the gateway stops").retry_after_ms(1000)),
        }
    }

    fn insert(
        &self,
        caller: &AgentId,
        call: WatchedCall,
        waiting: oneshot::Sender<TransactionEnd>,
    ) -> Result<watch::Receiver<StreamState>, Refusal> {
        let mut watched = self.0.watched.lock();
        let of_caller = watched.by_caller.get(caller).map_or(0, |transactions| transactions.by_negotiation.len());
        if watched.count >= WATCHED_MAX || of_caller >= WATCHED_PER_CALLER_MAX {
            return Err(Refusal::new(Code::Overloaded, "too many transactions are under way").retry_after_ms(1000));
        }
        watched.count += 1;
        let transactions = watched.by_caller.entry(caller.clone()).or_insert_with(|| {
            let (opened, stream) = watch::channel(StreamState::Opening);
            self.0.tasks.spawn(self.clone().drive(caller.clone(), opened));
            CallerTransactions { by_negotiation: HashMap::new(), stream }
        });
        let negotiation = call.negotiation.clone();
        let transaction = WatchedTransaction {
            call,
            is_taken: false,
            early: None,
            waiting: Some(waiting),
            failure: None,
            is_closed: false,
            forget_at: Instant::now() + WATCH_FOR,
        };
        transactions.by_negotiation.insert(negotiation, transaction);
        Ok(transactions.stream.clone())
    }

    /// A negotiation that did not begin is watched no longer.
    pub(crate) fn forget(&self, caller: &AgentId, negotiation: &NegotiationId) {
        let mut watched = self.0.watched.lock();
        let transactions = watched.by_caller.get_mut(caller);
        if transactions.is_some_and(|transactions| transactions.by_negotiation.remove(negotiation).is_some()) {
            watched.count -= 1;
        }
    }

    /// Hears a caller's deliveries until nothing of it is watched. When the gateway stops, whoever waits is told so at once, and
    /// thereby cancels its call; that end of it is still heard, so that nobody else has to acknowledge it.
    async fn drive(self, caller: AgentId, opened: watch::Sender<StreamState>) {
        let mut stream = match self.0.streams.open(&caller).await {
            Ok(stream) => stream,
            Err(refusal) => {
                self.0.end(&caller);
                opened.send_replace(StreamState::Refused(refusal));
                return;
            }
        };
        opened.send_replace(StreamState::Open);
        let ended = stream.ended();
        let mut sweeps = interval(SWEEP_PERIOD);
        let mut until = None;
        while until.is_none() || !self.0.is_closed(&caller) {
            tokio::select! {
                biased;
                () = self.0.stop.cancelled(), if until.is_none() => {
                    self.0.dismiss(&caller);
                    until = Some(Instant::now() + CLOSING_MAX);
                }
                () = ended.cancelled() => break,
                delivery = stream.next() => match delivery {
                    Some(Ok(delivery)) => self.0.hear(&caller, &delivery),
                    // Somebody else's fault, which streams count; it comes again.
                    Some(Err(_)) => {}
                    None => break,
                },
                now = sweeps.tick() => {
                    if self.0.is_idle(&caller, now) {
                        return;
                    }
                    if until.is_some_and(|until| until <= now) {
                        break;
                    }
                }
            }
        }
        self.0.end(&caller);
    }
}

impl TransactionParts {
    /// Nobody waits for a caller's transactions any more.
    fn dismiss(&self, caller: &AgentId) {
        let mut watched = self.watched.lock();
        let transactions = watched.by_caller.get_mut(caller);
        for transaction in transactions.into_iter().flat_map(|transactions| transactions.by_negotiation.values_mut()) {
            transaction.waiting = None;
        }
    }

    /// Whether everything of a caller that is watched has been closed.
    fn is_closed(&self, caller: &AgentId) -> bool {
        let watched = self.watched.lock();
        let transactions = watched.by_caller.get(caller);
        transactions.is_none_or(|transactions| transactions.by_negotiation.values().all(|one| one.is_closed))
    }

    /// Nothing of a caller is watched any more: whoever waits is told so.
    fn end(&self, caller: &AgentId) {
        let mut watched = self.watched.lock();
        if let Some(transactions) = watched.by_caller.remove(caller) {
            watched.count -= transactions.by_negotiation.len();
        }
    }

    /// Forgets what was watched long enough; whether nothing of the caller is left.
    fn is_idle(&self, caller: &AgentId, now: Instant) -> bool {
        let mut watched = self.watched.lock();
        let Some(transactions) = watched.by_caller.get_mut(caller) else { return true };
        let before = transactions.by_negotiation.len();
        transactions.by_negotiation.retain(|_, transaction| transaction.forget_at > now);
        let after = transactions.by_negotiation.len();
        if after == 0 {
            watched.by_caller.remove(caller);
        }
        watched.count -= before - after;
        after == 0
    }

    /// Takes a delivery of a transaction in, and acknowledges it; leaves any other alone.
    fn hear(&self, caller: &AgentId, delivery: &[u8]) {
        #[derive(Deserialize)]
        struct HeardDelivery {
            envelope: HeardEnvelope,
        }
        #[derive(Deserialize)]
        struct HeardEnvelope {
            msg_id: DeliveryId,
            negotiation: NegotiationId,
        }
        // A delivery that cannot be read is told by the streams of its caller.
        let Ok(HeardDelivery { envelope }) = serde_json::from_slice::<HeardDelivery>(delivery) else { return };
        {
            let mut watched = self.watched.lock();
            let transactions = watched.by_caller.get_mut(caller);
            let transaction =
                transactions.and_then(|transactions| transactions.by_negotiation.get_mut(&envelope.negotiation));
            let Some(transaction) = transaction else { return };
            match Delivery::decode(delivery) {
                Ok(delivery) => {
                    let now = Instant::now();
                    delivery.receipts_told().for_each(|receipt| transaction.hear_receipt(receipt, now));
                    transaction.hear(delivery.payload);
                    transaction.settle(now);
                }
                Err(error) => return tracing::error!(%error, "a delivery of a transaction cannot be read"),
            }
        }
        if let Err(refusal) = self.acknowledgements.collect(caller, &[envelope.msg_id]) {
            tracing::error!(%refusal, "a delivery of a transaction was not acknowledged");
        }
    }
}

impl WatchedTransaction {
    fn hear_receipt(&mut self, receipt: &Receipt, now: Instant) {
        if receipt.ack_of.as_str() != self.call.msg_id || self.is_taken {
            return;
        }
        if receipt.disposition == Disposition::Ok {
            self.is_taken = true;
            if let Some(end) = self.early.take() {
                self.tell(end);
            }
        } else if let Some(waiting) = self.waiting.take() {
            // What else is told of this negotiation is the caller's own matter.
            self.forget_at = self.forget_at.min(now + LINGER);
            // Whoever waited may have gone.
            let _ = waiting.send(TransactionEnd::NotTaken(receipt.disposition));
        }
    }

    fn hear(&mut self, told: Notification) {
        if let Notification::Failure(told) = told {
            self.failure = Some(told.failure.code);
        } else if let Notification::Closed(closing) = told {
            self.is_closed = true;
            // Deliveries may come in another order than they were sent: the report of what is complete is on its way.
            if closing.outcome != Outcome::Completed {
                let failure = self.failure.take().map(TransactionEnd::Failed);
                self.tell(failure.unwrap_or(TransactionEnd::Ended(closing.outcome)));
            }
        } else if let Notification::Inform(ProgressReport::Result(report) | ProgressReport::Done(report)) = told
            && report.contractor == self.call.agent
        {
            self.tell(TransactionEnd::Answered(report.result.unwrap_or_default(), report.routine));
        }
    }

    /// One whose end was told and that is closed is watched a moment longer.
    fn settle(&mut self, now: Instant) {
        if self.waiting.is_none() && self.is_closed {
            self.forget_at = self.forget_at.min(now + LINGER);
        }
    }

    /// The end, unless it was told before: now, or once the call is known to be taken.
    fn tell(&mut self, end: TransactionEnd) {
        if !self.is_taken {
            self.early.get_or_insert(end);
        } else if let Some(waiting) = self.waiting.take() {
            // Whoever waited may have gone.
            let _ = waiting.send(end);
        }
    }
}
