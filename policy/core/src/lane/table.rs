//! Where the negotiations of a lane stand: open ones with their next timer, ended ones as tombstones until those are
//! dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use indexmap::IndexMap;
use schemas::ids::FamilyPlace;
use schemas::{Digest, NegotiationId, Timestamp};

use super::shared::Policies;
use crate::limits::Limits;
use crate::negotiation::protocols::{Negotiation, TableEntry, Timer, TimerKind};
use schemas::protocols::{Phase, Protocol};

/// Key of a negotiation: the first 128 bits of the SHA-256 of its id. Initiators choose ids, so the key must not be one
/// they can make collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    // Two words rather than one number of 16 bytes, which would be aligned to as many and pad what it stands in.
    high: u64,
    low: u64,
}

impl Key {
    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        let (words, _) = bytes.as_chunks();
        let [high, low] = [words[0], words[1]].map(u64::from_be_bytes);
        Self { high, low }
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.high.to_be_bytes());
        bytes[8..].copy_from_slice(&self.low.to_be_bytes());
        bytes
    }

    pub(super) fn of(negotiation: &NegotiationId) -> Self {
        Self::of_text(negotiation.as_str())
    }

    /// That of the root of its family.
    fn of_root(negotiation: &NegotiationId) -> Self {
        Self::of_text(negotiation.root())
    }

    fn of_text(negotiation: &str) -> Self {
        Self::from_bytes(Digest::of_bytes(negotiation.as_bytes()).short())
    }
}

/// Every negotiation of a lane.
#[derive(Debug)]
pub(super) struct NegotiationTable {
    /// Looked up only, never iterated: no order of it is ever seen.
    entries_by_key: IndexMap<Key, TableEntry, BuildHasherDefault<KeyHasher>>,
    /// One entry per open negotiation: its next timer.
    timers: BTreeSet<(Timestamp, TimerKind, Key)>,
    /// The timers in the queue, if any, of negotiations for which it is not the one that follows from their state: it was just
    /// taken out, or an input is under way, or one ended in a panic.
    unsettled: Vec<(Key, Option<Timer>)>,
    /// When each tombstone is dropped.
    expiries: BTreeSet<(Timestamp, Key)>,
    /// Sum of the hash chains of everything held, kept up to date so that the state digest costs nothing.
    chains: u128,
    /// Open negotiations below a root, by the key of that.
    below_by_root: BTreeMap<Key, usize>,
    pub(super) policies: Policies,
    pub(super) expired: ExpiredIds,
    limits: Limits,
}

impl NegotiationTable {
    pub(super) fn new(limits: Limits) -> Self {
        Self::with_capacity(limits, 0)
    }

    /// Empty, with room for as many negotiations.
    pub(super) fn with_capacity(limits: Limits, entries: usize) -> Self {
        Self {
            entries_by_key: IndexMap::with_capacity_and_hasher(entries, BuildHasherDefault::default()),
            timers: BTreeSet::new(),
            unsettled: Vec::new(),
            expiries: BTreeSet::new(),
            chains: 0,
            below_by_root: BTreeMap::new(),
            policies: Policies::default(),
            expired: ExpiredIds::default(),
            limits,
        }
    }

    pub(super) fn entry(&self, key: Key) -> Option<&TableEntry> {
        self.entries_by_key.get(&key)
    }

    /// Open negotiations of the family an id is in.
    pub(super) fn family_open_count(&self, negotiation: &NegotiationId) -> usize {
        let root = Key::of_root(negotiation);
        let is_root_open = matches!(self.entries_by_key.get(&root), Some(TableEntry::Open(..)));
        self.below_by_root.get(&root).copied().unwrap_or(0) + usize::from(is_root_open)
    }

    pub(super) fn open_count(&self) -> usize {
        self.entries_by_key.len() - self.expiries.len()
    }

