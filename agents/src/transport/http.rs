//! Over plain HTTP: `POST /v1/messages` out, server-sent events in, `POST /v1/acks`. Also registering an agent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode};
use schemas::control::{Registration, Tag};
use schemas::delivery::Delivery;
use schemas::{DeliveryId, Refusal};
use tokio::sync::Semaphore;

use super::sse::SseReader;
use super::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, Connection, InboxMessage, SendReply, Transport, TransportError, Uplink};
use crate::control::{body, direct};
use crate::identity::{Identity, Token};

/// Most requests of one agent under way at a time: each takes a connection of its own.
const REQUESTS_MAX: usize = 16;
/// An event stream on which nothing came for so long, not even a keep-alive comment, is dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A gateway by its HTTP address.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    base: Arc<str>,
    client: Client,
    /// By which registrations of this process are told from those of another.
    instance: Option<Tag>,
}

impl HttpTransport {
    /// The gateway at this address, for example `http://127.0.0.1:8080`.
    ///
    /// # Errors
    /// [`TransportError::Unusable`] when no HTTP client can be made (no certificates for `https`).
    pub fn try_new(url: &str) -> Result<Self, TransportError> {
        let base: Arc<str> = url.trim_end_matches('/').into();
        let client = direct(&base, CONNECT_TIMEOUT).map_err(|error| TransportError::Unusable(error.to_string()))?;
        let instance = Tag::try_new(&format!("{:016x}", rand::random::<u64>())).ok();
        Ok(Self { base, client, instance })
    }

    /// Registers the agent, or changes its registration: what it can do, which topics it follows, whose calls it
    /// takes, how long it stays present without being heard. Without a registration an agent is never invited.
    ///
    /// # Errors
    /// [`TransportError`].
    pub async fn register(&self, identity: &Identity, registration: &Registration) -> Result<(), TransportError> {
        let url = format!("{}/v1/agents/{}", self.base, identity.agent);
        let instance = registration.instance.clone().or_else(|| self.instance.clone());
        let registration = Registration { instance, ..registration.clone() };
        let request = self.client.put(url).bearer_auth(identity.token.current()).json(&registration);
        granted(request.timeout(ANSWER_TIMEOUT).send().await.map_err(unreachable)?).await
    }

    /// Registers, looks once in a lease whether the registration still stands, and registers again where another process
    /// has taken it away. Returns only with an error.
    ///
    /// # Errors
    /// The first registration's; later ones are tried again.
    pub async fn keep_registered(
        &self,
        identity: &Identity,
        registration: &Registration,
    ) -> Result<Infallible, TransportError> {
        self.register(identity, registration).await?;
        let url = format!("{}/v1/agents/{}", self.base, identity.agent);
        loop {
            tokio::time::sleep(Duration::from_millis(registration.lease_ms.into())).await;
            let request = self.client.get(&url).bearer_auth(identity.token.current());
            let found = request.timeout(ANSWER_TIMEOUT).send().await;
            if found.is_ok_and(|answer| answer.status() == StatusCode::NOT_FOUND) {
                tracing::warn!(agent = %identity.agent, "its registration was taken away; it registers again");
                if let Err(error) = self.register(identity, registration).await {
                    tracing::warn!(agent = %identity.agent, %error, "not registered");
                }
            }
        }
    }

    /// Takes the agent's registration away, before it ends: nobody calls it any more, and no call waits for it. One that
    /// another process has made since stays.
    ///
    /// # Errors
    /// [`TransportError`]. An agent that cannot say so is absent when its lease has ended.
    pub async fn deregister(&self, identity: &Identity) -> Result<(), TransportError> {
        let named = self.instance.as_ref().map(|instance| format!("?instance={instance}")).unwrap_or_default();
        let url = format!("{}/v1/agents/{}{named}", self.base, identity.agent);
        let request = self.client.delete(url).bearer_auth(identity.token.current());
        granted(request.timeout(ANSWER_TIMEOUT).send().await.map_err(unreachable)?).await
    }
}

impl Transport for HttpTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let request = self.client.get(format!("{}/v1/inbox", self.base)).bearer_auth(identity.token.current());
            let response = request.header(ACCEPT, "text/event-stream").send().await.map_err(unreachable)?;
            if response.status() != StatusCode::OK {
                return Err(TransportError::Refused(refusal(response).await));
            }
            let link = HttpUplink {
                transport: self.clone(),
                token: identity.token.clone(),
                requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            };
            Ok(Connection { link: Arc::new(link), inbox: inbox(response).boxed() })
        }
        .boxed()
    }
}

