//! Whether evidence finds the agents worth asking: of seven four are informative; trial panels of all, then panels of the four
//! of highest importance.

use std::fmt;

use schemas::AgentId;
use schemas::delivery::Ask;
use schemas::evidence::{EvidenceCounts, EvidenceSource};
use schemas::panel::ChooseSpec;
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::{Crowd, MIN_RUNS, StubAgent, add_all, best, name};
use super::folded::{FoldedPanels, OPTIONS, QUESTION, answered, rules};
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
/// Of so many seeds, one is played through calls.
const CALLED_EVERY: u64 = 10;
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
    /// The same through calls: after trial panels each call chooses its seats by what the ledger says then.
    pub called: CalledChoice,
}

/// What calls that choose their seats came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalledChoice {
    /// Seeds played.
    pub seeds: u64,
    /// Seeds in which the first call that chooses seats exactly the informative agents.
    pub exact: u64,
    /// Trial panels, of all seven.
    pub before: PanelMeans,
    /// Panels whose call chooses.
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
    let overlap_early = overlap as f64 / seeds as f64;
    let called = called(&agents, seed, seeds.div_ceil(CALLED_EVERY));
    ChooseReport { seeds, exact, overlap_early, before, after, called }
}

/// Trial panels of all, and as many whose call chooses four.
fn called(agents: &[StubAgent], seed: u64, seeds: u64) -> CalledChoice {
    let initiator = AgentId::try_new("initiator").expect("letters are a name");
    let everybody: Vec<AgentId> = (0..agents.len()).map(name).collect();
    let all = rules("trial", OPTIONS, None);
    let keep = u32::try_from(INFORMATIVE).unwrap_or(u32::MAX);
    let choose = ChooseSpec { keep, from: EvidenceSource::Own, min_runs: MIN_RUNS, newcomers: 0 };
    let best = rules("trial", OPTIONS, Some(choose));
    let mut exact = 0;
    let mut sums = [PanelMeans::default(); 2];
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        let crowd = Crowd { agents: agents.to_vec(), ranker: StubRanker::Support, seed };
        let mut panels = FoldedPanels::default();
        for panel in 0..2 * TRIALS {
            let rules = if panel < TRIALS { &all } else { &best };
            let says = |agent: &AgentId, ask: &Ask| Some(answered(&crowd, panel, agent, ask));
            let played = panels.ask(&initiator, (rules, QUESTION), &everybody, says);
            let Some(decision) = &played.decision else { continue };
            let calls = u64::from(decision.calls.answers + decision.calls.ranks);
            let is_right = played.answer.as_deref() == Some(OPTIONS[0]);
            sums[usize::from(panel >= TRIALS)].add(calls, u32::from(!is_right));
            if panel == TRIALS {
                let seats = decision.panelists.iter().map(|seat| &seat.agent);
                exact += u64::from(seats.eq(everybody.iter().take(INFORMATIVE)));
            }
        }
    }
    let [before, after] = sums.map(|sum| sum.of((seeds * TRIALS) as f64));
    CalledChoice { seeds, exact, before, after }
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
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let needed = |seeds: u64| (EXACT_MIN * seeds as f64).ceil();
        let exactly = |id, exact: u64, seeds, of: String| DylanVerdict::at_least(id, exact as f64, needed(seeds), of);
        let means = |what: &str, before: PanelMeans, after: PanelMeans| {
            [
                DylanVerdict::near(format!("D7 {what}calls before"), before.calls, CALLS[0], CALLS_APART),
                DylanVerdict::near(format!("D7 {what}calls after"), after.calls, CALLS[1], CALLS_APART),
                DylanVerdict::near(format!("D7 {what}accuracy before"), before.accuracy, ACCURACY[0], ACCURACY_APART),
                DylanVerdict::near(format!("D7 {what}accuracy after"), after.accuracy, ACCURACY[1], ACCURACY_APART),
            ]
        };
        let CalledChoice { seeds, exact, before, after } = self.called;
        let mut verdicts = vec![
            exactly("D7 exactly the informative", self.exact, self.seeds, " seeds".to_owned()),
            DylanVerdict::at_least("D7 overlap early", self.overlap_early, OVERLAP_MIN, " of 4"),
        ];
        verdicts.extend(means("", self.before, self.after));
        verdicts.push(exactly("D7 called, exactly the informative", exact, seeds, format!(" of {seeds} seeds")));
        verdicts.extend(means("called, ", before, after));
        verdicts
    }
}

impl fmt::Display for ChooseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, exact, overlap_early, before, after, called } = self;
        writeln!(f, "four informative agents of seven, by importance after {TRIALS} panels; {seeds} seeds (stub)")?;
        writeln!(
            f,
            "exactly those chosen in {exact} seeds; after {EARLY} panels {overlap_early:.2} of 4 (random 2.29)"
        )?;
        writeln!(f, "calls a panel {:.2} -> {:.2} (paper, 7 to 4 agents: 8.30 -> 4.39)", before.calls, after.calls)?;
        writeln!(f, "accuracy {:.3} -> {:.3}", before.accuracy, after.accuracy)?;
        let CalledChoice { seeds, exact, before, after } = called;
        writeln!(
            f,
            "called, {seeds} seeds: exactly those seated in {exact}; calls {:.2} -> {:.2}, accuracy {:.3} -> {:.3}",
            before.calls, after.calls, before.accuracy, after.accuracy
        )
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
        let called = &report.called;
        assert_eq!((called.seeds, called.exact), (1, 1), "{report:?}");
        assert!(called.after.calls < called.before.calls - 4.0, "{report:?}");
        assert!((called.before.calls - report.before.calls).abs() < 1.0, "{report:?}");
    }
}
