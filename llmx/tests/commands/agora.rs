//! `llmx document sync` between two nats-servers.

use std::sync::Arc;

use agora::table::{StoredDocument, document_key};
use agora::{DocumentHash, Origin, ProtocolDocument};
use bus::nats::{self, NatsOptions};
use bus::{Bucket, KeyValue};
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::rig::Ran;

async fn llmx(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmx"));
    Ran::of(command.args(args).env_remove("LLMX_LOG").kill_on_drop(true).output()).await
}

#[tokio::test]
async fn what_names_no_stores_is_refused() {
    for (args, says) in [
        (vec!["agora"], "Usage: llmx agora"),
        (vec!["document", "sync", "--from", "nats://127.0.0.1:1"], "--to <URL>"),
        (vec!["document", "sync", "--from", "http://127.0.0.1:1", "--to", "nats://127.0.0.1:1"], "http://127.0.0.1:1"),
    ] {
        let ran = llmx(&args).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
    }
}

async fn nats_store() -> (LocalServer, Arc<dyn KeyValue>) {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    (server, bus.key_value)
}

/// Stores a text, under its own hash unless another is named.
async fn store_text(store: &Arc<dyn KeyValue>, name: &str, under: Option<DocumentHash>) -> DocumentHash {
    let text = format!("---\nname: {name}\ndescription: d\nmultiround: false\n---\n");
    let document = ProtocolDocument::try_new(&text, Origin::Own).unwrap();
    let stored = StoredDocument { document: document.text().to_owned(), sha256: document.sha256() };
    let value = Bytes::from(serde_json::to_vec(&stored).unwrap());
    store.put(Bucket::Documents, document_key(under.unwrap_or(document.hash())), value).await.unwrap();
    document.hash()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_one_exchange_are_stored_in_another_and_what_contradicts_fails() {
    let ((one, first), (other, second)) = (nats_store().await, nats_store().await);
    let weather = store_text(&first, "weather", None).await;
    let (from, to) = (one.url(), other.url());
    let sync = ["document", "sync", "--from", &from, "--to", &to, "--json"];
    let counts = |stored, collisions| json!({"stored": stored, "known": 0, "collisions": collisions, "refused": 0});
    for expected in [counts(1, 0), counts(0, 0)] {
        let ran = llmx(&sync).await;
        assert_eq!((ran.code, ran.document()), (Some(0), expected), "{ran:?}");
    }
    let copied = |hash| second.value(Bucket::Documents, document_key(hash));
    let text: Value = serde_json::from_slice(&copied(weather).await.unwrap().unwrap()).unwrap();
    assert!(text["document"].as_str().unwrap().contains("name: weather"), "{text}");
    let taxi = store_text(&first, "taxi", None).await;
    let parcel = store_text(&first, "parcel", None).await;
    store_text(&second, "forged", Some(taxi)).await;
    let ran = llmx(&sync).await;
    assert_eq!((ran.code, ran.document()), (Some(1), counts(1, 1)), "{ran:?}");
    assert!(ran.stderr.contains("1 documents contradict those of --to"), "{ran:?}");
    assert!(copied(parcel).await.unwrap().is_some());
}
