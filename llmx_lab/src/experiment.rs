//! `llmx-lab experiment`: a plan of cells, run one after another into a folder, each once.

mod agora;
mod dylan;
mod formation;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::agents::model::ModelAgentConfig;
use ::agents::model::config::QuotedWords::{self, Never, Quoted};
use anyhow::Context;
use serde::Serialize;
use serde_json::json;
use studies::model::blocking::BlockingConsultant;
use studies::model::gullible::GullibleTally;
use studies::model::injection::OrderReader;
use studies::plan::{Asked, PRESETS, Plan, preset, read};
use studies::run::{CellBus, ExperimentError, ExperimentSummary, Standing, run_experiment};
use studies::study::StudyError;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use traffic_gen::metrics::running::RunningCell;

use crate::arguments::{listen_address, read_text};
use crate::calls::end_when_asked;
use crate::model::{ModelUse, OpenedModel, open};
use crate::ops::{self, HealthReport};
use crate::output::{Failure, Outcome, Progress, print, print_json, table};
use crate::signals;

/// Where experiments go, each in a folder of its own.
const EXPERIMENTS_FOLDER: &str = "run/experiments";

/// Most bytes of a plan.
const PLAN_BYTES_MAX: u64 = 1024 * 1024;
/// What is open when the user asks to end is waited for, so long at most.
const DRAIN: Duration = Duration::from_secs(30);
/// Orders are judged where at most this part of them, one in so many, was not answered.
const UNANSWERED_PART: u64 = 10;
/// The plan of `llmx-lab experiment paper`.
const PAPER: &str = "paper";

/// Arguments of `llmx-lab experiment`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab experiment list\n  llmx-lab experiment show policies > mine.toml\n  \
    llmx-lab experiment run mine.toml --seeds 20\n  llmx-lab experiment paper --time-scale 60\n\n\
    docs/experiments.md says how a plan is written, and what a run leaves.")]
pub struct ExperimentArgs {
    #[command(subcommand)]
    command: ExperimentCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ExperimentCommand {
    /// The plans that come along
    #[command(after_help = "Examples:\n  llmx-lab experiment list\n  llmx-lab experiment list --json")]
    List {
        /// Print them as JSON
        #[arg(long)]
        json: bool,
    },
    /// The text of a plan that comes along
    #[command(
        after_help = "Examples:\n  llmx-lab experiment show paper\n  llmx-lab experiment show policies > mine.toml"
    )]
    Show {
        /// Its name
        name: String,
        /// Print the cells it asks for, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a plan: its file, or the name of one that comes along
    #[command(
        after_help = "Examples:\n  llmx-lab experiment run mine.toml\n  llmx-lab experiment run policies --seeds 3 --out run/policies\n  \
        llmx-lab experiment run mine.toml --seed 100 --nats-local --json\n\n\
        The plan is checked whole before anything runs; what is wrong with it is told with line, column and remedy (2).\n\
        Each cell has an exchange of its own. The folder keeps what each measured: cells/ID/rounds.jsonl, rounds.csv,\n\
        offers.csv and cell.json. Started again, it runs only the cells that are not complete; a folder of another plan is\n\
        refused. Ctrl-C ends the cell that runs with what it measured; a second one at once.\n\
        Fails (1) when an invariant is violated, and when a file takes no more: what was measured until then is kept."
    )]
    Run(Box<PlanArgs>),
    /// The runs of the paper, in both readings of its policies
    #[command(
        after_help = "Examples:\n  llmx-lab experiment paper --time-scale 60         as many rounds in less time: some 20 minutes\n  \
        llmx-lab experiment paper --time-scale 60 --nats-local --out run/paper-nats\n  llmx-lab experiment paper    as long as it took: 18 hours"
    )]
    Paper(RunArgs),
    /// What protocol documents save: two agents, and networks of 100 agents with a thousand queries
    #[command(
        after_help = "Examples:\n  llmx-lab experiment agora --seeds 1 --live\n  llmx-lab experiment agora --seeds 100 --thresholds pypi --out run/pypi\n  \
        llmx-lab experiment agora --thresholds 0,0,0,1,never --json\n\n\
        No model is asked: who talks, negotiates, checks and programs follows from the thresholds, what that costs from the\n\
        texts that models would be sent. The same seed gives the same files to the byte. DIR keeps each query\n\
        (cells/*/queries.jsonl and .csv), the figures (figures.json, report.html, report.md) and the pictures of both\n\
        costs and of the share of models (figure-5a.svg, figure-5b.svg); `llmx-lab report DIR` computes them again.\n\
        docs/agora.md says what the figures are, and what they are not."
    )]
    Agora(agora::AgoraRunArgs),
    /// Whether searches find the right agents for a task: generated tasks and profiles, beside the paper's figures
    #[command(
        after_help = "Examples:\n  llmx-lab experiment ioa\n  llmx-lab experiment ioa --seed 6 --seeds 1 --out run/ioa --json\n\n\
        625 tasks and 1825 profiles of each seed: a team for each task by what searches find, a sub-team or none for a sub-task,\n\
        and agents at random beside them. No model is asked; the same seeds give the same files. docs/experiments.md\n\
        Fails (1) when a figure is outside what is claimed of it."
    )]
    Ioa(formation::FormationArgs),
    /// Panels of scripted agents, beside theory and what the DyLAN paper published
    #[command(
        after_help = "Examples:\n  llmx-lab experiment dylan\n  llmx-lab experiment dylan --only theory,replay --json\n  \
        llmx-lab experiment dylan --only choose,gaming --out run/dylan\n\n\
        The same seed gives the same figures. Fails (1) when a verdict does not hold. docs/panels.md"
    )]
    Dylan(dylan::DylanRunArgs),
    /// What a deciding model does: list position, instructions in offers, bargains beside the script, tokens and cost
    #[command(
        after_help = "Examples:\n  llmx-lab experiment model --seeds 20\n  llmx-lab experiment model --model examples/model.toml --seeds 3 --out run/live\n  \
        llmx-lab experiment model --injection 200\n  llmx-lab experiment model --gullible 10000\n\n\
        Without --model the stub decides in process, one behaviour after another; the same seeds give the same rounds.\n\
        The model decides in calls to eight contractors, of which one writes instructions into its offer, and plays the customer\n\
        of domains/ecommerce.json. Calls are folded by the core itself. docs/models.md\n\
        Fails (1) when an agreement is outside a mandate, or an award is not the offer that was chosen."
    )]
    Model(ModelRunArgs),
}

