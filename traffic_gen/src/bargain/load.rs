//! Many bargains on a running exchange: agents that are called to, and call others to, bargains over the shipped domains,
//! open-loop. What [`crate::live`] is for the contract net.
//!
//! Whom an agent calls, about what, and by which strategy each party plays is drawn from the seed and the bargain alone.

mod catalog;
mod ledger;
mod summary;

use std::sync::Arc;
use std::time::Duration;

use agents::bargain::{BargainEvent, BargainPlan, BargainRequest, Bargainer, Planner, StrategyKind};
use agents::{Agent, AgentHandle, AgentOptions};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::control::{Consent, ConsentEffect, Registration};
use schemas::delivery::BargainCall;
use schemas::{Address, AgentId, NegotiationId};
use telemetry::Tracer;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::arrivals::PoissonArrivals;
use crate::live::{Access, LiveError, RegisteredAgents, open_as_due};
use crate::recorder::observed;

pub use catalog::Catalog;
pub use ledger::{EndListener, Ledger, Traded};
pub use summary::BargainSummary;

/// Events of all agents waiting to be noted: each bargain gives a handful.
const EVENTS_MAX: usize = 65_536;
/// Fewest agents: the largest shipped domain has three parties.
pub const AGENTS_MIN: u32 = 3;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct BargainScenario {
    /// Agents, [`AGENTS_MIN`] at least.
    pub agents: u32,
    /// The policy every party delegates its acceptances to; absent: agents accept themselves.
    pub policy: Option<String>,
    /// The strategies parties draw theirs from.
    pub strategies: Vec<StrategyKind>,
    /// Bargains opened per second.
    pub rate: f64,
    /// How long bargains are opened.
    pub duration: Duration,
    /// Seed of arrivals, parties, domains and strategies.
    pub seed: u64,
    /// Begins every bargain's id.
    pub run: String,
    /// How long to wait for open bargains after the last was opened.
    pub drain: Duration,
    /// How agents run; the ledger is added to its observer.
    pub options: AgentOptions,
    /// Begins the names of agents, where they share an exchange with others: characters of an id, 40 at most. One that
    /// makes no id is left out.
    pub prefix: String,
}

impl Default for BargainScenario {
    fn default() -> Self {
        Self {
            agents: 12,
            policy: None,
            strategies: StrategyKind::ALL.to_vec(),
            rate: 10.0,
            duration: Duration::from_secs(20),
            seed: 1,
            run: "run".to_owned(),
            drain: Duration::from_secs(60),
            options: AgentOptions::default(),
            prefix: String::new(),
        }
    }
}

/// One bargain to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Its place in the catalog.
    pub domain: usize,
    /// Who takes part, as numbers of agents; the first opens it.
    pub parties: Vec<u32>,
}

impl BargainScenario {
    /// The name of an agent of this scenario.
    #[must_use]
    pub fn agent_name(&self, number: u32) -> AgentId {
        let name = agent_name(number);
        AgentId::try_new(&format!("{}{name}", self.prefix)).unwrap_or(name)
    }

    /// The same, whose agents' spans go to `tracer`.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> Self {
        self.options.tracer = tracer;
        self
    }

    /// The `number`-th bargain: parties and domain.
    #[must_use]
    pub fn opening(&self, catalog: &Catalog, number: u64) -> Opening {
        let mut random = ChaCha12Rng::seed_from_u64(self.seed);
        random.set_stream(number);
        let domain = random.random_range(0..catalog.len());
        let mut agents: Vec<u32> = (0..self.agents).collect();
        let (parties, _) = agents.partial_shuffle(&mut random, catalog.parties(domain));
        Opening { domain, parties: parties.to_vec() }
    }
}

/// The name of an agent.
///
/// # Panics
/// Never: the name is made of letters and digits.
#[must_use]
pub fn agent_name(number: u32) -> AgentId {
    AgentId::try_new(&format!("agent-{number}")).expect("a number makes a name")
}

/// Agents that are connected and registered.
pub struct BargainPopulation {
    agents: Vec<AgentHandle<Bargainer>>,
    registered: RegisteredAgents,
    catalog: Arc<Catalog>,
    scenario: BargainScenario,
    cancel: CancellationToken,
    noting: tokio::task::JoinHandle<()>,
}

