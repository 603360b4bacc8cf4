//! Over the bus itself, memory or NATS: for agents in the same process or with a NATS account.
//!
//! No gateway sees a stream of such an agent, so it says hello again several times within its lease. It does so while its
//! inbox is read: an agent that no longer reads is not present. Agents of one process may share a [host](AgentHost).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::bus::{Bus, BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt};
use schemas::control::LEASE_MS_DEFAULT;
use schemas::presence::{HELLOS_PER_LEASE, Hello};
use schemas::{AgentId, Code, DeliveryId, Refusal, subject};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::host::{AgentHost, HostedInbox};
use super::{ANSWER_TIMEOUT, Accepted, Connection, InboxMessage, SendReply, Transport, TransportError, Uplink};
use crate::identity::{Identity, Token};

/// The bus as a transport. After a lost NATS connection the bus subscribes again by itself; what was sent meanwhile
/// comes with the exchange's retries.
#[derive(Clone)]
pub struct BusTransport {
    pub_sub: Arc<dyn PubSub>,
    lease_ms: u32,
    host: Option<AgentHost>,
}

impl BusTransport {
    /// Over this bus, for agents that register the default lease or a longer one.
    #[must_use]
    pub fn new(bus: &Bus) -> Self {
        Self { pub_sub: Arc::clone(&bus.pub_sub), lease_ms: LEASE_MS_DEFAULT, host: None }
    }

    /// For agents of one process, whose deliveries and acknowledgements share messages: those of `host`, which is on the same
    /// bus.
    #[must_use]
    pub fn hosted_by(mut self, host: AgentHost) -> Self {
        self.host = Some(host);
        self
    }

    /// For agents that register this lease.
    #[must_use]
    pub fn with_lease_ms(mut self, lease_ms: u32) -> Self {
        self.lease_ms = lease_ms.max(1);
        self
    }
}

impl Transport for BusTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let agent = identity.agent.clone();
            let messages = self.pub_sub.subscribe(subject::inbox(&agent), None).await.map_err(unreachable)?;
            let hosted = self.host.as_ref().map(|host| host.open(&agent));
            let host_id = || self.host.as_ref().map(|host| host.id().clone());
            let connected = hello_body(&Hello::Connected(host_id()))?;
            self.pub_sub.publish(subject::hello(&agent), connected).await.map_err(unreachable)?;
            let link = BusUplink {
                pub_sub: Arc::clone(&self.pub_sub),
                token: identity.token.clone(),
                agent,
                host: self.host.clone(),
            };
            let inbox = BusInbox {
                messages,
                hosted,
                pub_sub: Arc::clone(&self.pub_sub),
                hello: subject::hello(&identity.agent),
                renewal: hello_body(&Hello::Renewal(host_id()))?,
                renewals: renewals(self.lease_ms),
                renewing: None,
            };
            Ok(Connection { link: Arc::new(link), inbox: inbox.boxed() })
        }
        .boxed()
    }
}

fn hello_body(hello: &Hello) -> Result<Bytes, TransportError> {
    hello.to_body().map(Bytes::from).map_err(|error| TransportError::Unusable(error.to_string()))
}

/// Between two hellos.
fn renewals(lease_ms: u32) -> Interval {
    let period = Duration::from_millis(u64::from(lease_ms)) / HELLOS_PER_LEASE;
    let mut renewals = interval_at(Instant::now() + period, period);
    renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
    renewals
}

/// An agent's inbox, which renews its lease while it is read.
struct BusInbox {
    messages: BoxStream<'static, Received>,
    /// What its host receives for it.
    hosted: Option<HostedInbox>,
    pub_sub: Arc<dyn PubSub>,
    /// Where its hellos go.
    hello: String,
    /// A hello that renews its lease.
    renewal: Bytes,
    renewals: Interval,
    renewing: Option<BoxFuture<'static, ()>>,
}

impl Stream for BusInbox {
    type Item = InboxMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<InboxMessage>> {
        if let Poll::Ready(received) = self.messages.poll_next_unpin(context) {
            return Poll::Ready(received.map(|received| super::read_inbox_array(&received.payload)));
        }
        if let Some(hosted) = &mut self.hosted
            && let Poll::Ready(received) = hosted.poll_next_unpin(context)
        {
            return Poll::Ready(received);
        }
        loop {
            if let Some(renewing) = &mut self.renewing {
                ready!(renewing.poll_unpin(context));
                self.renewing = None;
            }
            ready!(self.renewals.poll_tick(context));
            let (pub_sub, hello, renewal) = (Arc::clone(&self.pub_sub), self.hello.clone(), self.renewal.clone());
            self.renewing = Some(Box::pin(async move {
                if let Err(error) = pub_sub.publish(hello, renewal).await {
                    tracing::debug!(%error, "a renewal of presence was not published");
                }
            }));
        }
    }
}

