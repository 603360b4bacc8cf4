//! The task of one lane: it alone owns the lane's state and outbox, so nothing here is locked.
//!
//! ```text
//! wait for one wake -> handle it -> handle whatever else is ready (bounded) -> act: timers, writes, appends, publish
//! ```
//! An idle lane acts on a single record at once; a busy one folds many before it publishes, so that their deliveries
//! share inbox messages. Nothing waits for a batch to fill.
//!
//! | part | owns |
//! |---|---|
//! | [`fold`] | the lane's state, how far the log is folded into it, log time |
//! | [`ownership`] | whether this engine owns the lane |
//! | [`publish`] | what leaves: deliveries, writes of the register, entries of the engine |
//! | [`requests`] | who asks for views and journals |
//! | [`maintenance`] | checkpoints and trims |
//! | [`recovery`] | how the lane gets its state back |
//! | `Inputs`, here | everything that can wake the lane |
//! | [`observer`] | what people are told of all this |

mod abort;
mod backlog;
mod checkpoint;
mod clock_health;
mod delivered;
mod document;
mod driver;
mod fold;
mod log_reader;
mod maintenance;
mod observer;
mod outbox;
mod ownership;
mod publish;
mod recovery;
mod register;
mod requests;
mod tick;

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use bus::appender::AppendError;
use bus::{Bus, BusError, LogRecord, Received, Registered};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use policy_core::LaneState;
use schemas::{DeliveryId, NegotiationId, Position, RegisterKey, Timestamp};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::abort::Aborts;
use self::backlog::LaneBacklog;
pub(crate) use self::backlog::{BacklogReporter, SharedDeadLetters};
use self::delivered::Batch;
pub(crate) use self::driver::{LaneDriver, STOP_MAX};
use self::log_reader::LogReader;
use self::maintenance::MaintenanceDone;
pub use self::observer::FoldObserver;
use self::observer::LaneStatistics;
pub(crate) use self::observer::StatisticsReporter;
use self::outbox::Outbox;
pub(crate) use self::recovery::RecoveryError;
use self::register::Registrar;
use crate::config::EngineConfig;
use crate::ingress::Signal;
use crate::membership::LiveEngines;
use crate::metrics::EngineMetrics;
use crate::status::LaneStatus;

/// What every lane of an engine is given.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) bus: Bus,
    pub(crate) config: EngineConfig,
    pub(crate) metrics: Arc<EngineMetrics>,
    pub(crate) observer: Option<Arc<dyn FoldObserver>>,
    pub(crate) cancel: CancellationToken,
    /// What was given up, for the log.
    pub(crate) dead_letters: SharedDeadLetters,
    /// Wakes the task that reports backlogs.
    pub(crate) backlog_wake: Arc<Notify>,
}

/// A lane as it stands before its next record.
struct Recovered {
    lane_state: LaneState,
    outbox: Outbox,
    registrar: Registrar,
    aborts: Aborts,
    blamed: BTreeSet<NegotiationId>,
    /// Sequence of the last record folded, 0 at the beginning.
    position: u64,
    /// Its log time.
    time: Timestamp,
    /// The last record there was.
    target: u64,
    /// What the log had trimmed.
    trimmed: u64,
    /// Reads on from `position`.
    reader: LogReader,
}

/// What a lane lets others see of it.
pub(crate) struct Watched {
    pub(crate) status: watch::Receiver<LaneStatus>,
    pub(crate) statistics: watch::Receiver<LaneStatistics>,
    pub(crate) backlog: watch::Receiver<LaneBacklog>,
}

/// What woke the lane.
enum LaneWake {
    /// The log has a record, or cannot be read any more.
    Record(Result<LogRecord, BusError>),
    /// An acknowledgement or a hello.
    Signal(Signal),
    /// The register answered.
    Write(WriteDone),
    /// The log answered an append.
    Append(AppendDone),
    /// A view or a journal is asked for.
    Request(Received),
    /// The log tells where it ends, or nothing.
    End(Option<u64>),
    /// Another engine came or went.
    Peers,
    /// A checkpoint or a trim is done.
    Maintenance(MaintenanceDone),
    /// An instant the lane waited for.
    Time,
    /// The engine shuts down.
    Shutdown,
}

/// An answer of the register.
struct WriteDone {
    key: RegisterKey,
    started: Instant,
    answer: Result<Registered, BusError>,
}

/// An answer of the log.
struct AppendDone {
    purpose: Purpose,
    outcome: Result<Position, AppendError>,
}

/// What an engine's entry was appended for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Claim,
    Tick,
    Delivered(Batch),
    DeliveryFailed(DeliveryId),
    Abort(NegotiationId),
    Rules,
}

