//! What happens in a lane, for whoever looks: every fact goes to the lane's observer, which counts it, keeps it for journals
//! and statistics, traces it, and passes it on. Nothing of it decides anything.

mod journal;
mod statistics;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use bus::LogRecord;
use policy_core::{Deliver, Event, LaneState, Protocol};
use schemas::admission::LaneAdmission;
use schemas::delivery::Outcome;
use schemas::journal::Journal;
use schemas::record::{EngineEvent, Entry, Record};
use schemas::statistics::{EndedNegotiation, Histogram, OpenNegotiation, PolicyActivity};
use schemas::{AgentId, Lane, NegotiationId, Position, RegisterKey, Timestamp};
use telemetry::{TraceContext, TraceId};
use tokio::sync::watch;
use tokio::time::Instant;

use self::journal::Journals;
use self::statistics::LaneCounters;
use self::trace::Traces;
use super::Shared;
use crate::config::WallClock;
use crate::lane::DeliveryEvent;
use crate::lane::outbox::Outbox;
use crate::metrics::{EngineMetrics, LaneGauges, WriteResult};

pub(crate) use self::statistics::StatisticsReporter;

/// How often a lane says its part between two publications: what statistics say is older by a quarter of their gap at most.
const LANE_UPDATES_PER_INTERVAL: u32 = 4;

/// Follows what lanes fold: for demonstrations, traces and invariant checks. Calls come from the lanes' own tasks, in the
/// order of each lane's log, records of the catch-up included, and must not block.
pub trait FoldObserver: Send + Sync {
    /// A record was read; its events follow.
    fn on_record(&self, record: &LogRecord) {
        let _ = record;
    }

    /// The core reported a fact.
    fn on_event(&self, lane: Lane, event: &Event) {
        let _ = (lane, event);
    }
}

/// What a lane comes to.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneStatistics {
    /// The lane, if it is owned.
    owned: Option<Lane>,
    /// Open negotiations.
    open: usize,
    /// Deliveries not acknowledged.
    unacknowledged: usize,
    /// The newest open ones, newest first.
    newest: Vec<OpenNegotiation>,
    /// What was counted.
    counted: Totals,
}

/// What was counted since the process started.
#[derive(Debug, Clone, Default)]
struct Totals {
    started: u64,
    /// In the order of [`Outcome::ALL`].
    ended: [u64; Outcome::ALL.len()],
    awards: u64,
    binding: u64,
    offers: u64,
    /// An engine that is gone has counted more.
    lower_bound: bool,
    /// From call to end, of what ended in the last minute.
    round: Histogram,
    /// The same of what ended in the last five seconds.
    recent: Histogram,
    policies: Vec<PolicyActivity>,
    agents: Vec<(AgentId, AgentTotals)>,
    /// The newest ended ones, newest first.
    latest: Vec<EndedNegotiation>,
}

/// What one agent did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AgentTotals {
    opened: u64,
    calls: u64,
    offers: u64,
    awards: u64,
    fair_ppm: u64,
    acknowledged: Histogram,
    /// The count of everything when something was counted last.
    last: u64,
}

/// What an engine keeps of a lane for people who ask.
struct Kept {
    journals: Journals,
    counters: LaneCounters,
    statistics: watch::Sender<LaneStatistics>,
    every: Duration,
    at: Instant,
}

/// See the module.
pub(crate) struct LaneObserver {
    lane: Lane,
    engine: String,
    clock: WallClock,
    pub(crate) metrics: Arc<EngineMetrics>,
    gauges: LaneGauges,
    /// Absent where nobody is told anything.
    kept: Option<Kept>,
    uncounted: UncountedEvents,
    traces: Traces,
    follower: Option<Arc<dyn FoldObserver>>,
}

