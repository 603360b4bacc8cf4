//! What panels have shown, as a list (docs/spec/panel.md#pn-36).

use schemas::evidence::{EvidenceCounts, EvidenceSubject};

/// Everything panels have shown: the entry that was added to longest ago stands first.
#[derive(Debug)]
pub struct EvidenceList {
    entries_max: usize,
    share_max: usize,
    entries: Vec<(EvidenceSubject, EvidenceCounts)>,
}

impl EvidenceList {
    /// An empty list of `entries_max` entries at most, and `share_max` of one initiator.
    #[must_use]
    pub fn new(entries_max: usize, share_max: usize) -> Self {
        Self { entries_max, share_max, entries: Vec::new() }
    }

    /// Adds what a panel has shown.
    pub fn add(&mut self, subject: EvidenceSubject, shown: &EvidenceCounts) {
        let held = self.entries.iter().position(|(one, _)| *one == subject);
        let mut counts = held.map(|place| self.entries.remove(place).1).unwrap_or_default();
        counts.add(shown);
        let initiator = subject.initiator.clone();
        self.entries.push((subject, counts));
        let is_own = |(one, _): &(EvidenceSubject, EvidenceCounts)| one.initiator == initiator;
        if self.entries.iter().filter(|one| is_own(one)).count() > self.share_max {
            let oldest = self.entries.iter().position(is_own).expect("it has some");
            self.entries.remove(oldest);
        }
        if self.entries.len() > self.entries_max {
            self.entries.remove(0);
        }
    }

    /// The entries, in the order of their subjects.
    #[must_use]
    pub fn sorted(&self) -> Vec<(&EvidenceSubject, &EvidenceCounts)> {
        let mut sorted: Vec<_> = self.entries.iter().map(|(subject, counts)| (subject, counts)).collect();
        sorted.sort_by_key(|(subject, _)| *subject);
        sorted
    }
}
