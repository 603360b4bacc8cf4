//! Where negotiations are put back after an input: open with their next timer, or as tombstones, until those are dropped.

use schemas::Digest;

use super::{Book, Key, Open, weight};
use crate::tombstone::Tombstone;

impl Book {
    /// Puts a negotiation back after an input: open with its next timer, or as a tombstone.
    pub(super) fn keep(&mut self, key: Key, mut open: Box<Open>, chain_before: Digest) {
        self.chains = self.chains.wrapping_sub(weight(chain_before)).wrapping_add(weight(open.negotiation.chain));
        let next = open.negotiation.next_timer();
        if open.armed != next {
            if let Some((deadline, kind)) = open.armed {
                self.timers.remove(&(deadline, kind, key));
            }
            if let Some((deadline, kind)) = next {
                self.timers.insert((deadline, kind, key));
            }
            open.armed = next;
        }
        if open.negotiation.outcome.is_none() {
            self.negotiations_by_key.insert(key, open);
            return;
        }
        self.policies.release(open.negotiation.pinned.digest);
        let tombstone = Tombstone::of(&open.negotiation, &self.limits);
        self.burials.insert((tombstone.forget_at, key));
        self.tombstones_by_key.insert(key, Box::new(tombstone));
        if self.tombstones_by_key.len() > self.limits.tombstones_max {
            self.bury_first();
        }
    }

    pub(super) fn bury_forgotten(&mut self) {
        while self.burials.first().is_some_and(|(forget_at, _)| *forget_at < self.now) {
            self.bury_first();
        }
    }

    fn bury_first(&mut self) {
        if let Some((_, key)) = self.burials.pop_first()
            && let Some(tombstone) = self.tombstones_by_key.remove(&key)
        {
            self.chains = self.chains.wrapping_sub(weight(tombstone.chain));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use schemas::record::Record;
    use schemas::{Lane, NegotiationId, Timestamp};
    use serde_json::json;

    #[test]
    fn nothing_is_left_of_a_negotiation_once_its_tombstone_is_dropped() {
        let mut book = Book::new(Lane(0), Limits::default());
        book.handle_record(1, Timestamp::from_ms(1), &called("alice~job"));
        let held = (book.negotiations_by_key.len(), book.timers.len(), book.policies.len(), book.chains == 0);
        assert_eq!(held, (1, 1, 1, false));
        book.handle_record(2, Timestamp::from_ms(20_000), &ticked());
        let ended = (book.negotiations_by_key.len(), book.timers.len(), book.policies.len(), book.burials.len());
        assert_eq!(ended, (0, 0, 0, 1));
        book.handle_record(3, Timestamp::from_ms(200_000), &ticked());
        assert_eq!((book.tombstones_by_key.len(), book.burials.len(), book.chains), (0, 0, 0));
    }

    #[test]
    fn the_oldest_tombstone_makes_room_for_the_newest() {
        let mut book = Book::new(Lane(0), Limits { tombstones_max: 1, ..Limits::default() });
        for (seq, id) in [(1, "alice~one"), (2, "alice~two")] {
            book.handle_record(seq, Timestamp::from_ms(seq * 20_000), &called(id));
        }
        book.handle_record(3, Timestamp::from_ms(60_001), &ticked());
        let alice = schemas::AgentId::try_new("alice").unwrap();
        let is_known = |id| book.view(&NegotiationId::try_new(id).unwrap(), &alice).is_some();
        assert_eq!((is_known("alice~one"), is_known("alice~two"), book.tombstone_count()), (false, true, 1));
    }

    fn ticked() -> Record {
        Record::new("test", vec![schemas::record::Entry::Tick])
    }

    fn called(id: &str) -> Record {
        let policy = crate::policy::preset("low").unwrap();
        let record = json!({"v": 1, "by": "test", "entries": [{"message": {
            "from": "alice", "negotiation": id, "act": "cfp", "digest": "0".repeat(64),
            "body": {
                "envelope": {"msg_id": "m1", "ts": "2026-01-01T00:00:00Z", "from": "agent://alice"},
                "payload": {"act": "cfp"},
            },
            "pinned": {
                "policy": policy, "policy_digest": policy.digest().unwrap(), "invited": [{"agent": "bob"}],
            },
        }}]});
        Record::decode(record.to_string().as_bytes()).unwrap()
    }
}
