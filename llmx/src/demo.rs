//! `llmx demo`: the whole exchange in one process, under Poisson load, judged from outside.

mod loads;
mod models;
mod routines;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::gateway::LimitConfig;
use ::gateway::keys::SigningKey;
use anyhow::Context;
use archive::audit;
use bus::memory::MemoryOptions;
use bus::{Bus, BusError};
use bytes::Bytes;
use schemas::policy::Decider;
use schemas::{AgentId, Policy, subject};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::bargain::load::BargainSummary;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::recompute;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::panel::load::PanelSummary;
use traffic_gen::recorder::{Counts, Recorder};
use traffic_gen::summary::{CallSummary, Driven, RunTotals};
use traffic_gen::team::TeamSummary;
use traffic_gen::trace::TraceFile;

use crate::arguments::{listen_address, read_text, run_length, since_epoch};
use crate::calls::{self, CallsArgs};
use crate::english_auction;
use crate::gateway::Console;
use crate::keys::{self, AUDIENCE_DEFAULT, ISSUER_DEFAULT, KEY_DEFAULT};
use crate::nats::{NatsSource, Server, start_server};
use crate::output::{Failure, Outcome, Progress, create, print_result};
use models::{DemoModelArgs, DemoModelSummaries, DemoModels};
use routines::ParcelRoutines;

/// Arguments of `llmx demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx demo --policy low --agents 5\n  llmx demo --nats-local --rate 100 --duration 60\n  \
    llmx demo --trace trace.jsonl --csv minutes.csv --export log.jsonl\n  \
    llmx demo --load burst:20 --rate 40\n  \
    llmx demo --contractor-model model.toml --model-share 0.5\n  \
    llmx demo --routines\n  \
    llmx demo --protocol alternating --policy bargain-medium\n  \
    llmx demo --protocol team --rate 5\n  \
    llmx demo --protocol panel\n  \
    llmx demo --listen 127.0.0.1:8080 --duration 600\n\n\
    The exchange runs in this process and its memory, or over the NATS that --nats or --config names on the command line;\n\
    LLMX_NATS and LLMX_CONFIG move no demo there. On a NATS that is kept its agents have names of their own.\n\
    Ctrl-C and SIGTERM end it with a summary, marked as interrupted, once what is open has ended, 30 s at most; a second\n\
    one at once. What could not be answered by then is not judged."
)]
pub struct DemoArgs {
    /// What the agents do: one calls and the others offer, pairs and triples bargain over the domains in `domains/`,
    /// teams work, or panels answer questions
    #[arg(long, value_enum, default_value_t = Protocol::ContractNet)]
    protocol: Protocol,
    /// Contractors; agents that bargain, work in teams, or sit on panels. Default: 12, or with a model and no --policy 3
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    agents: Option<u32>,
    #[command(flatten)]
    calls: CallsArgs,
    /// The exchange's default acceptance policy for this run: a preset (`llmx policy list`) or a file. Calls name none, so
    /// a switch of the default shows at once; with --nats they name it. Default: medium, with a model patient; bargaining
    /// agents accept themselves
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Calls, bargains, teams or panels per second: above 0, up to 1000000; one machine does some thousands. Default: 10, or
    /// with a model and no --policy 0.1
    #[arg(long)]
    rate: Option<f64>,
    /// How long calls arrive, in seconds. Default: 20, or with a model and no --policy 60
    #[arg(long)]
    duration: Option<f64>,
    /// Seed of arrivals and contractors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    nats: NatsSource,
    /// Start a nats-server for this run (`scripts/nats-server` fetches the binary)
    #[arg(long)]
    nats_local: bool,
    /// How contractors behave: a JSON file with distributions of cost, delay, refusal, failure …
    #[arg(long, value_name = "FILE")]
    contractor: Option<PathBuf>,
    #[command(flatten)]
    models: DemoModelArgs,
    /// Let calls name protocol documents, and routines of every kind carry the awards out; contractors without one talk
    #[arg(long, conflicts_with_all = ["contractor_model", "documents"])]
    routines: bool,
    /// Write every message of every agent, one JSON document per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the table of minutes
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write log, register and decisions, for `llmx replay`
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Where to serve HTTP, port 0 for a free one; prints the console's address, with a token that may do all, and how
    /// agents of your own join
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// With --listen: the key that signs tokens, as `llmx keys` writes it; made where there is none. `llmx token` uses the
    /// same
    #[arg(long, env = "LLMX_SIGNING_KEY", default_value = KEY_DEFAULT, value_name = "FILE")]
    key: PathBuf,
    /// Who may look at the console without that token
    #[arg(long, value_enum, default_value_t = Console::Token)]
    console: Console,
}

