//! The pure engine of every protocol: `state', effects = step(state, input, log time)` (docs/spec/README.md).
//!
//! A [`LaneState`] holds every negotiation of one lane of the log. Its only input is [`LaneState::handle_record`]; what it asks of
//! the world leaves through [`LaneState::poll_effect`]; [`LaneState::poll_deadline`] says when time alone will change something.
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
//! Reading order: `schemas::protocols` and `negotiation/protocols.rs` (which protocols there are), [`effect`] (everything the core may ask), `negotiation.rs` and
//! `negotiation/disposition.rs` (what the protocols share), `negotiation/contract_net/rules.rs` and the parts of its state beside
//! it, `acceptance/` (when to close, how to score, what to pay), [`alternating_offers`] (bargains), [`lane`],
//! `lane/snapshot.rs` (the state as bytes).
//!
//! # Invariants
//! * A [`Effect::Register`] precedes, in the queue, every effect that waits for its key.
//! * At most one live award per lot; its number is never used again (fencing).
//! * Every offer of a contract net whose disposition is `ok` gets exactly one final notice.
//! * In a bargain turns rotate; nobody accepts its own offer; nothing outside a party's mandate is offered or accepted by it,
//!   and nothing of a mandate leaves.
//! * A terminal negotiation never changes; every negotiation is terminal by its hard deadline.

mod acceptance;
pub mod effect;
pub mod lane;
pub mod limits;
mod negotiation;
/// The arithmetic of panels, without their machine: when answers are equal, who has a majority, who goes on, what each
/// contributed, and the record of it. Integers and exact fractions only (docs/spec/panel-answers.md).
pub mod panel {
    pub mod bleu;
    pub mod count;
    pub mod decision;
    pub mod evidence;
    pub mod fraction;
    pub mod importance;
    pub mod key;
    pub mod ranker;
    pub mod reputation;
}
pub mod policy;
pub mod replay;

pub use acceptance::decision::{AwardLoss, Cause, Decision, Placement, RankedOffer};
pub use effect::{AskKind, Deliver, Effect, Event, Invariant, PublicNotice, RegisterWrite, TurnKind};
pub use lane::{LaneState, SnapshotError};
pub use limits::Limits;
pub use negotiation::alternating_offers;
pub use negotiation::contract_net::SessionState;
pub use negotiation::protocols::{AuctionView, BargainView, PanelView, ProtocolView, TeamView, check_auction_policy};
pub use negotiation::view;
pub use negotiation::view::NegotiationView;
pub use negotiation::{CHAIN_START, ChainLink, chained};
pub use panel::decision::{
    PanelCallsRecord, PanelDecision, PanelistRecord, RatingRecord, ReplyRecord, RoundRecord, SelectedBy,
    SelectionRecord,
};
pub use policy::{PolicyFault, check, preset, presets};
pub use schemas::protocols::{Phase, Protocol};
