//! Over what an agent speaks. A transport connects; a connection is a [`Uplink`] out and an [`Inbox`] in.
//!
//! | transport | out | in | acknowledgement |
//! |---|---|---|---|
//! | [`bus::BusTransport`] | request on `gw.in.<agent>` | `agent.<agent>.inbox` | publish on `ack.<agent>.<id>` |
//! | the same, [hosted](host::AgentHost) | the same | `deliver.<host>`; repeats on `agent.<agent>.inbox` | together on `acks.<host>` |
//! | [`websocket::WebSocketTransport`] | text frame | text frame | frame, in the same write as a message that leaves |
//! | [`http::HttpTransport`] | `POST /v1/messages` | server-sent events on `/v1/inbox` | `POST /v1/acks` |
//! | [`failover::FailoverTransport`] | whichever of several transports answers | the same | the same |
//! | [`faulty::FaultyTransport`] | another transport's, with faults | the same | the same |
//!
//! All of them give at-most-once sends whose outcome may stay unknown, and at-least-once deliveries. The session above
//! makes both exactly-once in effect.

#[cfg(feature = "bus")]
pub mod bus;
pub mod failover;
pub mod faulty;
#[cfg(feature = "bus")]
pub mod host;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
mod sse;
#[cfg(feature = "websocket")]
pub mod websocket;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use schemas::delivery::Delivery;
use schemas::{Code, DeliveryId, MsgId, NegotiationId, Refusal};
use serde::Deserialize;

use crate::identity::Identity;

/// How long a transport waits for the answer to one message: some thirty times the slowest healthy append.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a transport waits for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A way to reach the exchange.
pub trait Transport: Send + Sync {
    /// Connects as this agent. Deliveries sent from then on arrive in the connection's inbox, and what is still
    /// unacknowledged is asked for.
    ///
    /// # Errors
    /// [`TransportError::Refused`] when trying again would be refused again; otherwise trying again may help.
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        (**self).connect(identity)
    }
}

/// A connection. Dropping both halves ends it.
pub struct Connection {
    /// The way out.
    pub link: Arc<dyn Uplink>,
    /// The way in; its end is the end of the connection.
    pub inbox: Inbox,
}

/// Inbox messages as they arrive.
pub type Inbox = BoxStream<'static, InboxMessage>;

/// Deliveries that arrived together.
#[derive(Debug, Clone, Default)]
pub struct InboxMessage {
    /// The deliveries.
    pub deliveries: Vec<Delivery>,
    /// How many documents in it this build cannot read. They are not acknowledged: the exchange reports them as
    /// undelivered rather than believing them heard.
    pub unreadable: u32,
}

impl FromIterator<Option<Delivery>> for InboxMessage {
    /// Of documents that arrived together, as far as each could be read.
    fn from_iter<I: IntoIterator<Item = Option<Delivery>>>(documents: I) -> Self {
        let mut message = Self::default();
        for document in documents {
            message.unreadable = message.unreadable.saturating_add(u32::from(document.is_none()));
            message.deliveries.extend(document);
        }
        message
    }
}

/// The way out. Its futures own what they need: many may be under way at once.
pub trait Uplink: Send + Sync {
    /// Sends one document and waits for its answer, at most [`ANSWER_TIMEOUT`].
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply>;

    /// Acknowledges deliveries, together with documents whose sending has begun before the future is first polled where
    /// the transport can. Nothing depends on its success: what is not acknowledged is delivered again.
    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>>;

    /// Whether an acknowledgement that leaves with a document costs no write of its own. Where it does, it waits for others
    /// instead.
    fn acks_with_documents(&self) -> bool {
        false
    }
}

/// What came back for one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendReply {
    /// It is in the log.
    Accepted(Accepted),
    /// It is not.
    Refused(Refusal),
    /// No answer, or none that can be read: it may or may not be in the log.
    Unknown(String),
}

/// Where a document stands in the log.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Accepted {
    /// Sequence of its record.
    pub seq: u64,
    /// Its id.
    pub msg_id: MsgId,
    /// Its negotiation.
    pub negotiation: NegotiationId,
    /// Of a call for offers: the policy that decides it.
    pub policy: Option<String>,
}

