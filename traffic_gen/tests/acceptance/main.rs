//! Acceptance of the exchange on one machine: gateway, log, engine and agents together, seen from the agents.
//!
//! The matrix of sizes, policies and buses is a test of its own (`tests/matrix.rs`): it is about load, this is about rules.
//!
//! | file | shows |
//! |---|---|
//! | `mixed_case` | JADE's mixed case, with its re-awards |
//! | `transports` | WebSocket, NATS and HTTP with SSE in one round; what a plain NATS client sees |
//! | `policies` | the switch between two rounds |
//! | `consent` | no consent, no delivery; `ask`; groups and their quality of service |
//! | `lost_acks` | repeats at growing gaps, one action, a logged failure |
//! | `identity` | duplicates, conflicts, order, ties, ids |
//! | `limits` | what the default rate is enough for; what a tighter one holds back |
//! | `bad_semantics` | what is well-formed and still wrong |
//! | `bad_panels`, `bad_teams` | what is said to panels and teams and must not count, by each way in |
//! | `bad_order` | replays, order, duplication, foreign hands in the log |
//! | `transactions` | clients of Agora, answered by agents |
//! | `replay` | an export is recomputed; every altered byte is found |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bad_order;
mod bad_panels;
mod bad_semantics;
mod bad_teams;
mod consent;
mod identity;
mod journal;
mod limits;
mod log;
mod lost_acks;
mod mixed_case;
mod party;
mod policies;
mod replay;
mod rig;
mod speaker;
mod transactions;
mod transports;
