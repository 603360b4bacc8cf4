//! Who owns the lane: standing by, claiming, owning, yielding. What is decided here is only who does the work; what
//! counts is the order of claims in the log.
//!
//! ```text
//! catching up -> standby <---> claiming -> owner
//!                   ^            (outbid)     | another claim is folded
//!                   +------- yielding <-------+
//! ```

use std::time::Duration;

use policy_core::lane::RULES_VERSION;
use tokio::time::Instant;

use super::Driver;
use crate::abort::ABORTS_MAX;
use crate::membership::{LiveEngines, MembershipInput};
use crate::register::WRITES_PENDING_MAX;
use crate::status::{LanePhase, StopReason};

/// First and largest gap after a claim that could not be appended.
const CLAIM_GAP_MIN: Duration = Duration::from_millis(250);
const CLAIM_GAP_MAX: Duration = Duration::from_secs(5);
/// While a lane is not owned nothing leaves it; at this many times `in_flight_max` held deliveries it gives up.
const HELD_FACTOR: usize = 4;
/// At this many register writes not known to be answered it gives up as well: a minute of a very busy lane, during which
/// nobody has logged that the register answered.
const WRITES_HELD_MAX: usize = 64 * WRITES_PENDING_MAX;

/// How far the lane has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnershipState {
    /// Folds silently up to what was stored when the lane was opened.
    CatchingUp { target: u64 },
    /// Folds silently; does not claim before an instant, so that a claim just lost is heard of first.
    Standby { not_before: Instant },
    /// Has asked, or asks at `retry_at`, for the lane.
    Claiming(Claim),
    /// Emits under this epoch. What the owner before may have just sent is held until `release_at`.
    Owner { epoch: u64, release_at: Option<Instant> },
    /// Has folded another engine's claim: sends what came before it, then stands by.
    Yielding { epoch: u64 },
}

/// A claim on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    epoch: u64,
    /// The owner is alive and hands over: what it sent need not be sent again at once.
    is_orderly: bool,
    /// Somebody owned the lane before, and is gone or about to be.
    outlives: bool,
    failures: u32,
    retry_at: Option<Instant>,
}

impl Driver {
    pub(super) fn is_owner(&self) -> bool {
        matches!(self.ownership, OwnershipState::Owner { .. })
    }

    /// Whether the lane could be owned at once.
    pub(super) fn is_fit(&self) -> bool {
        !matches!(self.ownership, OwnershipState::CatchingUp { .. })
    }

    pub(super) fn phase(&self) -> LanePhase {
        match self.ownership {
            OwnershipState::CatchingUp { .. } => LanePhase::CatchingUp,
            // Until it is known who else is alive, it is not known whether the lane is to be claimed.
            OwnershipState::Standby { .. } if self.inputs.peers.borrow().is_none() => LanePhase::CatchingUp,
            OwnershipState::Standby { .. } if self.is_first => LanePhase::Claiming,
            OwnershipState::Standby { .. } | OwnershipState::Yielding { .. } => LanePhase::Standby,
            OwnershipState::Claiming(_) => LanePhase::Claiming,
            OwnershipState::Owner { .. } => LanePhase::Owner,
        }
    }

    /// Others came or went: does the lane fall to this engine now?
    pub(super) fn handle_peers(&mut self) {
        let Some(live) = self.inputs.peers.borrow_and_update().clone() else { return };
        self.is_first = live.first(self.lane) == Some(self.shared.config.id.as_str());
        self.want_rules(&live);
    }

    /// A lane's rules change by a record only, and only to what every live engine folds.
    fn want_rules(&mut self, live: &LiveEngines) {
        let newest = live.rules_newest(self.shared.config.rules_newest);
        self.rules_wanted = (newest > self.lane_state.rules()).then(|| (newest, Instant::now()));
    }

    /// The rules version to append now, again after a while until it is folded.
    pub(super) fn poll_rules(&mut self, now: Instant) -> Option<u32> {
        let (version, at) = self.rules_wanted?;
        if self.lane_state.rules() >= version {
            self.rules_wanted = None;
        } else if at <= now {
            self.rules_wanted = Some((version, now + CLAIM_GAP_MAX));
            return Some(version);
        }
        None
    }

    /// Moves on as far as what is folded and who is alive allow.
    pub(super) fn handle_progress(&mut self) -> Result<(), StopReason> {
        // Before the first record it is not known under which rules the lane runs.
        if self.position > 0 && self.lane_state.rules() > self.shared.config.rules_newest.min(RULES_VERSION) {
            return Err(StopReason::NewerVersion(format!("its rules are of version {}", self.lane_state.rules())));
        }
        if self.aborts.len() > ABORTS_MAX {
            return Err(StopReason::RegisterForeign(self.aborts.len()));
        }
        let now = Instant::now();
        if matches!(self.ownership, OwnershipState::CatchingUp { target } if self.position >= target) {
            self.ownership = OwnershipState::Standby { not_before: now };
        }
        let owned = self.lane_state.is_owner(&self.shared.config.id).then_some(self.lane_state.epoch());
        match self.ownership {
            OwnershipState::Standby { not_before } if self.is_first && not_before <= now => self.claim(),
            OwnershipState::Claiming(claim) if owned == Some(claim.epoch) => self.become_owner(claim, now),
            OwnershipState::Claiming(claim) if self.lane_state.epoch() >= claim.epoch => self.stand_by(now),
            OwnershipState::Claiming(claim) if claim.retry_at.is_some() && !self.is_first => self.stand_by(now),
            OwnershipState::Owner { epoch, .. } if owned != Some(epoch) => {
                self.ownership = OwnershipState::Yielding { epoch }
            }
            OwnershipState::CatchingUp { .. } | OwnershipState::Standby { .. } | OwnershipState::Claiming(_) => {
                self.bound_held()?
            }
            OwnershipState::Owner { .. } | OwnershipState::Yielding { .. } => {}
        }
        Ok(())
    }

