//! One input on its way through the fold: where it stands, what time it is, and where its effects go.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schemas::delivery::Notification;
use schemas::ids::Position;
use schemas::record::Qos;
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Lane, NegotiationId, RegisterKey, RegisterValue, Timestamp};

use crate::effect::{Deliver, Effect, Event, RegisterWrite};
use crate::limits::Limits;
use crate::negotiation::header::ChainLink;

/// Ordinals of calls start here, plus the session's index, so that the delivery id of a call can be computed again when
/// its failure is reported. No input makes as many other deliveries.
pub(crate) const CALL_ORDINAL: u32 = 1 << 31;

/// The context of one input.
pub(crate) struct InputContext<'a> {
    pub(crate) lane: Lane,
    pub(crate) limits: &'a Limits,
    /// Rules version of the lane.
    pub(crate) rules: u32,
    /// Where the input stands.
    pub(crate) position: Position,
    /// Number of the input in the lane's count.
    pub(crate) input: u64,
    /// The instant the input is evaluated at: a record's time, or a timer's deadline.
    pub(crate) now: Timestamp,
    /// The record's time: what new timers count from, so that a pause of the exchange costs agents nothing.
    pub(crate) clock: Timestamp,
    pub(crate) winners: &'a mut Winners,
    pub(crate) out: &'a mut VecDeque<Effect>,
    /// Deliveries made so far by this input.
    pub(crate) ordinal: u32,
    /// Where the inputs of negotiations are kept, if anywhere.
    pub(crate) links: Option<&'a mut Vec<ChainLink>>,
}

impl InputContext<'_> {
    /// A delivery with its id; nothing is queued yet.
    pub(crate) fn delivery(
        &mut self,
        negotiation: &NegotiationId,
        to: &AgentId,
        told: impl Into<Arc<Notification>>,
        expires: Timestamp,
    ) -> Deliver {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        self.delivery_at(ordinal, negotiation, to, told, expires)
    }

    /// As [`Self::delivery`], at an ordinal the caller can find again.
    pub(crate) fn delivery_at(
        &self,
        ordinal: u32,
        negotiation: &NegotiationId,
        to: &AgentId,
        told: impl Into<Arc<Notification>>,
        expires: Timestamp,
    ) -> Deliver {
        Deliver {
            id: delivery_id(self.lane, negotiation, self.position, ordinal, to),
            to: to.clone(),
            negotiation: negotiation.clone(),
            from: None,
            in_reply_to: None,
            told: told.into(),
            at: self.clock,
            expires,
            qos: Qos::AtLeastOnce,
            attempts_max: None,
            after: None,
            traceparent: None,
        }
    }

    pub(crate) fn deliver(&mut self, delivery: Deliver) {
        self.out.push_back(Effect::Deliver(delivery));
    }

    pub(crate) fn register(&mut self, key: RegisterKey, value: RegisterValue, after: Option<RegisterKey>) {
        self.out.push_back(Effect::Register(RegisterWrite { key, value, after }));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.push_back(Effect::Event(event));
    }
}

/// The id of a delivery: see [`Deliver::id`].
pub(crate) fn delivery_id(
    lane: Lane,
    negotiation: &NegotiationId,
    position: Position,
    ordinal: u32,
    to: &AgentId,
) -> DeliveryId {
    let hash = Digest::of_parts(&[
        negotiation.as_str().as_bytes(),
        &position.seq.to_be_bytes(),
        &position.index.to_be_bytes(),
        &ordinal.to_be_bytes(),
        to.as_str().as_bytes(),
    ]);
    DeliveryId::new(lane, hash.short())
}

/// When each contractor last won in this lane, for `tie_break: least_recent_winner`.
#[derive(Debug, Default)]
pub(crate) struct Winners {
    wins_by_agent: BTreeMap<AgentId, Win>,
    agents_by_win: BTreeMap<Win, AgentId>,
}

/// A win: its position, and the award's number, because one input may make several awards.
type Win = (Position, u32);

impl Winners {
    pub(crate) fn last_win(&self, agent: &AgentId) -> Option<Position> {
        self.wins_by_agent.get(agent).map(|(position, _)| *position)
    }

    /// Winners remembered.
    pub(crate) fn len(&self) -> usize {
        self.agents_by_win.len()
    }

    /// Every winner's last win, the least recent first.
    pub(crate) fn wins(&self) -> impl Iterator<Item = (&AgentId, Position, AwardNo)> {
        self.agents_by_win.iter().map(|((position, award_no), agent)| (agent, *position, AwardNo(*award_no)))
    }

    /// Notes a win and forgets the least recent winner beyond `max`.
    pub(crate) fn note(&mut self, agent: &AgentId, position: Position, award_no: AwardNo, max: usize) {
        let win = (position, award_no.0);
        if let Some(earlier) = self.wins_by_agent.insert(agent.clone(), win) {
            self.agents_by_win.remove(&earlier);
        }
        self.agents_by_win.insert(win, agent.clone());
        if self.wins_by_agent.len() > max
            && let Some((_, forgotten)) = self.agents_by_win.pop_first()
        {
            self.wins_by_agent.remove(&forgotten);
        }
    }
}
