//! The first places of an order, while hits come in any order.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemas::AgentId;

use crate::{Hit, HitPlace};

/// At most `limit` hits behind a place: the first of those offered.
pub(crate) struct Leaders<'a, V> {
    limit: usize,
    after: Option<&'a HitPlace>,
    held: BTreeMap<(Reverse<u64>, &'a AgentId), &'a V>,
}

impl<'a, V> Leaders<'a, V> {
    pub(crate) fn new(limit: usize, after: Option<&'a HitPlace>) -> Self {
        Self { limit, after, held: BTreeMap::new() }
    }

    /// The lowest score that can still take a place; 1 as long as there is room, since hits score.
    pub(crate) fn score_min(&self) -> u64 {
        if self.limit == 0 {
            return u64::MAX;
        }
        if self.held.len() < self.limit {
            return 1;
        }
        self.held.last_key_value().map_or(1, |((Reverse(score), _), _)| *score)
    }

    /// A hit, which takes a place if it is among the first and admitted. Whether it is admitted is asked last.
    pub(crate) fn offer(&mut self, score: u64, agent: &'a AgentId, value: &'a V, is_admitted: impl FnOnce() -> bool) {
        if score < self.score_min() {
            return;
        }
        let place = (Reverse(score), agent);
        let is_behind = |after: &HitPlace| place > (Reverse(after.score), &after.agent);
        let last = self.held.last_key_value();
        let is_among_first = self.held.len() < self.limit || last.is_some_and(|(last, _)| place < *last);
        if is_among_first && self.after.is_none_or(is_behind) && is_admitted() {
            if self.held.len() == self.limit {
                self.held.pop_last();
            }
            self.held.insert(place, value);
        }
    }

    /// The hits, best first.
    pub(crate) fn into_hits(self) -> Vec<Hit<V>>
    where
        V: Clone,
    {
        let hit = |((Reverse(score), agent), value): ((Reverse<u64>, &AgentId), &V)| Hit {
            place: HitPlace { score, agent: agent.clone() },
            value: value.clone(),
        };
        self.held.into_iter().map(hit).collect()
    }
}
