//! A server that comes back without its newest records gives their sequences to others. Readers must not go on.

use std::fs;
use std::path::{Path, PathBuf};

use bus::nats::{self, NatsOptions};
use bus::{Bus, BusError, LogRecord, LogStream};
use futures_util::StreamExt;
use nats_server::LocalServer;
use schemas::Lane;
use tempfile::TempDir;

use crate::{PATIENCE, append_until_known, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_told_when_records_it_has_read_are_others_now() {
    let mut lost = LostTail::prepare().await;
    let (mut reader, _) = lost.read_all().await;
    lost.lose_tail().await;
    for number in 94..110 {
        append_until_known(&lost.bus, number).await;
    }
    assert_diverged(&mut reader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_told_when_records_it_has_read_are_gone() {
    let mut lost = LostTail::prepare().await;
    let (mut reader, last) = lost.read_all().await;
    lost.lose_tail().await;
    assert_diverged(&mut reader).await;
    // Who starts later than the log ends finds out by asking for the record it has folded last.
    assert!(lost.bus.log.record(Lane(0), last.seq).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_goes_on_when_what_it_has_read_still_stands() {
    let mut lost = LostTail::prepare().await;
    // Records that are lost, but were not read.
    let mut early = lost.bus.log.read(Lane(0), 1).await.unwrap();
    let mut last = 0;
    while last < lost.kept {
        last = next(&mut early).await.unwrap().seq;
    }
    lost.server.kill();
    lost.server.resume().await.unwrap();
    assert_eq!(next(&mut early).await.unwrap().seq, lost.kept + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_last_record_was_trimmed_meanwhile_goes_on() {
    let mut lost = LostTail::prepare().await;
    let (mut reader, last) = lost.read_all().await;
    let newest = append_until_known(&lost.bus, 1000).await;
    assert_eq!(next(&mut reader).await.unwrap().seq, newest);
    lost.bus.log.trim(Lane(0), last.seq).await.unwrap();
    lost.server.kill();
    lost.server.resume().await.unwrap();
    let after = append_until_known(&lost.bus, 1001).await;
    assert_eq!(next(&mut reader).await.unwrap().seq, after);
}

struct LostTail {
    server: LocalServer,
    bus: Bus,
    /// The last sequence that will not be lost.
    kept: u64,
    backup: TempDir,
}

impl LostTail {
    /// A log of 100 records, and a copy of its store as it was after 94.
    async fn prepare() -> Self {
        let mut server = start().await;
        let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
        let mut kept = 0;
        for number in 0..94 {
            kept = append_until_known(&bus, number).await;
        }
        server.kill();
        let backup = TempDir::new().unwrap();
        copy(&server.store_folder(), &backup.path().join("store"));
        server.resume().await.unwrap();
        for number in 94..100 {
            append_until_known(&bus, number + 1000).await;
        }
        Self { server, bus, kept, backup }
    }

    async fn read_all(&self) -> (LogStream, LogRecord) {
        let end = self.bus.log.last_seq(Lane(0)).await.unwrap();
        let mut reader = self.bus.log.read(Lane(0), 1).await.unwrap();
        loop {
            let record = next(&mut reader).await.unwrap();
            if record.seq == end {
                return (reader, record);
            }
        }
    }

    async fn lose_tail(&mut self) {
        self.server.kill();
        let store = self.server.store_folder();
        fs::remove_dir_all(&store).unwrap();
        copy(&self.backup.path().join("store"), &store);
        self.server.resume().await.unwrap();
    }
}

async fn next(reader: &mut LogStream) -> Result<LogRecord, BusError> {
    tokio::time::timeout(PATIENCE, reader.next()).await.expect("something should have come").expect("it ended")
}

async fn assert_diverged(reader: &mut LogStream) {
    let outcome = next(reader).await.map(|record| record.seq);
    assert!(matches!(outcome, Err(BusError::Diverged(_))), "{outcome:?}");
    let end = tokio::time::timeout(PATIENCE, reader.next()).await.unwrap();
    assert!(end.is_none(), "an error is the last item");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