    pub(super) fn open_phases(&self) -> impl Iterator<Item = (Protocol, Phase)> + '_ {
        self.entries_by_key.values().filter_map(|entry| match entry {
            TableEntry::Open(open) => Some((open.protocol(), open.phase())),
            TableEntry::Ended(_) => None,
        })
    }

    pub(super) fn tombstone_count(&self) -> usize {
        self.expiries.len()
    }

    pub(super) fn chains(&self) -> u128 {
        self.chains
    }

    pub(super) fn first_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(deadline, _, _)| *deadline)
    }

    /// Takes the first timer whose deadline lies before `now`. Its negotiation gets the next one by
    /// [`NegotiationTable::with_entry`].
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<(Timestamp, TimerKind, Key)> {
        self.timers.first().filter(|(deadline, _, _)| *deadline < now)?;
        let due = self.timers.pop_first()?;
        self.unsettled.push((due.2, None));
        Some(due)
    }

    /// Adds a negotiation that has just been opened.
    pub(super) fn add(&mut self, key: Key, open: Negotiation) {
        self.put(key, TableEntry::Open(open));
    }

    /// Every entry, in the order of the keys.
    pub(super) fn entries_in_order(&self) -> Vec<&TableEntry> {
        let mut entries: Vec<(&Key, &TableEntry)> = self.entries_by_key.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| **key);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Puts an entry under a key that is free, with all that follows from it.
    pub(super) fn put(&mut self, key: Key, entry: TableEntry) {
        self.chains = self.chains.wrapping_add(weight(entry.chain()));
        match &entry {
            TableEntry::Open(open) => {
                open.policies().into_iter().for_each(|policy| self.policies.retain(policy));
                if open.header().id.place() != FamilyPlace::Root {
                    *self.below_by_root.entry(Key::of_root(&open.header().id)).or_default() += 1;
                }
                self.rearm(key, None, open.next_timer());
            }
            TableEntry::Ended(tombstone) => {
                self.expiries.insert((tombstone.expires_at, key));
            }
        }
        self.entries_by_key.insert(key, entry);
    }

    /// Runs an input against whatever stands under a key, and keeps timers, chains and tombstones in step.
    pub(super) fn with_entry<R>(&mut self, key: Key, input: impl FnOnce(&mut TableEntry) -> R) -> Option<R> {
        let noted = self.unsettled.iter().position(|(unsettled, _)| *unsettled == key);
        let noted = noted.map(|index| self.unsettled.swap_remove(index).1);
        let entry = self.entries_by_key.get_mut(&key)?;
        let before = entry.chain();
        let armed = noted.unwrap_or_else(|| entry.next_timer());
        // Stays where the input ends in a panic, after which nothing tells which timer is in the queue.
        self.unsettled.push((key, armed));
        let result = input(entry);
        self.chains = self.chains.wrapping_sub(weight(before)).wrapping_add(weight(entry.chain()));
        if let TableEntry::Open(open) = entry {
            let next = open.next_timer();
            let ended = open.header().outcome.is_some().then(|| {
                let policies: Vec<Digest> = open.policies().into_iter().map(|policy| policy.digest).collect();
                (policies, open.tombstone(&self.limits))
            });
            if let Some((policies, tombstone)) = ended {
                if tombstone.id.place() != FamilyPlace::Root {
                    drop_one(&mut self.below_by_root, Key::of_root(&tombstone.id));
                }
                policies.into_iter().for_each(|policy| self.policies.release(policy));
                self.expiries.insert((tombstone.expires_at, key));
                *entry = TableEntry::Ended(Box::new(tombstone));
            }
            self.rearm(key, armed, next);
            if self.expiries.len() > self.limits.tombstones_max {
                self.bury_first();
            }
        }
        self.unsettled.pop();
        Some(result)
    }

    /// Drops the tombstones whose time has passed.
    pub(super) fn drop_expired(&mut self, now: Timestamp) {
        while self.expiries.first().is_some_and(|(expires_at, _)| *expires_at < now) {
            self.bury_first();
        }
    }

    fn bury_first(&mut self) {
        if let Some((_, key)) = self.expiries.pop_first()
            && let Some(entry) = self.entries_by_key.swap_remove(&key)
        {
            self.chains = self.chains.wrapping_sub(weight(entry.chain()));
            self.expired.add(key);
        }
    }

    fn rearm(&mut self, key: Key, earlier: Option<Timer>, next: Option<Timer>) {
        if earlier != next {
            if let Some((deadline, kind)) = earlier {
                let was_there = self.timers.remove(&(deadline, kind, key));
                debug_assert!(was_there, "the timer of a negotiation stands in the queue");
            }
            if let Some((deadline, kind)) = next {
                self.timers.insert((deadline, kind, key));
            }
        }
    }
}