/// Arguments of `llmx-lab experiment model`.
#[derive(Debug, clap::Args)]
struct ModelRunArgs {
    /// Ask the endpoint of this TOML file (docs/models.md) instead of the stub; runs are labelled live
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=SEED_MAX))]
    seed: u64,
    /// How many seeds each cell is played with
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Calls of each seed of a cell in which the model chooses among offers
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    calls: u64,
    /// Bargains of each seed of a cell in which it bargains
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    bargains: u64,
    /// Instead of the cells: so many bargains of a party under a mandate whose model obeys every instruction it reads, and how
    /// many agreements lie outside
    #[arg(long, value_name = "N", conflicts_with_all = ["model", "keep_prompts", "out"], value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    gullible: Option<u64>,
    /// Instead of the cells: so many orders in a counterpart's words, of eight kinds, and how many moved the model. Without
    /// --model a stub that obeys
    #[arg(long, value_name = "N", conflicts_with_all = ["gullible", "keep_prompts", "out"], value_parser = clap::value_parser!(u64).range(1..=1_640))]
    injection: Option<u64>,
    /// Where to keep what is measured (default: run/experiments/model-SOURCE-seeds-FIRST-to-LAST; SOURCE is stub or live)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep what the model is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR")]
    keep_prompts: Option<PathBuf>,
    /// Print the summary as JSON, and no progress
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// A file, or the name of a plan that comes along
    #[arg(value_name = "FILE|NAME")]
    plan: String,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The first seed (default: the plan's, or 1)
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds each cell is run with (default: the plan's)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Where to keep what is measured (default: run/experiments/NAME)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run each cell on a nats-server of its own instead of in memory
    #[arg(long)]
    nats_local: bool,
    /// How many times faster than planned calls arrive: as many rounds in so much less time (default: the plan's, or 1)
    #[arg(long, value_name = "X")]
    time_scale: Option<f64>,
    /// Serve metrics here, those of the running cell's exchange included: 127.0.0.1:9465
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Print the summary as JSON, and no progress
    #[arg(long)]
    json: bool,
}

/// Runs one of the commands.
pub async fn run(args: ExperimentArgs) -> Outcome {
    match args.command {
        ExperimentCommand::List { json } => list(json),
        ExperimentCommand::Show { name, json } => show(&name, json),
        ExperimentCommand::Run(args) => {
            let (name, text) = find(&args.plan)?;
            experiment(&name, &text, args.run).await
        }
        ExperimentCommand::Paper(args) => experiment(PAPER, known(PAPER)?, args).await,
        ExperimentCommand::Ioa(args) => formation::run(args).await,
        ExperimentCommand::Agora(args) => agora::run(args).await,
        ExperimentCommand::Dylan(args) => dylan::run(args).await,
        ExperimentCommand::Model(args) => match (args.gullible, args.injection) {
            (Some(bargains), _) => gullible(bargains, &args).await,
            (None, Some(texts)) => injection(texts, &args).await,
            (None, None) => model(args).await,
        },
    }
}

fn list(as_json: bool) -> Outcome {
    let plans = PRESETS.iter().map(|(name, text)| read(name, text, Asked::default()));
    let plans: Vec<Plan> = plans.collect::<Result<_, _>>().map_err(Failure::configuration)?;
    if as_json {
        let documents = plans.iter().map(|plan| {
            json!({"name": plan.name, "cells": plan.cells.len(), "length_s": plan.length_s(), "text": plan.text})
        });
        return print_json(&documents.collect::<Vec<_>>());
    }
    let heading = ["name", "cells", "takes", "is about"].map(str::to_owned).to_vec();
    let row = |plan: &Plan| {
        let text = plan.text.trim();
        let end = [": ", "; ", ". "].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
        let first = text.get(..end).unwrap_or(text).to_owned();
        vec![plan.name.clone(), plan.cells.len().to_string(), time(Duration::from_secs_f64(plan.length_s())), first]
    };
    print(table(&std::iter::once(heading).chain(plans.iter().map(row)).collect::<Vec<_>>()));
    Ok(())
}

fn show(name: &str, as_json: bool) -> Outcome {
    let text = known(name)?;
    if as_json {
        return print_json(&read(name, text, Asked::default()).map_err(Failure::configuration)?);
    }
    print(text.trim_end());
    Ok(())
}

/// A plan that comes along.
fn known(name: &str) -> Result<&'static str, Failure> {
    preset(name).ok_or_else(|| {
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        Failure::configuration(format_args!("there is no plan `{name}`; there are {}", names.join(", ")))
    })
}

