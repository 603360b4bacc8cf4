//! Panels in the core alone: what an answer costs, short and long.

use std::time::Instant;

use policy_core::{Effect, preset};
use schemas::AgentId;
use schemas::delivery::Notification;
use schemas::panel::PanelAnswer;
use schemas::payload::{Cfp, Payload};
use schemas::record::Record;
use scripted::bargain::in_memory::pinned;
use serde_json::json;

use crate::fold::FoldBench;
use crate::rounds::{BenchError, stuck};
use traffic_gen::live::initiator_name;

/// Seats of each panel, where nothing else is said.
pub(super) const SEATS: u32 = 4;
/// Rounds of each, in which no two seats say the same.
pub(super) const ROUNDS: u32 = 3;
/// Time to answer, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

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
        return Err(stuck(format!("{asks} of {expected} asks")));
    }
    Ok(expected as f64 / took.max(f64::EPSILON))
}

/// One lane, fed with calls to panels and with what their seats answer.
pub(super) struct PanelBench {
    lane: FoldBench,
    seats: u32,
}

impl PanelBench {
    pub(super) fn new(seats: u32) -> Result<Self, BenchError> {
        let policy = preset("medium").ok_or_else(|| stuck("medium is no preset"))?;
        let invited: Vec<AgentId> = (0..seats).map(agent).collect();
        Ok(Self { lane: FoldBench::pinning(pinned(&policy, &invited)), seats })
    }

    /// Folds a record; how many are asked by it.
    pub(super) fn fold(&mut self, record: &Record) -> usize {
        let is_ask = |effect: &Effect| matches!(effect, Effect::Deliver(delivery) if matches!(*delivery.told, Notification::Ask(_)));
        let mut asks = 0;
        self.lane.fold(record, |effect| asks += usize::from(is_ask(&effect)));
        asks
    }

    /// Panels that have not ended.
    pub(super) fn open_count(&self) -> usize {
        self.lane.open_count()
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
        let rules = serde_json::from_value(rules).map_err(stuck)?;
        let payload = Payload::Cfp(Cfp { task: Some("which?".to_owned()), panel: Some(rules), ..Cfp::default() });
        self.lane.record(panel, &initiator_name(), ("call", None), payload)
    }

    /// What a seat says in a round; from the second on it rates the others.
    fn answer(&self, panel: usize, (seat, round): (u32, u32), len: usize) -> Result<Record, BenchError> {
        let answer = PanelAnswer {
            round,
            answer: Some(Some(answer(seat, len))),
            ratings: (round > 1).then(|| (1..self.seats).map(|place| 1 + (place + seat) % 5).collect()),
            ..PanelAnswer::default()
        };
        self.lane.record(panel, &agent(seat), (&format!("answer-{round}"), None), Payload::Answer(Box::new(answer)))
    }
}

/// What a seat says: nothing that another says.
pub(super) fn answer(seat: u32, len: usize) -> String {
    format!("{seat:0>len$}")
}

fn agent(seat: u32) -> AgentId {
    AgentId::try_new(&format!("panelist-{seat:02}")).expect("a number makes a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seat_is_asked_in_every_round_of_every_panel() {
        assert!(answers_per_s(5, 64).unwrap() > 0.0);
    }
}
