//! The tools as a NATS service, on a real nats-server.

use std::future::ready;
use std::sync::Arc;

use async_nats::HeaderMap;
use bridges::http::Participants;
use bridges::micro;
use bridges::micro::prompt::{self, AgentSession};
use bus::nats::NatsOptions;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use nats_server::{LocalServer, LocalServerOptions};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exchange::Site;
use crate::http::bridge;

/// The answer to a request, and the code of its headers.
async fn ask(
    nats: &async_nats::Client,
    tool: &str,
    token: Option<&str>,
    body: impl Into<Bytes>,
) -> (Option<String>, Value) {
    let mut headers = HeaderMap::new();
    token.into_iter().for_each(|token| headers.insert(micro::TOKEN_HEADER, token));
    let reply = nats.request_with_headers(format!("llmx.{tool}"), headers, body.into()).await.unwrap();
    let code = reply.headers.as_ref().and_then(|headers| headers.get("Nats-Service-Error-Code"));
    (code.map(ToString::to_string), serde_json::from_slice(&reply.payload).unwrap())
}

/// A service on a nats-server of its own, and a client beside it.
struct Micro {
    nats: async_nats::Client,
    site: Site,
    participants: Arc<Participants>,
    serving: JoinHandle<Result<(), async_nats::Error>>,
    stop: CancellationToken,
    server: LocalServer,
}

/// The bridge, as nats.example.conf knows it.
async fn bridge_on(server: &LocalServer) -> async_nats::Client {
    let url = server.url().replacen("nats://", "nats://bridge:change-me-three@", 1);
    bus::nats::connect(&NatsOptions::new(url)).await.unwrap()
}

impl Micro {
    async fn start() -> Self {
        Self::start_with("").await
    }

