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
//! | [`fold`] | the lane's state, how far the log is folded into it, log time, ticks |
//! | [`host`] | whether the lane is folded here at all, and its loop |
//! | [`ownership`] | whether this engine owns the lane |
//! | [`publish`] | what leaves: deliveries ([`outbox`]), writes of the register ([`register`]), entries of the engine ([`delivered`], [`abort`]) |
//! | [`evidence`] | what panels have shown, for gateways |
//! | [`backlog`] | which agents do not acknowledge |
//! | [`admission_rate`] | how much the lane may be asked to open, for gateways |
//! | [`requests`] | who asks for views and journals |
//! | [`checkpoint_and_trim`] | checkpoints and trims |
//! | [`recovery`] | how the lane gets its state back |
//! | `Inputs`, here | everything that can wake the lane |
//! | [`observer`] | what people are told of all this |

mod abort;
mod admission_rate;
mod backlog;
mod checkpoint;
mod checkpoint_and_trim;
mod delivered;
mod document;
mod evidence;
mod fold;
mod host;
mod log_reader;
mod observer;
mod outbox;
mod ownership;
mod publish;
mod recovery;
mod register;
mod requests;

use std::collections::BTreeSet;
use std::future::pending;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bus::appender::AppendError;
use bus::{Bus, BusError, LogRecord, Received, Registered};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use policy_core::LaneState;
use schemas::delivery::Notification;
use schemas::evidence::LaneEvidence;
use schemas::{Act, AgentId, DeliveryId, GatewayId, Lane, NegotiationId, Position, RegisterKey, Timestamp};
use serde::{Deserialize, Serialize};
use telemetry::TraceContext;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::block_in_place;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::abort::Aborts;
use self::admission_rate::AdmissionRate;
pub(crate) use self::backlog::BacklogReporter;
use self::backlog::{BacklogSender, SharedDeadLetters};
pub use self::checkpoint::{CheckpointError, refused_keys};
use self::checkpoint_and_trim::MaintenanceDone;
pub use self::document::DocumentWriter;
pub(crate) use self::evidence::EvidencePublisher;
use self::evidence::EvidenceSender;
pub(crate) use self::host::LaneHost;
use self::log_reader::LogReader;
pub use self::observer::FoldObserver;
pub(crate) use self::observer::StatisticsReporter;
use self::observer::{LaneObserver, LaneStatistics};
use self::outbox::Outbox;
use self::ownership::Ownership;
use self::publish::Publisher;
use self::register::Registrar;
use crate::config::{EngineConfig, Trim};
use crate::ingress::Signal;
use crate::membership::LiveEngines;
use crate::metrics::{DeadLetterReason, EngineMetrics};
use crate::routes::AgentRoutes;
use crate::status::LaneStatus;

/// What every lane of an engine is given.
#[derive(Clone)]
pub(crate) struct Shared {
    bus: Bus,
    config: EngineConfig,
    metrics: Arc<EngineMetrics>,
    observer: Option<Arc<dyn FoldObserver>>,
    /// Where agents are.
    routes: Arc<AgentRoutes>,
    cancel: CancellationToken,
    /// What was given up, for the log.
    dead_letters: SharedDeadLetters,
    /// Wakes the task that reports backlogs.
    backlog_wake: Arc<Notify>,
    /// Wakes the task that publishes evidence.
    evidence_wake: Arc<Notify>,
    /// One for each lane that may be recovered at a time.
    recoveries: Arc<Semaphore>,
}

/// Lanes of an engine that are recovered at a time: each holds a checkpoint and the state it becomes, and keeps a processor
/// busy.
const RECOVERIES_MAX: usize = 4;

impl Shared {
    /// For lanes that run until `cancel`.
    pub(crate) fn new(
        bus: Bus,
        config: EngineConfig,
        metrics: Arc<EngineMetrics>,
        observer: Option<Arc<dyn FoldObserver>>,
        routes: Arc<AgentRoutes>,
        cancel: CancellationToken,
    ) -> Self {
        let (dead_letters, backlog_wake) = (SharedDeadLetters::default(), Arc::default());
        let evidence_wake = Arc::default();
        let recoveries = Arc::new(Semaphore::new(RECOVERIES_MAX));
        Self { bus, config, metrics, observer, routes, cancel, dead_letters, backlog_wake, evidence_wake, recoveries }
    }
}

/// A lane as it stands before its next record.
struct Recovered {
    beginning: Beginning,
    outbox: Outbox,
    registrar: Registrar,
    aborts: Aborts,
    /// The last record there was.
    target: u64,
    /// What the log had trimmed.
    trimmed: u64,
    /// Reads on from the beginning's position.
    reader: LogReader,
}

/// Deliveries that agents have not acknowledged, of one lane.
type LaneBacklog = Vec<(AgentId, AgentBacklog)>;