impl LaneObserver {
    /// Gives the lane's part of the engine's statistics beside the observer.
    pub(crate) fn new(lane: Lane, shared: &Shared, now: Instant) -> (Self, watch::Receiver<LaneStatistics>) {
        let Shared { config, metrics, observer: follower, .. } = shared;
        let (sender, receiver) = watch::channel(LaneStatistics::default());
        let kept = (config.statistics_ms > 0).then(|| Kept {
            journals: Journals::default(),
            counters: LaneCounters::default(),
            statistics: sender,
            every: Duration::from_millis(config.statistics_ms) / LANE_UPDATES_PER_INTERVAL,
            at: now,
        });
        let observer = Self {
            lane,
            engine: config.id.clone(),
            clock: Arc::clone(&config.clock.now),
            metrics: Arc::clone(metrics),
            gauges: metrics.lane(lane),
            kept,
            uncounted: UncountedEvents::default(),
            traces: Traces::new(config.tracer.clone(), lane),
            follower: follower.clone(),
        };
        (observer, receiver)
    }

    /// The lane begins with a state at the record `position`, and what it has left to deliver.
    pub(crate) fn begin(&mut self, state: &LaneState, position: u64, outbox: &mut Outbox) {
        self.gauges = self.metrics.lane(self.lane);
        self.gauges.restart(state.open_phases());
        self.gauges.set_checkpoint(position);
        self.uncounted.forget();
        self.forget();
        if self.kept.is_some() || self.traces.is_on() {
            outbox.keep_events(|deliver| self.traces.of_old_delivery(deliver));
        }
    }

    /// The lane is not folded here: what was counted stays, and nothing is shown of a state.
    pub(crate) fn rest(&mut self) {
        self.gauges.hide();
        self.uncounted.forget();
        self.forget();
    }

    /// The lane has another owner, or begins anew: what was kept is no longer how things stand.
    pub(crate) fn forget(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.journals.forget();
        }
        self.traces.forget();
    }

    /// The lane is owned from now on. `is_orderly`: the owner before hands it over, and has counted what it folded;
    /// `outlives`: it is gone, and with it what it counted.
    pub(crate) fn handle_takeover(&mut self, state: &LaneState, is_orderly: bool, outlives: bool) {
        self.metrics.engines.takeovers.inc();
        if let Some(Kept { journals, counters, .. }) = &mut self.kept {
            counters.handle_takeover(outlives);
            journals.handle_takeover(state.open_count());
        }
        if is_orderly { self.uncounted.forget() } else { self.count_uncounted() }
    }

    /// Counts what happened while nobody owned the lane; no journal holds it.
    fn count_uncounted(&mut self) {
        let (events, left_out) = self.uncounted.take();
        if left_out > 0 {
            tracing::warn!(
                lane = self.lane.0,
                left_out,
                "more happened without an owner than is kept; it is not counted"
            );
        }
        for event in &events {
            self.metrics.count_uncounted(event);
            if let Some(kept) = &mut self.kept {
                let at = if let Event::Ended { at, .. } = event { *at } else { Timestamp::default() };
                kept.counters.count(event, at);
            }
        }
    }

    /// Gateways are told how much the lane may be asked to open.
    pub(crate) fn set_admission(&self, told: &LaneAdmission) {
        self.gauges.set_admission(Some(told));
    }

    /// A checkpoint at this position is stored.
    pub(crate) fn handle_checkpoint_stored(&self, position: u64) {
        self.gauges.set_checkpoint(position);
    }
}

/// Facts of the fold.
impl LaneObserver {
    /// A record was read.
    pub(crate) fn handle_record(&self, record: &LogRecord) {
        if let Some(follower) = &self.follower {
            follower.on_record(record);
        }
    }

    /// A record is about to be folded.
    pub(crate) fn handle_decoded(&mut self, record: &Record) {
        self.uncounted.handle_record(record, &self.engine);
    }

    /// The effects that follow were caused by the input at `position` of `record`.
    pub(crate) fn handle_cause(&mut self, position: Option<Position>, record: &Record) {
        self.traces.handle_cause(position, record);
    }

    /// The core reported a fact of `record`.
    pub(crate) fn handle_event(&mut self, event: Event, record: &Record, state: &LaneState, is_owner: bool) {
        if let Some(follower) = &self.follower {
            follower.on_event(self.lane, &event);
        }
        self.gauges.follow(&event, state.now(), is_owner);
        if !is_owner {
            return self.uncounted.add(event);
        }
        self.metrics.count(&event);
        if let Event::InvariantViolated { negotiation, invariant, offer } = &event {
            let trace_id = self.trace_id(negotiation, state);
            tracing::error!(%negotiation, %trace_id, invariant = invariant.as_str(), ?offer, "an invariant is broken");
        }
        self.traces.handle_event(&event, state.now(), record);
        if let Some(Kept { journals, counters, .. }) = &mut self.kept {
            counters.count(&event, state.now());
            journals.note_event(event, state);
        }
    }