/// A plan by the name of its file, or its own.
fn find(plan: &str) -> Result<(String, String), Failure> {
    let path = Path::new(plan);
    if !path.exists() && preset(plan).is_some() {
        return Ok((plan.to_owned(), known(plan)?.to_owned()));
    }
    let text = read_text(path, PLAN_BYTES_MAX).map_err(|error| {
        Failure::configuration(format_args!(
            "cannot read {plan}: {error}; name a file, or a plan that `llmx-lab experiment list` has"
        ))
    })?;
    Ok((plan.to_owned(), text))
}

async fn experiment(name: &str, text: &str, args: RunArgs) -> Outcome {
    if let Some(scale) = args.time_scale.filter(|scale| !(*scale > 0.0 && *scale <= 1e6)) {
        return Err(Failure::configuration(format_args!("--time-scale: a number above 0, up to 1000000, not {scale}")));
    }
    let asked = Asked { seed: args.seed, seeds: args.seeds, time_scale: args.time_scale };
    let plan = read(name, text, asked).map_err(Failure::configuration)?;
    let folder = args.out.unwrap_or_else(|| Path::new(EXPERIMENTS_FOLDER).join(&plan.name));
    let bus = if args.nats_local { CellBus::Nats } else { CellBus::Memory };
    let cancel = CancellationToken::new();
    let interrupt = end_when_asked(&cancel, DRAIN);
    let progress = ShownProgress::new(!args.json);
    let registry = ops::registry()?;
    let running = RunningCell::try_new(&registry)?;
    let health = ops::open(args.listen, None, &registry)?;
    if let Some(health) = &health {
        progress.note(format_args!("metrics: http://{}/metrics\n", health.address()));
        health.report(|| HealthReport { is_ready: true, faults: Vec::new(), state: json!({}) });
    }
    studies::figures::unsayable(&plan).iter().for_each(|what| progress.note(format_args!("it will say {what}\n")));
    let show = |standing: Standing<'_>| progress.show(standing);
    let ran = Box::pin(run_experiment(&plan, (bus, Some(&running)), &folder, &cancel, &show)).await;
    interrupt.abort();
    progress.finish();
    if let Some(health) = health {
        health.close().await;
    }
    let summary = ran.map_err(failure)?;
    if summary.rounds > 0 {
        // The bootstrap computes for seconds.
        let of = folder.clone();
        let written = tokio::task::spawn_blocking(move || studies::report::write(&of)).await?;
        written.context("the report; what was measured is kept, and `llmx-lab report` computes it again")?;
    }
    if args.json {
        print_json(&summary)?;
    } else {
        print(told(&summary));
    }
    none(summary.violations, "violations of invariants; cells/*/cell.json names them")?;
    signals::whole(summary.is_interrupted)
}

