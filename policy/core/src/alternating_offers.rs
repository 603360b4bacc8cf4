//! Alternating offers (docs/spec/alternating-offers.md): the second protocol of the fold.
//!
//! ```text
//!   JOINING --all have joined--> BARGAINING --all have accepted--> [CONFIRMING] --> AGREEMENT
//!      |                             |  one turn after the other        |
//!      +--> NO_AGREEMENT, ENDED <----+----------------------------------+   CANCEL: CANCELLED
//! ```
//!
//! The parties take turns in a fixed order, the initiator first. Whose turn it is offers, which replaces the standing offer,
//! or accepts the standing offer; the turn then passes on. An offer accepted by everybody but its proposer is the agreement.
//!
//! [`space`] and [`mandate`] are arithmetic, and public: gateways, agents and tools compute alike. `state.rs` is what is
//! kept, `opening.rs` and `joining.rs` how a bargain begins, `rules.rs` what is refused, `turns.rs` those
//! that go on, `delegating.rs` how a policy accepts for a party, `confirming.rs` and `ending.rs` how it ends,
//! `viewing.rs` what its parties see.
//!
//! # Choices
//! * Notices of a turn go out once per input, with the state after everything the input led to, to everybody but the sender
//!   of the message that was the input.
//! * Every message out of turn is a strike, in every state, except END, WITHDRAW, CANCEL, a wrong round, and an ACCEPT in
//!   one's own turn that names no acceptable offer. The initiator is struck like everybody.
//! * END ends in every state. REFUSE and NOT_UNDERSTOOD do while joining (of those who have not joined), and undo an
//!   agreement that waits for confirmation.
//! * What depends on the rules of time counts from log time: the bargain's clock starts with the first turn.
//! * A call to a bargain names no policy: its initiator's is sealed with the mandate.

mod admission;
mod confirming;
mod delegating;
mod ending;
mod joining;
pub mod mandate;
pub(crate) mod opening;
mod rules;
pub mod space;
pub(crate) mod state;
mod turns;
mod viewing;

/// What stands where a contract net names its policy.
pub(crate) const POLICY_WORD: &str = "alternating_offers";