    /// Every effect of a record is done. `lag_us` is absent while the lane is not owned.
    pub(crate) fn handle_record_done(&mut self, took: Duration, lag_us: Option<u64>) {
        self.traces.handle_record_done();
        self.metrics.record_folded(took, lag_us);
    }
}

/// Facts of what leaves the lane.
impl LaneObserver {
    /// Where a delivery hangs in its trace, if that is kept.
    pub(crate) fn trace_delivery(&mut self, deliver: &Deliver) -> Option<Box<TraceContext>> {
        self.traces.of_delivery(deliver)
    }

    /// Deliveries have moved on.
    pub(crate) fn handle_deliveries(&mut self, events: Vec<DeliveryEvent>) {
        if events.is_empty() {
            return;
        }
        let at = (self.clock)();
        for event in events {
            self.traces.handle_delivery(&event);
            if let Some(Kept { journals, counters, .. }) = &mut self.kept {
                counters.count_delivery(&event);
                journals.note_delivery(&event, at);
            }
        }
    }

    /// A key of the register is to be written.
    pub(crate) fn handle_write_wanted(&mut self, key: &RegisterKey) {
        self.traces.handle_write(key);
    }

    /// The register answered a write that was begun at `started`.
    pub(crate) fn handle_write_answered(
        &mut self,
        key: &RegisterKey,
        result: WriteResult,
        started: Instant,
        now: Instant,
        state: &LaneState,
    ) {
        let register = &self.metrics.register;
        register.writes.of(result).inc();
        register.write_duration.observe(now.saturating_duration_since(started).as_secs_f64());
        if result == WriteResult::Error {
            return;
        }
        if let Some(kept) = &mut self.kept {
            kept.journals.note_registered(key, result, (self.clock)());
        }
        self.traces.handle_written(key, result, started, state.traceparent(key.negotiation()));
    }

    /// The register holds another value than the log leads to, as a write found or as it was read at the start.
    pub(crate) fn handle_register_conflict(&self, negotiation: &NegotiationId, state: &LaneState) {
        // A negotiation nobody remembers any more is most likely of the older protocol.
        let protocol = self.protocol(negotiation, state).unwrap_or(Protocol::ContractNet);
        self.metrics.register.conflicts.of(protocol).inc();
    }

    /// What a negotiation is, or was, conducted by; the state may have forgotten which, of one that was cancelled or aborted.
    fn protocol(&self, negotiation: &NegotiationId, state: &LaneState) -> Option<Protocol> {
        let kept = self.kept.as_ref().and_then(|kept| kept.journals.protocol(negotiation));
        kept.or_else(|| state.protocol(negotiation))
    }

    /// The trace of a negotiation, for a line of the log.
    pub(crate) fn trace_id(&self, negotiation: &NegotiationId, state: &LaneState) -> TraceId {
        self.traces.trace_of(negotiation, state.traceparent(negotiation))
    }
}

/// What people are told.
impl LaneObserver {
    /// Whether journals are kept.
    pub(crate) fn has_journals(&self) -> bool {
        self.kept.is_some()
    }

    /// What happened in a negotiation, if it is remembered.
    pub(crate) fn journal(&self, negotiation: &NegotiationId) -> Option<Journal> {
        self.kept.as_ref()?.journals.journal(&self.engine, negotiation)
    }

