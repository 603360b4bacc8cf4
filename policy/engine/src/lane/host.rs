//! A lane of this engine, whether it is folded here or elsewhere.
//!
//! ```text
//! elsewhere --(assigned)--> recovering --> folded ([`LaneDriver`]) --(others fold it)--> elsewhere
//!     ^                         |
//!     +-------(others do)-------+
//! ```
//! Elsewhere there is no state, no outbox and no reader of the log. A lane has one task, so it is recovered once at a time;
//! what is begun goes on while the assignment swings back and forth, until others have folded the lane for a while.

mod driver;

use std::sync::Arc;
use std::time::Duration;

use bus::BusError;
use schemas::Lane;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use self::driver::LaneDriver;
use super::recovery::{RecoveryError, recover_with_retries};
use super::{LanePorts, LaneReceivers, Recovered, Shared};
use crate::config::EngineConfig;
use crate::ingress::Signal;
use crate::lane::backlog::BacklogSender;
use crate::lane::evidence::EvidenceSender;
use crate::lane::observer::LaneObserver;
use crate::membership::{LiveEngines, MembershipHandle, MembershipInput};
use crate::status::{LanePhase, LaneStatus, StopReason};

/// See the module.
pub(crate) struct LaneHost {
    lane: Lane,
    shared: Shared,
    membership: mpsc::Sender<MembershipInput>,
    ports: LanePorts,
    /// The lane was elsewhere, or folded, before.
    is_started: bool,
}

impl LaneHost {
    /// A lane that nothing is known of yet.
    pub(crate) fn new(
        lane: Lane,
        shared: Shared,
        (status, signals): (watch::Sender<LaneStatus>, mpsc::Receiver<Signal>),
        membership: MembershipHandle,
    ) -> (Self, LaneReceivers) {
        let watched = status.subscribe();
        let now = Instant::now();
        let (observer, statistics) = LaneObserver::new(lane, &shared, now);
        let (backlog, backlogs) = BacklogSender::new(&shared, now);
        let (evidence, shown) = EvidenceSender::new(&shared, now);
        let MembershipHandle { live, inputs: membership } = membership;
        let ports = LanePorts { status, live, signals, observer, backlog, evidence };
        let host = Self { lane, shared, membership, ports, is_started: false };
        (host, LaneReceivers { status: watched, statistics, backlog: backlogs, evidence: shown })
    }

    /// Runs until the engine shuts down or the lane cannot go on.
    pub(crate) async fn drive(mut self) {
        let reason = loop {
            let recovered = match self.recovered().await {
                Ok(Some(recovered)) => recovered,
                Ok(None) => continue,
                Err(reason) => break reason,
            };
            self.is_started = true;
            let Self { lane, shared, membership, ports, .. } = self;
            let driver = LaneDriver::new(lane, shared.clone(), ports, membership.clone(), recovered);
            let Some(ports) = Box::pin(driver.drive()).await else { return };
            self = Self { lane, shared, membership, ports, is_started: true };
            tracing::info!(lane = lane.0, "the lane is let go; other engines fold it");
        };
        if reason != StopReason::Shutdown {
            tracing::error!(lane = self.lane.0, %reason, "the lane stops");
        }
        self.show(LanePhase::Stopped(reason));
    }

    /// The lane's state, once it is assigned to this engine; nothing where it is not any more before there is one.
    async fn recovered(&mut self) -> Result<Option<Recovered>, StopReason> {
        while !self.is_assigned() {
            if self.ports.live.borrow().is_some() {
                self.rest();
            }
            self.changed().await?;
        }
        let limit = Arc::clone(&self.shared.recoveries);
        let permit = limit.acquire_owned();
        tokio::pin!(permit);
        let _permit = loop {
            tokio::select! {
                biased;
                permit = &mut permit => break permit,
                changed = self.changed() => changed?,
            }
            if !self.is_assigned() {
                return Ok(None);
            }
        };
        if self.is_assigned() { self.recover().await } else { Ok(None) }
    }

    /// Whether the lane is to be folded here, as far as that is known.
    fn is_assigned(&mut self) -> bool {
        let live = self.live();
        live.is_some_and(|live| Assignment::new(self.lane, &self.shared.config).is_assigned(&live))
    }

    async fn recover(&mut self) -> Result<Option<Recovered>, StopReason> {
        // What agents say is heard before the log is read, so that nothing is lost in between.
        self.show(LanePhase::CatchingUp);
        tracing::info!(lane = self.lane.0, "the lane is taken up");
        let mut assignment = Assignment::new(self.lane, &self.shared.config);
        let (lane, shared) = (self.lane, self.shared.clone());
        let recovery = recover_with_retries(lane, &shared);
        tokio::pin!(recovery);
        loop {
            let let_go_at = assignment.let_go_at;
            tokio::select! {
                biased;
                outcome = &mut recovery => return self.handle_recovery(outcome),
                changed = self.changed() => changed?,
                () = sleep_until(let_go_at.unwrap_or_else(Instant::now)), if let_go_at.is_some() => return Ok(None),
            }
            if let Some(live) = self.live() {
                assignment.handle_live(&live, Instant::now());
            }
        }
    }