impl BargainPopulation {
    /// Registers and connects the agents of a scenario; what they see goes to the ledger.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn start(
        access: &Access<'_>,
        scenario: &BargainScenario,
        catalog: &Arc<Catalog>,
        ledger: &Arc<Ledger>,
    ) -> Result<Self, LiveError> {
        let cancel = CancellationToken::new();
        let (events, mut news) = mpsc::channel::<BargainEvent>(EVENTS_MAX);
        let noting = tokio::spawn({
            let ledger = Arc::clone(ledger);
            async move {
                while let Some(event) = news.recv().await {
                    ledger.note(event);
                }
            }
        });
        let mut agents = Vec::new();
        let mut registered = RegisteredAgents::new(access.control);
        for name in (0..scenario.agents).map(|number| scenario.agent_name(number)) {
            let identity = (access.identity)(&name);
            registered.register(&identity, &registration()).await?;
            let bargainer = Bargainer::new(name.clone(), planner(scenario, catalog), events.clone());
            let options = observed(&scenario.options, Some(ledger));
            let agent = Agent::new((access.transport)(&name), identity, bargainer).with_options(options);
            agents.push(agent.spawn(cancel.clone()));
        }
        for agent in &agents {
            agent.connected().await?;
        }
        Ok(Self { agents, registered, catalog: Arc::clone(catalog), scenario: scenario.clone(), cancel, noting })
    }

    /// Opens the `number`-th bargain of the scenario; latencies count from `intended`.
    ///
    /// # Errors
    /// [`LiveError`].
    pub async fn open(&self, number: u64, ledger: &Ledger, intended: Instant) -> Result<(), LiveError> {
        let Opening { domain, parties } = self.scenario.opening(&self.catalog, number);
        let own_id = format!("{}-{number}", self.scenario.run);
        let names: Vec<AgentId> = parties.iter().map(|&number| self.scenario.agent_name(number)).collect();
        let Ok(negotiation) = NegotiationId::form(&names[0], &own_id) else {
            tracing::error!(own_id, "an id of our own was refused");
            return Ok(());
        };
        let plan = plan(&self.catalog, &self.scenario, domain, &negotiation, 0);
        let to = names[1..].iter().cloned().map(Address::Agent).collect();
        let request = BargainRequest::new(own_id, to, self.catalog.rules(domain), plan);
        ledger.opened(negotiation, domain, intended);
        let initiator = &self.agents[parties[0] as usize];
        match initiator.bargain(request).await {
            Ok(_) => Ok(()),
            Err(agents::initiator::CallError::Agent(error)) => Err(error.into()),
            Err(agents::initiator::CallError::Id(error)) => {
                tracing::error!(%error, "an id of our own was refused");
                Ok(())
            }
        }
    }

    /// Ends the agents and takes their registrations away.
    ///
    /// # Errors
    /// The first agent's error.
    pub async fn stop(self) -> Result<(), LiveError> {
        self.registered.remove().await;
        self.cancel.cancel();
        for agent in self.agents {
            agent.join().await?;
        }
        // The last agent took the last sender with it.
        let _ = self.noting.await;
        Ok(())
    }
}

/// Bargains with everybody.
fn registration() -> Registration {
    Registration {
        capabilities: Vec::new(),
        topics: Vec::new(),
        consent: Consent { default: ConsentEffect::Allow, rules: Vec::new() },
        description: Some("scripted bargainer".to_owned()),
        ..Registration::default()
    }
}

fn planner(scenario: &BargainScenario, catalog: &Arc<Catalog>) -> impl Planner + use<> {
    let (scenario, catalog) = (scenario.clone(), Arc::clone(catalog));
    move |negotiation: &NegotiationId, call: &BargainCall, party: usize| {
        let domain = catalog.domain_of(&call.rules).ok_or("bargains about something else")?;
        Ok(plan(&catalog, &scenario, domain, negotiation, party))
    }
}

fn plan(
    catalog: &Catalog,
    scenario: &BargainScenario,
    domain: usize,
    negotiation: &NegotiationId,
    party: usize,
) -> BargainPlan {
    let mut plan = catalog.plan(domain, party, negotiation, &scenario.strategies, scenario.seed);
    if let (Some(mandate), Some(policy)) = (&mut plan.mandate, &scenario.policy) {
        mandate.policy = Some(policy.clone());
    }
    plan
}

/// Opens bargains as they fall due until the scenario's duration, or `cancel`, ends it; then waits for what is open.
/// Returns how many were not opened because [`crate::live::OPEN_MAX`] were open.
///
/// # Errors
/// [`LiveError`].
pub async fn trade(
    population: &BargainPopulation,
    ledger: &Arc<Ledger>,
    started: Instant,
    cancel: &CancellationToken,
) -> Result<u64, LiveError> {
    let scenario = &population.scenario;
    let arrivals = PoissonArrivals::try_new(scenario.rate, scenario.seed)?;
    let (limits, ended) = ((arrivals, scenario.duration), (ledger.recorder(), scenario.drain));
    open_as_due(limits, ended, started, cancel, async |number, intended| {
        population.open(number, ledger, intended).await
    })
    .await
}
