//! The registry of documents on the embedded bus and on a real nats-server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agora::registry::{DocumentRegistry, PutResult, RegistryObserver, StoreOperation};
use agora::table::{StoredDocument, document_key, support_key};
use agora::{DocumentSource, DocumentTable, Origin, ProtocolDocument};
use bus::memory::{self, MemoryOptions};
use bus::nats::{self, NatsOptions};
use bus::{Bucket, KeyValue};
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use parking_lot::Mutex;
use schemas::{AgentId, Code, NegotiationId};

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
    a_further_agent_finds_room_in_an_exchange_that_others_have_filled,
    a_body_is_read_by_the_agent_it_is_for_until_it_is_removed,
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
    given_up: AtomicUsize,
}

impl RegistryObserver for Counts {
    fn operated(&self, _: StoreOperation, is_done: bool, _: Duration) {
        assert!(is_done);
    }

    fn put(&self, result: PutResult) {
        self.puts.lock().push(result);
    }

    fn collided(&self) {
        self.collisions.fetch_add(1, Ordering::Relaxed);
    }

    fn gave_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
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
    assert_eq!(*counts.puts.lock(), [PutResult::New, PutResult::Known]);
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
    assert_eq!(*counts.puts.lock(), [PutResult::Collision]);
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

/// An agent supports a document as a registry has it: what ends for it, and then its own.
fn support(table: &mut DocumentTable, agent: &AgentId, document: &ProtocolDocument) -> Result<usize, Code> {
    table.check_support(agent, document.hash()).map_err(|refusal| refusal.code)?;
    let ending = table.giving_up_for(agent, document).map_err(|refusal| refusal.code)?;
    for (hash, holder) in &ending {
        table.apply(&support_key(*hash, holder), None).unwrap();
    }
    for hash in table.giving_way_to(document).unwrap() {
        table.apply(&document_key(hash), None).unwrap();
    }
    let stored = StoredDocument { document: document.text().to_owned(), sha256: document.sha256() };
    table.apply(&document_key(document.hash()), Some(&serde_json::to_vec(&stored).unwrap())).unwrap();
    table.apply(&support_key(document.hash(), agent), Some(b"{\"sources\":[]}")).unwrap();
    Ok(ending.len())
}

#[test]
fn supported_documents_leave_a_quarter_of_the_room_to_those_that_come_with_requests() {
    let mut table = DocumentTable::default();
    for number in 0..384 {
        assert_eq!(support(&mut table, &agent(&format!("a{:02}", number / 32)), &large(number)), Ok(0));
    }
    assert_eq!(support(&mut table, &agent("a12"), &large(384)), Ok(1), "12 MiB are supported");
    for number in 385..512 {
        assert_eq!(table.giving_way_to(&large(number)), Ok(vec![]), "{number}");
        let stored = StoredDocument { document: large(number).text().to_owned(), sha256: large(number).sha256() };
        table.apply(&document_key(large(number).hash()), Some(&serde_json::to_vec(&stored).unwrap())).unwrap();
    }
    assert_eq!(table.giving_way_to(&large(512)).unwrap().len(), 1, "and the quarter is full");

    let small: Vec<_> = (0..3073).map(|number| document(&format!("n{number}"))).collect();
    let mut table = DocumentTable::default();
    for (number, document) in small.iter().enumerate().take(3072) {
        assert_eq!(support(&mut table, &agent(&format!("a{:02}", number / 32)), document), Ok(0));
    }
    assert_eq!(support(&mut table, &agent("last"), &small[3072]), Ok(1), "3072 are supported");
}

#[test]
fn whoever_holds_most_gives_up_the_document_with_the_fewest_supporters_and_of_these_the_oldest() {
    let [bob, carol, eve] = ["bob", "carol", "eve"].map(agent);
    let mut table = DocumentTable::default();
    // Carol holds 24, twelve others 30 each.
    for number in 0..384 {
        let holder = if number < 24 { carol.clone() } else { agent(&format!("eve-{:02}", (number - 24) % 12)) };
        support(&mut table, &holder, &large(number)).unwrap();
    }
    for (number, expected) in [(400, 35), (401, 34), (402, 33)] {
        let ending = table.giving_up_for(&carol, &large(number)).unwrap();
        let holder = agent(&format!("eve-{:02}", (expected - 24) % 12));
        assert_eq!(ending, [(large(expected).hash(), holder)], "the oldest of the last of those that hold most");
        support(&mut table, &carol, &large(number)).unwrap();
    }
    for number in 403..405 {
        support(&mut table, &carol, &large(number)).unwrap();
    }
    assert_eq!(support(&mut table, &carol, &large(405)), Err(Code::Overloaded), "she would hold as many as they");

    // What two support counts half for each, and stays longer than what one supports.
    let mut table = DocumentTable::default();
    for number in 0..32 {
        support(&mut table, &eve, &large(number)).unwrap();
    }
    support(&mut table, &bob, &large(0)).unwrap();
    for number in 100..452 {
        support(&mut table, &agent(&format!("a{:03}", number)), &large(number)).unwrap();
    }
    assert_eq!(table.giving_up_for(&carol, &large(500)), Ok(vec![(large(1).hash(), eve.clone())]));
    let size = document("small");
    assert_eq!(support(&mut table, &eve, &size), Err(Code::Overloaded), "nobody holds more than eve");
    assert_eq!(table.giving_up_for(&carol, &large(0)), Ok(vec![]), "what is supported takes no further room");
}

#[test]
fn what_several_support_counts_in_equal_parts_for_each() {
    let [bob, carol, eve, dave] = ["bob", "carol", "eve", "dave"].map(agent);
    let mut table = DocumentTable::default();
    for number in 0..32 {
        support(&mut table, &eve, &large(number)).unwrap();
        support(&mut table, &dave, &large(number)).unwrap();
    }
    for number in 32..52 {
        support(&mut table, &bob, &large(number)).unwrap();
    }
    for number in 100..432 {
        support(&mut table, &agent(&format!("a{number}")), &large(number)).unwrap();
    }
    let ending = table.giving_up_for(&carol, &large(500));
    assert_eq!(ending, Ok(vec![(large(32).hash(), bob)]), "20 of his own are more than half of 32");
}

#[test]
fn many_identities_leave_every_other_agent_an_equal_share() {
    let mut table = DocumentTable::default();
    let (bob, others) = (agent("bob"), (0..20).map(|number| agent(&format!("eve-{number}"))).collect::<Vec<_>>());
    let mut number = 0;
    let mut flood = |table: &mut DocumentTable| {
        for other in others.iter().cycle().take(20 * 40) {
            number += 1;
            let _ = support(table, other, &large(number));
        }
    };
    flood(&mut table);
    assert_eq!(others.iter().map(|other| table.supported_by(other).count()).sum::<usize>(), 384);
    let mut taken = 0;
    while support(&mut table, &bob, &large(10_000 + taken)).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 384 / 21, "an equal part of 12 MiB");
    flood(&mut table);
    assert_eq!(table.supported_by(&bob).count(), taken, "and it stays");
}

