//! Bodies of transactions that are too long for a call. A body is kept in the bucket `documents` for the agent that is called,
//! under the transaction's negotiation, and removed when the transaction has ended; the call names its digest.
//!
//! | key of the bucket | value |
//! |---|---|
//! | `body~<negotiation>` | `{"to": "<agent>", "body": "<text>"}` |
//!
//! No time is read here: whoever asks says what time it is.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::{AgentId, Code, NegotiationId, Refusal};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Bytes of one body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bodies kept at once: 16 MiB of the largest.
pub const BODIES_MAX: usize = 256;
/// Bodies of one caller.
pub const CALLER_BODIES_MAX: usize = 32;
/// A body that has been there for longer than any transaction lasts was left behind by a gateway that ended.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(200);
/// Agents that take such bodies register this capability.
pub const LONG_BODY_CAPABILITY: &str = "long-body";
/// In `constraints` of a call without a task: the SHA-256 of the body, as 64 hexadecimal digits.
pub const BODY_CONSTRAINT: &str = "agora_body";
/// How keys of bodies begin. No key of a document does: it has 27 characters before any `~`.
const PREFIX: &str = "body~";

/// A body as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBody {
    /// Who may read it: the agent that is called.
    pub to: AgentId,
    /// The text.
    pub body: String,
}

/// Stored bodies, each with the time this process first saw it.
#[derive(Debug, Default)]
pub struct BodyTable {
    since: BTreeMap<NegotiationId, Instant>,
}

/// The key of a transaction's body.
#[must_use]
pub fn body_key(negotiation: &NegotiationId) -> String {
    format!("{PREFIX}{negotiation}")
}

/// The transaction of a key, where it is one of a body; an error where it begins like one and is none.
///
/// # Errors
/// The key's fault, in words.
pub fn negotiation_of(key: &str) -> Option<Result<NegotiationId, String>> {
    let name = key.strip_prefix(PREFIX)?;
    Some(NegotiationId::try_new(name).map_err(|fault| fault.to_string()))
}

impl BodyTable {
    /// A body is there.
    pub fn note(&mut self, negotiation: NegotiationId, now: Instant) {
        self.since.entry(negotiation).or_insert(now);
    }

    /// A body is gone.
    pub fn forget(&mut self, negotiation: &NegotiationId) {
        self.since.remove(negotiation);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.since.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// The bodies that were left behind, which go before another is kept.
    #[must_use]
    pub fn left_behind(&self, now: Instant) -> Vec<NegotiationId> {
        let is_old = |since: &Instant| now.saturating_duration_since(*since) > BODY_TIME_MAX;
        self.since.iter().filter(|(_, since)| is_old(since)).map(|(negotiation, _)| negotiation.clone()).collect()
    }

    /// Refuses a further body of this caller where it has as many as it may, or there are as many as there may be. Gateways
    /// that are asked at the same time can exceed the limits by what each has in hand.
    ///
    /// # Errors
    /// [`Code::Overloaded`].
    pub fn check_room(&self, caller: &AgentId) -> Result<(), Refusal> {
        let is_theirs = |negotiation: &&NegotiationId| {
            negotiation.as_str().split_once('~').is_some_and(|(initiator, _)| initiator == caller.as_str())
        };
        let of_caller = self.since.keys().filter(is_theirs).count();
        if of_caller < CALLER_BODIES_MAX && self.since.len() < BODIES_MAX {
            return Ok(());
        }
        Err(Refusal::new(Code::Overloaded, "too many long bodies are under way")
            .expecting(format!("at most {CALLER_BODIES_MAX} of one caller, and {BODIES_MAX} of all"))
            .retry_after_ms(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiation(caller: &str, number: usize) -> NegotiationId {
        NegotiationId::try_new(&format!("{caller}~n{number}")).unwrap()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    #[test]
    fn a_key_of_a_body_is_read_back_and_no_key_of_a_document_is_one() {
        let own = negotiation("alice", 1);
        assert_eq!(body_key(&own), "body~alice~n1");
        assert_eq!(negotiation_of(&body_key(&own)), Some(Ok(own)));
        assert!(negotiation_of("body~").unwrap().is_err());
        assert_eq!(negotiation_of("28qsS__fo_-NgoyVrSQmBEwrRuc~alice"), None);
    }

    #[test]
    fn a_caller_has_thirty_two_bodies_at_once_and_all_have_two_hundred_and_fifty_six() {
        let (mut table, now) = (BodyTable::default(), Instant::now());
        for number in 0..CALLER_BODIES_MAX {
            table.check_room(&agent("alice")).unwrap();
            table.note(negotiation("alice", number), now);
        }
        assert_eq!(table.check_room(&agent("alice")).unwrap_err().code, Code::Overloaded);
        table.check_room(&agent("alic")).unwrap();
        table.forget(&negotiation("alice", 0));
        table.check_room(&agent("alice")).unwrap();
        for number in 0..BODIES_MAX {
            table.note(negotiation(&format!("c{}", number % 30), number), now);
        }
        assert_eq!(table.check_room(&agent("bob")).unwrap_err().code, Code::Overloaded);
    }

    #[test]
    fn what_was_left_behind_is_told_once_no_transaction_can_last_as_long() {
        let (mut table, now) = (BodyTable::default(), Instant::now());
        table.note(negotiation("alice", 1), now);
        table.note(negotiation("alice", 2), now + Duration::from_secs(1));
        table.note(negotiation("alice", 1), now + Duration::from_secs(100));
        assert_eq!(table.left_behind(now + BODY_TIME_MAX), []);
        let later = now + BODY_TIME_MAX + Duration::from_millis(1);
        assert_eq!(table.left_behind(later), [negotiation("alice", 1)], "a repeat makes it no younger");
    }
}
