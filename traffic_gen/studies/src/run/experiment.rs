//! An experiment: the cells of a plan, one after another, into one folder, each once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemas::Digest;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::{Load, LoadError};

use super::cell::{CellStanding, run_cell};
use super::files::{CELL, CELLS, HoldError, PLAN, hold, write_whole};
use super::{CellBus, RunError, RunOptions};
use crate::plan::Plan;
use crate::record::CellRecord;
use traffic_gen::metrics::running::RunningCell;

/// Why an experiment ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The folder is another run's, or nobody's, or cannot be used.
    #[error(transparent)]
    Held(#[from] HoldError),
    /// The folder holds another experiment.
    #[error("{} holds another experiment: its {PLAN} is of another plan; choose another folder with --out, or remove it", .0.display())]
    OtherPlan(PathBuf),
    /// The folder holds an experiment that replayed another trace under the same name.
    #[error("{} holds an experiment that replayed another trace: {} has changed since; put it back, or choose another folder with --out", folder.display(), trace.display())]
    OtherTrace {
        /// The folder.
        folder: PathBuf,
        /// The trace.
        trace: PathBuf,
    },
    /// A trace that is to be replayed cannot be read.
    #[error(transparent)]
    Trace(#[from] LoadError),
    /// A cell.
    #[error("cell {id}: {source}")]
    Cell {
        /// Its name.
        id: String,
        /// Why.
        source: Box<RunError>,
    },
}

/// How an experiment stands.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The cell that runs.
    pub cell: &'a str,
    /// What it has come to.
    pub rounds: CellStanding,
    /// Cells that are complete.
    pub done: usize,
    /// All cells.
    pub total: usize,
    /// How long the rest takes, as far as the cells before it show.
    pub left: Duration,
}

/// What an experiment has come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExperimentSummary {
    /// Name of the plan.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// Cells of the plan.
    pub cells: usize,
    /// Of these, complete before this run.
    pub cells_found: usize,
    /// Of these, complete now.
    pub cells_complete: usize,
    /// Rounds of the cells that are complete.
    pub rounds: u64,
    /// Violations of invariants in them.
    pub violations: u64,
    /// How long this run took, in seconds.
    pub elapsed_s: f64,
    /// Whether it was asked to end before its time.
    pub is_interrupted: bool,
}

