//! `llmx party`: one party of bargains on an exchange that runs elsewhere, by a strategy or with a language model.

use std::path::PathBuf;
use std::sync::Arc;

use agents::bargain::{
    BargainEvent, BargainOutcome, BargainReport, BargainRequest, Bargainer, Domain, DomainPlanner, StrategyKind,
};
use agents::initiator::CallError;
use agents::model::ModelAgentConfig;
use agents::model::party::{AskingBargainer, PartyTable, spawn};
use agents::{Agent, AgentError, AgentHandle, AgentOptions};
use schemas::control::Registration;
use schemas::{Address, AgentId, NegotiationId};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use traffic_gen::live::{LiveError, RegisteredAgents};

use crate::arguments::{new_id, read_domain};
use crate::model::{self, ModelUse, OpenedModel};
use crate::output::{Failure, Outcome, note, one_line, print, print_json_line, tracer, unopened};
use crate::remote::{Remote, RemoteArgs};
use crate::signals::asked_to_end;

/// Events that wait to be printed: a bargain gives a handful.
const EVENTS_MAX: usize = 1024;

/// Arguments of `llmx party`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx party domains/ecommerce.json --party shop --strategy linear\n  \
    llmx party domains/ecommerce.json --party customer --model examples/party-model.toml --call shop\n\n\
    The party joins every bargain over the domain of the file, bound by its mandate, and no other. With --call it opens one\n\
    bargain, says how that ended, and ends with it: only the first party of a file calls the others.\n\
    Exit codes: 1 the bargain of --call ended without an agreement, or nobody is reached; 2 usage or configuration.")]
pub struct PartyArgs {
    /// A domain file (docs/bargaining.md)
    #[arg(value_name = "DOMAIN.json")]
    domain: PathBuf,
    /// Which party of the file it is
    #[arg(long, value_name = "NAME")]
    party: String,
    /// Its name on the exchange (default: the party's)
    #[arg(long = "as", value_name = "AGENT", value_parser = AgentId::try_new)]
    agent: Option<AgentId>,
    /// How it plays; with --model only where the model's file says `fallback = "scripted"`
    #[arg(long, default_value = "boulware", value_name = "STRATEGY")]
    strategy: StrategyKind,
    /// Seed of what a strategy draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let a language model choose its moves, as this TOML file says (docs/models.md)
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// With --model: keep what it is asked and answers in this folder, which only its owner may read (docs/models.md)
    #[arg(long, value_name = "DIR", requires = "model")]
    keep_prompts: Option<PathBuf>,
    /// Call these agents to one bargain, in the order of the file's parties; separated by commas, or repeated
    #[arg(long, value_name = "AGENTS", value_parser = AgentId::try_new, value_delimiter = ',')]
    call: Vec<AgentId>,
    /// End after so many bargains (default: when asked to)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "call")]
    count: Option<u64>,
    /// Print each bargain's end as JSON, one document per line, and nothing else
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Takes part until asked to end, or until the bargains it was started for have ended.
pub async fn run(args: PartyArgs) -> Outcome {
    let domain = read_domain(&args.domain)?;
    let fault =
        |what: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {what}", args.domain.display()));
    let party = args.place_in(&domain).map_err(|what| fault(&what))?;
    let planner = DomainPlanner::try_new(&domain, party, args.strategy, args.seed).map_err(|what| fault(&what))?;
    let kept = model::keep(args.keep_prompts.as_deref())?;
    let with = ModelUse { metrics: None, kept: kept.clone() };
    let asked =
        args.model.as_ref().map(|path| model::open(path, ModelAgentConfig::check_instructed, with)).transpose()?;
    let remote = args.remote.open("llmx-party").await?;
    let agent = args.agent.clone().unwrap_or_else(|| domain.parties[party].name.clone());
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let way = PartyWay { remote: &remote, agent: &agent, events: sender };
    let running = match &asked {
        Some(model) => way.asking(&domain, party, planner.clone(), model)?,
        None => way.scripted(planner.clone()),
    };
    let mut registered = RegisteredAgents::new(&remote.control);
    let outcome = args.bargain((&domain, planner), (&remote, &mut registered), &running, events).await;
    registered.remove().await;
    running.shutdown().await?;
    let told = |model: &OpenedModel| format!("model {}: {}", model.consultant.label(), model::spent(&model.consultant));
    asked.iter().for_each(|model| note(told(model)));
    kept.iter().for_each(note);
    outcome
}

impl PartyArgs {
    /// The place of the party in the order of turns, once the arguments make sense for the domain.
    fn place_in(&self, domain: &Domain) -> Result<usize, String> {
        let names: Vec<&str> = domain.parties.iter().map(|party| party.name.as_str()).collect();
        let place = names.iter().position(|name| *name == self.party);
        let place =
            place.ok_or_else(|| format!("there is no party `{}`; there are {}", self.party, names.join(", ")))?;
        if self.call.is_empty() {
            return Ok(place);
        }
        if place > 0 {
            return Err(format!("--call is for its first party, `{}`", names.first().copied().unwrap_or_default()));
        }
        if self.call.len() + 1 != names.len() {
            return Err(format!(
                "--call names {} agents; {} are expected: all other parties",
                self.call.len(),
                names.len() - 1
            ));
        }
        Ok(place)
    }

