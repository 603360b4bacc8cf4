//! Many negotiations of one protocol on a running exchange, open-loop or so many kept open: scenario, ledger and driver. What
//! [`crate::live`] is for the contract nets of one initiator.
//!
//! Agents, what they do, and who takes part in a negotiation are drawn from the seed and the negotiation alone, as the
//! [`ProtocolLoad`] of a protocol says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Mutex, MutexGuard};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use schemas::AgentId;
use serde::Serialize;
use telemetry::Tracer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::{PoissonArrivals, pace};
use crate::exchange::{Exchange, ExchangeError};
use crate::live::{Access, AgentShare, LiveError, OPEN_MAX, settle};
use crate::recorder::{Counts, Recorder};
use crate::summary::RunTotals;
use agents::control::ControlError;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct LoadScenario<W> {
    /// What only this protocol's scenarios say.
    pub protocol: W,
    /// Agents that may be called, [`ProtocolLoad::AGENTS_MIN`] at least.
    pub agents: u32,
    /// Negotiations opened per second.
    pub rate: f64,
    /// How long negotiations are opened.
    pub duration: Duration,
    /// Seed of everything drawn.
    pub seed: u64,
    /// Begins every negotiation's id.
    pub run: String,
    /// How long to wait for open negotiations after the last was opened.
    pub drain: Duration,
    /// How agents run; what the run itself watches is added to its observer.
    pub options: AgentOptions,
    /// Begins the names of agents, where they share an exchange with others: characters of an id, 40 at most. One that
    /// makes no id is left out.
    pub prefix: String,
    /// The agents that this process runs: those it is to call with, and register.
    pub share: AgentShare,
}

impl<W: Default> Default for LoadScenario<W> {
    fn default() -> Self {
        Self {
            protocol: W::default(),
            agents: 12,
            rate: 10.0,
            duration: Duration::from_secs(20),
            seed: 1,
            run: "run".to_owned(),
            drain: Duration::from_secs(60),
            options: AgentOptions::default(),
            prefix: String::new(),
            share: AgentShare::WHOLE,
        }
    }
}

impl<W: ProtocolLoad> LoadScenario<W> {
    /// The name of an agent that may be called.
    pub fn agent_name(&self, number: u32) -> AgentId {
        self.name(&format!("{}-{number}", W::AGENT))
    }

    /// The numbers of the agents of this process that may be called.
    pub fn own_numbers(&self) -> impl Iterator<Item = u32> {
        (0..self.agents).filter(|number| self.share.has(*number))
    }

    /// The names of the agents of this process that may be called.
    pub fn own_names(&self) -> impl Iterator<Item = AgentId> {
        self.own_numbers().map(|number| self.agent_name(number))
    }

    /// The names of all agents.
    pub fn names(&self) -> impl Iterator<Item = AgentId> {
        (0..self.agents).map(|number| self.agent_name(number)).chain(W::INITIATOR.map(|name| self.name(name)))
    }

    /// A name of this scenario.
    ///
    /// # Panics
    /// When `name` is no name.
    pub fn name(&self, name: &str) -> AgentId {
        let plain = || AgentId::try_new(name).expect("letters, a hyphen and a number make a name");
        AgentId::try_new(&format!("{}{name}", self.prefix)).unwrap_or_else(|_| plain())
    }

    /// The same, whose agents' spans go to `tracer`.
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.options.tracer = tracer;
        self
    }

    /// What the `number`-th negotiation is drawn from.
    pub fn random(&self, number: u64) -> ChaCha12Rng {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        random.set_stream(number);
        random
    }

    /// Draws so many different agents.
    pub fn draw_agents(&self, random: &mut ChaCha12Rng, count: usize) -> Vec<u32> {
        let mut agents: Vec<u32> = (0..self.agents).collect();
        agents.partial_shuffle(random, count).0.to_vec()
    }
}

/// What the agents of one protocol do under load.
pub trait ProtocolLoad: Sized {
    /// Begins the names of agents that may be called; a hyphen and a number follow.
    const AGENT: &'static str = "agent";
    /// Who calls, where that is none of those.
    const INITIATOR: Option<&'static str> = None;
    /// Fewest agents.
    const AGENTS_MIN: u32;
    /// What is known of a run besides what its recorder knows.
    type State;
    /// The agents, registered and connected.
    type Agents;

