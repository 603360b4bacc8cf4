//! The engine on the memory bus, under a paused clock: time passes only when every task waits for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "engine/bargain.rs"]
mod bargain;
#[path = "engine/current.rs"]
mod current;
#[path = "engine/delivery.rs"]
mod delivery;
#[path = "engine/exchange.rs"]
mod exchange;
#[path = "engine/expiry.rs"]
mod expiry;
#[path = "engine/lane.rs"]
mod lane;
#[path = "engine/many.rs"]
mod many;
#[path = "engine/ownership.rs"]
mod ownership;
#[path = "engine/panel.rs"]
mod panel;
#[path = "engine/recovery.rs"]
mod recovery;
#[path = "engine/register.rs"]
mod register;
#[path = "engine/registering.rs"]
mod registering;
#[path = "engine/round.rs"]
mod round;
#[path = "engine/spread.rs"]
mod spread;
#[path = "engine/statistics.rs"]
mod statistics;
#[path = "engine/switched.rs"]
mod switched;
#[path = "engine/takeover.rs"]
mod takeover;
#[path = "engine/tracing.rs"]
mod tracing;
#[path = "engine/versions.rs"]
mod versions;
