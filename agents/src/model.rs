//! Agents that ask a language model: one adapter for whoever needs an answer of a model (feature `llm`).
//!
//! | module | question it answers |
//! |---|---|
//! | [`config`] | which endpoint, which limits, what instead of an answer |
//! | [`shape`] | what must an answer look like? (as JSON Schema, and as the check of it) |
//! | [`answer`] | what did the model say? (lenient about the envelope, strict about the JSON) |
//! | [`accounts`] | what was spent, and may more be? |
//! | [`times`] | how long does the model take, and what came too late? |
//! | [`asking`] | how do the questions of a strategy reach the model? |
//! | [`consultation`] | what to ask next: first question, repair, retry, step-down, end (pure) |
//! | [`http`], [`scripted`], [`stub`] | the forms of a [`Model`] |
//! | [`consultant`] | who runs consultations: one model, its accounts, metrics and spans |
//! | [`contractor`] | a contractor whose terms a model chooses |
//! | [`decider`] | an initiator's choice among offers, made by a model |
//! | [`party`] | a party of a bargain whose moves a model chooses |
//! | [`panelist`] | a panelist, ranker and reviewer whose answers a model gives |
//! | [`routine`] | a routine that a model carries out |
//! | [`teammate`] | a member of a team whose turns a model takes, and a model that works on tasks |
//! | [`prompt`] | how words of others stand in a prompt |
//! | [`kept`] | what was asked and answered, for whoever runs the agents |
//! | `metrics` | calls, tokens, cost and unusable answers (feature `metrics`) |
//!
//! Everything but [`http`], [`consultant`] and [`kept`] is pure: time is an argument, and nothing is drawn. Whatever the model
//! says, an agent sends what it would have sent without one: the answer is typed terms or a refusal, checked against
//! the owner's limits, which no prompt contains.

pub mod accounts;
pub mod answer;
pub mod asking;
pub mod config;
pub mod consultant;
pub mod consultation;
pub mod contractor;
pub mod decider;
pub mod http;
pub mod kept;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod panelist;
pub mod party;
pub mod prompt;
pub mod routine;
pub mod scripted;
pub mod shape;
pub mod stub;
pub mod teammate;
pub mod times;

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::json;
use strum::VariantArray;

pub use accounts::{ModelAccounts, ModelTotals, TokenUsage};
pub use config::{ModelAgentConfig, ModelConfig, ModelConfigError};
pub use consultant::{Consultant, Subject};
pub use consultation::{Consultation, ConsultationStep, GaveUp, Question};
pub use contractor::ModelContractor;
pub use decider::ModelDecider;
pub use http::HttpModel;
pub use kept::KeptPrompts;
pub use panelist::ModelPanelist;
pub use routine::ModelRoutine;
pub use scripted::ScriptedModel;
pub use shape::{AnswerShape, InvalidReason, Misfit};
pub use stub::StubModel;
pub use teammate::{ModelAdvisor, ModelWorker};
pub use times::ModelTimes;

/// Something that completes a conversation.
pub trait Model: Send + Sync {
    /// Completes a conversation. Whoever asks waits as long as the request says; what comes later only counts as late.
    fn complete(&self, request: CompletionRequest) -> BoxFuture<'static, Result<Completion, CompletionError>>;
}

/// One question to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// How the answer's form is asked for.
    pub form: AnswerForm,
    /// JSON Schema of the answer, as it is written: a model says members in the order of their schema.
    pub schema: String,
    /// Most tokens of the answer.
    pub answer_tokens: u32,
    /// Calls of the same consultation before this one.
    pub retry: u32,
    /// Longest wait for the answer.
    pub timeout: Duration,
}

/// Name of the schema, which the format of the question wants.
const SCHEMA_NAME: &str = "answer";

impl CompletionRequest {
    /// As the body of a request to an endpoint, for the model of this name; `limit` is the member that limits the answer.
    #[must_use]
    pub fn to_body(&self, name: &str, limit: &str) -> String {
        let format = match self.form {
            AnswerForm::Alternatives | AnswerForm::JsonSchema => {
                let named = format!(r#"{{"name":"{SCHEMA_NAME}","strict":true,"schema":{}}}"#, self.schema);
                format!(r#","response_format":{{"type":"json_schema","json_schema":{named}}}"#)
            }
            AnswerForm::JsonObject => r#","response_format":{"type":"json_object"}"#.to_owned(),
            AnswerForm::Plain => String::new(),
        };
        let (name, messages, most) = (json!(name), json!(self.messages), self.answer_tokens);
        format!(r#"{{"model":{name},"messages":{messages},"{limit}":{most}{format}}}"#)
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// Who says it.
    pub role: ChatRole,
    /// What is said.
    pub content: String,
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    /// The agent's owner.
    System,
    /// The agent.
    User,
    /// The model.
    Assistant,
}

/// How an endpoint is asked for structured output, from the strongest form down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AnswerForm {
    /// `response_format` of type `json_schema`: one alternative for each act that is legal now.
    Alternatives,
    /// The same type: one object for all acts, without bounds.
    JsonSchema,
    /// `response_format` of type `json_object`; the schema stands in the prompt.
    JsonObject,
    /// No `response_format`; the schema stands in the prompt.
    Plain,
}

impl AnswerForm {
    /// The next weaker form.
    #[must_use]
    pub fn weaker(self) -> Option<Self> {
        Self::VARIANTS.get(self as usize + 1).copied()
    }
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// Its text.
    pub content: String,
    /// Whether it refused to answer.
    pub is_refusal: bool,
    /// Whether the answer was cut at the token limit.
    pub is_truncated: bool,
    /// Tokens as the endpoint counted them.
    pub usage: Option<TokenUsage>,
    /// Whether the endpoint says that it is `llmx-lab model-stub`.
    pub is_stub: bool,
}

/// Why there is no answer. No variant repeats what the endpoint wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum CompletionError {
    /// Too many requests: ask again later.
    #[error("the endpoint takes no more requests for now (429)")]
    RateLimited {
        /// When to ask again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// The endpoint has a fault: ask again.
    #[error("the endpoint answers {status}")]
    Failed {
        /// HTTP status, 5xx.
        status: u16,
        /// When to ask again, in milliseconds from now.
        retry_after_ms: Option<u64>,
    },
    /// No connection was made, so that nothing was sent: ask again.
    #[error("cannot connect: {0}")]
    #[strum(serialize = "unreachable")]
    NotConnected(String),
    /// The connection was lost, and with it perhaps an answer: ask again.
    #[error("no answer from the endpoint: {0}")]
    Unreachable(String),
    /// No answer in time: ask again.
    #[error("no answer in time")]
    TimedOut,
    /// The endpoint does not know this [`AnswerForm`]: ask with a weaker one.
    #[error("the endpoint does not know this response_format")]
    FormUnknown,
    /// The answer is larger than [`answer::BODY_BYTES_MAX`].
    #[error("the answer is larger than {} bytes", answer::BODY_BYTES_MAX)]
    TooLarge,
    /// The body is no chat completion: see that the URL is that of an OpenAI-compatible endpoint.
    #[error("the answer is no chat completion; see that `url` is that of an OpenAI-compatible endpoint")]
    Unreadable,
    /// The endpoint refuses: see to the key, the model's name and the URL.
    #[error("the endpoint refuses with status {status}; see to the key, the model's name and the URL")]
    Refused {
        /// HTTP status, 3xx or 4xx.
        status: u16,
    },
}