/// What the agents of a demo do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    /// Contract net: calls, offers, one award
    ContractNet,
    /// Alternating offers: bargains between two or three
    Alternating,
    /// Teams: agents that speak in turn, vote and conclude
    Team,
    /// Panels: several agents answer one question in rounds
    Panel,
    /// English auctions: contractors bid against each other, and the last bid is awarded
    Auction,
}

/// The exchange's default policy, unless another is asked for.
const POLICY_DEFAULT: &str = "medium";
/// The same where a model answers or chooses.
const PATIENT: &str = "patient";
/// Agents, unless others are asked for.
const AGENTS_DEFAULT: u32 = 12;
/// The same where nothing is asked for and a model answers: each call asks it once for each.
const PATIENT_AGENTS: u32 = 3;
/// Calls per second, unless others are asked for.
const RATE_DEFAULT: f64 = 10.0;
/// The same where nothing is asked for and a model answers: it takes seconds for one.
const PATIENT_RATE: f64 = 0.1;
/// How long calls arrive, unless another time is asked for.
const DURATION_DEFAULT_S: f64 = 20.0;
/// The same where nothing is asked for and a model answers.
const PATIENT_DURATION_S: f64 = 60.0;
/// How long what goes on after the decision of a last call is waited for.
const DRAIN: Duration = Duration::from_secs(30);
/// Most bytes of a contractor's configuration.
const CONTRACTOR_BYTES_MAX: u64 = 1024 * 1024;
/// How often the line of progress is shown.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);

struct OpenedBus {
    bus: Bus,
    name: &'static str,
    is_kept: bool,
    /// Ends with the run.
    _server: Option<Server>,
}

/// How long the bus has to say that no gateway listens.
const GATEWAY_ASKED_MAX: Duration = Duration::from_secs(2);

