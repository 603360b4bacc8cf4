//! Many bargains on a running exchange: agents that are called to, and call others to, bargains over a catalog's domains.

mod catalog;
mod ledger;
mod summary;

use std::sync::{Arc, LazyLock};

use agents::Agent;
use agents::bargain::{BargainEvent, BargainPlan, BargainRequest, Bargainer, Planner, StrategyKind};
use rand::RngExt;
use schemas::control::Registration;
use schemas::delivery::BargainCall;
use schemas::{Address, AgentId, NegotiationId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::live::{Access, LiveError, RunningAgents};
use crate::load::{LoadScenario, ProtocolLoad, RunningLoad};
use crate::recorder::observed;

pub use catalog::Catalog;
pub use ledger::{BargainLedger, BargainState, EndListener, Traded};
pub use summary::BargainSummary;

/// Events of all agents waiting to be noted: each bargain gives a handful.
const EVENTS_MAX: usize = 65_536;

/// What only scenarios of bargains say.
#[derive(Debug, Clone)]
pub struct Bargains {
    /// What is bargained about.
    pub catalog: Arc<Catalog>,
    /// The policy every party delegates its acceptances to; absent: agents accept themselves.
    pub policy: Option<String>,
    /// The strategies parties draw theirs from.
    pub strategies: Vec<StrategyKind>,
}

/// What is to be run.
pub type BargainScenario = LoadScenario<Bargains>;

impl Default for Bargains {
    fn default() -> Self {
        // Every outcome of every domain is computed: once a process.
        static SHIPPED: LazyLock<Arc<Catalog>> = LazyLock::new(|| Arc::new(Catalog::shipped()));
        Self { catalog: Arc::clone(&SHIPPED), policy: None, strategies: StrategyKind::ALL.to_vec() }
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
    /// The `number`-th bargain: parties and domain.
    pub fn opening(&self, number: u64) -> Opening {
        let (mut random, catalog) = (self.random(number), &self.protocol.catalog);
        let domain = random.random_range(0..catalog.len());
        Opening { domain, parties: self.draw_agents(&mut random, catalog.parties(domain)) }
    }

    fn plan(&self, domain: usize, negotiation: &NegotiationId, party: usize) -> BargainPlan {
        let Bargains { catalog, policy, strategies } = &self.protocol;
        let mut plan = catalog.plan(domain, party, negotiation, strategies, self.seed);
        if let (Some(mandate), Some(policy)) = (&mut plan.mandate, policy) {
            mandate.policy = Some(policy.clone());
        }
        plan
    }
}

/// Agents that bargain, and the task that notes what they tell.
pub struct BargainAgents {
    running: RunningAgents<Bargainer>,
    noting: tokio::task::JoinHandle<()>,
}

impl ProtocolLoad for Bargains {
    /// The largest shipped domain has three parties.
    const AGENTS_MIN: u32 = 3;
    type State = BargainState;
    type Agents = BargainAgents;

    fn state(&self) -> BargainState {
        BargainState::new(Arc::clone(&self.catalog))
    }

    async fn start(
        access: &Access<'_>,
        scenario: &BargainScenario,
        ledger: &Arc<BargainLedger>,
    ) -> Result<BargainAgents, LiveError> {
        let (events, mut news) = mpsc::channel::<BargainEvent>(EVENTS_MAX);
        let noting = tokio::spawn({
            let ledger = Arc::clone(ledger);
            async move {
                while let Some(event) = news.recv().await {
                    ledger.note(event);
                }
            }
        });
        let description = Some("scripted bargainer".to_owned());
        let registration = Registration { description, ..Registration::open_to_all() };
        let bargainer = |name: AgentId| (name.clone(), Bargainer::new(name, planner(scenario), events.clone()));
        let members = scenario.own_names().map(bargainer).collect();
        let options = observed(&scenario.options, Some(ledger));
        let spawn = |bargainer, (transport, identity, options): crate::live::AgentWay, cancel| {
            Agent::new(transport, identity, bargainer).with_options(options).spawn(cancel)
        };
        let running = RunningAgents::start(access, (members, &registration), &options, spawn).await?;
        Ok(BargainAgents { running, noting })
    }

    async fn open(load: &RunningLoad<Self>, number: u64, intended: Instant) -> Result<(), LiveError> {
        let (scenario, catalog) = (&load.scenario, &load.scenario.protocol.catalog);
        let Opening { domain, parties } = scenario.opening(number);
        let own_id = format!("{}-{number}", scenario.run);
        let names: Vec<AgentId> = parties.iter().map(|&number| scenario.agent_name(number)).collect();
        let Some(initiator) = load.agents.running.get(&names[0]) else { return Ok(()) };
        let Ok(negotiation) = NegotiationId::form(&names[0], &own_id) else {
            tracing::error!(own_id, "an id of our own was refused");
            return Ok(());
        };
        let plan = scenario.plan(domain, &negotiation, 0);
        let to = names[1..].iter().cloned().map(Address::Agent).collect();
        let request = BargainRequest::new(own_id, to, catalog.rules(domain), plan);
        load.ledger.opened(negotiation, domain, intended);
        initiator.bargain(request).await?;
        Ok(())
    }

    async fn stop(agents: BargainAgents) -> Result<(), LiveError> {
        agents.running.stop().await?;
        // The last agent took the last sender with it.
        let _ = agents.noting.await;
        Ok(())
    }
}

fn planner(scenario: &BargainScenario) -> impl Planner + use<> {
    let scenario = scenario.clone();
    move |negotiation: &NegotiationId, call: &BargainCall, party: usize| {
        let domain = scenario.protocol.catalog.domain_of(&call.rules).ok_or("bargains about something else")?;
        Ok(scenario.plan(domain, negotiation, party))
    }
}
