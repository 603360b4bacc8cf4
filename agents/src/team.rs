//! Teams (docs/spec/team.md), as agents see them.
//!
//! | module | question it answers |
//! |---|---|
//! | [`worker`] | who carries a task out, within which limits? A function, a program, a service |

pub mod worker;

pub use worker::{FunctionWorker, WorkRequest, WorkRunner, Worker};
