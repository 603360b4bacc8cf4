use std::collections::BTreeMap;

use ::agents::model::{
    AnswerForm, ChatMessage, ChatRole, CompletionError, CompletionRequest, HttpModel, Model, ModelConfig,
};

use super::*;
use agents::model::stub::{StubBehaviour, StubValue};

/// Serves a stub of one behaviour; returns the URL of its interface.
async fn serve(behaviour: StubBehaviour, key: Option<&str>) -> String {
    let script = StubScript {
        shares: BTreeMap::from([(behaviour, 1)]),
        answer: BTreeMap::from([("price".to_owned(), StubValue::Number(85))]),
        slow_ms: 60_000,
        ..StubScript::default()
    };
    let stub = Stub { script, seed: 1, name: "stub".to_owned(), key: key.map(str::to_owned) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router(Arc::new(stub))).await });
    url
}

fn question(timeout_ms: u64) -> CompletionRequest {
    let schema = json!({"type": "object", "properties": {"price": {"type": "integer"}}});
    CompletionRequest {
        messages: vec![ChatMessage { role: ChatRole::User, content: "How much?".to_owned() }],
        form: AnswerForm::JsonSchema,
        schema: schema.to_string(),
        answer_tokens: 64,
        retry: 0,
        timeout: Duration::from_millis(timeout_ms),
    }
}

#[tokio::test]
async fn the_adapter_sees_every_fault_as_what_it_is() {
    let fine =
        ::agents::model::Completion { content: r#"{"price":85}"#.to_owned(), is_stub: true, ..Default::default() };
    for (behaviour, timeout_ms, expected) in [
        (StubBehaviour::NoUsage, 20_000, Ok(fine)),
        (StubBehaviour::RateLimited, 20_000, Err(CompletionError::RateLimited { retry_after_ms: Some(1000) })),
        (StubBehaviour::Failed, 20_000, Err(CompletionError::Failed { status: 500, retry_after_ms: None })),
        (StubBehaviour::Drop, 20_000, Err(CompletionError::Unreachable("the connection was lost".to_owned()))),
        (StubBehaviour::Huge, 20_000, Err(CompletionError::TooLarge)),
        (StubBehaviour::Slow, 50, Err(CompletionError::TimedOut)),
        (StubBehaviour::NoJsonSchema, 20_000, Err(CompletionError::FormUnknown)),
    ] {
        let config = ModelConfig { url: serve(behaviour, None).await, ..ModelConfig::default() };
        let model = HttpModel::try_new(&config, None).unwrap();
        assert_eq!(model.complete(question(timeout_ms)).await, expected, "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_asked_for_must_be_there() {
    let url = serve(StubBehaviour::Good, Some("sk-1")).await;
    let config = ModelConfig { url: url.clone(), ..ModelConfig::default() };
    for (key, is_known) in [(Some("sk-1"), true), (Some("sk-2"), false), (None, false)] {
        let outcome = HttpModel::try_new(&config, key).unwrap().complete(question(20_000)).await;
        assert_eq!(outcome.is_ok(), is_known, "{key:?}");
        assert!(is_known || outcome == Err(CompletionError::Refused { status: 401 }));
    }
    let refused = reqwest::get(format!("{url}/models")).await.unwrap();
    let (status, body) = (refused.status(), refused.text().await.unwrap());
    assert_eq!(status, 401);
    assert!(body.contains("invalid_api_key") && !body.contains("sk-1"), "{body}");
}

#[tokio::test]
async fn models_are_listed_and_what_is_not_there_is_an_error_object() {
    let url = serve(StubBehaviour::Good, None).await;
    let read = async |path: &str| {
        let response = reqwest::get(format!("{url}{path}")).await.unwrap();
        (response.status().as_u16(), serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap())
    };
    let (status, models) = read("/models").await;
    assert_eq!((status, &models["data"][0]["id"], &models["object"]), (200, &json!("stub"), &json!("list")));
    assert_eq!(read("/models/stub").await.1["object"], "model");
    for (path, status, code) in [
        ("/models/other", 404, "model_not_found"),
        ("/other", 404, "unknown_url"),
        ("/chat/completions", 405, "method_not_supported"),
    ] {
        let (seen, body) = read(path).await;
        assert_eq!((seen, &body["error"]["code"]), (status, &json!(code)), "{body}");
    }
}

#[tokio::test]
async fn a_stream_holds_the_same_text_in_pieces() {
    let url = serve(StubBehaviour::Junk, None).await;
    let ask = async |stream: bool| {
        let body = json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true}, "messages":
            [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": {"schema": {}}}});
        let client = reqwest::Client::new();
        client
            .post(format!("{url}/chat/completions"))
            .body(body.to_string())
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    let whole: Value = serde_json::from_str(&ask(false).await).unwrap();
    let stream = ask(true).await;
    let events: Vec<&str> = stream.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(Some(&*text), whole["choices"][0]["message"]["content"].as_str());
    assert!(chunks.len() > 4, "{} chunks", chunks.len());
    assert_eq!(chunks.last().unwrap()["usage"], whole["usage"]);
    assert!(chunks.iter().any(|chunk| chunk["choices"][0]["finish_reason"] == "stop"));
}
