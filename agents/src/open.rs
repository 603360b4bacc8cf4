//! The negotiations an agent takes part in, each forgotten at the latest when it must have ended.

use std::collections::{BTreeMap, BTreeSet};

use schemas::{NegotiationId, Timestamp};

/// How long after a negotiation must have ended its end is awaited, in milliseconds.
const GRACE_MS: u64 = 60_000;

/// A part in each of at most so many negotiations.
#[derive(Debug)]
pub struct OpenNegotiations<T> {
    parts_by_negotiation: BTreeMap<NegotiationId, (Timestamp, T)>,
    by_expiry: BTreeSet<(Timestamp, NegotiationId)>,
    len_max: usize,
}

impl<T> OpenNegotiations<T> {
    /// Room for this many.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self { parts_by_negotiation: BTreeMap::new(), by_expiry: BTreeSet::new(), len_max }
    }

    /// How many are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts_by_negotiation.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts_by_negotiation.is_empty()
    }

    /// Whether one more may be opened.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < self.len_max
    }

    /// Whether one is open.
    #[must_use]
    pub fn contains(&self, negotiation: &NegotiationId) -> bool {
        self.parts_by_negotiation.contains_key(negotiation)
    }

    /// The part in an open one.
    pub fn part(&mut self, negotiation: &NegotiationId) -> Option<&mut T> {
        self.parts_by_negotiation.get_mut(negotiation).map(|(_, part)| part)
    }

    /// Keeps a part until `ends_by` and a grace, in the place of one kept before. The caller has made sure that there is room.
    pub fn insert(&mut self, negotiation: &NegotiationId, part: T, ends_by: Timestamp) {
        self.remove(negotiation);
        let expires = ends_by.plus_ms(GRACE_MS);
        self.by_expiry.insert((expires, negotiation.clone()));
        self.parts_by_negotiation.insert(negotiation.clone(), (expires, part));
    }

    /// Forgets one.
    pub fn remove(&mut self, negotiation: &NegotiationId) -> Option<T> {
        let (expires, part) = self.parts_by_negotiation.remove(negotiation)?;
        self.by_expiry.remove(&(expires, negotiation.clone()));
        Some(part)
    }

    /// The part in each.
    pub fn into_parts(self) -> impl Iterator<Item = T> {
        self.parts_by_negotiation.into_values().map(|(_, part)| part)
    }

    /// Forgets those whose time is over.
    pub fn expire(&mut self, now: Timestamp) -> Vec<NegotiationId> {
        let mut expired = Vec::new();
        while self.by_expiry.first().is_some_and(|&(expires, _)| expires < now)
            && let Some((_, negotiation)) = self.by_expiry.pop_first()
        {
            self.parts_by_negotiation.remove(&negotiation);
            expired.push(negotiation);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negotiation_is_forgotten_a_minute_after_it_must_have_ended() {
        let mut open = OpenNegotiations::new(2);
        let id = |own: &str| NegotiationId::try_new(&format!("alice~{own}")).unwrap();
        open.insert(&id("a"), 1, Timestamp::from_ms(1_000));
        open.insert(&id("b"), 2, Timestamp::from_ms(2_000));
        assert!(!open.has_room());
        assert!(open.expire(Timestamp::from_ms(61_000)).is_empty());
        assert_eq!(open.expire(Timestamp::from_ms(61_001)), [id("a")]);
        // In the place of the one before, with a time of its own.
        open.insert(&id("b"), 3, Timestamp::from_ms(9_000));
        assert!(open.expire(Timestamp::from_ms(69_000)).is_empty());
        assert_eq!((open.part(&id("b")).copied(), open.remove(&id("b")), open.len()), (Some(3), Some(3), 0));
        assert!(open.expire(Timestamp::MAX).is_empty());
    }
}