/// The sources. Futures and streams that a wake leaves unread keep what they have.
struct Inputs {
    cancel: CancellationToken,
    live: watch::Receiver<Option<Arc<LiveEngines>>>,
    log: LogReader,
    signals: mpsc::Receiver<Signal>,
    /// Absent until the lane is owned: nobody else answers for it.
    requests: Option<BoxStream<'static, Received>>,
    writes: FuturesUnordered<BoxFuture<'static, WriteDone>>,
    appends: FuturesUnordered<BoxFuture<'static, AppendDone>>,
    maintenance: FuturesUnordered<BoxFuture<'static, MaintenanceDone>>,
    ends: FuturesUnordered<BoxFuture<'static, Option<u64>>>,
}

impl Inputs {
    fn new(
        cancel: CancellationToken,
        live: watch::Receiver<Option<Arc<LiveEngines>>>,
        signals: mpsc::Receiver<Signal>,
        log: LogReader,
    ) -> Self {
        let (writes, appends) = (FuturesUnordered::new(), FuturesUnordered::new());
        let (maintenance, ends) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self { cancel, live, log, signals, requests: None, writes, appends, maintenance, ends }
    }

    /// Reads another log; what was asked of the bus for the state that is gone is not waited for.
    fn restart(&mut self, log: LogReader) {
        self.log = log;
        self.requests = None;
        self.writes.clear();
        self.appends.clear();
        self.maintenance.clear();
        self.ends.clear();
    }

    /// Waits for the next wake; `at` is when time alone would be one. Records are left in the log unless `reads`.
    ///
    /// The order is fixed, so that a run can be repeated. No source starves another, because the lane handles a bounded
    /// part of each between two waits.
    async fn wait(&mut self, at: Option<Instant>, reads: bool) -> LaneWake {
        let Self { cancel, live, log, signals, requests, writes, appends, maintenance, ends } = self;
        let request = async {
            match requests {
                Some(requests) => requests.next().await,
                None => pending().await,
            }
        };
        let time = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => LaneWake::Shutdown,
            Ok(()) = live.changed() => LaneWake::Peers,
            Some(done) = writes.next() => LaneWake::Write(done),
            Some(done) = appends.next() => LaneWake::Append(done),
            Some(done) = maintenance.next() => LaneWake::Maintenance(done),
            Some(signal) = signals.recv() => LaneWake::Signal(signal),
            record = log.next(), if reads => LaneWake::Record(record),
            Some(end) = ends.next() => LaneWake::End(end),
            Some(request) = request => LaneWake::Request(request),
            () = time => LaneWake::Time,
        }
    }

    /// From now on a shutdown wakes the lane no more.
    fn ignore_shutdown(&mut self) {
        self.cancel = CancellationToken::new();
    }

    /// Who is alive, if that is known yet.
    fn live(&self) -> Option<Arc<LiveEngines>> {
        self.live.borrow().clone()
    }

    /// As [`Inputs::live`], and wakes the lane only for what changes from here on.
    fn take_live(&mut self) -> Option<Arc<LiveEngines>> {
        self.live.borrow_and_update().clone()
    }

    /// Reads requests from now on.
    fn open_requests(&mut self, requests: BoxStream<'static, Received>) {
        self.requests = Some(requests);
    }

    /// Nothing is answered for the lane any more.
    fn close_requests(&mut self) {
        self.requests = None;
        self.ends.clear();
    }

    fn has_requests(&self) -> bool {
        self.requests.is_some()
    }

    fn start_write(&mut self, write: BoxFuture<'static, WriteDone>) {
        self.writes.push(write);
    }

    fn start_append(&mut self, append: BoxFuture<'static, AppendDone>) {
        self.appends.push(append);
    }

    fn start_maintenance(&mut self, work: BoxFuture<'static, MaintenanceDone>) {
        self.maintenance.push(work);
    }

    fn start_end(&mut self, end: BoxFuture<'static, Option<u64>>) {
        self.ends.push(end);
    }

    /// Writes of the register that are not answered.
    fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Appends that are not answered.
    fn appends_len(&self) -> usize {
        self.appends.len()
    }

    /// The next record, if it is there already; as the next ones, of their source.
    fn ready_record(&mut self) -> Option<Result<LogRecord, BusError>> {
        self.log.next().now_or_never()
    }

    fn ready_signal(&mut self) -> Option<Signal> {
        self.signals.try_recv().ok()
    }

    fn ready_write(&mut self) -> Option<WriteDone> {
        self.writes.next().now_or_never().flatten()
    }

    fn ready_append(&mut self) -> Option<AppendDone> {
        self.appends.next().now_or_never().flatten()
    }

    fn ready_maintenance(&mut self) -> Option<MaintenanceDone> {
        self.maintenance.next().now_or_never().flatten()
    }

    fn ready_end(&mut self) -> Option<Option<u64>> {
        self.ends.next().now_or_never().flatten()
    }

    fn ready_request(&mut self) -> Option<Received> {
        self.requests.as_mut()?.next().now_or_never().flatten()
    }
}
