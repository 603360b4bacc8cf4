//! MCP over HTTP: whose token a request shows is who acts, and what is no good request changes nothing.

use std::sync::Arc;
use std::time::Duration;

use agents::transport::websocket::WebSocketTransport;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, Request, StatusCode};
use bridges::http::{BridgeOptions, Participants, PublicAddress, router};
use bridges::tools::ToolSet;
use bridges::{BridgeMetrics, Gateways, Limits};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::exchange::Site;

const PATH: &str = "http://127.0.0.1:8090/mcp";

/// A bridge of an exchange, and its participants.
pub(crate) fn bridge(site: &Site, instance: &str) -> (Router, Arc<Participants>) {
    let options = BridgeOptions {
        gateways: Gateways::try_new(&[site.exchange.url().to_owned()]).unwrap(),
        transport: Box::new({
            let url = site.exchange.url().to_owned();
            move || Arc::new(WebSocketTransport::new(&url))
        }),
        sets: ToolSet::ALL.to_vec(),
        limits: Limits::default(),
        instance: instance.to_owned(),
        metrics: BridgeMetrics::try_new(&prometheus::Registry::new()).unwrap(),
    };
    let participants = Arc::new(Participants::new(options));
    let address = PublicAddress {
        url: "https://exchange.example".to_owned(),
        hosts: vec!["127.0.0.1:8090".to_owned()],
        authorization_server: Some("https://login.example".to_owned()),
        card_key: None,
        text_to: Vec::new(),
    };
    (router(participants.clone(), address, "test", CancellationToken::new()).unwrap(), participants)
}

fn request(token: Option<&str>, headers: &[(&str, &str)], body: impl Into<Body>) -> Request<Body> {
    let mut request = Request::post(PATH)
        .header("host", "127.0.0.1:8090")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).unwrap()
}

pub(crate) async fn answer(router: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, headers, serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))))
}

fn call(tool: &str, arguments: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
        .to_string()
}

