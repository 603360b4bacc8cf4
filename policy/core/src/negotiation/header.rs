//! What every negotiation has, whatever its protocol: its names, its bounds in time, the deliveries that leave in its name, and
//! the hash chain over its inputs. The chain's head stands in decisions, in the register and in CLOSED, and whoever holds the
//! inputs computes it again without the fold.

use std::sync::Arc;

use schemas::delivery::{Agreement, Closing, Notice, Notification, Outcome};
use schemas::ids::Position;
use schemas::{Address, AgentId, Digest, MsgId, NegotiationId, RegisterKey, RegisterValue, Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use crate::effect::{Deliver, Effect, Event, PublicNotice};
use crate::limits::Limits;
use crate::negotiation::context::InputContext;
use crate::protocol::{Phase, Protocol};

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) id: NegotiationId,
    pub(crate) call_msg_id: MsgId,
    /// Addressed agents the gateway left out.
    pub(crate) left_out: u32,
    /// Topics and groups the call was addressed to.
    pub(crate) notices: Option<Arc<[Address]>>,
    pub(crate) traceparent: Option<Arc<str>>,
    pub(crate) started_at: Timestamp,
    /// The hard deadline.
    pub(crate) ends_by: Timestamp,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) chain: Digest,
}

/// An end, as everybody is told it.
pub(crate) struct NegotiationEnd<'a> {
    pub(crate) outcome: Outcome,
    pub(crate) detail: Option<&'a str>,
    pub(crate) agreement: Option<Agreement>,
    /// The entry of the register that comes before the end's.
    pub(crate) before: Option<RegisterKey>,
}

impl Header {
    /// Until when its deliveries are retried, and it is recognised after its end.
    pub(crate) fn remembered_until(&self, limits: &Limits) -> Timestamp {
        self.ends_by.plus_ms(limits.tombstone_grace_ms)
    }

    /// Extends the hash chain ([`chained`]). `input` is the digest of a message, or the tag of a timer or engine event.
    pub(crate) fn link(&mut self, input: &[u8], context: &mut InputContext<'_>) {
        if let Some(links) = &mut context.links {
            let is_first = self.chain == CHAIN_START;
            let (negotiation, input) = (self.id.clone(), Box::from(input));
            links.push(ChainLink { negotiation, input, position: context.position, at: context.now, is_first });
        }
        self.chain = chained(self.chain, input, context.position, context.now);
    }

    /// A delivery to a party, retried as long as the negotiation is remembered, and that long again when it comes late: a
    /// pause of the exchange must not take from anyone the notice of how it ended.
    pub(crate) fn delivery(
        &self,
        context: &mut InputContext<'_>,
        to: &AgentId,
        told: impl Into<Arc<Notification>>,
    ) -> Deliver {
        let grace_ms = context.limits.tombstone_grace_ms;
        let expires = self.remembered_until(context.limits).max(context.clock.plus_ms(grace_ms));
        Deliver { traceparent: self.traceparent.clone(), ..context.delivery(&self.id, to, told, expires) }
    }

    /// Tells the topics and groups of the call that it is out, and everyone who measures that it began.
    pub(crate) fn announce(
        &self,
        protocol: Protocol,
        policy: &Arc<str>,
        invited: usize,
        reply_by: Timestamp,
        context: &mut InputContext<'_>,
    ) {
        let invited = u32::try_from(invited).unwrap_or(u32::MAX);
        if let Some(to) = &self.notices {
            let notice = Notice::Called { negotiation: self.id.clone(), invited, reply_by: WireTime(reply_by) };
            context.out.push_back(Effect::Notice(PublicNotice { to: Arc::clone(to), notice }));
        }
        context.event(Event::Started {
            negotiation: self.id.clone(),
            protocol,
            policy: Arc::clone(policy),
            invited,
            left_out: self.left_out,
            at: context.now,
        });
    }

    /// The state changes.
    pub(crate) fn note_transition(&self, from: Phase, to: Phase, context: &mut InputContext<'_>) {
        context.event(Event::Transition { negotiation: self.id.clone(), from, to });
    }

