//! What models were asked in a run, and by which label a run is known.

use std::fmt;

use agents::model::{Consultant, ModelDecider, ModelTimes, decider::ModelDeciderCounts};
use serde::{Deserialize, Serialize};

/// What decides for the agents of a run: its label. The greatest of several is that of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ModelSource {
    /// Scripts alone, or beside them a model that never answered.
    #[default]
    Scripted,
    /// For some of them `llmx-lab model-stub`, by its own account.
    Stub,
    /// For some of them any other endpoint.
    Live,
}

/// What the model of a run was asked, and what that cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSummary {
    /// Its name.
    pub name: String,
    /// What it is.
    pub source: ModelSource,
    /// Agents that ask it.
    pub agents: u32,
    /// Questions.
    pub questions: u64,
    /// Calls of the endpoint for them, repairs and repeats included.
    pub calls: u64,
    /// Answers that were sent back to be repaired.
    pub repairs: u64,
    /// Questions that were answered without the model.
    pub fallbacks: u64,
    /// Calls whose tokens were estimated.
    pub estimated_calls: u64,
    /// Tokens of all calls.
    pub input_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// What they cost, in micro-units.
    pub cost_micro_units: u64,
    /// How long it took, and what came too late.
    #[serde(default)]
    pub times: ModelTimes,
}

impl ModelSummary {
    /// What so many agents asked it.
    pub(crate) fn of(consultant: &Consultant, agents: u32, (questions, fallbacks): (u64, u64)) -> Self {
        let totals = consultant.totals();
        let is_stub = totals.stub_answers == totals.answers;
        Self {
            name: consultant.label().to_owned(),
            source: match totals.answers {
                0 => ModelSource::Scripted,
                _ if is_stub => ModelSource::Stub,
                _ => ModelSource::Live,
            },
            agents,
            questions,
            calls: totals.calls,
            repairs: totals.repairs,
            fallbacks,
            estimated_calls: totals.estimated_calls,
            input_tokens: totals.usage.input,
            output_tokens: totals.usage.output,
            cost_micro_units: totals.cost,
            times: consultant.times(),
        }
    }

    /// What an initiator asked it.
    pub fn of_decider(decider: &ModelDecider) -> Self {
        let ModelDeciderCounts { chosen, fallbacks } = decider.counts();
        Self::of(decider.consultant(), 1, (chosen + fallbacks, fallbacks))
    }
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, calls, input_tokens, output_tokens, cost_micro_units, .. } = self;
        let source = match self.source {
            ModelSource::Scripted => "no answer",
            ModelSource::Stub => "stub",
            ModelSource::Live => "live",
        };
        let agents = if self.agents == 1 { "agent" } else { "agents" };
        write!(f, "model {name} ({source}), {} {agents}: {calls} calls", self.agents)?;
        if self.estimated_calls > 0 {
            write!(f, ", {} of them estimated", self.estimated_calls)?;
        }
        write!(f, ", {input_tokens} tokens in, {output_tokens} out, {cost_micro_units} micro-units; ")?;
        write!(f, "{} questions, {} repairs, {} fallbacks; ", self.questions, self.repairs, self.fallbacks)?;
        self.times.fmt(f)
    }
}
