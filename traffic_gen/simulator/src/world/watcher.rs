//! Reads along with what passes through the broker, to count the rare paths. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};

use bus::{LogRecord, Received};
use policy_core::panel::reputation::REPUTATION_AVERAGE_PPM;
use schemas::acknowledgement::{AgentAcks, decode_collected};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
use schemas::{Act, AgentId, DeliveryId, Digest, Lane, NegotiationId, Payload, subject};
use serde::Deserialize;

use super::broker::{Broker, matches};
use super::{LinkId, delivery_ids};
use crate::points::{Point, Points};
use crate::trace::AnnouncedDigest;

/// What it remembers.
#[derive(Default)]
pub(crate) struct Watcher {
    lanes: Vec<Ownership>,
    /// By message and body: who logged it first.
    logged: BTreeMap<(AgentId, NegotiationId, Digest), String>,
    /// By delivery: how far its first sender had read.
    emitted: BTreeMap<DeliveryId, (LinkId, u64)>,
    /// What engines announced.
    digests: BTreeSet<AnnouncedDigest>,
}

#[derive(Default)]
struct Ownership {
    epoch: u64,
    owner: Option<String>,
    /// Who owned it before.
    before: Option<String>,
}

impl Watcher {
    pub(super) fn new(lanes: u8) -> Self {
        Self { lanes: (0..lanes).map(|_| Ownership::default()).collect(), ..Self::default() }
    }

    /// What engines announced.
    pub(super) fn digests(&self) -> Vec<AnnouncedDigest> {
        self.digests.iter().cloned().collect()
    }

    /// The engine that owns a lane by the log.
    pub(super) fn owner(&self, lane: Lane) -> Option<&str> {
        self.lanes.get(usize::from(lane.0))?.owner.as_deref()
    }

    /// Whether the lane is another engine's, and was so before: who has just lost it may not know yet.
    fn stands_by(&self, name: &str, lane: Lane) -> bool {
        let is = |owner: &Option<String>| owner.as_deref() == Some(name);
        self.lanes.get(usize::from(lane.0)).is_some_and(|known| !is(&known.owner) && !is(&known.before))
    }

    pub(super) fn handle_record(&mut self, record: &LogRecord, points: &mut Points) {
        let Ok(decoded) = Record::decode(&record.bytes) else { return };
        let mut senders = BTreeSet::new();
        for entry in &decoded.entries {
            match entry {
                Entry::Message(message) => {
                    senders.insert(&message.from);
                    self.handle_message(message, &decoded.by, points);
                }
                Entry::Tick => points.reached(Point::Ticked),
                Entry::Engine { epoch, event } => self.handle_engine(record.lane, *epoch, event, points),
            }
        }
        if senders.len() > 1 {
            points.reached(Point::GroupCommit);
        }
    }

    /// An engine's message passes through the broker.
    pub(super) fn handle_published(
        &mut self,
        from: LinkId,
        name: &str,
        message: &Received,
        broker: &Broker,
        points: &mut Points,
    ) {
        if matches(subject::ALL_HEARTBEATS, &message.subject) {
            self.handle_heartbeat(&message.payload);
        } else if matches(subject::ALL_INBOXES, &message.subject) {
            self.handle_deliveries(from, name, message, broker, points);
        } else if subject::is_gateway_deliveries(&message.subject) {
            points.reached(Point::Routed);
            self.handle_deliveries(from, name, message, broker, points);
        }
    }

    fn handle_deliveries(
        &mut self,
        from: LinkId,
        name: &str,
        message: &Received,
        broker: &Broker,
        points: &mut Points,
    ) {
        let mut is_stale = false;
        for id in delivery_ids(&message.payload) {
            is_stale |= self.owner(id.lane()) != Some(name);
            let (first, _) = *self.emitted.entry(id).or_insert_with(|| (from, broker.seen(from, id.lane())));
            if first != from {
                points.reached(Point::RepeatedAfterTakeover);
            }
        }
        if is_stale {
            points.reached(Point::ZombieEmission);
        }
    }

