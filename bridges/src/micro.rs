//! The tools as endpoints of a NATS service, `llmx` (ADR-32): `nats req llmx.<tool>`, `nats micro ls`, every client's service API.
//!
//! A request's body is the tool's arguments, its header [`TOKEN_HEADER`] the token of who asks; the reply is the answer. A refusal is
//! the body of a reply whose headers name its status and code.

pub mod prompt;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use async_nats::service::endpoint::Endpoint;
use async_nats::service::{Request, ServiceExt as _};
use async_nats::{Client, HeaderMap, Subject};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use schemas::validate::{BODY_BYTES_MAX, parse_within};
use schemas::{Code, Refusal};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ToolFault;
use crate::http::Participants;
use crate::metrics::ForeignProtocol;
use crate::tools::{self, Arguments, Tool, drop_fractions};

/// Header of a request that carries the token.
pub const TOKEN_HEADER: &str = "Llmx-Token";
/// Name of the service, first token of its subjects, and its queue group.
const SERVICE: &str = "llmx";
/// What subjects of replies begin with.
const INBOX: &str = "_INBOX";
/// Requests under way at once.
const REQUESTS_MAX: usize = 4096;
/// Longest wait for news, in ms: NATS tells nobody that a requester has gone.
const WAIT_MS_MAX: u64 = 20_000;
/// Most characters of an error's header.
const ERROR_CHARS_MAX: usize = 200;

/// Serves the tools until `stop`; `public_url` is where the bridge is found over HTTP.
///
/// # Errors
/// What registering the service fails with.
pub async fn serve(
    client: Client,
    participants: Arc<Participants>,
    public_url: &str,
    stop: CancellationToken,
) -> Result<(), async_nats::Error> {
    let builder = client
        .service_builder()
        .description("An exchange where agents negotiate, as tools")
        .metadata(HashMap::from([("public_url".to_owned(), public_url.to_owned())]))
        .queue_group(SERVICE);
    let service = builder.start(SERVICE, env!("CARGO_PKG_VERSION")).await?;
    let mut endpoints = Vec::new();
    for tool in tools::of(participants.sets()) {
        let mut schema = tool.listed["inputSchema"].clone();
        if let Some(wait) = schema.pointer_mut("/properties/wait_ms/maximum") {
            *wait = WAIT_MS_MAX.into();
        }
        let schema = HashMap::from([("schema".to_owned(), schema.to_string())]);
        let endpoint = service.endpoint_builder().name(tool.name).metadata(schema);
        let endpoint: Endpoint = endpoint.add(format!("{SERVICE}.{}", tool.name)).await?;
        endpoints.push(endpoint.map(move |request| (tool, request)));
    }
    let (places, tasks) = (Arc::new(Semaphore::new(REQUESTS_MAX)), TaskTracker::new());
    let mut requests = select_all(endpoints);
    loop {
        // What has come before the end is answered, too.
        let request = tokio::select! {
            biased;
            request = requests.next() => request,
            () = stop.cancelled() => None,
        };
        let Some((tool, request)) = request else { break };
        let (participants, places) = (Arc::clone(&participants), Arc::clone(&places));
        let (client, stop) = (client.clone(), stop.clone());
        tasks.spawn(async move {
            let arguments = arguments(&request.message.payload);
            let answer = placed(&places, &stop, called(&participants, tool, &request, arguments)).await;
            reply(&client, &request, answer).await;
        });
    }
    tasks.close();
    tasks.wait().await;
    client.flush().await?;
    service.stop().await
}

/// An answer, where there is a place for it, until `stop`.
async fn placed(
    places: &Semaphore,
    stop: &CancellationToken,
    answer: impl Future<Output = Result<Value, ToolFault>>,
) -> Result<Value, ToolFault> {
    let refuse = |code, fault| Err(Refusal::new(code, fault).retry_after_ms(1000).into());
    let Ok(_place) = places.try_acquire() else { return refuse(Code::Overloaded, "too many requests") };
    let ended = refuse(Code::Unavailable, "this bridge ends, and the call may have been made");
    stop.run_until_cancelled(answer).await.unwrap_or(ended)
}

