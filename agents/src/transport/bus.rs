//! Over the bus itself, memory or NATS: for agents in the same process or with a NATS account.

use std::sync::Arc;

use ::bus::{Bus, BusError, PubSub};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use schemas::{AgentId, Code, DeliveryId, Refusal, subject};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ANSWER_TIMEOUT, Accepted, Answer, Connection, InboxMessage, Link, Transport, TransportError};
use crate::identity::{Identity, Token};

/// The bus as a transport. After a lost NATS connection the bus subscribes again by itself; what was sent meanwhile
/// comes with the exchange's retries.
#[derive(Clone)]
pub struct BusTransport {
    pub_sub: Arc<dyn PubSub>,
}

impl BusTransport {
    /// Over this bus.
    #[must_use]
    pub fn new(bus: &Bus) -> Self {
        Self { pub_sub: Arc::clone(&bus.pub_sub) }
    }
}

impl Transport for BusTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let agent = identity.agent.clone();
            let messages = self.pub_sub.subscribe(subject::inbox(&agent), None).await.map_err(unreachable)?;
            self.pub_sub.publish(subject::hello(&agent), Bytes::new()).await.map_err(unreachable)?;
            let link = BusLink { pub_sub: Arc::clone(&self.pub_sub), token: identity.token.clone(), agent };
            let inbox = messages.map(|received| super::read_inbox_array(&received.payload)).boxed();
            Ok(Connection { link: Arc::new(link), inbox })
        }
        .boxed()
    }
}

struct BusLink {
    pub_sub: Arc<dyn PubSub>,
    agent: AgentId,
    token: Token,
}

impl Link for BusLink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, Answer> {
        let pub_sub = Arc::clone(&self.pub_sub);
        let subject = subject::gateway_in(&self.agent);
        let token = self.token.current();
        async move {
            match pub_sub.request(subject, Some(token), document, ANSWER_TIMEOUT).await {
                Ok(reply) => read_reply(&reply),
                Err(BusError::TooLarge { bytes, limit }) => {
                    let detail = format!("the message has {bytes} bytes, the bus takes {limit}");
                    Answer::Refused(Refusal::new(Code::TooLarge, detail))
                }
                Err(error) => Answer::Unknown(error.to_string()),
            }
        }
        .boxed()
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        let pub_sub = Arc::clone(&self.pub_sub);
        let Some((&first, others)) = deliveries.split_first() else { return std::future::ready(Ok(())).boxed() };
        let subject = subject::ack(&self.agent, first);
        let body = ack_body(others);
        async move { pub_sub.publish(subject, body).await.map_err(unreachable) }.boxed()
    }
}

/// The first delivery stands in the subject, further ones in the body; a single one needs none.
fn ack_body(others: &[DeliveryId]) -> Bytes {
    if others.is_empty() {
        return Bytes::new();
    }
    serde_json::to_vec(others).expect("delivery ids are texts").into()
}

fn read_reply(reply: &[u8]) -> Answer {
    #[derive(Deserialize)]
    struct Reply<'a> {
        accepted: Option<Accepted>,
        #[serde(borrow)]
        refused: Option<&'a RawValue>,
    }
    match serde_json::from_slice(reply) {
        Ok(Reply { accepted: Some(accepted), .. }) => Answer::Accepted(accepted),
        Ok(Reply { refused: Some(problem), .. }) => {
            Answer::Refused(super::read_problem(problem.get().as_bytes(), None))
        }
        Ok(Reply { accepted: None, refused: None }) => Answer::Unknown("the reply says neither yes nor no".to_owned()),
        Err(error) => Answer::Unknown(format!("the reply is not readable: {error}")),
    }
}

// By value so that it can stand in `map_err`.
#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn unreachable(error: BusError) -> TransportError {
    TransportError::Unreachable(error.to_string())
}

/// One inbox message, as tests and taps outside this crate may want to read it.
#[must_use]
pub fn read_inbox(payload: &[u8]) -> InboxMessage {
    super::read_inbox_array(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_whatever_else_it_carries() {
        let accepted = br#"{"accepted":{"seq":7,"index":3,"msg_id":"m","negotiation":"alice~job"}}"#;
        assert!(matches!(read_reply(accepted), Answer::Accepted(Accepted { seq: 7, .. })));
        let refused = br#"{"refused":{"type":"x","title":"t","status":403,"code":"no_consent","detail":"nobody"}}"#;
        assert!(matches!(read_reply(refused), Answer::Refused(Refusal { code: Code::NoConsent, .. })));
        assert!(matches!(read_reply(b"{}"), Answer::Unknown(_)));
        assert!(matches!(read_reply(b"\xff"), Answer::Unknown(_)));
    }

    #[test]
    fn a_single_acknowledgement_has_no_body() {
        let id = DeliveryId::new(schemas::Lane(1), [7; 16]);
        assert!(ack_body(&[]).is_empty());
        assert_eq!(ack_body(&[id]), format!("[\"{id}\"]"));
    }
}
