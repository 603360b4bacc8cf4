mod told;

use std::sync::Arc;

use bus::memory::{self, MemoryOptions};
use futures_util::FutureExt as _;
use proptest::prelude::*;
use schemas::record::Qos;
use schemas::{AgentId, AwardNo, Digest, Lot, MsgId, Timestamp};

use self::told::everything_told;
use super::*;
use crate::lane::Write;
use crate::lane::document::DocumentWriter;
use crate::lane::outbox::fixture::deliver;

#[tokio::test]
async fn a_checkpoint_reads_back_as_it_was_written() {
    let checkpoint = sample();
    let read = Checkpoint::decode(&checkpoint.clone().encode().await.unwrap()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{checkpoint:?}"));
    assert_eq!(documents(&read), documents(&checkpoint), "repeats are the same documents, byte for byte");
    assert!(Arc::ptr_eq(&read.deliveries[0].told, &read.deliveries[1].told), "what was shared is shared again");
    assert_eq!(read.encode().await.unwrap(), checkpoint.encode().await.unwrap());
}

#[tokio::test]
async fn an_empty_lane_has_a_checkpoint_too() {
    let empty = Checkpoint {
        lane_state: Bytes::new(),
        deliveries: vec![],
        writes: vec![],
        refused: vec![],
        aborts: vec![],
        blamed: vec![],
        ..sample()
    };
    let read = Checkpoint::decode(&empty.clone().encode().await.unwrap()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{empty:?}"));
}

#[tokio::test]
async fn a_checkpoint_of_another_format_is_named_as_such() {
    let bytes = sample().encode().await.unwrap();
    let later = seal(bytes[..bytes.len() - TRAILER_LEN + 8].to_vec(), CHECKPOINT_FORMAT + 1).await;
    let error = Checkpoint::decode(&later).unwrap_err();
    assert!(matches!(error, CheckpointError::Format { found: 2, known: 1 }), "{error}");
}

#[tokio::test]
async fn a_checkpoint_of_a_build_before_this_codec_is_none() {
    let mut bytes = sample().encode().await.unwrap().to_vec();
    let end = bytes.len() - CHECKSUM_LEN;
    bytes[end - 8..end].copy_from_slice(b"llmxckpt");
    let checksum = Digest::of_bytes(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.0);
    let error = Checkpoint::decode(&Bytes::from(bytes)).unwrap_err();
    assert!(matches!(error, CheckpointError::NotACheckpoint), "{error}");
}

#[tokio::test]
async fn a_fault_behind_a_right_checksum_is_named_with_its_place() {
    let head = part(&sample().head);
    let behind_head = head.len();
    let delivery = part(&Frame::Delivery(Box::new(deliver(1, "bob"))));
    let text = |tag: u8, text: &str| [part(&tag), part(&text)].concat();
    for (contents, snapshot_len, at, expected) in [
        (vec![], 0, 0, "end of buffer"),
        (head.clone(), 1_000_000, behind_head, "the snapshot is longer than the document"),
        (head.clone(), u64::MAX, behind_head, "the snapshot is longer than the document"),
        (head[..behind_head - 1].to_vec(), 0, 0, "end of buffer"),
        ([head.clone(), delivery.clone()].concat(), 0, behind_head, "a delivery says nothing"),
        ([head.clone(), delivery[..9].to_vec()].concat(), 0, behind_head, "end of buffer"),
        // What is said is no notification; a key is none; a kind of frame there is not.
        ([head.clone(), text(0, "{}")].concat(), 0, behind_head, "Deserialization Error"),
        ([head.clone(), text(3, "award.alice")].concat(), 0, behind_head, "Deserialization Error"),
        ([head.clone(), text(6, "closed.alice~job")].concat(), 0, behind_head, "Deserialization Error"),
        // A text of 2^63 bytes.
        (
            [head.clone(), vec![0, 255, 255, 255, 255, 255, 255, 255, 255, 127]].concat(),
            0,
            behind_head,
            "end of buffer",
        ),
    ] {
        let bytes = seal([contents, u64::to_be_bytes(snapshot_len).to_vec()].concat(), CHECKPOINT_FORMAT).await;
        let error = Checkpoint::decode(&bytes).unwrap_err();
        assert!(matches!(error, CheckpointError::Malformed { at: found, .. } if found == at), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_checkpoint_says_which_keys_were_refused() {
    let checkpoint = sample();
    let refused = checkpoint.refused.clone();
    assert_eq!(refused_keys(&checkpoint.encode().await.unwrap()).unwrap(), refused);
}

#[tokio::test]
async fn a_store_keeps_the_latest_checkpoint_of_each_lane() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs);
    assert!(store.load(Lane(1)).await.unwrap().is_none());
    assert_eq!(store.position(Lane(1)).await.unwrap(), None);
    for (position, is_stored, latest) in [(42, true, 42), (41, false, 42), (43, true, 43), (43, true, 43)] {
        assert_eq!(store.save(at(Lane(1), position)).await.unwrap(), is_stored, "{position}");
        assert_eq!(store.position(Lane(1)).await.unwrap(), Some(latest));
        assert_eq!(store.load(Lane(1)).await.unwrap().unwrap().head.position, latest);
    }
    assert!(store.load(Lane(0)).await.unwrap().is_none());
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_the_store() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs.clone());
    bus.blobs.put("checkpoint-0".to_owned(), 1, sample().encode().await.unwrap()).await.unwrap();
    let is_other =
        |error: &CheckpointError| matches!(error, CheckpointError::OtherLane { found: Lane(1), wanted: Lane(0) });
    assert!(is_other(&store.load(Lane(0)).await.unwrap_err()));
    assert!(is_other(&store.proven(Lane(0), &*bus.log).await.unwrap_err()));
    bus.blobs.put("checkpoint-1".to_owned(), 1, Bytes::from_static(b"{}")).await.unwrap();
    assert!(matches!(store.load(Lane(1)).await, Err(CheckpointError::NotACheckpoint)));
    assert!(matches!(store.proven(Lane(1), &*bus.log).await, Err(CheckpointError::NotACheckpoint)));
}

#[tokio::test]
async fn a_checkpoint_is_proven_by_the_record_it_stands_at() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs);
    let mut seqs = Vec::new();
    for record in ["one", "two", "three"] {
        seqs.push(bus.log.append(Lane(1), Bytes::from(record)).await.unwrap());
    }
    assert_eq!(store.proven(Lane(1), &*bus.log).await.unwrap(), None, "there is none");
    for (position, record, is_ours) in [(seqs[1], "two", true), (seqs[2], "other", false), (seqs[2] + 7, "four", false)]
    {
        let mut checkpoint = at(Lane(1), position);
        checkpoint.head.record = Digest::of_bytes(record.as_bytes());
        assert!(store.save(checkpoint).await.unwrap());
        let proven = store.proven(Lane(1), &*bus.log).await.unwrap();
        assert_eq!(proven, is_ours.then_some(position), "{position} {record}");
    }
}

