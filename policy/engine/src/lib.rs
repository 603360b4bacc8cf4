//! The policy engine's shell: it reads the log, lets the pure core ([`policy_core`]) fold it, and carries the effects
//! out. It decides nothing that is not itself a record of the log (docs/spec/log.md#lg-1).
//!
//! One task per lane owns the lane's [`policy_core::LaneState`] and everything around it:
//!
//! ```text
//! log ---> LaneState ---> deliveries --[gate: register]--> outbox ---> deliver.<gateway>, or agent.<id>.inbox (repeated there until acknowledged)
//!            |                                          ^  |
//!            |                    ack.*.*, hello.* -----+  +--> log: delivered, delivery_failed
//!            +-----> register writes ---> register --conflict--> log: abort
//!            +-----> deadlines ----------------------------------> log: tick
//!            +-----> checkpoint-<lane> (blob) -------------------> log: trimmed behind it
//!            +-----> journal.<lane>, engine.<id>.statistics: for people who look, decide nothing
//!            +-----> backlog.<id>: agents that gateways should invite no more until they acknowledge
//! ```
//!
//! **Many engines.** Engines hear each other's heartbeats (`engine.<id>.heartbeat`), and rank themselves per lane. The first
//! claims the lane with a `claim` entry and emits from the moment it folds its own claim. The next stand by: they fold
//! silently and hear the acknowledgements, so that a take-over repeats only what nobody acknowledged. The others do not fold
//! the lane; one that comes to be ranked among the first takes it up from its checkpoint. Who owns a lane saves work and decides nothing; an owner that folds
//! another's claim sends what came before it, and stands by.
//!
//! **Recovery.** A lane starts from its checkpoint and the log behind it, or from the whole log. Where the log has lost
//! what it acknowledged, the lane gives its state up and begins anew.
//!
//! What this crate refuses to do: judge a message, read a sender's clock, send a gated delivery before the register
//! answered, keep state that the log does not give back, fold under rules it does not know, and emit when another engine
//! has come to another state.
//!
//! Reading order: [`EngineConfig`], `lane.rs` (the loop, and what its parts pass to each other), `lane/fold.rs` (records in,
//! ticks), `lane/{publish,outbox,register}.rs` and `routes.rs` (what leaves, when, and by which way),
//! `lane/{delivered,abort}.rs` (what engines log); then `membership.rs` and `lane/{host,ownership}.rs` (who does it),
//! `lane/{recovery,checkpoint,checkpoint_and_trim}.rs` and
//! `status/digests.rs` (how it survives). The engine's assembly, `engine.rs`, alone knows all of them.

mod config;
mod engine;
mod ingress;
mod lane;
mod membership;
mod metrics;
mod routes;
mod status;

pub use config::{
    BatchConfig, CheckpointConfig, ClockConfig, EngineConfig, MembershipConfig, OutboxConfig, Trim, WallClock,
};
pub use engine::{Engine, EngineError, EngineHandle};
pub use lane::{CheckpointError, DocumentWriter, FoldObserver, refused_keys};
pub use metrics::{EngineMetrics, Jain};
pub use status::{LanePhase, LaneStatus, Status, StatusReader, StopReason};
