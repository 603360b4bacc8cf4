//! One cell: an exchange of its own, contractors, a warm-up, the load, and what came of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agents::Initiator;
use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use bus::Bus;
use gateway::LimitConfig;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::bargain::ROUNDS_MAX;
use schemas::{AgentId, NegotiationId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::bargain::Played;
use traffic_gen::bargain::load::{BargainScenario, Bargains, Catalog};
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Verdict, recompute};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::load::RunningLoad;
use traffic_gen::models::ModelSummary;
use traffic_gen::recorder::{Finished, Recorder};

use super::files::{CellFiles, at};
use super::misconduct::{FloodSpan, MisconductCounts, MisconductTransport};
use super::models::CellModels;
use super::rounds::{Markups, RoundObserver};
use super::{CellBus, RunError, RunOptions};
use crate::plan::domain::catalog;
use crate::plan::population::REST;
use crate::plan::{CellSpec, Misconduct, PopulationSpec};
use crate::record::{BargainRecord, CellRecord, PopulationRecord};

/// Begins the ids of a cell's calls. The same in every cell, so that cells of one seed meet the same draws.
const RUN: &str = "cell";
/// How often complete rounds are written.
const WRITE_PERIOD: Duration = Duration::from_millis(500);
/// Longest wait for the warm-up's calls, besides their time to offer.
const WARM_UP_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the last events of rounds that have ended, after everything else.
const LAST_EVENTS_MAX: Duration = Duration::from_secs(3);
/// Longest wait for open negotiations where contractors misbehave: one that floods the gateway may get nothing of its own
/// through, and its negotiations end by the last deadline of their policy, 120 s in all presets but `patient`.
const MISCONDUCT_DRAIN: Duration = Duration::from_secs(130);
/// How often is looked whether they have come.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Requests of one agent per call, at most: the call or offer, revision, confirmation, report, and repeats.
const REQUESTS_PER_CALL: f64 = 20.0;
/// The same for each round of a bargain: a move, and a repeat.
const REQUESTS_PER_BARGAIN_ROUND: f64 = 2.0;

/// A cell that runs, for whoever shows progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellStanding {
    /// Rounds begun.
    pub begun: u64,
    /// Rounds ended.
    pub ended: u64,
}

/// Runs a cell into its folder: `rounds.jsonl` grows while it runs, `cell.json` is written last. Once `cancel` is
/// cancelled no call is made any more, and what is open is waited for.
///
/// # Errors
/// [`RunError`]; what was measured until then is in the folder.
pub async fn run_cell(
    spec: &CellSpec,
    options: &RunOptions,
    folder: &Path,
    cancel: &CancellationToken,
    show: &(dyn Fn(CellStanding) + Sync),
) -> Result<CellRecord, RunError> {
    let catalog = domains(spec)?;
    let mut files = CellFiles::create(folder, &spec.id, spec.seed, spec.policy.id.as_str())?;
    let (_server, bus) = open_bus(options.bus).await?;
    let exchange_options = exchange_options(spec, options, catalog.as_deref());
    let exchange = Exchange::start(bus.clone(), exchange_options).await?;
    let _shown = options.running.as_ref().map(|running| running.begin(&spec.id, &exchange.registry));
    let observer = Arc::new(RoundObserver::new(Instant::now(), markups(spec)));
    let attending = (&mut files, cancel, show);
    let measured = match catalog {
        None => measure(spec, options, (&exchange, &observer), attending).await,
        Some(catalog) => measure_bargains(spec, options, catalog, (&exchange, &observer), attending).await,
    };
    // What was measured is kept, whatever went wrong behind it.
    let rest = files.write(&observer.take_rest());
    let measured = measured?;
    rest?;
    let mut verdict = measured.verdict;
    recompute(&bus, &mut verdict).await?;
    exchange.check_bounds(&mut verdict);
    exchange.shutdown().await;
    let record = CellRecord {
        id: spec.id.clone(),
        protocol: spec.protocol().to_owned(),
        contractors: spec.contractors,
        policy: spec.policy.id.clone(),
        rate: spec.rate,
        duration_s: spec.duration_s,
        time_scale: options.time_scale,
        seed: spec.seed,
        bus: <&str>::from(options.bus).to_owned(),
        deciders: deciders(&measured.populations).to_owned(),
        labels: spec.labels.clone(),
        populations: measured.populations,
        rounds: files.written(),
        elapsed_s: measured.elapsed.as_secs_f64(),
        violations: violations(&verdict),
        is_interrupted: cancel.is_cancelled(),
        model: None,
    };
    files.finish(&record)?;
    Ok(record)
}

