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
    /// Somebody asks for a view.
    View(Received),
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
    pub(super) cancel: CancellationToken,
    /// Who is alive.
    pub(super) peers: watch::Receiver<Option<Arc<LiveEngines>>>,
    pub(super) log: LogReader,
    pub(super) signals: mpsc::Receiver<Signal>,
    /// Absent until the lane is owned: nobody else answers for it.
    pub(super) views: Option<BoxStream<'static, Received>>,
    pub(super) writes: FuturesUnordered<BoxFuture<'static, WriteDone>>,
    pub(super) appends: FuturesUnordered<BoxFuture<'static, AppendDone>>,
    pub(super) maintenance: FuturesUnordered<BoxFuture<'static, MaintenanceDone>>,
    pub(super) ends: FuturesUnordered<BoxFuture<'static, Option<u64>>>,
}

impl Inputs {
    /// Waits for the next wake; `at` is when time alone would be one. Records are left in the log unless `reads`.
    ///
    /// The order is fixed, so that a run can be repeated. No source starves another, because the lane handles a bounded
    /// part of each between two waits.
    pub(super) async fn wait(&mut self, at: Option<Instant>, reads: bool) -> LaneWake {
        let Self { cancel, peers, log, signals, views, writes, appends, maintenance, ends } = self;
        let view = async {
            match views {
                Some(views) => views.next().await,
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
            Ok(()) = peers.changed() => LaneWake::Peers,
            Some(done) = writes.next() => LaneWake::Write(done),
            Some(done) = appends.next() => LaneWake::Append(done),
            Some(done) = maintenance.next() => LaneWake::Maintenance(done),
            Some(signal) = signals.recv() => LaneWake::Signal(signal),
            record = log.next(), if reads => LaneWake::Record(record),
            Some(end) = ends.next() => LaneWake::End(end),
            Some(request) = view => LaneWake::View(request),
            () = time => LaneWake::Time,
        }
    }

    /// The next record, if it is there already.
    pub(super) fn ready_record(&mut self) -> Option<Result<LogRecord, BusError>> {
        self.log.next().now_or_never()
    }

    /// The next answer of the register, if it is there already.
    pub(super) fn ready_write(&mut self) -> Option<WriteDone> {
        self.writes.next().now_or_never().flatten()
    }

    /// The next answer of the log, if it is there already.
    pub(super) fn ready_append(&mut self) -> Option<AppendDone> {
        self.appends.next().now_or_never().flatten()
    }

    /// The next work in the background that is done, if any is already.
    pub(super) fn ready_maintenance(&mut self) -> Option<MaintenanceDone> {
        self.maintenance.next().now_or_never().flatten()
    }

    /// The log's answer to where it ends, if it is there already.
    pub(super) fn ready_end(&mut self) -> Option<Option<u64>> {
        self.ends.next().now_or_never().flatten()
    }

    /// The next request for a view, if it is there already.
    pub(super) fn ready_view(&mut self) -> Option<Received> {
        self.views.as_mut()?.next().now_or_never().flatten()
    }
}
