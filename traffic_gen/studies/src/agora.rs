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
//! | [`price`] | how many tokens is a text, and what do they cost? |
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
pub mod price;
pub mod query;
pub mod report;
pub mod task;
pub mod weather;
pub mod workload;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use agora::schedule::Thresholds;
use schemas::Refusal;
use serde::{Deserialize, Serialize};

use crate::run::FileError;
use crate::run::files::write_whole;
use network::StubFaults;
use query::QueryRecord;
use workload::Workload;

/// What was asked of a run, in its folder.
const PLAN: &str = "experiment.json";
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

/// Why a run ended before it was done.
#[derive(Debug, thiserror::Error)]
pub enum AgoraRunError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder holds something else.
    #[error("{} holds another experiment; choose another folder with --out, or remove it", .0.display())]
    OtherExperiment(PathBuf),
    /// A registry refused a document, or a record names none.
    #[error("a document was refused: {0}")]
    Registry(#[from] Refusal),
    /// The exchange of real calls, or an agent of it.
    #[error("the calls through the exchange: {0}")]
    Live(String),
    /// An agent's name is none.
    #[error("an agent's name cannot be: {0}")]
    Name(String),
}

impl AgoraPlan {
    /// So many networks, from this seed on.
    #[must_use]
    pub fn new(seed: u64, seeds: u64, thresholds: Thresholds) -> Self {
        Self { name: "agora".to_owned(), seed, seeds, thresholds }
    }

    /// The seeds.
    pub fn seeds(&self) -> impl Iterator<Item = u64> {
        self.seed..self.seed.saturating_add(self.seeds)
    }
}

/// Plays the two agents and every network, into a folder whose report [`report::write()`] computes. `show` is given the name of
/// each cell before it is played.
///
/// # Errors
/// [`AgoraRunError`]; cells that are complete stay so.
pub async fn run(plan: &AgoraPlan, folder: &Path, show: &dyn Fn(&str)) -> Result<(), AgoraRunError> {
    fs::create_dir_all(folder).map_err(|source| FileError { path: folder.to_owned(), source })?;
    let path = folder.join(PLAN);
    let is_other = path.exists() && report::plan(folder).as_ref() != Some(plan);
    if is_other {
        return Err(AgoraRunError::OtherExperiment(folder.to_owned()));
    }
    write_whole(&path, plan)?;
    show(WEATHER);
    write(&folder.join("cells").join(WEATHER), &weather::play(plan.seed).await?)?;
    for seed in plan.seeds() {
        let name = cell(seed);
        show(&name);
        let records = network::play(Workload::drawn(seed), plan.thresholds, StubFaults::Some, seed).await?;
        write(&folder.join("cells").join(name), &records)?;
    }
    Ok(())
}

/// Makes the queries of the first seed real calls through an exchange in this process, and compares them with their records.
///
/// # Errors
/// [`AgoraRunError`].
pub async fn play_live(plan: &AgoraPlan) -> Result<live::LiveFigures, AgoraRunError> {
    let workload = Workload::drawn(plan.seed);
    let records = network::play(workload.clone(), plan.thresholds, StubFaults::Some, plan.seed).await?;
    live::play(&workload, &records).await
}

/// Folder of a seed's network.
fn cell(seed: u64) -> String {
    format!("network-{seed}")
}

/// Writes queries as lines, and as a table.
fn write(folder: &Path, records: &[QueryRecord]) -> Result<(), FileError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| FileError { path, source }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    let path = folder.join(QUERIES);
    let lines = || {
        let mut file = BufWriter::new(File::create(&path)?);
        for record in records {
            serde_json::to_writer(&mut file, record)?;
            writeln!(file)?;
        }
        file.flush()
    };
    lines().map_err(at(&path))?;
    let path = folder.join("queries.csv");
    let table = || {
        let mut table = csv::Writer::from_path(&path)?;
        table.write_record(QueryRecord::COLUMNS)?;
        for record in records {
            table.write_record(record.row())?;
        }
        table.flush().map_err(csv::Error::from)
    };
    table().map_err(|error: csv::Error| at(&path)(error.into()))
}
