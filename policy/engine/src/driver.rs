//! The task of one lane: it alone owns the lane's state and outbox, so nothing here is locked.
//!
//! ```text
//! wait for one wake -> handle it -> handle whatever else is ready (bounded) -> act: timers, writes, appends, publish
//! ```
//! An idle lane acts on a single record at once; a busy one folds many before it publishes, so that their deliveries
//! share inbox messages. Nothing waits for a batch to fill.

mod act;
mod answers;
mod backlog;
mod fold;
mod inputs;
mod maintenance;
mod opening;
mod ownership;
mod questions;
mod report;
mod stop;
mod telling;
mod uncounted;

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::appender::Appender;
use bus::{Bus, BusError};
use bytes::Bytes;
use policy_core::LaneState;
use schemas::{Lane, NegotiationId};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::backlog::Backlog;
use self::inputs::{Inputs, LaneWake};
use self::maintenance::Maintenance;
use self::ownership::OwnershipState;
use self::questions::Questions;
pub(crate) use self::stop::STOP_MAX;
use self::telling::Reporting;
use self::uncounted::UncountedEvents;
use crate::abort::Aborts;
use crate::backlog::SharedDeadLetters;
use crate::clock_health::ClockHealth;
use crate::config::EngineConfig;
use crate::delivered::DeliveredBatch;
use crate::digests::{Digests, Mismatch};
use crate::ingress::Signal;
use crate::membership::MembershipInput;
use crate::metrics::{EngineMetrics, LaneGauges};
use crate::observer::FoldObserver;
use crate::outbox::Outbox;
use crate::register::Registrar;
use crate::status::{LaneStatus, StopReason};
use crate::tick::LogClock;
use crate::tick::Ticker;
use crate::trace::Traces;

/// Most requests for views taken in between two flushes; each costs one look-up and one document.
const VIEWS_PER_BATCH_MAX: usize = 16;

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

/// See the module.
pub(crate) struct Driver {
    lane: Lane,
    shared: Shared,
    gauges: LaneGauges,
    status: watch::Sender<LaneStatus>,
    inputs: Inputs,
    appender: Appender,
    lane_state: LaneState,
    outbox: Outbox,
    registrar: Registrar,
    aborts: Aborts,
    clock: LogClock,
    clock_health: ClockHealth,
    ticker: Ticker,
    delivered: DeliveredBatch,
    digests: Digests,
    maintenance: Maintenance,
    telling: Reporting,
    uncounted: UncountedEvents,
    traces: Traces,
    backlog: Backlog,
    ownership: OwnershipState,
    /// Of the live engines, this one should own the lane.
    is_first: bool,
    /// The rules version every live engine folds, where it is newer than the lane's, and when to append it.
    rules_wanted: Option<(u32, Instant)>,
    /// Why the last claim was not appended.
    claim_failure: Option<String>,
    membership: mpsc::Sender<MembershipInput>,
    /// Last record read.
    position: u64,
    /// Last record that led to a register write.
    wrote_at: u64,
    /// Content of the last record read; empty before the first.
    last: Bytes,
    /// Records folded since the lane was opened or rebuilt.
    folded: u64,
    /// Why the log cannot be read on.
    broken: Option<BusError>,
    /// Not before then is the subscription for views tried again.
    views_at: Instant,
    /// Negotiations whose messages made the fold panic.
    blamed: BTreeSet<NegotiationId>,
    /// Public notices to publish with the next flush.
    notices: Vec<(String, Bytes)>,
    /// Requests for views and journals.
    questions: Questions,
}

impl Driver {
    /// Runs until the engine shuts down or the lane cannot go on.
    pub(crate) async fn drive(mut self) {
        let reason = loop {
            if let Err(reason) = self.handle_progress() {
                break reason;
            }
            self.act().await;
            let wake = self.inputs.wait(self.wake_at(), self.takes_records()).await;
            if let Err(reason) = self.handle(wake).and_then(|()| self.handle_ready()) {
                break reason;
            }
            if let Some(error) = self.broken.take()
                && let Err(reason) = self.rebuild(error).await
            {
                break reason;
            }
        };
        self.stop(reason).await;
    }

