//! `llmx-lab experiment dylan`: panels of scripted agents, beside theory and what the DyLAN paper published.

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use serde::Serialize;
use strum::VariantArray;
use studies::dylan::{DylanPart, DylanPlan, theory};

use super::{none, played};
use crate::output::{Failure, Outcome, create, print, print_json};

/// Arguments of `llmx-lab experiment dylan`.
#[derive(Debug, clap::Args)]
pub struct DylanRunArgs {
    /// Only these parts: theory, shapley, planted, choose, gaming, replay
    #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = part)]
    only: Vec<DylanPart>,
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=super::SEED_MAX))]
    seed: u64,
    /// How many seeds of each part that has several (default: shapley 40, planted 20, choose 100, gaming 60)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Six seeds of each part that has several and 2000 panels of each cell, to see that it works: judged is only what no number of seeds changes
    #[arg(long, conflicts_with_all = ["seeds", "panels"])]
    quick: bool,
    /// Panels of each cell of independent agents
    #[arg(long, default_value_t = theory::PANELS, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    panels: u64,
    /// Instead of scripted agents, panels of this language model, as the TOML file says (docs/models.md): needs --questions
    #[arg(long, value_name = "FILE", requires = "questions", conflicts_with_all = ["only", "seeds", "quick", "panels"])]
    model: Option<PathBuf>,
    /// With --model: questions, a JSON document on each line: {"task": "...", "options": ["A", "B"], "right": "A"}
    #[arg(long, value_name = "FILE", requires = "model")]
    questions: Option<PathBuf>,
    /// With --model: seats of each panel
    #[arg(long, default_value_t = 4, value_name = "COUNT", requires = "model", value_parser = clap::value_parser!(u32).range(1..=32))]
    panelists: u32,
    /// Keep what came out in this folder: dylan.json, dylan.txt and verdicts.csv
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Largest file of questions, in bytes: some ten thousand.
const QUESTIONS_BYTES_MAX: u64 = 16 << 20;
/// Seeds of a quick run, and by what its panels are divided.
const QUICK_SEEDS: u64 = 6;
const QUICK_PANELS: u64 = 10;

/// Panels of scripted agents; a verdict that does not hold fails.
pub async fn run(args: DylanRunArgs) -> Outcome {
    if let (Some(model), Some(questions)) = (&args.model, &args.questions) {
        return live(&args, model, questions).await;
    }
    let mut parts = args.only;
    if parts.is_empty() {
        parts.extend(DylanPart::VARIANTS);
    }
    let (seeds, panels) =
        if args.quick { (Some(QUICK_SEEDS), args.panels / QUICK_PANELS) } else { (args.seeds, args.panels) };
    let plan = DylanPlan { parts, seed: args.seed, seeds, panels };
    let report = tokio::task::spawn_blocking(move || studies::dylan::run(&plan)).await?;
    if let Some(folder) = &args.out {
        write(folder, &report)?;
        let verdicts = create(&folder.join("verdicts.csv"))?;
        report.write_verdicts(verdicts).with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    let failed = report.verdicts.iter().filter(|verdict| !verdict.holds).count();
    none(failed, format_args!("of {} verdicts fail", report.verdicts.len()))
}

/// Keeps a report, as JSON and as it is printed.
fn write(folder: &Path, report: &(impl Serialize + Display)) -> Outcome {
    create(&folder.join("dylan.json"))?.write_all(serde_json::to_string_pretty(report)?.as_bytes())?;
    create(&folder.join("dylan.txt"))?.write_all(report.to_string().as_bytes())?;
    Ok(())
}

async fn live(args: &DylanRunArgs, model: &Path, questions: &Path) -> Outcome {
    use std::sync::Arc;

    use agents::model::ModelAgentConfig;
    use studies::dylan::live::{LivePlan, LiveQuestion, run};
    use studies::model::blocking::BlockingConsultant;

    let fault = |what: &dyn Display| Failure::configuration(format_args!("{}: {what}", questions.display()));
    let text = crate::arguments::read_text(questions, QUESTIONS_BYTES_MAX).map_err(|error| fault(&error))?;
    let questions =
        LiveQuestion::read_all(&text).map_err(|(line, error)| fault(&format_args!("line {line}: {error}")))?;
    let opened = crate::model::open(model, ModelAgentConfig::check_instructed, crate::model::ModelUse::default())?;
    let plan = LivePlan {
        panelists: args.panelists as usize,
        questions,
        config: Arc::clone(&opened.config),
        marker_seed: args.seed,
    };
    let consultant = BlockingConsultant::Live(opened.consultant, super::lasting_runtime()?);
    let asked = played(!args.json, move |progress| {
        let all = plan.questions.len();
        run(&plan, &consultant, &|number| progress.note(format_args!("questions {number}/{all}")))
    });
    let report = asked.await?;
    if let Some(folder) = &args.out {
        write(folder, &report)?;
    }
    if args.json {
        return print_json(&report);
    }
    print(&report);
    Ok(())
}

fn part(name: &str) -> Result<DylanPart, String> {
    let known: Vec<&str> = DylanPart::VARIANTS.iter().map(Into::into).collect();
    DylanPart::from_str(name).map_err(|_| format!("one of {} is expected", known.join(", ")))
}