    /// A message arrives at an engine. Says what it acknowledges of what the engine has read of lanes it stands by for: an
    /// owner, or who still takes itself for one, does not count what it may not send yet.
    pub(super) fn handle_arrival(
        &self,
        at: LinkId,
        name: &str,
        message: &Received,
        broker: &Broker,
        points: &mut Points,
    ) -> Vec<AgentAcks> {
        let mut last_seqs = (0..).map(Lane).zip(broker.last_seqs());
        if let Some((lane, last_seq)) = last_seqs.find(|(lane, _)| subject::view(*lane) == message.subject) {
            if broker.seen(at, lane) < last_seq {
                points.reached(Point::ViewFromBehind);
            }
            return Vec::new();
        }
        let mut acks = acknowledged(message);
        for (_, ids) in &mut acks {
            ids.retain(|id| {
                let Some((from, emitted_at)) = self.emitted.get(id) else { return false };
                let seen = broker.seen(at, id.lane());
                let (reads, is_read) = (seen > 0, seen >= *emitted_at);
                if reads && *from != at && !is_read {
                    points.reached(Point::AckBeforeFold);
                }
                reads && is_read && self.stands_by(name, id.lane())
            });
        }
        acks
    }

    /// Takes down the digests of a heartbeat.
    fn handle_heartbeat(&mut self, payload: &[u8]) {
        let Ok(Heartbeat { engine, lanes }) = serde_json::from_slice(payload) else { return };
        for LaneHeartbeat { lane, digests } in lanes {
            let announced = digests.into_iter().map(|AnnouncedPoint { position, digest }| AnnouncedDigest {
                engine: engine.clone(),
                lane,
                position,
                digest,
            });
            self.digests.extend(announced);
        }
    }

    fn handle_message(&mut self, message: &AdmittedMessage, by: &str, points: &mut Points) {
        if let Some(pinned) = &message.pinned
            && pinned.invited.iter().filter_map(|one| one.reputation).any(|ppm| ppm != REPUTATION_AVERAGE_PPM)
        {
            points.reached(match message.message().map(|message| message.payload) {
                Ok(Payload::Cfp(call)) if call.team.is_some() => Point::ReputationPinnedForSeats,
                Ok(Payload::Cfp(call)) if call.panel.is_some() => Point::ReputationPinnedForChoice,
                Ok(_) | Err(_) => Point::ReputationPinned,
            });
        }
        let key = (message.from.clone(), message.negotiation.clone(), message.digest);
        match self.logged.get(&key) {
            Some(first) => {
                points.reached(Point::MessageTwiceInLog);
                if message.act == Act::Cfp && first != by {
                    points.reached(Point::CallByTwoGateways);
                }
            }
            None => {
                self.logged.insert(key, by.to_owned());
            }
        }
    }

    fn handle_engine(&mut self, lane: Lane, epoch: u64, event: &EngineEvent, points: &mut Points) {
        let Some(known) = self.lanes.get_mut(usize::from(lane.0)) else { return };
        let is_over = epoch < known.epoch;
        match event {
            EngineEvent::Claim { engine } if epoch > known.epoch => {
                if known.owner.as_ref().is_some_and(|owner| owner != engine) {
                    points.reached(Point::OwnerChanged);
                }
                *known = Ownership { epoch, owner: Some(engine.clone()), before: known.owner.take() };
                return;
            }
            EngineEvent::Claim { .. } => points.reached(Point::ClaimOutbid),
            EngineEvent::Delivered { .. } => points.reached(Point::DeliveredLogged),
            EngineEvent::DeliveryFailed { .. } => {
                points.reached(if is_over { Point::DeliveryFailedOldEpoch } else { Point::DeliveryFailed });
            }
            EngineEvent::Rules { .. } => points.reached(Point::RulesChanged),
            EngineEvent::Abort { .. } => {}
        }
        if is_over {
            points.reached(Point::OldEpoch);
        }
    }
}

/// What a message acknowledges; nothing where it is no acknowledgement.
fn acknowledged(message: &Received) -> Vec<AgentAcks> {
    if matches(subject::ALL_COLLECTED_ACKS, &message.subject) {
        return decode_collected(&message.payload).unwrap_or_default();
    }
    let Some((agent, first)) = subject::parse_ack(&message.subject) else { return Vec::new() };
    let further: Vec<DeliveryId> = serde_json::from_slice(&message.payload).unwrap_or_default();
    vec![(agent, std::iter::once(first).chain(further).collect())]
}

/// A heartbeat, as far as it announces digests.
#[derive(Deserialize)]
struct Heartbeat {
    engine: String,
    lanes: Vec<LaneHeartbeat>,
}

#[derive(Deserialize)]
struct LaneHeartbeat {
    lane: Lane,
    #[serde(default)]
    digests: Vec<AnnouncedPoint>,
}

#[derive(Deserialize)]
struct AnnouncedPoint {
    position: u64,
    digest: String,
}
