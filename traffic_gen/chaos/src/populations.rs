//! The traffic of a run: agents that are called, whatever is hit meanwhile. So many contract nets are kept open; bargains, teams and
//! panels are called as calls fall due.
//!
//! Where agents are hit too, [`Host`]s run those that may be called. Who calls panels is the process's own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::control::ControlClient;
use schemas::NegotiationId;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::live::AgentShare;
use traffic_gen::load::{LoadScenario, ProtocolLoad, RunningLoad};
use traffic_gen::panel::load::Panels;
use traffic_gen::recorder::Recorder;

use super::cluster::TestCluster;
use super::events::EventWriter;
use super::follower::Follower;
use super::host::Host;
use super::journal::{AgentJournal, RunObserver};
use super::schedule::FaultKind;
use super::ways::{Ways, options};
use super::{ChaosError, ChaosPlan, nets};

/// In how many seconds as many are called as a run of contract nets keeps open: about as long as one of those lasts.
const CALLED_WITHIN_S: f64 = 10.0;
/// Time to answer an ask, in milliseconds: longer than anything is down, so that every ask is heard.
const ANSWER_MS: u64 = 15_000;
/// Longer than any run: calls end when the run says so.
const FOR_EVER: Duration = Duration::from_secs(86_400);
/// How long calls fall due when everything is mended: so that every lane decides something after the last fault.
const AFTERMATH: Duration = Duration::from_secs(10);
/// Processes that share the agents where agents are hit.
const HOSTS: u32 = 4;
/// Between two looks at what they wrote.
const FOLLOW_PERIOD: Duration = Duration::from_millis(20);

/// What panels of a run are asked under.
pub(super) const PANELS: Panels = Panels { answer_ms: ANSWER_MS };

/// Who takes part in such a run, and what they do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cast {
    agents: u32,
    /// Negotiations called per second.
    pub(super) rate: f64,
    pub(super) seed: u64,
    /// The agents that this process runs.
    pub(super) share: AgentShare,
}

impl Cast {
    fn of(plan: &ChaosPlan, share: AgentShare) -> Self {
        Self { agents: plan.agents, rate: f64::from(plan.open) / CALLED_WITHIN_S, seed: plan.seed, share }
    }

    pub(super) fn scenario<W: Default>(&self, protocol: W, options: AgentOptions) -> LoadScenario<W> {
        let Self { agents, rate, seed, share } = *self;
        let (duration, drain) = (FOR_EVER, Duration::ZERO);
        LoadScenario { protocol, agents, rate, duration, seed, drain, options, share, ..LoadScenario::default() }
    }
}

/// Agents that are called by a load.
pub(super) struct CalledLoad<W: ProtocolLoad> {
    /// The agents that this process runs.
    load: RunningLoad<W>,
    /// Negotiations kept open, where they are not called as calls fall due.
    kept_open: Option<u32>,
    end_calls: CancellationToken,
    hosted: Option<HostedAgents>,
}

impl<W: ProtocolLoad + Clone + Default> CalledLoad<W> {
    /// Registers and connects every agent.
    pub(super) async fn start(
        protocol: W,
        plan: &ChaosPlan,
        cluster: &mut TestCluster,
        journal: &Arc<AgentJournal>,
    ) -> Result<Self, ChaosError> {
        let kept_open = plan.traffic.is_of_nets().then_some(plan.open);
        if kept_open.is_some() {
            let control = ControlClient::try_new(cluster.gateway_urls()[0].as_str())?;
            control.put_policy(&cluster.admin_token()?, &nets::policy()).await?;
        }
        let hosted = if plan.kinds().contains(&FaultKind::Agents) {
            Some(HostedAgents::start(&protocol, plan, cluster, journal).await?)
        } else {
            None
        };
        let share = if hosted.is_some() { AgentShare::NONE } else { AgentShare::WHOLE };
        let observer: Arc<dyn RunObserver> = match &hosted {
            Some(hosted) => Arc::clone(&hosted.events) as _,
            None => Arc::clone(journal) as _,
        };
        let scenario = Cast::of(plan, share).scenario(protocol, options(Arc::clone(&observer)));
        let ways = Ways::to(cluster, kept_open.is_none());
        let load = ways.with(0, async |access| RunningLoad::start(access, scenario, due(&observer)).await).await?;
        Ok(Self { load, kept_open, end_calls: CancellationToken::new(), hosted })
    }

