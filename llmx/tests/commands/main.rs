//! Commands against a running exchange, as a person types them: the real program, a real gateway and engine, contractors
//! that answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod agent;
mod agora;
mod agora_call;
mod bad_input;
mod call;
mod document;
mod ioa;
mod listen;
mod manual;
mod policy;
#[path = "../common/program.rs"]
mod program;
mod rig;
mod routines;
mod search;
mod top;