/// Deliveries that one agent has not acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct AgentBacklog {
    count: usize,
    /// Whether it has acknowledged others lately: it is behind, not silent.
    is_heard: bool,
}

/// What a lane lets others see of it.
pub(crate) struct LaneReceivers {
    pub(crate) status: watch::Receiver<LaneStatus>,
    statistics: watch::Receiver<LaneStatistics>,
    backlog: watch::Receiver<LaneBacklog>,
    evidence: watch::Receiver<Arc<LaneEvidence>>,
}

/// What of a lane outlives its state, so that it can be taken up again.
struct LanePorts {
    status: watch::Sender<LaneStatus>,
    live: watch::Receiver<Option<Arc<LiveEngines>>>,
    signals: mpsc::Receiver<Signal>,
    observer: LaneObserver,
    backlog: BacklogSender,
    evidence: EvidenceSender,
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
    /// From the log time of the record that caused it.
    waited: Duration,
    /// The write came after entries of its time were removed: nothing may follow from it.
    is_expired: bool,
}

/// An answer of the log.
struct AppendDone {
    purpose: Purpose,
    outcome: Result<Position, AppendError>,
}

/// What an engine's entry was appended for.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Purpose {
    Claim,
    Tick,
    Delivered(Batch),
    DeliveryFailed(DeliveryId),
    Abort(NegotiationId),
    Rules,
}

/// Time for a clean stop: several fsyncs of a slow disk, and well under the ten seconds a container is given.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(2);
/// Longest a flush may take. A bus that takes longer is not connected; what was not handed over goes out again later.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Most writes in flight: enough to keep one fsync busy with the closings of a whole group commit, few enough that a
/// lane does not fill the bus's own buffers.
const WRITES_IN_FLIGHT_MAX: usize = 1024;
/// At this many pending writes the lane takes no further records in: eight times what can be in flight.
const WRITES_PENDING_MAX: usize = 8 * WRITES_IN_FLIGHT_MAX;
/// Something became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeliveryEvent {
    /// The delivery.
    id: DeliveryId,
    /// Its negotiation.
    negotiation: NegotiationId,
    /// Its recipient.
    to: AgentId,
    /// What it says.
    act: Act,
    /// Times it was sent; 0 when an earlier owner sent it.
    attempts: u32,
    /// When it was made, or this engine came to hold it.
    made_at: Instant,
    /// From its first sending to its acknowledgement; absent where it is not acknowledged, or an earlier owner sent it.
    waited: Option<Duration>,
    /// What is sent, where a journal keeps of it more than its act.
    told: Option<Arc<Notification>>,
    /// Where it hangs; absent where its trace is not kept, unless it was given up.
    trace: Option<TraceContext>,
    /// What became of it.
    step: DeliveryStep,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveryStep {
    /// It was sent for the first time.
    Sent,
    /// It was sent, and will not be again.
    SentOnce,
    /// Its recipient acknowledged it.
    Acknowledged,
    /// It was given up.
    GivenUp(DeadLetterReason),
}

/// A write to hand to the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Write {
    /// Where.
    key: RegisterKey,
    /// What, in canonical form.
    value: Bytes,
}

/// Whether the register lets a delivery out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gate {
    /// Nothing to wait for, or it is written.
    Open,
    /// Not answered yet.
    Shut(RegisterKey),
    /// Another value stands there: the delivery must never leave.
    Refused,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WriteOutcome {
    /// The key has our value: what waits for it may leave.
    Written,
    /// The key has another value: what waits for these keys, it and those refused with it, must never leave, and the
    /// negotiation must be aborted.
    Refused(NegotiationId, Vec<RegisterKey>),
    /// The same, and the log holds the abort already.
    RefusedAgain(Vec<RegisterKey>),
    /// Unknown; the write is made again later.
    Retried,
}

/// A write that is not known to be answered, as a checkpoint keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingWrite {
    /// The write.
    write: Write,
    /// It starts only once this key is no longer pending.
    after: Option<RegisterKey>,
    /// Sequence of the record that caused it.
    seq: u64,
    /// Log time of that record.
    at: Timestamp,
    /// Whether only its own answer settles it: its negotiation was aborted, perhaps because it was refused elsewhere.
    is_contested: bool,
}

/// What one `delivered` entry says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Batch {
    /// Deliveries that were acknowledged.
    ids: Vec<DeliveryId>,
    /// Up to this record every register write is answered; 0 says nothing.
    registered: u64,
}

/// Why a negotiation is stopped, as it stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum AbortCode {
    /// The register holds another value.
    RegisterConflict,
    /// Folding one of its messages panicked.
    Internal,
}

