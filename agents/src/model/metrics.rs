//! What models are asked and answer, counted for Prometheus. Every label is a closed set; the model's name, which is free
//! text of a configuration, is in spans.

use std::time::Duration;

use strum::VariantNames as _;

use super::accounts::PaidCall;
use super::{CompletionError, GaveUp, InvalidReason};

/// Bounds of the time of a call, in seconds, as OpenTelemetry's conventions for generative models have them.
const DURATION_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds of tokens of a call, from the same.
const TOKEN_BUCKETS: [f64; 10] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0];

/// How calls end: `none`, or the kind of their fault, of which two are `unreachable`.
fn faults() -> Vec<&'static str> {
    [&["none"][..], CompletionError::VARIANTS].concat()
}

/// How consultations end.
fn endings() -> Vec<&'static str> {
    [&["answered"][..], GaveUp::VARIANTS].concat()
}

telemetry::metrics! {
    /// The metrics of all models that agents of a process ask. Cheap to clone.
    pub struct ModelMetrics {
        /// Time of calls of a model, by how they ended.
        durations: Histogram(&DURATION_BUCKETS)[error_type: &'static str = faults()] = "gen_ai_client_operation_duration_seconds";
        /// Tokens of calls of a model, as the endpoint counted them or by estimate.
        tokens: Histogram(&TOKEN_BUCKETS)[gen_ai_token_type: &'static str = ["input", "output"]] = "gen_ai_client_token_usage";
        /// Questions to a model, with all their repairs and repeats, by how they ended.
        consultations: Counter[result: &'static str = endings()] = "agent_model_consultations_total";
        /// Answers of a model that did not fit, by why.
        invalid: Counter[reason: InvalidReason] = "agent_invalid_outputs_total";
        /// Calls of a model whose tokens were estimated, because the endpoint did not count them.
        estimated: Counter = "agent_model_estimated_calls_total";
        /// How late answers of a model came that nobody waited for any more.
        late: Histogram(&DURATION_BUCKETS) = "agent_model_late_seconds";
        /// Cost of calls of a model, in micro-units of whatever its prices are in.
        cost: Counter = "agent_model_cost_micro_units_total";
    }
}

impl ModelMetrics {
    /// Counts a call.
    pub fn called(&self, took: Duration, error: Option<&CompletionError>, call: &PaidCall) {
        self.durations.of(error.map_or("none", Into::into)).observe(took.as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "tokens of one call are exact in a double")]
        for (kind, count) in [("input", call.usage.input), ("output", call.usage.output)] {
            self.tokens.of(kind).observe(count as f64);
        }
        self.estimated.inc_by(u64::from(call.is_estimated));
        self.cost.inc_by(call.cost);
    }

    /// Counts an answer that came too late.
    pub fn late(&self, by: Duration) {
        self.late.observe(by.as_secs_f64());
    }

    /// Counts an answer that did not fit.
    pub fn unusable(&self, reason: InvalidReason) {
        self.invalid.of(reason).inc();
    }

    /// Counts the end of a consultation.
    pub fn ended(&self, outcome: Result<(), GaveUp>) {
        let result = outcome.map_or_else(GaveUp::as_str, |()| "answered");
        self.consultations.of(result).inc();
    }
}