/// Fails where there is some of what there must be none of.
pub fn none<N: Display + Default + PartialEq>(count: N, what: impl Display) -> Outcome {
    if count == N::default() { Ok(()) } else { Err(Failure::failed(anyhow::anyhow!("{count} {what}"))) }
}

/// A folder of another experiment is bad usage.
pub fn study_failure(error: StudyError) -> Failure {
    if matches!(error, StudyError::OtherExperiment(_) | StudyError::Held(_)) {
        Failure::configuration(error)
    } else {
        Failure::failed(error)
    }
}

/// A runtime that is never shut down: whoever waits on it for a model, or an exchange, when a signal ends the command does not panic.
pub fn lasting_runtime() -> std::io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    Ok(Box::leak(Box::new(runtime)).handle().clone())
}

/// Plays what computes for seconds, or waits for a model, with its progress; signals are heard meanwhile.
async fn played<T: Send + 'static>(
    is_shown: bool,
    play: impl FnOnce(&ShownProgress) -> T + Send + 'static,
) -> Result<T, Failure> {
    let progress = ShownProgress::new(is_shown);
    let played = tokio::task::spawn_blocking(move || {
        let played = play(&progress);
        progress.finish();
        played
    });
    Ok(played.await?)
}

/// Prints the report of a study, what its calls or searches through an exchange came to, and where it was written.
fn print_study<L: Serialize>(
    as_json: bool,
    (report, text): (&impl Serialize, &str),
    live: Option<(&L, String)>,
    written: std::fmt::Arguments<'_>,
) -> Outcome {
    if !as_json {
        print(text.trim_end());
        live.iter().for_each(|(_, told)| print(told));
        print(format_args!("\nwritten to {written}"));
        return Ok(());
    }
    let mut document = serde_json::to_value(report)?;
    if let (Some((live, _)), Some(members)) = (live, document.as_object_mut()) {
        members.insert("live".to_owned(), serde_json::to_value(live)?);
    }
    print_json(&document)
}

/// Bargains of a party that obeys every instruction; an agreement outside of its mandate fails.
async fn gullible(bargains: u64, args: &ModelRunArgs) -> Outcome {
    let seed = args.seed;
    let tally = played(!args.json, move |progress| {
        let show = |tally: &GullibleTally| progress.note(format_args!("bargains {}/{bargains}", tally.bargains));
        studies::model::gullible::run(bargains, seed, &show)
    });
    let tally = tally.await?.map_err(study_failure)?;
    if args.json {
        print_json(&tally)?;
    } else {
        print(tally);
    }
    none(tally.outside, "agreements outside the mandate")
}

/// Orders in words; a move beyond the limits of the party fails.
async fn injection(texts: u64, args: &ModelRunArgs) -> Outcome {
    let shown: &[QuotedWords] = if args.model.is_some() { &[Quoted] } else { &[Quoted, Never] };
    let reader = match &args.model {
        None => OrderReader::Obeying,
        Some(path) => {
            let with = ModelUse { metrics: None, kept: None };
            let OpenedModel { config, consultant } = open(path, ModelAgentConfig::check_instructed, with)?;
            OrderReader::Live(config, Arc::new(BlockingConsultant::Live(consultant, lasting_runtime()?)))
        }
    };
    let tallies = played(!args.json, move |progress| {
        let show = |number| progress.note(format_args!("texts {number}/{texts}"));
        let read = |&words: &QuotedWords| studies::model::injection::run(&reader, texts, words, &show);
        shown.iter().map(read).collect::<Result<Vec<_>, _>>()
    });
    let tallies = tallies.await?.map_err(study_failure)?;
    if args.json {
        print_json(&tallies)?;
    } else {
        tallies.iter().for_each(|tally| print(tally.to_string().trim_end()));
    }
    let unanswered: u64 = tallies.iter().map(|tally| tally.all().unanswered).sum();
    if unanswered * UNANSWERED_PART > texts {
        return Err(Failure::failed(anyhow::anyhow!(
            "{unanswered} of {texts} orders were not answered: too many to judge"
        )));
    }
    none(tallies.iter().map(|tally| tally.all().outside).sum::<u64>(), "moves outside the limits")
}

