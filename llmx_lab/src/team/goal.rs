//! `llmx-lab team goal`: a goal, from its text to a conclusion, on an exchange that runs elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::agents::AgentOptions;
use ::agents::model::ModelAgentConfig;
use ::agents::team::WorkRunner;
use ::agents::team::worker::ProgramWorker;
use ::agents::transport::Transport;
use schemas::AgentId;
use schemas::team::{MEMBERS_MAX, SPEAK_MS_MAX, SPEAK_MS_MIN, SPEAK_TIMES_MIN, Seats, TURNS_MAX, TeamRules};
use scripted::team::contacts::ContactBook;
use scripted::team::goal::{ContactBookWithClock, GoalEnd, GoalHelp, GoalReport, GoalRequest, pursue};
use traffic_gen::live::{Access, SharedModel};

use super::failure;
use crate::arguments::{read_file, since_epoch};
use crate::model::{self, ModelUse, OpenedModel};
use crate::output::{Failure, Outcome, note, print, print_json, tracer};
use crate::remote::RemoteArgs;

/// Largest contact book, in bytes: a thousand agents, with room.
const BOOK_BYTES_MAX: u64 = 4 << 20;
/// Longest work of a program on the goal.
const PROGRAM_MAX: Duration = Duration::from_secs(600);
/// Turns that the longest discussion may take in time: what a team's end is set by, at least.
const TURNS_IN_TIME: u64 = 20;
/// Longest time of a team, in milliseconds: a day.
const TEAM_MS_MAX: u64 = 86_400_000;

/// Arguments of `llmx-lab team goal`.
#[derive(Debug, clap::Args)]
pub struct TeamGoalArgs {
    /// The goal
    #[arg(value_name = "TEXT")]
    goal: String,
    /// Who has it, and leads the team. It is registered for that long, and removed afterwards
    #[arg(long = "as", value_name = "AGENT", default_value = "operator", value_parser = AgentId::try_new)]
    lead: AgentId,
    /// What the lead says of itself: if that covers the goal, nobody is called, and --worker or --model works on it
    #[arg(long, value_name = "TEXT")]
    profile: Option<String>,
    /// Most members, the lead among them, 2 to 64
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=i64::from(MEMBERS_MAX)))]
    members: u32,
    /// How long the called have to join, in milliseconds
    #[arg(long, default_value_t = 5000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=600_000))]
    reply_within: u64,
    /// How long a member may take for its turn, in milliseconds
    #[arg(long, default_value_t = 30_000, value_name = "MS", value_parser = clap::value_parser!(u64).range(SPEAK_MS_MIN..=SPEAK_MS_MAX))]
    speak: u64,
    /// Turns of discussion, 1 to 1000; then only a conclusion is taken
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    turns: u32,
    /// Let a language model choose whom to call, and speak for the lead, as this TOML file says (docs/models.md)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// With --model: keep what it is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR", requires = "model")]
    keep_prompts: Option<PathBuf>,
    /// Program that carries the goal out where nobody is called: the goal on stdin, the result on stdout
    #[arg(long, value_name = "PROGRAM")]
    worker: Option<PathBuf>,
    /// Contact book: agents met in earlier goals join those found, and who is met is noted; made where it is missing
    #[arg(long, value_name = "FILE")]
    contacts: Option<PathBuf>,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Searches, calls, leads, and prints the conclusion.
pub async fn run(args: TeamGoalArgs) -> Outcome {
    let now_ms = u64::try_from(since_epoch().as_millis()).unwrap_or_default();
    let mut kept_book = args.contacts.as_deref().map(|path| read_book(path, now_ms)).transpose()?;
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let opened = {
        let with = ModelUse { metrics: None, kept: kept.clone() };
        let open = |path: &PathBuf| model::open(path, ModelAgentConfig::check_instructed, with);
        args.model.as_ref().map(open).transpose()?
    };
    let remote = args.remote.open("llmx-team").await?;
    let transport = |_: &AgentId| -> Arc<dyn Transport> { remote.transport() };
    let identity = |agent: &AgentId| remote.identity(agent);
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    let help = GoalHelp {
        book: kept_book.as_mut(),
        model: opened.as_ref().map(|OpenedModel { config, consultant }| SharedModel {
            config: Arc::clone(config),
            consultant: Arc::clone(consultant),
            marker_seed: model::unknown_seed(),
        }),
    };
    let pursued = Box::pin(pursue(&access, args.request(now_ms), help)).await;
    let told = |model: &OpenedModel| format!("model {}: {}", model.config.model.name, model::spent(&model.consultant));
    opened.iter().for_each(|model| note(told(model)));
    kept.iter().for_each(note);
    let report = pursued.map_err(failure)?;
    if let (Some(path), Some(kept)) = (&args.contacts, &kept_book) {
        write_book(path, &kept.book)?;
    }
    show(&args, &report)
}

