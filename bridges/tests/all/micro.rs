//! The tools as a NATS service, on a real nats-server.

use std::sync::Arc;

use async_nats::HeaderMap;
use bridges::http::Participants;
use bridges::micro;
use bytes::Bytes;
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
    _server: LocalServer,
}

impl Micro {
    async fn start() -> Self {
        let (server, site) = (LocalServer::start(LocalServerOptions::default()).await.unwrap(), Site::start().await);
        let connect = async || micro::connect(&server.url(), None).await.unwrap();
        let (client, nats, stop) = (connect().await, connect().await, CancellationToken::new());
        let (_, participants) = bridge(&site, "b1");
        let (served, stopped) = (participants.clone(), stop.clone());
        let serving =
            tokio::spawn(async move { micro::serve(client, served, "https://exchange.example", stopped).await });
        while nats.request("$SRV.PING.llmx", Bytes::new()).await.is_err() {}
        Self { nats, site, participants, serving, stop, _server: server }
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
async fn an_answer_goes_to_inboxes_alone() {
    let micro = Micro::start().await;
    let nats = &micro.nats;
    let mut log = nats.subscribe("log.>").await.unwrap();
    nats.publish_with_reply("llmx.inbox", "log.0", Bytes::new()).await.unwrap();
    assert_eq!(ask(nats, "inbox", None, "").await.0.as_deref(), Some("401"));
    nats.flush().await.unwrap();
    let heard =
        tokio::time::timeout(std::time::Duration::from_millis(200), futures_util::StreamExt::next(&mut log)).await;
    assert!(heard.is_err(), "{heard:?}");
    micro.stop().await;
}