#[tokio::test]
async fn a_checkpoint_whose_record_was_trimmed_is_proven_only_if_it_was_the_last_that_went() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs);
    let mut seqs = Vec::new();
    for record in ["one", "two", "three"] {
        seqs.push(bus.log.append(Lane(1), Bytes::from(record)).await.unwrap());
    }
    bus.log.trim(Lane(1), seqs[2]).await.unwrap();
    for (position, is_whole) in [(seqs[0], false), (seqs[1], true)] {
        assert!(store.save(at(Lane(1), position)).await.unwrap());
        assert_eq!(store.proven(Lane(1), &*bus.log).await.unwrap(), is_whole.then_some(position), "{position}");
    }
}

#[tokio::test]
async fn the_archivers_position_is_read_as_it_writes_it() {
    let bus = memory::open(MemoryOptions::default());
    let store = CheckpointStore::new(bus.blobs.clone());
    assert_eq!(store.archived(Lane(3)).await.unwrap(), None);
    bus.blobs.put("archived-3".to_owned(), 17, Bytes::from_static(b"{\"position\":17}")).await.unwrap();
    assert_eq!(
        store.archived(Lane(3)).await.unwrap(),
        Some((17, 0)),
        "an archiver of an earlier build says nothing of the register"
    );
    let both = Bytes::from_static(b"{\"position\":18,\"registered\":12}");
    bus.blobs.put("archived-3".to_owned(), 18, both).await.unwrap();
    assert_eq!(store.archived(Lane(3)).await.unwrap(), Some((18, 12)));
    bus.blobs.put("archived-3".to_owned(), 18, Bytes::from_static(b"18")).await.unwrap();
    assert!(store.archived(Lane(3)).await.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Checkpoint::decode(&Bytes::from(bytes)).is_err());
    }

    #[test]
    fn one_altered_bit_anywhere_is_found(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = written();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let error = Checkpoint::decode(&Bytes::from(bytes)).unwrap_err();
        prop_assert!(!matches!(error, CheckpointError::Malformed { .. }), "{}", error);
    }

    #[test]
    fn one_that_was_cut_short_or_continued_is_refused(len in any::<prop::sample::Index>(), tail in 1..64_usize) {
        let bytes = written();
        prop_assert!(Checkpoint::decode(&Bytes::copy_from_slice(&bytes[..len.index(bytes.len())])).is_err());
        prop_assert!(Checkpoint::decode(&Bytes::from([bytes, vec![b'x'; tail]].concat())).is_err());
    }

    /// Frames that are cut between two of them are fewer frames: the head says nothing of their number.
    #[test]
    fn one_cut_short_under_a_right_checksum_holds_the_beginning_or_is_refused(len in any::<prop::sample::Index>()) {
        let (bytes, whole) = (written(), sample());
        let (begin, end) = (whole.lane_state.len(), bytes.len() - TRAILER_LEN);
        let cut = [&bytes[..begin + len.index(end - begin)], &bytes[end..end + 8]].concat();
        if let Ok(read) = Checkpoint::decode(&block_on(seal(cut, CHECKPOINT_FORMAT))) {
            prop_assert_eq!(&read.head, &whole.head);
            prop_assert!(read.deliveries.len() <= whole.deliveries.len() && read.blamed.is_empty());
        }
    }

    #[test]
    fn nothing_panics_behind_a_right_checksum(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let bytes = written();
        let mut contents = bytes[..bytes.len() - TRAILER_LEN + 8].to_vec();
        for (at, byte) in changes {
            let at = at.index(contents.len());
            contents[at] = byte;
        }
        let _ = Checkpoint::decode(&block_on(seal(contents, CHECKPOINT_FORMAT)));
    }
}

