//! The hash chain over the inputs of a negotiation.

use schemas::ids::Position;
use schemas::{Digest, NegotiationId, Timestamp};

use super::{Header, InputContext};

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

impl Header {
    /// Extends the hash chain ([`chained`]). `input` is the digest of a message, or the tag of a timer or engine event.
    pub(crate) fn link(&mut self, input: &[u8], context: &mut InputContext<'_>) {
        if let Some(links) = &mut context.links {
            let is_first = self.chain == CHAIN_START;
            let (negotiation, input) = (self.id.clone(), Box::from(input));
            links.push(ChainLink { negotiation, input, position: context.position, at: context.now, is_first });
        }
        self.chain = chained(self.chain, input, context.position, context.now);
    }
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
