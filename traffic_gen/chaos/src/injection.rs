//! Carries a schedule out: injects faults, mends, and watches that nothing ends unasked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use schemas::Timestamp;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::ChaosError;
use super::cluster::TestCluster;
use super::journal::WallClock;
use super::schedule::{FaultAction, FaultKind, Schedule, ScheduledFault};

/// Between two looks at what is due: a tenth of the shortest time anything takes here.
const STEP: Duration = Duration::from_millis(10);

/// Faults since somebody took the counts, by kind and action.
pub type FaultCounts = Arc<Mutex<BTreeMap<String, u64>>>;

/// A fault that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InjectedFault {
    /// When.
    pub at: Timestamp,
    /// What was hit.
    pub kind: FaultKind,
    /// Its name.
    pub name: String,
    /// How.
    #[serde(rename = "blow")]
    pub action: FaultAction,
    /// For how long, in milliseconds.
    pub lasting_ms: u64,
}

/// Carries faults out on a cluster.
pub(super) struct FaultInjector {
    schedule: Schedule,
    clock: WallClock,
    due: BTreeMap<(Instant, usize), ScheduledFault>,
    /// What was done.
    pub(super) faults: Vec<InjectedFault>,
    /// Of that, what nobody has taken yet.
    counts: FaultCounts,
    /// Processes that ended unasked, each with its last words.
    pub(super) ended: Vec<String>,
}

impl FaultInjector {
    pub(super) fn new(schedule: Schedule, clock: WallClock, counts: FaultCounts) -> Self {
        Self { schedule, clock, due: BTreeMap::new(), faults: Vec::new(), counts, ended: Vec::new() }
    }

    /// Injects faults until `until`, or until `cancel`, then mends what is still to be mended.
    pub(super) async fn drive(
        &mut self,
        cluster: &mut TestCluster,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<(), ChaosError> {
        let mut steps = tokio::time::interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = Instant::now() + self.schedule.gap();
        loop {
            let now = steps.tick().await;
            self.mend(cluster, now).await?;
            self.ended.extend(cluster.supervise()?);
            if now >= until || cancel.is_cancelled() {
                return self.mend_all(cluster).await;
            }
            if now >= next {
                self.inject(cluster).await?;
                next = Instant::now() + self.schedule.gap();
            }
        }
    }

    /// Watches until `done` resolves.
    pub(super) async fn watch(
        &mut self,
        cluster: &mut TestCluster,
        done: impl Future<Output = ()>,
    ) -> Result<(), ChaosError> {
        let mut steps = tokio::time::interval(STEP);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut done = std::pin::pin!(done);
        loop {
            tokio::select! {
                () = &mut done => return Ok(()),
                _ = steps.tick() => self.ended.extend(cluster.supervise()?),
            }
        }
    }

    async fn inject(&mut self, cluster: &mut TestCluster) -> Result<(), ChaosError> {
        let Some(kind) = self.schedule.kind() else { return Ok(()) };
        let Some(fault) = self.schedule.fault(kind, &cluster.may_be_hit(kind).await) else { return Ok(()) };
        let name = cluster.name(fault.kind, fault.number);
        tracing::info!(target: "llmx::chaos", %name, action = ?fault.action, lasting = ?fault.lasting, "fault");
        // The time before it: whatever follows the fault counts.
        let at = self.clock.now();
        cluster.inject(&fault)?;
        self.due.insert((Instant::now() + fault.lasting, self.faults.len()), fault);
        let count = format!("{}_{}", <&str>::from(fault.kind), <&str>::from(fault.action));
        *self.counts.lock().entry(count).or_default() += 1;
        let lasting_ms = u64::try_from(fault.lasting.as_millis()).unwrap_or(u64::MAX);
        self.faults.push(InjectedFault { at, kind: fault.kind, name, action: fault.action, lasting_ms });
        Ok(())
    }

    async fn mend(&mut self, cluster: &mut TestCluster, now: Instant) -> Result<(), ChaosError> {
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let fault = entry.remove();
            cluster.mend(&fault).await?;
        }
        Ok(())
    }

    async fn mend_all(&mut self, cluster: &mut TestCluster) -> Result<(), ChaosError> {
        for fault in std::mem::take(&mut self.due).into_values() {
            cluster.mend(&fault).await?;
        }
        Ok(())
    }
}
