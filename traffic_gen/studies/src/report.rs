//! The report of an experiment, recomputed from the rounds its folder holds and from nothing else.
//!
//! [`compute`] reads and computes; [`write()`] does both and leaves `report.html`, `report.md`, `figures.json` and `tables/*.csv`
//! beside the cells. Nothing is written before everything is computed, and each file is put in place whole.

pub mod charts;
pub mod differences;
pub mod folder;
pub mod markdown;
pub mod page;
pub mod paper;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::figures::draw::DrawError;
use crate::figures::group::Group;
use crate::figures::hypotheses::{self, HypothesisVerdict, bounds};
use crate::figures::resample::Interval;
use crate::figures::{self, Figure};
use crate::record::PopulationRecord;
use crate::run::FileError;
use crate::run::files::{at, csv_text, pretty, replace_all};

use charts::{Picture, Volume};
use differences::Differences;
use folder::{FolderError, ReadFolder};
use paper::PaperComparison;

/// Everything a report says.
#[derive(Debug, Serialize)]
pub struct ExperimentReport {
    /// Name of the experiment.
    pub name: String,
    /// Cells that were read.
    pub cells: usize,
    /// Cells without a `cell.json`: they did not end, and are left out.
    pub unfinished: Vec<String>,
    /// Cells that were asked to end before their time; what they measured counts.
    pub interrupted: Vec<String>,
    /// Figures by group.
    pub groups: Vec<GroupFigures>,
    /// H1 to H7, then the bounds of the plan, B1, B2, ...
    pub hypotheses: Vec<HypothesisVerdict>,
    /// Policies against each other; all of them are in `tables/policies.csv`.
    pub policies: Differences,
    /// The paper's runs against these.
    pub paper: Vec<PaperComparison>,
    /// How the number of messages grows with that of contractors.
    pub volume: Vec<Volume>,
    /// Pictures, drawn in the page.
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

/// The figures of cells that differ in nothing but their seed.
#[derive(Debug, Serialize)]
pub struct GroupFigures {
    /// What it is called here.
    pub name: String,
    /// What its cells are alike in.
    pub key: String,
    /// Seeds.
    pub seeds: usize,
    /// Rounds behind the warm-up.
    pub rounds: u64,
    /// Who behaved alike, where not all did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub populations: Vec<PopulationRecord>,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder cannot be read as an experiment's.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<FileError> for ReportError {
    fn from(FileError { path, source }: FileError) -> Self {
        Self::Write { path, source }
    }
}

/// Writes a report into a folder: `figures.json` and further files, put in their places when all are on the disk.
///
/// # Errors
/// [`ReportError::Write`].
pub fn write_files<P: AsRef<Path>>(
    folder: &Path,
    figures: &impl Serialize,
    files: Vec<(P, String)>,
) -> Result<(), ReportError> {
    let path = folder.join("figures.json");
    let document = pretty(&path, figures)?;
    let further = files.into_iter().map(|(name, text)| (folder.join(name), text));
    Ok(replace_all(&further.chain([(path, document)]).collect::<Vec<_>>())?)
}

/// Computes the report of an experiment's folder.
///
/// # Errors
/// [`ReportError`]. Nothing is written.
pub fn compute(folder: &Path) -> Result<ExperimentReport, ReportError> {
    let ReadFolder { name, bounds: claims, tallies, unfinished } = folder::read(folder)?;
    let cells = tallies.len();
    let interrupted =
        tallies.iter().filter(|tally| tally.cell.is_interrupted).map(|tally| tally.cell.id.clone()).collect();
    let groups = Group::all(tallies);
    let of_group = |group: &Group| GroupFigures {
        name: group.name.clone(),
        key: group.key(),
        seeds: group.tallies.len(),
        rounds: group.rounds(),
        populations: populations(group),
        figures: figures::all(group, group.calm(&groups)),
    };
    let volume = charts::volume(&groups);
    let figures: Vec<_> = groups.iter().map(of_group).collect();
    Ok(ExperimentReport {
        name,
        cells,
        unfinished,
        interrupted,
        policies: differences::of_policies(&groups, &figures),
        groups: figures,
        hypotheses: [hypotheses::all(&groups), bounds::all(&claims, &groups)].concat(),
        paper: paper::compare(&groups),
        pictures: charts::all(&groups, &volume)?,
        volume,
    })
}

/// The populations of a group, with what they sent in all its seeds.
fn populations(group: &Group) -> Vec<PopulationRecord> {
    let mut populations = group.cell().populations.clone();
    let further = group.tallies.iter().skip(1).flat_map(|tally| &tally.cell.populations);
    for other in further {
        let Some(own) = populations.iter_mut().find(|population| population.name == other.name) else { continue };
        for (kind, record) in &other.misconduct {
            own.misconduct.entry(kind.clone()).or_default().add(record);
        }
    }
    populations
}

/// Computes the report of a folder and writes it there.
///
/// # Errors
/// [`ReportError`]. Nothing is written unless everything could be computed.
pub fn write(folder: &Path) -> Result<ExperimentReport, ReportError> {
    let report = compute(folder)?;
    report.write(folder, None)?;
    Ok(report)
}

impl ExperimentReport {
    /// Writes the report into a folder, with what differs from another experiment.
    ///
    /// # Errors
    /// [`ReportError::Write`].
    pub fn write(&self, folder: &Path, differences: Option<&Differences>) -> Result<(), ReportError> {
        let mut files = vec![
            (PathBuf::from("report.html"), page::html(self, differences)),
            (PathBuf::from("report.md"), markdown::text(self, differences)),
        ];
        let tables = Path::new("tables");
        for (name, text) in self.tables() {
            let path = tables.join(name);
            let text = text.map_err(at(&path))?;
            files.push((path, text));
        }
        let tables = folder.join(tables);
        fs::create_dir_all(&tables).map_err(at(&tables))?;
        write_files(folder, &serde_json::json!({"report": self, "differences": differences}), files)
    }

