//! What ends an open stream: its token's time, its key, an administrator. Each says why.

use std::path::Path;
use std::time::{Duration, Instant};

use bus::memory::{self, MemoryOptions};
use gateway::keys::{KeyAlgorithm, SigningKey, key_set};
use gateway::{Credentials, Ingress, KeySource, Transport};
use schemas::Code;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::rig::{PATIENCE, Rig, claims, code, metric, offer};
use crate::streams::{closed, connect, frame, opened};

/// How often the gateways here read their key file.
const REFRESH: Duration = Duration::from_secs(1);
/// What the contract allows beyond it.
const GRACE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_event_stream_ends_with_its_token_and_says_so() {
    let rig = Rig::with(|config| config.auth.leeway_s = 0).await;
    let mut short = claims("bob");
    short.exp = short.iat + 1;
    let inbox = open_inbox(&rig, &rig.key.sign(&short).unwrap()).await;
    let said = last_event(inbox).await;
    assert_eq!(said, json!({ "reason": "expired", "detail": "the token has expired" }));
    assert_eq!(
        metric(&rig.registry, "exchange_stream_closed_total", &[("transport", "sse"), ("reason", "expired")]),
        1.0
    );
}

#[tokio::test]
async fn streams_end_when_the_key_of_their_token_is_taken_out_of_the_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (old, new) = (generate(), generate());
    std::fs::write(&path, key_set(&[&old, &new])).unwrap();
    let rig = on_file(&path, old.clone()).await;
    let mut socket = opened(&rig, "bob").await;
    let inbox = open_inbox(&rig, &rig.token("bob")).await;
    let mut kept = connect(&rig, &new.sign(&claims("carol")).unwrap()).await.unwrap();
    frame(&mut kept).await;
    let identity = rig.handle.admission().identify(Some(&rig.token("bob")), None, |_| ()).await.unwrap();

    std::fs::write(&path, key_set(&[&new])).unwrap();
    let removed = Instant::now();
    let reason = "the key that signed the token is trusted no longer";
    assert_eq!(closed(&mut socket).await, (CloseCode::Policy, reason.to_owned()));
    assert_eq!(last_event(inbox).await, json!({ "reason": "key_removed", "detail": reason }));
    assert!(removed.elapsed() <= REFRESH + GRACE, "{:?}", removed.elapsed());
    let ended = |transport| {
        metric(&rig.registry, "exchange_stream_closed_total", &[("transport", transport), ("reason", "key_removed")])
    };
    assert_eq!((ended("ws"), ended("sse")), (1.0, 1.0));

    let bytes = offer("bob", "m1", "alice~job").to_string().into();
    let credentials = Credentials::Verified(&identity);
    let ingress = Ingress { transport: Transport::WebSocket, credentials, named_sender: None, peer: None, bytes };
    let refused = rig.handle.admission().admit(ingress).await.unwrap_err();
    assert_eq!(refused.code, Code::Unauthenticated, "a message that came in before its stream ended");
    crate::streams::send(&mut kept, json!({ "type": "message", "message": offer("carol", "m2", "alice~job") })).await;
    assert_eq!(frame(&mut kept).await["type"], "accepted", "the other key's stream goes on");
}

#[tokio::test]
async fn another_key_under_the_same_name_is_another_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (old, new) = (generate(), generate());
    let mut set: Value = serde_json::from_str(&key_set(&[&new])).unwrap();
    set["keys"][0]["kid"] = json!(old.kid());
    std::fs::write(&path, key_set(&[&old])).unwrap();
    let rig = on_file(&path, old).await;
    let mut socket = opened(&rig, "bob").await;
    std::fs::write(&path, set.to_string()).unwrap();
    assert_eq!(closed(&mut socket).await.0, CloseCode::Policy);
}

#[tokio::test]
async fn the_last_key_can_be_taken_out_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let old = generate();
    std::fs::write(&path, key_set(&[&old])).unwrap();
    let rig = on_file(&path, old).await;
    let mut socket = opened(&rig, "bob").await;
    std::fs::write(&path, r#"{"keys":[]}"#).unwrap();
    assert_eq!(closed(&mut socket).await.0, CloseCode::Policy);
    let (status, body) = rig.send("bob", &offer("bob", "m1", "alice~job")).await;
    assert_eq!((status, code(&body)), (401, "unauthenticated"));
}

#[tokio::test]
async fn an_administrator_ends_an_agents_streams_at_every_gateway() {
    let (bus, key) = (memory::open(MemoryOptions::default()), generate());
    let one = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let two = Rig::on(bus, key, |_| {}).await;
    let (mut here, mut other) = (opened(&one, "bob").await, opened(&two, "carol").await);
    let there = open_inbox(&two, &two.token("bob")).await;
    let path = "/v1/agents/bob/streams";

    for (token, status, refused) in [
        (None, 401, "unauthenticated"),
        (Some(one.token("bob")), 403, "unauthorized"),
        (Some(one.token("eve")), 403, "unauthorized"),
    ] {
        let (answered, body) = one.call("DELETE", path, token.as_deref(), None).await;
        assert_eq!((answered, code(&body)), (status, refused));
    }
    let (status, body) = one.call("DELETE", "/v1/agents/b.*/streams", Some(&one.admin_token()), None).await;
    assert_eq!((status, code(&body)), (404, "not_found"));
    let (status, body) = one.call("GET", path, Some(&one.admin_token()), None).await;
    assert_eq!((status, code(&body)), (405, "method_not_allowed"));

    assert_eq!(one.call("DELETE", path, Some(&one.admin_token()), None).await.0, 204);
    let reason = "an administrator ended the agent's streams";
    assert_eq!(closed(&mut here).await, (CloseCode::Policy, reason.to_owned()));
    assert_eq!(last_event(there).await, json!({ "reason": "ended", "detail": reason }));
    opened(&one, "bob").await;
    crate::streams::send(&mut other, json!({ "type": "message", "message": offer("carol", "m1", "alice~job") })).await;
    assert_eq!(frame(&mut other).await["type"], "accepted", "nobody else's stream ends");
    let nobody = one.call("DELETE", "/v1/agents/nobody/streams", Some(&one.admin_token()), None).await;
    assert_eq!(nobody.0, 204, "who has no stream has none afterwards");
}

fn generate() -> SigningKey {
    SigningKey::generate(KeyAlgorithm::EdDsa).unwrap()
}

/// A gateway that reads its keys from a file, every second.
async fn on_file(path: &Path, key: SigningKey) -> Rig {
    let source = KeySource::File(path.to_owned());
    Rig::on(memory::open(MemoryOptions::default()), key, |config| {
        config.auth.keys = source;
        config.auth.refresh_s = Some(REFRESH.as_secs());
    })
    .await
}

async fn open_inbox(rig: &Rig, token: &str) -> reqwest::Response {
    let inbox = rig.request("GET", "/v1/inbox").bearer_auth(token).send().await.unwrap();
    assert_eq!(inbox.status(), 200);
    inbox
}

/// Reads an event stream to its end: the data of its last event, `closing`.
async fn last_event(inbox: reqwest::Response) -> Value {
    let text = tokio::time::timeout(PATIENCE, inbox.text()).await.unwrap().unwrap();
    let (_, last) = text.rsplit_once("event: closing\n").unwrap_or_else(|| panic!("no last event: {text}"));
    serde_json::from_str(last.strip_prefix("data: ").unwrap().trim_end()).unwrap()
}
