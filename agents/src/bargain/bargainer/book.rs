//! The bargains an agent is in, bounded in number and time.

use std::collections::{BTreeMap, BTreeSet};

use schemas::{NegotiationId, Timestamp};

use super::seat::Seat;

/// How long after a bargain must have ended its end is awaited, in milliseconds.
const GRACE_MS: u64 = 60_000;

pub(super) struct Book {
    seats_by_negotiation: BTreeMap<NegotiationId, (Timestamp, Seat)>,
    by_expiry: BTreeSet<(Timestamp, NegotiationId)>,
    len_max: usize,
}

impl Book {
    pub(super) fn new(len_max: usize) -> Self {
        Self { seats_by_negotiation: BTreeMap::new(), by_expiry: BTreeSet::new(), len_max }
    }

    pub(super) fn len(&self) -> usize {
        self.seats_by_negotiation.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.len() < self.len_max
    }

    pub(super) fn contains(&self, negotiation: &NegotiationId) -> bool {
        self.seats_by_negotiation.contains_key(negotiation)
    }

    pub(super) fn seat(&mut self, negotiation: &NegotiationId) -> Option<&mut Seat> {
        self.seats_by_negotiation.get_mut(negotiation).map(|(_, seat)| seat)
    }

    /// Takes a seat until `ends_by` and a grace; replaces one taken before.
    pub(super) fn insert(&mut self, negotiation: &NegotiationId, seat: Seat, ends_by: Timestamp) {
        self.remove(negotiation);
        let expires = ends_by.plus_ms(GRACE_MS);
        self.by_expiry.insert((expires, negotiation.clone()));
        self.seats_by_negotiation.insert(negotiation.clone(), (expires, seat));
    }

    pub(super) fn remove(&mut self, negotiation: &NegotiationId) {
        if let Some((expires, _)) = self.seats_by_negotiation.remove(negotiation) {
            self.by_expiry.remove(&(expires, negotiation.clone()));
        }
    }

    /// Forgets the bargains whose time is over.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<NegotiationId> {
        let mut expired = Vec::new();
        while self.by_expiry.first().is_some_and(|&(expires, _)| expires < now)
            && let Some((_, negotiation)) = self.by_expiry.pop_first()
        {
            self.seats_by_negotiation.remove(&negotiation);
            expired.push(negotiation);
        }
        expired
    }
}