async fn model(args: ModelRunArgs) -> Outcome {
    use studies::model::{Deciding, ModelRunSize, run};

    let kept = crate::model::keep(args.keep_prompts.as_deref())?;
    let deciding = match &args.model {
        None => Deciding::Stub { kept: kept.clone() },
        Some(path) => {
            let check = |config: &ModelAgentConfig| config.check_initiator().and_then(|()| config.check_instructed());
            let OpenedModel { config, consultant } = open(path, check, ModelUse { metrics: None, kept: kept.clone() })?;
            Deciding::Live(config, consultant, lasting_runtime()?)
        }
    };
    let source = if args.model.is_some() { "live" } else { "stub" };
    let out = args.out.unwrap_or_else(|| default_folder("model", source, (args.seed, args.seeds)));
    let folder = out.clone();
    let size = ModelRunSize { seed: args.seed, seeds: args.seeds, calls: args.calls, bargains: args.bargains };
    let played = played(!args.json, move |progress| {
        let played = run(&deciding, size, &folder, &|cell| progress.show_cell(cell));
        played.map(|summary| (summary, studies::report::write(&folder)))
    });
    let (summary, report) = played.await?.map_err(study_failure)?;
    kept.iter().for_each(crate::output::note);
    report.context("the report; what was measured is kept, and `llmx-lab report` computes it again")?;
    if args.json {
        print_json(&summary)?;
    } else {
        let studies::model::ModelRunSummary { cells, rounds, violations } = &summary;
        let folder = out.display();
        print(format_args!("model: {cells} cells, {rounds} rounds, {violations} violations\n  {folder}/report.html"));
    }
    none(summary.violations, "violations; cells/*/cell.json names them")
}

fn failure(error: ExperimentError) -> Failure {
    match error {
        ExperimentError::OtherPlan(_)
        | ExperimentError::Held(_)
        | ExperimentError::OtherTrace { .. }
        | ExperimentError::Trace(_) => Failure::configuration(error),
        ExperimentError::Cell { .. } => Failure::failed(error),
    }
}

fn told(summary: &ExperimentSummary) -> String {
    let ExperimentSummary { name, folder, cells, cells_found, cells_complete, rounds, elapsed_s, .. } = summary;
    let begins = if summary.is_interrupted { "INTERRUPTED: start it again to go on\n" } else { "" };
    let found = if *cells_found > 0 { format!(", {cells_found} of them before") } else { String::new() };
    format!(
        "{begins}{name}: {cells_complete} of {cells} cells complete{found}, {rounds} rounds, {} violations of invariants: \
         {elapsed_s:.1} s\n  {}",
        summary.violations,
        folder.display()
    )
}

/// How often a line of progress is shown where no terminal rewrites it; in one it is each time.
const LINE_PERIOD: Duration = Duration::from_secs(5);

/// The line of progress.
struct ShownProgress {
    progress: Option<Progress>,
    shown_at: parking_lot::Mutex<Option<tokio::time::Instant>>,
    period: Duration,
}

impl ShownProgress {
    fn new(is_wanted: bool) -> Self {
        use std::io::IsTerminal;
        let period = if std::io::stderr().is_terminal() { Duration::ZERO } else { LINE_PERIOD };
        Self { progress: is_wanted.then(Progress::new), shown_at: parking_lot::Mutex::default(), period }
    }

    fn note(&self, line: std::fmt::Arguments<'_>) {
        self.progress.iter().for_each(|progress| progress.show(line));
    }

    fn show(&self, standing: Standing<'_>) {
        let Some(progress) = &self.progress else { return };
        let now = tokio::time::Instant::now();
        let mut shown_at = self.shown_at.lock();
        if shown_at.is_some_and(|at| now.saturating_duration_since(at) < self.period) {
            return;
        }
        *shown_at = Some(now);
        let Standing { cell, rounds, done, total, left } = standing;
        let (begun, ended) = (rounds.begun, rounds.ended);
        progress
            .show(format_args!("cells {done}/{total}   {} left   {cell}: rounds {begun}, ended {ended}", time(left)));
    }

    fn show_cell(&self, cell: &str) {
        self.note(format_args!("cell {cell}"));
    }

    fn finish(&self) {
        self.progress.iter().for_each(Progress::finish);
    }
}

/// A length of time in the unit that suits it.
fn time(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// The highest first seed: further ones follow.
pub const SEED_MAX: u64 = u64::MAX >> 1;

/// The folder of what is played with so many seeds from the first on: another for whatever cannot share it.
pub fn default_folder(name: &str, source: &str, (first, count): (u64, u64)) -> PathBuf {
    let last = first.saturating_add(count.saturating_sub(1));
    Path::new(EXPERIMENTS_FOLDER).join(format!("{name}-{source}-seeds-{first}-to-{last}"))
}
