//! The report of a run: recomputed from the formations in its folder, and from nothing else.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::Serialize;

use super::figures::{FormationVerdict, PAPER, RankFigures, SeedFigures};
use super::formation::Forming;
use super::{FORMATIONS, FormationPlan, PLAN, cell};
use crate::report::ReportError;
use crate::report::folder::FolderError;

/// Everything a report says.
#[derive(Debug, Serialize)]
pub struct FormationReport {
    /// Tasks of each seed.
    pub tasks: usize,
    /// What each seed came to.
    pub seeds: Vec<SeedFigures>,
}

/// The plan in a folder, if it is one of such a run.
#[must_use]
pub fn plan(folder: &Path) -> Option<FormationPlan> {
    serde_json::from_slice(&fs::read(folder.join(PLAN)).ok()?).ok().filter(|plan: &FormationPlan| plan.name == "ioa")
}

/// Computes the report of a folder and writes it there: `report.md` and `figures.json`.
///
/// # Errors
/// [`ReportError`]. Nothing is written unless everything could be computed.
pub fn write(folder: &Path) -> Result<FormationReport, ReportError> {
    let report = compute(folder)?;
    let json = serde_json::to_string_pretty(&report)
        .map_err(|error| ReportError::Write { path: folder.join("figures.json"), source: error.into() })?;
    for (name, text) in [("figures.json", json + "\n"), ("report.md", report.text())] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| ReportError::Write { path, source })?;
    }
    Ok(report)
}

/// Computes the report of a folder.
///
/// # Errors
/// [`ReportError`]. Nothing is written.
pub fn compute(folder: &Path) -> Result<FormationReport, ReportError> {
    let Some(plan) = plan(folder) else { return Err(FolderError::NoCells(folder.to_owned()).into()) };
    let mut seeds = Vec::new();
    for seed in plan.seeds() {
        let of_cell = folder.join("cells").join(cell(seed));
        let path = of_cell.join(FORMATIONS);
        let unreadable = |source: io::Error| FolderError::Unreadable { path: path.clone(), source };
        let mut records = Vec::new();
        for (line, text) in (1..).zip(BufReader::new(File::open(&path).map_err(unreadable)?).lines()) {
            let record = serde_json::from_str(&text.map_err(unreadable)?);
            records.push(record.map_err(|error| FolderError::Damaged {
                path: path.clone(),
                line,
                reason: error.to_string(),
                cell: of_cell.clone(),
            })?);
        }
        seeds.push(SeedFigures::of(seed, &records));
    }
    Ok(FormationReport { tasks: plan.tasks, seeds })
}

impl FormationReport {
    /// Whether everything that is claimed holds of every seed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.seeds.iter().all(SeedFigures::holds)
    }

    /// What is printed, and stands in `report.md`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![
            "# Agents found for tasks".to_owned(),
            String::new(),
            "| | teams | Top@1 | Top@10 | MR | MRR |".to_owned(),
            "|---|---|---|---|---|---|".to_owned(),
        ];
        for (forming, figures) in &PAPER {
            lines.push(row("the paper (other data)", *forming, figures));
        }
        for seed in &self.seeds {
            let name = format!("seed {}", seed.seed);
            lines.push(row(&name, Forming::Regular, &seed.regular));
            lines.push(row(&name, Forming::Nested, &seed.nested));
            lines.push(row(&name, Forming::Random, &seed.random));
        }
        lines.extend([String::new(), "| | decided alone rightly | decided to nest rightly |".to_owned()]);
        lines.push("|---|---|---|".to_owned());
        for SeedFigures { seed, right_alone, right_nested, .. } in &self.seeds {
            lines.push(format!("| seed {seed} | {right_alone:.3} | {right_nested:.3} |"));
        }
        let checked = self.seeds.iter().map(|seed| seed.verdicts.len()).sum::<usize>();
        lines.extend([String::new(), format!("{checked} claims, {} do not hold.", self.failures().count())]);
        lines.extend(self.failures().map(|(seed, verdict)| {
            let bound = |bound: Option<f64>| bound.map_or_else(|| "…".to_owned(), |bound| bound.to_string());
            let (min, max) = (bound(verdict.min), bound(verdict.max));
            format!("* seed {seed}: {} is {:.3}, not in {min} to {max}", verdict.name, verdict.value)
        }));
        lines.push(String::new());
        lines.push(format!(
            "Same measures, other data: the paper's tasks and profiles were not published. Here each seed draws {} tasks, the agents \
             they were made for and sub-tasks from themes of made-up words. Top@k is the share of those agents of which one of the k \
             most similar (itself first) was called; MR and MRR are the mean of the best rank and of one over it. No model was asked.",
            self.tasks
        ));
        lines.join("\n") + "\n"
    }

    /// The claims that do not hold, by seed.
    pub fn failures(&self) -> impl Iterator<Item = (u64, &FormationVerdict)> {
        let of_seed = |seed: &SeedFigures| seed.seed;
        self.seeds.iter().flat_map(move |seed| {
            let number = of_seed(seed);
            seed.verdicts.iter().filter(|verdict| !verdict.holds).map(move |verdict| (number, verdict))
        })
    }
}

fn row(name: &str, forming: Forming, figures: &RankFigures) -> String {
    let forming = match forming {
        Forming::Regular => "regular",
        Forming::Nested => "nested",
        Forming::Random => "four at random",
    };
    let RankFigures { top_1, top_10, mean_rank, mean_reciprocal_rank, .. } = figures;
    format!("| {name} | {forming} | {top_1:.3} | {top_10:.3} | {mean_rank:.1} | {mean_reciprocal_rank:.3} |")
}
