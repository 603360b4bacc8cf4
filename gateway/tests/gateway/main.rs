//! The gateway from outside: real sockets on loopback, the embedded bus behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod admission;
mod bad_auctions;
mod bad_bargains;
mod bad_inputs;
mod bad_panels;
mod bargains;
mod consent;
mod console;
mod control;
mod counted;
mod crowds;
mod documents;
mod ended;
mod evidence;
mod framing;
mod keys;
mod logs;
mod nats;
mod nobody;
mod presence;
mod rig;
mod routed;
mod sealed;
mod search;
mod series;
mod shared;
mod spans;
mod streams;
mod surface;
mod teams;
mod tokens;
mod told;
mod transactions;
