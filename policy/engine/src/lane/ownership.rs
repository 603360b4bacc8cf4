//! Who owns the lane: standing by, claiming, owning, yielding. What is decided here is only who does the work; what
//! counts is the order of claims in the log.
//!
//! ```text
//! catching up -> standby <---> claiming -> owner
//!                   ^            (outbid)     | another claim is folded
//!                   +------- yielding <-------+
//! ```

use std::sync::Arc;
use std::time::Duration;

use policy_core::LaneState;
use retry::Backoff;
use schemas::Lane;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Claim, OwnershipStep};

use crate::config::EngineConfig;
use crate::membership::{LiveEngines, MembershipInput};
use crate::status::LanePhase;

/// Gaps after claims that could not be appended.
const CLAIM_GAPS: Backoff = Backoff::exact(Duration::from_millis(250), Duration::from_secs(5));

/// How far the lane has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnershipState {
    /// Folds silently up to what was stored when the lane was opened.
    CatchingUp { target: u64 },
    /// Folds silently; does not claim before an instant, so that a claim just lost, or who else has caught up, is heard of
    /// first.
    Standby { not_before: Instant },
    /// Has asked, or asks at `retry_at`, for the lane.
    Claiming(Claim),
    /// Emits under this epoch. What the owner before may have just sent is held until `release_at`.
    Owner { epoch: u64, release_at: Option<Instant> },
    /// Has folded another engine's claim: sends what came before it, then stands by.
    Yielding { epoch: u64 },
}

/// The part of one engine in the ownership of one lane.
pub(super) struct Ownership {
    lane: Lane,
    engine: String,
    state: OwnershipState,
    /// Of the live engines that have caught up, this one should own the lane.
    is_first: bool,
    /// Another one should own it once it has caught up.
    is_substitute: bool,
    /// The newest rules version this engine folds.
    rules_newest: u32,
    /// The rules version every live engine folds, where it is newer than the lane's, and when to append it.
    rules_wanted: Option<(u32, Instant)>,
    /// Why the last claim was not appended.
    claim_failure: Option<String>,
    /// Gap between two heartbeats.
    heartbeat: Duration,
    membership: mpsc::Sender<MembershipInput>,
}

impl Ownership {
    /// Catches up with the record `target`.
    pub(super) fn new(
        lane: Lane,
        config: &EngineConfig,
        membership: mpsc::Sender<MembershipInput>,
        target: u64,
    ) -> Self {
        Self {
            lane,
            engine: config.id.clone(),
            state: OwnershipState::CatchingUp { target },
            is_first: false,
            is_substitute: false,
            rules_newest: config.rules_newest,
            rules_wanted: None,
            claim_failure: None,
            heartbeat: config.membership.interval(),
            membership,
        }
    }

    /// Catches up anew.
    pub(super) fn restart(&mut self, target: u64) {
        self.state = OwnershipState::CatchingUp { target };
        (self.rules_wanted, self.claim_failure) = (None, None);
    }

    pub(super) fn is_owner(&self) -> bool {
        self.epoch().is_some()
    }

    /// The epoch under which the lane is owned.
    pub(super) fn epoch(&self) -> Option<u64> {
        if let OwnershipState::Owner { epoch, .. } = self.state { Some(epoch) } else { None }
    }

    /// The epoch under which the lane was owned that is to be handed over.
    pub(super) fn yielding(&self) -> Option<u64> {
        if let OwnershipState::Yielding { epoch } = self.state { Some(epoch) } else { None }
    }

    /// Whether the lane could be owned at once.
    pub(super) fn is_fit(&self) -> bool {
        !matches!(self.state, OwnershipState::CatchingUp { .. })
    }

    /// `knows_live`: whether it is known who else is alive; until then it is not known whether the lane is to be claimed.
    pub(super) fn phase(&self, knows_live: bool) -> LanePhase {
        match self.state {
            OwnershipState::CatchingUp { .. } => LanePhase::CatchingUp,
            OwnershipState::Standby { .. } if !knows_live => LanePhase::CatchingUp,
            OwnershipState::Standby { .. } if self.is_first => LanePhase::Claiming,
            OwnershipState::Standby { .. } | OwnershipState::Yielding { .. } => LanePhase::Standby,
            OwnershipState::Claiming(_) => LanePhase::Claiming,
            OwnershipState::Owner { .. } => LanePhase::Owner,
        }
    }

    /// Why the lane cannot be claimed, with the remedy.
    pub(super) fn fault(&self) -> Option<String> {
        let error = self.claim_failure.as_ref()?;
        Some(format!("lane {}: it cannot be claimed ({error}); see that the log takes records", self.lane))
    }

    /// Others came or went: whether the lane falls to this engine, and which rules everybody folds. A lane's rules change
    /// by a record only, and only to what every live engine folds.
    pub(super) fn handle_live(&mut self, live: &LiveEngines, rules: u32) {
        self.is_first = live.ranked(self.lane).first() == Some(&self.engine);
        self.is_substitute = live.assigned(self.lane).first() != Some(&self.engine);
        let newest = live.rules_newest(self.rules_newest);
        self.rules_wanted = (newest > rules).then(|| (newest, Instant::now()));
    }

