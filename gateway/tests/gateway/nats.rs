//! The same gateway on a real nats-server: what the embedded bus does for the other tests, JetStream does here.

use std::time::{Duration, Instant};

use bus::nats::{self, NatsOptions};
use bytes::Bytes;
use futures_util::StreamExt as _;
use gateway::keys::{KeyAlgorithm, SigningKey};
use nats_server::{LocalServer, LocalServerOptions};
use schemas::subject;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::admission::loop_until;
use crate::rig::{PATIENCE, Rig, agent, cfp, code, offer};

#[tokio::test]
async fn two_gateways_on_nats_share_agents_policies_and_messages() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let one = Rig::on(nats::open(NatsOptions::new(server.url())).await.unwrap(), key.clone(), |_| {}).await;
    let two = Rig::on(nats::open(NatsOptions::new(server.url())).await.unwrap(), key, |_| {}).await;

    one.register("bob").await;
    let asks = json!({ "capabilities": ["haul"], "consent": { "default": "ask" } });
    one.register_as("shy", &asks).await;
    let switch = json!({ "policy": "high" });
    assert_eq!(one.call("PUT", "/v1/policies/default", Some(&one.admin_token()), Some(&switch)).await.0, 200);
    loop_until(|| async {
        let (status, _) = two.call("GET", "/v1/agents/shy", Some(&two.token("bob")), None).await;
        let (_, default) = two.call("GET", "/v1/policies/default", Some(&two.token("bob")), None).await;
        (status == 200 && default == switch).then_some(())
    })
    .await;

    let mut hellos = two.bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await.unwrap();
    let inbox = one.request("GET", "/v1/inbox").bearer_auth(one.token("bob")).send().await.unwrap();
    assert_eq!(hellos.next().await.unwrap().subject, "hello.bob");
    drop(inbox);

    assert_eq!(two.send("alice", &cfp("alice", "job", &["agent://bob"])).await.0, 202);
    let (status, body) = two.send("alice", &cfp("alice", "job2", &["agent://shy"])).await;
    assert_eq!((status, code(&body)), (403, "no_consent"));
    let path = "/v1/agents/shy/consent/requests";
    loop_until(|| async {
        let (_, body) = one.call("GET", path, Some(&one.token("shy")), None).await;
        (body["requests"][0]["counterpart"] == "alice").then_some(())
    })
    .await;
    let question = Bytes::from(offer("bob", "m1", "alice~job").to_string());
    let subject = subject::gateway_in(&agent("bob"));
    let reply = one.bus.pub_sub.request(subject, Some(one.token("bob")), question, PATIENCE).await.unwrap();
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    assert_eq!(reply["accepted"]["msg_id"], "m1");

    let logged = one.logged().await;
    assert_eq!(logged.len(), 2);
    let pinned = logged.iter().find_map(|message| message.pinned.as_ref()).unwrap();
    assert_eq!(pinned.policy.id, "high@1");
}

#[tokio::test]
async fn an_agent_writes_nowhere_through_a_gateways_answers_reads_nobodys_and_acknowledges_for_nobody_else() {
    let conf = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../nats.example.conf")).unwrap();
    let extra_config = conf[conf.find("authorization {").unwrap()..].to_owned();
    let server = LocalServer::start(LocalServerOptions { extra_config, ..Default::default() }).await.unwrap();
    let url = server.url().replacen("nats://", "nats://exchange:change-me@", 1);
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(nats::open(NatsOptions::new(url)).await.unwrap(), key, |_| {}).await;
    let mut spy = RawClient::connect(&server.url(), "exchange", "change-me").await;
    spy.send("SUB > 1\r\nPING\r\n").await;
    spy.read_until("PONG").await;
    let mut bob = RawClient::connect(&server.url(), "bob", "change-me-too").await;
    bob.send("SUB _INBOX_bob.> 1\r\n").await;

    let forbidden =
        ["gw.end.alice", "log.0", "award.alice~job.0.1", "$KV.agents.alice", "_reply.alice", "_INBOX_alice.1"];
    for reply in forbidden {
        bob.send(&format!("PUB gw.in.bob {reply} 1\r\nx\r\n")).await;
    }
    bob.send("PUB gw.in.bob _INBOX_bob.1 1\r\nx\r\n").await;
    let answered = bob.read_until("refused").await;
    assert!(answered.contains("MSG _INBOX_bob.1"), "{answered}");
    let seen = spy.read_until("MSG _INBOX_bob.1").await;
    for reply in forbidden {
        assert!(seen.contains(&format!("MSG gw.in.bob 1 {reply} 1")), "{reply} was asked for: {seen}");
        assert!(!seen.contains(&format!("MSG {reply} ")), "{reply} was written to: {seen}");
    }
    assert!(rig.logged().await.is_empty());

    bob.send("SUB _EXCHANGE.> 2\r\nSUB _INBOX.> 3\r\nPING\r\n").await;
    let refused = bob.read_until("PONG").await;
    assert_eq!(refused.matches("Permissions Violation").count(), 2, "{refused}");

    // What gateways collect is believed whoever it names: nobody else publishes it, and it says who is told what.
    let acks = subject::collected_acks("gateway-1");
    let denied = [format!("PUB {acks} 2\r\n[]\r\n"), format!("SUB {acks} 4\r\n"), "SUB acks.* 5\r\n".to_owned()];
    bob.send(&format!("{}PING\r\n", denied.concat())).await;
    let refused = bob.read_until("PONG").await;
    assert_eq!(refused.matches("Permissions Violation").count(), denied.len(), "{refused}");
    spy.send("PING\r\n").await;
    let seen = spy.read_until("PONG").await;
    assert!(!seen.contains("MSG acks."), "{seen}");
    // What engines and gateways say to each other of agents and their streams.
    for subject in ["deliver.gateway", "streams.gateway"] {
        bob.send(&format!("SUB {subject} 4\r\nPUB {subject} 1\r\nx\r\nPING\r\n")).await;
        let refused = bob.read_until("PONG").await;
        assert_eq!(refused.matches("Permissions Violation").count(), 2, "{subject}: {refused}");
    }
}

