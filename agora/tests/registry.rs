//! The registry of documents on the embedded bus and on a real nats-server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agora::registry::{DocumentRegistry, PutResult, RegistryObserver, StoreOperation};
use agora::table::{StoredDocument, document_key, support_key};
use agora::{DocumentSource, DocumentTable, Origin, ProtocolDocument};
use bus::memory::{self, MemoryOptions};
use bus::nats::{self, NatsOptions};
use bus::{Bucket, KeyValue};
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::{AgentId, Code};

/// Longest wait for something that must happen; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test]
            async fn $name() {
                let bus = bus::memory::open(bus::memory::MemoryOptions::default());
                tokio::time::timeout(crate::PATIENCE, super::$name(bus.key_value)).await.unwrap();
            })*
        }
        mod on_nats {
            $(#[tokio::test]
            async fn $name() {
                let (_server, key_value) = crate::nats_store().await;
                tokio::time::timeout(crate::PATIENCE, super::$name(key_value)).await.unwrap();
            })*
        }
    };
}

on_both!(
    a_document_is_seen_by_every_registry_and_stored_once,
    support_is_withdrawn_and_the_text_stays,
    a_hash_that_stands_for_another_text_is_refused_and_raises_an_alarm,
    the_text_that_was_read_first_stays_whatever_is_stored_later,
    of_two_that_put_the_same_document_at_once_one_is_the_first,
    a_full_exchange_takes_further_documents_and_keeps_those_that_are_supported,
);

async fn nats_store() -> (LocalServer, Arc<dyn KeyValue>) {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    (server, bus.key_value)
}

#[derive(Default)]
struct Counts {
    puts: Mutex<Vec<PutResult>>,
    collisions: AtomicUsize,
}

impl RegistryObserver for Counts {
    fn operated(&self, _: StoreOperation, is_done: bool, _: Duration) {
        assert!(is_done);
    }

    fn put(&self, result: PutResult) {
        self.puts.lock().unwrap().push(result);
    }

    fn collided(&self) {
        self.collisions.fetch_add(1, Ordering::Relaxed);
    }

    fn holds(&self, _: usize) {}
}

/// A registry that follows its store until the test ends.
async fn followed(key_value: &Arc<dyn KeyValue>) -> (Arc<DocumentRegistry>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let registry = Arc::new(DocumentRegistry::new(key_value.clone(), counts.clone()));
    let driven = registry.clone();
    tokio::spawn(async move { driven.drive().await });
    registry.until(|_| true).await;
    (registry, counts)
}