fn part(part: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(part, Vec::new()).unwrap()
}

fn written() -> Vec<u8> {
    block_on(sample().encode()).unwrap().to_vec()
}

/// What waits here waits only to let others run.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Some(output) = future.as_mut().now_or_never() {
            return output;
        }
    }
}

fn documents(checkpoint: &Checkpoint) -> Vec<Vec<u8>> {
    let mut writer = DocumentWriter::default();
    let write = |deliver| {
        let mut out = Vec::new();
        writer.write(deliver, &mut out).unwrap();
        out
    };
    checkpoint.deliveries.iter().map(write).collect()
}

fn at(lane: Lane, position: u64) -> Checkpoint {
    let sample = sample();
    Checkpoint { head: Head { lane, position, ..sample.head }, ..sample }
}

/// A checkpoint with something of everything.
fn sample() -> Checkpoint {
    let negotiation = NegotiationId::try_new("alice~job").unwrap();
    let key = RegisterKey::Award(negotiation.clone(), Lot(0), AwardNo(1));
    let mut deliveries = vec![deliver(1, "bob"), deliver(2, "carol")];
    deliveries[1].told = Arc::clone(&deliveries[0].told);
    for (number, told) in (3..).zip(everything_told()) {
        let mut deliver = deliver(number, "bob");
        deliver.told = Arc::new(told);
        deliver.from = (number % 2 == 0).then(|| AgentId::try_new("alice").unwrap());
        deliver.in_reply_to = (number % 3 == 0).then(|| MsgId::try_new("m-1").unwrap());
        deliver.qos = if number % 5 == 0 { Qos::BestEffort } else { Qos::AtLeastOnce };
        deliver.after = (number % 4 == 0).then(|| key.clone());
        deliver.traceparent = (number % 7 < 3).then(|| Arc::from("00-\"quoted\"-01"));
        deliver.expires = Timestamp::MAX;
        deliveries.push(deliver);
    }
    let write = |key: RegisterKey| Write { key, value: Bytes::from("{\"closed\":{\"text\":\"é \\\"\"}}") };
    let pending = |key, after, seq, is_contested| {
        let at = Timestamp(1_700_000_000_000_000 + seq);
        PendingWrite { write: write(key), after, seq, at, is_contested }
    };
    Checkpoint {
        head: Head {
            lane: Lane(1),
            position: u64::MAX - 1,
            time: Timestamp(1_700_000_000_123_456),
            record: Digest([9; 32]),
            rules: 1,
        },
        lane_state: Bytes::from((0..=255).collect::<Vec<u8>>()),
        deliveries,
        writes: vec![
            pending(key.clone(), None, 7, false),
            pending(RegisterKey::AwardEnd(negotiation.clone(), Lot(0), AwardNo(1)), Some(key.clone()), 8, true),
        ],
        refused: vec![key, RegisterKey::Closed(negotiation.clone())],
        aborts: vec![(negotiation.clone(), AbortCode::Internal), (negotiation.clone(), AbortCode::RegisterConflict)],
        blamed: vec![negotiation],
    }
}
