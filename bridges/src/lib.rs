//! Clients of other protocols, as agents of an exchange: plain clients of its gateways, in processes of their own.
//!
//! | module | question it answers |
//! |---|---|
//! | [`memory`] | what has one agent heard, and what may it do now? (pure) |
//! | [`participant`] | who runs its connection? |
//! | [`tools`] | which tools are there, what message is a call of one, and what is its answer? (pure) |
//! | [`service`] | who carries a call of a tool out? |
//! | [`mcp`] | the tools over the Model Context Protocol |
//! | [`metrics`] | how many calls, and how long? |
//! | [`records`] | what can a stranger check of an award? |
//! | [`http`] | the same over HTTP, for the bearer of each request |
//!
//! What binds is in the exchange. A bridge holds no keys and speaks for nobody but the bearer of the token it was given.

pub mod fault;
pub mod http;
pub mod mcp;
pub mod memory;
pub mod metrics;
pub mod participant;
pub mod records;
pub mod service;
pub mod tools;

pub use fault::ToolFault;
pub use metrics::BridgeMetrics;
pub use participant::Participant;
pub use service::{Gateways, Limits, ToolService};
