//! The log keeps one order per lane, the same for every reader, and says so when it is full.

use bus::BusError;
use bytes::Bytes;
use futures_util::{FutureExt, future};
use schemas::Lane;
use schemas::record::RECORD_BYTES_MAX;

use crate::{Backend, append_numbered, contract, next, numbered, numbers, take};

contract!(
    a_reader_sees_what_stands_and_then_what_follows_in_order,
    a_reader_starts_at_the_position_asked_for,
    a_reader_that_starts_beyond_the_end_waits_for_that_position,
    two_readers_see_the_same_sequences_times_and_bytes,
    lanes_do_not_mix,
    every_concurrent_append_stands_once_where_it_was_acknowledged,
    times_never_go_back,
    the_last_sequence_of_a_lane_is_known,
    a_full_log_refuses_and_stores_nothing,
    a_record_too_large_is_refused_and_the_largest_is_not,
    a_lane_that_does_not_exist_is_refused,
);

async fn a_reader_sees_what_stands_and_then_what_follows_in_order(backend: Backend) {
    let opened = backend.open().await;
    let before = append_numbered(&opened.bus, Lane(1), 0..5).await;
    let mut reader = opened.bus.log.read(Lane(1), 1).await.unwrap();
    let after = append_numbered(&opened.bus, Lane(1), 5..10).await;
    let records = take(&mut reader, 10).await;
    assert_eq!(numbers(&records), (0..10).collect::<Vec<_>>());
    assert_eq!(records.iter().map(|record| record.seq).collect::<Vec<_>>(), [before, after].concat());
    assert!(records.iter().all(|record| record.lane == Lane(1)));
    assert!(reader_is_idle(&mut reader).await);
}

async fn a_reader_starts_at_the_position_asked_for(backend: Backend) {
    let opened = backend.open().await;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..8).await;
    let mut reader = opened.bus.log.read(Lane(0), seqs[5]).await.unwrap();
    assert_eq!(numbers(&take(&mut reader, 3).await), [5, 6, 7]);
}

async fn a_reader_that_starts_beyond_the_end_waits_for_that_position(backend: Backend) {
    let opened = backend.open().await;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..2).await;
    let mut reader = opened.bus.log.read(Lane(0), seqs[1] + 2).await.unwrap();
    append_numbered(&opened.bus, Lane(0), 2..5).await;
    assert_eq!(numbers(&take(&mut reader, 2).await), [3, 4]);
}

async fn two_readers_see_the_same_sequences_times_and_bytes(backend: Backend) {
    let opened = backend.open().await;
    let mut early = opened.bus.log.read(Lane(2), 0).await.unwrap();
    append_numbered(&opened.bus, Lane(2), 0..50).await;
    let mut late = opened.bus.log.read(Lane(2), 0).await.unwrap();
    let (early, late) = (take(&mut early, 50).await, take(&mut late, 50).await);
    for (one, other) in early.iter().zip(&late) {
        assert_eq!((one.seq, one.time, &one.bytes), (other.seq, other.time, &other.bytes));
    }
}

async fn lanes_do_not_mix(backend: Backend) {
    let opened = backend.open().await;
    let mut seqs = Vec::new();
    for number in 0..20 {
        let lane = Lane(u8::try_from(number % 4).unwrap());
        seqs.push(opened.bus.log.append(lane, numbered(number)).await.unwrap());
    }
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), 20, "a sequence belongs to one record of one lane");
    for lane in 0..4_u8 {
        let mut reader = opened.bus.log.read(Lane(lane), 1).await.unwrap();
        let expected: Vec<u32> = (0..20).filter(|number| number % 4 == u32::from(lane)).collect();
        assert_eq!(numbers(&take(&mut reader, 5).await), expected);
    }
}