    /// Registers, opens what it was asked to, and prints what happens.
    async fn bargain(
        &self,
        (domain, planner): (&Domain, DomainPlanner),
        (remote, registered): (&Remote, &mut RegisteredAgents),
        running: &RunningParty,
        mut events: mpsc::Receiver<BargainEvent>,
    ) -> Outcome {
        let agent = running.agent();
        registered.register(&remote.identity(agent), &Registration::open_to_all()).await?;
        remote.connected(running.connected(remote)).await?;
        let own = if self.call.is_empty() { None } else { Some(self.open(domain, &planner, running).await?) };
        if !self.json && own.is_none() {
            print(format_args!("{agent}: bargains over {} as {}", domain.name, self.party));
        }
        let mut ended = 0;
        let keeping = registered.keep();
        tokio::pin!(keeping);
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = &mut keeping => None,
                () = asked_to_end() => None,
            };
            let Some(event) = event else { return Ok(()) };
            self.show(domain, &event)?;
            if !event.report.is_last() {
                continue;
            }
            ended += 1;
            if own.as_ref() == Some(&event.negotiation) {
                return judge(&event.report);
            }
            if self.count == Some(ended) {
                return Ok(());
            }
        }
    }

    async fn open(
        &self,
        domain: &Domain,
        planner: &DomainPlanner,
        running: &RunningParty,
    ) -> Result<NegotiationId, Failure> {
        let own_id = new_id("bargain");
        let negotiation = NegotiationId::form(running.agent(), &own_id).map_err(Failure::configuration)?;
        let to = self.call.iter().cloned().map(Address::Agent).collect();
        let request = BargainRequest::new(own_id, to, domain.bargain(), planner.plan_for(&negotiation));
        match running.bargain(request).await {
            Ok(negotiation) => Ok(negotiation),
            Err(CallError::Id(error)) => Err(Failure::configuration(error)),
            Err(CallError::Agent(error)) => Err(error.into()),
        }
    }

    fn show(&self, domain: &Domain, event: &BargainEvent) -> Outcome {
        let BargainEvent { negotiation, report, .. } = event;
        if self.json {
            let BargainReport::Ended(ended) = report else { return Ok(()) };
            return print_json_line(&json!({
                "negotiation": negotiation,
                "outcome": ended.outcome,
                "detail": ended.detail,
                "agreement": ended.agreement.as_ref().map(|agreement| &agreement.terms),
                "utility": ended.utility,
                "steps": ended.steps,
                "rounds": ended.round,
            }));
        }
        if let BargainReport::Ended(ended) = report {
            show_end(domain, negotiation, ended);
        } else {
            print(one_line(&format!("{negotiation}: {}", said(report))));
        }
        Ok(())
    }
}

fn show_end(domain: &Domain, negotiation: &NegotiationId, ended: &BargainOutcome) {
    for offer in &ended.offers {
        let terms = json!(domain.space.terms(offer.outcome));
        let party = domain.parties.get(offer.party).map_or("a party", |party| party.name.as_str());
        print(format_args!("{negotiation}: round {}, {party} offers {terms}", offer.round));
    }
    let detail = ended.detail.as_deref().map(|detail| format!(" ({})", one_line(detail))).unwrap_or_default();
    let turns = format!("{} turn{}", ended.steps, if ended.steps == 1 { "" } else { "s" });
    match (&ended.agreement, ended.utility) {
        (Some(agreement), Some(utility)) => {
            let terms = one_line(&json!(agreement.terms).to_string());
            print(format_args!("{negotiation}: agreed on {terms}, worth {utility:.3}, after {turns}"));
        }
        _ => print(format_args!("{negotiation}: {}{detail}, after {turns}", ended.outcome.as_str())),
    }
}

