//! `llmx-lab model-stub`: an OpenAI-compatible endpoint without a model, for tests, experiments and a first look.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::agents::model::config::read_key;
use ::agents::model::stub::{StubReply, StubScript, reply};
use ::gateway::server::{self, ServerOptions};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::listen_address;
use crate::output::{Failure, Outcome, print};
use crate::signals::asked_to_end;

/// Largest request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Connections open at once.
const CONNECTIONS_MAX: usize = 4096;
/// How long a client may take to send a request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for answers under way at the end.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Characters of one piece of a streamed answer.
const PIECE_CHARS: usize = 16;
/// By which clients say how often they have asked before: ours, and OpenAI's.
const RETRY_HEADERS: [&str; 2] = [agents::model::http::RETRY_HEADER, "x-stainless-retry-count"];

/// Arguments of `llmx-lab model-stub`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ModelStubArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "ADDRESS", value_parser = listen_address)]
    listen: SocketAddr,
    /// How it behaves, in TOML (default: every answer fits its schema)
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Fixes every answer, together with the request
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Name of the model in the list of models
    #[arg(long, default_value = "stub", value_name = "NAME")]
    name: String,
    /// Environment variable with a key that requests must carry (default: none is asked for)
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  llmx-lab model-stub --seed 7
  llmx-lab model-stub --listen 127.0.0.1:9091 --script faulty.toml

A script says how often each behaviour comes, and what good answers say:
  slow_ms = 5000
  [shares]
  good = 70
  junk = 10
  429 = 20
  [answer]
  price = { lo = 60000000, hi = 90000000 }
  delivery_ms = 2000
  members = [0, { lo = 1, hi = 3 }]

Behaviours: good junk truncated fenced thinking wrong_type outside_schema other_act refusal empty huge slow 429 500 drop \
no_json_schema no_response_format no_usage first gullible.
The same request gets the same answer; a client that asks again says so in x-retry-count or x-stainless-retry-count.";

/// Serves until asked to end.
pub async fn run(args: ModelStubArgs) -> Outcome {
    let script = match &args.script {
        None => StubScript::default(),
        Some(path) => read_script(path)?,
    };
    let key = args.key_env.as_deref().map(read_key).transpose().map_err(Failure::configuration)?;
    let unbound = |error| Failure::configuration(unbound(args.listen, &error));
    let listener = server::bind(args.listen).map_err(unbound)?;
    let address = listener.local_addr().map_err(unbound)?;
    let stub = Arc::new(Stub { script, seed: args.seed, name: args.name, key });
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let options = ServerOptions::new(CONNECTIONS_MAX, CLIENT_TIMEOUT);
    tasks.spawn(server::drive(listener, router(stub), options, tasks.clone(), stop.clone()));
    print(format_args!("model stub: http://{address}/v1"));
    asked_to_end().await;
    stop.cancel();
    tasks.close();
    // Whoever still waits for an answer loses it.
    let _ = tokio::time::timeout(CLOSE_MAX, tasks.wait()).await;
    Ok(())
}

/// Why it cannot listen, and what to do about it.
fn unbound(address: SocketAddr, error: &std::io::Error) -> String {
    let remedy = if error.kind() == std::io::ErrorKind::AddrInUse {
        let other = SocketAddr::new(address.ip(), address.port().checked_add(1).unwrap_or(9091));
        format!("; end the process that listens there, or give --listen {other} and the same `url` in the model's file")
    } else {
        String::new()
    };
    format!("cannot listen on {address}: {error}{remedy}")
}

fn read_script(path: &std::path::Path) -> Result<StubScript, Failure> {
    let fault = |what: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| fault(&error))?;
    let script: StubScript = toml::from_str(&text).map_err(|error| fault(&error))?;
    script.check().map_err(|error| fault(&error))?;
    Ok(script)
}

struct Stub {
    script: StubScript,
    seed: u64,
    name: String,
    key: Option<String>,
}

fn router(stub: Arc<Stub>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(stub)
}

impl Stub {
    /// A refusal where the key that is asked for is not there.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let wanted = format!("Bearer {}", self.key.as_ref()?);
        let is_known = headers.get(header::AUTHORIZATION).is_some_and(|given| given.as_bytes() == wanted.as_bytes());
        let refused = || error(401, Some("invalid_api_key"), "Incorrect API key provided.");
        (!is_known).then(refused)
    }

    fn entry(&self) -> Value {
        json!({ "id": self.name, "object": "model", "created": 0, "owned_by": "llmx" })
    }
}

