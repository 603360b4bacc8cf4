//! A process that runs some of the agents of a run, so that it can be killed: what it is told, and what it does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use schemas::{AgentId, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use traffic_gen::arrivals::{PoissonArrivals, pace};
use traffic_gen::bargain::load::Bargains;
use traffic_gen::live::LiveError;
use traffic_gen::load::{ProtocolLoad, RunningLoad};
use traffic_gen::team::Teams;

use super::events::EventWriter;
use super::journal::RunObserver;
use super::populations::{Cast, PANELS, due};
use super::ways::{Ways, options};
use super::{ChaosError, Traffic};

/// How long the gateways may refuse to register the agents: each is down for a second at most.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two attempts to register them.
const REGISTER_PAUSE: Duration = Duration::from_millis(200);

/// What such a process is told, in a file: there are tokens in it.
#[derive(Serialize, Deserialize)]
pub(super) struct Host {
    traffic: Traffic,
    cast: Cast,
    gateways: Vec<String>,
    tokens: BTreeMap<AgentId, String>,
    /// The time from which the run's events and calls count.
    began: Timestamp,
    /// Where its agents' events go.
    events: PathBuf,
    /// Once this file is there, nobody calls any more.
    calls_ended: PathBuf,
}

/// Runs the agents that `told`, a file, says, until `asked_to_end`; says on the way that they are connected, and how many they are. A
/// process that is killed is started again with the same file.
///
/// # Errors
/// [`ChaosError`].
pub async fn host(
    told: &Path,
    asked_to_end: impl Future<Output = ()>,
    ready: impl FnOnce(usize),
) -> Result<(), ChaosError> {
    let host: Host = serde_json::from_slice(&std::fs::read(told)?).map_err(std::io::Error::other)?;
    match host.traffic {
        Traffic::Bargain => host.run(Bargains::default(), asked_to_end, ready).await,
        Traffic::Team => host.run(Teams, asked_to_end, ready).await,
        Traffic::Panel | Traffic::ContractNet | Traffic::Auction => host.run(PANELS, asked_to_end, ready).await,
    }
}

impl Host {
    pub(super) fn new(
        (traffic, cast, names): (Traffic, Cast, Vec<AgentId>),
        ways: &Ways,
        began: Timestamp,
        (events, calls_ended): (&Path, &Path),
    ) -> Self {
        let tokens = names.into_iter().map(|agent| (agent.clone(), ways.token(&agent))).collect();
        let (events, calls_ended) = (events.to_owned(), calls_ended.to_owned());
        Self { traffic, cast, gateways: ways.gateways().to_vec(), tokens, began, events, calls_ended }
    }

    async fn run<W: ProtocolLoad + Clone + Default>(
        self,
        protocol: W,
        asked_to_end: impl Future<Output = ()>,
        ready: impl FnOnce(usize),
    ) -> Result<(), ChaosError> {
        let began = self.began()?;
        let events = Arc::new(EventWriter::open(&self.events, began)?);
        self.tokens.keys().for_each(|agent| events.begin(agent));
        let observer: Arc<dyn RunObserver> = Arc::clone(&events) as _;
        let load = self.start(&protocol, &observer).await?;
        ready(self.tokens.len());
        tokio::select! {
            called = self.call(&load, began) => called?,
            () = events.failed() => {}
            () = asked_to_end => {}
        }
        load.stop().await?;
        Ok(events.failure()?)
    }

    /// The instant at which the run began, by the clock that all processes of a machine share.
    fn began(&self) -> Result<Instant, ChaosError> {
        let began = SystemTime::UNIX_EPOCH + Duration::from_micros(self.began.0);
        let since = SystemTime::now().duration_since(began).map_err(std::io::Error::other)?;
        let began = Instant::now().checked_sub(since);
        Ok(began.ok_or_else(|| std::io::Error::other("the run began before this machine did"))?)
    }

    /// Registers and connects the agents, at another gateway where one is down.
    async fn start<W: ProtocolLoad + Clone + Default>(
        &self,
        protocol: &W,
        observer: &Arc<dyn RunObserver>,
    ) -> Result<RunningLoad<W>, ChaosError> {
        let ways = Ways::held_back(self.gateways.clone(), self.tokens.clone());
        let deadline = Instant::now() + REGISTER_TIMEOUT;
        let mut attempt = 0;
        loop {
            let scenario = self.cast.scenario(protocol.clone(), options(Arc::clone(observer)));
            match ways.with(attempt, async |access| RunningLoad::start(access, scenario, due(observer)).await).await {
                Err(ChaosError::Live(LiveError::Control(error))) if Instant::now() < deadline => {
                    tracing::debug!(%error, "the agents are not registered yet");
                }
                started => return started,
            }
            attempt += 1;
            tokio::time::sleep(REGISTER_PAUSE).await;
        }
    }

    /// Calls what falls due to agents of this process, for ever. What was due before they were connected is none of theirs: an earlier
    /// process has called it, or nobody.
    async fn call<W: ProtocolLoad>(&self, load: &RunningLoad<W>, began: Instant) -> Result<(), ChaosError> {
        if W::INITIATOR.is_some() {
            return std::future::pending().await;
        }
        let connected = Instant::now();
        let arrivals = PoissonArrivals::try_new(self.cast.rate, self.cast.seed).map_err(LiveError::from)?;
        let mut due = pace(began.into_std(), arrivals, Duration::MAX);
        while let Some((number, intended)) = due.recv().await {
            let intended = Instant::from_std(intended);
            if intended >= connected && !self.calls_ended.exists() {
                W::open(load, number as u64, intended).await?;
            }
        }
        std::future::pending().await
    }
}
