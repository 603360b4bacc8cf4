//! The traffic of a run of teams or panels: agents that are called as calls fall due, whatever is hit meanwhile.

use std::sync::Arc;
use std::time::Duration;

use agents::transport::Transport;
use agents::{Identity, Token};
use schemas::AgentId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::control::ControlClient;
use traffic_gen::live::{Access, LiveError};
use traffic_gen::panel::load::{self as panels, PanelLedger, PanelScenario};
use traffic_gen::panel::population::PanelPopulation;
use traffic_gen::recorder::Recorder;
use traffic_gen::team::load::{self as teams, TeamLedger, TeamPopulation, TeamScenario};

use super::cluster::{Signer, TestCluster};
use super::journal::AgentJournal;
use super::load::{Load, options, transport};
use super::{ChaosError, ChaosPlan};

/// In how many seconds as many are called as a run of contract nets keeps open: about as long as one of those lasts.
const CALLED_WITHIN_S: f64 = 10.0;
/// So that every lane decides something after the last fault.
const AFTERMATH: Duration = Duration::from_secs(10);
/// Time to answer an ask, in milliseconds: longer than anything is down, so that every ask is heard.
const ANSWER_MS: u64 = 15_000;
/// Longer than any run: calls end when the run says so.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// Agents that discuss in teams.
pub(super) struct TeamLoad {
    population: TeamPopulation,
    ledger: Arc<TeamLedger>,
    end_calls: CancellationToken,
}

impl TeamLoad {
    /// Registers and connects every agent.
    pub(super) async fn start(
        plan: &ChaosPlan,
        cluster: &TestCluster,
        journal: &Arc<AgentJournal>,
    ) -> Result<Self, ChaosError> {
        let ways = Ways::to(cluster)?;
        let scenario = TeamScenario {
            agents: plan.agents,
            rate: rate(plan),
            duration: FOR_EVER,
            seed: plan.seed,
            drain: Duration::ZERO,
            options: options(journal),
            ..TeamScenario::default()
        };
        let ledger = Arc::new(TeamLedger::new(Arc::new(due(journal))));
        let population = ways.with(async |access| TeamPopulation::start(access, &scenario, &ledger).await).await?;
        Ok(Self { population, ledger, end_calls: CancellationToken::new() })
    }
}

impl Load for TeamLoad {
    const AFTERMATH: Duration = AFTERMATH;

    async fn call(&self) -> Result<(), ChaosError> {
        teams::meet(&self.population, &self.ledger, Instant::now(), &self.end_calls).await?;
        Ok(())
    }

    fn end_calls(&self) {
        self.end_calls.cancel();
    }

    async fn end(self) -> Result<u64, ChaosError> {
        self.population.stop().await?;
        Ok(0)
    }
}

/// Agents that sit on panels.
pub(super) struct PanelLoad {
    population: PanelPopulation,
    scenario: PanelScenario,
    recorder: Arc<Recorder>,
    end_calls: CancellationToken,
}

impl PanelLoad {
    /// Registers and connects every agent.
    pub(super) async fn start(
        plan: &ChaosPlan,
        cluster: &TestCluster,
        journal: &Arc<AgentJournal>,
    ) -> Result<Self, ChaosError> {
        let ways = Ways::to(cluster)?;
        let scenario = PanelScenario {
            agents: plan.agents,
            answer_ms: ANSWER_MS,
            rate: rate(plan),
            duration: FOR_EVER,
            seed: plan.seed,
            drain: Duration::ZERO,
            options: options(journal),
            ..PanelScenario::default()
        };
        let recorder = Arc::new(due(journal));
        let population = ways.with(async |access| panels::start(access, &scenario, &recorder).await).await?;
        Ok(Self { population, scenario, recorder, end_calls: CancellationToken::new() })
    }
}

impl Load for PanelLoad {
    const AFTERMATH: Duration = AFTERMATH;

    async fn call(&self) -> Result<(), ChaosError> {
        let (ledger, cancel) = (PanelLedger::default(), &self.end_calls);
        panels::run(&self.population, &self.scenario, (&self.recorder, &ledger), Instant::now(), cancel).await?;
        Ok(())
    }

    fn end_calls(&self) {
        self.end_calls.cancel();
    }

    async fn end(self) -> Result<u64, ChaosError> {
        self.population.stop().await?;
        Ok(0)
    }
}

/// How agents reach the cluster: over every gateway.
struct Ways {
    control: ControlClient,
    transport: Arc<dyn Transport>,
    sign: Signer,
}

impl Ways {
    fn to(cluster: &TestCluster) -> Result<Self, ChaosError> {
        Ok(Self {
            control: ControlClient::try_new(cluster.gateway_urls()[0].as_str())?,
            transport: Arc::new(transport(cluster)?),
            sign: cluster.signer(),
        })
    }

    async fn with<T>(&self, start: impl AsyncFnOnce(&Access<'_>) -> Result<T, LiveError>) -> Result<T, ChaosError> {
        let transport = |_: &AgentId| Arc::clone(&self.transport);
        let identity = |agent: &AgentId| Identity { agent: agent.clone(), token: Token::fixed((self.sign)(agent)) };
        Ok(start(&Access { control: &self.control, transport: &transport, identity: &identity }).await?)
    }
}

fn rate(plan: &ChaosPlan) -> f64 {
    f64::from(plan.open) / CALLED_WITHIN_S
}

/// Judges nothing itself: it passes on when calls are due, which the journal cannot see.
fn due(journal: &Arc<AgentJournal>) -> Recorder {
    let journal = Arc::clone(journal);
    let due = move |negotiation: &_, intended| journal.recorder.call_due(Clone::clone(negotiation), intended);
    Recorder::start(Instant::now(), false, None).with_due(Box::new(due))
}