    fn tables(&self) -> [(&'static str, io::Result<String>); 4] {
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let figures = self.groups.iter().flat_map(|group| {
            group.figures.iter().map(move |figure| {
                let Figure { key, name, unit, definition, value, interval, theory, missing, .. } = figure;
                let numbers = [*value, interval.map(|it| it.low), interval.map(|it| it.high), *theory].map(number);
                ((&group.name, group.seeds, group.rounds), (key, name, unit), numbers, missing, definition)
            })
        });
        let verdicts = self.hypotheses.iter().map(|verdict| {
            let HypothesisVerdict { id, claim, judgement, reason, rounds_needed, .. } = verdict;
            (id, claim, judgement.as_str(), reason, rounds_needed)
        });
        let paper = self.paper.iter().map(|run| {
            let interval = run.mean_interval;
            let mean = [run.mean_ms, interval.map(|it| it.low), interval.map(|it| it.high)].map(number);
            (
                (&run.run, &run.group, run.measure, run.paper_counts, run.counts),
                (run.paper_mean.to_string(), mean),
                (run.paper_p95.map(|printed| printed.to_string()), number(run.p95_ms), run.is_longest),
                [run.factor, run.completion].map(number),
            )
        });
        let policies = self.policies.all.iter().map(|found| {
            let (Interval { low, high }, is_beyond) = (found.interval, found.is_beyond_noise());
            let numbers = [found.value, found.other, low, high].map(|value| value.to_string());
            (&found.group, &found.key, &found.name, found.unit, numbers, is_beyond)
        });
        let of_figures = "group,seeds,rounds,metric,name,unit,value,low,high,theory,missing,definition";
        let of_paper = "run,group,measure,paper_calls,paper_offers,paper_rounds,calls,offers,rounds,\
                        paper_mean_ms,mean_ms,mean_low,mean_high,paper_p95_ms,p95_ms,p95_is_longest,factor,completion";
        let of_policies = "groups,metric,name,unit,value,other,low,high,beyond_noise";
        [
            ("figures.csv", csv_text(of_figures, figures)),
            ("hypotheses.csv", csv_text("hypothesis,claim,judgement,reason,rounds_needed", verdicts)),
            ("paper.csv", csv_text(of_paper, paper)),
            ("policies.csv", csv_text(of_policies, policies)),
        ]
    }
}
