//! A run against a real exchange: contractors, one initiator, open-loop calls, a verdict.

mod access;
mod contractors;
pub mod due;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::routine::RoutineRunner;
use agents::transport::Transport;
use agents::{AgentError, AgentOptions, CallEvent, CallReport, CallRequest, ContractorConfig, Identity, Initiator};
use schemas::control::Registration;
use schemas::document::CallDocuments;
use schemas::english_auction::AuctionSpec;
use schemas::ids::Capability;
use schemas::payload::Cfp;
use schemas::policy::Gate;
use schemas::{Address, AgentId, NegotiationId, TopicName};
use telemetry::Tracer;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::{Load, LoadError, RateError};
use crate::metrics::Phase;
use crate::recorder::{Recorder, observed};
use agents::control::ControlError;
use due::DueCalls;

pub use access::{Access, AgentShare, AgentWay, RegisteredAgents, RunningAgents};
use agents::model::ModelDecider;
pub use contractors::{ModelPopulation, SharedModel};
pub use contractors::{RunningContractor, contractor_name};

/// The topic contractors register and calls go to, unless a scenario names another.
pub const TOPIC: &str = "courier";
/// What calls ask for, unless a scenario says otherwise.
pub const TASK: &str = "deliver one parcel";
/// The initiator, as in the paper.
pub const INITIATOR: &str = "alice";
/// Calls open at once beyond which none is started: an exchange so far behind would only be measured by its memory.
pub const OPEN_MAX: usize = 100_000;
/// Events of calls that wait to be noted.
const EVENTS_MAX: usize = 1024;
/// How often calls whose end was not heard of are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);
/// Longest wait for an agent's first connection.
pub const CONNECT_MAX_DEFAULT: Duration = Duration::from_secs(30);
/// How long behind the last intended call the exchange may be before the calls that are left are given up.
const OVERTIME: Duration = Duration::from_secs(2);
/// How often a run looks whether it has settled.
const SETTLE_POLL: Duration = Duration::from_millis(20);
/// How many looks in a row must find a run settled.
const SETTLED_LOOKS: u32 = 2;

/// What is to be run.
#[derive(Clone)]
pub struct CallScenario {
    /// Contractors.
    pub contractors: u32,
    /// The topic contractors register, and calls go to while `to` is empty.
    pub topic: TopicName,
    /// Addresses calls go to instead of the topic.
    pub to: Vec<Address>,
    /// Capabilities contractors register and calls ask for: an agent needs one of them. Empty: none is asked for.
    pub capabilities: Vec<Capability>,
    /// Contractors register as durable: calls wait for those that cannot be reached.
    pub durable: bool,
    /// What calls ask for, in words.
    pub task: String,
    /// Makes calls English auctions, by these rules.
    pub auction: Option<AuctionSpec>,
    /// Protocol documents that calls name.
    pub documents: Option<CallDocuments>,
    /// What carries out the awards of scripted contractors: contractor `n` has the one at `n`, counted round and round.
    /// Empty: nothing does, and reports are scripted.
    pub routines: Vec<Arc<RoutineRunner>>,
    /// Name of the policy calls ask for; absent: the exchange's default applies.
    pub policy: Option<String>,
    /// Calls per second.
    pub rate: f64,
    /// How they are spread over time.
    pub load: Load,
    /// How long calls arrive.
    pub duration: Duration,
    /// Seed of arrivals and contractors.
    pub seed: u64,
    /// Begins every negotiation's id. Contractors draw by it, so a repeat of a run needs the same; a log that is kept
    /// needs another one for each run.
    pub run: String,
    /// How contractors behave.
    pub contractor: ContractorConfig,
    /// How some of them behave instead.
    pub by_contractor: BTreeMap<AgentId, ContractorConfig>,
    /// A share of the contractors asks this model instead.
    pub model: Option<ModelPopulation>,
    /// Some of the others ask a model of their own, by their names.
    pub models: BTreeMap<AgentId, SharedModel>,
    /// Chooses among the offers, under a policy that leaves that to the initiator; its owner's limits are gates of each call.
    pub decider: Option<Arc<ModelDecider>>,
    /// Collection deadline of each call, in milliseconds.
    pub reply_within_ms: u64,
    /// How long to wait for open negotiations after the last call.
    pub drain: Duration,
    /// Begins the names of contractors, where they share an exchange with others: characters of an id, 40 at most. One
    /// that makes no id is left out.
    pub prefix: String,
    /// Who calls.
    pub initiator: AgentId,
    /// How long to wait for an agent's first connection.
    pub connect_within: Duration,
    /// How agents run; what the run itself watches is added to its observer.
    pub options: AgentOptions,
}

