//! What plain clients are to do, and what became of it: two processes hand it to each other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::workload::Workload;

/// What a process of plain clients does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PlainLoad {
    /// Addresses of gateways; connections go to them in turn.
    pub gateways: Vec<String>,
    /// Callers, each with its token.
    pub callers: Vec<(String, String)>,
    /// Contractors, each with its token. They must be registered.
    pub contractors: Vec<(String, String)>,
    /// Connections that the callers share, and as many for contractors; none: answers to calls are all that is heard.
    pub connections: usize,
    /// Whether calls go over HTTP, each in a request of its own.
    pub http: bool,
    /// What is called for, in turn.
    pub workloads: Vec<Workload>,
    /// Calls per second.
    pub rate: f64,
    /// Whether there are five times as many for the last five of every twenty seconds.
    pub bursts: bool,
    /// How long calls are made, in seconds.
    pub seconds: f64,
    /// How long ends are waited for behind that, in seconds.
    pub drain_seconds: f64,
    /// Part of the names of negotiations, which must not repeat.
    pub run: String,
}

/// What became of a load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PlainSummary {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that were not made because the connection took no more.
    pub held_back: u64,
    /// Calls answered 202.
    pub taken: u64,
    /// Calls without an answer: what became of them is not known.
    pub unanswered: u64,
    /// Calls refused, by code.
    pub refused: BTreeMap<String, u64>,
    /// Calls refused that were made outside of bursts, and not within two seconds behind one.
    pub refused_between_bursts: u64,
    /// Negotiations that ended, by outcome.
    pub ended: BTreeMap<String, u64>,
    /// Calls taken in without an end when calls ceased.
    pub unended: u64,
    /// The same when ends were no longer waited for.
    pub lost: u64,
    /// When calls began, in milliseconds of Unix time.
    pub began_ms: u64,
    /// Successful ends in each second from then on.
    pub completed_by_s: Vec<u32>,
    /// The longest that a call made in each second took to its successful end, in milliseconds.
    pub longest_ms_by_s: Vec<u32>,
    /// From sending a call to the answer that it is taken in or refused, in milliseconds: 50 %, 99 %, and the longest of the
    /// last two seconds.
    pub answered_ms: [f64; 3],
    /// Successful ends per second while calls were made.
    pub completed_per_s: f64,
    /// From sending a call to its successful end, in milliseconds: 50 % and 99 %.
    pub completed_ms: [f64; 2],
    /// From sending a call to its refusal, in milliseconds: 50 % and 99 %.
    pub refused_ms: [f64; 2],
    /// How late the process itself was at most of its ticks, in milliseconds: 50 % and 99 %.
    pub loop_lag_ms: [f64; 2],
}

impl PlainSummary {
    /// Before the code of a refusal that is none of a call.
    pub const RUNNING: &str = "running ";

    /// How many calls were refused, or how many of all else.
    pub fn refusals(&self, of_running: bool) -> u64 {
        self.refused
            .iter()
            .filter(|(code, _)| code.starts_with(Self::RUNNING) == of_running)
            .map(|(_, number)| number)
            .sum()
    }
}