    /// What is known before a run.
    fn state(&self) -> Self::State;

    /// Registers and connects the process's share of the agents; what they see goes to the ledger. Where one cannot be
    /// registered, none runs.
    fn start(
        access: &Access<'_>,
        scenario: &LoadScenario<Self>,
        ledger: &Arc<Ledger<Self::State>>,
    ) -> impl Future<Output = Result<Self::Agents, LiveError>>;

    /// Opens the `number`-th negotiation, if its initiator is of the process's share; its latencies count from `intended`.
    fn open(load: &RunningLoad<Self>, number: u64, intended: Instant) -> impl Future<Output = Result<(), LiveError>>;

    /// Ends the agents and takes their registrations away.
    fn stop(agents: Self::Agents) -> impl Future<Output = Result<(), LiveError>>;
}

/// What only the summaries of one protocol have.
pub trait ProtocolSummary: Serialize + Sized {
    /// The protocol in a summary.
    const PROTOCOL: &'static str;
    /// What negotiations are called.
    const UNIT: &'static str;
    /// What a run is called.
    const TITLE: &'static str = Self::UNIT;
    /// What is run.
    type Load: ProtocolLoad;

    /// The policy of a run, where the protocol has one: none where agents accept themselves.
    fn policy(_load: &Self::Load) -> Option<Option<String>> {
        None
    }

    /// The line of progress.
    fn line(ledger: &LoadLedger<Self::Load>) -> String;

    /// Of a run that took so many seconds.
    fn new(ledger: &LoadLedger<Self::Load>, counts: &Counts, elapsed_s: f64) -> Self;

    /// Writes a summary's lines.
    ///
    /// # Errors
    /// The formatter's.
    fn write(&self, summary: &LoadSummary<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// What is wrong with a run though no invariant is violated.
    fn fault(&self) -> Option<String> {
        None
    }
}

/// The result of a run: what `llmx demo --protocol ... --json` prints. Latencies are in milliseconds.
#[derive(Serialize)]
pub struct LoadSummary<S> {
    /// [`ProtocolSummary::PROTOCOL`].
    pub protocol: &'static str,
    /// Seed of everything drawn.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// The policy all delegated to, where the protocol has one; none: agents accepted themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Option<String>>,
    /// Agents that may be called.
    pub agents: u32,
    /// Target negotiations per second.
    pub rate: f64,
    /// Calls admitted.
    pub cfps: u64,
    /// What only this protocol's summaries have.
    #[serde(flatten)]
    pub own: S,
    /// What any run comes to.
    #[serde(flatten)]
    pub run: RunTotals,
}

impl<S: ProtocolSummary> LoadSummary<S> {
    /// Puts a run's results together.
    pub fn new(
        scenario: &LoadScenario<S::Load>,
        bus: &str,
        ledger: &LoadLedger<S::Load>,
        (counts, run): (&Counts, RunTotals),
    ) -> Self {
        Self {
            protocol: S::PROTOCOL,
            seed: scenario.seed,
            bus: bus.to_owned(),
            policy: S::policy(&scenario.protocol),
            agents: scenario.agents,
            rate: scenario.rate,
            cfps: counts.cfps,
            own: S::new(ledger, counts, run.driven.elapsed_s),
            run,
        }
    }
}

impl<S: ProtocolSummary> fmt::Display for LoadSummary<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, bus, agents, rate, run, .. } = self;
        run.driven.begin(f)?;
        let (title, unit, elapsed_s) = (S::TITLE, S::UNIT, run.driven.elapsed_s);
        let policy = self.policy.as_ref().map(|policy| policy.as_deref().unwrap_or("agents accept themselves"));
        let policy = policy.map(|policy| format!(", {policy}")).unwrap_or_default();
        writeln!(f, "{title} on {bus}, {agents} agents, {rate} {unit}/s{policy}, seed {seed}: {elapsed_s:.1} s")?;
        self.own.write(self, f)?;
        write!(f, "{run}")
    }
}

/// What is known of a run of a load.
pub type LoadLedger<W> = Ledger<<W as ProtocolLoad>::State>;