async fn every_concurrent_append_stands_once_where_it_was_acknowledged(backend: Backend) {
    let opened = backend.open().await;
    let tasks = (0..8_u32).map(|writer| {
        let bus = opened.bus.clone();
        tokio::spawn(async move {
            let numbers = (writer * 50)..(writer + 1) * 50;
            let seqs = append_numbered(&bus, Lane(3), numbers.clone()).await;
            numbers.zip(seqs).collect::<Vec<_>>()
        })
    });
    let mut acknowledged: Vec<(u32, u64)> =
        future::join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    acknowledged.sort_by_key(|&(_, seq)| seq);
    let records = take(&mut opened.bus.log.read(Lane(3), 1).await.unwrap(), 400).await;
    let stored: Vec<(u32, u64)> = numbers(&records).into_iter().zip(records.iter().map(|record| record.seq)).collect();
    assert_eq!(stored, acknowledged);
}

async fn times_never_go_back(backend: Backend) {
    let opened = backend.open().await;
    append_numbered(&opened.bus, Lane(0), 0..200).await;
    let records = take(&mut opened.bus.log.read(Lane(0), 1).await.unwrap(), 200).await;
    assert!(records.is_sorted_by_key(|record| record.time));
    let now_us = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let last_us = u128::from(records[199].time.0);
    assert!(now_us.abs_diff(last_us) < 60_000_000, "microseconds of the wall clock, not {last_us}");
}

async fn the_last_sequence_of_a_lane_is_known(backend: Backend) {
    let opened = backend.open().await;
    assert_eq!(opened.bus.log.last_seq(Lane(1)).await.unwrap(), 0);
    let seqs = append_numbered(&opened.bus, Lane(1), 0..3).await;
    append_numbered(&opened.bus, Lane(2), 0..3).await;
    assert_eq!(opened.bus.log.last_seq(Lane(1)).await.unwrap(), seqs[2]);
}

async fn a_full_log_refuses_and_stores_nothing(backend: Backend) {
    let opened = backend.open_limited(100_000).await;
    let record = Bytes::from(vec![b'x'; 10_000]);
    let mut stored = 0;
    let error = loop {
        match opened.bus.log.append(Lane(0), record.clone()).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 20, "the log should be full by now");
    };
    assert!(matches!(error, BusError::Full(_)), "{error:?}");
    assert!(stored >= 9, "{stored} records of 10 kB in 100 kB");
    let mut reader = opened.bus.log.read(Lane(0), 1).await.unwrap();
    take(&mut reader, stored).await;
    assert!(reader_is_idle(&mut reader).await);
}

async fn a_record_too_large_is_refused_and_the_largest_is_not(backend: Backend) {
    let opened = backend.open().await;
    let largest = Bytes::from(vec![b'x'; RECORD_BYTES_MAX]);
    let seq = opened.bus.log.append(Lane(0), largest.clone()).await.unwrap();
    let error = opened.bus.log.append(Lane(0), Bytes::from(vec![b'x'; RECORD_BYTES_MAX + 1])).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { limit: RECORD_BYTES_MAX, .. }), "{error:?}");
    let mut reader = opened.bus.log.read(Lane(0), 1).await.unwrap();
    let record = next(&mut reader).await.unwrap();
    assert_eq!((record.seq, record.bytes), (seq, largest));
}

async fn a_lane_that_does_not_exist_is_refused(backend: Backend) {
    let opened = backend.open().await;
    let beyond = Lane(opened.bus.log.lanes());
    assert!(matches!(opened.bus.log.append(beyond, numbered(0)).await, Err(BusError::Invalid(_))));
    assert!(matches!(opened.bus.log.read(beyond, 1).await.map(|_| ()), Err(BusError::Invalid(_))));
    assert!(matches!(opened.bus.log.last_seq(beyond).await, Err(BusError::Invalid(_))));
}

/// Whether nothing more is there: what was appended last is already taken, so a repeat would come at once.
async fn reader_is_idle(reader: &mut bus::LogStream) -> bool {
    tokio::task::yield_now().await;
    futures_util::StreamExt::next(reader).now_or_never().is_none()
}