    /// Whether there is room for what further records cause. While the lane is not owned nothing can make room.
    fn takes_records(&self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        match self.ownership {
            OwnershipState::Owner { .. } => !(self.outbox.is_full() || self.registrar.is_full()),
            OwnershipState::Yielding { .. } => false,
            OwnershipState::CatchingUp { .. } | OwnershipState::Standby { .. } | OwnershipState::Claiming(_) => true,
        }
    }

    fn handle(&mut self, wake: LaneWake) -> Result<(), StopReason> {
        match wake {
            LaneWake::Record(Ok(record)) => self.handle_record(&record),
            LaneWake::Record(Err(error)) => self.handle_unreadable(error),
            LaneWake::Signal(signal) => self.handle_signal(signal),
            LaneWake::Maintenance(done) => {
                self.handle_maintenance(done);
                Ok(())
            }
            LaneWake::Write(done) => {
                self.handle_write(&done);
                Ok(())
            }
            LaneWake::Append(done) => {
                self.handle_append(done);
                Ok(())
            }
            LaneWake::View(request) => {
                self.questions.add(request);
                Ok(())
            }
            LaneWake::End(end) => {
                self.questions.handle_end(end);
                Ok(())
            }
            LaneWake::Peers => {
                self.handle_peers();
                Ok(())
            }
            LaneWake::Time => Ok(()),
            LaneWake::Shutdown => Err(StopReason::Shutdown),
        }
    }

    /// Handles what is ready, a bounded part of each source, so that none starves another.
    fn handle_ready(&mut self) -> Result<(), StopReason> {
        self.handle_ready_signals()?;
        while let Some(done) = self.inputs.ready_write() {
            self.handle_write(&done);
        }
        while let Some(done) = self.inputs.ready_append() {
            self.handle_append(done);
        }
        while let Some(end) = self.inputs.ready_end() {
            self.questions.handle_end(end);
        }
        for _ in 0..VIEWS_PER_BATCH_MAX {
            let Some(request) = self.inputs.ready_view() else { break };
            self.handle(LaneWake::View(request))?;
        }
        for _ in 1..self.shared.config.batch.records_max {
            if !self.takes_records() {
                break;
            }
            match self.inputs.ready_record() {
                Some(Ok(record)) => self.handle_record(&record)?,
                Some(Err(error)) => self.handle_unreadable(error)?,
                None => {
                    if self.is_fit() {
                        self.clock_health.handle_end(&self.shared.config.clock);
                    }
                    break;
                }
            }
        }
        while let Some(done) = self.inputs.ready_maintenance() {
            self.handle_maintenance(done);
        }
        Ok(())
    }

    /// The log does not go on from the last record read. Where it has lost or trimmed records, the lane begins anew.
    fn handle_unreadable(&mut self, error: BusError) -> Result<(), StopReason> {
        if !matches!(error, BusError::Diverged(_) | BusError::Trimmed(_)) {
            return Err(StopReason::LogUnreadable(error.to_string()));
        }
        self.broken = Some(error);
        Ok(())
    }

    fn handle_ready_signals(&mut self) -> Result<(), StopReason> {
        for _ in 0..self.shared.config.batch.acks_max {
            let Ok(signal) = self.inputs.signals.try_recv() else { break };
            self.handle_signal(signal)?;
        }
        Ok(())
    }

    fn handle_signal(&mut self, signal: Signal) -> Result<(), StopReason> {
        match signal {
            Signal::Acked(agent, ids) if self.is_owner() => {
                let now = Instant::now();
                for id in ids {
                    if self.outbox.handle_ack(&agent, id, now) {
                        self.delivered.add(id, now);
                    }
                }
                self.note_delivery_events();
            }
            Signal::Acked(agent, ids) => ids.into_iter().for_each(|id| self.outbox.handle_ack_heard(&agent, id)),
            Signal::Hello(agent) => self.outbox.handle_hello(&agent),
            Signal::Digests(engine, points) => {
                if let Some(mismatch) = self.digests.compare(&engine, &points) {
                    return Err(self.handle_mismatch(mismatch));
                }
            }
        }
        Ok(())
    }

    /// Emission stops: one of two engines is wrong, and nobody knows which.
    fn handle_mismatch(&self, mismatch: Mismatch) -> StopReason {
        self.shared.metrics.engines.count_mismatch();
        let Mismatch { engine, position, ours, theirs } = mismatch;
        StopReason::DigestMismatch { engine, position, ours: ours.to_string(), theirs: theirs.to_string() }
    }
}
