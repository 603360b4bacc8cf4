//! Which engines are alive, and which of them should own which lane. Holds no socket and reads no clock.
//!
//! An engine is alive for `dead_after` from its last heartbeat or claim. Rendezvous hashing with equal shares (`rank.rs`)
//! assigns every lane to the engines that are alive, not leaving, and have not given it up: the first should own it, those
//! behind it stand by, as many as the configuration says, and the others need not fold it. Of those that have caught up
//! with a lane the first claims it, so that an engine that must catch up first takes a lane from nobody before it has.
//! Nothing here is binding: two engines that disagree only do the same work twice, until the log orders their claims.
//!
//! **Engines that cannot hear each other.** A claim of an engine whose heartbeats are not heard counts as a sign of life
//! that lasts twice as long each time, and leaves it the lane for so long, whatever its rank. Such engines would otherwise
//! take the lane from each other once per `dead_after`.

mod rank;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemas::{Lane, subject};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::status::DigestPoint;
use crate::status::LaneStatus;
pub(crate) use task::{HeartbeatTask, MembershipHandle, MembershipInput};

/// Most other engines remembered. Far above what the lanes of one exchange can keep busy; names beyond it are ignored.
const PEERS_MAX: usize = 64;
/// Doublings of the time an unheard claim counts: at the default settings up to about a minute.
const DOUBLINGS_MAX: u32 = 6;
/// An unheard engine's claims are remembered for so many times the time they count.
const MEMORY_FACTOR: u32 = 4;

/// See the module.
#[derive(Debug)]
struct Membership {
    own: String,
    /// When this engine started, by its own clock: tells it from another one of the same name.
    started: u64,
    lanes: BTreeSet<Lane>,
    dead_after: Duration,
    is_leaving: bool,
    peers_by_id: BTreeMap<String, Peer>,
    /// Another engine of the same name counts as alive until then.
    duplicate_until: Option<Instant>,
    /// The last live: most heartbeats change nothing.
    known: Arc<LiveEngines>,
}

#[derive(Debug)]
struct Peer {
    until: Instant,
    forgotten_at: Instant,
    heartbeat_at: Option<Instant>,
    /// Claims in a row without a heartbeat.
    silent_claims: u32,
    standing: PeerState,
}

/// What an engine says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PeerState {
    /// It hands its lanes over and takes none.
    pub(crate) is_leaving: bool,
    /// The lanes it folds, or could take up.
    serves: BTreeSet<Lane>,
    /// The lanes it could own at once.
    fit: BTreeSet<Lane>,
    /// The newest rules version it folds.
    rules_newest: u32,
    /// The lanes it has claimed without being heard: they are left to it.
    claimed_unheard: BTreeSet<Lane>,
}

/// An engine that could own lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LaneCandidate<'a> {
    /// Its name.
    id: &'a str,
    /// The lanes it folds, or could take up.
    serves: &'a BTreeSet<Lane>,
    /// The lanes that are left to it, whatever its rank.
    left_to: &'a BTreeSet<Lane>,
}

/// What a heartbeat was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeartbeatOrigin {
    /// This engine's own.
    Own,
    /// Of another engine of the same name.
    DuplicateId,
    /// Of an engine that was not alive before: it should hear of this one at once.
    Newcomer,
    /// Of an engine known to be alive.
    Known,
    /// There is no room for another engine.
    Ignored,
}

/// Who is alive, at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveEngines {
    /// The other live engines.
    pub(crate) others: BTreeMap<String, PeerState>,
    /// Per lane, the engines that could fold it, first choice first. This engine is among them unless it leaves.
    assigned_by_lane: BTreeMap<Lane, Vec<String>>,
    /// The same engines, without those that have to catch up first.
    ranked_by_lane: BTreeMap<Lane, Vec<String>>,
    /// The lanes this engine serves.
    own: BTreeSet<Lane>,
    /// This engine hands its lanes over and takes none.
    is_leaving: bool,
}

impl LiveEngines {
    /// The newest rules version that every live engine folds, this one's being `own`.
    pub(crate) fn rules_newest(&self, own: u32) -> u32 {
        self.others.values().map(|standing| standing.rules_newest).fold(own, u32::min)
    }

    /// The engines that should fold a lane, first choice first: the first should own it, the others stand by.
    pub(crate) fn assigned(&self, lane: Lane) -> &[String] {
        self.assigned_by_lane.get(&lane).map_or(&[], Vec::as_slice)
    }