async fn a_further_agent_finds_room_in_an_exchange_that_others_have_filled(store: Arc<dyn KeyValue>) {
    for number in 0..384 {
        let (document, agent) = (large(number), agent(&format!("eve-{}", number / 32)));
        let stored = StoredDocument { document: document.text().to_owned(), sha256: document.sha256() };
        let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
        store.put(Bucket::Documents, document_key(document.hash()), value).await.unwrap();
        let value = Bytes::from_static(b"{\"sources\":[]}");
        store.put(Bucket::Documents, support_key(document.hash(), &agent), value).await.unwrap();
    }
    let ((one, counts), (other, _)) = (followed(&store).await, followed(&store).await);
    let bob = agent("bob");
    assert_eq!(one.put(&bob, &large(900), &[]).await.unwrap(), PutResult::New);
    assert_eq!(counts.given_up.load(Ordering::Relaxed), 1);
    let given_up = |table: &DocumentTable| {
        let lost: Vec<_> = (0..384).map(large).filter(|one| table.supporters(one.hash()).count() == 0).collect();
        assert!(lost.iter().all(|one| table.document(one.hash()).is_some()), "the text stays");
        lost.len()
    };
    other.until(|table| table.supported_by(&bob).count() == 1).await;
    assert_eq!((given_up(&one.read()), given_up(&other.read())), (1, 1));
}

async fn a_body_is_read_by_the_agent_it_is_for_until_it_is_removed(store: Arc<dyn KeyValue>) {
    let ((one, counts), (other, _)) = (followed(&store).await, followed(&store).await);
    let (alice, bob, own) = (agent("alice"), agent("bob"), NegotiationId::try_new("alice~n1").unwrap());
    let text = "\u{e9}".repeat(32 * 1024);
    one.put_body((&alice, &own), &bob, &text).await.unwrap();
    assert_eq!(other.body(&own, &bob).await.unwrap(), Some(text.clone()), "at another gateway as well");
    assert_eq!(other.body(&own, &alice).await.unwrap(), None, "for nobody else");
    let refused = one.put_body((&alice, &own), &bob, &format!("{text}x")).await.unwrap_err();
    assert_eq!((refused.code, refused.pointer.as_deref()), (Code::TooLarge, Some("/body")));
    // A document that is put behind it is seen behind it.
    one.put(&bob, &document("weather"), &[]).await.unwrap();
    other.until(|table| table.supporters(document("weather").hash()).count() == 1).await;
    assert_eq!((one.bodies().len(), other.bodies().len(), one.read().len()), (1, 1, 1), "it is no document");
    one.remove_body(&own).await.unwrap();
    assert_eq!(other.body(&own, &bob).await.unwrap(), None);
    assert_eq!((one.bodies().len(), counts.collisions.load(Ordering::Relaxed)), (0, 0));
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