pub(crate) async fn called(router: &Router, token: &str, tool: &str, arguments: Value) -> Value {
    let (status, _, answer) = answer(router, request(Some(token), &[], call(tool, &arguments))).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["result"]["structuredContent"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_good_request_is_refused_and_makes_no_participant() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let alice = site.token("alice");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let table: Vec<(Request<Body>, u16, &str)> = vec![
        (request(None, &[], list.clone()), 401, "unauthenticated"),
        (request(Some("nonsense"), &[], list.clone()), 401, "unauthenticated"),
        (request(Some(""), &[], list.clone()), 401, "unauthenticated"),
        (Request::get(PATH).body(Body::empty()).unwrap(), 405, "method_not_allowed"),
        (Request::delete(PATH).body(Body::empty()).unwrap(), 405, "method_not_allowed"),
        (Request::get("http://127.0.0.1:8090/else").body(Body::empty()).unwrap(), 404, "not_found"),
    ];
    for (request, status, code) in table {
        let asked = format!("{request:?}");
        let (told, headers, answer) = answer(&router, request).await;
        assert_eq!((told.as_u16(), answer["code"].as_str()), (status, Some(code)), "{asked}");
        let challenge = headers.get("www-authenticate").map(|value| value.to_str().unwrap());
        let metadata = "resource_metadata=\"https://exchange.example/.well-known/oauth-protected-resource/mcp\"";
        assert_eq!(challenge.is_some_and(|challenge| challenge.ends_with(metadata)), status == 401);
        let is_wrong = challenge.is_some_and(|challenge| challenge.contains("error=\"invalid_token\""));
        assert_eq!(is_wrong, asked.contains("authorization") && status == 401);
    }
    let table: Vec<(Request<Body>, u16)> = vec![
        (request(Some(&alice), &[], "nonsense"), 400),
        (request(Some(&alice), &[], r#"{"jsonrpc":"2.0","id":1,"id":2}"#), 400),
        (request(Some(&alice), &[], vec![b' '; 70_000]), 413),
        (request(Some(&alice), &[("origin", "https://evil.example")], list.clone()), 403),
        (request(Some(&alice), &[("origin", "https://exchange.example:444")], list.clone()), 403),
        (request(Some(&alice), &[("origin", "http://exchange.example")], list.clone()), 403),
        (request(Some(&alice), &[("origin", "null")], list.clone()), 403),
        (request(Some(&alice), &[("origin", "https://exchange.example")], list.clone()), 200),
        (request(Some(&alice), &[("origin", "http://127.0.0.1:8090")], list.clone()), 200),
        (request(Some(&alice), &[("mcp-protocol-version", "1999-01-01")], list.clone()), 400),
        (request(Some(&alice), &[], list.clone()), 200),
    ];
    for (request, status) in table {
        let (told, _, answer) = answer(&router, request).await;
        assert_eq!(told.as_u16(), status, "{answer}");
    }
    for path in [PATH, "http://127.0.0.1:8090/a2a"] {
        for (host, origin) in [
            ("evil.example", None),
            ("127.0.0.1:8091", None),
            ("127.0.0.1:8090", Some("https://evil.example")),
            ("exchange.example", Some("null")),
        ] {
            let mut foreign = request(Some(&alice), &[], list.clone());
            *foreign.uri_mut() = path.parse().unwrap();
            foreign.headers_mut().insert("host", host.parse().unwrap());
            foreign.headers_mut().extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
            let (status, _, told) = answer(&router, foreign).await;
            assert_eq!((status, &told["code"]), (StatusCode::FORBIDDEN, &json!("unauthorized")), "{path} {host}");
        }
    }
    let mut two = request(Some(&alice), &[], "{}");
    two.headers_mut().append("authorization", "Bearer other".parse().unwrap());
    assert_eq!(answer(&router, two).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(participants.len(), 0, "no tool was called");
    participants.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_token_reads_where_to_get_one() {
    let site = Site::start().await;
    let (router, _) = bridge(&site, "b1");
    for path in ["", "/mcp"] {
        let url = format!("http://127.0.0.1:8090/.well-known/oauth-protected-resource{path}");
        let (status, _, document) = answer(&router, Request::get(url).body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::OK);
        let expected = json!({"resource": "https://exchange.example/mcp", "bearer_methods_supported": ["header"],
            "authorization_servers": ["https://login.example"]});
        assert_eq!(document, expected);
    }
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_at_two_bridges_at_once_is_one_negotiation_and_either_tells_its_end() {
    let site = Site::start().await;
    let ((one, ones), (other, others)) = (bridge(&site, "bridge-1"), bridge(&site, "bridge-2"));
    let (alice, bob) = (site.token("alice"), site.token("bob"));
    called(&one, &bob, "register", json!({"topics": ["courier"]})).await;
    let cfp = json!({"id": "parcel", "task": "carry", "to": ["topic://courier"], "policy": "high", "wait_ms": 0});
    let both = [called(&one, &alice, "call_for_offers", cfp.clone()), called(&other, &alice, "call_for_offers", cfp)];
    let opened = futures_util::future::join_all(both).await;
    assert_eq!(
        (&opened[0]["negotiation"], &opened[1]["negotiation"]),
        (&json!("alice~parcel"), &json!("alice~parcel"))
    );
    let offer = json!({"negotiation": "alice~parcel", "terms": {"price": 5, "delivery_ms": 1}});
    let heard = called(&one, &bob, "inbox", json!({})).await;
    assert_eq!(heard["items"][0]["payload"]["act"], "cfp");
    called(&one, &bob, "offer", offer).await;
    let heard = called(&one, &bob, "inbox", json!({"after": heard["cursor"]})).await;
    assert_eq!(heard["items"][0]["payload"]["disposition"], "committed");
    called(&one, &bob, "report", json!({"negotiation": "alice~parcel", "result": "done"})).await;
    for router in [&one, &other] {
        let mut told = json!({});
        while told["results"][0].is_null() || told["outcome"].is_null() {
            told =
                called(router, &alice, "follow", json!({"negotiation": "alice~parcel", "after": told["cursor"]})).await;
        }
        assert_eq!((&told["outcome"], &told["results"][0]["text"]), (&json!("completed"), &json!("done")));
    }
    let foreign = called(&other, &site.token("mallory"), "follow", json!({"negotiation": "alice~parcel"})).await;
    assert_eq!(foreign["code"], "not_found");
    assert_eq!((ones.len(), others.len()), (2, 2));
    ones.close().await;
    others.close().await;
    site.stop([]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_ends_with_its_token() {
    let site = Site::start().await;
    let (router, participants) = bridge(&site, "b1");
    let tending = tokio::spawn({
        let participants = participants.clone();
        async move { participants.tend().await }
    });
    called(&router, &site.token_for("alice", 8), "list_policies", json!({})).await;
    assert_eq!(participants.len(), 1);
    let ended = async {
        while !participants.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
    assert_eq!(participants.fault(), None, "a gateway is ready");
    tending.abort();
    site.stop([]).await;
}