async fn complete(State(stub): State<Arc<Stub>>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some(refusal) = stub.refusal(&headers) {
        return refusal;
    }
    let retry = RETRY_HEADERS.iter().find_map(|name| headers.get(*name)?.to_str().ok()).unwrap_or("0");
    let reply = reply(&stub.script, stub.seed, &body, retry);
    if reply.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    }
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_streamed = reply.status == 200 && request["stream"] == true;
    if is_streamed { streamed(&reply, &request) } else { whole(&reply) }
}

fn whole(reply: &StubReply) -> Response {
    let text = reply.body.to_string();
    let mut response = if reply.is_dropped {
        let half = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
        Response::new(cut(vec![half]))
    } else {
        Response::new(Body::from(text))
    };
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = reply.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A body that breaks off behind these pieces, and its connection with it.
fn cut(pieces: Vec<Bytes>) -> Body {
    let pieces: VecDeque<_> = pieces.into_iter().map(Ok).chain([Err(std::io::Error::other("dropped"))]).collect();
    Body::from_stream(futures_util::stream::iter(pieces))
}

/// The same answer in pieces, as server-sent events.
fn streamed(reply: &StubReply, request: &Value) -> Response {
    let is_usage_wanted = request["stream_options"]["include_usage"] == true;
    let events: Vec<Bytes> = chunks(&reply.body, is_usage_wanted)
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .map(Bytes::from)
        .collect();
    let body = if reply.is_dropped {
        cut(events[..events.len() / 2].to_vec())
    } else {
        Body::from_stream(futures_util::stream::iter(events.into_iter().map(Ok::<_, std::io::Error>)))
    };
    ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

/// The chunks of a completion: the role, pieces of the text, the end, and the usage where it is asked for.
fn chunks(completion: &Value, is_usage_wanted: bool) -> Vec<Value> {
    let chunk = |choices: Value, usage: &Value| {
        let mut chunk = json!({ "id": completion["id"], "object": "chat.completion.chunk", "created": 0,
            "model": completion["model"], "system_fingerprint": completion["system_fingerprint"], "choices": choices });
        if is_usage_wanted {
            chunk["usage"] = usage.clone();
        }
        chunk
    };
    let delta = |delta: Value, finish: &Value| {
        let choice = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        chunk(choice, &Value::Null)
    };
    let choice = &completion["choices"][0];
    let mut chunks = vec![delta(json!({ "role": "assistant", "content": "" }), &Value::Null)];
    for member in ["content", "refusal"] {
        let text: Vec<char> = choice["message"][member].as_str().unwrap_or_default().chars().collect();
        for piece in text.chunks(PIECE_CHARS) {
            chunks.push(delta(json!({ member: piece.iter().collect::<String>() }), &Value::Null));
        }
    }
    chunks.push(delta(json!({}), &choice["finish_reason"]));
    if is_usage_wanted && completion["usage"].is_object() {
        chunks.push(chunk(json!([]), &completion["usage"]));
    }
    chunks
}

async fn models(State(stub): State<Arc<Stub>>, headers: HeaderMap) -> Response {
    stub.refusal(&headers).unwrap_or_else(|| json_response(&json!({ "object": "list", "data": [stub.entry()] })))
}

async fn model(State(stub): State<Arc<Stub>>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if let Some(refusal) = stub.refusal(&headers) {
        return refusal;
    }
    if name == stub.name {
        return json_response(&stub.entry());
    }
    error(404, Some("model_not_found"), "The model does not exist or you do not have access to it.")
}

async fn unknown(method: Method, uri: Uri) -> Response {
    error(404, Some("unknown_url"), &format!("Unknown request URL: {method} {}.", uri.path()))
}

async fn not_allowed(method: Method) -> Response {
    error(405, Some("method_not_supported"), &format!("Not allowed to {method} on this path."))
}

fn error(status: u16, code: Option<&str>, message: &str) -> Response {
    whole(&StubReply::error(status, "invalid_request_error", code, None, message))
}

fn json_response(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests;