struct BusUplink {
    pub_sub: Arc<dyn PubSub>,
    agent: AgentId,
    token: Token,
    /// Passes its acknowledgements on.
    host: Option<AgentHost>,
}

impl Uplink for BusUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let pub_sub = Arc::clone(&self.pub_sub);
        let subject = subject::gateway_in(&self.agent);
        let token = self.token.current();
        async move {
            match pub_sub.request(subject, Some(token), document, ANSWER_TIMEOUT).await {
                Ok(reply) => read_reply(&reply),
                Err(BusError::TooLarge { bytes, limit }) => {
                    let detail = format!("the message has {bytes} bytes, the bus takes {limit}");
                    SendReply::Refused(Refusal::new(Code::TooLarge, detail))
                }
                Err(error) => SendReply::Unknown(error.to_string()),
            }
        }
        .boxed()
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        if let Some(host) = &self.host {
            let is_taken = deliveries.is_empty() || host.acknowledge(&self.agent, &deliveries);
            let outcome = || TransportError::Unreachable("too many acknowledgements wait".to_owned());
            return std::future::ready(is_taken.then_some(()).ok_or_else(outcome)).boxed();
        }
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

fn read_reply(reply: &[u8]) -> SendReply {
    #[derive(Deserialize)]
    struct BusReply<'a> {
        accepted: Option<Accepted>,
        #[serde(borrow)]
        refused: Option<&'a RawValue>,
    }
    match serde_json::from_slice(reply) {
        Ok(BusReply { accepted: Some(accepted), .. }) => SendReply::Accepted(accepted),
        Ok(BusReply { refused: Some(problem), .. }) => {
            SendReply::Refused(super::read_problem(problem.get().as_bytes(), None))
        }
        Ok(BusReply { accepted: None, refused: None }) => {
            SendReply::Unknown("the reply says neither yes nor no".to_owned())
        }
        Err(error) => SendReply::Unknown(format!("the reply is not readable: {error}")),
    }
}

// By value so that it can stand in `map_err`.
#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn unreachable(error: BusError) -> TransportError {
    TransportError::Unreachable(error.to_string())
}

#[cfg(test)]
mod tests {
    use schemas::presence::RENEWAL;

    use super::*;

    #[test]
    fn a_reply_is_read_whatever_else_it_carries() {
        let accepted = br#"{"accepted":{"seq":7,"index":3,"msg_id":"m","negotiation":"alice~job"}}"#;
        assert!(matches!(read_reply(accepted), SendReply::Accepted(Accepted { seq: 7, .. })));
        let refused = br#"{"refused":{"type":"x","title":"t","status":403,"code":"no_consent","detail":"nobody"}}"#;
        assert!(matches!(read_reply(refused), SendReply::Refused(Refusal { code: Code::NoConsent, .. })));
        assert!(matches!(read_reply(b"{}"), SendReply::Unknown(_)));
        assert!(matches!(read_reply(b"\xff"), SendReply::Unknown(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_says_hello_when_it_connects_and_renews_it_three_times_a_lease_while_it_reads() {
        let bus = ::bus::memory::open(::bus::memory::MemoryOptions::default());
        let mut hellos = bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await.unwrap();
        let transport = BusTransport::new(&bus).with_lease_ms(12_000);
        let identity = Identity { agent: AgentId::try_new("bob").unwrap(), token: "token".to_owned().into() };
        let Connection { link: _link, mut inbox } = transport.connect(&identity).await.unwrap();
        assert!(hellos.next().await.unwrap().payload.is_empty());

        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(hellos.next().now_or_never().is_none(), "nobody reads");
        let began = Instant::now();
        let reading = tokio::spawn(async move { inbox.next().await });
        for after_s in [0, 4, 8, 12] {
            let hello = hellos.next().await.unwrap();
            assert_eq!((&hello.payload[..], began.elapsed().as_secs()), (RENEWAL, after_s));
        }
        bus.pub_sub.publish(subject::inbox(&identity.agent), Bytes::from_static(b"[]")).await.unwrap();
        assert!(reading.await.unwrap().is_some());
    }

    #[test]
    fn a_single_acknowledgement_has_no_body() {
        let id = DeliveryId::new(schemas::Lane(1), [7; 16]);
        assert!(ack_body(&[]).is_empty());
        assert_eq!(ack_body(&[id]), format!("[\"{id}\"]"));
    }
}
