//! The ledger: what ended panels have shown about their members, by domain, agent, role and initiator
//! (docs/spec/panel.md#evidence). Part of the fold's state, so every panel counts once, however many engines there are.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemas::AgentId;
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceSubject, LaneEvidence};
use serde::{Deserialize, Serialize};

/// Most entries of a ledger. At some 250 bytes each, 2^16 are 16 MiB.
pub const EVIDENCE_ENTRIES_MAX: usize = 1 << 16;
/// Most entries about the panels of one initiator: it takes sixteen of them to push out what the panels of others have shown.
pub const EVIDENCE_SHARE_MAX: usize = EVIDENCE_ENTRIES_MAX / 16;

/// The evidence of one lane. Beyond the most entries of one initiator, that one's which was added to longest ago is forgotten;
/// beyond the most entries of all, whichever was.
#[derive(Debug, Clone)]
pub struct EvidenceLedger {
    entries_max: usize,
    share_max: usize,
    entries: BTreeSet<BySubject>,
    /// By when they were added to last, the longest ago first.
    order: BTreeMap<u64, Arc<HeldEvidence>>,
    /// The keys of `order` by initiator; no set is empty.
    shares: BTreeMap<AgentId, BTreeSet<u64>>,
    /// Times anything was added.
    additions: u64,
}

/// An entry, in memory and in snapshots.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldEvidence {
    subject: EvidenceSubject,
    counts: EvidenceCounts,
    /// The number of the last addition.
    added: u64,
}

/// An entry that stands for its subject. What is kept in the nodes of a tree takes half as much again as they are seldom full,
/// so they keep no more than where it is.
#[derive(Debug, Clone)]
struct BySubject(Arc<HeldEvidence>);

impl Borrow<EvidenceSubject> for BySubject {
    fn borrow(&self) -> &EvidenceSubject {
        &self.0.subject
    }
}

impl Ord for BySubject {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.subject.cmp(&other.0.subject)
    }
}

impl PartialOrd for BySubject {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BySubject {
    fn eq(&self, other: &Self) -> bool {
        self.0.subject == other.0.subject
    }
}

impl Eq for BySubject {}

impl Default for EvidenceLedger {
    fn default() -> Self {
        Self::new(EVIDENCE_ENTRIES_MAX, EVIDENCE_SHARE_MAX)
    }
}

impl EvidenceLedger {
    /// An empty ledger of `entries_max` entries at most, and `share_max` of one initiator.
    #[must_use]
    pub fn new(entries_max: usize, share_max: usize) -> Self {
        let (entries, order, shares) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        Self { entries_max, share_max, entries, order, shares, additions: 0 }
    }

    /// Adds what a panel has shown.
    pub fn add(&mut self, subject: EvidenceSubject, shown: &EvidenceCounts) {
        self.additions = self.additions.saturating_add(1);
        let mut counts = EvidenceCounts::default();
        if let Some(BySubject(held)) = self.entries.get(&subject) {
            counts = held.counts;
            self.forget(held.added);
        }
        counts.add(shown);
        self.hold(HeldEvidence { subject, counts, added: self.additions });
    }

    /// Holds an entry, and forgets what is too much then.
    fn hold(&mut self, held: HeldEvidence) {
        let share = self.shares.entry(held.subject.initiator.clone()).or_default();
        share.insert(held.added);
        let over_share = share.first().copied().filter(|_| share.len() > self.share_max);
        let held = Arc::new(held);
        self.order.insert(held.added, Arc::clone(&held));
        self.entries.insert(BySubject(held));
        over_share.into_iter().for_each(|added| self.forget(added));
        let oldest = self.order.first_key_value().map(|(added, _)| *added);
        oldest.filter(|_| self.entries.len() > self.entries_max).into_iter().for_each(|added| self.forget(added));
    }

    /// Forgets the entry that was added to last by the addition of this number.
    fn forget(&mut self, added: u64) {
        let Some(held) = self.order.remove(&added) else { return };
        self.entries.remove(&held.subject);
        if let Some(share) = self.shares.get_mut(&held.subject.initiator) {
            share.remove(&added);
            if share.is_empty() {
                self.shares.remove(&held.subject.initiator);
            }
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
        self.entries.iter().map(|BySubject(held)| (&held.subject, &held.counts))
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
    pub(crate) fn stored(&self) -> impl ExactSizeIterator<Item = HeldEvidence> {
        self.entries.iter().map(|BySubject(held)| HeldEvidence::clone(held))
    }

    /// The ledger a snapshot was taken of.
    ///
    /// # Errors
    /// What contradicts itself in it.
    pub(crate) fn restored(additions: u64, stored: Vec<HeldEvidence>) -> Result<Self, &'static str> {
        let mut ledger = Self { additions, ..Self::default() };
        if stored.len() > ledger.entries_max {
            return Err("the ledger holds too much evidence");
        }
        if !stored.is_sorted_by(|one, next| one.subject < next.subject) {
            return Err("evidence is not in its order");
        }
        let len = stored.len();
        for held in stored {
            if !(1..=additions).contains(&held.added) || ledger.order.contains_key(&held.added) {
                return Err("evidence was added at the same time, or later than it can be");
            }
            ledger.hold(held);
        }
        if ledger.len() != len {
            return Err("the ledger holds too much evidence of one initiator");
        }
        Ok(ledger)
    }
}

#[cfg(test)]
mod tests {
    use schemas::evidence::EvidenceRole;
    use schemas::ids::DomainName;

