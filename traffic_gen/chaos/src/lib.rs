//! The exchange as real processes, killed and paused while agents negotiate; judged from what the agents saw.
//!
//! | module | question it answers |
//! |---|---|
//! | [`schedule`] | what is hit, when and how? (pure: from a seed) |
//! | [`process`] | how is a process started, killed, paused, ended? |
//! | [`proxy`] | what do networks do to a connection? |
//! | `servers` | which nats-servers? |
//! | `cluster` | which processes make the exchange? |
//! | `populations` | who negotiates? |
//! | `nets` | who calls and offers in contract nets? |
//! | `ways` | how do they reach the exchange? |
//! | [`host()`] | how do agents run in a process that can be killed? |
//! | `events`, `follower` | what did agents of such processes see, to the last moment? |
//! | `injection` | who carries the schedule out? |
//! | [`ProcessRig`] | the same under a load of somebody else's |
//! | [`journal`] | what did agents send, hear and get told? |
//! | [`departures`] | when did each ACCEPT first leave? |
//! | [`heartbeats`] | do engines hold the same state? |
//! | [`gaps`] | how long was a fault felt? (pure) |
//! | [`judge`] | what must hold, and does it? (pure) |
//! | `verdict` | how is it put together? |
//! | [`report`] | what comes out? |
//!
//! A run injects faults for its duration, then mends everything, opens no further calls, and waits until all that is open has
//! ended. What it then holds against the exchange is only what clients sent, were told and received, and what anybody
//! can read in log and register; no engine is asked how it did.

mod cluster;
pub mod departures;
mod events;
mod figures;
mod follower;
pub mod gaps;
pub mod heartbeats;
mod host;
mod injection;
pub mod journal;
pub mod judge;
mod nets;
mod plan;
mod populations;
pub mod process;
pub mod proxy;
pub mod report;
pub mod schedule;
mod servers;
mod verdict;
mod ways;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use archive::audit;
use traffic_gen::bargain::load::Bargains;
use traffic_gen::load::ProtocolLoad;
use traffic_gen::recorder::{Counts, Recorder};
use traffic_gen::team::Teams;

use cluster::{READY_TIMEOUT, TestCluster};
use heartbeats::Listener;
use injection::FaultInjector;
use journal::{AgentJournal, WallClock};
use judge::{Check, Checks};
use nets::ContractNets;
use populations::CalledLoad;
use report::ChaosReport;
use schedule::{FaultKind, Schedule};
use verdict::{Evidence, judged};

pub use cluster::{ProcessRig, Signer};
pub use host::host;
pub use injection::{FaultCounts, InjectedFault};
pub use plan::{ChaosPlan, Traffic, Victims};

/// How long everything open may take to end once the faults are over: the hard deadline of the run's policy, the
/// longest pause of the outbox, and some room.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at whether everything has ended; judging all negotiations takes a while.
const SETTLE_POLL: Duration = Duration::from_secs(1);