impl Default for CallScenario {
    fn default() -> Self {
        Self {
            contractors: 12,
            topic: topic(),
            to: Vec::new(),
            capabilities: Vec::new(),
            durable: false,
            task: TASK.to_owned(),
            auction: None,
            documents: None,
            routines: Vec::new(),
            policy: None,
            rate: 10.0,
            load: Load::default(),
            duration: Duration::from_secs(20),
            seed: 1,
            run: "run".to_owned(),
            contractor: ContractorConfig::default(),
            by_contractor: BTreeMap::new(),
            model: None,
            models: BTreeMap::new(),
            decider: None,
            reply_within_ms: 2_000,
            drain: Duration::from_secs(30),
            prefix: String::new(),
            initiator: initiator_name(),
            connect_within: CONNECT_MAX_DEFAULT,
            options: AgentOptions::default(),
        }
    }
}

impl CallScenario {
    /// The same, whose agents' spans go to `tracer`.
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.options.tracer = tracer;
        self
    }

    fn initiator(&self, transport: Arc<dyn Transport>, identity: Identity, options: AgentOptions) -> Initiator {
        match &self.decider {
            Some(decider) => Initiator::spawn_choosing(transport, identity, options, Arc::clone(decider) as _),
            None => Initiator::spawn(transport, identity, options),
        }
    }

    /// The limits of whoever chooses among the offers.
    fn gates(&self) -> Vec<Gate> {
        self.decider.as_ref().map_or_else(Vec::new, |decider| decider.config().initiator.gates())
    }
}

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The rate.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A contractor's parameters.
    #[error(transparent)]
    Contractor(#[from] agents::contractor::ConfigError),
    /// An agent could not connect, or ended.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A call was not made.
    #[error(transparent)]
    Call(#[from] agents::initiator::CallError),
    /// An agent found no way in.
    #[error("{agent} has no connection after {waited:?}")]
    NotConnected {
        /// The agent.
        agent: AgentId,
        /// How long it tried.
        waited: Duration,
    },
    /// An agent could not register.
    #[error("registration: {0}")]
    Control(#[from] ControlError),
}

/// Contractors that are connected and registered.
pub struct Population {
    contractors: Vec<RunningContractor>,
    registered: RegisteredAgents,
    cancel: CancellationToken,
}

/// The initiator's id, unless the scenario names another.
///
/// # Panics
/// Never: the name is a constant.
pub fn initiator_name() -> AgentId {
    AgentId::try_new(INITIATOR).expect("the constant is a name")
}

fn topic() -> TopicName {
    TopicName::try_new(TOPIC).expect("the constant is a name")
}

impl Population {
    /// Registers and connects the contractors of a scenario.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(
        access: &Access<'_>,
        scenario: &CallScenario,
        observer: Option<&Arc<Recorder>>,
    ) -> Result<Self, LiveError> {
        let cancel = CancellationToken::new();
        let registration = Registration {
            capabilities: scenario.capabilities.clone(),
            topics: vec![scenario.topic.clone()],
            durable: scenario.durable,
            ..Registration::open_to_all()
        };
        let mut contractors = Vec::new();
        let mut registered = RegisteredAgents::new(access.control);
        for number in 0..scenario.contractors {
            let name = scenario.contractor_name(number);
            let identity = (access.identity)(&name);
            let description = Some(RunningContractor::description(scenario, number).to_owned());
            registered.register(&identity, &Registration { description, ..registration.clone() }).await?;
            let way = ((access.transport)(&name), identity, observed(&scenario.options, observer));
            contractors.push(RunningContractor::start(scenario, number, way, &cancel)?);
        }
        for index in 0..contractors.len() {
            let contractor = &contractors[index];
            match first_connection(contractor.agent(), scenario, contractor.connected()).await {
                // Why it ended is the better answer.
                Err(LiveError::Agent(ended)) => {
                    return Err(contractors.swap_remove(index).join().await.err().unwrap_or(ended).into());
                }
                outcome => outcome?,
            }
        }
        Ok(Self { contractors, registered, cancel })
    }

    /// Registers again whose registration another process has taken away, for as long as it is polled.
    pub async fn keep_registered(&self) {
        self.registered.keep().await;
    }

    /// Ends the contractors and takes their registrations away, so that no call waits for them.
    ///
    /// # Errors
    /// The first contractor's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.registered.remove().await;
        self.cancel.cancel();
        for contractor in self.contractors {
            contractor.join().await?;
        }
        Ok(())
    }
}