    async fn start_with(setting: &str) -> Self {
        let conf = include_str!("../../../nats.example.conf");
        let extra_config = format!("{setting}\n{}", &conf[conf.find("authorization {").unwrap()..]);
        let server = LocalServer::start(LocalServerOptions { extra_config, ..Default::default() }).await.unwrap();
        let (site, stop) = (Site::start().await, CancellationToken::new());
        let asking = async_nats::ConnectOptions::with_user_and_password("exchange".to_owned(), "change-me".to_owned());
        let (client, nats) = (bridge_on(&server).await, asking.connect(server.url()).await.unwrap());
        let (_, participants) = bridge(&site, "b1");
        let (served, stopped) = (participants.clone(), stop.clone());
        let serving =
            tokio::spawn(async move { micro::serve(client, served, "https://exchange.example", stopped).await });
        while nats.request("$SRV.PING.llmx", Bytes::new()).await.is_err() {}
        Self { nats, site, participants, serving, stop, server }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.serving.await.unwrap().unwrap();
        self.participants.close().await;
        self.site.stop([]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_nats_tells_its_endpoints_and_schemas_and_calls_to_an_award() {
    let micro = Micro::start().await;
    let (nats, site) = (&micro.nats, &micro.site);
    let info = nats.request("$SRV.INFO.llmx", Bytes::new()).await.unwrap();
    let info: Value = serde_json::from_slice(&info.payload).unwrap();
    let endpoints = info["endpoints"].as_array().unwrap();
    assert_eq!((endpoints.len(), &info["metadata"]["public_url"]), (27, &json!("https://exchange.example")));
    for endpoint in endpoints {
        let schema: Value = serde_json::from_str(endpoint["metadata"]["schema"].as_str().unwrap()).unwrap();
        assert_eq!(schema["type"], "object", "{}", endpoint["name"]);
        assert!(schema["properties"]["wait_ms"]["maximum"].as_u64().unwrap_or(0) <= 20_000, "{schema}");
    }
    let (alice, bob) = (site.token("alice"), site.token("bob"));
    assert_eq!(ask(nats, "register", Some(&bob), json!({"topics": ["courier"]}).to_string()).await.0, None);
    let cfp =
        json!({"id": "parcel", "task": "carry", "to": ["topic://courier"], "policy": "high", "wait_ms": 0}).to_string();
    let opened = ask(nats, "call_for_offers", Some(&alice), cfp).await.1;
    assert_eq!(opened["negotiation"], "alice~parcel");
    let heard = ask(nats, "inbox", Some(&bob), "").await.1;
    assert_eq!(heard["items"][0]["payload"]["act"], "cfp");
    let offer = json!({"negotiation": "alice~parcel", "terms": {"price": 5, "delivery_ms": 1}}).to_string();
    ask(nats, "offer", Some(&bob), offer).await;
    let told = ask(nats, "follow", Some(&alice), r#"{"negotiation":"alice~parcel"}"#).await.1;
    assert_eq!(told["view"]["awards"][0]["contractor"], "bob");
    let table = [
        (None, "{}".to_owned(), "401"),
        (Some("nonsense"), "{}".to_owned(), "401"),
        (Some(alice.as_str()), "[]".to_owned(), "422"),
        (Some(&alice), r#"{"wait_ms":30000}"#.to_owned(), "422"),
        (Some(&alice), "x".repeat(70_000), "413"),
    ];
    for (token, body, code) in table {
        assert_eq!(ask(nats, "inbox", token, body).await.0.as_deref(), Some(code));
    }
    micro.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_larger_than_nats_takes_is_refused() {
    let micro = Micro::start_with("max_payload: 2048").await;
    let alice = micro.site.token("alice");
    let client = bridge_on(&micro.server).await;
    let name = "acme.main".parse().unwrap();
    let serving = tokio::spawn(prompt::serve(client, micro.participants.clone(), name, micro.stop.clone()));
    while micro.nats.request("$SRV.PING.agents", Bytes::new()).await.is_err() {}
    let (code, told) = ask(&micro.nats, "list_policies", Some(&alice), "{}").await;
    assert_eq!((code.as_deref(), told["code"].as_str()), (Some("413"), Some("too_large")), "{told}");
    let told: Vec<_> = prompt_for(&micro.nats, Some(&alice), r#"{"tool": "list_policies"}"#).await.collect().await;
    assert_eq!((told[1].0.as_str(), told.len()), ("413", 2), "{told:?}");
    micro.stop().await;
    serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_serve_is_told_so() {
    let micro = Micro::start().await;
    let options = NatsOptions::new(micro.server.url().replacen("nats://", "nats://bob:change-me-too@", 1));
    assert_eq!(options.status.service_fault().as_deref(), Some("there is no connection to NATS"));
    let client = bus::nats::connect(&options).await.unwrap();
    assert_eq!(options.status.service_fault(), None);
    let name = "acme.main".parse().unwrap();
    tokio::spawn(prompt::serve(client, micro.participants.clone(), name, micro.stop.clone()));
    let told = loop {
        match options.status.service_fault() {
            Some(fault) if fault.contains("agents.prompt.llmx.acme.main") => break fault,
            _ => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    assert!(told.starts_with("NATS does not let this process use "), "{told}");
    micro.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_goes_to_inboxes_alone() {
    let micro = Micro::start().await;
    let nats = &micro.nats;
    let mut log = nats.subscribe("log.>").await.unwrap();
    nats.publish_with_reply("llmx.inbox", "log.0", Bytes::new()).await.unwrap();
    assert_eq!(ask(nats, "inbox", None, "").await.0.as_deref(), Some("401"));
    nats.flush().await.unwrap();
    let heard = tokio::time::timeout(std::time::Duration::from_millis(200), log.next()).await;
    assert!(heard.is_err(), "{heard:?}");
    micro.stop().await;
}

/// What comes for a prompt, to its empty end: kinds and data of chunks, codes of refusals.
async fn prompt_for(
    nats: &async_nats::Client,
    token: Option<&str>,
    body: impl Into<Bytes>,
) -> BoxStream<'static, (String, String)> {
    let (inbox, mut headers) = (nats.new_inbox(), HeaderMap::new());
    token.into_iter().for_each(|token| headers.insert(micro::TOKEN_HEADER, token));
    let answers = nats.subscribe(inbox.clone()).await.unwrap();
    let subject = "agents.prompt.llmx.acme.main";
    nats.publish_with_reply_and_headers(subject, inbox, headers, body.into()).await.unwrap();
    let chunk = |answer: async_nats::Message| {
        let document: Value = serde_json::from_slice(&answer.payload).ok()?;
        let code = answer.headers.as_ref().and_then(|headers| headers.get("Nats-Service-Error-Code"));
        let text = |member: &str| document[member].as_str().unwrap_or_default().to_owned();
        Some(code.map_or_else(|| (text("type"), text("data")), |code| (code.to_string(), text("detail"))))
    };
    answers.map(chunk).take_while(|chunk| ready(chunk.is_some())).filter_map(ready).boxed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_is_acknowledged_answered_or_refused_and_ended() {
    let micro = Micro::start().await;
    let (nats, alice) = (&micro.nats, micro.site.token("alice"));
    let mut beats = nats.subscribe("agents.hb.*.*.*").await.unwrap();
    let client = bridge_on(&micro.server).await;
    let name = "acme.main".parse().unwrap();
    let serving = tokio::spawn(prompt::serve(client, micro.participants.clone(), name, micro.stop.clone()));
    let beat: Value = serde_json::from_slice(&beats.next().await.unwrap().payload).unwrap();
    assert_eq!((&beat["owner"], &beat["session"], &beat["interval_s"]), (&json!("acme"), &json!("main"), &json!(30)));
    let info = nats.request("$SRV.INFO.agents", Bytes::new()).await.unwrap();
    let info: Value = serde_json::from_slice(&info.payload).unwrap();
    let metadata = json!({"agent": "llmx", "owner": "acme", "session": "main", "protocol_version": "0.3"});
    assert_eq!((&info["metadata"], &info["id"]), (&metadata, &beat["instance_id"]));
    let status = nats.request("agents.status.llmx.acme.main", Bytes::new()).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&status.payload).unwrap()["instance_id"], info["id"]);
    let ack = ("status".to_owned(), "ack".to_owned());
    let text = r#"{"tool": "list_policies", "arguments": {}}"#;
    for body in [text.to_owned(), json!({"prompt": text, "attachments": [], "more": 1}).to_string()] {
        let told: Vec<_> = prompt_for(nats, Some(&alice), body).await.collect().await;
        assert_eq!((&told[0], told[1].0.as_str(), told.len()), (&ack, "response", 2), "{told:?}");
        assert!(serde_json::from_str::<Value>(&told[1].1).unwrap().is_object(), "{told:?}");
    }
    let table = [
        (None, text.to_owned(), "401"),
        (Some(alice.as_str()), "carry a parcel".to_owned(), "422"),
        (Some(&alice), String::new(), "422"),
        (Some(&alice), json!({"prompt": text, "attachments": [{"filename": "a"}]}).to_string(), "400"),
        (Some(&alice), json!({"prompt": 5}).to_string(), "422"),
        (Some(&alice), json!({"prompt": "{}"}).to_string(), "422"),
        (Some(&alice), json!(["list_policies", {}]).to_string(), "422"),
        (Some(&alice), json!({"tool": "buy"}).to_string(), "404"),
        (Some(&alice), json!({"tool": "inbox", "arguments": {"wait_ms": 30_000}}).to_string(), "422"),
        (Some(&alice), "x".repeat(70_000), "413"),
    ];
    for (token, body, code) in table {
        let told: Vec<_> = prompt_for(nats, token, body.clone()).await.collect().await;
        assert_eq!((&told[0], told[1].0.as_str(), told.len()), (&ack, code, 2), "{body:.60}: {told:?}");
    }
    let stats = nats.request("$SRV.STATS.agents", Bytes::new()).await.unwrap();
    let stats: Value = serde_json::from_slice(&stats.payload).unwrap();
    let of_prompts = stats["endpoints"].as_array().unwrap().iter().find(|endpoint| endpoint["name"] == "prompt");
    assert!(of_prompts.unwrap()["num_requests"].as_u64().unwrap() > 9, "{stats}");
    // Who waits when the bridge ends is told so.
    let waits = json!({"tool": "inbox", "arguments": {"wait_ms": 20_000}}).to_string();
    let mut answers = prompt_for(nats, Some(&alice), waits).await;
    assert_eq!(answers.next().await.unwrap(), ack);
    micro.stop.cancel();
    assert_eq!(answers.next().await.unwrap().0, "503");
    assert_eq!(answers.next().await, None);
    for bad in ["acme", "acme.", "Acme.main", "acme.main.more", "acme.ma in"] {
        assert!(bad.parse::<AgentSession>().is_err(), "{bad}");
    }
    micro.stop().await;
    serving.await.unwrap().unwrap();
}