impl TableEntry {
    /// The timer that stands for it in the queue.
    fn next_timer(&self) -> Option<Timer> {
        match self {
            Self::Open(open) => open.next_timer(),
            Self::Ended(_) => None,
        }
    }

    /// Where it stands.
    pub(super) fn key(&self) -> Key {
        match self {
            Self::Open(open) => Key::of(&open.header().id),
            Self::Ended(tombstone) => Key::of(&tombstone.id),
        }
    }

    fn chain(&self) -> Digest {
        match self {
            Self::Open(open) => open.header().chain,
            Self::Ended(tombstone) => tombstone.chain,
        }
    }
}

/// One open negotiation below a root is no longer open.
fn drop_one(below_by_root: &mut BTreeMap<Key, usize>, root: Key) {
    debug_assert!(below_by_root.get(&root) > Some(&0), "what closes was counted below its root");
    if let Some(count) = below_by_root.get_mut(&root) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            below_by_root.remove(&root);
        }
    }
}

fn weight(chain: Digest) -> u128 {
    u128::from_be_bytes(chain.short())
}

/// Takes half of a key as its hash: keys are hashes already. No seed, so every engine does the same.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// Keys kept; the oldest goes first. At some 40 bytes each they take 40 MiB of a lane, and at 250 negotiations a second
/// last for more than an hour after their tombstones: no retry of a call takes that long.
const EXPIRED_MAX: usize = 1 << 20;

/// Which negotiations have been: of those whose tombstones are gone, the key is kept, so that a call which arrives late
/// cannot open one again. A negotiation has one end.
#[derive(Debug, Default)]
pub(crate) struct ExpiredIds {
    keys: BTreeSet<Key>,
    /// The same, oldest first.
    order: VecDeque<Key>,
}

