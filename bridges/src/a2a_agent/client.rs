//! Asks an A2A agent by JSON-RPC: bounded answers, from the addresses of its card alone.

use std::time::Duration;

use ::a2a::methods::{CANCEL_TASK, GET_TASK, SEND_MESSAGE};
use ::a2a::{AgentCard, JsonRpcRequest, SVC_PARAM_VERSION, TRANSPORT_PROTOCOL_JSONRPC, VERSION};
use agents::asking::Answers;
use agents::control::client;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Limited};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};

use super::answer::{A2aFault, A2aReply, A2aStep, ANSWER_BYTES_MAX};
use super::{A2aContractor, A2aQuestion};
use crate::a2a::request::is_json;

/// How long the card may take, and one look at a task.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause before a task is looked at again.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Looks in a row that may bring nothing before a task is given up.
const LOOK_FAULTS_MAX: u32 = 4;

/// An A2A agent. The header that its owner gives goes to the origin of its card and nowhere else; no redirect is followed.
#[derive(Debug)]
pub struct A2aClient {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl A2aClient {
    /// The agent whose card is at this address, to be asked with this header.
    ///
    /// # Errors
    /// [`A2aFault`] where no card can be read, or it names no interface for JSON-RPC of this version.
    pub async fn open(card: &str, header: Option<(HeaderName, HeaderValue)>) -> Result<Self, A2aFault> {
        let client = client(LOOK_TIMEOUT, [card]).map_err(|_| A2aFault::Unavailable)?;
        let at = Url::parse(card).map_err(|_| A2aFault::Unavailable)?;
        let mut headers: HeaderMap = header.into_iter().collect();
        let card = read(client.get(at.clone()).headers(headers.clone())).await?;
        let card: AgentCard = serde_json::from_slice(&card).map_err(|_| A2aFault::Unavailable)?;
        let ours = (TRANSPORT_PROTOCOL_JSONRPC, VERSION);
        let mut interfaces = card.supported_interfaces.iter();
        let interface = interfaces.find(|one| (one.protocol_binding.as_str(), one.protocol_version.as_str()) == ours);
        let url = interface.and_then(|one| Url::parse(&one.url).ok());
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or(A2aFault::Unavailable)?;
        if url.origin() != at.origin() {
            headers.clear();
        }
        headers.insert(SVC_PARAM_VERSION, HeaderValue::from_static(VERSION));
        Ok(Self { client, url, headers })
    }

    /// The answer to one request. Whoever waits limits the time, but for that of a look at a task.
    async fn call(&self, method: &str, params: Value, known: usize, within: Duration) -> Result<A2aReply, A2aFault> {
        let request = JsonRpcRequest::new(1.into(), method, Some(params));
        let post = self.client.post(self.url.clone()).headers(self.headers.clone()).json(&request);
        A2aReply::read(&read(post.timeout(within + LOOK_TIMEOUT)).await?, known)
    }

    /// Asks, and looks at a task that is worked on until it comes to something.
    async fn ask(&self, A2aQuestion { delivery, step, task, within }: &A2aQuestion) -> Result<A2aReply, A2aFault> {
        let known = task.as_ref().map_or(0, |task| task.artifacts);
        let (method, params) = match task {
            Some(task) if *step == A2aStep::Stop => (CANCEL_TASK, json!({"id": task.id})),
            _ => (SEND_MESSAGE, super::request(delivery, *step, task.as_ref())),
        };
        let mut heard = self.call(method, params, known, *within).await?;
        let mut faults = 0;
        while let Some(task) = heard.task.as_ref().filter(|_| heard.is_open(*step)) {
            tokio::time::sleep(LOOK_PAUSE).await;
            let params = json!({"id": task.id, "historyLength": 0});
            match self.call(GET_TASK, params, known, Duration::ZERO).await {
                Ok(found) => (heard, faults) = (found, 0),
                Err(fault) if faults == LOOK_FAULTS_MAX => return Err(fault),
                Err(_) => faults += 1,
            }
        }
        Ok(heard)
    }
}

impl Answers<A2aContractor> for A2aClient {
    async fn answer(&self, question: &A2aQuestion) -> Result<A2aReply, A2aFault> {
        tokio::time::timeout(question.within, self.ask(question)).await.unwrap_or(Err(A2aFault::Timeout))
    }

    fn turn_away(&self, _question: &A2aQuestion) -> Result<A2aReply, A2aFault> {
        Err(A2aFault::Unavailable)
    }
}

/// The body of an answer. Whoever waits limits the time.
async fn read(request: RequestBuilder) -> Result<Bytes, A2aFault> {
    let response = request.send().await.map_err(|_| A2aFault::Unavailable)?;
    let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if response.status() != StatusCode::OK || !is_json(media_type) {
        return Err(A2aFault::Unavailable);
    }
    let body = Limited::new(Body::from(response), ANSWER_BYTES_MAX).collect().await;
    body.map(Collected::to_bytes).map_err(|_| A2aFault::Unavailable)
}