fn document(name: &str) -> ProtocolDocument {
    let text = format!("---\nname: {name}\ndescription: d\nmultiround: false\n---\n");
    ProtocolDocument::try_new(&text, Origin::Own).unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

async fn a_document_is_seen_by_every_registry_and_stored_once(store: Arc<dyn KeyValue>) {
    let ((one, counts), (other, _)) = (followed(&store).await, followed(&store).await);
    let (weather, bob, carol) = (document("weather"), agent("bob"), agent("carol"));
    let source = DocumentSource::try_new("https://documents.example/weather.txt").unwrap();
    assert_eq!(one.put(&bob, &weather, std::slice::from_ref(&source)).await.unwrap(), PutResult::New);
    assert_eq!(one.put(&carol, &weather, &[]).await.unwrap(), PutResult::Known);
    other.until(|table| table.supporters(weather.hash()).count() == 2).await;
    for registry in [&one, &other] {
        let table = registry.read();
        assert_eq!(**table.document(weather.hash()).unwrap(), weather);
        assert_eq!(table.supporters(weather.hash()).collect::<Vec<_>>(), [&bob, &carol]);
        let supported: Vec<_> = table.supported_by(&bob).collect();
        assert_eq!(supported, [(table.document(weather.hash()).unwrap(), &[source.clone()][..])]);
        assert_eq!(table.len(), 1);
    }
    assert_eq!(*counts.puts.lock().unwrap(), [PutResult::New, PutResult::Known]);
}

async fn support_is_withdrawn_and_the_text_stays(store: Arc<dyn KeyValue>) {
    let ((one, _), (other, _)) = (followed(&store).await, followed(&store).await);
    let (weather, bob) = (document("weather"), agent("bob"));
    one.put(&bob, &weather, &[]).await.unwrap();
    other.until(|table| table.supporters(weather.hash()).count() == 1).await;
    one.withdraw(&bob, weather.hash()).await.unwrap();
    assert_eq!(one.read().supported_by(&bob).count(), 0);
    other.until(|table| table.supporters(weather.hash()).count() == 0).await;
    assert!(other.read().document(weather.hash()).is_some());
}

async fn a_hash_that_stands_for_another_text_is_refused_and_raises_an_alarm(store: Arc<dyn KeyValue>) {
    // A text that collides cannot be made here: it is stored as if its hash were that of the other.
    let (weather, forged) = (document("weather"), document("forged"));
    let stored = StoredDocument { document: forged.text().to_owned(), sha256: forged.sha256() };
    let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
    store.put(Bucket::Documents, document_key(weather.hash()), value).await.unwrap();
    let (registry, counts) = followed(&store).await;
    assert_eq!(counts.collisions.load(Ordering::Relaxed), 1);
    let refusal = registry.put(&agent("bob"), &weather, &[]).await.unwrap_err();
    assert_eq!((refusal.code, refusal.pointer.as_deref()), (Code::Conflict, Some("/document")));
    assert_eq!(*counts.puts.lock().unwrap(), [PutResult::Collision]);
    assert!(registry.read().document(weather.hash()).is_none());
    assert_eq!(registry.read().supported_by(&agent("bob")).count(), 0);
}

async fn the_text_that_was_read_first_stays_whatever_is_stored_later(store: Arc<dyn KeyValue>) {
    let (registry, counts) = followed(&store).await;
    let (weather, forged, bob) = (document("weather"), document("forged"), agent("bob"));
    registry.put(&bob, &weather, &[]).await.unwrap();
    let stored = StoredDocument { document: forged.text().to_owned(), sha256: forged.sha256() };
    let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
    store.put(Bucket::Documents, document_key(weather.hash()), value).await.unwrap();
    // What is stored behind it is seen behind it.
    store
        .put(Bucket::Documents, support_key(weather.hash(), &agent("last")), Bytes::from("{\"sources\":[]}"))
        .await
        .unwrap();
    registry.until(|table| table.supporters(weather.hash()).count() == 2).await;
    assert_eq!(**registry.read().document(weather.hash()).unwrap(), weather);
    assert_eq!(counts.collisions.load(Ordering::Relaxed), 1);
}

async fn of_two_that_put_the_same_document_at_once_one_is_the_first(store: Arc<dyn KeyValue>) {
    let ((one, _), (other, _)) = (followed(&store).await, followed(&store).await);
    let (weather, bob, carol) = (document("weather"), agent("bob"), agent("carol"));
    let (left, right) = tokio::join!(one.put(&bob, &weather, &[]), other.put(&carol, &weather, &[]));
    let mut results = [left.unwrap(), right.unwrap()].map(|result| result == PutResult::New);
    results.sort_unstable();
    assert_eq!(results, [false, true]);
    one.until(|table| table.supporters(weather.hash()).count() == 2).await;
}

#[tokio::test]
async fn nothing_is_put_before_the_store_has_been_read() {
    let store = memory::open(MemoryOptions::default()).key_value;
    let registry = DocumentRegistry::new(store, Arc::new(Counts::default()));
    let refusal = registry.put(&agent("bob"), &document("weather"), &[]).await.unwrap_err();
    assert_eq!((refusal.code, refusal.retry_after_ms), (Code::Unavailable, Some(1000)));
}

/// A table with as many documents as there are, each put by an agent of its own.
fn table_of(documents: &[ProtocolDocument]) -> DocumentTable {
    let mut table = DocumentTable::default();
    for document in documents {
        let stored = StoredDocument { document: document.text().to_owned(), sha256: document.sha256() };
        table.apply(&document_key(document.hash()), Some(&serde_json::to_vec(&stored).unwrap())).unwrap();
    }
    table
}

#[test]
fn an_agent_supports_thirty_two_documents_and_no_more() {
    let bob = agent("bob");
    let documents: Vec<_> = (0..33).map(|number| document(&format!("n{number}"))).collect();
    let mut table = table_of(&documents);
    for (number, document) in documents.iter().enumerate() {
        let outcome = table.check_support(&bob, document.hash()).map_err(|refusal| refusal.code);
        assert_eq!(outcome, if number < 32 { Ok(()) } else { Err(Code::Overloaded) }, "{number}");
        if number < 32 {
            table.apply(&support_key(document.hash(), &bob), Some(b"{\"sources\":[]}")).unwrap();
        }
    }
    assert!(table.check_support(&bob, documents[0].hash()).is_ok(), "what it supports it may put again");
    assert!(table.check_support(&agent("carol"), documents[32].hash()).is_ok());
    table.apply(&support_key(documents[0].hash(), &bob), None).unwrap();
    assert!(table.check_support(&bob, documents[32].hash()).is_ok());
}

/// The table, with every one of these documents supported by an agent.
fn supported(mut table: DocumentTable, documents: &[ProtocolDocument]) -> DocumentTable {
    for document in documents {
        table.apply(&support_key(document.hash(), &agent("bob")), Some(b"{\"sources\":[]}")).unwrap();
    }
    table
}

fn large(number: usize) -> ProtocolDocument {
    let head = format!("---\nname: n{number:03}\ndescription: d\nmultiround: false\n---\n");
    let text = format!("{head}{}", "x".repeat(32 * 1024 - head.len()));
    ProtocolDocument::try_new(&text, Origin::Own).unwrap()
}

#[test]
fn an_exchange_holds_so_many_documents_and_bytes_and_no_more() {
    let many: Vec<_> = (0..4097).map(|number| document(&format!("n{number}"))).collect();
    let table = table_of(&many[..4096]);
    assert_eq!(table.check_space(&many[4096]).unwrap_err().code, Code::Overloaded);
    let table = supported(table, &many[..4096]);
    assert_eq!(table.giving_way_to(&many[4096]).unwrap_err().code, Code::Overloaded, "all of them are supported");
    for outcome in [table.check_space(&many[0]), table.giving_way_to(&many[0]).map(|_| ())] {
        assert!(outcome.is_ok(), "one that is there takes no room");
    }
    let whole: Vec<_> = (0..513).map(large).collect();
    assert!(table_of(&whole[..511]).check_space(&whole[511]).is_ok());
    assert_eq!(table_of(&whole[..512]).check_space(&whole[512]).unwrap_err().code, Code::Overloaded);
    let table = supported(table_of(&whole[..512]), &whole[..512]);
    assert_eq!(table.giving_way_to(&whole[512]).unwrap_err().code, Code::Overloaded);
}

#[test]
fn in_a_full_exchange_the_document_that_was_without_a_supporter_for_longest_gives_way() {
    let many: Vec<_> = (0..4097).map(|number| document(&format!("n{number}"))).collect();
    let mut table = supported(table_of(&many[..4096]), &many[..1]);
    assert_eq!(table.giving_way_to(&many[4096]), Ok(vec![many[1].hash()]), "the first is supported");
    // Support that came and went puts a document behind those that have had none all the while.
    let key = support_key(many[1].hash(), &agent("carol"));
    table.apply(&key, Some(b"{\"sources\":[]}")).unwrap();
    assert_eq!(table.giving_way_to(&many[4096]), Ok(vec![many[2].hash()]));
    table.apply(&key, None).unwrap();
    assert_eq!(table.giving_way_to(&many[4096]), Ok(vec![many[2].hash()]));
    table.apply(&document_key(many[2].hash()), None).unwrap();
    assert_eq!(table.giving_way_to(&many[4096]), Ok(vec![]), "there is room");

    // As many give way as the bytes need: here one large text for each, in their order.
    let whole: Vec<_> = (0..513).map(large).collect();
    let table = table_of(&whole[..512]);
    assert_eq!(table.giving_way_to(&whole[512]), Ok(vec![whole[0].hash()]));
    let small: Vec<_> = (0..200).map(|number| document(&format!("n{number}"))).collect();
    let table = table_of(&[&small[..], &whole[..511]].concat());
    let bytes: usize = small.iter().map(|document| document.text().len()).sum();
    assert!(bytes < 32 * 1024);
    let going = table.giving_way_to(&whole[512]).unwrap();
    assert_eq!(going, small.iter().map(ProtocolDocument::hash).collect::<Vec<_>>()[..going.len()]);
}

async fn a_full_exchange_takes_further_documents_and_keeps_those_that_are_supported(store: Arc<dyn KeyValue>) {
    let (kept, bob, eve) = (large(999), agent("bob"), agent("eve"));
    for number in 0..511 {
        let stored = StoredDocument { document: large(number).text().to_owned(), sha256: large(number).sha256() };
        let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
        store.put(Bucket::Documents, document_key(large(number).hash()), value).await.unwrap();
    }
    let ((one, _), (other, _)) = (followed(&store).await, followed(&store).await);
    one.put(&bob, &kept, &[]).await.unwrap();
    assert_eq!(one.read().len(), 512);
    for number in 511..530 {
        assert_eq!(one.adopt(&large(number)).await.unwrap_err().code, Code::Overloaded, "none gives way to it");
        assert_eq!(one.put_unsupported(&large(number)).await.unwrap(), PutResult::New);
        one.put(&eve, &large(600 + number), &[]).await.unwrap();
        one.withdraw(&eve, large(600 + number).hash()).await.unwrap();
        assert_eq!(one.read().len(), 512);
    }
    assert!(one.read().document(kept.hash()).is_some());
    assert!(one.read().document(large(0).hash()).is_none());
    assert!(one.read().document(large(529).hash()).is_some());
    other.until(|table| table.document(large(1129).hash()).is_some() && table.len() == 512).await;
    assert!(store.value(Bucket::Documents, document_key(large(0).hash())).await.unwrap().is_none());
}

#[test]
fn an_entry_that_is_not_readable_is_left_out() {
    let mut table = table_of(&[]);
    let weather = document("weather");
    let key = document_key(weather.hash());
    let wrong_digest = StoredDocument { document: weather.text().to_owned(), sha256: document("other").sha256() };
    for (key, value) in [
        ("nonsense".to_owned(), b"{}".to_vec()),
        (key.clone(), b"{]".to_vec()),
        (key.clone(), b"{\"document\":\"no front matter\",\"sha256\":\"x\"}".to_vec()),
        (key.clone(), serde_json::to_vec(&wrong_digest).unwrap()),
        (format!("{key}~not an agent"), b"{\"sources\":[]}".to_vec()),
        (format!("{key}~bob"), b"{\"sources\":[\"file:///x\"]}".to_vec()),
    ] {
        assert!(table.apply(&key, Some(&value)).is_err(), "{key}");
    }
    assert!(table.is_empty() && table.supported_by(&agent("bob")).count() == 0);
    table.apply(&key, None).unwrap();
}
