//! The order of hits by looking at few documents: an inverted index over counted words, kept in memory.
//!
//! For each term there are three lists of documents, one for each frequency. A search walks the lists of its terms, those
//! that can add most first, scores every document it meets from that document's own terms, and stops when what is left
//! could not lift any other document to the place of the last one found. What a list can add is bounded by the shortest
//! document it ever held, so the bound holds whatever was removed since.
//!
//! A change is found by the next search: there is nothing to commit. A removed document stays in the lists until they are
//! purged, which a list is when a quarter of it is removed; its slot is used again when no list names it any more.

mod lists;
mod vocabulary;

use std::collections::HashMap;

use schemas::AgentId;

use self::lists::{FREQUENCIES, TermLists};
use self::vocabulary::{TermId, Vocabulary};
use crate::document::{ProfileDocument, ProfileStanding};
use crate::leaders::Leaders;
use crate::ranking::{CollectionStatistics, Query};
use crate::{Hit, HitPlace};

/// An inverted index of documents of agents, each with a value of the caller's; see the module.
#[derive(Debug)]
pub struct PostingsIndex<T> {
    slot_by_agent: HashMap<AgentId, u32>,
    slots: Vec<Slot<T>>,
    /// Slots that no list names.
    free: Vec<u32>,
    terms: Vocabulary,
    collection: CollectionStatistics,
}

/// Where a document is kept.
#[derive(Debug)]
enum Slot<T> {
    Taken(IndexedProfile<T>),
    /// A removed document, which so many lists still name.
    Removed(u32),
}

#[derive(Debug)]
struct IndexedProfile<T> {
    agent: AgentId,
    /// In the order of the term.
    terms: Box<[CountedTerm]>,
    length: u32,
    standing: ProfileStanding,
    value: T,
}

/// A term and its frequency in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CountedTerm(u32);

impl CountedTerm {
    /// The term's id leaves two bits for the frequency (1 to 3).
    fn new(term: TermId, frequency: u8) -> Self {
        Self(term << 2 | u32::from(frequency & 3))
    }

    fn term(self) -> TermId {
        self.0 >> 2
    }

    fn frequency(self) -> u8 {
        (self.0 & 3) as u8
    }
}

/// A term of a query.
struct Wanted<'i> {
    term: TermId,
    lists: &'i TermLists,
    inverse_frequency: f64,
}

/// A list that a search may walk.
struct Walk<'i> {
    /// Which term of the query.
    wanted: usize,
    slots: &'i [u32],
    /// The most that the term adds to a document of this list.
    part_max: u64,
}

impl<T> Default for PostingsIndex<T> {
    fn default() -> Self {
        Self {
            slot_by_agent: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            terms: Vocabulary::default(),
            collection: CollectionStatistics::default(),
        }
    }
}

impl<T> PostingsIndex<T> {
    /// The terms of a query that stand in any document, in the order of the term.
    fn wanted(&self, query: &Query) -> Vec<Wanted<'_>> {
        let known = query.tokens().filter_map(|token| self.terms.find(token));
        let weighted = |(term, lists): (TermId, _)| {
            let lists: &TermLists = lists;
            Wanted { term, lists, inverse_frequency: self.collection.inverse_frequency(u64::from(lists.listed())) }
        };
        let mut wanted: Vec<Wanted<'_>> = known.map(weighted).collect();
        wanted.sort_unstable_by_key(|wanted| wanted.term);
        wanted
    }

    /// The lists of the wanted terms, those that can add most first.
    fn walks<'i>(&self, wanted: &[Wanted<'i>]) -> Vec<Walk<'i>> {
        let mut walks: Vec<Walk<'i>> = Vec::new();
        for (index, one) in wanted.iter().enumerate() {
            for frequency in FREQUENCIES {
                let (slots, length_min) = one.lists.list(frequency);
                if !slots.is_empty() {
                    let part_max = self.collection.part(one.inverse_frequency, frequency, length_min);
                    walks.push(Walk { wanted: index, slots, part_max });
                }
            }
        }
        walks.sort_by_key(|walk| std::cmp::Reverse((walk.part_max, std::cmp::Reverse(walk.slots.len()))));
        walks
    }

    /// What a document scores: both lists of terms are in order.
    fn score(&self, profile: &IndexedProfile<T>, wanted: &[Wanted<'_>]) -> u64 {
        let mut score = 0;
        let mut terms = profile.terms.as_ref();
        for one in wanted {
            let before = terms.partition_point(|counted| counted.term() < one.term);
            terms = terms.get(before..).unwrap_or_default();
            if let Some(counted) = terms.first().filter(|counted| counted.term() == one.term) {
                score += self.collection.part(one.inverse_frequency, counted.frequency(), profile.length);
            }
        }
        score
    }

    /// A slot for a document that so many lists will name.
    fn take_slot(&mut self, profile: IndexedProfile<T>) -> Option<u32> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => u32::try_from(self.slots.len()).ok()?,
        };
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = Slot::Taken(profile),
            None => self.slots.push(Slot::Taken(profile)),
        }
        Some(slot)
    }
}

/// The most that what is left of the walks can add to one document: of each term the best list left.
struct Remaining {
    /// By wanted term: what each list left can add, the best last.
    parts: Vec<Vec<u64>>,
    sum: u64,
}