/// A gateway that runs beside the demo's own would get part of its requests, and knows none of its keys.
async fn refuse_beside_gateway(bus: &Bus) -> Result<(), Failure> {
    let agent = AgentId::try_new(live::INITIATOR)?;
    let asked = bus.pub_sub.request(subject::gateway_in(&agent), None, Bytes::new(), GATEWAY_ASKED_MAX).await;
    match asked {
        Ok(_) => Err(Failure::configuration(
            "a gateway serves this NATS already, and would refuse the demo's agents: use `llmx contractors` and `llmx traffic` \
             there, or --nats-local",
        )),
        // A gateway answers every request: whoever hears this one and does not answer is a client that watches.
        Err(BusError::NoResponder(_) | BusError::Unknown(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl DemoArgs {
    async fn open(&self) -> Result<OpenedBus, Failure> {
        if self.nats_local {
            if self.nats.is_typed("url") {
                return Err(Failure::configuration("--nats-local cannot be used with --nats"));
            }
            let (server, url) = start_server().await?;
            let mut args = self.nats.args.flags.clone();
            args.nats = Some(url);
            let bus = args.open("llmx-demo").await?;
            return Ok(OpenedBus { bus, name: "nats", is_kept: false, _server: Some(server) });
        }
        // What variables name is an exchange of others, which a demo must not join by accident.
        let is_on_nats = self.nats.is_typed("url") || self.nats.is_typed("config");
        if is_on_nats
            && let nats = self.nats.typed().in_force()?
            && nats.nats.is_some()
        {
            let bus = nats.open("llmx-demo").await?;
            return Ok(OpenedBus { bus, name: "nats", is_kept: true, _server: None });
        }
        let bus = bus::memory::open(MemoryOptions::default());
        Ok(OpenedBus { bus, name: "memory", is_kept: false, _server: None })
    }

    fn scenario(&self, policy: &Policy, is_kept: bool) -> Result<CallScenario, Failure> {
        let contractor = match &self.contractor {
            None if self.protocol == Protocol::Auction => english_auction::demo_bidders(),
            None => agents::ContractorConfig::default(),
            Some(path) => {
                let text = read_text(path, CONTRACTOR_BYTES_MAX)
                    .map_err(|error| Failure::configuration(format_args!("cannot read {}: {error}", path.display())))?;
                serde_json::from_str(&text)
                    .map_err(|error| Failure::configuration(format_args!("{}: {error}", path.display())))?
            }
        };
        let scenario = CallScenario {
            contractors: self.agents(),
            // An exchange that is kept has a default of its own, which is not this run's to change.
            policy: (is_kept && (self.policy.is_some() || self.is_patient())).then(|| policy.name().to_owned()),
            rate: self.rate(),
            duration: self.duration()?,
            seed: self.seed,
            run: self.run_name(is_kept),
            initiator: AgentId::try_new(&format!("{}{}", prefix(is_kept), live::INITIATOR))
                .map_err(Failure::configuration)?,
            prefix: prefix(is_kept),
            contractor,
            auction: (self.protocol == Protocol::Auction).then(english_auction::demo),
            ..CallScenario::default()
        };
        let scenario = self.calls.of(scenario)?.traced(crate::output::tracer());
        if self.models.given().is_none() {
            return Ok(scenario);
        }
        let reply_within_ms = policy.timers_ms.collect;
        let decide_ms = if policy.decider == Decider::Initiator { policy.decide_ms } else { 0 };
        let drain = Duration::from_millis(reply_within_ms.saturating_add(decide_ms)) + DRAIN;
        Ok(CallScenario { reply_within_ms, drain, ..scenario })
    }

    /// Whether a model answers or chooses, and nobody says under which policy.
    fn is_patient(&self) -> bool {
        self.policy.is_none() && self.models.given().is_some()
    }

    fn agents(&self) -> u32 {
        self.agents.unwrap_or(if self.is_patient() { PATIENT_AGENTS } else { AGENTS_DEFAULT })
    }

    fn rate(&self) -> f64 {
        self.rate.unwrap_or(if self.is_patient() { PATIENT_RATE } else { RATE_DEFAULT })
    }

    /// The policy that is asked for, or one under which those who are there can answer.
    fn policy(&self) -> Result<Policy, Failure> {
        let usual = if self.is_patient() { PATIENT } else { POLICY_DEFAULT };
        let policy = crate::policy::preset_or_file(self.policy.as_deref().unwrap_or(usual))?;
        Ok(if self.is_patient() { self.models.decided(policy) } else { policy })
    }

    /// Says what a run with a model does otherwise than one without.
    fn show_patience(&self, policy: &Policy) {
        if self.is_patient() && !self.json {
            let (rate, agents, seconds) = (self.rate(), self.agents(), policy.timers_ms.collect / 1000);
            Progress::new().show(format_args!(
                "a model needs time: policy {}, {agents} agents, {rate} calls per second, {seconds} s for an offer; --policy, \
                 --agents, --rate and --duration ask for others\n",
                policy.id
            ));
        }
    }

    /// The key of the exchange's tokens: the one `llmx token` uses, where agents of others are let in. Where it cannot be
    /// written, as in a read-only container, the run keeps one to itself, unless a file was asked for.
    fn signing_key(&self) -> Result<Option<SigningKey>, Failure> {
        if self.listen.is_none() {
            return Ok(None);
        }
        let is_asked_for = self.key.exists() || self.key != Path::new(KEY_DEFAULT);
        match keys::read_or_make(&self.key) {
            Ok(key) => Ok(Some(key)),
            Err(failure) if is_asked_for => Err(failure),
            Err(failure) => {
                Progress::new().show(format_args!("no agents of your own: {failure}; name a file with --key\n"));
                Ok(None)
            }
        }
    }

    fn duration(&self) -> Result<Duration, Failure> {
        run_length(self.duration.unwrap_or(if self.is_patient() { PATIENT_DURATION_S } else { DURATION_DEFAULT_S }))
    }

    /// How an agent that is none of the run's takes part.
    fn show_way_in(&self, exchange: &Exchange) {
        if self.listen.is_none() || self.json || !self.key.exists() {
            return;
        }
        let key = keys::signing_options(&self.key, ISSUER_DEFAULT, AUDIENCE_DEFAULT);
        let (topic, url) = (self.calls.topic(), exchange.url());
        Progress::new().show(format_args!(
            "agents of your own: register topic {topic} at {url}; a token for `bob`: llmx token bob{key}\n"
        ));
    }

    /// Starts the exchange as the arguments and `options` want it, and says where it is.
    async fn start(
        &self,
        opened: &OpenedBus,
        requests_per_call: f64,
        options: ExchangeOptions,
    ) -> Result<Exchange, Failure> {
        let options = ExchangeOptions {
            limits: limits(self.rate(), requests_per_call),
            listen: self.listen,
            console: self.console.into(),
            key: self.signing_key()?,
            tracer: crate::output::tracer(),
            ..options
        };
        let exchange = Exchange::start(opened.bus.clone(), options).await.context("the exchange does not start")?;
        if !self.json {
            Progress::new().show(format_args!("exchange on {}, {}\n", opened.name, exchange.url()));
        }
        self.show_console(&exchange)?;
        Ok(exchange)
    }

    /// Creates the files that are asked for, table of minutes and trace: a path that cannot be written is better found
    /// before the run than after it.
    fn create_files(&self) -> Result<(Option<File>, Option<TraceFile>), Failure> {
        let csv = self.csv.as_deref().map(create).transpose()?;
        self.export.as_deref().map(create).transpose()?;
        let trace = self.trace.as_deref().map(TraceFile::create).transpose().map_err(Failure::configuration)?;
        Ok((csv, trace))
    }

    /// Judges what was recorded, writes the files that were asked for, and ends the exchange.
    async fn finish(
        &self,
        bus: &Bus,
        exchange: Exchange,
        recorder: &Recorder,
        driven: Driven,
        csv: Option<File>,
    ) -> Result<(Counts, RunTotals), Failure> {
        let mut finished = recorder.finish_after(driven.interrupted).context("cannot write the trace")?;
        let report = recompute(bus, &mut finished.verdict).await?;
        exchange.check_bounds(&mut finished.verdict);
        if let Some(mut file) = csv {
            recorder.write_minutes(&mut file).context("cannot write the table of minutes")?;
        }
        if let Some(path) = &self.export {
            audit::export(bus, &report, path).await.with_context(|| format!("cannot write {}", path.display()))?;
        }
        exchange.shutdown().await;
        Ok(RunTotals::new(finished, driven))
    }

    /// Where to look at the run, for whoever chose the address. The token stands behind `#`, which no browser sends.
    fn show_console(&self, exchange: &Exchange) -> Outcome {
        if self.listen.is_some() && self.console != Console::Off {
            let token = exchange.admin_token()?;
            Progress::new().show(format_args!("console: {}/#token={token}\n", exchange.url()));
        }
        Ok(())
    }

    /// Begins the ids of a run. A log that is kept remembers the ids of earlier runs.
    fn run_name(&self, is_kept: bool) -> String {
        if is_kept { format!("run-{:x}", since_epoch().as_secs()) } else { format!("run-{}", self.seed) }
    }
}

/// Begins the names of a run's agents: on an exchange that others may use, none of theirs.
fn prefix(is_kept: bool) -> String {
    if is_kept { format!("demo-{:x}-{:x}-", since_epoch().as_secs(), std::process::id()) } else { String::new() }
}

/// Requests of one agent per call, at most: the call or offer, revision, confirmation, report, and repeats.
const REQUESTS_PER_CALL: f64 = 20.0;

/// The gateway's usual limits, raised where the asked rate needs more: a demo is to show the exchange, not its limiter.
fn limits(rate: f64, requests_per_call: f64) -> LimitConfig {
    let usual = LimitConfig::default();
    let needed = (rate * requests_per_call).clamp(1.0, f64::from(u32::MAX)) as u32;
    LimitConfig {
        requests_per_s: usual.requests_per_s.max(needed),
        burst: usual.burst.max(needed.saturating_mul(2)),
        ..usual
    }
}

/// Runs the demo and prints its summary; any violated invariant is a failure.
pub async fn run(args: DemoArgs) -> Outcome {
    match args.protocol {
        Protocol::ContractNet | Protocol::Auction => Box::pin(contract_net(args)).await,
        Protocol::Alternating => Box::pin(loads::run::<BargainSummary>(args)).await,
        Protocol::Team => Box::pin(loads::run::<TeamSummary>(args)).await,
        Protocol::Panel => Box::pin(loads::run::<PanelSummary>(args)).await,
    }
}

async fn contract_net(args: DemoArgs) -> Outcome {
    args.calls.load(args.rate(), args.duration()?, args.seed)?;
    let policy = args.policy()?;
    if policy.bargain.is_some() && policy.weights.is_empty() {
        let policy = policy.id;
        return Err(Failure::configuration(format_args!("{policy} is for bargains: add --protocol alternating")));
    }
    let (csv, trace) = args.create_files()?;
    let opened = args.open().await?;
    if opened.is_kept && args.listen.is_none() {
        refuse_beside_gateway(&opened.bus).await?;
    }
    let is_alone = args.listen.is_none() && !opened.is_kept;
    let models = args.models.open(&policy, is_alone.then_some(args.seed))?;
    args.show_patience(&policy);
    let scenario = models.join(args.scenario(&policy, opened.is_kept)?);
    let parcels = if args.routines { Some(ParcelRoutines::start().await?) } else { None };
    let scenario = match &parcels {
        Some(parcels) => parcels.of(scenario),
        None => scenario,
    };
    let options = ExchangeOptions {
        policies: vec![policy.clone()],
        default_policy: Some(policy.name().to_owned()),
        ..ExchangeOptions::default()
    };
    let exchange = args.start(&opened, REQUESTS_PER_CALL, options).await?;
    args.show_way_in(&exchange);
    let names = (0..scenario.contractors).map(|number| scenario.contractor_name(number));
    let names: BTreeSet<AgentId> = names.chain([scenario.initiator.clone()]).collect();
    let recorder = Recorder::start(Instant::now(), true, trace).of_run(&scenario.run);
    let recorder = Arc::new(if is_alone { recorder } else { recorder.among_others(names.clone()) });
    let driving = async |access: &Access<'_>| drive(&args, access, (&scenario, &models), &recorder).await;
    let (driven, asked) = exchange.with_access(names, driving).await?;
    let (counts, run) = args.finish(&opened.bus, exchange, &recorder, driven, csv).await?;
    let summary = CallSummary::new(&scenario, opened.name, &policy.id, &counts, run)
        .with_models(asked.contractors, asked.initiator);
    print_result(args.json, &summary, &summary)?;
    match summary.run.invariant_violations.total {
        0 => calls::judge(&counts),
        total => Err(Failure::failed(anyhow::anyhow!("{total} violations of invariants"))),
    }
}

/// Runs the load. Gives what models were asked, too.
async fn drive(
    args: &DemoArgs,
    access: &Access<'_>,
    (scenario, models): (&CallScenario, &DemoModels),
    recorder: &Arc<Recorder>,
) -> Result<(Driven, DemoModelSummaries), Failure> {
    let population = Population::start(access, scenario, Some(recorder)).await?;
    let cancel = CancellationToken::new();
    let progress = (!args.json)
        .then(|| tokio::spawn(calls::show_progress(Arc::clone(recorder), Instant::now(), PROGRESS_PERIOD, line)));
    let started = Instant::now();
    let calls = live::call(access, scenario, recorder, &cancel);
    let shed = attended(&cancel, scenario.drain, progress, calls).await?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let asked = models.summaries(&population).await;
    population.stop().await?;
    Ok((Driven { shed, elapsed_s, interrupted: cancel.is_cancelled() }, asked))
}

/// Runs a load until it is over or the user asks to end, and takes its progress away then.
async fn attended<T>(
    cancel: &CancellationToken,
    drain: Duration,
    progress: Option<tokio::task::JoinHandle<()>>,
    load: impl Future<Output = T>,
) -> T {
    let interrupt = calls::end_when_asked(cancel, drain);
    let outcome = load.await;
    interrupt.abort();
    if let Some(progress) = progress {
        progress.abort();
        Progress::new().finish();
    }
    outcome
}

/// Shows what `line` says of a demo behind the seconds it has run, each second; nobody sees it beside `--json`.
fn spawn_progress(args: &DemoArgs, line: impl Fn() -> String + Send + 'static) -> Option<tokio::task::JoinHandle<()>> {
    let showing = async move {
        let (progress, started) = (Progress::new(), Instant::now());
        let mut period = tokio::time::interval(PROGRESS_PERIOD);
        loop {
            period.tick().await;
            progress.show(format_args!("{:>4} s   {}", started.elapsed().as_secs(), line()));
        }
    };
    (!args.json).then(|| tokio::spawn(showing))
}

/// The line of progress.
fn line(counts: &Counts, open: usize) -> String {
    let (Counts { cfps, offers, awards, rounds, .. }, decision) = (counts, counts.decision.quantiles());
    format!(
        "calls {cfps:>6}   offers {offers:>7}   awards {awards:>6}   ended {rounds:>6}   open {open:>4}   \
         decision p50 {:.2} ms, p95 {:.2} ms",
        decision.p50, decision.p95
    )
}
