use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use schemas::{Digest, Timestamp};

use super::*;
use crate::lane::checkpoint::Head;

#[tokio::test]
async fn nothing_is_trimmed_below_a_checkpoint_that_is_stored_and_not_proven() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs.clone());
    let mut seqs = Vec::new();
    for number in 0..10 {
        seqs.push(bus.log.append(Lane(0), Bytes::from(format!("record {number}"))).await.unwrap());
    }
    for (position, record, below_seq) in [(seqs[5], "of another log", 0), (seqs[7], "record 7", seqs[7] - 1)] {
        assert!(store.save(at(position, record)).await.unwrap());
        let mut retention = Retention::new(Trim::AfterCheckpoint, 1, 0);
        let proven = trim_below(&mut retention, &store, &*bus.log, Lane(0)).await.unwrap();
        assert_eq!(proven, (below_seq > 0).then_some(position), "{record}");
        assert_eq!(bus.log.trimmed(Lane(0)).await.unwrap(), below_seq, "{record}");
    }
}

/// A checkpoint of a lane with nothing in it.
fn at(position: u64, record: &str) -> Checkpoint {
    let record = Digest::of_bytes(record.as_bytes());
    let head = Head { lane: Lane(0), position, time: Timestamp(0), record, rules: 1 };
    let (deliveries, writes, refused, aborts, blamed) = Default::default();
    Checkpoint { head, lane_state: Bytes::new(), deliveries, writes, refused, aborts, blamed }
}

#[test]
fn the_log_is_trimmed_below_the_lower_of_what_must_be_durable() {
    use Trim::{AfterArchive, AfterCheckpoint, Never};
    for (trim, checkpoint, archived, expected) in [
        (Never, Some(9_000), Some(9_000), None),
        (AfterCheckpoint, Some(9_000), None, Some(9_000)),
        (AfterCheckpoint, Some(9_000), Some(5_000), Some(9_000)),
        (AfterCheckpoint, None, Some(9_000), None),
        (AfterArchive, Some(9_000), None, None),
        (AfterArchive, None, Some(9_000), None),
        (AfterArchive, Some(9_000), Some(5_000), Some(5_000)),
        (AfterArchive, Some(5_000), Some(9_000), Some(5_000)),
    ] {
        let retention = Retention::new(trim, TRIM_STEP, 0);
        assert_eq!(retention.poll_trim(checkpoint, archived), expected, "{trim:?} {checkpoint:?} {archived:?}");
    }
}

#[test]
fn a_trim_waits_until_it_is_worth_it_and_never_goes_back() {
    let mut retention = Retention::new(Trim::AfterCheckpoint, 100, 50);
    let due = |retention: &Retention, at| retention.poll_trim(Some(at), None);
    assert_eq!(due(&retention, 150), None, "51 to 149 are 99 records");
    assert_eq!(due(&retention, 151), Some(151));
    assert_eq!(due(&retention, 151), Some(151), "again, until the log has done it");
    retention.handle_trimmed(151);
    retention.handle_trimmed(20);
    assert_eq!((due(&retention, 151), due(&retention, 250), due(&retention, 251)), (None, None, Some(251)));
    assert_eq!(due(&Retention::new(Trim::AfterCheckpoint, 0, u64::MAX), u64::MAX), None);
}
