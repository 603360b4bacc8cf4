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

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::study::{self, StudyError};
use population::Population;

/// Tasks of a seed, as in the paper.
pub const TASKS: usize = 625;
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

impl FormationPlan {
    /// So many seeds from this one on, with so many tasks each.
    pub fn new(seed: u64, seeds: u64, tasks: usize) -> Self {
        Self { name: "ioa".to_owned(), seed, seeds, tasks }
    }
}

/// Forms teams for every task of every seed, into a folder whose report [`report::write()`] computes. `show` is given the name
/// of each cell before it is played.
///
/// # Errors
/// [`StudyError`]; cells that are complete stay so.
pub fn run(plan: &FormationPlan, folder: &Path, show: &dyn Fn(&str)) -> Result<(), StudyError> {
    let _held = study::claim(folder, plan)?;
    for seed in study::seeds(plan.seed, plan.seeds) {
        let name = cell(seed);
        show(&name);
        let records = formation::play(&Population::drawn(seed, plan.tasks)?);
        study::write_lines(&study::cell_folder(folder, &name)?.join(FORMATIONS), &records)?;
    }
    Ok(())
}

/// Makes the formations of the first seed by searches at a gateway in this process, and compares them.
///
/// # Errors
/// [`StudyError`].
pub async fn play_live(plan: &FormationPlan) -> Result<live::LiveFormationFigures, StudyError> {
    let population = Population::drawn(plan.seed, plan.tasks)?;
    let records = formation::play(&population);
    live::play(&population, &records).await
}

/// Folder of a seed.
fn cell(seed: u64) -> String {
    format!("seed-{seed}")
}
