//! Panels in the core alone: what an answer costs, short and long, and what an open panel keeps in memory.

use std::sync::Arc;
use std::time::Instant;

use policy_core::{Effect, LaneState, Limits};
use schemas::delivery::Notification;
use schemas::panel::PanelAnswer;
use schemas::payload::{Cfp, Payload};
use schemas::record::{Invitation, Pinned, Qos, Record};
use schemas::{AgentId, Lane, Timestamp};
use serde_json::json;

use super::fold::{self, FoldedMessage};
use super::rounds::BenchError;
use super::usage::resident_bytes;
use crate::live::initiator_name;

/// Seats of each panel.
const SEATS: u32 = 4;
/// Rounds of each, in which no two seats say the same.
const ROUNDS: u32 = 3;
/// Time to answer, in milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Microseconds between two records.
const STEP_US: u64 = 10;

/// What panels cost.
#[derive(Debug, Clone, Copy)]
pub struct PanelCost {
    /// Answers folded in a second, effects drained.
    pub answers_per_s: f64,
    /// Bytes of each open panel, with the answers of its first round.
    pub bytes_per_panel: f64,
}

/// Opens `open` panels of four, and folds the answers of three rounds, each so many characters long.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up, or is not followed.
pub fn measure(open: usize, answer_len: usize) -> Result<PanelCost, BenchError> {
    let mut bench = PanelBench::new()?;
    let calls = (0..open).map(|panel| bench.call(panel)).collect::<Result<Vec<_>, _>>()?;
    let before = resident_bytes("self");
    let mut asks: usize = calls.iter().map(|call| bench.fold(call)).sum();
    let mut bytes = resident_bytes("self").saturating_sub(before);
    let mut took = 0.0;
    for round in 1..=ROUNDS {
        let answers = (0..open).flat_map(|panel| (0..SEATS).map(move |seat| (panel, seat)));
        let answers: Vec<Record> =
            answers.map(|(panel, seat)| bench.answer(panel, (seat, round), answer_len)).collect::<Result<_, _>>()?;
        let held = resident_bytes("self");
        let started = Instant::now();
        asks += answers.iter().map(|answer| bench.fold(answer)).sum::<usize>();
        took += started.elapsed().as_secs_f64();
        if round == 1 {
            bytes += resident_bytes("self").saturating_sub(held);
        }
    }
    let expected = open * (SEATS * ROUNDS) as usize;
    if asks != expected {
        return Err(BenchError::Stuck(format!("{asks} of {expected} asks")));
    }
    Ok(PanelCost {
        answers_per_s: expected as f64 / took.max(f64::EPSILON),
        bytes_per_panel: bytes as f64 / open as f64,
    })
}

/// One lane, fed with calls to panels and with what their seats answer.
struct PanelBench {
    lane_state: LaneState,
    seq: u64,
    pinned: Arc<Pinned>,
}

impl PanelBench {
    fn new() -> Result<Self, BenchError> {
        let policy = policy_core::preset("medium").ok_or_else(|| stuck(&"medium is no preset"))?;
        let policy_digest = policy.digest().map_err(|error| stuck(&error))?;
        let invitation =
            |seat| Invitation { agent: agent(seat), qos: Qos::AtLeastOnce, durable: false, reputation: None };
        let invited = (0..SEATS).map(invitation).collect();
        let pinned =
            Pinned { policy: Arc::new(policy), policy_digest, invited, left_out: 0, task_policy: None, panel: None };
        Ok(Self { lane_state: LaneState::new(Lane(0), Limits::default()), seq: 0, pinned: Arc::new(pinned) })
    }

    /// Folds a record; how many are asked by it.
    fn fold(&mut self, record: &Record) -> usize {
        self.seq += 1;
        self.lane_state.handle_record(self.seq, Timestamp(self.seq * STEP_US), record);
        let effects = std::iter::from_fn(|| self.lane_state.poll_effect());
        let is_ask = |effect: &Effect| matches!(effect, Effect::Deliver(delivery) if matches!(*delivery.told, Notification::Ask(_)));
        effects.filter(is_ask).count()
    }

    fn call(&self, panel: usize) -> Result<Record, BenchError> {
        let rules = json!({"domain": "bench", "rounds": ROUNDS, "answer_ms": HOUR_MS, "asking": "all"});
        let rules = serde_json::from_value(rules).map_err(|error| stuck(&error))?;
        let payload = Payload::Cfp(Cfp { task: Some("which?".to_owned()), panel: Some(rules), ..Cfp::default() });
        let (from, pinned) = (&initiator_name(), Some(Arc::clone(&self.pinned)));
        fold::record(FoldedMessage { from, number: panel, msg_id: "call", seq: None, payload, pinned })
    }

    /// What a seat says in a round; from the second on it rates the others.
    fn answer(&self, panel: usize, (seat, round): (u32, u32), len: usize) -> Result<Record, BenchError> {
        let answer = PanelAnswer {
            round,
            answer: Some(Some(format!("{seat:0>len$}"))),
            ratings: (round > 1).then(|| (1..SEATS).map(|place| 1 + (place + seat) % 5).collect()),
            ..PanelAnswer::default()
        };
        let (from, msg_id) = (&agent(seat), &format!("answer-{round}"));
        let payload = Payload::Answer(Box::new(answer));
        fold::record(FoldedMessage { from, number: panel, msg_id, seq: None, payload, pinned: None })
    }
}

fn agent(seat: u32) -> AgentId {
    AgentId::try_new(&format!("panelist-{seat:02}")).expect("a number makes a name")
}

fn stuck(why: &dyn std::fmt::Display) -> BenchError {
    BenchError::Stuck(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seat_is_asked_in_every_round_of_every_panel() {
        let cost = measure(5, 64).unwrap();
        assert!(cost.answers_per_s > 0.0, "{cost:?}");
    }
}
