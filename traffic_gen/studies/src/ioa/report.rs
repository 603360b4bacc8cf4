//! The report of a run: recomputed from the formations in its folder, and from nothing else.

use std::path::Path;

use serde::Serialize;

use super::figures::{FormationVerdict, PAPER, RankFigures, SeedFigures};
use super::formation::Forming;
use super::{FORMATIONS, FormationPlan, cell};
use crate::report::folder::{FolderError, read_lines};
use crate::report::markdown::table;
use crate::report::{ReportError, write_files};
use crate::run::files::{self, CELLS};
use crate::study;

/// Everything a report says.
#[derive(Debug, Serialize)]
pub struct FormationReport {
    /// Tasks of each seed.
    pub tasks: usize,
    /// What each seed came to.
    pub seeds: Vec<SeedFigures>,
}

/// The plan in a folder, if it is one of such a run.
pub fn plan(folder: &Path) -> Option<FormationPlan> {
    files::plan(folder).filter(|plan: &FormationPlan| plan.name == "ioa")
}

/// Computes the report of a folder and writes it there: `report.md` and `figures.json`.
///
/// # Errors
/// [`ReportError`]. Nothing is written unless everything could be computed.
pub fn write(folder: &Path) -> Result<FormationReport, ReportError> {
    let report = compute(folder)?;
    write_files(folder, &report, vec![("report.md", report.text())])?;
    Ok(report)
}

/// Computes the report of a folder.
///
/// # Errors
/// [`ReportError`]. Nothing is written.
pub fn compute(folder: &Path) -> Result<FormationReport, ReportError> {
    let Some(plan) = plan(folder) else { return Err(FolderError::NoCells(folder.to_owned()).into()) };
    let mut seeds = Vec::new();
    for seed in study::seeds(plan.seed, plan.seeds) {
        let mut records = Vec::new();
        read_lines(&folder.join(CELLS).join(cell(seed)).join(FORMATIONS), |record| records.push(record))?;
        seeds.push(SeedFigures::of(seed, &records));
    }
    Ok(FormationReport { tasks: plan.tasks, seeds })
}

impl FormationReport {
    /// What is printed, and stands in `report.md`.
    pub fn text(&self) -> String {
        let of_seed = |of: &SeedFigures| {
            let forming = [(Forming::Regular, of.regular), (Forming::Nested, of.nested), (Forming::Random, of.random)];
            forming.map(|(forming, figures)| row(&format!("seed {}", of.seed), forming, &figures))
        };
        let paper = PAPER.iter().map(|(forming, figures)| row("the paper (other data)", *forming, figures));
        let rows = paper.chain(self.seeds.iter().flat_map(of_seed));
        let decided = self.seeds.iter().map(|SeedFigures { seed, right_alone, right_nested, .. }| {
            [format!("seed {seed}"), format!("{right_alone:.3}"), format!("{right_nested:.3}")]
        });
        let checked = self.seeds.iter().map(|seed| seed.verdicts.len()).sum::<usize>();
        let failures: String = self
            .failures()
            .map(|(seed, verdict)| {
                let bound = |bound: Option<f64>| bound.map_or_else(|| "…".to_owned(), |bound| bound.to_string());
                let (min, max) = (bound(verdict.min), bound(verdict.max));
                format!("* seed {seed}: {} is {:.3}, not in {min} to {max}\n", verdict.name, verdict.value)
            })
            .collect();
        format!(
            "# Agents found for tasks\n{}{}\n{checked} claims, {} do not hold.\n{failures}\nSame measures, other data: the paper's \
             tasks and profiles were not published. Here each seed draws {} tasks, the agents they were made for and sub-tasks from \
             themes of made-up words. Top@k is the share of those agents of which one of the k most similar (itself first) was \
             called; MR and MRR are the mean of the best rank and of one over it. No model was asked.\n",
            table(&["", "teams", "Top@1", "Top@10", "MR", "MRR"], rows),
            table(&["", "decided alone rightly", "decided to nest rightly"], decided),
            self.failures().count(),
            self.tasks
        )
    }

    /// The claims that do not hold, by seed.
    pub fn failures(&self) -> impl Iterator<Item = (u64, &FormationVerdict)> {
        self.seeds.iter().flat_map(|seed| {
            seed.verdicts.iter().filter(|verdict| !verdict.holds).map(move |verdict| (seed.seed, verdict))
        })
    }
}

fn row(name: &str, forming: Forming, figures: &RankFigures) -> [String; 6] {
    let forming = match forming {
        Forming::Regular => "regular",
        Forming::Nested => "nested",
        Forming::Random => "four at random",
    };
    let RankFigures { top_1, top_10, mean_rank, mean_reciprocal_rank, .. } = figures;
    let [top_1, top_10, reciprocal] = [top_1, top_10, mean_reciprocal_rank].map(|value| format!("{value:.3}"));
    [name.to_owned(), forming.to_owned(), top_1, top_10, format!("{mean_rank:.1}"), reciprocal]
}
