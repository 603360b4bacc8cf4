//! What models are asked and answer, counted for Prometheus. Every label is a closed set; the model's name, which is free
//! text of a configuration, is in spans.

use std::time::Duration;

use super::accounts::PaidCall;
use super::{CompletionError, GaveUp, InvalidReason};

/// Bounds of the time of a call, in seconds, as OpenTelemetry's conventions for generative models have them.
const DURATION_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds of tokens of a call, from the same.
const TOKEN_BUCKETS: [f64; 10] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0];

/// How a call ended: `none`, or the kind of its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum CallFault {
    None,
    RateLimited,
    Failed,
    Unreachable,
    TimedOut,
    FormUnknown,
    TooLarge,
    Unreadable,
    Refused,
}

impl CallFault {
    fn of(error: Option<&CompletionError>) -> Self {
        match error {
            None => Self::None,
            Some(CompletionError::RateLimited { .. }) => Self::RateLimited,
            Some(CompletionError::Failed { .. }) => Self::Failed,
            Some(CompletionError::NotConnected(_) | CompletionError::Unreachable(_)) => Self::Unreachable,
            Some(CompletionError::TimedOut) => Self::TimedOut,
            Some(CompletionError::FormUnknown) => Self::FormUnknown,
            Some(CompletionError::TooLarge) => Self::TooLarge,
            Some(CompletionError::Unreadable) => Self::Unreadable,
            Some(CompletionError::Refused { .. }) => Self::Refused,
        }
    }
}

/// Which tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum TokenType {
    Input,
    Output,
}

/// How a consultation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum ConsultationResult {
    Answered,
    ModelOutput,
    ModelDeadline,
    ModelBudget,
    ModelUnavailable,
}

telemetry::metrics! {
    /// The metrics of all models that agents of a process ask. Cheap to clone.
    pub struct ModelMetrics {
        /// Time of calls of a model, by how they ended.
        durations: Histogram(&DURATION_BUCKETS)[error_type: CallFault] = "gen_ai_client_operation_duration_seconds";
        /// Tokens of calls of a model, as the endpoint counted them or by estimate.
        tokens: Histogram(&TOKEN_BUCKETS)[gen_ai_token_type: TokenType] = "gen_ai_client_token_usage";
        /// Questions to a model, with all their repairs and repeats, by how they ended.
        consultations: Counter[result: ConsultationResult] = "agent_model_consultations_total";
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
        self.durations.of(CallFault::of(error)).observe(took.as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "tokens of one call are exact in a double")]
        for (kind, count) in [(TokenType::Input, call.usage.input), (TokenType::Output, call.usage.output)] {
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
        let result = match outcome {
            Ok(()) => ConsultationResult::Answered,
            Err(GaveUp::Output) => ConsultationResult::ModelOutput,
            Err(GaveUp::Deadline) => ConsultationResult::ModelDeadline,
            Err(GaveUp::Budget) => ConsultationResult::ModelBudget,
            Err(GaveUp::Unavailable) => ConsultationResult::ModelUnavailable,
        };
        self.consultations.of(result).inc();
    }
}