/// Watches every agent of a run: a recorder, and what only one protocol has. One lock, held for microseconds per event.
pub struct Ledger<S> {
    recorder: Arc<Recorder>,
    state: Mutex<S>,
}

impl<S> Ledger<S> {
    /// A ledger in front of a recorder, which hears everything too.
    pub fn new(recorder: Recorder, state: S) -> Self {
        Self { recorder: Arc::new(recorder), state: Mutex::new(state) }
    }

    /// The recorder.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock()
    }
}

/// The agents of a scenario, registered and connected, and what is known of their run.
pub struct RunningLoad<W: ProtocolLoad> {
    /// What is run.
    pub scenario: LoadScenario<W>,
    /// What is known.
    pub ledger: Arc<Ledger<W::State>>,
    /// The agents.
    pub agents: W::Agents,
}

impl<W: ProtocolLoad> RunningLoad<W> {
    /// Registers and connects the agents of a scenario; what they see goes to a ledger in front of the recorder.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(access: &Access<'_>, scenario: LoadScenario<W>, recorder: Recorder) -> Result<Self, LiveError> {
        let ledger = Arc::new(Ledger::new(recorder, scenario.protocol.state()));
        let agents = W::start(access, &scenario, &ledger).await?;
        Ok(Self { scenario, ledger, agents })
    }

    /// Like [`Self::start`], on an exchange in this process, over its bus.
    ///
    /// # Errors
    /// As [`Exchange::with_access`]; [`LiveError`].
    pub async fn start_on<E: From<ExchangeError> + From<ControlError> + From<LiveError>>(
        exchange: &Exchange,
        scenario: LoadScenario<W>,
        recorder: Recorder,
    ) -> Result<Self, E> {
        let names: Vec<AgentId> = scenario.names().collect();
        exchange.with_access(names, async |access| Ok(Self::start(access, scenario, recorder).await?)).await
    }

    /// Opens negotiations as they fall due until the scenario's duration, or `cancel`, ends it; then waits for what is open. How many
    /// were not opened because [`OPEN_MAX`] were open.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn drive(&self, started: Instant, cancel: &CancellationToken) -> Result<u64, LiveError> {
        let (scenario, recorder) = (&self.scenario, self.ledger.recorder());
        let arrivals = PoissonArrivals::try_new(scenario.rate, scenario.seed)?;
        let mut due = pace(started.into_std(), arrivals, scenario.duration);
        let (mut opening, mut shed, mut is_over) = (FuturesUnordered::new(), 0, false);
        while !is_over {
            tokio::select! {
                next = due.recv() => match next {
                    None => is_over = true,
                    Some(_) if recorder.open() >= OPEN_MAX => shed += 1,
                    Some((number, intended)) => {
                        opening.push(Box::pin(W::open(self, number as u64, Instant::from_std(intended))));
                    }
                },
                Some(opened) = opening.next(), if !opening.is_empty() => opened?,
                () = cancel.cancelled() => is_over = true,
            }
        }
        let drained = async {
            while let Some(opened) = opening.next().await {
                opened?;
            }
            Ok::<(), LiveError>(())
        };
        // What has not ended by then is judged by who watches.
        tokio::time::timeout(scenario.drain, drained).await.unwrap_or(Ok(()))?;
        settle(recorder, scenario.drain).await;
        Ok(shed)
    }

    /// Keeps so many negotiations open until `cancel`, then waits for their ends: of protocols whose [`ProtocolLoad::open`] waits for
    /// them. What is opened next has the number of what has ended.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn keep_open(&self, open: u32, cancel: &CancellationToken) -> Result<(), LiveError> {
        let keep = async |number: u32| {
            while !cancel.is_cancelled() {
                W::open(self, number.into(), Instant::now()).await?;
            }
            Ok(())
        };
        try_join_all((0..open).map(keep)).await.map(drop)
    }

    /// Ends the agents and takes their registrations away.
    ///
    /// # Errors
    /// The first agent's error.
    pub async fn stop(self) -> Result<(LoadScenario<W>, Arc<Ledger<W::State>>), LiveError> {
        W::stop(self.agents).await?;
        Ok((self.scenario, self.ledger))
    }
}
