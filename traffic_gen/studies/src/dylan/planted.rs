//! Whether importance finds the best and the worst: among agents of like accuracy one that is always right and one that lies.

use std::fmt;

use schemas::evidence::EvidenceCounts;
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::{Crowd, StubAgent, add_all, relative};
use super::play::StubRanker;

/// Seeds unless others are asked for.
pub const SEEDS: u64 = 20;
const PANELS: u64 = 281;
const AGENTS: usize = 7;
const DISCERNMENT: f64 = 0.8;
/// How often those are right that are neither.
const ACCURACY: f64 = 0.6;

/// What became of the planted agents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlantedReport {
    /// Seeds played.
    pub seeds: u64,
    /// Seeds in which who is always right has the highest importance.
    pub best_first: u64,
    /// Seeds in which the liar has the lowest.
    pub liar_last: u64,
    /// Mean importance by agent, 1 being a fair share: the best, five alike, the liar.
    pub relative: Vec<f64>,
}

/// Plays so many seeds from the first on.
pub fn run(seed: u64, seeds: u64) -> PlantedReport {
    let mut agents = vec![StubAgent::honest(ACCURACY, DISCERNMENT); AGENTS - 2];
    agents.insert(0, StubAgent::honest(1.0, DISCERNMENT));
    agents.push(StubAgent::liar(DISCERNMENT));
    let seats: Vec<usize> = (0..AGENTS).collect();
    let (mut best_first, mut liar_last, mut sums) = (0, 0, vec![0.0; AGENTS]);
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        let crowd = Crowd { agents: agents.clone(), ranker: StubRanker::Support, seed };
        let mut shown = [EvidenceCounts::default(); AGENTS];
        (0..PANELS).for_each(|panel| add_all(&mut shown, crowd.play(panel, &seats).importance.as_ref()));
        let relative = shown.map(|counts| relative(&counts));
        let [best, between @ .., liar] = relative;
        best_first += u64::from(between.iter().all(|other| *other < best) && liar < best);
        liar_last += u64::from(between.iter().all(|other| *other > liar));
        sums.iter_mut().zip(relative).for_each(|(sum, relative)| *sum += relative);
    }
    let relative = sums.into_iter().map(|sum| sum / seeds as f64).collect();
    PlantedReport { seeds, best_first, liar_last, relative }
}

impl PlantedReport {
    /// D6: both in every seed.
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let all =
            |id, count: u64| DylanVerdict::new(id, count as f64, format!("{} seeds", self.seeds), count == self.seeds);
        vec![all("D6 planted agent first", self.best_first), all("D6 liar last", self.liar_last)]
    }
}

impl fmt::Display for PlantedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, best_first, liar_last, relative } = self;
        let relative: Vec<String> = relative.iter().map(|relative| format!("{relative:.3}")).collect();
        writeln!(
            f,
            "one always right, five right in {ACCURACY}, a liar; {PANELS} panels in each of {seeds} seeds (stub)"
        )?;
        writeln!(f, "relative importance {}", relative.join(" "))?;
        writeln!(f, "the one always right is first in {best_first} seeds, the liar last in {liar_last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_always_right_comes_first_and_who_lies_comes_last() {
        let report = run(1, 2);
        assert!(report.verdicts().iter().all(|verdict| verdict.holds), "{report:?}");
        assert!((report.relative.iter().sum::<f64>() - AGENTS as f64).abs() < 1e-6, "{report:?}");
    }
}
