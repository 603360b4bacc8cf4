//! The task of one lane: it alone owns the lane's book and outbox, so nothing here is locked.
//!
//! ```text
//! wait for one wake -> handle it -> handle whatever else is ready (bounded) -> act: timers, writes, appends, publish
//! ```
//! An idle lane acts on a single record at once; a busy one folds many before it publishes, so that their deliveries
//! share inbox messages. Nothing waits for a batch to fill.

mod act;
mod fold;
mod inputs;
mod stop;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bus::appender::{Appender, AppenderOptions};
use bus::{Bus, BusError, Received, Registered};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use policy_core::Book;
use schemas::{Lane, NegotiationId, RegisterKey};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::inputs::{AppendDone, Inputs, Purpose, Wake, WriteDone};
pub(crate) use self::stop::STOP_MAX;
use crate::abort::{AbortCode, Aborts};
use crate::clock::LogClock;
use crate::config::EngineConfig;
use crate::delivered::DeliveredBatch;
use crate::ingress::Signal;
use crate::log_reader::LogReader;
use crate::metrics::{EngineMetrics, LaneGauges, WriteResult};
use crate::outbox::Outbox;
use crate::register::{Answer, Registrar};
use crate::status::{LanePhase, LaneStatus, StopReason};
use crate::tap::Tap;
use crate::tick::Ticker;

/// Most requests for views answered between two flushes; each costs one look-up and one document.
const VIEWS_PER_BATCH_MAX: usize = 16;

/// What every lane of an engine is given.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) bus: Bus,
    pub(crate) config: EngineConfig,
    pub(crate) metrics: Arc<EngineMetrics>,
    pub(crate) tap: Option<Arc<dyn Tap>>,
    pub(crate) cancel: CancellationToken,
}

/// See the module.
pub(crate) struct Driver {
    lane: Lane,
    shared: Shared,
    gauges: LaneGauges,
    status: watch::Sender<LaneStatus>,
    inputs: Inputs,
    appender: Appender,
    book: Book,
    outbox: Outbox,
    registrar: Registrar,
    aborts: Aborts,
    clock: LogClock,
    ticker: Ticker,
    delivered: DeliveredBatch,
    stage: Stage,
    /// Last record read.
    position: u64,
    /// What the register held when the lane was opened; gone once the log is caught up.
    registered: HashMap<RegisterKey, Bytes>,
    /// Negotiations whose messages made the fold panic.
    blamed: BTreeSet<NegotiationId>,
    /// Public notices to publish with the next flush.
    notices: Vec<(String, Bytes)>,
    /// Requests for views, answered with the next flush: after the records that are there already.
    asked: Vec<Received>,
}

/// How far the lane has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Folds silently up to what was stored when the lane was opened.
    CatchingUp { target: u64 },
    /// Has asked, or asks at `retry_at`, for the lane.
    Claiming { epoch: u64, claims: u32, retry_at: Option<Instant> },
    /// Emits under this epoch.
    Owner { epoch: u64 },
}

impl Driver {
    /// Opens a lane. `registered` is what the register holds for its negotiations.
    pub(crate) async fn open(
        lane: Lane,
        shared: Shared,
        signals: mpsc::Receiver<Signal>,
        registered: HashMap<RegisterKey, Bytes>,
    ) -> Result<(Self, watch::Receiver<LaneStatus>), BusError> {
        let log = Arc::clone(&shared.bus.log);
        let target = log.last_seq(lane).await?;
        let reader = LogReader::open(Arc::clone(&log), lane).await?;
        let (status, watched) = watch::channel(LaneStatus::new(lane));
        let (now, config, metrics) = (Instant::now(), &shared.config, &shared.metrics);
        let driver = Self {
            lane,
            gauges: metrics.lane(lane),
            status,
            inputs: Inputs {
                cancel: shared.cancel.clone(),
                log: reader,
                signals,
                views: None,
                writes: FuturesUnordered::new(),
                appends: FuturesUnordered::new(),
            },
            appender: Appender::spawn(log, lane, config.id.clone(), AppenderOptions::default()),
            book: Book::new(lane, config.limits.clone()),
            outbox: Outbox::new(config.outbox.clone(), Arc::clone(metrics), now),
            registrar: Registrar::new(),
            aborts: Aborts::new(now),
            clock: LogClock::new(now),
            ticker: Ticker::new(now),
            delivered: DeliveredBatch::new(&config.batch),
            stage: Stage::CatchingUp { target },
            position: 0,
            registered,
            blamed: BTreeSet::new(),
            notices: Vec::new(),
            asked: Vec::new(),
            shared,
        };
        Ok((driver, watched))
    }

    /// Runs until the engine shuts down or the lane cannot go on.
    pub(crate) async fn drive(mut self) {
        let reason = loop {
            if let Err(reason) = self.handle_progress() {
                break reason;
            }
            if let Err(reason) = self.act().await {
                break reason;
            }
            let wake = self.inputs.wait(self.wake_at(), self.takes_records()).await;
            if let Err(reason) = self.handle(wake).and_then(|()| self.handle_ready()) {
                break reason;
            }
        };
        self.stop(reason).await;
    }