    /// The engines that could own a lane at once, first choice first.
    pub(crate) fn ranked(&self, lane: Lane) -> &[String] {
        self.ranked_by_lane.get(&lane).map_or(&[], Vec::as_slice)
    }
}

impl Membership {
    /// Nobody else is known yet. `started` tells engines of one name apart.
    fn new(own: String, started: u64, lanes: Vec<Lane>, dead_after: Duration) -> Self {
        let (lanes, peers_by_id) = (lanes.into_iter().collect(), BTreeMap::new());
        let (is_leaving, duplicate_until, known) = (false, None, Arc::new(LiveEngines::default()));
        Self { own, started, lanes, dead_after, is_leaving, peers_by_id, duplicate_until, known }
    }

    /// This engine has given a lane up.
    fn give_up(&mut self, lane: Lane) {
        self.lanes.remove(&lane);
    }

    /// This engine takes no lane any more.
    fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// A heartbeat was received.
    fn handle_heartbeat(&mut self, heartbeat: &Heartbeat, now: Instant) -> HeartbeatOrigin {
        if heartbeat.engine == self.own {
            if heartbeat.started == self.started {
                return HeartbeatOrigin::Own;
            }
            self.duplicate_until = Some(now + self.dead_after);
            return HeartbeatOrigin::DuplicateId;
        }
        let until = now + self.dead_after;
        let Some((peer, was_alive)) = self.peer(&heartbeat.engine, now) else { return HeartbeatOrigin::Ignored };
        peer.until = until;
        peer.forgotten_at = until;
        peer.heartbeat_at = Some(now);
        peer.silent_claims = 0;
        peer.standing = PeerState {
            is_leaving: heartbeat.is_leaving,
            serves: heartbeat.lanes.iter().filter(|lane| !lane.is_given_up()).map(|lane| lane.lane).collect(),
            fit: heartbeat.lanes.iter().filter(|lane| lane.is_fit).map(|lane| lane.lane).collect(),
            rules_newest: heartbeat.rules_newest,
            claimed_unheard: BTreeSet::new(),
        };
        if was_alive { HeartbeatOrigin::Known } else { HeartbeatOrigin::Newcomer }
    }

    /// The log gave a fresh claim of a lane by an engine.
    fn handle_claim(&mut self, engine: &str, lane: Lane, now: Instant) {
        let dead_after = self.dead_after;
        if engine == self.own {
            return;
        }
        let Some((peer, _)) = self.peer(engine, now) else { return };
        let is_heard = peer.heartbeat_at.is_some_and(|at| now.saturating_duration_since(at) <= dead_after);
        if !is_heard {
            peer.silent_claims = (peer.silent_claims + 1).min(DOUBLINGS_MAX);
            peer.standing.claimed_unheard.insert(lane);
        }
        let lasts = dead_after.saturating_mul(1 << peer.silent_claims);
        peer.until = peer.until.max(now + lasts);
        peer.forgotten_at = peer.forgotten_at.max(now + lasts.saturating_mul(MEMORY_FACTOR));
        peer.standing.fit.insert(lane);
    }

    /// This engine itself was held up: what it did not hear in the meantime says nothing about others.
    fn handle_pause(&mut self, now: Instant) {
        let until = now + self.dead_after;
        for peer in self.peers_by_id.values_mut().filter(|peer| peer.heartbeat_at.is_some()) {
            peer.until = peer.until.max(until);
            peer.forgotten_at = peer.forgotten_at.max(until);
        }
    }

    /// Who is alive now.
    fn live(&mut self, now: Instant) -> Arc<LiveEngines> {
        self.peers_by_id.retain(|_, peer| peer.until > now || peer.forgotten_at > now);
        let alive = self.peers_by_id.iter().filter(|(_, peer)| peer.until > now);
        let others = alive.map(|(id, peer)| (id.clone(), peer.standing.clone())).collect();
        let known = &self.known;
        let is_known = known.others == others && known.is_leaving == self.is_leaving && known.own == self.lanes;
        if !is_known || known.assigned_by_lane.is_empty() {
            let assigned_by_lane = self.assigned(&others);
            let ranked_by_lane = self.ranked(&others, &assigned_by_lane);
            let (own, is_leaving) = (self.lanes.clone(), self.is_leaving);
            self.known = Arc::new(LiveEngines { others, assigned_by_lane, ranked_by_lane, own, is_leaving });
        }
        Arc::clone(&self.known)
    }

    /// Whether another engine runs under the same name.
    fn has_duplicate_id(&self, now: Instant) -> bool {
        self.duplicate_until.is_some_and(|until| until > now)
    }

