//! Answers of the register and of the log to what the lane asked of them.

use bus::Registered;
use policy_core::Protocol;
use schemas::NegotiationId;
use telemetry::TraceId;
use tokio::time::Instant;

use super::Driver;
use super::inputs::{AppendDone, Purpose, WriteDone};
use crate::abort::AbortCode;
use crate::metrics::WriteResult;
use crate::register::WriteOutcome;

impl Driver {
    /// What a negotiation is, or was, conducted by; the lane's state may have forgotten which, of one that was cancelled or aborted.
    pub(super) fn protocol(&self, negotiation: &NegotiationId) -> Option<Protocol> {
        self.telling.protocol(negotiation).or_else(|| self.lane_state.protocol(negotiation))
    }

    /// The trace of a negotiation, for a line of the log.
    pub(super) fn trace_id(&self, negotiation: &NegotiationId) -> TraceId {
        self.traces.trace_of(negotiation, self.lane_state.traceparent(negotiation))
    }

    pub(super) fn handle_write(&mut self, done: &WriteDone) {
        let now = Instant::now();
        let result = match &done.answer {
            Ok(Registered::Written) => WriteResult::Written,
            Ok(Registered::Same) => WriteResult::Same,
            Ok(Registered::Different(_)) => WriteResult::Different,
            Err(_) => WriteResult::Error,
        };
        self.shared.metrics.register_answered(result, now.saturating_duration_since(done.started));
        self.remember_write(&done.key, result);
        if let Ok(registered) = &done.answer {
            let traceparent = self.lane_state.traceparent(done.key.negotiation());
            self.traces.handle_written(&done.key, registered, done.started, traceparent);
        }
        match self.registrar.handle_answer(&done.key, &done.answer, now) {
            WriteOutcome::Written => self.outbox.handle_register(&done.key, false),
            WriteOutcome::Refused(negotiation, keys) => {
                let trace_id = self.trace_id(&negotiation);
                tracing::error!(%negotiation, %trace_id, key = %done.key, "register conflict: another value stands there; the negotiation is aborted");
                self.shared.metrics.register_conflict(self.protocol(&negotiation));
                self.aborts.want(negotiation, AbortCode::RegisterConflict);
                keys.iter().for_each(|key| self.outbox.handle_register(key, true));
            }
            WriteOutcome::RefusedAgain(keys) => keys.iter().for_each(|key| self.outbox.handle_register(key, true)),
            WriteOutcome::Retried => {
                let error = done.answer.as_ref().err().map(ToString::to_string);
                let negotiation = done.key.negotiation();
                let trace_id = self.trace_id(negotiation);
                tracing::warn!(%negotiation, %trace_id, key = %done.key, error, "the register did not answer; the write is repeated");
            }
        }
    }

    pub(super) fn handle_append(&mut self, done: AppendDone) {
        let now = Instant::now();
        if let Err(error) = &done.outcome {
            tracing::warn!(lane = self.lane.0, purpose = ?done.purpose, %error, "an engine's entry was not appended");
        }
        let failure = done.outcome.as_ref().err().map(ToString::to_string);
        let seq = done.outcome.ok().map(|position| position.seq);
        match done.purpose {
            Purpose::Claim => self.handle_claim_append(failure, now),
            Purpose::Tick => {
                self.shared.metrics.tick_appended();
                self.ticker.handle_append(seq, self.position, now);
            }
            Purpose::Delivered(batch) => self.delivered.handle_append(seq.is_none().then_some(batch), now),
            Purpose::DeliveryFailed(id) if seq.is_none() => self.outbox.handle_failure_unlogged(id, now),
            Purpose::DeliveryFailed(id) => self.outbox.handle_failure_logged(id),
            Purpose::Rules => {}
            Purpose::Abort(negotiation) => self.aborts.handle_append(&negotiation, seq.is_some(), now),
        }
    }
}