    fn is_owner(&self) -> bool {
        matches!(self.stage, Stage::Owner { .. })
    }

    /// Whether there is room for what further records cause. Before the lane is owned nothing can make room.
    fn takes_records(&self) -> bool {
        !(self.is_owner() && (self.outbox.is_full() || self.registrar.is_full()))
    }

    fn handle(&mut self, wake: Wake) -> Result<(), StopReason> {
        match wake {
            Wake::Record(Ok(record)) => self.handle_record(&record),
            Wake::Record(Err(error)) => Err(StopReason::LogUnreadable(error.to_string())),
            Wake::Signal(signal) => {
                self.handle_signal(signal);
                Ok(())
            }
            Wake::Write(done) => {
                self.handle_write(&done);
                Ok(())
            }
            Wake::Append(done) => {
                self.handle_append(done);
                Ok(())
            }
            Wake::View(request) => {
                self.asked.push(request);
                Ok(())
            }
            Wake::Time => Ok(()),
            Wake::Shutdown => Err(StopReason::Shutdown),
        }
    }

    /// Handles what is ready, a bounded part of each source, so that none starves another.
    fn handle_ready(&mut self) -> Result<(), StopReason> {
        self.handle_ready_signals();
        while let Some(done) = self.inputs.ready_write() {
            self.handle_write(&done);
        }
        while let Some(done) = self.inputs.ready_append() {
            self.handle_append(done);
        }
        for _ in 0..VIEWS_PER_BATCH_MAX {
            let Some(request) = self.inputs.ready_view() else { break };
            self.handle(Wake::View(request))?;
        }
        for _ in 1..self.shared.config.batch.records_max {
            if !self.takes_records() {
                break;
            }
            let Some(record) = self.inputs.ready_record() else { break };
            self.handle(Wake::Record(record))?;
        }
        Ok(())
    }

    fn handle_ready_signals(&mut self) {
        for _ in 0..self.shared.config.batch.acks_max {
            let Ok(signal) = self.inputs.signals.try_recv() else { break };
            self.handle_signal(signal);
        }
    }

    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Acked(agent, ids) => {
                let now = Instant::now();
                for id in ids {
                    if self.outbox.handle_ack(&agent, id, now) {
                        self.delivered.add(id, now);
                    }
                }
            }
            Signal::Hello(agent) => self.outbox.handle_hello(&agent),
        }
    }

    fn handle_write(&mut self, done: &WriteDone) {
        let now = Instant::now();
        let result = match &done.answer {
            Ok(Registered::Written) => WriteResult::Written,
            Ok(Registered::Same) => WriteResult::Same,
            Ok(Registered::Different(_)) => WriteResult::Different,
            Err(_) => WriteResult::Error,
        };
        self.shared.metrics.register_answered(result, now.saturating_duration_since(done.started));
        match self.registrar.handle_answer(&done.key, &done.answer, now) {
            Answer::Written => self.outbox.handle_register(&done.key, false),
            Answer::Refused(negotiation) => {
                tracing::error!(key = %done.key, "register conflict: another value stands there; the negotiation is aborted");
                self.shared.metrics.register_conflict();
                self.aborts.want(negotiation, AbortCode::RegisterConflict);
                self.outbox.handle_register(&done.key, true);
            }
            Answer::Retried => {
                let error = done.answer.as_ref().err().map(ToString::to_string);
                tracing::warn!(key = %done.key, error, "the register did not answer; the write is repeated");
            }
        }
    }

    fn handle_append(&mut self, done: AppendDone) {
        let now = Instant::now();
        if let Err(error) = &done.outcome {
            tracing::warn!(lane = self.lane.0, purpose = ?done.purpose, %error, "an engine's entry was not appended");
        }
        let seq = done.outcome.ok().map(|position| position.seq);
        match done.purpose {
            Purpose::Claim => self.handle_claim_append(seq, now),
            Purpose::Tick => {
                self.shared.metrics.tick_appended();
                self.ticker.handle_append(seq, self.position, now);
            }
            Purpose::Delivered(ids) => self.delivered.handle_append(seq.is_none().then_some(ids), now),
            Purpose::DeliveryFailed(id) if seq.is_none() => self.outbox.handle_failure_unlogged(id, now),
            // Not only once it is folded: a full outbox must not wait for a log it has stopped reading.
            Purpose::DeliveryFailed(id) => self.outbox.settle(id),
            Purpose::Abort(negotiation) => self.aborts.handle_append(&negotiation, seq.is_some(), now),
        }
    }

    fn report(&self) {
        self.gauges.set(self.outbox.len(), self.position);
        self.status.send_modify(|status| {
            status.phase = match self.stage {
                Stage::CatchingUp { .. } => LanePhase::CatchingUp,
                Stage::Claiming { .. } => LanePhase::Claiming,
                Stage::Owner { .. } => LanePhase::Owner,
            };
            status.position = self.position;
            status.epoch = self.book.epoch();
            status.now = self.book.now();
            status.open = self.book.open_count();
            status.outbox = self.outbox.len();
            status.register_pending = self.registrar.len();
        });
    }
}
