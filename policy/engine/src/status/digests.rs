//! State digests, exchanged by the engines of a lane: two that hold the same records must hold the same state
//! (docs/spec/log.md#lg-29).
//!
//! Every engine notes the digest at the first record at or after each multiple of so many sequences: the same record on
//! each of them, wherever it began to read. Recent points travel in the heartbeats; each engine compares those of its
//! peers with its own, or keeps them until it gets there.

use std::collections::{BTreeMap, VecDeque};

use bus::LogRecord;
use policy_core::LaneState;

use super::{DigestPoint, StopReason};

/// Own points kept to be compared: a peer this many points behind is still checked.
const OWN_MAX: usize = 256;
/// Points of peers kept until this engine gets there; beyond, the farthest go first.
const AWAITED_MAX: usize = 256;

/// The points of one lane. Bounded by named constants.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    every: u64,
    position: u64,
    own: VecDeque<DigestPoint>,
    /// By position and engine.
    awaited: BTreeMap<(u64, String), DigestPoint>,
}

impl Digests {
    /// For a state that stands at a record: 0 at the beginning, otherwise a checkpoint's. Points lie `every` sequences
    /// apart, at least 1.
    pub(crate) fn new(position: u64, every: u64) -> Self {
        Self { every: every.max(1), position, ..Self::default() }
    }

    /// Takes note of a folded record and the state after it; tells a peer that came to another. The digest is computed only
    /// where it is noted.
    pub(crate) fn note(&mut self, record: &LogRecord, state: &LaneState) -> Option<StopReason> {
        let point = self.is_due(record.seq).then(|| DigestPoint {
            position: record.seq,
            stamped: record.stamped,
            rules: state.rules(),
            digest: state.digest(),
        });
        self.note_point(record.seq, point)
    }

    /// Whether the record just folded is one whose digest is noted.
    fn is_due(&self, position: u64) -> bool {
        position / self.every > self.position / self.every
    }

    fn note_point(&mut self, position: u64, point: Option<DigestPoint>) -> Option<StopReason> {
        debug_assert!(position >= self.position, "records are folded in order");
        self.position = position;
        let point = point?;
        self.own.push_back(point);
        if self.own.len() > OWN_MAX {
            self.own.pop_front();
        }
        let later = self.awaited.split_off(&(point.position + 1, String::new()));
        let reached = std::mem::replace(&mut self.awaited, later);
        reached.into_iter().find_map(|((_, engine), theirs)| mismatch(&engine, point, theirs))
    }

    /// The latest points, at most `count`, oldest first: for the heartbeat.
    pub(crate) fn recent(&self, count: usize) -> Vec<DigestPoint> {
        self.own.iter().skip(self.own.len().saturating_sub(count)).copied().collect()
    }

    /// Compares a peer's points with ours; those we have not reached yet are compared when we do.
    pub(crate) fn compare(&mut self, engine: &str, points: &[DigestPoint]) -> Option<StopReason> {
        let mut found = None;
        for theirs in points {
            if theirs.position > self.position {
                self.awaited.insert((theirs.position, engine.to_owned()), *theirs);
                if self.awaited.len() > AWAITED_MAX {
                    self.awaited.pop_last();
                }
            } else if let Ok(index) = self.own.binary_search_by_key(&theirs.position, |own| own.position) {
                found = found.or_else(|| mismatch(engine, self.own[index], *theirs));
            }
        }
        found
    }
}

