//! MCP over standard input and output: what is no message gets its answer, and the client goes on.

use std::sync::Arc;

use bridges::mcp::{McpServer, Services, serve_stdio};
use bridges::service::ToolService;
use bridges::tools::ToolSet;
use futures_util::future::BoxFuture;
use schemas::{Code, Refusal};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Nobody: the gateway refuses the token.
struct Nobody;

impl Services for Nobody {
    fn service(&self, _: &rmcp::model::Extensions) -> BoxFuture<'_, Result<Arc<ToolService>, Refusal>> {
        Box::pin(async { Err(Refusal::new(Code::Unauthenticated, "no")) })
    }
}

/// The answers to these lines.
async fn answers(lines: &[u8]) -> Vec<Value> {
    answers_of(Nobody, lines).await
}

async fn answers_of(services: impl Services, lines: &[u8]) -> Vec<Value> {
    let (mut client, input) = tokio::io::duplex(1 << 20);
    let (output, mut answers) = tokio::io::duplex(1 << 20);
    let server = McpServer::new(services, ToolSet::DEFAULT.to_vec(), "test");
    let serving = tokio::spawn(serve_stdio(server, input, output));
    client.write_all(lines).await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    answers.read_to_string(&mut text).await.unwrap();
    serving.await.unwrap().unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn message(id: u32, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn initialize() -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    message(1, "initialize", params) + "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
}

fn answer_of(answers: &[Value], id: u32) -> &Value {
    answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("no answer {id}: {answers:?}"))
}

#[tokio::test]
async fn tools_are_listed_and_an_unknown_one_or_one_that_is_off_is_an_error_of_the_protocol() {
    let lines = initialize()
        + &message(2, "tools/list", json!({}))
        + &message(3, "tools/call", json!({"name": "telepathy", "arguments": {}}))
        + &message(4, "tools/call", json!({"name": "say", "arguments": {}}))
        + &message(5, "tools/call", json!({"name": "list_policies"}));
    let answers = answers(lines.as_bytes()).await;
    assert_eq!(answer_of(&answers, 1)["result"]["capabilities"], json!({"tools": {}}));
    assert!(answer_of(&answers, 1)["result"]["instructions"].as_str().unwrap().len() <= 512);
    assert_eq!(answer_of(&answers, 2)["result"]["tools"].as_array().unwrap().len(), 16);
    for id in [3, 4] {
        assert_eq!(answer_of(&answers, id)["error"]["code"], -32602);
    }
    let refused = &answer_of(&answers, 5)["result"];
    assert_eq!((&refused["isError"], &refused["structuredContent"]["code"]), (&json!(true), &json!("unauthenticated")));
}

#[tokio::test]
async fn what_is_no_message_gets_an_answer_and_the_client_goes_on() {
    let mut lines = initialize().into_bytes();
    lines.extend_from_slice(b"garbage\n\n{\"id\":1,\"id\":2}\n\xff\xfe\n");
    lines.extend(std::iter::repeat_n(b'a', 70_000));
    lines.push(b'\n');
    lines.extend_from_slice(message(9, "tools/list", json!({})).as_bytes());
    let answers = answers(&lines).await;
    let codes: Vec<&str> = answers.iter().filter_map(|answer| answer["error"]["data"]["code"].as_str()).collect();
    assert_eq!(codes, ["malformed_json", "duplicate_key", "malformed_json", "too_large"]);
    assert!(answer_of(&answers, 9)["result"]["tools"].is_array());
}

/// Somebody whose service never comes.
struct Never;

impl Services for Never {
    fn service(&self, _: &rmcp::model::Extensions) -> BoxFuture<'_, Result<Arc<ToolService>, Refusal>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_ends_soon_after_its_client_has() {
    let lines = initialize() + &message(2, "tools/call", json!({"name": "inbox", "arguments": {}}));
    let started = tokio::time::Instant::now();
    let answers = answers_of(Never, lines.as_bytes()).await;
    assert_eq!(answer_of(&answers, 2)["result"]["structuredContent"]["code"], "request_timeout");
    assert!(started.elapsed() < std::time::Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_client_that_ends_at_once_is_no_fault() {
    assert_eq!(answers(b"").await, Vec::<Value>::new());
}