    /// The rules version to append now, again after a while until it is folded.
    pub(super) fn poll_rules(&mut self, rules: u32, now: Instant) -> Option<u32> {
        let (version, at) = self.rules_wanted?;
        if rules >= version {
            self.rules_wanted = None;
        } else if at <= now {
            self.rules_wanted = Some((version, now + CLAIM_GAPS.max));
            return Some(version);
        }
        None
    }

    /// Moves on as far as what is folded and who is alive allow.
    pub(super) fn progress(
        &mut self,
        state: &LaneState,
        position: u64,
        live: Option<&LiveEngines>,
        now: Instant,
    ) -> OwnershipStep {
        if matches!(self.state, OwnershipState::CatchingUp { target } if position >= target) {
            // Engines that start together catch up together: the one that should own the lane is about to.
            let not_before = if self.is_substitute { now + self.heartbeat } else { now };
            self.state = OwnershipState::Standby { not_before };
        }
        let owned = state.is_owner(&self.engine).then_some(state.epoch());
        match self.state {
            OwnershipState::Standby { not_before } if self.is_first && not_before <= now => {
                let claim = self.claim(state, live);
                self.state = OwnershipState::Claiming(claim);
                return OwnershipStep::Claim(claim.epoch);
            }
            OwnershipState::Claiming(claim) if owned == Some(claim.epoch) => {
                let release_at = claim.is_orderly.then(|| now + self.heartbeat);
                self.state = OwnershipState::Owner { epoch: claim.epoch, release_at };
                self.claim_failure = None;
                return OwnershipStep::Owned(claim);
            }
            OwnershipState::Claiming(claim) if state.epoch() >= claim.epoch => self.stand_by(now),
            OwnershipState::Claiming(claim) if claim.retry_at.is_some() && !self.is_first => self.stand_by(now),
            OwnershipState::Owner { epoch, .. } if owned != Some(epoch) => {
                debug_assert!(state.epoch() > epoch, "an owner yields to a later claim only");
                self.state = OwnershipState::Yielding { epoch };
            }
            OwnershipState::CatchingUp { .. }
            | OwnershipState::Standby { .. }
            | OwnershipState::Claiming(_)
            | OwnershipState::Owner { .. }
            | OwnershipState::Yielding { .. } => {}
        }
        OwnershipStep::Settled
    }

    fn claim(&self, state: &LaneState, live: Option<&LiveEngines>) -> Claim {
        let owner = live.and_then(|live| {
            let mut others = live.others.iter();
            others.find(|(other, _)| state.is_owner(other)).map(|(_, peer)| peer.is_leaving)
        });
        let epoch = state.epoch() + 1;
        let (is_orderly, outlives) = (owner.is_some(), epoch > 1 && owner != Some(false));
        Claim { epoch, is_orderly, outlives, failures: 0, retry_at: None }
    }

    /// The log answered a claim; one that was not appended is made again.
    pub(super) fn handle_claim_append(&mut self, failure: Option<String>, now: Instant) {
        let OwnershipState::Claiming(claim) = &mut self.state else { return };
        if failure.is_some() {
            claim.failures += 1;
            claim.retry_at = Some(now + CLAIM_GAPS.ceiling(claim.failures));
        }
        self.claim_failure = failure;
    }

    /// The epoch of a claim to append again now.
    pub(super) fn poll_claim(&mut self, now: Instant) -> Option<u64> {
        let OwnershipState::Claiming(claim) = &mut self.state else { return None };
        claim.retry_at.take_if(|at| *at <= now)?;
        Some(claim.epoch)
    }

    /// Whether what was held back in favour of the owner before may go now: it has had its time to be acknowledged.
    pub(super) fn poll_release(&mut self, now: Instant) -> bool {
        let OwnershipState::Owner { release_at, .. } = &mut self.state else { return false };
        release_at.take_if(|at| *at <= now).is_some()
    }

    /// Gives the lane up in favour of whoever has claimed it.
    pub(super) fn stand_by(&mut self, now: Instant) {
        self.state = OwnershipState::Standby { not_before: now + self.heartbeat };
    }

    /// When ownership makes something due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.state {
            OwnershipState::CatchingUp { .. } | OwnershipState::Yielding { .. } => None,
            OwnershipState::Standby { not_before } => self.is_first.then_some(not_before),
            OwnershipState::Claiming(claim) => claim.retry_at,
            OwnershipState::Owner { release_at, .. } => release_at,
        }
    }

    /// When the owner is to append newer rules.
    pub(super) fn rules_wake_at(&self) -> Option<Instant> {
        self.rules_wanted.map(|(_, at)| at)
    }

    /// A claim was folded: the membership takes a fresh one for a sign of life.
    pub(super) fn handle_claim_folded(&self, engine: &Arc<str>) {
        if self.is_fit() {
            // A full queue costs one sign of life.
            let claimed = MembershipInput::Claimed { lane: self.lane, engine: Arc::clone(engine) };
            let _ = self.membership.try_send(claimed);
        }
    }

    /// Others should hear at once of what the lane's status says now. A full queue is heard with the next heartbeat.
    pub(super) fn announce(&self) {
        let _ = self.membership.try_send(MembershipInput::Changed);
    }
}
