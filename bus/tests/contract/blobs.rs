//! Large documents are replaced as a whole and never go back to an earlier version.

use bus::{Bus, BusError};
use bytes::Bytes;
use futures_util::future;

use crate::{Backend, contract};

contract!(
    a_document_reads_as_it_was_stored_whatever_its_size,
    a_later_version_replaces_an_earlier_one_and_not_the_other_way_round,
    of_many_writers_at_once_the_latest_version_stays,
    a_reader_never_sees_a_mixture_while_a_document_is_replaced,
    a_malformed_name_is_refused,
);

/// Several hundred chunks of the NATS backend, and not a whole number of them.
const LARGE: usize = 50_000_001;

async fn a_document_reads_as_it_was_stored_whatever_its_size(backend: Backend) {
    let opened = backend.open().await;
    let blobs = &opened.bus.blobs;
    let name = || "checkpoint-0".to_owned();
    assert_eq!(blobs.value(name()).await.unwrap(), None);
    assert_eq!(blobs.version(name()).await.unwrap(), None);
    for (version, size) in [(1, 0), (2, 1), (3, 128 * 1024), (4, 128 * 1024 + 1), (5, LARGE), (6, 3)] {
        let value = document(version, size);
        assert!(blobs.put(name(), version, value.clone()).await.unwrap());
        assert!(blobs.value(name()).await.unwrap() == Some(value), "{size} bytes");
        assert_eq!(blobs.version(name()).await.unwrap(), Some(version));
    }
    assert_eq!(blobs.value("checkpoint-1".to_owned()).await.unwrap(), None, "another name");
}

async fn a_later_version_replaces_an_earlier_one_and_not_the_other_way_round(backend: Backend) {
    let opened = backend.open().await;
    let put = |version: u64, text: &'static str| {
        opened.bus.blobs.put("a".to_owned(), version, Bytes::from_static(text.as_bytes()))
    };
    assert!(put(7, "seven").await.unwrap());
    assert!(!put(6, "six").await.unwrap(), "a writer that was overtaken");
    assert_eq!(read(&opened.bus, "a").await, "seven");
    assert!(put(7, "seven again").await.unwrap(), "the same version may be repaired");
    assert_eq!(read(&opened.bus, "a").await, "seven again");
    assert!(put(8, "eight").await.unwrap());
    assert_eq!(read(&opened.bus, "a").await, "eight");
}

async fn of_many_writers_at_once_the_latest_version_stays(backend: Backend) {
    let opened = backend.open().await;
    let writes = (1..=8_u64).map(|version| {
        let blobs = opened.bus.blobs.clone();
        tokio::spawn(async move { blobs.put("a".to_owned(), version, document(version, 300_000)).await.unwrap() })
    });
    let outcomes = future::join_all(writes).await;
    assert!(*outcomes[7].as_ref().unwrap(), "the latest is never refused");
    assert_eq!(opened.bus.blobs.version("a".to_owned()).await.unwrap(), Some(8));
    assert!(opened.bus.blobs.value("a".to_owned()).await.unwrap() == Some(document(8, 300_000)));
}

async fn a_reader_never_sees_a_mixture_while_a_document_is_replaced(backend: Backend) {
    let opened = backend.open().await;
    opened.bus.blobs.put("a".to_owned(), 0, document(0, 2_000_000)).await.unwrap();
    let writer = tokio::spawn({
        let blobs = opened.bus.blobs.clone();
        async move {
            for version in 1..=10 {
                assert!(blobs.put("a".to_owned(), version, document(version, 2_000_000)).await.unwrap());
            }
        }
    });
    let mut reads = 0;
    while !writer.is_finished() {
        let value = opened.bus.blobs.value("a".to_owned()).await.unwrap().unwrap();
        let version = u64::from(value[0]);
        assert!(value == document(version, 2_000_000), "read {reads} is a mixture");
        reads += 1;
    }
    writer.await.unwrap();
    assert!(reads > 1);
}

async fn a_malformed_name_is_refused(backend: Backend) {
    let opened = backend.open().await;
    for bad in ["", "a.b", "a b", "a*", ">"] {
        let put = opened.bus.blobs.put(bad.to_owned(), 1, Bytes::new()).await;
        assert!(matches!(put, Err(BusError::Invalid(_))), "{bad:?}: {put:?}");
        let value = opened.bus.blobs.value(bad.to_owned()).await;
        assert!(matches!(value, Err(BusError::Invalid(_))), "{bad:?}: {value:?}");
    }
}

/// A document whose first byte is its version, and whose chunks differ from each other.
fn document(version: u64, size: usize) -> Bytes {
    let seed = u8::try_from(version).unwrap();
    let byte = |index: usize| seed.wrapping_add(u8::try_from(index / 1000 % 256).unwrap());
    (0..size).map(byte).collect::<Vec<_>>().into()
}

async fn read(bus: &Bus, name: &str) -> String {
    let value = bus.blobs.value(name.to_owned()).await.unwrap().unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}
