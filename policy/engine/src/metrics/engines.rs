//! What engines know of each other, and where they disagree.

use prometheus::{Error, IntCounter, IntGauge};
use telemetry::metrics::Maker;

pub(crate) struct EnginesMetrics {
    alive: IntGauge,
    heartbeats_ignored: IntCounter,
    takeovers: IntCounter,
    divergences: IntCounter,
    mismatches: IntCounter,
    checkpoints: Vec<IntCounter>,
}

/// What becomes of checkpoints.
const CHECKPOINT_RESULTS: [&str; 3] = ["stored", "outdated", "failed"];

impl EnginesMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let metrics = Self {
            alive: make
                .gauge("llmx_engine_engines_alive", "Live engines, this one included; 0 until it has listened.")?,
            heartbeats_ignored: make.counter(
                "llmx_engine_beats_ignored_total",
                "Heartbeats that could not be read, or came from another engine of the same name.",
            )?,
            takeovers: make.counter("llmx_engine_takeovers_total", "Lanes this engine took.")?,
            divergences: make.counter(
                "llmx_engine_log_divergences_total",
                "Times the log had lost what it had acknowledged, and a lane was rebuilt.",
            )?,
            mismatches: make.counter(
                "llmx_engine_digest_mismatches_total",
                "Times another engine had another state after the same records: emission stops.",
            )?,
            checkpoints: make.counters(
                "exchange_checkpoints_total",
                "Checkpoints this engine made; one is outdated when a later one is stored already.",
                "result",
                &CHECKPOINT_RESULTS,
            )?,
        };
        Ok(metrics)
    }

    pub(crate) fn set_alive(&self, engines: usize) {
        self.alive.set(i64::try_from(engines).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_heartbeat_ignored(&self) {
        self.heartbeats_ignored.inc();
    }

    pub(crate) fn count_takeover(&self) {
        self.takeovers.inc();
    }

    /// Whether a checkpoint was stored; absent when it could not be.
    pub(crate) fn count_checkpoint(&self, is_stored: Option<bool>) {
        let result = match is_stored {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        self.checkpoints[result].inc();
    }

    pub(crate) fn count_divergence(&self) {
        self.divergences.inc();
    }

    pub(crate) fn count_mismatch(&self) {
        self.mismatches.inc();
    }
}
