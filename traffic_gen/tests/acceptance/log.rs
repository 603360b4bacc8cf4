//! The log of a bus, read to its end.

use bus::Bus;
use futures_util::StreamExt as _;
use schemas::Lane;
use schemas::record::{Entry, Record};

/// Every entry, lane by lane.
pub(crate) async fn entries(bus: &Bus) -> Vec<Entry> {
    let mut entries = Vec::new();
    for lane in (0..bus.log.lanes()).map(Lane) {
        let last = bus.log.last_seq(lane).await.unwrap();
        let mut records = bus.log.read(lane, 1).await.unwrap();
        let mut seq = 0;
        while seq < last {
            let record = records.next().await.unwrap().unwrap();
            seq = record.seq;
            // Foreign writers are part of some tests.
            entries.extend(Record::decode(&record.bytes).into_iter().flat_map(|record| record.entries));
        }
    }
    entries
}
