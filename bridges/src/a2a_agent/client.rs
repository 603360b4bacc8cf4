//! Asks an A2A agent by JSON-RPC: bounded answers, from the addresses of its card alone.

use std::sync::Arc;
use std::time::Duration;

use ::a2a::methods::{CANCEL_TASK, GET_TASK, SEND_MESSAGE};
use ::a2a::{AgentCard, JsonRpcRequest, SVC_PARAM_EXTENSIONS, SVC_PARAM_VERSION, TRANSPORT_PROTOCOL_JSONRPC, VERSION};
use agents::asking::Answers;
use agents::control::{cause, client};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Collected, Limited};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::{A2aFault, A2aReply, A2aStep, ANSWER_BYTES_MAX, OpenTask};
use super::{A2aContractor, A2aQuestion, NEGOTIATIONS_MAX};
use crate::a2a::card::EXTENSION;
use crate::a2a::request::is_json;

/// How long the card may take, and one look at a task.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause before a task is looked at again.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Looks in a row that may bring nothing before a task is given up.
const LOOK_FAULTS_MAX: u32 = 4;

/// An A2A agent. The header that its owner gives goes to the origin of its card and nowhere else; no redirect is followed.
#[derive(Debug, Clone)]
pub struct A2aClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
    is_extended: bool,
    /// Places of questions, also of those whose time is over.
    room: Arc<Semaphore>,
    /// Tasks are of no use any more.
    ended: CancellationToken,
}

impl A2aClient {
    /// The agent whose card is at this address, to be asked with this header.
    ///
    /// # Errors
    /// What is wrong with the card, or why there is none.
    pub async fn open(card: &str, header: Option<(HeaderName, HeaderValue)>) -> Result<Self, String> {
        let client = client(LOOK_TIMEOUT, [card]).map_err(|error| error.to_string())?;
        let at = Url::parse(card).map_err(|error| error.to_string())?;
        let mut headers: HeaderMap = header.into_iter().collect();
        let card = read(client.get(at.clone()).headers(headers.clone())).await?;
        let card: AgentCard = serde_json::from_slice(&card).map_err(|error| format!("no agent card: {error}"))?;
        let ours = (TRANSPORT_PROTOCOL_JSONRPC, VERSION);
        let mut interfaces = card.supported_interfaces.iter();
        let interface = interfaces.find(|one| (one.protocol_binding.as_str(), one.protocol_version.as_str()) == ours);
        let url = interface.and_then(|one| Url::parse(&one.url).ok());
        let url = url
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or("its card names no JSON-RPC interface of A2A 1.0")?;
        if url.origin() != at.origin() {
            headers.clear();
        }
        headers.insert(SVC_PARAM_VERSION, HeaderValue::from_static(VERSION));
        let is_extended = card.capabilities.extensions.iter().flatten().any(|extension| extension.uri == EXTENSION);
        if is_extended {
            headers.insert(SVC_PARAM_EXTENSIONS, HeaderValue::from_static(EXTENSION));
        }
        let (room, ended) = (Arc::new(Semaphore::new(NEGOTIATIONS_MAX)), CancellationToken::new());
        Ok(Self { client, url, headers, is_extended, room, ended })
    }

    /// Whether its card names the extension.
    pub const fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Cancels all open tasks, including those whose id is still to come. The caller bounds the wait.
    pub async fn end(&self, stops: Vec<A2aQuestion>) {
        self.ended.cancel();
        let ask = async |stop| drop(self.answer(&stop).await);
        stream::iter(stops).for_each_concurrent(Self::AT_ONCE, ask).await;
        let _ = self.room.acquire_many(NEGOTIATIONS_MAX as u32).await;
    }

    /// The answer to one request. Whoever waits limits the time, but for that of a look at a task.
    async fn call(&self, method: &str, params: Value, known: usize, within: Duration) -> Result<A2aReply, A2aFault> {
        let request = JsonRpcRequest::new(1.into(), method, Some(params));
        let post = self.client.post(self.url.clone()).headers(self.headers.clone()).json(&request);
        let body = read(post.timeout(within + LOOK_TIMEOUT)).await.map_err(|why| {
            tracing::debug!(method, why, "the A2A agent gives no answer");
            A2aFault::Unavailable
        })?;
        A2aReply::read(&body, known)
    }