/// Calls a tool for the bearer of the request's token.
async fn called(
    participants: &Participants,
    tool: &'static Tool,
    request: &Request,
    arguments: Result<Arguments, Refusal>,
) -> Result<Value, ToolFault> {
    let started = Instant::now();
    let answer = async {
        let token = request.message.headers.as_ref().and_then(|headers| headers.get(TOKEN_HEADER));
        let Some(token) = token else {
            let fault = format!("a token is expected in the header {TOKEN_HEADER}");
            return Err(Refusal::new(Code::Unauthenticated, fault).into());
        };
        participants.service(token.as_str()).await?.call(tool, within_wait(arguments?)?).await
    };
    let answer = answer.await;
    participants.metrics().called(ForeignProtocol::Nats, tool.name, answer.is_ok(), started.elapsed());
    answer
}

/// The arguments a body holds; an empty one holds none.
fn arguments(body: &Bytes) -> Result<Arguments, Refusal> {
    if body.is_empty() {
        return Ok(Arguments::new());
    }
    let mut document = parse_within(body, BODY_BYTES_MAX)?;
    drop_fractions(&mut document);
    let Value::Object(arguments) = document else {
        return Err(Refusal::new(Code::WrongType, "the arguments of a tool are an object").at(""));
    };
    Ok(arguments)
}

fn within_wait(arguments: Arguments) -> Result<Arguments, Refusal> {
    if arguments.get("wait_ms").and_then(Value::as_u64).is_some_and(|wait| wait > WAIT_MS_MAX) {
        let fault = Refusal::new(Code::OutOfRange, "so long a wait is not offered over NATS").at("/wait_ms");
        return Err(fault.expecting(format!("0 to {WAIT_MS_MAX}")));
    }
    Ok(arguments)
}

/// Where a request is answered. Whoever asks names the subject: an answer goes to inboxes alone, never among the exchange's own.
fn inbox(request: &Request) -> Option<Subject> {
    request.message.reply.clone().filter(|reply| reply.starts_with(INBOX))
}

async fn reply(client: &Client, request: &Request, answer: Result<Value, ToolFault>) {
    if inbox(request).is_some() {
        let (headers, body) = message(client, answer.map(|answer| answer.to_string()));
        sent(request.respond_with_headers(Ok(body), headers).await);
    }
}

/// Headers and body of an answer or a refusal: an answer that NATS does not take is refused, too.
fn message(client: &Client, answer: Result<String, ToolFault>) -> (HeaderMap, Bytes) {
    let bytes_max = client.server_info().max_payload;
    let too_large =
        || Refusal::new(Code::TooLarge, "the answer is larger than NATS takes").expecting("a smaller `limit`");
    let fitting = |body: String| if body.len() > bytes_max { Err(too_large().into()) } else { Ok(body) };
    match answer.and_then(fitting) {
        Ok(body) => (HeaderMap::new(), body.into()),
        Err(fault) => fault_message(&fault),
    }
}

fn sent<E: Display>(outcome: Result<(), E>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "a reply was not sent");
    }
}

/// Headers and body of a refusal.
fn fault_message(fault: &ToolFault) -> (HeaderMap, Bytes) {
    let (status, told) = (fault.http_status(), fault.to_value());
    let told_of = |member: &str| told[member].as_str().unwrap_or_default();
    let line = format!("{}: {}", told_of("code"), told_of("detail"));
    let line: String = line.chars().filter(|one| !one.is_control()).take(ERROR_CHARS_MAX).collect();
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Service-Error-Code", status.to_string().as_str());
    headers.insert("Nats-Service-Error", line.as_str());
    (headers, told.to_string().into())
}
