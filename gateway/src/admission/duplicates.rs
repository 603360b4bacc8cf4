//! Messages that came lately: a repeat is told from another body under the same id.

use retry::SharedRecentMap;
use schemas::{AgentId, Code, Digest, MsgId, NegotiationId, Refusal};

/// Message ids remembered, so that another body under the same id is told at once: about ten seconds of 10,000
/// messages per second. About 8 MiB. What is forgotten here the fold still knows.
const MESSAGES_REMEMBERED_MAX: usize = 131_072;

/// The digests of the messages that came lately, by sender, negotiation and id.
pub(super) struct Duplicates {
    digests: SharedRecentMap<[u8; 16], Digest>,
}

/// The place of one message.
pub(super) struct MessageSlot {
    key: [u8; 16],
    /// Whether the same message came before.
    pub(super) is_repeat: bool,
}

impl Duplicates {
    pub(super) fn new() -> Self {
        Self { digests: SharedRecentMap::new(MESSAGES_REMEMBERED_MAX) }
    }

    /// Takes the place of a message, or recognises a repeat.
    ///
    /// # Errors
    /// [`Code::Conflict`] when another body came under the id.
    pub(super) fn take(
        &self,
        from: &AgentId,
        negotiation: &NegotiationId,
        msg_id: &MsgId,
        digest: Digest,
    ) -> Result<MessageSlot, Refusal> {
        let key = key(from, negotiation, msg_id);
        let first = self.digests.insert_if_absent(key, digest);
        if first.is_some_and(|first| first != digest) {
            return Err(Refusal::new(Code::Conflict, "another body was sent under this id; the first stands")
                .at("/envelope/msg_id")
                .expecting("a new msg_id for a new message, the same bytes for a repeat"));
        }
        Ok(MessageSlot { key, is_repeat: first.is_some() })
    }

    /// Whether a message under this id came before and may be stored.
    pub(super) fn holds(&self, from: &AgentId, negotiation: &NegotiationId, msg_id: &MsgId) -> bool {
        self.digests.renew(&key(from, negotiation, msg_id)).is_some()
    }

    /// Forgets a message that is certainly not stored: it must not stand in the way of another body. A repeat's place is
    /// the first one's.
    pub(super) fn give_back(&self, slot: &MessageSlot) {
        if !slot.is_repeat {
            self.digests.remove(&slot.key);
        }
    }
}

fn key(from: &AgentId, negotiation: &NegotiationId, msg_id: &MsgId) -> [u8; 16] {
    Digest::of_parts(&[from.as_str(), negotiation.as_str(), msg_id.as_str()].map(str::as_bytes)).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_that_is_not_stored_leaves_the_first_in_its_place() {
        let duplicates = Duplicates::new();
        let agent = AgentId::try_new("a").unwrap();
        let (negotiation, msg_id) = (NegotiationId::form(&agent, "1").unwrap(), MsgId::try_new("m").unwrap());
        let take = |body: &str| duplicates.take(&agent, &negotiation, &msg_id, Digest::of_bytes(body.as_bytes()));
        let first = take("one").unwrap();
        let repeat = take("one").unwrap();
        assert_eq!((first.is_repeat, repeat.is_repeat), (false, true));
        duplicates.give_back(&repeat);
        assert!(duplicates.holds(&agent, &negotiation, &msg_id), "the first may be stored");
        assert_eq!(take("two").err().map(|refusal| refusal.code), Some(Code::Conflict));
        duplicates.give_back(&first);
        assert!(take("two").is_ok_and(|slot| !slot.is_repeat), "nothing stands in its way any more");
    }
}