impl AbortCode {
    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Where a message with deliveries goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Destination {
    /// To an agent's inbox: a JSON array.
    Inbox(AgentId),
    /// To the gateway that holds the streams of its agents: lines.
    Gateway(GatewayId),
}

/// One message with deliveries.
#[derive(Debug, Clone)]
struct Bundle {
    destination: Destination,
    payload: Bytes,
    /// Where each delivery's document stands in the payload.
    documents: Vec<(DeliveryId, Range<usize>)>,
}

/// A claim on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    epoch: u64,
    /// The owner is alive and hands over: what it sent need not be sent again at once.
    is_orderly: bool,
    /// Somebody owned the lane before, and is gone or about to be.
    outlives: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

/// What the lane has to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnershipStep {
    /// Nothing further.
    Settled,
    /// Append a claim of this epoch.
    Claim(u64),
    /// The lane is owned.
    Owned(Claim),
}

/// Where the effects of a fold go.
struct Sinks<'a> {
    ownership: &'a Ownership,
    publisher: &'a mut Publisher,
    observer: &'a mut LaneObserver,
    admission: &'a mut AdmissionRate,
}

/// Where a lane's state comes from: a checkpoint, or the beginning.
struct Beginning {
    state: LaneState,
    /// Sequence of the last record folded, 0 at the beginning.
    position: u64,
    /// Its log time.
    time: Timestamp,
    /// Negotiations whose messages made the fold panic.
    blamed: BTreeSet<NegotiationId>,
}

/// Estimates log time. A record is read after it was stamped, so each reading bounds the log's clock from below, and the
/// highest bound is the best estimate. Nothing is decided by it: it says when a tick or a retry is worth making.
#[derive(Debug)]
struct LogClock {
    stamped: Timestamp,
    read: Instant,
}

impl LogClock {
    fn new(now: Instant) -> Self {
        Self { stamped: Timestamp(0), read: now }
    }

    /// Takes a record's time into account.
    fn observe(&mut self, time: Timestamp, now: Instant) {
        if time >= self.log_time(now) {
            self.reset(time, now);
        }
    }

    /// Starts over from a record's time: the estimate was ahead (the log's clock was set back).
    fn reset(&mut self, time: Timestamp, now: Instant) {
        self.stamped = time;
        self.read = now;
    }

    /// The log's time at `now`, as far as known.
    fn log_time(&self, now: Instant) -> Timestamp {
        let elapsed_us = now.saturating_duration_since(self.read).as_micros();
        Timestamp(self.stamped.0.saturating_add(u64::try_from(elapsed_us).unwrap_or(u64::MAX)))
    }

    /// When the log's time will be `time`; a past instant is given as the anchor's.
    fn instant_of(&self, time: Timestamp) -> Instant {
        // An instant cannot lie arbitrarily far ahead; nothing waits longer than a day for a deadline.
        const AHEAD_US_MAX: u64 = 86_400_000_000;
        self.read + Duration::from_micros(time.since_us(self.stamped).min(AHEAD_US_MAX))
    }
}

/// The lane's current state that decides, together with what is stored, whether register entries may be removed.
struct Answered<'a> {
    /// Last record that led to a write of the register.
    wrote_at: u64,
    /// Up to this record the log says that every write is answered.
    logged: u64,
    /// Negotiations with deliveries that are neither acknowledged nor given up.
    unsettled: BTreeSet<&'a NegotiationId>,
}

/// A write of the register that is answered before its record is this part as old as entries become at least meets none that
/// was removed.
const FENCE_PART: u32 = 60;
/// Longest such time; also where this engine keeps every entry, for another may not.
const FENCE_MAX: Duration = Duration::from_secs(60);

/// How long entries of the register stay at least; absent where they stay for ever.
fn register_keep(config: &EngineConfig) -> Option<Duration> {
    let expires = config.register_keep_ms > 0 && config.trim == Trim::AfterArchive;
    expires.then(|| Duration::from_millis(config.register_keep_ms))
}

/// How old the record may be that caused a write of the register, beyond which it is asked whether the write comes too late
/// (docs/spec/log.md#lg-44).
fn register_fence(config: &EngineConfig) -> Duration {
    register_keep(config).map_or(FENCE_MAX, |keep| (keep / FENCE_PART).min(FENCE_MAX))
}

/// Name of the document that says up to which log time entries of a lane's register may have been removed. Its version is
/// that time, so it never goes back.
fn expired_name(lane: Lane) -> String {
    format!("expired-{lane}")
}

/// Does what keeps a processor busy for long: where the runtime has other threads, its other tasks go on there.
fn at_length<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        RuntimeFlavor::CurrentThread | _ => work(),
    }
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

    /// Whether nothing is waited for that this engine has begun.
    fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.appends.is_empty() && self.maintenance.is_empty()
    }

    /// Who is alive, if that is known yet.
    fn live(&self) -> Option<Arc<LiveEngines>> {
        self.live.borrow().clone()
    }

    /// As [`Inputs::live`], and wakes the lane only for what changes from here on.
    fn take_live(&mut self) -> Option<Arc<LiveEngines>> {
        self.live.borrow_and_update().clone()
    }
}
