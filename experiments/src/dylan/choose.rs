//! Whether evidence finds the agents worth asking: of seven four are informative; trial panels of all, then panels of the four
//! of highest importance.

use std::fmt;

use schemas::evidence::EvidenceCounts;
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::{Crowd, StubAgent, add_all, best};
use super::play::StubRanker;

/// Seeds unless others are asked for.
pub const SEEDS: u64 = 100;
const AGENTS: usize = 7;
/// How many are informative: the first ones.
const INFORMATIVE: usize = 4;
const GOOD: StubAgent = StubAgent::honest(0.75, 0.85);
const POOR: StubAgent = StubAgent::honest(0.35, 0.6);
/// Trial panels after which the choice is judged, and as many panels of those chosen.
const TRIALS: u64 = 281;
/// Trial panels of an early look.
const EARLY: u64 = 28;
/// What must hold: share of seeds with exactly the informative ones, those found early, calls and accuracy before and after.
const EXACT_MIN: f64 = 0.98;
const OVERLAP_MIN: f64 = 3.6;
const CALLS: [f64; 2] = [11.2, 4.6];
const CALLS_APART: f64 = 0.3;
const ACCURACY: [f64; 2] = [0.85, 0.91];
const ACCURACY_APART: f64 = 0.02;

/// What the choice came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChooseReport {
    /// Seeds played.
    pub seeds: u64,
    /// Seeds in which exactly the informative agents are chosen after all trial panels.
    pub exact: u64,
    /// How many of them are among the best four after the early ones, on average.
    pub overlap_early: f64,
    /// Trial panels, of all seven.
    pub before: PanelMeans,
    /// Panels of the four chosen.
    pub after: PanelMeans,
}

/// Means of panels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PanelMeans {
    /// Asks of a panel.
    pub calls: f64,
    /// How often the result is right.
    pub accuracy: f64,
}

/// Plays so many seeds from the first on.
#[must_use]
pub fn run(seed: u64, seeds: u64) -> ChooseReport {
    let mut agents = vec![GOOD; INFORMATIVE];
    agents.resize(AGENTS, POOR);
    let everybody: Vec<usize> = (0..AGENTS).collect();
    let (mut exact, mut overlap) = (0, 0);
    let mut sums = [PanelMeans::default(); 2];
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        let crowd = Crowd { agents: agents.clone(), ranker: StubRanker::Support, seed };
        let mut shown = [EvidenceCounts::default(); AGENTS];
        for panel in 0..TRIALS {
            let played = crowd.play(panel, &everybody);
            add_all(&mut shown, played.importance.as_ref());
            sums[0].add(played.calls, played.answer);
            if panel + 1 == EARLY {
                overlap += best(&shown, INFORMATIVE, EARLY).iter().filter(|agent| **agent < INFORMATIVE).count();
            }
        }
        let chosen = best(&shown, INFORMATIVE, TRIALS);
        exact += u64::from(chosen.iter().all(|agent| *agent < INFORMATIVE));
        for panel in TRIALS..2 * TRIALS {
            let played = crowd.play(panel, &chosen);
            sums[1].add(played.calls, played.answer);
        }
    }
    let [before, after] = sums.map(|sum| sum.of((seeds * TRIALS) as f64));
    ChooseReport { seeds, exact, overlap_early: overlap as f64 / seeds as f64, before, after }
}

impl PanelMeans {
    fn add(&mut self, calls: u64, answer: u32) {
        self.calls += calls as f64;
        self.accuracy += f64::from(u8::from(answer == 0));
    }

    fn of(self, panels: f64) -> Self {
        Self { calls: self.calls / panels, accuracy: self.accuracy / panels }
    }
}

impl ChooseReport {
    /// D7: who is chosen, and what that saves.
    #[must_use]
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let needed = (EXACT_MIN * self.seeds as f64).ceil();
        let near = |id: &str, value: f64, wanted: f64, apart: f64| {
            DylanVerdict::new(id, value, format!("{wanted} within {apart}"), (value - wanted).abs() <= apart)
        };
        let exact = self.exact as f64;
        let overlap = self.overlap_early;
        vec![
            DylanVerdict::new("D7 exactly the informative", exact, format!("at least {needed} seeds"), exact >= needed),
            DylanVerdict::new(
                "D7 overlap early",
                overlap,
                format!("at least {OVERLAP_MIN} of 4"),
                overlap >= OVERLAP_MIN,
            ),
            near("D7 calls before", self.before.calls, CALLS[0], CALLS_APART),
            near("D7 calls after", self.after.calls, CALLS[1], CALLS_APART),
            near("D7 accuracy before", self.before.accuracy, ACCURACY[0], ACCURACY_APART),
            near("D7 accuracy after", self.after.accuracy, ACCURACY[1], ACCURACY_APART),
        ]
    }
}

impl fmt::Display for ChooseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, exact, overlap_early, before, after } = self;
        writeln!(f, "four informative agents of seven, by importance after {TRIALS} panels; {seeds} seeds (stub)")?;
        writeln!(
            f,
            "exactly those chosen in {exact} seeds; after {EARLY} panels {overlap_early:.2} of 4 (random 2.29)"
        )?;
        writeln!(f, "calls a panel {:.2} -> {:.2} (paper, 7 to 4 agents: 8.30 -> 4.39)", before.calls, after.calls)?;
        writeln!(f, "accuracy {:.3} -> {:.3}", before.accuracy, after.accuracy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_informative_are_chosen_and_panels_of_them_cost_less_and_are_right_more_often() {
        let report = run(1, 3);
        assert_eq!(report.exact, 3, "{report:?}");
        assert!(report.after.calls < report.before.calls - 4.0, "{report:?}");
        assert!(report.after.accuracy > report.before.accuracy, "{report:?}");
    }
}