/// Connects the initiator, then calls: [`connect`], [`call_from`].
///
/// # Errors
/// [`LiveError`].
pub async fn call(
    access: &Access<'_>,
    scenario: &CallScenario,
    recorder: &Arc<Recorder>,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let initiator = connect(access, scenario, recorder).await?;
    call_from(initiator, scenario, recorder, Instant::now(), cancel).await
}

/// Starts the initiator and waits for its first connection.
///
/// # Errors
/// [`LiveError::NotConnected`] when it takes longer than [`CallScenario::connect_within`]; [`LiveError::Agent`] when the
/// initiator ends instead, as it does when its token is refused.
pub async fn connect(
    access: &Access<'_>,
    scenario: &CallScenario,
    recorder: &Arc<Recorder>,
) -> Result<Initiator, LiveError> {
    let name = &scenario.initiator;
    let options = observed(&scenario.options, Some(recorder));
    let initiator = scenario.initiator((access.transport)(name), (access.identity)(name), options);
    match first_connection(name, scenario, initiator.connected()).await {
        // Why it ended is the better answer.
        Err(LiveError::Agent(ended)) => Err(initiator.shutdown().await.err().unwrap_or(ended).into()),
        outcome => outcome.map(|()| initiator),
    }
}

/// Waits for an agent's first connection, a bounded time.
async fn first_connection(
    agent: &AgentId,
    scenario: &CallScenario,
    connected: impl Future<Output = Result<(), AgentError>>,
) -> Result<(), LiveError> {
    let waited = scenario.connect_within;
    let late = || LiveError::NotConnected { agent: agent.clone(), waited };
    Ok(tokio::time::timeout(waited, connected).await.map_err(|_| late())??)
}

/// Opens calls as they fall due after `started` until the scenario's duration, or `cancel`, ends it, whatever the
/// exchange does; then waits for what is open. Returns how many calls were not started because [`OPEN_MAX`] were open.
///
/// # Errors
/// [`LiveError`].
pub async fn call_from(
    initiator: Initiator,
    scenario: &CallScenario,
    recorder: &Arc<Recorder>,
    started: Instant,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let metrics = recorder.metrics();
    let set_phase = |phase| metrics.iter().for_each(|metrics| metrics.set_phase(phase));
    metrics.iter().for_each(|metrics| metrics.set_target_rate(scenario.rate));
    let (events, noted) = mpsc::channel(EVENTS_MAX);
    let (due, ends) = DueCalls::try_new(scenario, started)?;
    let noting = tokio::spawn(note(Arc::clone(recorder), noted, ends));
    let shed = AtomicU64::new(0);
    set_phase(Phase::Running);
    // An initiator that has lost its connection takes no further call: its queue is full, and stays so.
    tokio::select! {
        made = make_calls(&initiator, scenario, recorder, (due, events), &shed) => made?,
        () = cancel.cancelled() => {}
        () = tokio::time::sleep_until(started + scenario.duration + OVERTIME) => {}
    }
    set_phase(Phase::Draining);
    metrics.iter().for_each(|metrics| metrics.set_target_rate(0.0));
    settle(recorder, scenario.drain).await;
    initiator.shutdown().await?;
    noting.abort();
    set_phase(Phase::Ended);
    Ok(shed.into_inner())
}