impl TeamGoalArgs {
    fn request(&self, now_ms: u64) -> GoalRequest {
        let talk_ms = self.speak.saturating_mul(SPEAK_TIMES_MIN + TURNS_IN_TIME.min(u64::from(self.turns)));
        let rules = TeamRules {
            members: Seats { min: 2, max: self.members },
            turns: self.turns,
            speak_ms: self.speak,
            ends_within_ms: (self.reply_within + talk_ms).clamp(TeamRules::default().ends_within_ms, TEAM_MS_MAX),
            ..TeamRules::default()
        };
        let program = |program: &PathBuf| WorkRunner::new(ProgramWorker::new(program, Vec::new())).within(PROGRAM_MAX);
        GoalRequest {
            goal: self.goal.clone(),
            lead: self.lead.clone(),
            own_id: format!("goal-{now_ms:x}"),
            profile: self.profile.clone(),
            reply_within_ms: self.reply_within,
            rules,
            options: AgentOptions { tracer: tracer(), ..AgentOptions::default() },
            worker: self.worker.as_ref().map(program),
        }
    }
}

/// Prints the conclusion, and nothing else on stdout; how it came about is a note.
fn show(args: &TeamGoalArgs, report: &GoalReport) -> Outcome {
    if args.json {
        print_json(report)?;
    } else if let Some(team) = &report.team {
        let members: Vec<String> = report.members.iter().map(ToString::to_string).collect();
        note(format_args!("team {team}: {}", members.join(", ")));
    } else {
        note("nobody was called");
    }
    let said = |text: &str| {
        if !args.json {
            print(text);
        }
    };
    let failed = |what: String| Err(Failure::failed(anyhow::anyhow!(what)));
    match &report.end {
        GoalEnd::Concluded { conclusion } => {
            said(conclusion);
            Ok(())
        }
        GoalEnd::Alone { result: Some(result) } => {
            said(result);
            Ok(())
        }
        GoalEnd::Alone { result: None } => {
            let is_covered = args.profile.is_some() && report.searched.iter().any(|text| !text.found.is_empty());
            let nobody = "nobody who is there fits the goal";
            let why = if is_covered { "the lead's own profile covers the goal" } else { nobody };
            let remedy =
                "give --worker PROGRAM or --model FILE, or another goal: `llmx search TEXT` shows who is there";
            Err(Failure::failed(anyhow::anyhow!("{why}, and nothing works on it alone")).or(remedy))
        }
        GoalEnd::Failed { reason } => failed(format!("nobody was called, and the work failed: {reason}")),
        GoalEnd::Unconcluded { outcome } => failed(format!("the team ended without a conclusion: {outcome}")),
    }
}

fn read_book(path: &Path, now_ms: u64) -> Result<ContactBookWithClock, Failure> {
    let mut book = ContactBook::default();
    if path.exists() {
        book = read_file(path, BOOK_BYTES_MAX, |text| serde_json::from_str(text))?;
        book.forget();
    }
    Ok(ContactBookWithClock { book, now_ms })
}

/// Writes the book beside the old one, and then in its place.
fn write_book(path: &Path, book: &ContactBook) -> Outcome {
    let fault = |error: std::io::Error| Failure::failed(anyhow::anyhow!("{}: {error}", path.display()));
    let text = serde_json::to_string(book)?;
    let beside = path.with_extension("tmp");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path)).map_err(fault)
}
