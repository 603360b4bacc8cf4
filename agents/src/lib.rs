//! Agents: how a program takes part in negotiations, and the scripted ones that fill the demo and the experiments.
//!
//! | module | question it answers |
//! |---|---|
//! | [`strategy`] | what does an agent decide? (pure: deliveries in, actions out) |
//! | [`agent`] | who runs a strategy: connection, retries, delays, acknowledgements |
//! | [`asking`] | how do the questions of a strategy reach something slow, and the answers come back? |
//! | [`session`] | how "act once" and "same bytes on every retry" are kept (pure) |
//! | [`transport`] | over what: the bus (memory or NATS), WebSocket, HTTP with server-sent events, several gateways; faults to inject |
//! | `control` | a client of the control plane: registrations, groups, policies, views (feature `http`) |
//! | [`contractor`] | a scripted contractor: cost, delay, refusal, silence, failure, lateness from a seed |
//! | [`routine`] | what carries an award out, selected by the document it pins |
//! | [`initiator`] | open calls and hear how they end |
//! | [`bargain`] | alternating offers: domains, utilities, strategies, and an agent that bargains |
//! | [`panel`] | panels: what a seat, the ranker and a reviewer answer, an agent that takes part, scripted ones |
//! | [`fault`] | what is wrong with a document, and where? |
//! | [`team`] | teams: what a member says, and what carries its tasks out |
//! | `model` | an adapter for language models, and a contractor that asks one (feature `llm`) |
//! | [`open`] | which negotiations an agent takes part in (pure) |
//! | [`observer`] | see everything an agent sends and receives |
//! | `metrics` | the same, counted for Prometheus (feature `metrics`) |
//!
//! An agent promises the exchange three things, and [`session`] keeps them for every strategy: it acts once per
//! delivery however often that is repeated; it repeats an unanswered message with the same `msg_id` and the same
//! bytes; its `seq` rises from message to message, and messages of one negotiation reach the log in that order.
//!
//! A strategy never reads a clock and never does input or output; what it draws at random comes from a seed it was
//! built with. `examples/rust/contractor.rs` is a whole contractor; `examples/python/contractor.py` the same without this crate.

pub mod agent;
pub mod asking;
pub mod bargain;
pub mod contractor;
#[cfg(feature = "http")]
pub mod control;
pub mod fault;
pub mod identity;
pub mod initiator;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "llm")]
pub mod model;
pub mod observer;
pub mod open;
pub mod panel;
pub mod routine;
pub mod session;
pub mod strategy;
pub mod team;
pub mod transport;

pub use agent::{Agent, AgentError, AgentHandle, AgentOptions, Summary, run};
pub use contractor::{Contractor, ContractorConfig};
pub use identity::{Identity, Token};
pub use initiator::{CallEvent, CallReport, CallRequest, Initiator};
pub use strategy::{ActRefusal, Action, Outgoing, Strategy};
pub use transport::Transport;