impl ExpiredIds {
    pub(super) fn add(&mut self, key: Key) {
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > EXPIRED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Oldest first.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = Key> + '_ {
        self.order.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::effect::Effect;
    use crate::lane::LaneState;
    use schemas::Lane;
    use schemas::delivery::{Disposition, Notification};
    use schemas::record::Record;
    use serde_json::json;

    #[test]
    fn nothing_is_left_of_a_negotiation_once_its_tombstone_is_dropped() {
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.handle_record(1, Timestamp::from_ms(1), &called("alice~job"));
        let table = &lane_state.table;
        assert_eq!(
            (table.open_count(), table.timers.len(), table.policies.in_use().len(), table.chains == 0),
            (1, 1, 1, false)
        );
        lane_state.handle_record(2, Timestamp::from_ms(20_000), &ticked());
        let table = &lane_state.table;
        assert_eq!(
            (table.open_count(), table.timers.len(), table.policies.in_use().len(), table.expiries.len()),
            (0, 0, 0, 1)
        );
        lane_state.handle_record(3, Timestamp::from_ms(200_000), &ticked());
        let table = &lane_state.table;
        assert_eq!((table.entries_by_key.len(), table.expiries.len(), table.chains), (0, 0, 0));
    }

    /// An engine goes on after a panic that one negotiation is to blame for, and aborts that one.
    #[test]
    fn no_other_timer_is_left_of_a_negotiation_whose_input_ended_in_a_panic() {
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.handle_record(1, Timestamp::from_ms(1), &called("alice~job"));
        lane_state.handle_record(2, Timestamp::from_ms(5_000), &called("alice~other"));
        let ids = ["alice~job", "alice~other"].map(|id| NegotiationId::try_new(id).unwrap());
        let [job, other] = ids.each_ref().map(Key::of);
        let table = &mut lane_state.table;
        let Some(TableEntry::Open(later)) = table.entries_by_key.swap_remove(&other) else { panic!("it is open") };
        let next = later.next_timer();
        let timers = |table: &NegotiationTable| -> Vec<Timer> {
            let of_job = table.timers.iter().filter(|(_, _, key)| *key == job);
            of_job.map(|(deadline, kind, _)| (*deadline, *kind)).collect()
        };
        // The input has moved the deadline when it fails.
        let failed = catch_unwind(AssertUnwindSafe(|| {
            table.with_entry(job, |entry| {
                *entry = TableEntry::Open(later);
                panic!("at the end of the input");
            })
        }));
        assert!(failed.is_err());
        assert_ne!(timers(table).first().copied(), next);
        table.with_entry(job, |_| {});
        assert_eq!((timers(table), table.unsettled.len()), (Vec::from_iter(next), 0));
    }

    #[test]
    fn a_timer_whose_input_ends_in_a_panic_does_not_fire_again() {
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        lane_state.handle_record(1, Timestamp::from_ms(1), &called("alice~job"));
        let table = &mut lane_state.table;
        let (_, _, key) = table.pop_due(Timestamp::from_ms(20_000)).expect("a timer is due");
        let failed = catch_unwind(AssertUnwindSafe(|| table.with_entry(key, |_| panic!("it cannot fire"))));
        assert!(failed.is_err());
        assert_eq!(table.pop_due(Timestamp::from_ms(20_000)), None);
    }

    #[test]
    fn a_call_that_comes_when_its_tombstone_is_gone_is_told_closed_and_opens_nothing() {
        let mut lane_state = LaneState::new(Lane(0), Limits::default());
        for (seq, ms, record) in [(1, 1, called("alice~job")), (2, 20_000, ticked()), (3, 200_000, ticked())] {
            lane_state.handle_record(seq, Timestamp::from_ms(ms), &record);
            while lane_state.poll_effect().is_some() {}
        }
        let restored = LaneState::restore(&lane_state.snapshot(), Lane(0), Limits::default()).unwrap();
        for mut lane_state in [lane_state, restored] {
            lane_state.handle_record(4, Timestamp::from_ms(200_001), &called("alice~job"));
            let told: Vec<_> = std::iter::from_fn(|| lane_state.poll_effect())
                .filter_map(|effect| if let Effect::Deliver(delivery) = effect { Some(delivery.told) } else { None })
                .collect();
            let [receipt] = told.as_slice() else { panic!("{told:?}") };
            assert!(
                matches!(&**receipt, Notification::Ack(receipt) if receipt.disposition == Disposition::Closed),
                "{receipt:?}"
            );
            assert_eq!((lane_state.open_count(), lane_state.tombstone_count()), (0, 0));
        }
    }

    #[test]
    fn the_oldest_tombstone_makes_room_for_the_newest() {
        let mut lane_state = LaneState::new(Lane(0), Limits { tombstones_max: 1, ..Limits::default() });
        for (seq, id) in [(1, "alice~one"), (2, "alice~two")] {
            lane_state.handle_record(seq, Timestamp::from_ms(seq * 20_000), &called(id));
        }
        lane_state.handle_record(3, Timestamp::from_ms(60_001), &ticked());
        let alice = schemas::AgentId::try_new("alice").unwrap();
        let is_known = |id| lane_state.view(&NegotiationId::try_new(id).unwrap(), &alice).is_some();
        assert_eq!((is_known("alice~one"), is_known("alice~two"), lane_state.tombstone_count()), (false, true, 1));
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
