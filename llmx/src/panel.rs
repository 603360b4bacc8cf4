//! `llmx panel`: questions asked of panels; agents that answer, rank and review on panels with a language model.

mod ask;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use ::agents::model::ModelAgentConfig;
use ::agents::model::asking::{Asking, ModelCounts, counts, spawn};
use ::agents::model::panelist::ModelPanelist;
use ::agents::{AgentHandle, AgentOptions};
use schemas::control::Registration;
use schemas::{AgentId, TopicName};
use tokio_util::sync::CancellationToken;
use traffic_gen::live::RegisteredAgents;

use crate::model::{self, ModelUse, OpenedModel};
use crate::output::{Failure, Outcome, agents, note, print, tracer};
use crate::remote::{Remote, RemoteArgs};
use crate::signals::asked_to_end;

/// Arguments of `llmx panel`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx panel ask \"Which is prime? (A) 21 (B) 23\" --options A,B --to ann,bob,cyd\n  \
    llmx panel answer --as ann,bob --model examples/panel-model.toml\n\n\
    Panels of files, recorded panels, evidence: llmx-lab panel. docs/panels.md"
)]
pub struct PanelArgs {
    #[command(subcommand)]
    command: PanelCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PanelCommand {
    /// Ask a panel on a running exchange: its result goes to stdout
    Ask(Box<ask::PanelAskArgs>),
    /// Answer, rank and review on panels with a language model, until asked to end
    Answer(Box<PanelAnswerArgs>),
}

/// Runs a command.
pub async fn run(args: &PanelArgs) -> Outcome {
    match &args.command {
        PanelCommand::Ask(args) => ask::run(args).await,
        PanelCommand::Answer(args) => answer(args).await,
    }
}

/// Arguments of `llmx panel answer`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx panel answer --as ann,bob,cyd --model examples/panel-model.toml\n  \
    llmx panel answer --as ann --topic mathematics --model examples/panel-model.toml --gateway http://127.0.0.1:8080\n\n\
    The agents consent to every call, answer the asks of panels, and refuse everything else. Without a usable answer of the model\n\
    a seat has no opinion in that round; a ranker or reviewer leaves. docs/panels.md\n\
    Exit codes: 1 when no gateway answers; 2 usage or configuration.")]
struct PanelAnswerArgs {
    /// Names of the agents, separated by commas
    #[arg(long = "as", value_name = "AGENTS", required = true, value_delimiter = ',', value_parser = AgentId::try_new)]
    names: Vec<AgentId>,
    /// Topics they subscribe to, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = TopicName::try_new)]
    topic: Vec<TopicName>,
    /// The language model, as this TOML file says (docs/models.md)
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Keep what it is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR")]
    keep_prompts: Option<PathBuf>,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Takes part until asked to end.
async fn answer(args: &PanelAnswerArgs) -> Outcome {
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let with = ModelUse { metrics: None, kept: kept.clone() };
    let opened = model::open(&args.model, ModelAgentConfig::check_instructed, with)?;
    let remote = args.remote.open("llmx-panel").await?;
    let names: BTreeSet<AgentId> = args.names.iter().cloned().collect();
    let seated = ModelPanelists::start(&remote, &names, args.topic.clone(), opened).await?;
    print(format_args!("panel: {} connected", agents(names.len())));
    tokio::select! {
        () = asked_to_end() => {}
        () = seated.registered.keep() => {}
    }
    let stopped = seated.stop().await;
    kept.iter().for_each(note);
    stopped
}

/// Panelists of this process that share one model.
pub struct ModelPanelists {
    members: Vec<AgentHandle<Asking<ModelPanelist>>>,
    registered: RegisteredAgents,
    model: OpenedModel,
}

impl ModelPanelists {
    /// Registers and connects them.
    pub async fn start(
        remote: &Remote,
        names: &BTreeSet<AgentId>,
        topics: Vec<TopicName>,
        model: OpenedModel,
    ) -> Result<Self, Failure> {
        let registration = Registration { topics, ..Registration::open_to_all() };
        let (marker_seed, cancel) = (model::unknown_seed(), CancellationToken::new());
        let (mut members, mut registered) = (Vec::new(), RegisteredAgents::new(&remote.control));
        for name in names {
            let identity = remote.identity(name);
            registered.register(&identity, &registration).await?;
            let panelist = ModelPanelist::new(name.clone(), Arc::clone(&model.config), marker_seed);
            let options = AgentOptions { tracer: tracer(), ..AgentOptions::default() };
            let way = (remote.transport(), identity, options);
            members.push(spawn(panelist, Arc::clone(&model.consultant), way, cancel.clone()));
        }
        let connecting = async {
            for member in &members {
                remote.first_connection(member.agent(), member.connected()).await?;
            }
            Ok(())
        };
        remote.connected(connecting).await?;
        Ok(Self { members, registered, model })
    }

    /// Takes the registrations away, ends the agents, and says what the model was asked.
    pub async fn stop(self) -> Outcome {
        self.registered.remove().await;
        let mut all = ModelCounts::default();
        for member in &self.members {
            all += counts(member).await;
        }
        // The first that ends takes the others along.
        for member in self.members {
            member.shutdown().await?;
        }
        let ModelCounts { questions, answers, fallbacks, .. } = all;
        let (name, spent) = (self.model.consultant.label(), model::spent(&self.model.consultant));
        note(format_args!(
            "model {name}: {questions} questions, {answers} answers, {fallbacks} without the model; {spent}"
        ));
        Ok(())
    }
}
