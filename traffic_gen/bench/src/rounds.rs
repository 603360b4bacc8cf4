//! Whole rounds through everything: token, schema, consent, log, core, register, outbox, acknowledgements.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::transport::websocket::{AGENTS_PER_CONNECTION, WebSocketTransport};
use agents::{CallEvent, CallReport, ContractorConfig, Initiator};
use bus::Bus;
use bus::nats::NatsOptions;
use gateway::LimitConfig;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::{AgentId, Policy};
use telemetry::Tracer;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::units::UnitCounter;
use agents::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{self, Access, CallScenario, Population, contractor_name, initiator_name};
use traffic_gen::recorder::{Counts, Recorder, observed};

/// Longest wait for the open rounds after the measured time.
const DRAIN: Duration = Duration::from_secs(20);
/// How often closed loops look how much is open: what is opened takes a hundred times as long.
const LOOK: Duration = Duration::from_millis(1);
/// Requests per second no agent of a benchmark reaches: the rate limiter is on, and never the limit.
pub(super) const UNLIMITED: u32 = 1_000_000;

/// Why a benchmark gave no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The exchange did not start.
    #[error(transparent)]
    Exchange(#[from] traffic_gen::exchange::ExchangeError),
    /// The population did not.
    #[error(transparent)]
    Live(#[from] live::LiveError),
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] bus::BusError),
    /// The initiator failed.
    #[error(transparent)]
    Call(#[from] agents::initiator::CallError),
    /// The control plane's client could not be set up.
    #[error(transparent)]
    Control(#[from] agents::control::ControlError),
    /// A call was refused, or the run stood still.
    #[error("{0}")]
    Stuck(String),
}

/// A reason to give no figure.
pub fn stuck(why: impl std::fmt::Display) -> BenchError {
    BenchError::Stuck(why.to_string())
}

/// An exchange whose rate limiter is never the limit.
///
/// # Errors
/// [`BenchError::Exchange`].
pub async fn unlimited(bus: Bus, options: ExchangeOptions) -> Result<Exchange, BenchError> {
    let limits = LimitConfig { requests_per_s: UNLIMITED, burst: UNLIMITED, ..LimitConfig::default() };
    Ok(Exchange::start(bus, ExchangeOptions { limits, ..options }).await?)
}

/// A nats-server, and a bus on it.
///
/// # Errors
/// [`BenchError::Bus`].
pub async fn on_server(options: LocalServerOptions) -> Result<(LocalServer, Bus), BenchError> {
    let server = LocalServer::start(options).await?;
    let bus = bus::nats::open(NatsOptions::new(server.url())).await?;
    Ok((server, bus))
}

/// What tasks have done together, once all have ended.
///
/// # Errors
/// The first of a task.
pub async fn sum(mut tasks: JoinSet<Result<u64, BenchError>>) -> Result<u64, BenchError> {
    let mut sum = 0;
    while let Some(task) = tasks.join_next().await {
        sum += task.map_err(stuck)??;
    }
    Ok(sum)
}

/// Keeps `open` negotiations open for `duration`; how many were called.
///
/// # Errors
/// That of a call.
pub async fn keep_called(
    recorder: &Recorder,
    open: usize,
    duration: Duration,
    call: impl AsyncFn(u64) -> Result<(), BenchError>,
) -> Result<u64, BenchError> {
    let (started, mut called) = (Instant::now(), 0);
    while started.elapsed() < duration {
        while recorder.open() < open {
            call(called).await?;
            called += 1;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(called)
}

/// Waits so long at most until `left` is 0.
///
/// # Errors
/// [`BenchError::Stuck`] with what `why` says of what is left then.
pub async fn until_none(
    patience: Duration,
    left: impl Fn() -> u64,
    why: impl FnOnce(u64) -> String,
) -> Result<(), BenchError> {
    let started = Instant::now();
    while left() > 0 {
        if started.elapsed() > patience {
            return Err(stuck(why(left())));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// What a closed loop gave, or a bare run.
#[derive(Debug)]
pub struct ClosedLoop {
    /// Rounds that ended in the measured time.
    pub rounds: u64,
    /// The measured time.
    pub elapsed_s: f64,
}

impl ClosedLoop {
    /// Rounds per second.
    pub fn rounds_per_s(&self) -> f64 {
        self.rounds as f64 / self.elapsed_s.max(f64::EPSILON)
    }
}

/// The policy of the benchmarks: `high`, with timers short enough that closed negotiations do not pile up.
fn policy() -> Policy {
    let mut policy = policy_core::preset("high").expect("`high` is a preset");
    policy.id = "bench@1".to_owned();
    policy.timers_ms.hard = 20_000;
    policy.timers_ms.perform = 10_000;
    policy
}

/// How the agents of a benchmark reach the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Over the bus, like agents that speak NATS.
    Bus,
    /// Over WebSocket, through a gateway's port.
    WebSocket,
}

impl Way {
    fn transport(self, exchange: &Exchange) -> Arc<dyn Transport> {
        match self {
            Self::Bus => Arc::new(BusTransport::new(&exchange.bus)),
            Self::WebSocket => {
                Arc::new(WebSocketTransport::new(exchange.url()).shared_by(AGENTS_PER_CONNECTION.into()))
            }
        }
    }
}

/// An exchange with a population that is about to start.
pub(super) struct Rig {
    pub(super) exchange: Exchange,
    pub(super) scenario: CallScenario,
}

impl Rig {
    pub(super) async fn start(bus: Bus, contractors: u32, run: &str, tracer: Tracer) -> Result<Self, BenchError> {
        let options =
            ExchangeOptions { policies: vec![policy()], tracer: tracer.clone(), ..ExchangeOptions::default() };
        let scenario = CallScenario {
            contractors,
            policy: Some("bench".to_owned()),
            run: run.to_owned(),
            reply_within_ms: 10_000,
            contractor: ContractorConfig::default(),
            ..CallScenario::default()
        }
        .traced(tracer);
        Ok(Self { exchange: unlimited(bus, options).await?, scenario })
    }

    /// Acts while the population runs, then stops everything.
    pub(super) async fn populated<T>(
        self,
        way: Way,
        act: impl AsyncFnOnce(&Self, &Access<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        let control = ControlClient::try_new(self.exchange.url())?;
        let names = (0..self.scenario.contractors).map(contractor_name).chain([initiator_name()]);
        let (identities, transport) = (self.exchange.identities(names)?, way.transport(&self.exchange));
        let (transport, identity) = (|_: &AgentId| Arc::clone(&transport), |name: &AgentId| identities[name].clone());
        let access = Access { control: &control, transport: &transport, identity: &identity };
        let population = Population::start(&access, &self.scenario, None).await?;
        let result = act(&self, &access).await;
        population.stop().await?;
        self.exchange.shutdown().await;
        result
    }

    /// Keeps `open` rounds open for `duration`, then stops everything.
    pub(super) async fn closed_loop(self, open: usize, duration: Duration, way: Way) -> Result<ClosedLoop, BenchError> {
        let act = async |rig: &Self, access: &Access<'_>| {
            let name = initiator_name();
            let options = rig.scenario.options.clone();
            let initiator = Initiator::spawn((access.transport)(&name), (access.identity)(&name), options);
            initiator.connected().await.map_err(live::LiveError::from)?;
            let result = keep_open(&initiator, &rig.scenario, open, duration).await;
            initiator.shutdown().await.map_err(live::LiveError::from)?;
            result
        };
        self.populated(way, act).await
    }
}

/// Keeps `open` rounds open for `duration`.
///
/// # Errors
/// [`BenchError`].
pub async fn closed_loop(
    bus: Bus,
    contractors: u32,
    open: usize,
    duration: Duration,
    way: Way,
    run: &str,
) -> Result<ClosedLoop, BenchError> {
    Rig::start(bus, contractors, run, Tracer::off()).await?.closed_loop(open, duration, way).await
}

/// Like [`closed_loop`] over the bus, and counts the agents' units for the duration of `counter`.
///
/// # Errors
/// [`BenchError`].
pub async fn counted(
    bus: Bus,
    contractors: u32,
    open: usize,
    counter: &Arc<UnitCounter>,
    run: &str,
) -> Result<(), BenchError> {
    let mut rig = Rig::start(bus, contractors, run, Tracer::off()).await?;
    rig.scenario.options = observed(&rig.scenario.options, Some(counter));
    rig.closed_loop(open, counter.duration(), Way::Bus).await.map(drop)
}

async fn keep_open(
    initiator: &Initiator,
    scenario: &CallScenario,
    open: usize,
    duration: Duration,
) -> Result<ClosedLoop, BenchError> {
    let (events, mut news) = mpsc::channel::<CallEvent>(open * 8);
    let mut called = BTreeSet::new();
    let mut number = 0_u64;
    let started = Instant::now();
    let mut result = ClosedLoop { rounds: 0, elapsed_s: 0.0 };
    while number < open as u64 || !called.is_empty() {
        if called.len() < open && started.elapsed() < duration {
            let request = live::request(scenario, format!("{}-{number}", scenario.run));
            number += 1;
            called.insert(initiator.call(request, events.clone()).await?);
            continue;
        }
        let event = tokio::time::timeout(DRAIN, news.recv()).await.ok().flatten();
        let event = event.ok_or_else(|| stuck(format!("{} rounds do not end", called.len())))?;
        if let Some(fault) = fault(&event.report) {
            return Err(stuck(fault));
        }
        if let CallReport::Closed(_) = event.report
            && called.remove(&event.negotiation)
            && started.elapsed() <= duration
        {
            result.rounds += 1;
            result.elapsed_s = started.elapsed().as_secs_f64();
        }
    }
    Ok(result)
}

/// Why a call opens no round.
fn fault(report: &CallReport) -> Option<String> {
    if let CallReport::Refused(refusal) = report {
        return Some(format!("a call was refused: {refusal}"));
    }
    if let CallReport::TurnedDown(disposition) = report {
        return Some(format!("a call was turned down: {}", disposition.as_str()));
    }
    matches!(report, CallReport::Unanswered).then(|| "a call was not answered".to_owned())
}

/// Poisson calls at `rate` per second for `duration`: latencies at low load.
///
/// # Errors
/// [`BenchError`].
pub async fn at_rate(
    bus: Bus,
    contractors: u32,
    rate: f64,
    duration: Duration,
    run: &str,
) -> Result<Counts, BenchError> {
    let mut rig = Rig::start(bus, contractors, run, Tracer::off()).await?;
    rig.scenario.rate = rate;
    rig.scenario.duration = duration;
    let act = async |rig: &Rig, access: &Access<'_>| -> Result<Counts, BenchError> {
        let recorder = Arc::new(Recorder::start(Instant::now(), false, None));
        live::call(access, &rig.scenario, &recorder, &CancellationToken::new()).await?;
        Ok(recorder.counts())
    };
    rig.populated(Way::Bus, act).await
}
