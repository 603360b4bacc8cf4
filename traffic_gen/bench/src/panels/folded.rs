//! Panels in the core alone: what an answer costs, short and long.

use std::sync::Arc;
use std::time::Instant;

use policy_core::{Effect, LaneState, Limits};
use schemas::delivery::Notification;
use schemas::panel::PanelAnswer;
use schemas::payload::{Cfp, Payload};
use schemas::record::{Invitation, Pinned, Qos, Record};
use schemas::{AgentId, Lane, Timestamp};
use serde_json::json;

use crate::fold::{self, FoldedMessage};
use crate::rounds::BenchError;
use traffic_gen::live::initiator_name;

/// Seats of each panel, where nothing else is said.
pub(super) const SEATS: u32 = 4;
/// Rounds of each, in which no two seats say the same.
pub(super) const ROUNDS: u32 = 3;
/// Time to answer, in milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Microseconds between two records.
const STEP_US: u64 = 10;

/// Answers folded in a second, effects drained: `open` panels of four, and the answers of three rounds, each so many characters
/// long.
///
/// # Errors
/// [`BenchError::Stuck`] when the log cannot be made up, or is not followed.
pub fn answers_per_s(open: usize, answer_len: usize) -> Result<f64, BenchError> {
    let mut bench = PanelBench::new(SEATS)?;
    let mut asks: usize = bench.calls(open)?.iter().map(|call| bench.fold(call)).sum();
    let mut took = 0.0;
    for round in 1..=ROUNDS {
        let answers = bench.answers(open, (SEATS, round), answer_len)?;
        let started = Instant::now();
        asks += answers.iter().map(|answer| bench.fold(answer)).sum::<usize>();
        took += started.elapsed().as_secs_f64();
    }
    let expected = open * (SEATS * ROUNDS) as usize;
    if asks != expected {
        return Err(BenchError::Stuck(format!("{asks} of {expected} asks")));
    }
    Ok(expected as f64 / took.max(f64::EPSILON))
}

/// One lane, fed with calls to panels and with what their seats answer.
pub(super) struct PanelBench {
    lane_state: LaneState,
    seq: u64,
    seats: u32,
    pinned: Arc<Pinned>,
}

impl PanelBench {
    pub(super) fn new(seats: u32) -> Result<Self, BenchError> {
        let policy = policy_core::preset("medium").ok_or_else(|| stuck(&"medium is no preset"))?;
        let policy_digest = policy.digest().map_err(|error| stuck(&error))?;
        let invitation =
            |seat| Invitation { agent: agent(seat), qos: Qos::AtLeastOnce, durable: false, reputation: None };
        let invited = (0..seats).map(invitation).collect();
        let pinned =
            Pinned { policy: Arc::new(policy), policy_digest, invited, left_out: 0, task_policy: None, panel: None };
        Ok(Self { lane_state: LaneState::new(Lane(0), Limits::default()), seq: 0, seats, pinned: Arc::new(pinned) })
    }

    /// Folds a record; how many are asked by it.
    pub(super) fn fold(&mut self, record: &Record) -> usize {
        self.seq += 1;
        self.lane_state.handle_record(self.seq, Timestamp(self.seq * STEP_US), record);
        let effects = std::iter::from_fn(|| self.lane_state.poll_effect());
        let is_ask = |effect: &Effect| matches!(effect, Effect::Deliver(delivery) if matches!(*delivery.told, Notification::Ask(_)));
        effects.filter(is_ask).count()
    }

    /// Panels that have not ended.
    pub(super) fn open_count(&self) -> usize {
        self.lane_state.open_count()
    }

    /// The calls to so many panels.
    pub(super) fn calls(&self, open: usize) -> Result<Vec<Record>, BenchError> {
        (0..open).map(|panel| self.call(panel)).collect()
    }

    /// What the first `seats` of so many panels answer in a round, panel by panel.
    pub(super) fn answers(
        &self,
        open: usize,
        (seats, round): (u32, u32),
        len: usize,
    ) -> Result<Vec<Record>, BenchError> {
        let answers = (0..open).flat_map(|panel| (0..seats).map(move |seat| (panel, seat)));
        answers.map(|(panel, seat)| self.answer(panel, (seat, round), len)).collect()
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
            answer: Some(Some(answer(seat, len))),
            ratings: (round > 1).then(|| (1..self.seats).map(|place| 1 + (place + seat) % 5).collect()),
            ..PanelAnswer::default()
        };
        let (from, msg_id) = (&agent(seat), &format!("answer-{round}"));
        let payload = Payload::Answer(Box::new(answer));
        fold::record(FoldedMessage { from, number: panel, msg_id, seq: None, payload, pinned: None })
    }
}

/// What a seat says: nothing that another says.
pub(super) fn answer(seat: u32, len: usize) -> String {
    format!("{seat:0>len$}")
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
        assert!(answers_per_s(5, 64).unwrap() > 0.0);
    }
}
