//! Bridges, as one program: tests of the table of tools, and of clients against an exchange in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "all/a2a.rs"]
mod a2a;
#[path = "all/a2a_agent.rs"]
mod a2a_agent;
#[path = "all/exchange.rs"]
mod exchange;
#[path = "all/fuzz.rs"]
mod fuzz;
#[path = "all/http.rs"]
mod http;
#[path = "all/messages.rs"]
mod messages;
#[path = "all/micro.rs"]
mod micro;
#[path = "all/stdio.rs"]
mod stdio;
#[path = "all/table.rs"]
mod table;
