//! Clients of other protocols, as agents of an exchange: plain clients of its gateways, in processes of their own.
//!
//! | module | question it answers |
//! |---|---|
//! | [`memory`] | what has one agent heard, and what may it do now? (pure) |
//! | [`participant`] | who runs its connection? |
//! | [`tools`] | which tools are there, what message is a call of one, and what is its answer? (pure) |
//! | [`service`] | who carries a call of a tool out? |
//! | [`a2a`] | negotiations as tasks of the Agent2Agent protocol |
//! | [`mcp`] | the tools over the Model Context Protocol |
//! | [`metrics`] | how many calls, and how long? |
//! | [`records`] | what can a stranger check of an award? |
//! | [`micro`] | the same as a NATS service |
//! | [`http`] | the same over HTTP, for the bearer of each request |
//! | [`a2a_agent`] | an agent of the Agent2Agent protocol as a contractor |
//!
//! What binds is in the exchange. A bridge holds no keys and speaks for nobody but the bearer of the token it was given.

pub mod a2a;
pub mod a2a_agent;
pub mod http;
pub mod mcp;
pub mod memory;
pub mod metrics;
pub mod micro;
pub mod participant;
pub mod records;
pub mod service;
pub mod tools;

pub use metrics::BridgeMetrics;
pub use participant::Participant;
pub use service::{Gateways, Limits, ToolService};

use agents::control::ControlError;
use schemas::delivery::{Disposition, Misunderstanding};
use schemas::{Code, Refusal};
use serde_json::{Map, Value, json};

/// Why a call of a tool fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ToolFault {
    /// It was refused before anything was logged.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The message is in the log, and the exchange does not follow it.
    #[error("the exchange answers {disposition}")]
    NotFollowed {
        /// What became of the message.
        disposition: Disposition,
        /// Why, where the exchange says.
        why: Option<Misunderstanding>,
    },
}

impl ToolFault {
    /// A refusal of this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self::Refused(Refusal::new(code, detail))
    }

    /// The status an answer over HTTP, or of a NATS service, would have.
    pub const fn http_status(&self) -> u16 {
        match self {
            Self::Refused(refusal) => refusal.code.http_status(),
            Self::NotFollowed { .. } => 409,
        }
    }

    /// `code` and `detail`, with `pointer` into the arguments, `expected` and `retry_after_ms` where they are known.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Refused(refusal) => json!(refusal),
            Self::NotFollowed { disposition, why } => {
                let detail = why.as_ref().map_or_else(|| self.to_string(), |why| why.reason.clone());
                let mut fault =
                    Map::from_iter([("code".to_owned(), json!(disposition)), ("detail".to_owned(), json!(detail))]);
                if let Some(why) = why {
                    let expected: Vec<&str> = why.expected.iter().map(|act| act.as_str()).collect();
                    fault.insert("expected".to_owned(), json!(expected.join(", ")));
                    fault.extend(why.pointer.as_ref().map(|pointer| ("pointer".to_owned(), json!(pointer))));
                }
                Value::Object(fault)
            }
        }
    }
}

impl From<ControlError> for ToolFault {
    fn from(error: ControlError) -> Self {
        Self::Refused(error.into())
    }
}
