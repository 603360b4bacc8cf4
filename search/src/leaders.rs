//! The first places of an order, while hits come in any order.

use std::collections::BinaryHeap;

use schemas::AgentId;

use crate::{Hit, HitPlace};

/// At most `limit` hits behind a place: the first of those offered.
pub(crate) struct Leaders<'a, V> {
    limit: usize,
    after: Option<&'a HitPlace>,
    /// The last place on top.
    held: BinaryHeap<Held<'a, V>>,
}

struct Held<'a, V> {
    score: u64,
    agent: &'a AgentId,
    value: &'a V,
}

impl<'a, V> Leaders<'a, V> {
    pub(crate) fn new(limit: usize, after: Option<&'a HitPlace>) -> Self {
        Self { limit, after, held: BinaryHeap::new() }
    }

    /// The lowest score that can still take a place; 1 as long as there is room, since hits score.
    pub(crate) fn score_min(&self) -> u64 {
        if self.limit == 0 {
            return u64::MAX;
        }
        if self.held.len() < self.limit {
            return 1;
        }
        self.held.peek().map_or(1, |last| last.score)
    }

    /// A hit, which takes a place if it is among the first and admitted. Whether it is admitted is asked last.
    pub(crate) fn offer(&mut self, score: u64, agent: &'a AgentId, value: &'a V, is_admitted: impl FnOnce() -> bool) {
        if score < self.score_min() {
            return;
        }
        let candidate = Held { score, agent, value };
        let is_behind = |place: &HitPlace| candidate.key() > (std::cmp::Reverse(place.score), &place.agent);
        let is_among_first = self.held.len() < self.limit || self.held.peek().is_some_and(|last| candidate < *last);
        if is_among_first && self.after.is_none_or(is_behind) && is_admitted() {
            if self.held.len() == self.limit {
                self.held.pop();
            }
            self.held.push(candidate);
        }
    }

    /// The hits, best first.
    pub(crate) fn into_hits(self) -> Vec<Hit<V>>
    where
        V: Clone,
    {
        let hit = |held: Held<'_, V>| Hit {
            place: HitPlace { score: held.score, agent: held.agent.clone() },
            value: held.value.clone(),
        };
        self.held.into_sorted_vec().into_iter().map(hit).collect()
    }
}

impl<V> Held<'_, V> {
    /// Its place.
    fn key(&self) -> (std::cmp::Reverse<u64>, &AgentId) {
        (std::cmp::Reverse(self.score), self.agent)
    }
}

impl<V> PartialEq for Held<'_, V> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<V> Eq for Held<'_, V> {}

impl<V> Ord for Held<'_, V> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<V> PartialOrd for Held<'_, V> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