    /// Asks, and looks at a task that is worked on until it comes to something. A task that has not in time is cancelled.
    async fn ask(self, question: A2aQuestion) -> Result<A2aReply, A2aFault> {
        let A2aQuestion { step, task, within, .. } = &question;
        let by = Instant::now() + *within;
        let known = task.as_ref().map_or(0, |task| task.artifacts);
        let (method, params) = match task {
            Some(task) if *step == A2aStep::Stop => (CANCEL_TASK, json!({"id": task.id})),
            _ => (SEND_MESSAGE, super::request(&question, self.is_extended)),
        };
        let heard = self.call(method, params, known, *within).await;
        if let (A2aStep::Close, Some(task)) = (step, task) {
            self.stop(task).await;
            return heard;
        }
        let mut heard = heard?;
        let mut faults = 0;
        let is_of_use = || Instant::now() < by && (step.ends() || !self.ended.is_cancelled());
        while let Some(task) = heard.task.as_ref().filter(|_| heard.is_open(*step) && is_of_use()) {
            let pause = tokio::time::sleep_until(by.min(Instant::now() + LOOK_PAUSE));
            if self.ended.run_until_cancelled(pause).await.is_none() {
                break;
            }
            let params = json!({"id": task.id, "historyLength": 0});
            match self.call(GET_TASK, params, known, Duration::ZERO).await {
                Ok(found) => (heard, faults) = (found, 0),
                Err(fault) if faults == LOOK_FAULTS_MAX => {
                    self.stop(task).await;
                    return Err(fault);
                }
                Err(_) => faults += 1,
            }
        }
        if is_of_use() {
            return Ok(heard);
        }
        if let Some(task) = &heard.task {
            self.stop(task).await;
        }
        Err(A2aFault::Timeout)
    }

    /// Cancels a task whose work is of no use any more, whatever comes of that.
    async fn stop(&self, task: &OpenTask) {
        let _ = self.call(CANCEL_TASK, json!({"id": task.id}), 0, Duration::ZERO).await;
    }
}

impl Answers<A2aContractor> for A2aClient {
    // Work takes as long as it takes, and must not keep offers, confirmations and cancellations waiting.
    const AT_ONCE: usize = NEGOTIATIONS_MAX;

    async fn answer(&self, question: &A2aQuestion) -> Result<A2aReply, A2aFault> {
        // Tasks are ended wherever all places are taken, and after the end.
        if self.ended.is_cancelled() && !question.step.ends() {
            return Err(A2aFault::Unavailable);
        }
        // It goes on when its time is over: what it has begun at the agent is to be ended there.
        let place = Arc::clone(&self.room).try_acquire_owned().ok();
        if place.is_none() && !question.step.ends() {
            return Err(A2aFault::Unavailable);
        }
        let asking = self.clone().ask(question.clone());
        let asked = tokio::spawn(async move {
            let answer = asking.await;
            drop(place);
            answer
        });
        let answer = tokio::time::timeout(question.within, asked).await.map_err(|_| A2aFault::Timeout)?;
        answer.unwrap_or(Err(A2aFault::Unavailable))
    }

    fn turn_away(&self, _question: &A2aQuestion) -> Result<A2aReply, A2aFault> {
        Err(A2aFault::Unavailable)
    }
}

/// The body of an answer. Whoever waits limits the time.
///
/// # Errors
/// What came instead, for a log.
async fn read(request: RequestBuilder) -> Result<Bytes, String> {
    let response = request.send().await.map_err(|error| cause(&error))?;
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if response.status() != StatusCode::OK || !is_json(media_type) {
        return Err(format!("status {}, content type `{}`", response.status(), media_type.escape_default()));
    }
    let body = Limited::new(Body::from(response), ANSWER_BYTES_MAX).collect().await;
    body.map(Collected::to_bytes).map_err(|error| error.to_string())
}