    /// Registers the end, then tells it: to the initiator in answer to its call, to `others`, and to the call's topics.
    pub(crate) fn tell_closed<'a>(
        &mut self,
        end: NegotiationEnd<'_>,
        initiator: &AgentId,
        others: impl Iterator<Item = &'a AgentId>,
        context: &mut InputContext<'_>,
    ) {
        let NegotiationEnd { outcome, detail, agreement, before } = end;
        let key = RegisterKey::Closed(self.id.clone());
        // After an abort an earlier entry may have been refused: nothing may wait for it.
        let before = before.filter(|_| outcome != Outcome::Aborted);
        context.register(key.clone(), RegisterValue::Closed { outcome, chain: self.chain }, before);
        let after = (outcome != Outcome::Aborted).then_some(key);
        let (detail, agreement) = (detail.map(str::to_owned), agreement.map(Box::new));
        let told = Arc::new(Notification::Closed(Closing { outcome, digest: self.chain, detail, agreement }));
        let delivery = self.delivery(context, initiator, Arc::clone(&told));
        context.deliver(Deliver { in_reply_to: Some(self.call_msg_id.clone()), after: after.clone(), ..delivery });
        for other in others {
            let delivery = self.delivery(context, other, Arc::clone(&told));
            context.deliver(Deliver { after: after.clone(), ..delivery });
        }
        if let Some(to) = &self.notices {
            let notice = Notice::Closed { negotiation: self.id.clone(), outcome };
            context.out.push_back(Effect::Notice(PublicNotice { to: Arc::clone(to), notice }));
        }
    }
}

/// The topics and groups among the addresses of a call.
pub(crate) fn public_addresses(to: &[Address]) -> Option<Arc<[Address]>> {
    let public: Vec<Address> = to
        .iter()
        .filter(|address| match address {
            Address::Topic(_) | Address::Group(_) => true,
            Address::Agent(_) => false,
        })
        .cloned()
        .collect();
    (!public.is_empty()).then(|| Arc::from(public))
}

/// The chain before the first input.
pub const CHAIN_START: Digest = Digest([0; 32]);

/// One input of a negotiation. Kept only where [`crate::LaneState::keep_links`] asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The digest of a message, or the tag of a timer or engine event.
    pub input: Box<[u8]>,
    /// Where it stands; of a timer as in [`crate::LaneState::handle_record`].
    pub position: Position,
    /// The instant it was evaluated at: a record's time, or a timer's deadline.
    pub at: Timestamp,
    /// Whether it opened the negotiation.
    pub is_first: bool,
}

/// The chain after an input: `SHA-256(chain, input, sequence, index, instant)`, each part preceded by its length in eight
/// bytes; numbers are big-endian, the instant in microseconds.
#[must_use]
pub fn chained(before: Digest, input: &[u8], position: Position, at: Timestamp) -> Digest {
    Digest::of_parts(&[
        &before.0,
        input,
        &position.seq.to_be_bytes(),
        &position.index.to_be_bytes(),
        &at.0.to_be_bytes(),
    ])
}

#[cfg(test)]
mod tests {
    use schemas::record::{Entry, Record};
    use schemas::{Lane, RegisterValue};
    use serde_json::json;

    use super::*;
    use crate::{Effect, LaneState, Limits};

    #[test]
    fn the_links_of_a_negotiation_give_the_chain_that_is_registered() {
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.keep_links();
        lane_state.handle_record(1, Timestamp::from_ms(1), &called());
        lane_state.handle_record(2, Timestamp::from_ms(60_000), &Record::new("test", vec![Entry::Tick]));
        let links = lane_state.take_links();
        assert!(links.len() > 1 && links[0].is_first && !links[1].is_first, "{links:?}");
        let chain = links.iter().fold(CHAIN_START, |before, link| chained(before, &link.input, link.position, link.at));
        let registered = std::iter::from_fn(|| lane_state.poll_effect()).find_map(|effect| match effect {
            Effect::Register(write) => Some(write.value),
            Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => None,
        });
        assert!(matches!(registered, Some(RegisterValue::Closed { chain: head, .. }) if head == chain));
        assert!(lane_state.take_links().is_empty());
    }

    #[test]
    fn keeping_links_leaves_the_state_as_it_is() {
        let digest = |keeps: bool| {
            let mut lane_state = LaneState::new(Lane(0), Limits::default());
            if keeps {
                lane_state.keep_links();
            }
            lane_state.handle_record(1, Timestamp::from_ms(1), &called());
            lane_state.digest()
        };
        assert_eq!(digest(true), digest(false));
    }

    fn called() -> Record {
        let policy = crate::policy::preset("low").unwrap();
        let record = json!({"v": 1, "by": "test", "entries": [{"message": {
            "from": "alice", "negotiation": "alice~job", "act": "cfp", "digest": "0".repeat(64),
            "body": {
                "envelope": {"msg_id": "m1", "ts": "2026-01-01T00:00:00Z", "from": "agent://alice"},
                "payload": {"act": "cfp"},
            },
            "pinned": {"policy": policy, "policy_digest": policy.digest().unwrap(), "invited": [{"agent": "bob"}]},
        }}]});
        Record::decode(record.to_string().as_bytes()).unwrap()
    }
}