/// Opens calls as they fall due.
async fn make_calls(
    initiator: &Initiator,
    scenario: &CallScenario,
    recorder: &Arc<Recorder>,
    (mut due, events): (DueCalls, mpsc::Sender<CallEvent>),
    shed: &AtomicU64,
) -> Result<(), LiveError> {
    let metrics = recorder.metrics();
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    loop {
        let next = tokio::select! {
            next = due.next() => next,
            now = sweep.tick() => {
                for lost in recorder.forget_lost(now) {
                    initiator.forget(lost).await?;
                }
                continue;
            }
        };
        let Some((number, intended)) = next else { return Ok(()) };
        let is_shed = recorder.open() >= OPEN_MAX;
        metrics.iter().for_each(|metrics| metrics.arrived(is_shed));
        if is_shed {
            shed.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let own_id = format!("{}-{number}", scenario.run);
        if let Ok(negotiation) = NegotiationId::form(&scenario.initiator, &own_id) {
            recorder.call_due(negotiation, intended);
        }
        match initiator.call(request(scenario, own_id), events.clone()).await {
            Ok(_) => {}
            Err(agents::initiator::CallError::Agent(error)) => return Err(error.into()),
            Err(agents::initiator::CallError::Id(error)) => tracing::error!(%error, "an id of our own was refused"),
        }
    }
}

/// Notes what only the initiator's strategy can tell; all else the recorder sees by itself.
async fn note(recorder: Arc<Recorder>, mut events: mpsc::Receiver<CallEvent>, ends: mpsc::Sender<()>) {
    while let Some(event) = events.recv().await {
        if event.report.is_last() {
            // Nobody waits for it in an open load.
            let _ = ends.send(()).await;
        }
        if matches!(event.report, CallReport::TurnedDown(_)) {
            recorder.turned_down(&event.negotiation);
        }
    }
}

/// The call a scenario makes.
pub fn request(scenario: &CallScenario, own_id: String) -> CallRequest {
    let cfp = Cfp {
        task: Some(scenario.task.clone()),
        auction: scenario.auction.clone().map(Box::new),
        documents: scenario.documents.clone(),
        policy: scenario.policy.clone(),
        reply_within_ms: Some(scenario.reply_within_ms),
        gates: scenario.gates(),
        ..Cfp::default()
    };
    let to = if scenario.to.is_empty() { vec![Address::Topic(scenario.topic.clone())] } else { scenario.to.clone() };
    let mut request = CallRequest::new(own_id, to, cfp);
    request.capabilities.clone_from(&scenario.capabilities);
    request
}

/// Waits until every negotiation has ended and every agent has been told all it is owed, at most `patience`. An agent may be about
/// to answer what it was just told: it has to be so at two looks in a row.
pub async fn settle(recorder: &Recorder, patience: Duration) {
    let deadline = Instant::now() + patience;
    let mut looks = 0;
    while Instant::now() < deadline && looks < SETTLED_LOOKS {
        looks = if recorder.open() == 0 && recorder.is_settled() { looks + 1 } else { 0 };
        tokio::time::sleep(SETTLE_POLL).await;
    }
}
