//! `llmx-lab experiment agora`: what protocol documents save, on the two demonstrations of the paper on Agora (arXiv 2410.11905).
//!
//! Two agents ask each other for the weather, and a network of 100 agents has a thousand queries of thirteen kinds. Who talks in
//! natural language, negotiates, checks and programs follows from the machines of [`agora::schedule`]; what that costs, from the
//! texts that models would be sent and would answer ([`conversation`]). No model is asked: the same seed gives the same files to
//! the byte.
//!
//! | module | question it answers |
//! |---|---|
//! | [`task`] | which kinds of task are there, and what do agents say for them? |
//! | [`conversation`] | what does each piece of a model's work cost? |
//! | [`workload`] | who asks whom for what? |
//! | [`network`] | what happens in each query? |
//! | [`live`] | do the same queries come to the same as real calls? |
//! | [`weather`] | after how many uses has a document paid for two agents? |
//! | [`query`] | what is kept of a query? |
//! | [`figures`], [`charts`], [`report`] | what do the queries come to? |

pub mod charts;
pub mod conversation;
pub mod figures;
pub mod live;
pub mod network;
pub mod query;
pub mod report;
pub mod task;
pub mod weather;
pub mod workload;

use std::fs;
use std::path::Path;

use agora::schedule::Thresholds;
use serde::{Deserialize, Serialize};

use crate::run::FileError;
use crate::run::files::{at, csv_text};
use crate::study::{self, StudyError};
use network::StubFaults;
use query::QueryRecord;
use workload::Workload;

/// The queries of a cell, in its folder.
const QUERIES: &str = "queries.jsonl";
/// Folder of the two agents.
const WEATHER: &str = "weather";

/// What is asked of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgoraPlan {
    /// Always `agora`.
    name: String,
    /// The first seed.
    pub seed: u64,
    /// Networks that are played, each with a seed of its own.
    pub seeds: u64,
    /// The thresholds of all agents of the network.
    pub thresholds: Thresholds,
}

impl AgoraPlan {
    /// So many networks, from this seed on.
    pub fn new(seed: u64, seeds: u64, thresholds: Thresholds) -> Self {
        Self { name: "agora".to_owned(), seed, seeds, thresholds }
    }
}

/// Plays the two agents and every network, into a folder whose report [`report::write()`] computes. `show` is given the name of
/// each cell before it is played.
///
/// # Errors
/// [`StudyError`]; cells that are complete stay so.
pub async fn run(plan: &AgoraPlan, folder: &Path, show: &dyn Fn(&str)) -> Result<(), StudyError> {
    let _held = study::claim(folder, plan)?;
    show(WEATHER);
    write(folder, WEATHER, &weather::play(plan.seed).await?)?;
    for seed in study::seeds(plan.seed, plan.seeds) {
        let name = cell(seed);
        show(&name);
        let records = network::play(Workload::drawn(seed), plan.thresholds, StubFaults::Some, seed).await?;
        write(folder, &name, &records)?;
    }
    Ok(())
}

/// Makes the queries of the first seed real calls through an exchange in this process, and compares them with their records.
///
/// # Errors
/// [`StudyError`].
pub async fn play_live(plan: &AgoraPlan) -> Result<live::LiveFigures, StudyError> {
    let workload = Workload::drawn(plan.seed);
    let records = network::play(workload.clone(), plan.thresholds, StubFaults::Some, plan.seed).await?;
    live::play(&workload, &records).await
}

/// Folder of a seed's network.
fn cell(seed: u64) -> String {
    format!("network-{seed}")
}

/// Writes queries as lines, and as a table.
fn write(folder: &Path, cell: &str, records: &[QueryRecord]) -> Result<(), FileError> {
    let folder = study::cell_folder(folder, cell)?;
    study::write_lines(&folder.join(QUERIES), records)?;
    let path = folder.join("queries.csv");
    let text = csv_text(QueryRecord::COLUMNS, records.iter().map(QueryRecord::row));
    text.and_then(|text| fs::write(&path, text)).map_err(at(&path))
}