/// A client that says what it is told, without a library's good manners.
struct RawClient {
    stream: TcpStream,
    heard: String,
}

impl RawClient {
    async fn connect(url: &str, user: &str, password: &str) -> Self {
        let stream = TcpStream::connect(url.trim_start_matches("nats://")).await.unwrap();
        let mut client = Self { stream, heard: String::new() };
        let options = json!({"user": user, "pass": password, "verbose": false, "headers": true, "no_responders": true});
        client.send(&format!("CONNECT {options}\r\nPING\r\n")).await;
        client.read_until("PONG").await;
        client
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Everything heard since the last call, up to some words at least.
    async fn read_until(&mut self, words: &str) -> String {
        while !self.heard.contains(words) {
            let mut bytes = [0; 4096];
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut bytes)).await;
            let len = read.unwrap_or_else(|_| panic!("no {words:?} in {}", self.heard)).unwrap();
            assert!(len > 0, "the server closed: {}", self.heard);
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        std::mem::take(&mut self.heard)
    }
}

#[tokio::test]
async fn a_gateway_that_may_not_hear_what_it_has_to_hear_is_not_ready() {
    let user = r#"authorization { users: [{ user: a, password: b, permissions: { publish: ">", subscribe: { deny: ["gw.end.*"] } } }] }"#;
    let options = LocalServerOptions { extra_config: user.to_owned(), ..Default::default() };
    let server = LocalServer::start(options).await.unwrap();
    let url = server.url().replacen("nats://", "nats://a:b@", 1);
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(nats::open(NatsOptions::new(url)).await.unwrap(), key, |_| {}).await;
    let body = loop_until(|| async {
        let (status, body) = rig.call("GET", "/readyz", None, None).await;
        (status == 503).then_some(body)
    })
    .await;
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("use `gw.end.*`") && detail.contains("permissions"), "{detail}");
}

#[tokio::test]
async fn a_gateway_is_ready_only_while_nats_answers() {
    let mut server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(nats::open(NatsOptions::new(server.url())).await.unwrap(), key, |_| {}).await;
    assert_eq!(rig.call("GET", "/readyz", None, None).await.0, 200);
    assert!(rig.handle.is_ready());

    server.kill();
    let stopped = Instant::now();
    let body = loop_until(|| async {
        let (status, body) = rig.call("GET", "/readyz", None, None).await;
        (status == 503).then_some(body)
    })
    .await;
    assert!(stopped.elapsed() > Duration::from_secs(1), "a short silence is a reconnection");
    assert_eq!(code(&body), "unavailable");
    assert!(body["detail"].as_str().unwrap().contains("check that nats-server runs"), "{body}");
    assert!(!rig.handle.is_ready());
    assert_eq!(rig.call("GET", "/healthz", None, None).await.0, 200, "it lives");

    server.resume().await.unwrap();
    loop_until(|| async { (rig.call("GET", "/readyz", None, None).await.0 == 200).then_some(()) }).await;
}
