//! The published runs on MMLU by how many calls they took, played again with scripted answers: what they cost under the rules
//! of panels.

use std::fmt::Write as _;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::DylanVerdict;
use super::play::{PlayRules, SeatAnswer, SeatView, StubRanker, play};

/// Questions of each row.
const QUESTIONS: u64 = 2_809;
/// Calls of a full debate of four agents in three rounds.
const DEBATE_CALLS: f64 = 12.0;
/// Where nobody agrees.
const SPLIT: [u32; 4] = [1, 2, 3, 4];
/// Where the first ones agree.
const AGREED: [u32; 4] = [1, 1, 1, 1];
/// Where the last one of four agrees with two.
const LAST_AGREES: [u32; 4] = [1, 1, 2, 1];

/// Answers by round, in the order of asking, and how many of the runs took that course.
type Course = ([[u32; 4]; 3], u64);

/// By agents: the courses, and the calls that were published.
const PUBLISHED: [(usize, &[Course], u64); 3] = [
    (2, &[([AGREED; 3], 1976), ([SPLIT, AGREED, AGREED], 499), ([SPLIT, SPLIT, SPLIT], 334)], 7_952),
    (3, &[([AGREED; 3], 1615), ([SPLIT, AGREED, AGREED], 609), ([SPLIT, SPLIT, SPLIT], 585)], 13_764),
    (
        4,
        &[
            ([AGREED; 3], 1599),
            ([LAST_AGREES; 3], 606),
            ([SPLIT, AGREED, AGREED], 272),
            ([SPLIT, LAST_AGREES, AGREED], 155),
            ([SPLIT, SPLIT, SPLIT], 177),
        ],
        12_312,
    ),
];

/// The runs of so many agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayRow {
    /// Agents.
    pub n: usize,
    /// Questions.
    pub questions: u64,
    /// Calls that were published.
    pub published: u64,
    /// Calls played.
    pub calls: u64,
    /// By question.
    pub calls_per_question: f64,
}

/// Plays every run.
pub fn run(seed: u64) -> Vec<ReplayRow> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let row = |(n, courses, published): (usize, &[Course], u64)| {
        let mut calls = 0;
        let mut questions = 0;
        for (answers, runs) in courses {
            for _ in 0..*runs {
                let says = |_, seen: &SeatView<'_>, _: &mut ChaCha8Rng| {
                    let round = answers.get(seen.round - 1).and_then(|round| round.get(seen.place));
                    SeatAnswer::unrated(round.copied().unwrap_or(0))
                };
                let rules = PlayRules { seats: n, ranker: StubRanker::DRAWN, recheck: false };
                calls += play(rules, &mut random, says).calls;
                questions += 1;
            }
        }
        ReplayRow { n, questions, published, calls, calls_per_question: calls as f64 / questions as f64 }
    };
    PUBLISHED.map(row).to_vec()
}

/// D9: as many calls as published, and so many of a full debate.
pub fn verdicts(rows: &[ReplayRow]) -> Vec<DylanVerdict> {
    let exactly = |row: &ReplayRow| {
        let holds = row.calls == row.published && row.questions == QUESTIONS;
        DylanVerdict::new(format!("D9 n={}", row.n), row.calls as f64, format!("exactly {}", row.published), holds)
    };
    let of_debate = rows
        .iter()
        .filter(|row| row.n == 4)
        .map(|row| DylanVerdict::near("D9 of full debate", row.calls_per_question / DEBATE_CALLS, 0.365, 0.000_5));
    rows.iter().map(exactly).chain(of_debate).collect()
}

/// The rows as a table.
pub fn table(rows: &[ReplayRow]) -> String {
    let mut table =
        String::from("published runs played again: agents, questions, calls published / stub, calls a question\n");
    for row in rows {
        let ReplayRow { n, questions, published, calls, calls_per_question } = row;
        let _written = writeln!(table, "{n:>3} {questions:>6} {published:>7} / {calls} {calls_per_question:>8.3}");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_runs_cost_as_many_calls_as_they_did() {
        let rows = run(7);
        assert_eq!(rows.iter().map(|row| row.calls).collect::<Vec<_>>(), [7_952, 13_764, 12_312]);
        assert!(verdicts(&rows).iter().all(|verdict| verdict.holds), "{:?}", verdicts(&rows));
    }
}
