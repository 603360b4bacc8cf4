//! Whole rounds through everything: token, schema, consent, log, core, register, outbox, acknowledgements.

use std::sync::Arc;
use std::time::Duration;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::transport::websocket::{AGENTS_PER_CONNECTION, WebSocketTransport};
use agents::{CallEvent, CallReport, ContractorConfig, Identity, Initiator};
use bus::Bus;
use gateway::LimitConfig;
use schemas::{AgentId, Policy};
use telemetry::Tracer;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::units::UnitCounter;
use traffic_gen::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::latency::Latency;
use traffic_gen::live::{self, Access, CallScenario, Population, contractor_name, initiator_name};
use traffic_gen::recorder::{Counts, Recorder, observed};

/// Longest wait for the open rounds after the measured time.
const DRAIN: Duration = Duration::from_secs(20);
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
    Control(#[from] traffic_gen::control::ControlError),
    /// A call was refused, or the run stood still.
    #[error("{0}")]
    Stuck(String),
}

/// An exchange whose rate limiter is never the limit, and its control plane.
pub(super) async fn unlimited(bus: Bus) -> Result<(Exchange, ControlClient), BenchError> {
    let limits = LimitConfig { requests_per_s: UNLIMITED, burst: UNLIMITED, ..LimitConfig::default() };
    let exchange = Exchange::start(bus, ExchangeOptions { limits, ..ExchangeOptions::default() }).await?;
    let control = ControlClient::try_new(exchange.url())?;
    Ok((exchange, control))
}

/// What a closed loop gave.
#[derive(Debug)]
pub struct ClosedLoop {
    /// Rounds that ended in the measured time.
    pub rounds: u64,
    /// The measured time.
    pub elapsed_s: f64,
    /// From the call to its end.
    pub round: Latency,
}

impl ClosedLoop {
    /// Rounds per second.
    #[must_use]
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

/// An exchange with a population that is about to start.
pub(super) struct Rig {
    exchange: Exchange,
    scenario: CallScenario,
    control: ControlClient,
}

impl Rig {
    pub(super) async fn start(bus: Bus, contractors: u32, run: &str, tracer: Tracer) -> Result<Self, BenchError> {
        let limits = LimitConfig { requests_per_s: UNLIMITED, burst: UNLIMITED, ..LimitConfig::default() };
        let told = tracer.clone();
        let options = ExchangeOptions { policies: vec![policy()], limits, tracer: told, ..ExchangeOptions::default() };
        let exchange = Exchange::start(bus, options).await?;
        let control = ControlClient::try_new(exchange.url())?;
        let scenario = CallScenario {
            contractors,
            policy: Some("bench".to_owned()),
            run: run.to_owned(),
            reply_within_ms: 10_000,
            contractor: ContractorConfig::default(),
            ..CallScenario::default()
        }
        .traced(tracer);
        Ok(Self { exchange, scenario, control })
    }

    /// Where the exchange serves HTTP.
    pub(super) fn url(&self) -> &str {
        self.exchange.url()
    }

    /// Keeps `open` rounds open for `duration`, then stops everything.
    pub(super) async fn closed_loop(self, open: usize, duration: Duration, way: Way) -> Result<ClosedLoop, BenchError> {
        let (identity, transport) = (self.identities()?, self.transports(way));
        let access = Access { control: &self.control, transport: &transport, identity: &identity };
        let population = Population::start(&access, &self.scenario, None).await?;
        let name = initiator_name();
        let initiator = Initiator::spawn(transport(&name), identity(&name), self.scenario.options.clone());
        initiator.connected().await.map_err(live::LiveError::from)?;
        let result = keep_open(&initiator, &self.scenario, open, duration).await;
        initiator.shutdown().await.map_err(live::LiveError::from)?;
        population.stop().await?;
        self.exchange.shutdown().await;
        result
    }

    fn identities(&self) -> Result<impl Fn(&AgentId) -> Identity + use<>, BenchError> {
        let names = (0..self.scenario.contractors).map(contractor_name).chain([initiator_name()]);
        let identities = self.exchange.identities(names)?;
        Ok(move |name: &AgentId| identities[name].clone())
    }

    fn transports(&self, way: Way) -> impl Fn(&AgentId) -> Arc<dyn Transport> + use<> {
        let transport: Arc<dyn Transport> = match way {
            Way::Bus => Arc::new(BusTransport::new(&self.exchange.bus)),
            Way::WebSocket => {
                Arc::new(WebSocketTransport::new(self.exchange.url()).shared_by(AGENTS_PER_CONNECTION.into()))
            }
        };
        move |_: &AgentId| Arc::clone(&transport)
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

/// The same over the bus, whose agents' units are counted, for as long as the counter counts.
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
    rig.closed_loop(open, counter.duration(), Way::Bus).await.map(|_rounds| ())
}

async fn keep_open(
    initiator: &Initiator,
    scenario: &CallScenario,
    open: usize,
    duration: Duration,
) -> Result<ClosedLoop, BenchError> {
    let (events, mut news) = mpsc::channel::<CallEvent>(open * 8);
    let mut called = std::collections::BTreeMap::new();
    let mut number = 0_u64;
    let started = Instant::now();
    let mut result = ClosedLoop { rounds: 0, elapsed_s: 0.0, round: Latency::default() };
    while number < open as u64 || !called.is_empty() {
        if called.len() < open && started.elapsed() < duration {
            let request = live::request(scenario, format!("{}-{number}", scenario.run));
            number += 1;
            called.insert(initiator.call(request, events.clone()).await?, Instant::now());
            continue;
        }
        let event = match tokio::time::timeout(DRAIN, news.recv()).await {
            Ok(Some(event)) => event,
            Ok(None) | Err(_) => return Err(BenchError::Stuck(format!("{} rounds do not end", called.len()))),
        };
        match event.report {
            CallReport::Closed(_) => {
                if let Some(at) = called.remove(&event.negotiation)
                    && started.elapsed() <= duration
                {
                    result.rounds += 1;
                    result.elapsed_s = started.elapsed().as_secs_f64();
                    result.round.record(event.at.saturating_duration_since(at));
                }
            }
            CallReport::Refused(refusal) => return Err(BenchError::Stuck(format!("a call was refused: {refusal}"))),
            CallReport::TurnedDown(disposition) => {
                return Err(BenchError::Stuck(format!("a call was turned down: {}", disposition.as_str())));
            }
            CallReport::Unanswered => return Err(BenchError::Stuck("a call was not answered".to_owned())),
            CallReport::Accepted { .. }
            | CallReport::Opened { .. }
            | CallReport::Misunderstood(_)
            | CallReport::Offers(_)
            | CallReport::Awarded(_)
            | CallReport::Committed(_)
            | CallReport::Done(_)
            | CallReport::Stopped(_)
            | CallReport::Failed(_)
            | CallReport::Found(_) => {}
        }
    }
    Ok(result)
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
    let (identity, transport) = (rig.identities()?, rig.transports(Way::Bus));
    let access = Access { control: &rig.control, transport: &transport, identity: &identity };
    let population = Population::start(&access, &rig.scenario, None).await?;
    let started = Instant::now();
    let recorder = Arc::new(Recorder::start(started, false, None));
    live::call(&access, &rig.scenario, &recorder, &CancellationToken::new()).await?;
    population.stop().await?;
    rig.exchange.shutdown().await;
    Ok(recorder.counts())
}