/// Why a run gave no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// A file or a process.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] bus::BusError),
    /// The exchange did not come up.
    #[error("the exchange does not start: {0}")]
    NotReady(String),
    /// A key.
    #[error(transparent)]
    Key(#[from] gateway::KeyError),
    /// The control plane.
    #[error(transparent)]
    Control(#[from] agents::control::ControlError),
    /// An agent's transport.
    #[error(transparent)]
    Transport(#[from] agents::transport::TransportError),
    /// The agents.
    #[error(transparent)]
    Live(#[from] traffic_gen::live::LiveError),
    /// Log and register could not be read.
    #[error(transparent)]
    Audit(#[from] audit::AuditError),
}

/// Where a run stands.
#[derive(Debug, Clone)]
pub struct ChaosProgress {
    /// Since the first call.
    pub elapsed: Duration,
    /// Counts so far.
    pub counts: Counts,
    /// Negotiations open.
    pub open: usize,
    /// Since an agent last heard of a decision.
    pub silence: Duration,
}

/// What a run gave.
pub struct ChaosOutcome {
    /// The report.
    pub report: ChaosReport,
    /// The faults, in order.
    pub faults: Vec<InjectedFault>,
    /// Where the processes' output lies; present when something was violated.
    pub output: Option<PathBuf>,
}

/// Makes a run with the processes of `binary`, a build of `llmx`. `progress` is called every second.
///
/// # Errors
/// [`ChaosError`] when there is no verdict.
pub async fn run(
    plan: ChaosPlan,
    binary: &Path,
    progress: impl Fn(&ChaosProgress),
) -> Result<ChaosOutcome, ChaosError> {
    match plan.traffic {
        Traffic::ContractNet => run_under(plan, binary, progress, ContractNets::default()).await,
        Traffic::Auction => run_under(plan, binary, progress, ContractNets::auctions()).await,
        Traffic::Bargain => run_under(plan, binary, progress, Bargains::default()).await,
        Traffic::Team => run_under(plan, binary, progress, Teams).await,
        Traffic::Panel => run_under(plan, binary, progress, populations::PANELS).await,
    }
}

async fn run_under<W: ProtocolLoad + Clone + Default>(
    mut plan: ChaosPlan,
    binary: &Path,
    progress: impl Fn(&ChaosProgress),
    protocol: W,
) -> Result<ChaosOutcome, ChaosError> {
    let clock = WallClock::start();
    let mut cluster = TestCluster::start(&plan, binary).await?;
    let bus = cluster.open_bus(&plan).await?;
    let departures = Listener::of_departures(&bus, clock).await?;
    let heartbeats = Listener::of_heartbeats(&bus).await?;
    let recorder = Recorder::start(Instant::now(), true, plan.trace.take());
    let journal = Arc::new(AgentJournal::new(recorder, clock));
    let load = tokio::time::timeout(READY_TIMEOUT, CalledLoad::start(protocol, &plan, &mut cluster, &journal)).await;
    let load = load.map_err(|_| ChaosError::NotReady(format!("agents do not connect within {READY_TIMEOUT:?}")))??;
    let started = Instant::now();
    let mut injector =
        FaultInjector::new(Schedule::new(plan.kinds(), plan.pauses, plan.seed), clock, FaultCounts::default());
    let calls = async {
        load.call().await?;
        std::future::pending::<Result<std::convert::Infallible, ChaosError>>().await
    };
    let show = show(&journal, started, progress);
    let work = async {
        injector.drive(&mut cluster, started + plan.duration, &CancellationToken::new()).await?;
        // What is asked to end before it is ready fails.
        cluster.ready().await?;
        injector.watch(&mut cluster, tokio::time::sleep(load.aftermath())).await?;
        load.end_calls()?;
        injector.watch(&mut cluster, settled(&journal)).await
    };
    tokio::select! {
        done = work => done?,
        failed = calls => match failed? {},
        () = show => {}
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    let mut unwilling = cluster.end_agents().await?;
    let torn = load.end().await?;
    unwilling.extend(cluster.end().await?);
    let killed = injector.faults.iter().filter(|fault| fault.kind == FaultKind::Agents).count() as u64;
    if torn > killed {
        let unread =
            format!("{torn} events of agents cannot be read, though only {killed} of their processes were hit");
        return Err(std::io::Error::other(unread).into());
    }
    let mut checks = Checks::default();
    let processes = cluster.processes();
    for (check, failed) in [(Check::NoneEndedByItself, &injector.ended), (Check::EndedWhenAsked, &unwilling)] {
        for number in 0..processes.max(failed.len()) {
            checks.check(check, number >= failed.len(), || failed[number].clone());
        }
    }
    let evidence = Evidence {
        journal: &journal,
        departures: departures.heard(),
        digests: heartbeats.heard(),
        faults: &injector.faults,
        elapsed_s,
    };
    let report = judged(&plan, &bus, evidence, checks).await?;
    let output = (report.violations() > 0).then(|| cluster.keep_output());
    Ok(ChaosOutcome { report, faults: injector.faults, output })
}

/// Calls `progress` every second, for ever.
async fn show(journal: &AgentJournal, started: Instant, progress: impl Fn(&ChaosProgress)) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        let silence = journal.last_decision().map_or(0, |heard| journal.clock.now().since_us(heard));
        progress(&ChaosProgress {
            elapsed: started.elapsed(),
            counts: journal.recorder.counts(),
            open: journal.recorder.open(),
            silence: Duration::from_micros(silence),
        });
    }
}

/// Waits until nothing is open and nothing is owed, a bounded time.
async fn settled(journal: &AgentJournal) {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        // What was called last may not be known of yet.
        tokio::time::sleep(SETTLE_POLL).await;
        if Instant::now() >= deadline || (journal.recorder.open() == 0 && journal.recorder.is_settled()) {
            return;
        }
    }
}
