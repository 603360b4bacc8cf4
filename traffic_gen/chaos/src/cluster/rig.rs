//! Processes that are killed under a load of somebody else's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use schemas::AgentId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::TestCluster;
use crate::injection::{FaultCounts, FaultInjector};
use crate::journal::WallClock;
use crate::schedule::Schedule;
use crate::{ChaosError, ChaosPlan, Traffic, Victims};

/// Engines and gateways of a rig, as `llmx-lab chaos` starts them.
const ENGINES: usize = 3;
const GATEWAYS: usize = 2;
const STANDBYS: u8 = 1;

/// Signs a token for an agent; an empty one where it cannot, which is refused with a clear answer.
pub type Signer = Arc<dyn Fn(&AgentId) -> String + Send + Sync>;

/// nats-server, engines and gateways, killed by a schedule and started again. Every process ends with it.
pub struct ProcessRig {
    cluster: TestCluster,
    injector: FaultInjector,
    counts: FaultCounts,
    bus: Bus,
}

impl ProcessRig {
    /// Starts the processes of `binary`, a build of `llmx`, and waits until they are ready. Entries of the register stay
    /// `register_keep` at least.
    ///
    /// # Errors
    /// [`ChaosError`].
    pub async fn start(seed: u64, register_keep: Duration, binary: &Path) -> Result<Self, ChaosError> {
        let plan = ChaosPlan {
            traffic: Traffic::ContractNet,
            victims: Victims::All,
            pauses: false,
            is_served: false,
            duration: Duration::ZERO,
            replicas: 1,
            agents: 0,
            open: 0,
            engines: ENGINES,
            standbys: STANDBYS,
            register_keep_s: u32::try_from(register_keep.as_secs()).ok(),
            gateways: GATEWAYS,
            lanes: bus::LANES_DEFAULT,
            seed,
            trace: None,
        };
        let cluster = TestCluster::start(&plan, binary).await?;
        let bus = cluster.open_bus(&plan).await?;
        let counts = FaultCounts::default();
        let schedule = Schedule::new(plan.kinds(), plan.pauses, plan.seed);
        let injector = FaultInjector::new(schedule, WallClock::start(), FaultCounts::clone(&counts));
        Ok(Self { cluster, injector, counts, bus })
    }

    /// A bus beside the processes' own.
    pub fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// Where the gateways serve agents.
    pub fn gateway_urls(&self) -> &[String] {
        self.cluster.gateway_urls()
    }

    /// Where each process serves its metrics, by its name.
    pub fn metrics_urls(&self) -> Vec<(String, String)> {
        self.cluster.metrics_urls()
    }

    /// The monitoring port of the nats-server.
    pub fn monitor_url(&self) -> Option<String> {
        self.cluster.nats.monitor_url()
    }

    /// What signs the agents' tokens.
    pub fn signer(&self) -> Signer {
        self.cluster.signer()
    }

    /// A token that may put policies.
    ///
    /// # Errors
    /// [`ChaosError::Key`].
    pub fn admin_token(&self) -> Result<String, ChaosError> {
        self.cluster.admin_token()
    }

    /// The faults so far, to be taken from time to time.
    pub fn fault_counts(&self) -> FaultCounts {
        FaultCounts::clone(&self.counts)
    }

    /// Injects faults until `until`, or until `cancel`; then mends, and watches the processes until `over`. Returns those
    /// that ended unasked, each with its last words.
    ///
    /// # Errors
    /// [`ChaosError`] when a process cannot be started again.
    pub async fn drive(
        &mut self,
        until: Instant,
        cancel: &CancellationToken,
        over: &CancellationToken,
    ) -> Result<Vec<String>, ChaosError> {
        self.injector.drive(&mut self.cluster, until, cancel).await?;
        self.injector.watch(&mut self.cluster, over.cancelled()).await?;
        Ok(std::mem::take(&mut self.injector.ended))
    }

    /// Asks every process to end; the names of those that did not end well in time.
    ///
    /// # Errors
    /// [`ChaosError`].
    pub async fn end(mut self) -> Result<Vec<String>, ChaosError> {
        self.cluster.end().await
    }
}
