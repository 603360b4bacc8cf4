//! Documents come from one exchange to another: in memory, over a real nats-server, with texts that contradict each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::time::Duration;

use agora::propagation::{Propagation, PropagationRound, ROUND_DOCUMENTS_MAX};
use agora::registry::{DocumentRegistry, PutResult, Unobserved};
use agora::table::{DOCUMENTS_MAX, StoredDocument, document_key};
use agora::{Origin, ProtocolDocument};
use bus::memory::{self, MemoryOptions};
use bus::nats::{self, NatsOptions};
use bus::{Bucket, KeyValue};
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::{AgentId, Code};

/// Longest wait for something that must happen; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);

fn in_memory() -> Arc<dyn KeyValue> {
    memory::open(MemoryOptions::default()).key_value
}

/// A registry that follows its store until the test ends.
async fn followed(key_value: &Arc<dyn KeyValue>) -> Arc<DocumentRegistry> {
    let registry = Arc::new(DocumentRegistry::new(key_value.clone(), Arc::new(Unobserved)));
    let driven = registry.clone();
    tokio::spawn(async move { driven.drive().await });
    tokio::time::timeout(PATIENCE, registry.until(|_| true)).await.unwrap();
    registry
}

fn document(name: &str) -> ProtocolDocument {
    let text = format!("---\nname: {name}\ndescription: d\nmultiround: false\n---\n");
    ProtocolDocument::try_new(&text, Origin::Own).unwrap()
}

async fn store_text(key_value: &Arc<dyn KeyValue>, under: &ProtocolDocument, text: &ProtocolDocument) {
    let stored = StoredDocument { document: text.text().to_owned(), sha256: text.sha256() };
    let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
    key_value.put(Bucket::Documents, document_key(under.hash()), value).await.unwrap();
}

fn bob() -> AgentId {
    AgentId::try_new("bob").unwrap()
}

#[tokio::test]
async fn a_document_of_the_first_registry_of_a_chain_is_usable_at_the_third_after_two_rounds() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let middle = nats::open(NatsOptions::new(server.url())).await.unwrap().key_value;
    let (one, two, three) = (followed(&in_memory()).await, followed(&middle).await, followed(&in_memory()).await);
    let weather = document("weather");
    one.put(&bob(), &weather, &[]).await.unwrap();
    let (mut first, mut second) = (Propagation::default(), Propagation::default());
    // The farther link first: a round takes a document one link on.
    for (at_two, at_three) in [(true, false), (true, true)] {
        second.synchronise(&two, &three).await.unwrap();
        first.synchronise(&one, &two).await.unwrap();
        let holds = |registry: &DocumentRegistry| registry.read().document(weather.hash()).is_some();
        assert_eq!((holds(&two), holds(&three)), (at_two, at_three));
    }
    let copy = three.read().document(weather.hash()).cloned().unwrap();
    assert_eq!(*copy, weather, "the text is the same to the byte");
    assert_eq!(three.read().supporters(weather.hash()).count(), 0, "bob is an agent of the first exchange");
    assert_eq!(three.put(&bob(), &weather, &[]).await.unwrap(), PutResult::Known, "an agent supports it there");
    let again = first.synchronise(&one, &two).await.unwrap();
    assert_eq!(again, PropagationRound { is_complete: true, ..PropagationRound::default() }, "nothing is left");
}

#[tokio::test]
async fn a_round_stores_sixty_four_documents_and_the_next_goes_on_behind_them() {
    let (one, two) = (followed(&in_memory()).await, followed(&in_memory()).await);
    for number in 0..70 {
        one.adopt(&document(&format!("n{number}"))).await.unwrap();
    }
    let mut propagation = Propagation::default();
    let first = propagation.synchronise(&one, &two).await.unwrap();
    assert_eq!((first.stored, first.is_complete, two.read().len()), (ROUND_DOCUMENTS_MAX, false, 64));
    let second = propagation.synchronise(&one, &two).await.unwrap();
    assert_eq!((second.stored, second.is_complete, two.read().len()), (6, true, 70));
}

#[tokio::test]
async fn texts_that_contradict_the_others_are_counted_and_keep_nothing_from_being_stored() {
    let (source, target) = (in_memory(), in_memory());
    let documents: Vec<_> = (0..70).map(|number| document(&format!("n{number}"))).collect();
    let forged = document("forged");
    let mut by_hash: Vec<_> = documents.iter().collect();
    by_hash.sort_by_key(|document| document.hash());
    for colliding in &by_hash[..65] {
        store_text(&target, colliding, &forged).await;
    }
    let (one, two) = (followed(&source).await, followed(&target).await);
    for document in &documents {
        one.adopt(document).await.unwrap();
    }
    let mut propagation = Propagation::default();
    let first = propagation.synchronise(&one, &two).await.unwrap();
    assert_eq!((first.stored, first.collisions, first.is_complete), (0, 64, false));
    let mut second = propagation.synchronise(&one, &two).await.unwrap();
    assert_eq!((second.stored, second.collisions, second.is_complete), (5, 1, true));
    assert!(two.read().document(by_hash[0].hash()).is_none() && two.read().document(by_hash[69].hash()).is_some());
    second.add(&first);
    assert_eq!((second.stored, second.collisions), (5, 65));
}

#[tokio::test]
async fn what_has_no_room_is_counted_and_what_is_not_read_yet_is_tried_again() {
    let (one, target) = (followed(&in_memory()).await, in_memory());
    let weather = document("weather");
    one.adopt(&weather).await.unwrap();
    let mut propagation = Propagation::default();
    let unread = DocumentRegistry::new(target.clone(), Arc::new(Unobserved));
    assert_eq!(propagation.synchronise(&one, &unread).await.unwrap_err().code, Code::Unavailable);
    let two = followed(&target).await;
    for number in 0..DOCUMENTS_MAX {
        two.adopt(&document(&format!("n{number}"))).await.unwrap();
    }
    let full = propagation.synchronise(&one, &two).await.unwrap();
    assert_eq!((full.stored, full.refused, full.is_complete), (0, 1, true));
}
