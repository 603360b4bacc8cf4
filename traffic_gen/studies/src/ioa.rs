//! `llmx-lab experiment ioa`: whether searches find the right agents for a task, on generated tasks and profiles.
//!
//! The paper on the Internet of Agents (arXiv 2407.07061) measured this on tasks and profiles that were never published; here
//! they follow from a seed ([`scripted::corpus`]), so that the same measures stand beside each other on other data. For each
//! agent that a task was made for, every profile is ordered by how similar it is to that agent's, and the rank of the best
//! agent that was called for the task is noted. No model is asked: the same seed gives the same files to the byte.
//!
//! | module | question it answers |
//! |---|---|
//! | [`population`] | which tasks, profiles and sub-tasks are there? |
//! | [`formation`] | who is called for each, and how near is that to whom it was made for? |
//! | [`live`] | do searches at a gateway come to the same? |
//! | [`figures`] | what do the ranks come to, and do they hold what is claimed? |
//! | [`report`] | the same from a folder, as a page |

pub mod figures;
pub mod formation;
pub mod live;
pub mod population;
pub mod report;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use schemas::ids::IdError;
use serde::{Deserialize, Serialize};

use crate::run::FileError;
use crate::run::files::write_whole;
use formation::FormationRecord;
use population::Population;

/// Tasks of a seed, as in the paper.
pub const TASKS: usize = 625;
/// What was asked of a run, in its folder.
const PLAN: &str = "experiment.json";
/// The formations of a seed, in its folder.
const FORMATIONS: &str = "formations.jsonl";

/// What is asked of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormationPlan {
    /// Always `ioa`.
    name: String,
    /// The first seed.
    pub seed: u64,
    /// How many seeds are played.
    pub seeds: u64,
    /// Tasks of each.
    pub tasks: usize,
}

/// Why a run ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum FormationRunError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder holds something else.
    #[error("{} holds another experiment; choose another folder with --out, or remove it", .0.display())]
    OtherExperiment(PathBuf),
    /// An agent's name is none.
    #[error("an agent's name cannot be: {0}")]
    Name(#[from] IdError),
    /// The exchange of the searches.
    #[error("the searches at a gateway: {0}")]
    Live(String),
}

impl FormationPlan {
    /// So many seeds from this one on, with so many tasks each.
    #[must_use]
    pub fn new(seed: u64, seeds: u64, tasks: usize) -> Self {
        Self { name: "ioa".to_owned(), seed, seeds, tasks }
    }

    /// The seeds.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.seed..self.seed.saturating_add(self.seeds)
    }
}

/// Forms teams for every task of every seed, into a folder whose report [`report::write()`] computes. `show` is given the name
/// of each cell before it is played.
///
/// # Errors
/// [`FormationRunError`]; cells that are complete stay so.
pub fn run(plan: &FormationPlan, folder: &Path, show: &dyn Fn(&str)) -> Result<(), FormationRunError> {
    fs::create_dir_all(folder).map_err(|source| FileError { path: folder.to_owned(), source })?;
    let path = folder.join(PLAN);
    if path.exists() && report::plan(folder).as_ref() != Some(plan) {
        return Err(FormationRunError::OtherExperiment(folder.to_owned()));
    }
    write_whole(&path, plan)?;
    for seed in plan.seeds() {
        let name = cell(seed);
        show(&name);
        let records = formation::play(&Population::drawn(seed, plan.tasks)?);
        write(&folder.join("cells").join(name), &records)?;
    }
    Ok(())
}

/// Makes the formations of the first seed by searches at a gateway in this process, and compares them.
///
/// # Errors
/// [`FormationRunError`].
pub async fn play_live(plan: &FormationPlan) -> Result<live::LiveFormationFigures, FormationRunError> {
    let population = Population::drawn(plan.seed, plan.tasks)?;
    let records = formation::play(&population);
    live::play(&population, &records).await
}

/// Folder of a seed.
fn cell(seed: u64) -> String {
    format!("seed-{seed}")
}

fn write(folder: &Path, records: &[FormationRecord]) -> Result<(), FileError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| FileError { path, source }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    let path = folder.join(FORMATIONS);
    let lines = || {
        let mut file = BufWriter::new(File::create(&path)?);
        for record in records {
            serde_json::to_writer(&mut file, record)?;
            writeln!(file)?;
        }
        file.flush()
    };
    lines().map_err(at(&path))
}
