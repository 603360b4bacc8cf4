//! Messages: core NATS on a connection of their own.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{PublishErrorKind, RequestErrorKind};
use async_nats::{Client, HeaderMap, Message, Request};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future;
use futures_util::stream::BoxStream;
use schemas::subject::TOKEN_HEADER;

use super::{NatsEvent, NatsStatus};
use crate::name::{check_pattern, check_subject};
use crate::{BusError, PubSub, Received};

pub(super) struct NatsPubSub {
    client: Client,
    timeout: Duration,
    status: Arc<NatsStatus>,
}

impl NatsPubSub {
    pub(super) fn new(client: Client, timeout: Duration, status: Arc<NatsStatus>) -> Self {
        Self { client, timeout, status }
    }

    /// Returns when the server has processed everything sent before. The client's own `flush` waits for the socket only;
    /// a message to itself comes back in turn, whoever else listens. The end of that subscription goes along: to tell it
    /// afterwards would wake a server that rests once more.
    async fn round_trip(&self) -> Result<(), BusError> {
        let inbox = self.client.new_inbox();
        let there_and_back = async {
            let mut echo = self.client.subscribe(inbox.clone()).await.map_err(|error| error.to_string())?;
            echo.unsubscribe_after(1).await.map_err(|error| error.to_string())?;
            self.client.publish(inbox, Bytes::new()).await.map_err(|error| error.to_string())?;
            echo.next().await.map(drop).ok_or_else(|| "the connection is closed".to_owned())
        };
        match tokio::time::timeout(self.timeout, there_and_back).await {
            Ok(outcome) => outcome.map_err(BusError::Unknown),
            Err(_) => Err(BusError::Unknown(format!("the server has not answered in {:?}", self.timeout))),
        }
    }
}

/// A header map with the token; a line break in it would forge further headers.
fn token_header(token: &str) -> Result<HeaderMap, BusError> {
    let value: async_nats::HeaderValue =
        token.parse().map_err(|_| BusError::Invalid("a token with a line break".to_owned()))?;
    let mut headers = HeaderMap::new();
    headers.insert(TOKEN_HEADER, value);
    Ok(headers)
}

/// None for what the server says about the subscription itself.
fn to_received(message: Message) -> Option<Received> {
    if message.status.is_some() {
        return None;
    }
    let token = message.headers.as_ref().and_then(|headers| headers.get(TOKEN_HEADER));
    Some(Received {
        token: token.map(|token| token.as_str().to_owned()),
        reply: message.reply.map(|reply| reply.to_string()),
        subject: message.subject.to_string(),
        payload: message.payload,
    })
}

#[async_trait]
impl PubSub for NatsPubSub {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        check_subject(&subject)?;
        let bytes = payload.len();
        self.client.publish(subject, payload).await.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => BusError::TooLarge { bytes, limit: self.client.max_payload() },
            PublishErrorKind::InvalidSubject => BusError::Invalid(error.to_string()),
            PublishErrorKind::Send => BusError::Closed,
        })
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        check_pattern(&subject)?;
        let subscriber = match queue {
            Some(queue) => self.client.queue_subscribe(subject, queue).await,
            None => self.client.subscribe(subject).await,
        };
        let messages = subscriber.map_err(|error| BusError::Unreachable(error.to_string()))?;
        self.round_trip().await?;
        Ok(messages.filter_map(|message| future::ready(to_received(message))).boxed())
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        check_subject(&subject)?;
        let bytes = payload.len();
        let mut request = Request::new().payload(payload).timeout(None);
        if let Some(token) = token {
            request = request.headers(token_header(&token)?);
        }
        let answer = tokio::time::timeout(timeout, self.client.send_request(subject.clone(), request)).await;
        let error = match answer {
            Ok(Ok(message)) => return Ok(message.payload),
            Ok(Err(error)) => error,
            Err(_) => return Err(BusError::Unknown(format!("no answer on `{subject}` in {timeout:?}"))),
        };
        Err(match error.kind() {
            RequestErrorKind::NoResponders => BusError::NoResponder(subject),
            RequestErrorKind::MaxPayloadExceeded => BusError::TooLarge { bytes, limit: self.client.max_payload() },
            RequestErrorKind::InvalidSubject => BusError::Invalid(subject),
            RequestErrorKind::TimedOut | RequestErrorKind::Other => BusError::Unknown(error.to_string()),
        })
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.round_trip().await
    }

    fn dropped(&self) -> u64 {
        self.status.count(NatsEvent::SlowConsumer)
    }

    fn denied(&self) -> Vec<String> {
        self.status.denied()
    }
}