    /// Bounds what piles up while another engine owns the lane, or none does.
    fn bound_held(&self) -> Result<(), StopReason> {
        let (held, limit) = (self.outbox.len(), HELD_FACTOR.saturating_mul(self.shared.config.outbox.in_flight_max));
        if held > limit {
            return Err(StopReason::BacklogTooLarge { held, limit });
        }
        let (pending, limit) = (self.registrar.len(), WRITES_HELD_MAX);
        if pending > limit { Err(StopReason::WritesTooMany { pending, limit }) } else { Ok(()) }
    }

    fn claim(&mut self) {
        let live = self.inputs.peers.borrow().clone();
        let owner = live.and_then(|live| {
            let mut others = live.others.iter();
            others.find(|(other, _)| self.lane_state.is_owner(other)).map(|(_, standing)| standing.is_leaving)
        });
        let epoch = self.lane_state.epoch() + 1;
        let (is_orderly, outlives) = (owner.is_some(), epoch > 1 && owner != Some(false));
        self.ownership = OwnershipState::Claiming(Claim { epoch, is_orderly, outlives, failures: 0, retry_at: None });
        self.append_claim(epoch);
    }

    /// The log answered a claim; one that was not appended is made again.
    pub(super) fn handle_claim_append(&mut self, failure: Option<String>, now: Instant) {
        let OwnershipState::Claiming(claim) = &mut self.ownership else { return };
        if failure.is_some() {
            let gap = CLAIM_GAP_MIN.saturating_mul(1 << claim.failures.min(10)).min(CLAIM_GAP_MAX);
            claim.failures += 1;
            claim.retry_at = Some(now + gap);
        }
        self.claim_failure = failure;
    }

    /// Makes a claim again that is due.
    pub(super) fn retry_claim(&mut self, now: Instant) {
        let OwnershipState::Claiming(claim) = &mut self.ownership else { return };
        if claim.retry_at.is_some_and(|at| at <= now) {
            claim.retry_at = None;
            let epoch = claim.epoch;
            self.append_claim(epoch);
        }
    }

    fn become_owner(&mut self, claim: Claim, now: Instant) {
        let release_at = claim.is_orderly.then(|| now + self.shared.config.membership.interval());
        self.ownership = OwnershipState::Owner { epoch: claim.epoch, release_at };
        self.claim_failure = None;
        self.handle_peers();
        self.shared.metrics.engines.count_takeover();
        self.aborts.handle_takeover(now);
        self.telling.handle_takeover(self.lane_state.open_count(), claim.outlives);
        if claim.is_orderly {
            self.uncounted.forget();
        } else {
            self.count_uncounted();
        }
        // The owner before may have ended before it could log what was acknowledged.
        for id in self.outbox.take_heard() {
            self.delivered.add(id, now);
        }
        let unacknowledged = self.outbox.len();
        tracing::info!(lane = self.lane.0, epoch = claim.epoch, unacknowledged, "the lane is owned");
        if release_at.is_none() {
            self.release_held();
        }
    }

    /// Lets go what was held back in favour of the owner before, once it has had its time to be acknowledged.
    pub(super) fn release_due(&mut self, now: Instant) {
        let OwnershipState::Owner { release_at, .. } = &mut self.ownership else { return };
        if release_at.is_some_and(|at| at <= now) {
            *release_at = None;
            self.release_held();
        }
    }

    fn release_held(&mut self) {
        for id in self.outbox.held() {
            let gate = self.registrar.gate(self.outbox.after(id));
            self.outbox.release(id, gate);
        }
    }

    /// Hands the lane over: what the log ordered before the other engine's claim still leaves, as does what was
    /// acknowledged; the rest is the new owner's.
    pub(super) async fn yield_lane(&mut self, epoch: u64) {
        tracing::info!(lane = self.lane.0, epoch, by = self.lane_state.epoch(), "the lane is handed over");
        self.publish().await;
        let now = Instant::now();
        while let Some(batch) = self.delivered.take(now) {
            self.append_delivered(epoch, batch);
        }
        self.outbox.demote();
        self.registrar.demote();
        self.inputs.views = None;
        self.questions.clear();
        self.inputs.ends.clear();
        self.telling.forget();
        self.traces.forget();
        self.stand_by(now);
    }

    fn stand_by(&mut self, now: Instant) {
        self.ownership = OwnershipState::Standby { not_before: now + self.shared.config.membership.interval() };
    }

    /// When the ownership makes something due.
    pub(super) fn ownership_wake_at(&self) -> Option<Instant> {
        match self.ownership {
            OwnershipState::CatchingUp { .. } | OwnershipState::Yielding { .. } => None,
            OwnershipState::Standby { not_before } => self.is_first.then_some(not_before),
            OwnershipState::Claiming(claim) => claim.retry_at,
            OwnershipState::Owner { release_at, .. } => release_at,
        }
    }

    /// Reports a claim to the membership, which takes it for a sign of life.
    pub(super) fn note_claim(&self, engine: &std::sync::Arc<str>) {
        if self.is_fit() {
            // A full queue costs one sign of life.
            let _ = self
                .membership
                .try_send(MembershipInput::Claimed { lane: self.lane, engine: std::sync::Arc::clone(engine) });
        }
    }
}