    /// Calls until no further calls are to be made.
    pub(super) async fn call(&self) -> Result<(), ChaosError> {
        let called = match self.kept_open {
            Some(open) => self.load.keep_open(open, &self.end_calls).await,
            None => self.load.drive(Instant::now(), &self.end_calls).await.map(drop),
        };
        called.map_err(ChaosError::from)
    }

    /// How long calls go on when everything is mended. Of what is kept open so much is that decisions go on.
    pub(super) fn aftermath(&self) -> Duration {
        if self.kept_open.is_some() { Duration::ZERO } else { AFTERMATH }
    }

    /// No further calls.
    pub(super) fn end_calls(&self) -> Result<(), ChaosError> {
        self.end_calls.cancel();
        self.hosted.as_ref().map_or(Ok(()), HostedAgents::end_calls)
    }

    /// Ends every agent, whatever is open. Gives how many events cannot be read, because a process of agents was killed while it wrote
    /// them down.
    pub(super) async fn end(self) -> Result<u64, ChaosError> {
        self.load.stop().await?;
        match self.hosted {
            Some(hosted) => hosted.end().await,
            None => Ok(0),
        }
    }
}

/// What the processes of agents share with this one.
struct HostedAgents {
    events: Arc<EventWriter>,
    follower: tokio::task::JoinHandle<std::io::Result<u64>>,
    /// Ends the follower, once it has read everything.
    is_over: CancellationToken,
    calls_ended: PathBuf,
}

impl HostedAgents {
    /// Starts the processes, and waits until their agents are connected.
    async fn start<W: ProtocolLoad + Clone + Default>(
        protocol: &W,
        plan: &ChaosPlan,
        cluster: &mut TestCluster,
        journal: &Arc<AgentJournal>,
    ) -> Result<Self, ChaosError> {
        let (path, calls_ended) = (cluster.folder().join("events.jsonl"), cluster.folder().join("calls.ended"));
        let began = Instant::now();
        let events = Arc::new(EventWriter::open(&path, began)?);
        let is_over = CancellationToken::new();
        let follower = Follower::open(&path, began)?;
        let follower = tokio::spawn(follow(follower, Arc::clone(journal), is_over.clone()));
        let host = |number| {
            let cast = Cast::of(plan, AgentShare { number, of: HOSTS });
            let began = journal.clock.at(began);
            let names = cast.scenario(protocol.clone(), AgentOptions::default()).own_names().collect();
            Host::new((plan.traffic, cast, names), &Ways::to(cluster, true), began, (&path, &calls_ended))
        };
        let hosts: Vec<Host> = (0..HOSTS).map(host).collect();
        for host in &hosts {
            cluster.add_agents(&serde_json::to_vec(host).map_err(std::io::Error::other)?)?;
        }
        cluster.ready().await?;
        Ok(Self { events, follower, is_over, calls_ended })
    }

    fn end_calls(&self) -> Result<(), ChaosError> {
        std::fs::write(&self.calls_ended, "")?;
        Ok(())
    }

    /// Reads what is left, once the processes have ended. Lines that could not be read.
    async fn end(self) -> Result<u64, ChaosError> {
        self.events.failure()?;
        self.is_over.cancel();
        Ok(self.follower.await.map_err(std::io::Error::other)??)
    }
}

async fn follow(
    mut follower: Follower,
    journal: Arc<AgentJournal>,
    is_over: CancellationToken,
) -> std::io::Result<u64> {
    while tokio::time::timeout(FOLLOW_PERIOD, is_over.cancelled()).await.is_err() {
        follower.follow(&journal)?;
    }
    follower.follow(&journal)?;
    Ok(follower.torn())
}

/// Judges nothing itself: it passes on when calls are due, which no agent sees.
pub(super) fn due(observer: &Arc<dyn RunObserver>) -> Recorder {
    let observer = Arc::clone(observer);
    let due = move |negotiation: &NegotiationId, intended| observer.call_due(negotiation, intended);
    Recorder::start(Instant::now(), false, None).with_due(Box::new(due))
}
