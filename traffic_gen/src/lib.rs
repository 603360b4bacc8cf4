//! Load, traces and verdicts: what drives the exchange and what judges it from the outside.
//!
//! | module | question it answers |
//! |---|---|
//! | [`arrivals`] | when is the next call due, in which shape of load, and who waits until then? |
//! | [`exchange`] | a whole exchange in this process |
//! | [`live`] | contractors and calls against an exchange |
//! | [`load`] | many bargains, teams or panels against an exchange |
//! | [`recorder`] | what did the agents see, how long did it take? |
//! | [`deferrals`] | which limits held the agents back? |
//! | [`invariants`] | did anything happen that must never happen? |
//! | [`metrics`] | what does Prometheus learn of it? |
//! | [`summary`] | what came of the run? |
//! | [`bargain`] | what comes of many bargains, and how good is each? |
//! | [`panel`] | what comes of many panels of scripted agents? |
//! | [`team`] | what comes of many teams? |

pub mod arrivals;
pub mod bargain;
pub mod deferrals;
pub mod exchange;
pub mod invariants;
pub mod latency;
pub mod live;
pub mod load;
pub mod metrics;
pub mod minutes;
pub mod models;
pub mod panel;
pub mod recorder;
pub mod routines;
pub mod summary;
pub mod team;
pub mod trace;