/// What happened.
fn said(report: &BargainReport) -> String {
    match report {
        BargainReport::Declined { reason } => format!("declined: {reason}"),
        BargainReport::Refused(refusal) => format!("refused: {refusal}"),
        BargainReport::TurnedDown(disposition) => format!("the exchange did not open it: {}", unopened(*disposition)),
        BargainReport::Unanswered => "nobody answered: the call may or may not have been made".to_owned(),
        BargainReport::Misunderstood(why) => format!("a message was not understood: {}", why.reason),
        BargainReport::Lost => "it must have ended, and nobody told how".to_owned(),
        BargainReport::Joined { party, parties } => format!("joined, {} of {parties}", party + 1),
        BargainReport::Opened { invited, .. } => format!("opened, {invited} invited"),
        BargainReport::Ended(ended) => format!("no agreement: {}", ended.outcome.as_str()),
    }
}

/// Whether the bargain it opened came to an agreement.
fn judge(report: &BargainReport) -> Outcome {
    let is_agreed = matches!(report, BargainReport::Ended(ended) if ended.agreement.is_some());
    if is_agreed { Ok(()) } else { Err(Failure::failed(anyhow::anyhow!(said(report)))) }
}

/// How a party reaches the exchange, and where it reports to.
struct PartyWay<'a> {
    remote: &'a Remote,
    agent: &'a AgentId,
    events: mpsc::Sender<BargainEvent>,
}

impl PartyWay<'_> {
    fn scripted(self, planner: DomainPlanner) -> RunningParty {
        let bargainer = Bargainer::new(self.agent.clone(), planner, self.events);
        let agent = Agent::new(self.remote.transport(), self.remote.identity(self.agent), bargainer);
        RunningParty::Scripted(agent.with_options(options()).spawn(CancellationToken::new()))
    }

    fn asking(
        self,
        domain: &Domain,
        party: usize,
        planner: DomainPlanner,
        model: &OpenedModel,
    ) -> Result<RunningParty, Failure> {
        let table = PartyTable {
            space: domain.space.clone(),
            preferences: domain.preferences(party).map_err(Failure::configuration)?,
            config: Arc::clone(&model.config),
            marker_seed: model::unknown_seed(),
        };
        let way = (self.remote.transport(), self.remote.identity(self.agent), options());
        let consultant = Arc::clone(&model.consultant);
        let cancel = CancellationToken::new();
        Ok(RunningParty::Asking(spawn((table, planner), consultant, self.events, way, cancel)))
    }
}

fn options() -> AgentOptions {
    AgentOptions { tracer: tracer(), ..AgentOptions::default() }
}

/// A party that runs.
enum RunningParty {
    /// By a strategy.
    Scripted(AgentHandle<Bargainer>),
    /// With a model.
    Asking(AgentHandle<AskingBargainer>),
}

impl RunningParty {
    fn agent(&self) -> &AgentId {
        match self {
            Self::Scripted(handle) => handle.agent(),
            Self::Asking(handle) => handle.agent(),
        }
    }

    /// Waits for the first connection, a bounded time.
    async fn connected(&self, remote: &Remote) -> Result<(), LiveError> {
        match self {
            Self::Scripted(handle) => remote.first_connection(handle.agent(), handle.connected()).await,
            Self::Asking(handle) => remote.first_connection(handle.agent(), handle.connected()).await,
        }
    }

    async fn bargain(&self, request: BargainRequest) -> Result<NegotiationId, CallError> {
        match self {
            Self::Scripted(handle) => handle.bargain(request).await,
            Self::Asking(handle) => handle.bargain(request).await,
        }
    }

    async fn shutdown(self) -> Result<(), AgentError> {
        let summary = match self {
            Self::Scripted(handle) => handle.shutdown().await,
            Self::Asking(handle) => handle.shutdown().await,
        };
        summary.map(|_| ())
    }
}
