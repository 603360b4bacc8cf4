//! The traffic of a run, and that of contract nets: contractors in crews, and callers that keep so many negotiations open between
//! them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::contractor::Distribution;
use agents::{Agent, AgentHandle, CallEvent, CallRequest, Contractor, ContractorConfig, Initiator};
use schemas::control::Registration;
use schemas::payload::Cfp;
use schemas::{Address, AgentId, NegotiationId, Policy, TopicName};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster::TestCluster;
use super::journal::AgentJournal;
use super::ways::{options, transport};
use super::{ChaosError, ChaosPlan};
use traffic_gen::control::ControlClient;

/// Callers among the agents: several, so that no single one's rate limit is the exchange's.
const CALLERS: u32 = 4;
/// Contractors a call reaches. The others belong to other crews.
const CREW: u32 = 12;
/// Collection deadline of a call, in milliseconds. Everybody answers within a second unless a fault is in the way.
const REPLY_WITHIN_MS: u64 = 10_000;
/// Events of one call waiting for its caller.
const EVENTS_PER_CALL: usize = 16;

/// The policy of these runs: `high` with runners-up held until the award is confirmed, and timers that end what is left
/// over soon after the run.
fn policy() -> Policy {
    let mut policy = policy_core::preset("high").expect("`high` is a preset");
    policy.id = "chaos@1".to_owned();
    policy.timers_ms.confirm = 15_000;
    policy.timers_ms.perform = 30_000;
    policy.timers_ms.hard = 60_000;
    policy
}

/// How contractors behave: honest, at times unwilling, and slow enough that a negotiation lasts some ten seconds.
fn behaviour(seed: u64) -> ContractorConfig {
    ContractorConfig {
        seed,
        reply_delay_ms: Distribution::Uniform { lo: 0, hi: 500 },
        refuse: 0.10,
        revise: 0.05,
        withdraw: 0.05,
        decline: 0.05,
        confirm_delay_ms: Distribution::Uniform { lo: 1_000, hi: 8_000 },
        perform_ms: Distribution::Uniform { lo: 1_000, hi: 8_000 },
        ..ContractorConfig::default()
    }
}

/// The agents of a run.
pub(super) trait Load {
    /// How long calls go on when everything is mended.
    const AFTERMATH: Duration;

    /// Calls as calls fall due, until no further ones are to be made.
    async fn call(&self) -> Result<(), ChaosError>;

    /// No further calls.
    fn end_calls(&self) -> Result<(), ChaosError>;

    /// Ends every agent, whatever is open.
    async fn end(self) -> Result<LoadEnd, ChaosError>;
}

/// What is missing of what agents saw.
pub(super) struct LoadEnd {
    /// The most events any caller dropped for want of room.
    pub(super) dropped: u64,
    /// Events that cannot be read, because a process of agents was killed while it wrote them down.
    pub(super) torn: u64,
}

/// Contractors, and callers that call of their own accord.
pub(super) struct AgentLoad {
    contractors: Vec<AgentHandle<Contractor>>,
    callers: JoinSet<Result<(), ChaosError>>,
    dropped_events: Arc<AtomicU64>,
    end_contractors: CancellationToken,
    end_calls: CancellationToken,
}