/// Runs the cells of a plan that the folder does not hold yet, over a bus, shown by whoever is given. Once `cancel` is cancelled the cell that runs is ended, with
/// what it measured, and no other begins.
///
/// # Errors
/// [`ExperimentError`]; the cells that are complete stay so.
pub async fn run_experiment(
    plan: &Plan,
    (bus, running): (CellBus, Option<&RunningCell>),
    folder: &Path,
    cancel: &CancellationToken,
    show: &(dyn Fn(Standing<'_>) + Sync),
) -> Result<ExperimentSummary, ExperimentError> {
    let began = Instant::now();
    let _held = claim(plan, bus, folder)?;
    let options = RunOptions { bus, time_scale: plan.time_scale, running: running.cloned() };
    let place = |id: &str| folder.join(CELLS).join(id);
    let found: Vec<Option<CellRecord>> = plan.cells.iter().map(|cell| complete(&place(&cell.id))).collect();
    let mut summary = ExperimentSummary {
        name: plan.name.clone(),
        folder: folder.to_owned(),
        cells: plan.cells.len(),
        cells_found: found.iter().flatten().count(),
        ..ExperimentSummary::default()
    };
    found.iter().flatten().for_each(|record| summary.add(record));
    let lengths_s: Vec<f64> = plan.cells.iter().map(|cell| cell.duration_s / plan.time_scale).collect();
    // What cells took besides their length: starts, warm-ups, ends.
    let (mut beside_s, mut ran) = (0.0, 0_u32);
    for (number, cell) in plan.cells.iter().enumerate().filter(|(number, _)| found[*number].is_none()) {
        if cancel.is_cancelled() {
            break;
        }
        let rest = (number..).zip(&lengths_s[number..]).filter(|(number, _)| found[*number].is_none());
        let each_s = beside_s / f64::from(ran.max(1));
        let left_s: f64 = rest.map(|(_, length_s)| length_s + each_s).sum();
        let cell_began = Instant::now();
        let standing = |rounds| {
            let left = Duration::from_secs_f64(left_s).saturating_sub(cell_began.elapsed());
            show(Standing { cell: &cell.id, rounds, done: summary.cells_complete, total: summary.cells, left });
        };
        let outcome = Box::pin(run_cell(cell, &options, &place(&cell.id), cancel, &standing)).await;
        let record = outcome.map_err(|error| ExperimentError::Cell { id: cell.id.clone(), source: Box::new(error) })?;
        if !record.is_interrupted {
            summary.add(&record);
        }
        beside_s += (cell_began.elapsed().as_secs_f64() - lengths_s[number]).max(0.0);
        ran += 1;
    }
    summary.is_interrupted = cancel.is_cancelled();
    summary.elapsed_s = began.elapsed().as_secs_f64();
    Ok(summary)
}

impl ExperimentSummary {
    fn add(&mut self, record: &CellRecord) {
        self.cells_complete += 1;
        self.rounds += record.rounds;
        self.violations += record.violations.values().sum::<u64>();
    }
}

/// The record of a cell that was run to its end.
fn complete(folder: &Path) -> Option<CellRecord> {
    let text = fs::read_to_string(folder.join(CELL)).ok()?;
    serde_json::from_str(&text).ok().filter(|record: &CellRecord| !record.is_interrupted)
}

/// What a folder is for.
#[derive(Serialize)]
struct ResolvedPlan<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    bus: CellBus,
    /// Digests of the times that loads replay, by the files of their traces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    traces: BTreeMap<&'a Path, Digest>,
}

/// The digest of the times in every trace that a plan replays.
fn traces(plan: &Plan) -> Result<BTreeMap<&Path, Digest>, LoadError> {
    let mut digests = BTreeMap::new();
    for cell in &plan.cells {
        if let Load::Replay { file, .. } = &cell.load
            && !digests.contains_key(file.as_path())
        {
            let times = cell.load.arrivals(cell.rate, Duration::ZERO, cell.seed)?;
            let bytes: Vec<u8> = times.flat_map(|time| (time.as_micros() as u64).to_be_bytes()).collect();
            digests.insert(file.as_path(), Digest::of_bytes(&bytes));
        }
    }
    Ok(digests)
}

/// The first trace that is another one than the resolved plan in a folder names, where that has it.
fn changed_trace(found: &str, traces: &BTreeMap<&Path, Digest>) -> Option<PathBuf> {
    let found: serde_json::Value = serde_json::from_str(found).ok()?;
    let found = found.get("traces")?;
    let is_changed = |path: &&Path, digest: &Digest| {
        let earlier = found.get(path.to_string_lossy().as_ref()).and_then(serde_json::Value::as_str);
        earlier.is_some_and(|earlier| earlier != digest.to_string())
    };
    traces.iter().find(|(path, digest)| is_changed(path, digest)).map(|(path, _)| path.to_path_buf())
}

/// Makes the folder this experiment's, unless it is another's.
fn claim(plan: &Plan, bus: CellBus, folder: &Path) -> Result<File, ExperimentError> {
    let held = hold(folder)?;
    let fault = |source| HoldError::Unusable { path: folder.to_owned(), source };
    let path = folder.join(PLAN);
    let traces = traces(plan)?;
    let claim = ResolvedPlan { plan, bus, traces };
    let text = serde_json::to_string_pretty(&claim).map_err(|error| fault(error.into()))?;
    match fs::read_to_string(&path) {
        Ok(found) if found.trim_end() == text => Ok(held),
        Ok(found) => Err(match changed_trace(&found, &claim.traces) {
            Some(trace) => ExperimentError::OtherTrace { folder: folder.to_owned(), trace },
            None => ExperimentError::OtherPlan(folder.to_owned()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            write_whole(&path, &claim).map_err(|error| fault(error.source))?;
            Ok(held)
        }
        Err(error) => Err(fault(error).into()),
    }
}
