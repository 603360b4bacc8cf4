//! A fake exchange on the memory bus, and the documents it needs.

use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use bus::{Bus, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use schemas::delivery::{Call, Delivery, DeliveryEnvelope, Disposition, EXCHANGE, Notification, Receipt};
use schemas::{AgentId, DeliveryId, Digest, Lane, MsgId, NegotiationId, Timestamp, WireTime, subject};
use serde_json::{Value, json};

/// Nothing in these tests waits longer; under the paused clock it costs no time.
const PATIENCE: Duration = Duration::from_secs(300);

/// The exchange's side of the bus.
pub(crate) struct FakeExchange {
    pub(crate) bus: Bus,
    messages: BoxStream<'static, Received>,
    acks: BoxStream<'static, Received>,
    hellos: BoxStream<'static, Received>,
}

/// A message as the exchange got it.
pub(crate) struct Got {
    pub(crate) received: Received,
    pub(crate) document: Value,
}

impl FakeExchange {
    pub(crate) async fn start() -> Self {
        let bus = memory::open(MemoryOptions::default());
        let subscribe = |subject: &str| bus.pub_sub.subscribe(subject.to_owned(), None);
        let messages = subscribe(subject::ALL_GATEWAY_IN).await.unwrap();
        let acks = subscribe(subject::ALL_ACKS).await.unwrap();
        let hellos = subscribe(subject::ALL_HELLOS).await.unwrap();
        Self { messages, acks, hellos, bus }
    }

    pub(crate) async fn message(&mut self) -> Got {
        let received = in_time(self.messages.next()).await.unwrap();
        let document = serde_json::from_slice(&received.payload).unwrap();
        Got { received, document }
    }

    /// Whether a message arrives within this time.
    pub(crate) async fn is_silent_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.messages.next()).await.is_err()
    }

    pub(crate) async fn accept(&self, got: &Got, seq: u64) {
        let envelope = &got.document["envelope"];
        let sender = envelope["from"].as_str().unwrap().strip_prefix("agent://").unwrap();
        let named = envelope["negotiation"].as_str().unwrap();
        let negotiation = if named.contains('~') { named.to_owned() } else { format!("{sender}~{named}") };
        let accepted = json!({"seq": seq, "index": 0, "msg_id": envelope["msg_id"], "negotiation": negotiation});
        self.answer(got, &json!({ "accepted": accepted })).await;
    }

    pub(crate) async fn answer(&self, got: &Got, answer: &Value) {
        let reply = got.received.reply.clone().unwrap();
        self.bus.pub_sub.publish(reply, answer.to_string().into()).await.unwrap();
    }

    pub(crate) async fn deliver(&self, agent: &AgentId, deliveries: &[Delivery]) {
        let payload = Bytes::from(serde_json::to_vec(deliveries).unwrap());
        self.bus.pub_sub.publish(subject::inbox(agent), payload).await.unwrap();
    }

    /// The next acknowledgement: its agent, and every delivery it names.
    pub(crate) async fn ack(&mut self) -> (AgentId, Vec<DeliveryId>) {
        let received = in_time(self.acks.next()).await.unwrap();
        let (agent, first) = subject::parse_ack(&received.subject).unwrap();
        let mut ids = vec![first];
        if !received.payload.is_empty() {
            ids.extend(serde_json::from_slice::<Vec<DeliveryId>>(&received.payload).unwrap());
        }
        (agent, ids)
    }

    pub(crate) async fn hello(&mut self) -> AgentId {
        subject::agent_of(&in_time(self.hellos.next()).await.unwrap().subject).unwrap()
    }
}

/// Fails a test that would hang.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("the test waited too long")
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

pub(crate) fn identity(name: &str) -> agents::Identity {
    agents::Identity { agent: agent(name), token: "token".into() }
}

pub(crate) fn delivery_id(n: u8) -> DeliveryId {
    DeliveryId::new(Lane(0), [n; 16])
}

pub(crate) fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

/// Delivery number `n` of a negotiation.
pub(crate) fn delivery(n: u8, own: &str, payload: Notification) -> Delivery {
    let envelope = DeliveryEnvelope {
        msg_id: delivery_id(n),
        ts: WireTime(Timestamp::from_ms(1_000_000)),
        from: EXCHANGE.to_owned(),
        to: ["agent://bob".to_owned()],
        negotiation: negotiation(own),
        in_reply_to: None,
        traceparent: None,
    };
    Delivery { envelope, payload, receipts: Vec::new() }
}

pub(crate) fn call(n: u8, own: &str) -> Delivery {
    let (reply_by, ends_by) = (WireTime(Timestamp::from_ms(1_000_500)), WireTime(Timestamp::from_ms(1_120_000)));
    let call = Call::new(reply_by, ends_by, "high".to_owned(), Digest([0; 32]));
    delivery(n, own, Notification::Cfp(call))
}

pub(crate) fn receipt(ack_of: &str, disposition: Disposition, invited: Option<u32>) -> Notification {
    let ack_of = MsgId::try_new(ack_of).unwrap();
    Notification::Ack(Receipt { invited, ..Receipt::new(ack_of, disposition) })
}