/// Deliveries that came in one piece of the stream are handed over together.
fn inbox(response: Response) -> impl Stream<Item = InboxMessage> + Send + 'static {
    futures_util::stream::unfold((response, SseReader::default()), |(mut response, mut reader)| async move {
        loop {
            let piece = tokio::time::timeout(SILENCE_MAX, response.chunk()).await;
            let Ok(Ok(Some(bytes))) = piece else { return None };
            let mut events = Vec::new();
            reader.handle_bytes(&bytes, &mut events);
            if !events.is_empty() {
                let message: InboxMessage = events.iter().map(|data| Delivery::decode(data).ok()).collect();
                return Some((message, (response, reader)));
            }
        }
    })
}

struct HttpUplink {
    transport: HttpTransport,
    token: Token,
    requests: Arc<Semaphore>,
}

impl HttpUplink {
    fn post(&self, path: &str, body: Bytes) -> impl Future<Output = Result<Response, TransportError>> + Send + 'static {
        let url = format!("{}{path}", self.transport.base);
        let request = self.transport.client.post(url).bearer_auth(self.token.current());
        let request = request.header(CONTENT_TYPE, "application/json").body(body).timeout(ANSWER_TIMEOUT);
        let requests = Arc::clone(&self.requests);
        async move {
            // The semaphore is never closed; if it were, the request would go out unlimited.
            let _permit = requests.acquire_owned().await;
            request.send().await.map_err(unreachable)
        }
    }
}

impl Uplink for HttpUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let response = self.post("/v1/messages", document);
        async move {
            let response = match response.await {
                Ok(response) => response,
                Err(error) => return SendReply::Unknown(error.to_string()),
            };
            if !response.status().is_success() {
                return SendReply::Refused(refusal(response).await);
            }
            let (body, _) = body(response, ANSWER_BYTES_MAX).await;
            serde_json::from_slice(&body)
                .map_or_else(|error| SendReply::Unknown(error.to_string()), SendReply::Accepted)
        }
        .boxed()
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        let body = serde_json::json!({ "delivery_ids": deliveries }).to_string();
        let response = self.post("/v1/acks", body.into());
        async move { granted(response.await?).await }.boxed()
    }
}

/// Whether a gateway has done what it was asked.
async fn granted(response: Response) -> Result<(), TransportError> {
    if response.status().is_success() { Ok(()) } else { Err(TransportError::Refused(refusal(response).await)) }
}

async fn refusal(response: Response) -> Refusal {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut refusal = super::read_problem(&body(response, ANSWER_BYTES_MAX).await.0, Some(status));
    refusal.retry_after_ms =
        refusal.retry_after_ms.or_else(|| retry_after.map(|seconds: u64| seconds.saturating_mul(1000)));
    refusal
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn unreachable(error: reqwest::Error) -> TransportError {
    if error.is_builder() {
        return TransportError::Unusable(format!("the address cannot be used: {error}"));
    }
    TransportError::Unreachable(error.without_url().to_string())
}

#[cfg(test)]
mod tests {
    use schemas::AgentId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// A gateway at which nobody is registered; what it is asked comes out line by line.
    async fn empty_gateway() -> (String, mpsc::Receiver<String>) {
        let (asked, lines) = mpsc::channel(16);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let length = socket.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let status = if request.starts_with("GET") { "404 Not Found" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                socket.write_all(answer.as_bytes()).await.unwrap();
                asked.send(request.lines().next().unwrap_or_default().to_owned()).await.unwrap();
            }
        });
        (url, lines)
    }

    async fn next_removal(asked: &mut mpsc::Receiver<String>) -> String {
        loop {
            let line = asked.recv().await.unwrap();
            if line.starts_with("DELETE") {
                return line;
            }
        }
    }

    #[tokio::test]
    async fn who_was_taken_away_by_another_process_registers_again() {
        let (url, mut asked) = empty_gateway().await;
        let (transport, other) = (HttpTransport::try_new(&url).unwrap(), HttpTransport::try_new(&url).unwrap());
        let identity = Identity { agent: AgentId::try_new("bob").unwrap(), token: Token::fixed("t") };
        let registration = Registration { lease_ms: 10, ..Registration::default() };
        let keeping = transport.keep_registered(&identity, &registration);
        let looking = async {
            for expected in ["PUT /v1/agents/bob ", "GET /v1/agents/bob ", "PUT /v1/agents/bob ", "GET /v1/agents/bob "]
            {
                let line = asked.recv().await.unwrap();
                assert!(line.starts_with(expected), "{line}");
            }
        };
        tokio::select! {
            never = keeping => panic!("{never:?}"),
            () = looking => {}
        }
        let mut removed = Vec::new();
        for transport in [&transport, &transport.clone(), &other] {
            transport.deregister(&identity).await.unwrap();
            removed.push(next_removal(&mut asked).await);
        }
        assert!(removed[0].starts_with("DELETE /v1/agents/bob?instance=") && removed[0] == removed[1], "{removed:?}");
        assert_ne!(removed[0], removed[2], "another process is another instance");
    }
}