    /// At the start of an engine a bus that does not answer is its end. Later it is tried again, as long as the lane is
    /// assigned: nobody else may be there.
    fn handle_recovery(&mut self, outcome: Result<Recovered, RecoveryError>) -> Result<Option<Recovered>, StopReason> {
        match outcome {
            Ok(recovered) => Ok(Some(recovered)),
            Err(RecoveryError::Bus(error)) if self.is_started && !matches!(error, BusError::Closed) => {
                tracing::warn!(lane = self.lane.0, %error, "the lane could not be taken up; it is tried again");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Folds nothing of the lane, and keeps nothing.
    fn rest(&mut self) {
        if self.ports.status.borrow().phase == LanePhase::Elsewhere {
            return;
        }
        self.is_started = true;
        self.show(LanePhase::Elsewhere);
        while self.ports.signals.try_recv().is_ok() {}
        self.ports.observer.rest();
    }

    fn live(&mut self) -> Option<Arc<LiveEngines>> {
        self.ports.live.borrow_and_update().clone()
    }

    /// Waits until others come or go.
    async fn changed(&mut self) -> Result<(), StopReason> {
        tokio::select! {
            biased;
            () = self.shared.cancel.cancelled() => Err(StopReason::Shutdown),
            Ok(()) = self.ports.live.changed() => Ok(()),
        }
    }

    /// Says what becomes of the lane; others hear of it at once.
    fn show(&self, phase: LanePhase) {
        self.ports.status.send_replace(LaneStatus { phase, ..LaneStatus::new(self.lane) });
        // A full queue is heard with the next heartbeat.
        let _ = self.membership.try_send(MembershipInput::Changed);
    }
}

/// A lane that this engine need not fold any more is kept for so many times the time after which an engine is dead: an
/// engine that restarts, or is not heard for a moment, makes nobody read a checkpoint twice.
const LET_GO_FACTOR: u32 = 5;

/// Whether this engine is to fold a lane: as the one that should own it, or as one of the first that stand by. Reads no
/// clock.
#[derive(Debug)]
struct Assignment {
    lane: Lane,
    engine: String,
    /// Engines that fold the lane, its owner included.
    folding: usize,
    let_go_after: Duration,
    /// When the lane may be let go; absent while this engine is to fold it, or others have to catch up first.
    let_go_at: Option<Instant>,
}

impl Assignment {
    fn new(lane: Lane, config: &EngineConfig) -> Self {
        let (folding, let_go_after) = (config.standbys + 1, config.membership.dead_after() * LET_GO_FACTOR);
        Self { lane, engine: config.id.clone(), folding, let_go_after, let_go_at: None }
    }

    /// Whether the lane is to be folded here.
    fn is_assigned(&self, live: &LiveEngines) -> bool {
        self.is_among_first(live.assigned(self.lane))
    }

    /// Others came or went while the lane is folded here.
    fn handle_live(&mut self, live: &LiveEngines, now: Instant) {
        self.handle(live.assigned(self.lane), live.ranked(self.lane), now);
    }

    /// A lane is let go only once all who are to fold it have caught up, and that has lasted for a while.
    fn handle(&mut self, assigned: &[String], fit: &[String], now: Instant) {
        if self.is_among_first(assigned) || !self.first(assigned).iter().all(|id| fit.contains(id)) {
            self.let_go_at = None;
        } else {
            self.let_go_at.get_or_insert(now + self.let_go_after);
        }
    }

    fn is_among_first(&self, assigned: &[String]) -> bool {
        self.first(assigned).contains(&self.engine)
    }

    /// The engines that are to fold the lane.
    fn first<'a>(&self, assigned: &'a [String]) -> &'a [String] {
        assigned.get(..self.folding).unwrap_or(assigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_and_who_stands_by_are_assigned_a_lane() {
        let all = ids(&["a", "b", "c"]);
        for (standbys, assigned) in [(0, &["a"][..]), (1, &["a", "b"]), (2, &["a", "b", "c"]), (3, &["a", "b", "c"])] {
            for engine in ["a", "b", "c", "d"] {
                assert_eq!(
                    of(engine, standbys).is_among_first(&all),
                    assigned.contains(&engine),
                    "{engine}, {standbys}"
                );
            }
        }
    }

    #[test]
    fn a_lane_is_let_go_only_once_all_that_are_to_fold_it_have_caught_up() {
        let start = Instant::now();
        for (assigned, fit, goes) in [
            (&["a", "b", "c"][..], &["a", "b", "c"][..], true),
            (&["a", "b", "c"], &["b", "c"], false),
            (&["a", "b", "c"], &["a", "c"], false),
            (&["a", "c", "b"], &["a", "b", "c"], false),
            (&["c"], &["c"], false),
        ] {
            let mut assignment = of("c", 1);
            assignment.handle(&ids(assigned), &ids(fit), start);
            assert_eq!(assignment.let_go_at, goes.then_some(start + Duration::from_secs(5)), "{assigned:?} {fit:?}");
        }
    }

    #[test]
    fn a_ranking_that_swings_back_begins_the_wait_anew() {
        let (mut assignment, start) = (of("c", 1), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let (others, alone) = (ids(&["a", "b", "c"]), ids(&["a", "c"]));
        assignment.handle(&others, &others, start);
        assignment.handle(&others, &others, at(3));
        assert_eq!(assignment.let_go_at, Some(at(5)), "the wait goes on");
        assignment.handle(&alone, &alone, at(4));
        assert_eq!(assignment.let_go_at, None);
        assignment.handle(&others, &others, at(6));
        assert_eq!(assignment.let_go_at, Some(at(11)));
    }

    fn of(engine: &str, standbys: usize) -> Assignment {
        let mut config = EngineConfig::new(engine);
        config.standbys = standbys;
        Assignment::new(Lane(0), &config)
    }

    fn ids(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }
}
