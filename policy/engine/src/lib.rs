//! The policy engine's shell: it reads the log, lets the pure core ([`policy_core`]) fold it, and carries the effects
//! out. It decides nothing that is not itself a record of the log (DESIGN.md section 2).
//!
//! One task per lane owns the lane's [`policy_core::Book`] and everything around it:
//!
//! ```text
//! log ---> Book ---> deliveries --[gate: register]--> outbox ---> agent.<id>.inbox   (repeated until acknowledged)
//!            |                                          ^  |
//!            |                    ack.*.*, hello.* -----+  +--> log: delivered, delivery_failed
//!            +-----> register writes ---> register --conflict--> log: abort
//!            +-----> deadlines ----------------------------------> log: tick
//! ```
//!
//! A lane starts by folding what is stored, silently; claims the lane with a `claim` entry; and emits from the moment it
//! folds its own claim. Whatever an earlier owner sent and nobody acknowledged is sent again under the same id.
//!
//! What this crate refuses to do: judge a message, read a sender's clock, send a gated delivery before the register
//! answered, keep state that the log does not give back.
//!
//! Reading order: [`EngineConfig`], `driver.rs` (the loop), `driver/fold.rs` (records in), `outbox.rs`, `register.rs`
//! (what leaves, and when), `tick.rs`, `delivered.rs`, `abort.rs` (what engines log).

mod abort;
mod clock;
mod config;
mod delivered;
mod document;
mod driver;
mod engine;
mod error;
mod ingress;
mod log_reader;
mod metrics;
mod outbox;
mod register;
mod status;
mod tap;
mod tick;
mod view;

pub use config::{BatchConfig, EngineConfig, OutboxConfig};
pub use engine::{Engine, EngineHandle};
pub use error::EngineError;
pub use metrics::EngineMetrics;
pub use status::{LanePhase, LaneStatus, Status, StopReason};
pub use tap::Tap;
