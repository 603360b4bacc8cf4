//! Everything that can wake a lane, and nothing else does.

use std::future::pending;
use std::sync::Arc;

use bus::appender::AppendError;
use bus::{BusError, LogRecord, Received, Registered};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use schemas::{DeliveryId, NegotiationId, Position, RegisterKey};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::maintenance::MaintenanceDone;
use crate::delivered::Batch;
use crate::ingress::Signal;
use crate::log_reader::LogReader;
use crate::membership::LiveEngines;

/// What woke the lane.
pub(super) enum LaneWake {
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
pub(super) struct WriteDone {
    pub(super) key: RegisterKey,
    pub(super) started: Instant,
    pub(super) answer: Result<Registered, BusError>,
}

/// An answer of the log.
pub(super) struct AppendDone {
    pub(super) purpose: Purpose,
    pub(super) outcome: Result<Position, AppendError>,
}

/// What an engine's entry was appended for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Claim,
    Tick,
    Delivered(Batch),
    DeliveryFailed(DeliveryId),
    Abort(NegotiationId),
    Rules,
}

/// The sources. Futures and streams that a wake leaves unread keep what they have.
pub(super) struct Inputs {
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
    pub(super) fn new(
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
    pub(super) fn restart(&mut self, log: LogReader) {
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
    pub(super) async fn wait(&mut self, at: Option<Instant>, reads: bool) -> LaneWake {
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
    pub(super) fn ignore_shutdown(&mut self) {
        self.cancel = CancellationToken::new();
    }

    /// Who is alive, if that is known yet.
    pub(super) fn live(&self) -> Option<Arc<LiveEngines>> {
        self.live.borrow().clone()
    }

    /// As [`Inputs::live`], and wakes the lane only for what changes from here on.
    pub(super) fn take_live(&mut self) -> Option<Arc<LiveEngines>> {
        self.live.borrow_and_update().clone()
    }

    /// Reads requests from now on.
    pub(super) fn open_requests(&mut self, requests: BoxStream<'static, Received>) {
        self.requests = Some(requests);
    }

    /// Nothing is answered for the lane any more.
    pub(super) fn close_requests(&mut self) {
        self.requests = None;
        self.ends.clear();
    }

    pub(super) fn has_requests(&self) -> bool {
        self.requests.is_some()
    }

    pub(super) fn start_write(&mut self, write: BoxFuture<'static, WriteDone>) {
        self.writes.push(write);
    }

    pub(super) fn start_append(&mut self, append: BoxFuture<'static, AppendDone>) {
        self.appends.push(append);
    }

    pub(super) fn start_maintenance(&mut self, work: BoxFuture<'static, MaintenanceDone>) {
        self.maintenance.push(work);
    }

    pub(super) fn start_end(&mut self, end: BoxFuture<'static, Option<u64>>) {
        self.ends.push(end);
    }

    /// Writes of the register that are not answered.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Appends that are not answered.
    pub(super) fn appends_len(&self) -> usize {
        self.appends.len()
    }

    /// The next record, if it is there already; as the next ones, of their source.
    pub(super) fn ready_record(&mut self) -> Option<Result<LogRecord, BusError>> {
        self.log.next().now_or_never()
    }

    pub(super) fn ready_signal(&mut self) -> Option<Signal> {
        self.signals.try_recv().ok()
    }

    pub(super) fn ready_write(&mut self) -> Option<WriteDone> {
        self.writes.next().now_or_never().flatten()
    }

    pub(super) fn ready_append(&mut self) -> Option<AppendDone> {
        self.appends.next().now_or_never().flatten()
    }

    pub(super) fn ready_maintenance(&mut self) -> Option<MaintenanceDone> {
        self.maintenance.next().now_or_never().flatten()
    }

    pub(super) fn ready_end(&mut self) -> Option<Option<u64>> {
        self.ends.next().now_or_never().flatten()
    }

    pub(super) fn ready_request(&mut self) -> Option<Received> {
        self.requests.as_mut()?.next().now_or_never().flatten()
    }
}
