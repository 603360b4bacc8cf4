//! The tools behind a prompt: service `agents` of the Synadia Agent Protocol 0.3.
//!
//! The text of a prompt is JSON, `{"tool": …, "arguments": {…}}`, and the header [`super::TOKEN_HEADER`] has the token. The answer is
//! a stream: `ack` at once and while it is waited for, the result as one response, an empty message.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::service::{Request, ServiceExt as _};
use async_nats::{Client, Subject};
use bytes::Bytes;
use futures_util::StreamExt as _;
use schemas::validate::{BODY_BYTES_MAX, parse_within};
use schemas::{Code, Refusal, Timestamp, WireTime};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{REQUESTS_MAX, called, inbox, message, placed, sent};
use crate::ToolFault;
use crate::http::Participants;
use crate::tools::{self, Arguments, drop_fractions};

/// Name of the service, first token of its subjects, and its queue group.
const SERVICE: &str = "agents";
/// Which agent this is.
const AGENT: &str = "llmx";
const PROTOCOL_VERSION: &str = "0.3";
/// Between two heartbeats, in seconds.
const HEARTBEAT_S: u64 = 30;
/// Between two acknowledgements of a prompt that is not answered yet.
const ACK_PERIOD: Duration = Duration::from_secs(10);

/// Whose agent it is, and of which session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSession {
    owner: String,
    session: String,
}

impl FromStr for AgentSession {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token = |token: &str| {
            let is_known =
                |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-_".contains(&letter);
            (1..=64).contains(&token.len()) && token.bytes().all(is_known)
        };
        match text.split_once('.') {
            Some((owner, session)) if is_token(owner) && is_token(session) => {
                Ok(Self { owner: owner.to_owned(), session: session.to_owned() })
            }
            _ => Err("give OWNER.SESSION, each of 1 to 64 lowercase letters, digits, - and _".to_owned()),
        }
    }
}

impl AgentSession {
    /// Where prompts go.
    pub fn prompts(&self) -> String {
        self.subject("prompt")
    }

    fn subject(&self, verb: &str) -> String {
        format!("{SERVICE}.{verb}.{AGENT}.{}.{}", self.owner, self.session)
    }

    fn metadata(&self) -> HashMap<String, String> {
        let pairs = [("agent", AGENT), ("owner", &self.owner), ("session", &self.session)];
        let pairs = pairs.into_iter().chain([("protocol_version", PROTOCOL_VERSION)]);
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn heartbeat(&self, instance: &str) -> Bytes {
        let Self { owner, session } = self;
        let now_ms = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let now = WireTime(Timestamp::from_ms(u64::try_from(now_ms).unwrap_or(u64::MAX)));
        let document = json!({
            "agent": AGENT, "owner": owner, "session": session, "instance_id": instance, "ts": now,
            "interval_s": HEARTBEAT_S,
        });
        document.to_string().into()
    }
}

/// Serves prompts until `stop`.
///
/// # Errors
/// What registering the service fails with.
pub async fn serve(
    client: Client,
    participants: Arc<Participants>,
    name: AgentSession,
    stop: CancellationToken,
) -> Result<(), async_nats::Error> {
    let builder = client.service_builder().description("An exchange where agents negotiate").metadata(name.metadata());
    let service = builder.queue_group(SERVICE).start(SERVICE, env!("CARGO_PKG_VERSION")).await?;
    let limits = [("max_payload", "64KB"), ("attachments_ok", "false")];
    let limits = limits.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let prompts = service.endpoint_builder().name("prompt").metadata(limits);
    let mut prompts = prompts.add(name.prompts()).await?;
    let mut questions = service.endpoint_builder().name("status").add(name.subject("status")).await?;
    let (instance, heart) = (service.info().await.id, Subject::from(name.subject("hb")));
    let (places, tasks, mut beats) =
        (Arc::new(Semaphore::new(REQUESTS_MAX)), TaskTracker::new(), interval(Duration::from_secs(HEARTBEAT_S)));
    loop {
        tokio::select! {
            biased;
            Some(request) = prompts.next() => {
                let Some(reply) = inbox(&request) else { continue };
                let (client, participants, places) = (client.clone(), Arc::clone(&participants), Arc::clone(&places));
                let stop = stop.clone();
                tasks.spawn(async move {
                    let answer = Box::pin(placed(&places, &stop, prompted(&participants, &request)));
                    let answer = acknowledged(&client, &reply, answer).await;
                    let response = answer.map(|answer| chunk("response", &answer.to_string()));
                    let (headers, body) = message(&client, response);
                    sent(client.publish_with_headers(reply, headers, body).await);
                    sent(request.respond(Ok(Bytes::new())).await);
                });
            }
            Some(request) = questions.next() => {
                if inbox(&request).is_some() {
                    sent(request.respond(Ok(name.heartbeat(&instance))).await);
                }
            }
            _ = beats.tick() => sent(client.publish(heart.clone(), name.heartbeat(&instance)).await),
            () = stop.cancelled() => break,
        }
    }
    tasks.close();
    tasks.wait().await;
    client.flush().await?;
    service.stop().await
}

/// Waits for an answer, and says so.
async fn acknowledged<T>(client: &Client, reply: &Subject, mut answer: impl Future<Output = T> + Unpin) -> T {
    loop {
        sent(client.publish(reply.clone(), chunk("status", "ack").into()).await);
        if let Ok(answer) = timeout(ACK_PERIOD, &mut answer).await {
            return answer;
        }
    }
}

fn chunk(kind: &str, data: &str) -> String {
    json!({"type": kind, "data": data}).to_string()
}

/// What a prompt asks for.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    tool: String,
    #[serde(default)]
    arguments: Arguments,
}

async fn prompted(participants: &Participants, request: &Request) -> Result<Value, ToolFault> {
    let ToolCall { tool, arguments } = tool_call(&request.message.payload)?;
    let known = tools::of(participants.sets()).find(|known| known.name == tool);
    let tool = known.ok_or_else(|| {
        Refusal::new(Code::NotFound, "there is no such tool").at("/tool").expecting("a tool of the service llmx")
    })?;
    called(participants, tool, request, Ok(arguments)).await
}

/// The tool and its arguments that a prompt names: text, or `{"prompt": text}`.
///
/// # Errors
/// What is wrong with it, and where.
pub fn tool_call(body: &Bytes) -> Result<ToolCall, Refusal> {
    let expected = r#"{"tool": "call_for_offers", "arguments": {…}}"#;
    let parse = |body: &Bytes| parse_within(body, BODY_BYTES_MAX).map_err(|refusal| refusal.expecting(expected));
    let mut document = parse(body)?;
    if document.get("attachments").is_some_and(|attached| !attached.is_null() && *attached != json!([])) {
        return Err(Refusal::new(Code::MalformedRequest, "a prompt has no attachments here").at("/attachments"));
    }
    if let Some(prompt) = document.get("prompt") {
        let text = prompt.as_str().ok_or_else(|| Refusal::new(Code::WrongType, "a prompt is a text").at("/prompt"))?;
        document = parse(&Bytes::from(text.to_owned()))?;
    }
    drop_fractions(&mut document);
    let call = if document.is_object() { ToolCall::deserialize(document).ok() } else { None };
    call.ok_or_else(|| Refusal::new(Code::BadFormat, "the prompt calls no tool").expecting(expected))
}