    /// Shows how the lane stands at the record `position`, and says its part of the statistics, when that is due or the
    /// lane has come or gone.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        log_time: Timestamp,
        state: &LaneState,
        (position, unacknowledged): (u64, usize),
        is_owner: bool,
    ) {
        self.gauges.set(unacknowledged, position, is_owner);
        self.gauges.set_evidence(state.evidence().len());
        self.gauges.look(log_time, state.poll_deadline());
        let Some(Kept { journals, counters, statistics, every, at }) = &mut self.kept else { return };
        let is_news = statistics.borrow().owned.is_some() != is_owner;
        if !is_news && (!is_owner || now < *at) {
            return;
        }
        *at = now + *every;
        let counted = counters.counted(log_time);
        statistics.send_replace(if is_owner {
            let (owned, open, newest) = (Some(self.lane), state.open_count(), journals.newest());
            LaneStatistics { owned, open, unacknowledged, newest, counted }
        } else {
            LaneStatistics { counted, ..LaneStatistics::default() }
        });
    }

    /// When the lane's part of the statistics is due; only its owner has one.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.kept.as_ref().map(|kept| kept.at)
    }
}

/// Facts kept while nobody owns the lane; beyond them an outage is not counted whole.
const FACTS_MAX: usize = 65_536;

/// What happened while nobody owned the lane, so that whoever takes it counts it.
///
/// An owner counts what it folds. While there is none (all engines are down, or the next one has not noticed yet), gateways
/// go on appending, and deadlines pass as of the records' times: without this, an outage would leave no trace in what is
/// counted. A record that an engine appended shows that somebody owned the lane, who has counted what came before it; from
/// then on an engine keeps what it folds without owning the lane. Where it then takes the lane from one that is gone, it
/// counts that. What the one before folded behind its own last record is counted twice: about a second of work.
#[derive(Debug, Default)]
struct UncountedEvents {
    events: Vec<Event>,
    left_out: u64,
    /// The record being folded was appended by an owner, who counts it.
    is_counted: bool,
}

impl UncountedEvents {
    /// A record is about to be folded by `own`.
    fn handle_record(&mut self, record: &Record, own: &str) {
        let (mut is_engines, mut is_own_claim) = (false, false);
        for entry in &record.entries {
            match entry {
                Entry::Message(_) => {}
                Entry::Engine { event: EngineEvent::Claim { engine }, .. } if engine == own => is_own_claim = true,
                Entry::Engine { .. } | Entry::Tick => is_engines = true,
            }
        }
        self.is_counted = is_engines && !is_own_claim;
        if self.is_counted {
            self.forget();
        }
    }

    /// A fact folded without owning the lane.
    fn add(&mut self, event: Event) {
        if self.is_counted {
            return;
        }
        if self.events.len() < FACTS_MAX {
            self.events.push(event);
        } else {
            self.left_out += 1;
        }
    }

    /// What is to be counted, and how much was left out.
    fn take(&mut self) -> (Vec<Event>, u64) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.left_out))
    }

    /// Somebody else has counted it.
    fn forget(&mut self) {
        self.events = Vec::new();
        self.left_out = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_before_a_record_of_an_owner_is_counted_already() {
        let mut uncounted = UncountedEvents::default();
        let fold = |uncounted: &mut UncountedEvents, entries: Vec<Entry>| {
            uncounted.handle_record(&Record::new("somebody", entries), "engine-2");
            uncounted.add(fact());
        };
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![Entry::Tick]);
        assert_eq!(count(&mut uncounted), 0, "the owner that appended the tick counts what it led to as well");
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![claim("engine-1")]);
        assert_eq!(count(&mut uncounted), 0, "another takes the lane, and counts");
        fold(&mut uncounted, vec![]);
        fold(&mut uncounted, vec![claim("engine-2")]);
        assert_eq!(count(&mut uncounted), 2, "its own claim is a record like a gateway's");
        assert_eq!(count(&mut uncounted), 0, "once");
    }

    #[test]
    fn no_outage_is_remembered_without_a_bound() {
        let mut uncounted = UncountedEvents::default();
        (0..FACTS_MAX + 3).for_each(|_| uncounted.add(fact()));
        let (events, left_out) = uncounted.take();
        assert_eq!((events.len(), left_out), (FACTS_MAX, 3));
    }

    fn count(uncounted: &mut UncountedEvents) -> usize {
        uncounted.take().0.len()
    }

    fn claim(engine: &str) -> Entry {
        Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: engine.to_owned() } }
    }

    fn fact() -> Event {
        Event::Claimed { engine: Arc::from("engine-1"), epoch: 1 }
    }
}
