//! What a lane tells people who look: its part of the engine's statistics, and journals. Nothing of it decides anything.

use std::time::Duration;

use bytes::Bytes;
use policy_core::{Event, Protocol};
use schemas::{NegotiationId, RegisterKey};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Driver;
use crate::config::EngineConfig;
use crate::journal::{self, Fact, Memory};
use crate::metrics::WriteResult;
use crate::statistics::LaneStatistics;

/// How often a lane says its part between two publications: what statistics say is older by a quarter of their gap at most.
const PARTS_PER_INTERVAL: u32 = 4;

/// What there is to report_statistics, and when.
pub(super) struct Reporting {
    /// Absent where nobody is told anything.
    memory: Option<Memory>,
    statistics: watch::Sender<LaneStatistics>,
    every: Duration,
    at: Instant,
}

impl Reporting {
    pub(super) fn new(config: &EngineConfig, now: Instant) -> (Self, watch::Receiver<LaneStatistics>) {
        let (statistics, heard) = watch::channel(LaneStatistics::default());
        let memory = (config.statistics_ms > 0).then(Memory::new);
        (
            Self {
                memory,
                statistics,
                every: Duration::from_millis(config.statistics_ms) / PARTS_PER_INTERVAL,
                at: now,
            },
            heard,
        )
    }

    /// Whether anybody is told anything.
    pub(super) fn is_on(&self) -> bool {
        self.memory.is_some()
    }

    /// The lane is owned from now on, with so many negotiations open; `outlives`: whoever owned it before is gone.
    pub(super) fn handle_takeover(&mut self, open: usize, outlives: bool) {
        if let Some(memory) = &mut self.memory {
            memory.handle_takeover(open, outlives);
        }
    }

    /// What was remembered is no longer how things stand.
    pub(super) fn forget(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.forget();
        }
    }

    /// What a negotiation is, or was, conducted by, if it is remembered.
    pub(super) fn protocol(&self, negotiation: &NegotiationId) -> Option<Protocol> {
        self.memory.as_ref()?.protocol(negotiation)
    }

    /// The answer to a request for a journal.
    pub(super) fn answer(&self, engine: &str, request: &[u8]) -> Option<Bytes> {
        self.memory.as_ref().map(|memory| journal::answer(memory, engine, request))
    }
}

impl Driver {
    /// Takes note of a fact the core reports, while the lane is owned.
    pub(super) fn remember(&mut self, event: &Event) {
        let Some(memory) = &mut self.telling.memory else { return };
        let lane_state = &self.lane_state;
        memory.note_event(event, lane_state.now(), |negotiation| journal::adopted(lane_state, negotiation));
    }

    /// Counts what happened while nobody owned the lane; no journal holds it.
    pub(super) fn count_uncounted(&mut self) {
        let (events, left_out) = self.uncounted.take();
        if left_out > 0 {
            tracing::warn!(
                lane = self.lane.0,
                left_out,
                "more happened without an owner than is kept; it is not counted"
            );
        }
        for event in &events {
            self.shared.metrics.count_uncounted(event);
            if let Some(memory) = &mut self.telling.memory {
                memory.count(event);
            }
        }
    }

    /// Takes note of an answer of the register.
    pub(super) fn remember_write(&mut self, key: &RegisterKey, result: WriteResult) {
        if result != WriteResult::Error {
            let fact = Fact::Registered { key: key.clone(), result };
            self.remember_done(key.negotiation(), fact);
        }
    }

    /// Takes note of what became of deliveries since it was last asked.
    pub(super) fn note_delivery_events(&mut self) {
        let events = self.outbox.take_events();
        if events.is_empty() {
            return;
        }
        let at = (self.shared.config.clock.now)();
        for event in events {
            self.traces.handle_delivery(&event);
            if let Some(memory) = &mut self.telling.memory {
                memory.note_delivery(&event, at);
            }
        }
    }

    /// Says the lane's part of the statistics, when that is due or the lane has come or gone.
    pub(super) fn report_statistics(&mut self, now: Instant) {
        let is_owner = self.is_owner();
        let Reporting { memory: Some(memory), statistics, every, at } = &mut self.telling else { return };
        let is_news = statistics.borrow().owned.is_some() != is_owner;
        if !is_news && (!is_owner || now < *at) {
            return;
        }
        *at = now + *every;
        let counted = memory.counted(self.clock.log_time(now));
        statistics.send_replace(if is_owner {
            LaneStatistics {
                owned: Some(self.lane),
                open: self.lane_state.open_count(),
                unacknowledged: self.outbox.len(),
                newest: memory.newest(),
                counted,
            }
        } else {
            LaneStatistics { counted, ..LaneStatistics::default() }
        });
    }

    /// When the lane's part of the statistics is due; only its owner has one.
    pub(super) fn statistics_wake_at(&self) -> Option<Instant> {
        self.telling.is_on().then_some(self.telling.at)
    }

    fn remember_done(&mut self, negotiation: &NegotiationId, fact: Fact) {
        if let Some(memory) = &mut self.telling.memory {
            memory.note(negotiation, (self.shared.config.clock.now)(), fact);
        }
    }
}