    use super::*;

    #[test]
    fn what_was_added_to_longest_ago_is_forgotten_first() {
        let mut ledger = EvidenceLedger::new(2, 2);
        for agent in ["ann", "bob", "ann", "cyd"] {
            ledger.add(subject(agent, "alice"), &one());
        }
        assert_eq!(names(&ledger), [("ann", 2), ("cyd", 1)]);
        ledger.add(subject("bob", "alice"), &one());
        assert_eq!(names(&ledger), [("bob", 1), ("cyd", 1)], "what was forgotten begins anew");
        assert_eq!((ledger.len(), ledger.additions()), (2, 5));
    }

    #[test]
    fn an_initiator_with_too_many_entries_loses_its_own_and_nobody_elses() {
        let mut ledger = EvidenceLedger::new(8, 3);
        for (agent, initiator) in [("ann", "alice"), ("bob", "alice"), ("ann", "dora"), ("ann", "alice")] {
            ledger.add(subject(agent, initiator), &one());
        }
        for number in 0..100 {
            ledger.add(subject(&format!("seat-{number}"), "mallory"), &one());
        }
        let shown: Vec<_> =
            ledger.entries().map(|(subject, _)| (subject.agent.as_str(), subject.initiator.as_str())).collect();
        let mallorys = ["seat-97", "seat-98", "seat-99"].map(|agent| (agent, "mallory"));
        assert_eq!(shown, [&[("ann", "alice"), ("ann", "dora"), ("bob", "alice")], &mallorys[..]].concat());
        // With three more of two others the ledger is full: bob's was added to longest ago.
        for initiator in ["erin", "fred", "gwen"] {
            ledger.add(subject("cyd", initiator), &one());
        }
        let initiators: Vec<_> = ledger.entries().map(|(subject, _)| subject.initiator.as_str()).collect();
        assert_eq!(initiators, ["alice", "dora", "erin", "fred", "gwen", "mallory", "mallory", "mallory"]);
    }

    #[test]
    fn a_restored_ledger_forgets_in_the_same_order_and_a_contradiction_is_refused() {
        let mut ledger = EvidenceLedger::default();
        ["cyd", "ann", "bob", "cyd"].into_iter().for_each(|agent| ledger.add(subject(agent, "alice"), &one()));
        for share_max in [3, 4] {
            let mut restored = EvidenceLedger::restored(4, ledger.stored().collect()).unwrap();
            (restored.entries_max, restored.share_max) = (3, share_max);
            restored.add(subject("dan", "alice"), &one());
            assert_eq!(names(&restored), [("bob", 1), ("cyd", 2), ("dan", 1)]);
        }

        let with = |change: fn(&mut Vec<HeldEvidence>)| {
            let mut stored = ledger.stored().collect();
            change(&mut stored);
            EvidenceLedger::restored(4, stored).map(|ledger| ledger.len())
        };
        assert_eq!(with(|_| ()), Ok(3));
        assert_eq!(with(|stored| stored.swap(0, 1)), Err("evidence is not in its order"));
        for added in [0, 3, 5] {
            let twice = "evidence was added at the same time, or later than it can be";
            let changed = |stored: &mut Vec<HeldEvidence>| stored[0].added = added;
            let mut stored = ledger.stored().collect();
            changed(&mut stored);
            assert_eq!(EvidenceLedger::restored(4, stored).err(), Some(twice), "{added}");
        }
    }

    #[test]
    fn a_restored_ledger_with_too_much_of_one_initiator_is_refused() {
        let stored = |entries: u64| -> Vec<HeldEvidence> {
            let of = |added| HeldEvidence { subject: subject(&format!("s{added:05}"), "alice"), counts: one(), added };
            (1..=entries).map(of).collect()
        };
        let share = EVIDENCE_SHARE_MAX as u64;
        assert_eq!(EvidenceLedger::restored(share, stored(share)).map(|ledger| ledger.len()), Ok(EVIDENCE_SHARE_MAX));
        let refused = EvidenceLedger::restored(share + 1, stored(share + 1)).err();
        assert_eq!(refused, Some("the ledger holds too much evidence of one initiator"));
    }

    fn names(ledger: &EvidenceLedger) -> Vec<(&str, u64)> {
        ledger.entries().map(|(subject, counts)| (subject.agent.as_str(), counts.runs)).collect()
    }

    fn one() -> EvidenceCounts {
        EvidenceCounts { runs: 1, ..EvidenceCounts::default() }
    }

    fn subject(agent: &str, initiator: &str) -> EvidenceSubject {
        EvidenceSubject {
            domain: DomainName::try_new("algebra").unwrap(),
            agent: AgentId::try_new(agent).unwrap(),
            role: EvidenceRole::Panelist,
            initiator: AgentId::try_new(initiator).unwrap(),
        }
    }
}
