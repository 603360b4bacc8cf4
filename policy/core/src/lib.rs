//! The pure contract-net engine: `state', effects = step(state, input, log time)` (spec/negotiation.md sections 1 to 5, 7, 8).
//!
//! A [`Book`] holds every negotiation of one lane of the log. Its only input is [`Book::handle_record`]; what it asks of
//! the world leaves through [`Book::poll_effect`]; [`Book::poll_deadline`] says when time alone will change something.
//! The same records give byte-identical effects on every engine, whenever they are folded: the crate holds no clock,
//! randomness, task, float or hashed-order iteration (its own `clippy.toml` forbids them).
//!
//! ```text
//!   COLLECTING --close--> [DECIDING] --> AWARDING(a) --CONFIRM--> PERFORMING --INFORM--> COMPLETED
//!       |  ^                                |  ^  (refused, lapsed, failed: next standby)   |
//!       |  +---------- next round ----------+  +--------------------------------------------+
//!       +--> EXPIRED      any open state: CANCEL --> CANCELLING --> CANCELLED; hard deadline --> FAILED
//! ```
//!
//! Reading order: [`effect`] (everything the core may ask), `contract_net/state.rs`, `contract_net/admission.rs` (the
//! ladder), one file per state beside it, `acceptance/` (when to close, how to score, what to pay), [`book`].
//!
//! # Invariants
//! * A [`Effect::Register`] precedes, in the queue, every effect that waits for its key.
//! * At most one live award per lot; its number is never used again (fencing).
//! * Every offer whose disposition is `ok` gets exactly one final notice.
//! * A terminal negotiation never changes; every negotiation is terminal by its hard deadline.

mod acceptance;
pub mod book;
mod contract_net;
pub mod effect;
pub mod limits;
mod negotiation;
pub mod policy;
pub mod replay;
mod session;
mod step;
mod tombstone;
pub mod view;

pub use acceptance::decision::{Cause, Decision, Placement, RankedOffer};
pub use book::Book;
pub use contract_net::state::{Phase, SessionState};
pub use effect::{AwardLoss, Deliver, Effect, Event, Invariant, PublicNotice, RegisterWrite};
pub use limits::Limits;
pub use policy::{PolicyFault, check, preset, presets};
pub use view::View;
