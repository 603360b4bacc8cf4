//! The ledger: what ended panels have shown about their members, by domain, agent, role and initiator
//! (docs/spec/panel.md#evidence). Part of the fold's state, so every panel counts once, however many engines there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceSubject, LaneEvidence};
use serde::{Deserialize, Serialize};

/// Most entries of a ledger. At some 250 bytes each, 2^16 are 16 MiB.
pub const EVIDENCE_ENTRIES_MAX: usize = 1 << 16;

/// The evidence of one lane. Beyond the most entries it holds, the one that was added to longest ago is forgotten.
#[derive(Debug, Clone)]
pub struct EvidenceLedger {
    entries_max: usize,
    entries: BTreeMap<Arc<EvidenceSubject>, Held>,
    /// By when they were added to last, the longest ago first.
    order: BTreeMap<u64, Arc<EvidenceSubject>>,
    /// Times anything was added.
    additions: u64,
}

#[derive(Debug, Clone)]
struct Held {
    counts: EvidenceCounts,
    /// The number of the last addition.
    added: u64,
}

/// An entry as snapshots hold it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredEvidence {
    subject: EvidenceSubject,
    counts: EvidenceCounts,
    added: u64,
}

impl Default for EvidenceLedger {
    fn default() -> Self {
        Self::new(EVIDENCE_ENTRIES_MAX)
    }
}

impl EvidenceLedger {
    /// An empty ledger of `entries_max` entries at most.
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self { entries_max, entries: BTreeMap::new(), order: BTreeMap::new(), additions: 0 }
    }

    /// Adds what a panel has shown.
    pub fn add(&mut self, subject: EvidenceSubject, shown: &EvidenceCounts) {
        self.additions = self.additions.saturating_add(1);
        let subject = Arc::new(subject);
        let held =
            self.entries.entry(Arc::clone(&subject)).or_insert(Held { counts: EvidenceCounts::default(), added: 0 });
        held.counts.add(shown);
        let subject = self.order.remove(&held.added).unwrap_or(subject);
        held.added = self.additions;
        self.order.insert(self.additions, subject);
        while self.entries.len() > self.entries_max
            && let Some((_, forgotten)) = self.order.pop_first()
        {
            self.entries.remove(&forgotten);
        }
    }

    /// Entries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing has been shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Times anything was added: another number than before means another ledger.
    #[must_use]
    pub fn additions(&self) -> u64 {
        self.additions
    }

    /// The entries, in the order of their subjects.
    pub fn entries(&self) -> impl Iterator<Item = (&EvidenceSubject, &EvidenceCounts)> {
        self.entries.iter().map(|(subject, held)| (&**subject, &held.counts))
    }

    /// What engines publish of it after the record of this sequence.
    #[must_use]
    pub fn published(&self, position: u64) -> LaneEvidence {
        let entry = |(subject, counts): (&EvidenceSubject, &EvidenceCounts)| EvidenceEntry {
            subject: subject.clone(),
            counts: *counts,
        };
        LaneEvidence { position, entries: self.entries().map(entry).collect() }
    }

    /// What a snapshot holds: the entries in the order of their subjects.
    pub(crate) fn stored(&self) -> impl ExactSizeIterator<Item = StoredEvidence> {
        self.entries.iter().map(|(subject, held)| StoredEvidence {
            subject: EvidenceSubject::clone(subject),
            counts: held.counts,
            added: held.added,
        })
    }

    /// The ledger a snapshot was taken of.
    ///
    /// # Errors
    /// What contradicts itself in it.
    pub(crate) fn restored(additions: u64, stored: Vec<StoredEvidence>) -> Result<Self, &'static str> {
        let mut ledger = Self { additions, ..Self::default() };
        if stored.len() > ledger.entries_max {
            return Err("the ledger holds too much evidence");
        }
        if !stored.is_sorted_by(|one, next| one.subject < next.subject) {
            return Err("evidence is not in its order");
        }
        for StoredEvidence { subject, counts, added } in stored {
            let subject = Arc::new(subject);
            if !(1..=additions).contains(&added) || ledger.order.insert(added, Arc::clone(&subject)).is_some() {
                return Err("evidence was added at the same time, or later than it can be");
            }
            ledger.entries.insert(subject, Held { counts, added });
        }
        Ok(ledger)
    }
}

#[cfg(test)]
mod tests {
    use schemas::AgentId;
    use schemas::evidence::EvidenceRole;
    use schemas::ids::DomainName;

    use super::*;

    #[test]
    fn what_was_added_to_longest_ago_is_forgotten_first() {
        let mut ledger = EvidenceLedger::new(2);
        for agent in ["ann", "bob", "ann", "cyd"] {
            ledger.add(subject(agent), &one());
        }
        assert_eq!(names(&ledger), [("ann", 2), ("cyd", 1)]);
        ledger.add(subject("bob"), &one());
        assert_eq!(names(&ledger), [("bob", 1), ("cyd", 1)], "what was forgotten begins anew");
        assert_eq!((ledger.len(), ledger.additions()), (2, 5));
    }

    #[test]
    fn a_restored_ledger_forgets_in_the_same_order_and_a_contradiction_is_refused() {
        let mut ledger = EvidenceLedger::default();
        ["cyd", "ann", "bob", "cyd"].into_iter().for_each(|agent| ledger.add(subject(agent), &one()));
        let mut restored = EvidenceLedger::restored(4, ledger.stored().collect()).unwrap();
        restored.entries_max = 3;
        restored.add(subject("dan"), &one());
        assert_eq!(names(&restored), [("bob", 1), ("cyd", 2), ("dan", 1)]);

        let with = |change: fn(&mut Vec<StoredEvidence>)| {
            let mut stored = ledger.stored().collect();
            change(&mut stored);
            EvidenceLedger::restored(4, stored).map(|ledger| ledger.len())
        };
        assert_eq!(with(|_| ()), Ok(3));
        assert_eq!(with(|stored| stored.swap(0, 1)), Err("evidence is not in its order"));
        for added in [0, 3, 5] {
            let twice = "evidence was added at the same time, or later than it can be";
            let changed = |stored: &mut Vec<StoredEvidence>| stored[0].added = added;
            let mut stored = ledger.stored().collect();
            changed(&mut stored);
            assert_eq!(EvidenceLedger::restored(4, stored).err(), Some(twice), "{added}");
        }
    }

    fn names(ledger: &EvidenceLedger) -> Vec<(&str, u64)> {
        ledger.entries().map(|(subject, counts)| (subject.agent.as_str(), counts.runs)).collect()
    }

    fn one() -> EvidenceCounts {
        EvidenceCounts { runs: 1, ..EvidenceCounts::default() }
    }

    fn subject(agent: &str) -> EvidenceSubject {
        EvidenceSubject {
            domain: DomainName::try_new("algebra").unwrap(),
            agent: AgentId::try_new(agent).unwrap(),
            role: EvidenceRole::Panelist,
            initiator: AgentId::try_new("alice").unwrap(),
        }
    }
}
