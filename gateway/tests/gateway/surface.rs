//! The HTTP surface as a whole: every refusal is a problem document, descriptions are served, streams are bounded.

use serde_json::Value;

use crate::rig::{Rig, code};

#[tokio::test]
async fn what_is_not_there_is_refused_like_everything_else() {
    let rig = Rig::start().await;
    let token = rig.token("bob");
    let rows = [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/agents/a.b", 404, "not_found"),
        ("GET", "/v1/agents/%ff", 404, "not_found"),
        ("GET", "/v1/groups/none", 404, "not_found"),
        ("GET", "/v1/negotiations/none", 404, "not_found"),
        ("GET", "/schemas/none.json", 404, "not_found"),
        ("GET", "/v1/messages", 405, "method_not_allowed"),
        ("POST", "/v1/agents", 405, "method_not_allowed"),
        ("DELETE", "/metrics", 405, "method_not_allowed"),
        ("PATCH", "/v1/policies/default", 405, "method_not_allowed"),
        ("GET", "/v1/ws", 422, "bad_format"),
        ("POST", "/v1/messages", 415, "unsupported_media_type"),
    ];
    for (method, path, status, expected) in rows {
        let (found, body) = rig.call(method, path, Some(&token), None).await;
        assert_eq!((found, code(&body)), (status, expected), "{method} {path}: {body}");
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], format!("urn:llmx:problem:{expected}"));
    }
}

#[tokio::test]
async fn every_described_path_asks_for_a_token_unless_it_says_otherwise() {
    let rig = Rig::start().await;
    let (_, document) = rig.call("GET", "/openapi.json", None, None).await;
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_stream = operation["responses"]["200"]["content"].get("text/event-stream").is_some();
            if is_stream && operation.get("security").is_some() {
                // An endless answer; `console` reads it.
                continue;
            }
            let path = path.replace("{id}", "x").replace("{name}", "offer.json").replace("{asset}", "console.js");
            let body = operation.get("requestBody").map(|_| Value::Object(serde_json::Map::new()));
            let (status, answer) = rig.call(&method.to_uppercase(), &path, None, body.as_ref()).await;
            if operation.get("security").is_some() {
                assert_eq!(status, 200, "{method} {path}: {answer}");
            } else {
                assert_eq!((status, code(&answer)), (401, "unauthenticated"), "{method} {path}: {answer}");
                asked += 1;
            }
        }
    }
    assert!(asked > 15, "{asked}");
}

#[tokio::test]
async fn two_tokens_or_another_scheme_are_no_token() {
    let rig = Rig::start().await;
    let token = rig.token("bob");
    for headers in [
        vec![format!("Basic {token}")],
        vec![token.clone()],
        vec![format!("Bearer {token}"), format!("Bearer {token}")],
    ] {
        let mut request = rig.request("GET", "/v1/whoami");
        for header in &headers {
            request = request.header("authorization", header);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(response.status(), 401, "{headers:?}");
    }
    let (status, body) = rig.call("GET", "/v1/whoami", Some(&token), None).await;
    assert_eq!((status, &body["agent"], &body["admin"]), (200, &"bob".into(), &false.into()));
}

#[tokio::test]
async fn every_published_schema_is_served() {
    let rig = Rig::start().await;
    let (_, body) = rig.call("GET", "/schemas", None, None).await;
    let paths = body["schemas"].as_array().unwrap();
    assert!(paths.iter().any(|path| path == "/schemas/offer.json"));
    for path in paths {
        let (status, schema) = rig.call("GET", path.as_str().unwrap(), None, None).await;
        assert_eq!(status, 200);
        assert!(schema.get("$id").is_some(), "{path}");
    }
}

#[tokio::test]
async fn metrics_are_served_in_the_text_format_and_stay_within_their_budget() {
    let rig = Rig::start().await;
    for path in ["/healthz", "/readyz", "/nothing", "/v1/agents/x", "/v1/agents/y"] {
        rig.call("GET", path, None, None).await;
    }
    let text = rig.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(text.contains("exchange_messages_total{kind=\"offer\",outcome=\"accepted\",transport=\"ws\"} 0"));
    assert!(text.contains("http_route=\"/v1/agents/{id}\"") && !text.contains("/v1/agents/x"));
    assert!((500..3200).contains(&series), "{series} series");
}

#[tokio::test]
async fn a_negotiation_is_what_the_engine_of_its_lane_says_and_without_an_engine_unavailable() {
    use bytes::Bytes;
    use futures_util::StreamExt as _;

    let rig = Rig::start().await;
    let token = rig.token("alice");
    let (status, body) = rig.call("GET", "/v1/negotiations/alice~job", Some(&token), None).await;
    assert_eq!((status, code(&body)), (503, "unavailable"));
    let pub_sub = rig.bus.pub_sub.clone();
    let mut questions = pub_sub.subscribe("view.*".to_owned(), None).await.unwrap();
    tokio::spawn(async move {
        while let Some(question) = questions.next().await {
            let asked: Value = serde_json::from_slice(&question.payload).unwrap();
            let answer: &str = if asked["viewer"] == "alice" && asked["negotiation"] == "alice~job" {
                r#"{"found":{"phase":"collecting"}}"#
            } else {
                r#"{"not_found":true}"#
            };
            pub_sub.publish(question.reply.unwrap(), Bytes::from(answer)).await.unwrap();
        }
    });
    let (status, body) = rig.call("GET", "/v1/negotiations/alice~job", Some(&token), None).await;
    assert_eq!((status, &body["phase"]), (200, &"collecting".into()));
    let (status, body) = rig.call("GET", "/v1/negotiations/alice~job", Some(&rig.token("eve")), None).await;
    assert_eq!((status, code(&body)), (404, "not_found"), "strangers learn nothing");
}