/// What is known of a cell besides its rounds.
struct Measured {
    verdict: Verdict,
    elapsed: Duration,
    populations: Vec<PopulationRecord>,
}

async fn measure(
    spec: &CellSpec,
    options: &RunOptions,
    (exchange, observer): (&Exchange, &Arc<RoundObserver>),
    (files, cancel, show): (&mut CellFiles, &CancellationToken, &(dyn Fn(CellStanding) + Sync)),
) -> Result<Measured, RunError> {
    let mut scenario = scenario(spec, options);
    let models = CellModels::open(spec)?;
    models.join(&mut scenario);
    scenario.options.observer = Some(Arc::clone(observer) as _);
    let control = ControlClient::try_new(exchange.url())?;
    let conduct = Conduct::of(spec, options, cancel);
    let transport = |agent: &AgentId| conduct.transport(agent, BusTransport::new(&exchange.bus));
    let names = (0..scenario.contractors).map(|number| scenario.contractor_name(number));
    let identities = exchange.identities(names.chain([scenario.initiator.clone()]))?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let recorder = Arc::new(recorder(observer));
    let population = Population::start(&access, &scenario, Some(&recorder)).await?;
    let initiator = live::connect(&access, &scenario, &recorder).await?;
    observer.set_warm_up(true);
    warm_up(&initiator, &scenario, &recorder, spec.warm_up_rounds).await?;
    observer.set_warm_up(false);
    let started = Instant::now();
    let ends = cancel.child_token();
    let calls = live::call_from(initiator, &scenario, &recorder, started, &ends);
    let calls_end = started + scenario.duration;
    let written = conduct.flood_until(calls_end, attend(calls, observer, files, &ends, show)).await;
    let elapsed = started.elapsed();
    await_last_events(observer).await;
    let asked = models.summaries(&population).await;
    let stopped = population.stop().await;
    written?;
    stopped?;
    let Finished { verdict, .. } = recorder.finish_after(cancel.is_cancelled()).map_err(at(Path::new("trace")))?;
    Ok(Measured { verdict, elapsed, populations: conduct.populations(spec, asked) })
}

/// Counts what the agents of a cell see, and tells the observer when each of their negotiations was due.
fn recorder(observer: &Arc<RoundObserver>) -> Recorder {
    let observer = Arc::clone(observer);
    let due = Box::new(move |negotiation: &NegotiationId, intended| observer.call_due(negotiation, intended));
    Recorder::start(Instant::now(), true, None).of_run(RUN).with_due(due)
}

/// What the bargains of a cell are about, where it has any.
fn domains(spec: &CellSpec) -> Result<Option<Arc<Catalog>>, RunError> {
    match (spec.strategies.is_empty(), spec.domains.is_empty()) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(Bargains::default().catalog)),
        (false, false) => catalog(&spec.domains).map(Arc::new).map(Some).map_err(RunError::Domains),
    }
}

/// Bargains; over which domain, among whom and by which strategies is drawn from the seed.
async fn measure_bargains(
    spec: &CellSpec,
    options: &RunOptions,
    catalog: Arc<Catalog>,
    (exchange, observer): (&Exchange, &Arc<RoundObserver>),
    (files, cancel, show): (&mut CellFiles, &CancellationToken, &(dyn Fn(CellStanding) + Sync)),
) -> Result<Measured, RunError> {
    let protocol = Bargains {
        catalog: Arc::clone(&catalog),
        policy: Some(spec.policy.name().to_owned()),
        strategies: spec.strategies.iter().filter_map(|name| name.parse().ok()).collect(),
    };
    let mut scenario = BargainScenario {
        protocol,
        agents: spec.contractors,
        rate: spec.rate * options.time_scale,
        duration: Duration::from_secs_f64(spec.duration_s / options.time_scale),
        seed: spec.seed,
        run: RUN.to_owned(),
        ..BargainScenario::default()
    };
    scenario.options.observer = Some(Arc::clone(observer) as _);
    let load = RunningLoad::start_on::<RunError>(exchange, scenario, recorder(observer)).await?;
    let ended = {
        let observer = Arc::clone(observer);
        move |negotiation: &NegotiationId, domain: usize, played: &Played| {
            let record = BargainRecord::of(catalog.name(domain), catalog.plane(domain), played);
            observer.bargained(negotiation, record);
        }
    };
    load.ledger.on_end(Arc::new(ended));
    let started = Instant::now();
    let ends = cancel.child_token();
    let written = attend(load.drive(started, &ends), observer, files, &ends, show).await;
    let elapsed = started.elapsed();
    let stopped = load.stop().await;
    written?;
    let (_, ledger) = stopped?;
    let Finished { verdict, .. } =
        ledger.recorder().finish_after(cancel.is_cancelled()).map_err(at(Path::new("trace")))?;
    Ok(Measured { verdict, elapsed, populations: Vec::new() })
}

