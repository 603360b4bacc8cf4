//! What engines know of each other, and where they disagree.

use super::labels::CheckpointResult;

telemetry::metrics! {
    /// What engines know of each other.
    pub(crate) struct EnginesMetrics {
        /// Live engines, this one included; 0 until it has listened.
        alive: Gauge = "llmx_engine_engines_alive";
        /// Heartbeats that could not be read, or came from another engine of the same name.
        heartbeats_ignored: Counter = "llmx_engine_beats_ignored_total";
        /// Lanes this engine took.
        takeovers: Counter = "llmx_engine_takeovers_total";
        /// Times the log had lost what it had acknowledged, and a lane was rebuilt.
        divergences: Counter = "llmx_engine_log_divergences_total";
        /// Times another engine had another state after the same records: emission stops.
        mismatches: Counter = "llmx_engine_digest_mismatches_total";
        /// Checkpoints this engine made; one is outdated when a later one is stored already.
        checkpoints: Counter[result: CheckpointResult] = "exchange_checkpoints_total";
    }
}

impl EnginesMetrics {
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
            Some(true) => CheckpointResult::Stored,
            Some(false) => CheckpointResult::Outdated,
            None => CheckpointResult::Failed,
        };
        self.checkpoints.of(result).inc();
    }

    pub(crate) fn count_divergence(&self) {
        self.divergences.inc();
    }

    pub(crate) fn count_mismatch(&self) {
        self.mismatches.inc();
    }
}
