//! In which documents a term stands.

use crate::document::{FREQUENCY_MAX, ProfileStanding};

/// The frequencies a term can have in a document, in order.
pub(super) const FREQUENCIES: [u8; FREQUENCY_MAX as usize] = [1, 2, 3];
/// A list is purged when one in so many of its documents is removed.
const REMOVED_SHARE: usize = 4;

/// The documents of one term: a list for each frequency.
#[derive(Debug, Default)]
pub(super) struct TermLists {
    by_frequency: [List; FREQUENCY_MAX as usize],
    /// Listed documents in which the term stands.
    listed: u32,
}

/// Documents in which a term has the same frequency, in no order, the removed ones among them.
#[derive(Debug)]
struct List {
    slots: Vec<u32>,
    /// How many of them are removed.
    removed: usize,
    /// No document that was ever in the list is shorter.
    length_min: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { slots: Vec::new(), removed: 0, length_min: u32::MAX }
    }
}

impl TermLists {
    /// In how many listed documents the term stands.
    pub(super) fn listed(&self) -> u32 {
        self.listed
    }

    /// Whether no document is in the lists, a removed one neither.
    pub(super) fn is_empty(&self) -> bool {
        self.by_frequency.iter().all(|list| list.slots.is_empty())
    }

    /// The documents of a frequency, and a length that none of them is below.
    pub(super) fn list(&self, frequency: u8) -> (&[u32], u32) {
        let list = self.by_frequency.get(index(frequency));
        list.map_or((&[], u32::MAX), |list| (&list.slots, list.length_min))
    }

    /// Adds a document.
    pub(super) fn add(&mut self, slot: u32, frequency: u8, document_length: u32, standing: ProfileStanding) {
        if let Some(list) = self.by_frequency.get_mut(index(frequency)) {
            list.slots.push(slot);
            list.length_min = list.length_min.min(document_length);
            self.listed += u32::from(standing == ProfileStanding::Listed);
        }
    }

    /// A document of this frequency was removed. Asks of each slot whether it is kept where the list is purged.
    pub(super) fn remove(&mut self, frequency: u8, standing: ProfileStanding, is_kept: &mut impl FnMut(u32) -> bool) {
        if let Some(list) = self.by_frequency.get_mut(index(frequency)) {
            self.listed -= u32::from(standing == ProfileStanding::Listed);
            list.removed += 1;
            if list.removed * REMOVED_SHARE > list.slots.len() {
                list.purge(is_kept);
            }
        }
    }
}

impl List {
    fn purge(&mut self, is_kept: &mut impl FnMut(u32) -> bool) {
        self.slots.retain(|slot| is_kept(*slot));
        self.removed = 0;
        if self.slots.is_empty() {
            *self = Self::default();
        } else if self.slots.len() * 2 < self.slots.capacity() {
            self.slots.shrink_to_fit();
        }
    }
}

fn index(frequency: u8) -> usize {
    usize::from(frequency).saturating_sub(1)
}