/// Two engines that folded the same records to different states.
fn mismatch(engine: &str, ours: DigestPoint, theirs: DigestPoint) -> Option<StopReason> {
    let question = |point: DigestPoint| (point.position, point.stamped, point.rules);
    let is_same_question = question(ours) == question(theirs);
    (is_same_question && ours.digest != theirs.digest).then(|| StopReason::DigestMismatch {
        engine: engine.to_owned(),
        position: ours.position,
        ours: ours.digest.to_string(),
        theirs: theirs.digest.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use schemas::{Digest, Timestamp};

    use super::*;

    const DIGEST_EVERY: u64 = 1024;

    #[test]
    fn the_first_record_at_or_after_each_multiple_is_noted() {
        for (start, seqs, expected) in [
            (0, vec![1, 500, 1023, 1024, 1025, 2047, 2050, 5000, 5001], vec![1024, 2050, 5000]),
            (0, vec![1030, 1031, 2048], vec![1030, 2048]),
            (1023, vec![1024], vec![1024]),
            (1024, vec![1025, 2049], vec![2049]),
            (1030, vec![1031, 2048], vec![2048]),
        ] {
            let mut digests = Digests::new(start, DIGEST_EVERY);
            let due = |seq: &u64| note(&mut digests, *seq, 0).0;
            assert_eq!(seqs.iter().copied().filter(due).collect::<Vec<_>>(), expected, "from {start}");
        }
    }

    #[test]
    fn only_the_same_position_under_the_same_rules_is_compared() {
        let theirs = |position, rules, state| DigestPoint { rules, ..point(position, state) };
        for (point, is_mismatch) in [
            (theirs(1024, 1, 7), false),
            (theirs(1024, 1, 8), true),
            (theirs(1024, 2, 8), false),
            (theirs(1025, 1, 8), false),
            (theirs(100, 1, 8), false),
            (DigestPoint { stamped: Timestamp(1), ..theirs(1024, 1, 8) }, false),
        ] {
            let mut behind = Digests::new(0, DIGEST_EVERY);
            assert_eq!(behind.compare("engine-2", &[point]), None, "not reached yet");
            let late = note(&mut behind, 1024, 7).1;
            let mut ahead = Digests::new(0, DIGEST_EVERY);
            note(&mut ahead, 1024, 7);
            note(&mut ahead, 1026, 7);
            let early = ahead.compare("engine-2", &[point]);
            let expected = is_mismatch.then(|| StopReason::DigestMismatch {
                engine: "engine-2".to_owned(),
                position: 1024,
                ours: digest(7).to_string(),
                theirs: digest(8).to_string(),
            });
            assert_eq!((&late, &early), (&expected, &expected), "{point:?}");
        }
    }

    #[test]
    fn one_of_several_points_and_peers_is_enough() {
        let mut digests = Digests::new(0, DIGEST_EVERY);
        let points = [1, 2, 3].map(|n| point(n * 1024, u8::from(n == 2)));
        assert_eq!(digests.compare("engine-3", &points[..1]), None);
        assert_eq!(digests.compare("engine-2", &points), None);
        let found: Vec<_> = (1..=3).filter_map(|n| note(&mut digests, n * 1024, 0).1).collect();
        assert!(matches!(found[..], [StopReason::DigestMismatch { position: 2048, .. }]), "{found:?}");
        assert_eq!(digests.compare("engine-2", &points), Some(found[0].clone()));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_latest_points_are_told() {
        let mut digests = Digests::new(0, DIGEST_EVERY);
        for n in 1..=1000 {
            digests.compare("engine-2", &[point(10_000_000 + n, 0)]);
            note(&mut digests, n * DIGEST_EVERY, 0);
        }
        assert_eq!((digests.own.len(), digests.awaited.len()), (OWN_MAX, AWAITED_MAX));
        assert!(digests.awaited.contains_key(&(10_000_001, "engine-2".to_owned())), "the nearest stay");
        let recent: Vec<_> = digests.recent(2).iter().map(|point| point.position).collect();
        assert_eq!(recent, [999 * DIGEST_EVERY, 1000 * DIGEST_EVERY]);
    }

    /// Notes a record as a lane does.
    fn note(digests: &mut Digests, position: u64, state: u8) -> (bool, Option<StopReason>) {
        let is_due = digests.is_due(position);
        let due = is_due.then(|| point(position, state));
        (is_due, digests.note_point(position, due))
    }

    fn point(position: u64, state: u8) -> DigestPoint {
        DigestPoint { position, stamped: Timestamp(position), rules: 1, digest: digest(state) }
    }

    fn digest(state: u8) -> Digest {
        Digest([state; 32])
    }
}