impl Remaining {
    fn of(walks: &[Walk<'_>], wanted: usize) -> Self {
        let mut parts = vec![Vec::new(); wanted];
        for walk in walks.iter().rev() {
            if let Some(of_term) = parts.get_mut(walk.wanted) {
                of_term.push(walk.part_max);
            }
        }
        let sum = parts.iter().filter_map(|of_term| of_term.last()).sum();
        Self { parts, sum }
    }

    /// The best list left of a term was walked.
    fn walked(&mut self, wanted: usize) {
        let Some(of_term) = self.parts.get_mut(wanted) else { return };
        let best = of_term.pop().unwrap_or_default();
        self.sum = self.sum - best + of_term.last().copied().unwrap_or_default();
    }
}

/// Which slots a search has met.
struct Met(Vec<u64>);

impl Met {
    /// True when the slot was not met before.
    fn meet(&mut self, slot: u32) -> bool {
        let Some(word) = self.0.get_mut(slot as usize / 64) else { return false };
        let bit = 1 << (slot % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

impl<T: Clone> PostingsIndex<T> {
    /// Adds an agent's document, or replaces it.
    pub fn put(&mut self, agent: &AgentId, document: ProfileDocument, standing: ProfileStanding, value: T) {
        self.remove(agent);
        let length = document.length();
        let mut terms: Vec<CountedTerm> = document
            .frequencies()
            .map(|(token, frequency)| CountedTerm::new(self.terms.intern(token), frequency))
            .collect();
        terms.sort_unstable_by_key(|counted| counted.term());
        let profile =
            IndexedProfile { agent: agent.clone(), terms: terms.clone().into_boxed_slice(), length, standing, value };
        // 2^32 documents do not fit in memory.
        let Some(slot) = self.take_slot(profile) else { return };
        for counted in terms {
            if let Some(lists) = self.terms.lists(counted.term()) {
                lists.add(slot, counted.frequency(), length, standing);
            }
        }
        self.slot_by_agent.insert(agent.clone(), slot);
        self.collection.add(length, standing);
    }

    /// Removes an agent's document; nothing happens where there is none.
    pub fn remove(&mut self, agent: &AgentId) {
        let Some(slot) = self.slot_by_agent.remove(agent) else { return };
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        let Slot::Taken(profile) = std::mem::replace(place, Slot::Removed(0)) else { return };
        *place = Slot::Removed(u32::try_from(profile.terms.len()).unwrap_or(u32::MAX));
        if profile.terms.is_empty() {
            self.free.push(slot);
        }
        self.collection.remove(profile.length, profile.standing);
        let Self { slots, free, terms, .. } = self;
        let mut is_kept = |slot: u32| match slots.get_mut(slot as usize) {
            Some(Slot::Removed(named)) => {
                *named = named.saturating_sub(1);
                if *named == 0 {
                    free.push(slot);
                }
                false
            }
            Some(Slot::Taken(_)) => true,
            None => false,
        };
        for counted in &profile.terms {
            let Some(lists) = terms.lists(counted.term()) else { continue };
            lists.remove(counted.frequency(), profile.standing, &mut is_kept);
            if lists.is_empty() {
                terms.forget(counted.term());
            }
        }
    }

    /// What was put with an agent's document.
    pub fn value(&self, agent: &AgentId) -> Option<&T> {
        match self.slots.get(*self.slot_by_agent.get(agent)? as usize)? {
            Slot::Taken(profile) => Some(&profile.value),
            Slot::Removed(_) => None,
        }
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.slot_by_agent.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.slot_by_agent.is_empty()
    }

    /// What scores are computed from besides the documents themselves.
    pub fn collection(&self) -> CollectionStatistics {
        self.collection
    }

    /// The first `limit` hits of a query behind `after` that `admits` admits, best first: score descending, then agent id.
    /// What is not admitted changes no score (docs/spec/search.md#se-12).
    pub fn search(
        &self,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
        admits: &dyn Fn(&AgentId, &T) -> bool,
    ) -> Vec<Hit<T>> {
        self.search_counted(query, limit, after, admits).0
    }

    /// [`Self::search`], and how many places of lists were looked at for it: what it cost.
    pub fn search_counted(
        &self,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
        admits: &dyn Fn(&AgentId, &T) -> bool,
    ) -> (Vec<Hit<T>>, usize) {
        let wanted = self.wanted(query);
        let walks = self.walks(&wanted);
        let mut remaining = Remaining::of(&walks, wanted.len());
        let mut met = Met(vec![0; self.slots.len().div_ceil(64)]);
        let mut leaders = Leaders::new(limit, after);
        let mut looked_at = 0;
        for walk in &walks {
            if remaining.sum < leaders.score_min() {
                break;
            }
            looked_at += walk.slots.len();
            for slot in walk.slots {
                let Some(Slot::Taken(profile)) = self.slots.get(*slot as usize) else { continue };
                if met.meet(*slot) {
                    let score = self.score(profile, &wanted);
                    leaders.offer(score, &profile.agent, &profile.value, || admits(&profile.agent, &profile.value));
                }
            }
            remaining.walked(walk.wanted);
        }
        (leaders.into_hits(), looked_at)
    }
}