    /// Per lane, the engines that could fold it, first choice first.
    fn assigned(&self, others: &BTreeMap<String, PeerState>) -> BTreeMap<Lane, Vec<String>> {
        let nothing = BTreeSet::new();
        let own = LaneCandidate { id: &self.own, serves: &self.lanes, left_to: &nothing };
        let mut candidates: Vec<_> = (!self.is_leaving).then_some(own).into_iter().collect();
        for (id, standing) in others.iter().filter(|(_, standing)| !standing.is_leaving) {
            let PeerState { serves, claimed_unheard: left_to, .. } = standing;
            candidates.push(LaneCandidate { id, serves, left_to });
        }
        rank::ranked(&candidates)
    }

    /// The same without those that have to catch up first. This engine counts as one that has caught up with every lane: it
    /// claims none before, and nobody else may be there.
    fn ranked(
        &self,
        others: &BTreeMap<String, PeerState>,
        assigned_by_lane: &BTreeMap<Lane, Vec<String>>,
    ) -> BTreeMap<Lane, Vec<String>> {
        let is_fit = |lane: &Lane, id: &String| others.get(id).is_none_or(|standing| standing.fit.contains(lane));
        let ranked = |(lane, assigned): (&Lane, &Vec<String>)| {
            (*lane, assigned.iter().filter(|id| is_fit(lane, id)).cloned().collect())
        };
        assigned_by_lane.iter().map(ranked).collect()
    }

    /// When somebody will be dead unless heard before.
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let ends = self.peers_by_id.values().map(|peer| peer.until).chain(self.duplicate_until);
        ends.filter(|until| *until > now).min()
    }

    /// The peer of a name and whether it was alive, made if there is room for it.
    fn peer(&mut self, engine: &str, now: Instant) -> Option<(&mut Peer, bool)> {
        if !self.peers_by_id.contains_key(engine) && self.peers_by_id.len() >= PEERS_MAX {
            return None;
        }
        let peer = self.peers_by_id.entry(engine.to_owned()).or_insert_with(|| Peer {
            until: now,
            forgotten_at: now,
            heartbeat_at: None,
            silent_claims: 0,
            standing: PeerState::default(),
        });
        let was_alive = peer.until > now;
        Some((peer, was_alive))
    }
}

/// Largest heartbeat read: every lane a log can have, with its digests, fits into half of it.
const HEARTBEAT_BYTES_MAX: usize = 256 * 1024;

/// The phase of a lane that was given up, as [`LanePhase::as_str`](crate::LanePhase::as_str) names it.
const STOPPED: &str = "stopped";

/// The phase of a lane that an engine owns.
const OWNER: &str = "owner";

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Heartbeat {
    /// The engine; as in the subject.
    engine: String,
    /// When it started, in microseconds by its own clock: tells two engines of one name apart.
    started: u64,
    /// It hands its lanes over and takes none.
    is_leaving: bool,
    /// The newest rules version it folds.
    rules_newest: u32,
    /// The lanes it folds or could take up.
    lanes: Vec<LaneHeartbeat>,
}

/// What an engine says of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LaneHeartbeat {
    /// The lane.
    lane: Lane,
    /// What the engine does with it.
    phase: String,
    /// It has caught up with the lane and could own it at once.
    is_fit: bool,
    /// Sequence of the last folded record.
    position: u64,
    /// The lane's epoch.
    epoch: u64,
    /// The lane's rules version.
    rules: u32,
    /// Digests of its state at recent positions.
    digests: Vec<DigestPoint>,
}

impl LaneHeartbeat {
    /// Whether the engine has given the lane up.
    fn is_given_up(&self) -> bool {
        self.phase == STOPPED
    }

    /// Whether the engine owns the lane.
    fn is_owned(&self) -> bool {
        self.phase == OWNER
    }

    fn of(status: &LaneStatus) -> Self {
        Self {
            lane: status.lane,
            phase: status.phase.as_str().to_owned(),
            is_fit: status.is_fit,
            position: status.position,
            epoch: status.epoch,
            rules: status.rules,
            digests: status.digests.clone(),
        }
    }
}

impl Heartbeat {
    /// Reads a heartbeat; nothing when it is too large, not readable, or not of the engine its subject names.
    fn read(subject: &str, payload: &[u8]) -> Option<Self> {
        if payload.len() > HEARTBEAT_BYTES_MAX {
            return None;
        }
        let heartbeat: Self = serde_json::from_slice(payload).ok()?;
        (subject::engine_of(subject)? == heartbeat.engine).then_some(heartbeat)
    }
}

#[cfg(test)]
mod tests;