/// What can go wrong on a transport.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransportError {
    /// The gateway refuses this agent. Trying again will not help: get another token.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The other end cannot be reached, or the connection broke. Try again.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The address or token cannot be used at all.
    #[error("unusable: {0}")]
    Unusable(String),
}

/// Whether the same request can succeed later: the exchange was busy or its answer is unknown, the request is not at
/// fault.
#[must_use]
pub fn can_pass(code: Code) -> bool {
    matches!(
        code,
        Code::RateLimited
            | Code::RequestTimeout
            | Code::LogUnavailable
            | Code::Unavailable
            | Code::Overloaded
            | Code::Internal
    )
}

/// Whether it is the token that is refused: another attempt with it is refused as well.
#[must_use]
pub const fn is_of_token(code: Code) -> bool {
    matches!(code, Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid | Code::Unauthorized)
}

/// Reads a JSON array of deliveries. A document this build cannot read (of a later version) does not hide the others.
#[cfg(any(feature = "bus", test))]
fn read_inbox_array(json: &[u8]) -> InboxMessage {
    if let Ok(deliveries) = Delivery::decode_all(json) {
        return InboxMessage { deliveries, unreadable: 0 };
    }
    match serde_json::from_slice::<Vec<&serde_json::value::RawValue>>(json) {
        Ok(documents) => documents.into_iter().map(|one| Delivery::decode(one.get().as_bytes()).ok()).collect(),
        Err(_) => InboxMessage { deliveries: Vec::new(), unreadable: 1 },
    }
}

/// Reads a problem document (RFC 9457). One whose code this build does not know is a refusal all the same.
fn read_problem(json: &[u8], status: Option<u16>) -> Refusal {
    #[derive(Deserialize)]
    struct ProblemBody {
        code: Option<String>,
        detail: Option<String>,
        title: Option<String>,
    }
    if let Ok(refusal) = serde_json::from_slice(json) {
        return refusal;
    }
    let code = match status {
        Some(401) => Code::Unauthenticated,
        Some(403) => Code::Unauthorized,
        Some(404) => Code::NotFound,
        Some(429) => Code::RateLimited,
        Some(502..=504) => Code::Unavailable,
        Some(500..) => Code::Internal,
        Some(_) | None => Code::NotAllowed,
    };
    let told = serde_json::from_slice::<ProblemBody>(json)
        .ok()
        .and_then(|problem| problem.detail.or(problem.title).or(problem.code));
    let status = status.map_or_else(|| "no status".to_owned(), |status| format!("status {status}"));
    Refusal::new(code, told.unwrap_or_else(|| format!("refused without a problem document ({status})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_a_later_version_does_not_hide_its_neighbours() {
        let readable = r#"{"envelope":{"msg_id":"00000000000000000000000000000001","ts":"2026-11-20T00:00:00Z",
            "from":"exchange://llmx","to":["agent://bob"],"negotiation":"alice~job"},
            "payload":{"act":"ack","ack_of":"m1","disposition":"ok"}}"#;
        let later = r#"{"envelope":{},"payload":{"act":"telepathy"}}"#;
        let message = read_inbox_array(format!("[{later},{readable}]").as_bytes());
        assert_eq!((message.deliveries.len(), message.unreadable), (1, 1));
        assert_eq!(read_inbox_array(format!("[{readable}]").as_bytes()).unreadable, 0);
        assert_eq!(read_inbox_array(b"no json").unreadable, 1);
    }

    #[test]
    fn a_problem_document_is_read_with_or_without_a_known_code() {
        let known = br#"{"type":"about:blank","title":"t","status":429,"code":"rate_limited","detail":"slow down","retry_after_ms":40}"#;
        let refusal = read_problem(known, Some(429));
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::RateLimited, Some(40)));
        let unknown = read_problem(br#"{"code":"quantum","detail":"no"}"#, Some(403));
        assert_eq!((unknown.code, unknown.detail.as_str()), (Code::Unauthorized, "no"));
        assert_eq!(read_problem(b"<html>", Some(502)).code, Code::Unavailable);
    }
}