impl AgentLoad {
    /// Registers and connects every agent, and begins to call.
    pub(super) async fn start(
        plan: &ChaosPlan,
        cluster: &mut TestCluster,
        journal: &Arc<AgentJournal>,
    ) -> Result<Self, ChaosError> {
        let control = ControlClient::try_new(cluster.gateway_urls()[0].as_str())?;
        control.put_policy(&cluster.admin_token()?, &policy()).await?;
        let crews = plan.agents.saturating_sub(CALLERS).div_ceil(CREW).max(1);
        let mut load = Self {
            contractors: Vec::new(),
            callers: JoinSet::new(),
            dropped_events: Arc::default(),
            end_contractors: CancellationToken::new(),
            end_calls: CancellationToken::new(),
        };
        for number in 0..plan.agents.saturating_sub(CALLERS) {
            let name = AgentId::try_new(&format!("contractor-{number}")).expect("a number makes a name");
            let identity = cluster.identity(&name)?;
            control.register(&name, &identity.token.current(), &registration(number % crews)).await?;
            let contractor = Contractor::try_new(&name, behaviour(plan.seed))?;
            let agent = Agent::new(transport(cluster.gateway_urls())?, identity, contractor)
                .with_options(options(Arc::clone(journal) as _));
            load.contractors.push(agent.spawn(load.end_contractors.clone()));
        }
        for contractor in &load.contractors {
            contractor.connected().await?;
        }
        for number in 0..CALLERS {
            let name = AgentId::try_new(&format!("caller-{number}")).expect("a number makes a name");
            let initiator = Initiator::spawn(
                transport(cluster.gateway_urls())?,
                cluster.identity(&name)?,
                options(Arc::clone(journal) as _),
            );
            initiator.connected().await?;
            let open = (plan.open + CALLERS - 1 - number) / CALLERS;
            let caller = Caller {
                initiator,
                journal: Arc::clone(journal),
                open: open as usize,
                crews,
                run: format!("run-{}", plan.seed),
                end: load.end_calls.clone(),
                dropped_events: Arc::clone(&load.dropped_events),
            };
            load.callers.spawn(caller.drive());
        }
        Ok(load)
    }
}

impl Load for AgentLoad {
    /// So much is open then that decisions go on.
    const AFTERMATH: Duration = Duration::ZERO;

    async fn call(&self) -> Result<(), ChaosError> {
        Ok(())
    }

    fn end_calls(&self) -> Result<(), ChaosError> {
        self.end_calls.cancel();
        Ok(())
    }

    async fn end(mut self) -> Result<LoadEnd, ChaosError> {
        self.end_calls.cancel();
        self.callers.abort_all();
        while let Some(caller) = self.callers.join_next().await {
            if let Ok(outcome) = caller {
                outcome?;
            }
        }
        self.end_contractors.cancel();
        for contractor in self.contractors {
            contractor.join().await?;
        }
        Ok(LoadEnd { dropped: self.dropped_events.load(Ordering::Relaxed), torn: 0 })
    }
}

/// Keeps so many calls open.
struct Caller {
    initiator: Initiator,
    journal: Arc<AgentJournal>,
    open: usize,
    crews: u32,
    run: String,
    end: CancellationToken,
    dropped_events: Arc<AtomicU64>,
}

impl Caller {
    async fn drive(self) -> Result<(), ChaosError> {
        let (events, mut news) = mpsc::channel::<CallEvent>(self.open * EVENTS_PER_CALL);
        let mut open = BTreeSet::<NegotiationId>::new();
        let mut number = 0_u32;
        loop {
            while open.len() < self.open && !self.end.is_cancelled() {
                let own_id = format!("{}-{number}", self.run);
                let crew = crew(number % self.crews);
                number += 1;
                if let Ok(negotiation) = NegotiationId::form(self.initiator.agent(), &own_id) {
                    self.journal.recorder.call_due(negotiation, Instant::now());
                }
                open.insert(self.initiator.call(request(own_id, crew), events.clone()).await?);
            }
            let event = tokio::select! {
                event = news.recv() => event,
                () = self.end.cancelled(), if !self.end.is_cancelled() => continue,
            };
            let Some(event) = event else { return Ok(()) };
            if event.report.is_last() {
                open.remove(&event.negotiation);
            }
            self.dropped_events.fetch_max(self.initiator.dropped_events(), Ordering::Relaxed);
        }
    }
}

fn request(own_id: String, crew: TopicName) -> CallRequest {
    let cfp = Cfp {
        task: Some("carry on whatever happens".to_owned()),
        policy: Some("chaos".to_owned()),
        reply_within_ms: Some(REPLY_WITHIN_MS),
        ..Cfp::default()
    };
    CallRequest::new(own_id, vec![Address::Topic(crew)], cfp)
}

fn registration(number: u32) -> Registration {
    Registration { topics: vec![crew(number)], ..Registration::open_to_all() }
}

fn crew(number: u32) -> TopicName {
    TopicName::try_new(&format!("crew-{number}")).expect("a number makes a name")
}