/// Drives the load to its end, and writes what is complete meanwhile. A file that takes no more ends the load.
async fn attend(
    load: impl Future<Output = Result<u64, live::LiveError>>,
    observer: &RoundObserver,
    files: &mut CellFiles,
    ends: &CancellationToken,
    show: &(dyn Fn(CellStanding) + Sync),
) -> Result<(), RunError> {
    let mut load = Box::pin(load);
    let mut period = tokio::time::interval(WRITE_PERIOD);
    loop {
        tokio::select! {
            outcome = &mut load => {
                outcome?;
                return Ok(());
            }
            now = period.tick() => {
                if let Err(error) = files.write(&observer.take_complete(now)) {
                    ends.cancel();
                    // Its agents are to end in order.
                    load.await?;
                    return Err(error.into());
                }
                let (begun, ended) = observer.counts();
                show(CellStanding { begun, ended });
            }
        }
    }
}

/// Makes calls one after another, so that connections and code are in use before anything is measured.
async fn warm_up(
    initiator: &Initiator,
    scenario: &CallScenario,
    recorder: &Recorder,
    calls: u32,
) -> Result<(), RunError> {
    let wait = WARM_UP_MAX + Duration::from_millis(scenario.reply_within_ms) * calls;
    let failed = |reason: String| RunError::WarmUp { waited_s: wait.as_secs(), reason };
    let all = async {
        for number in 0..calls {
            let own_id = format!("{RUN}-warm-{number}");
            if let Ok(negotiation) = NegotiationId::form(&scenario.initiator, &own_id) {
                recorder.call_due(negotiation, Instant::now());
            }
            let call = initiator.call_to_end(live::request(scenario, own_id)).await;
            call.map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    };
    let late = || failed("its calls are open; see why with LLMX_LOG=info".to_owned());
    tokio::time::timeout(wait, all).await.map_err(|_| late())?
}

async fn await_last_events(observer: &RoundObserver) {
    let deadline = Instant::now() + LAST_EVENTS_MAX;
    while Instant::now() < deadline && observer.awaits_offers() {
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

fn scenario(spec: &CellSpec, options: &RunOptions) -> CallScenario {
    CallScenario {
        contractors: spec.contractors,
        rate: spec.rate * options.time_scale,
        load: spec.load.clone().scaled(options.time_scale),
        duration: Duration::from_secs_f64(spec.duration_s / options.time_scale),
        seed: spec.seed,
        run: RUN.to_owned(),
        contractor: spec.contractor.clone(),
        by_contractor: members(spec, |population| population.contractor.clone()),
        reply_within_ms: spec.reply_within_ms,
        drain: if Conduct::is_none(spec) { CallScenario::default().drain } else { MISCONDUCT_DRAIN },
        ..CallScenario::default()
    }
}

/// Something of the contractors that are in a population.
fn members<T>(spec: &CellSpec, of: impl Fn(&PopulationSpec) -> T) -> BTreeMap<AgentId, T> {
    let each =
        spec.populations.iter().flat_map(|population| std::iter::repeat_n(population, population.count as usize));
    (0..).zip(each).map(|(number, population)| (live::contractor_name(number), of(population))).collect()
}

fn markups(spec: &CellSpec) -> Markups {
    Markups { usual: spec.markup, by_contractor: members(spec, |population| population.markup) }
}

/// What contractors send besides their own messages, and what came of it.
struct Conduct {
    usual: Misconduct,
    by_contractor: BTreeMap<AgentId, (String, Misconduct)>,
    /// By population.
    counts: BTreeMap<String, MisconductCounts>,
    /// How often one who behaves is asked to offer in a second.
    rate: f64,
    seed: u64,
    floods: FloodSpan,
}

impl Conduct {
    fn of(spec: &CellSpec, options: &RunOptions, cancel: &CancellationToken) -> Self {
        let names = spec.populations.iter().map(|population| population.name.clone()).chain([REST.to_owned()]);
        Self {
            usual: spec.misconduct,
            by_contractor: members(spec, |population| (population.name.clone(), population.misconduct)),
            counts: names.map(|name| (name, MisconductCounts::default())).collect(),
            rate: spec.rate * options.time_scale,
            seed: spec.seed,
            floods: FloodSpan { begins: CancellationToken::new(), ends: cancel.child_token() },
        }
    }

    fn is_none(spec: &CellSpec) -> bool {
        spec.misconduct.is_none() && spec.populations.iter().all(|population| population.misconduct.is_none())
    }

    fn transport(&self, agent: &AgentId, transport: BusTransport) -> Arc<dyn Transport> {
        let member = self.by_contractor.get(agent);
        let (population, misconduct) = member.map_or((REST, self.usual), |(name, own)| (name, *own));
        match self.counts.get(population) {
            Some(counts) if !misconduct.is_none() && *agent != live::initiator_name() => {
                let counts = counts.clone();
                let span = self.floods.clone();
                Arc::new(MisconductTransport::new(transport, misconduct, (self.rate, self.seed), counts, span))
            }
            Some(_) | None => Arc::new(transport),
        }
    }

    /// Floods from now on until a time, while something else goes on to its end.
    async fn flood_until<T>(&self, ends: Instant, during: impl Future<Output = T>) -> T {
        self.floods.begins.cancel();
        let mut during = Box::pin(during);
        tokio::select! {
            output = &mut during => return output,
            () = tokio::time::sleep_until(ends) => self.floods.ends.cancel(),
        }
        during.await
    }

    /// The populations with their contractors, those in none as the last; none where all behave alike and as scripted.
    fn populations(&self, spec: &CellSpec, mut asked: BTreeMap<String, ModelSummary>) -> Vec<PopulationRecord> {
        if spec.populations.is_empty() && self.usual.is_none() {
            return Vec::new();
        }
        let mut names = (0..spec.contractors).map(|number| live::contractor_name(number).as_str().to_owned());
        let sizes = spec.populations.iter().map(|population| (population.name.as_str(), population.count));
        let record = |(name, count): (&str, u32)| PopulationRecord {
            name: name.to_owned(),
            contractors: names.by_ref().take(count as usize).collect(),
            misconduct: self.counts.get(name).map(MisconductCounts::records).unwrap_or_default(),
            model: asked.remove(name),
        };
        let mut records: Vec<PopulationRecord> = sizes.chain([(REST, u32::MAX)]).map(record).collect();
        records.retain(|record| !record.contractors.is_empty());
        records
    }
}

/// The usual exchange, with the cell's policy and limits that its rate does not reach, unless the plan says otherwise.
fn exchange_options(spec: &CellSpec, options: &RunOptions, catalog: Option<&Catalog>) -> ExchangeOptions {
    let usual = LimitConfig::default();
    let per_round = catalog.map_or(REQUESTS_PER_CALL, |catalog| {
        let rounds = (0..catalog.len()).map(|domain| catalog.rules(domain).rounds.unwrap_or(ROUNDS_MAX)).max();
        REQUESTS_PER_BARGAIN_ROUND * f64::from(rounds.unwrap_or(ROUNDS_MAX))
    });
    let needed = (spec.rate * options.time_scale * per_round).clamp(1.0, f64::from(u32::MAX)) as u32;
    let requests_per_s = spec.requests_per_s.unwrap_or(usual.requests_per_s.max(needed));
    let limits = LimitConfig { requests_per_s, burst: requests_per_s.saturating_mul(2), ..usual };
    ExchangeOptions {
        policies: vec![spec.policy.clone()],
        default_policy: spec.strategies.is_empty().then(|| spec.policy.name().to_owned()),
        limits,
        ..ExchangeOptions::default()
    }
}

/// Who chose terms: the greatest label of any population.
fn deciders(populations: &[PopulationRecord]) -> &'static str {
    let sources = populations.iter().filter_map(|population| population.model.as_ref().map(|model| model.source));
    sources.max().unwrap_or_default().into()
}

fn violations(verdict: &Verdict) -> BTreeMap<String, u64> {
    let broken = verdict.by_name.iter().filter(|(_, tally)| tally.violated > 0);
    broken.map(|(invariant, tally)| (invariant.as_str().to_owned(), tally.violated)).collect()
}

/// Opens a bus, and the local server it runs on, if any; the server must outlive the bus.
async fn open_bus(bus: CellBus) -> Result<(Option<LocalServer>, Bus), RunError> {
    match bus {
        CellBus::Memory => Ok((None, bus::memory::open(bus::memory::MemoryOptions::default()))),
        CellBus::Nats => {
            let server = LocalServer::start(LocalServerOptions::default()).await?;
            let bus = bus::nats::open(bus::nats::NatsOptions::new(server.url())).await?;
            Ok((Some(server), bus))
        }
    }
}
