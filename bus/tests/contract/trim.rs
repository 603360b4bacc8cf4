//! The beginning of a lane can be removed; whoever asks for it is told so, and never given what follows instead.

use bus::{BusError, LogStream};
use futures_util::StreamExt;
use schemas::Lane;

use crate::{Backend, PATIENCE, append_numbered, contract, numbers, take};

contract!(
    a_record_is_found_by_its_lane_and_sequence,
    trimmed_records_are_gone_and_reading_them_is_refused,
    the_last_record_of_a_lane_stays,
    trimming_touches_no_other_lane_and_never_goes_back,
    an_open_reader_that_was_overtaken_by_trimming_is_told,
    a_reader_that_has_read_what_is_trimmed_goes_on,
    trimming_makes_room_in_a_full_log,
);

async fn a_record_is_found_by_its_lane_and_sequence(backend: Backend) {
    let opened = backend.open().await;
    let log = &opened.bus.log;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..3).await;
    let [other] = append_numbered(&opened.bus, Lane(1), 3..4).await[..] else { panic!("one record") };
    let read = take(&mut log.read(Lane(0), 1).await.unwrap(), 3).await;
    for (seq, expected) in seqs.iter().zip(read) {
        let record = log.record(Lane(0), *seq).await.unwrap().unwrap();
        assert_eq!((record.seq, record.stamped, record.bytes), (expected.seq, expected.stamped, expected.bytes));
    }
    for absent in [0, other, other + 1] {
        assert!(log.record(Lane(0), absent).await.unwrap().is_none(), "{absent}");
    }
    assert!(matches!(log.record(Lane(99), 1).await, Err(BusError::Invalid(_))));
}

async fn trimmed_records_are_gone_and_reading_them_is_refused(backend: Backend) {
    let opened = backend.open().await;
    let log = &opened.bus.log;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..10).await;
    assert_eq!(log.trimmed(Lane(0)).await.unwrap(), 0);
    log.trim(Lane(0), seqs[6]).await.unwrap();
    assert_eq!(log.trimmed(Lane(0)).await.unwrap(), seqs[5]);
    for from in [0, 1, seqs[0], seqs[5]] {
        let refused = log.read(Lane(0), from).await.map(|_| ());
        assert!(matches!(refused, Err(BusError::Trimmed(seq)) if seq == seqs[5]), "from {from}: {refused:?}");
    }
    assert!(log.record(Lane(0), seqs[5]).await.unwrap().is_none());
    let mut reader = log.read(Lane(0), seqs[6]).await.unwrap();
    append_numbered(&opened.bus, Lane(0), 10..12).await;
    assert_eq!(numbers(&take(&mut reader, 6).await), (6..12).collect::<Vec<_>>());
}

async fn the_last_record_of_a_lane_stays(backend: Backend) {
    let opened = backend.open().await;
    let log = &opened.bus.log;
    log.trim(Lane(0), 100).await.unwrap();
    assert_eq!(log.trimmed(Lane(0)).await.unwrap(), 0, "nothing was there");
    let seqs = append_numbered(&opened.bus, Lane(0), 0..3).await;
    for _ in 0..2 {
        log.trim(Lane(0), u64::MAX).await.unwrap();
        assert_eq!(log.trimmed(Lane(0)).await.unwrap(), seqs[1]);
        assert_eq!(log.last_seq(Lane(0)).await.unwrap(), seqs[2]);
        assert_eq!(numbers(&take(&mut log.read(Lane(0), seqs[2]).await.unwrap(), 1).await), [2]);
    }
}

async fn trimming_touches_no_other_lane_and_never_goes_back(backend: Backend) {
    let opened = backend.open().await;
    let log = &opened.bus.log;
    let other = append_numbered(&opened.bus, Lane(1), 0..3).await;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..5).await;
    append_numbered(&opened.bus, Lane(1), 3..5).await;
    log.trim(Lane(0), seqs[3]).await.unwrap();
    log.trim(Lane(0), seqs[1]).await.unwrap();
    assert_eq!(log.trimmed(Lane(0)).await.unwrap(), seqs[2]);
    assert_eq!(log.trimmed(Lane(1)).await.unwrap(), 0);
    assert_eq!(numbers(&take(&mut log.read(Lane(1), other[0]).await.unwrap(), 5).await), [0, 1, 2, 3, 4]);
}

async fn an_open_reader_that_was_overtaken_by_trimming_is_told(backend: Backend) {
    let opened = backend.open().await;
    let log = &opened.bus.log;
    // More than a reader, or a server on its way to one, takes in advance.
    let large = bytes::Bytes::from(vec![b'x'; 20_000]);
    let mut reader = log.read(Lane(0), 1).await.unwrap();
    let mut last = 0;
    for _ in 0..3000 {
        last = log.append(Lane(0), large.clone()).await.unwrap();
    }
    log.trim(Lane(0), last).await.unwrap();
    let (seen, end) = drain(&mut reader, last).await;
    assert!(matches!(end, Some(BusError::Trimmed(_))), "{seen} records, then {end:?}");
    assert!(seen < 3000);
    assert!(tokio::time::timeout(PATIENCE, reader.next()).await.unwrap().is_none(), "the error is the last item");
}

/// Reads until `last` or an error; every record must follow the one before it.
async fn drain(reader: &mut LogStream, last: u64) -> (u64, Option<BusError>) {
    let mut seen = 0;
    loop {
        match tokio::time::timeout(PATIENCE, reader.next()).await.unwrap().unwrap() {
            Ok(record) => {
                assert_eq!(record.seq, seen + 1, "a record was skipped");
                seen = record.seq;
            }
            Err(error) => return (seen, Some(error)),
        }
        if seen == last {
            return (seen, None);
        }
    }
}

async fn a_reader_that_has_read_what_is_trimmed_goes_on(backend: Backend) {
    let opened = backend.open().await;
    let seqs = append_numbered(&opened.bus, Lane(0), 0..10).await;
    let mut reader = opened.bus.log.read(Lane(0), 1).await.unwrap();
    take(&mut reader, 10).await;
    opened.bus.log.trim(Lane(0), seqs[9]).await.unwrap();
    append_numbered(&opened.bus, Lane(0), 10..13).await;
    assert_eq!(numbers(&take(&mut reader, 3).await), [10, 11, 12]);
}

async fn trimming_makes_room_in_a_full_log(backend: Backend) {
    let opened = backend.open_limited(100_000).await;
    let record = bytes::Bytes::from(vec![b'x'; 10_000]);
    let mut last = 0;
    let error = loop {
        match opened.bus.log.append(Lane(0), record.clone()).await {
            Ok(seq) => last = seq,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, BusError::Full(_)), "{error:?}");
    opened.bus.log.trim(Lane(0), last).await.unwrap();
    for _ in 0..last - 1 {
        opened.bus.log.append(Lane(0), record.clone()).await.unwrap();
    }
    assert!(matches!(opened.bus.log.append(Lane(0), record).await, Err(BusError::Full(_))), "and no more than before");
}
