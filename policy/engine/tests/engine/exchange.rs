//! One lane on the memory bus under a paused clock, agents with an inbox each, and a gateway that appends what it is
//! told without checking anything.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use bus::{Bus, LogRecord};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics};
use prometheus::Registry;
use schemas::delivery::{Delivery, Notification};
use schemas::document::CallDocuments;
use schemas::envelope::Envelope;
use schemas::payload::{AttrValue, Cfp, Confirm, Inform, InformKind, Offer};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Message, Pinned, Qos, Record};
use schemas::{
    Act, Address, AgentId, AwardNo, DeliveryId, Digest, DocumentHash, Lane, MsgId, NegotiationId, Payload, Policy,
};
use schemas::{Timestamp, WireTime, subject};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

pub(crate) const LANE: Lane = Lane(0);
/// Log time when a test begins, in milliseconds since the epoch: 2026-01-01.
const START_MS: u64 = 1_767_225_600_000;

/// A bus with one lane whose log time is the runtime's paused clock.
pub(crate) fn open_bus() -> Bus {
    open_lanes(1)
}

/// The same with several lanes.
pub(crate) fn open_lanes(lanes: u8) -> Bus {
    STARTED.set(Some(Instant::now()));
    memory::open(MemoryOptions { lanes, clock: Arc::new(now), ..MemoryOptions::default() })
}

thread_local! {
    /// When the test's bus was opened; a test has a thread of its own.
    static STARTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Log time of the memory bus, and the engines' own.
fn now() -> Timestamp {
    let elapsed = STARTED.get().map(|started| started.elapsed()).unwrap_or_default();
    Timestamp::from_ms(START_MS + u64::try_from(elapsed.as_millis()).unwrap())
}

pub(crate) fn metrics() -> Arc<EngineMetrics> {
    Arc::new(EngineMetrics::new(&Registry::new()).unwrap())
}

/// Settings under which four unanswered attempts take one and a half to two seconds.
pub(crate) fn config(id: &str) -> EngineConfig {
    let mut config = EngineConfig::new(id);
    config.outbox.retry_base_ms = 100;
    config.outbox.attempts_max = 4;
    if STARTED.get().is_some() {
        config.clock.now = Arc::new(now);
    }
    config
}

pub(crate) async fn start(bus: &Bus, id: &str) -> EngineHandle {
    Engine::start(bus.clone(), config(id), metrics(), None).await.unwrap()
}

/// The value of a counter or gauge under one label value.
pub(crate) fn sample(registry: &Registry, name: &str, label: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).expect("the metric exists");
    let has_label = |metric: &&prometheus::proto::Metric| metric.get_label().iter().any(|pair| pair.value() == label);
    let metric = family.get_metric().iter().find(has_label).expect("the label exists");
    metric.get_counter().get_value() + metric.get_gauge().get_value()
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

pub(crate) fn negotiation(own: &str) -> NegotiationId {
    NegotiationId::form(&agent("alice"), own).unwrap()
}

/// A preset of the core.
pub(crate) fn policy(name: &str) -> Policy {
    policy_core::preset(name).unwrap()
}

/// A call of alice to durable contractors, to be answered within ten seconds.
pub(crate) fn call(own: &str, policy: Policy, contractors: &[&str], qos: Qos) -> Entry {
    invite(
        own,
        policy,
        contractors
            .iter()
            .map(|name| Invitation { agent: agent(name), qos, durable: true, reputation: None })
            .collect(),
    )
}

/// A call of alice to contractors that are expected to be there.
pub(crate) fn call_the_present(own: &str, policy: Policy, contractors: &[&str]) -> Entry {
    let invitation =
        |name: &&str| Invitation { agent: agent(name), qos: Qos::AtLeastOnce, durable: false, reputation: None };
    invite(own, policy, contractors.iter().map(invitation).collect())
}

fn invite(own: &str, policy: Policy, invited: Vec<Invitation>) -> Entry {
    let documents = Some(CallDocuments { hashes: vec![document()], require: false });
    let payload = Payload::Cfp(Cfp { reply_within_ms: Some(10_000), documents, ..Cfp::default() });
    let policy_digest = policy.digest().unwrap();
    let pinned =
        Pinned { policy: Arc::new(policy), policy_digest, invited, left_out: 0, task_policy: None, panel: None };
    Entry::Message(AdmittedMessage { pinned: Some(Arc::new(pinned)), ..admitted("alice", own, "call", payload) })
}

/// A message of an agent in one of alice's negotiations.
pub(crate) fn message(from: &str, own: &str, msg_id: &str, payload: Payload) -> Entry {
    Entry::Message(admitted(from, own, msg_id, payload))
}

pub(crate) fn offer(price: i64) -> Payload {
    let attribute = |name: &str, value| (schemas::ids::AttrName::try_new(name).unwrap(), AttrValue::Int(value));
    Payload::Offer(Offer { terms: [attribute("price", price)].into(), ..Offer::default() })
}

/// The same, by a contractor that knows the document of the calls.
pub(crate) fn offer_under_document(price: i64) -> Payload {
    let Payload::Offer(offer) = offer(price) else { unreachable!("an offer") };
    Payload::Offer(Offer { documents: vec![document()], ..offer })
}

/// The protocol document that every call of a contract net names.
pub(crate) fn document() -> DocumentHash {
    DocumentHash::of_bytes(b"a document")
}

pub(crate) fn confirm(award_no: AwardNo) -> Payload {
    Payload::Confirm(Confirm { award_no, terms_digest: None })
}

pub(crate) fn done() -> Payload {
    Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None })
}

fn admitted(from: &str, own: &str, msg_id: &str, payload: Payload) -> AdmittedMessage {
    let act = payload.act();
    let envelope = Envelope {
        msg_id: MsgId::try_new(msg_id).unwrap(),
        ts: WireTime(Timestamp::from_ms(START_MS)),
        from: Address::Agent(agent(from)),
        to: Vec::new(),
        capabilities: Vec::new(),
        scope: None,
        negotiation: Some(negotiation(own).to_string()),
        seq: None,
        in_reply_to: None,
        traceparent: None,
        receipt: false,
    };
    let body = schemas::digest::canonical(&Message { envelope, payload }).unwrap();
    AdmittedMessage {
        from: agent(from),
        negotiation: negotiation(own),
        act,
        digest: Digest::of_bytes(&body),
        body: Arc::from(RawValue::from_string(String::from_utf8(body).unwrap()).unwrap()),
        pinned: None,
        receipts_all: true,
        capabilities: Vec::new(),
    }
}

/// Appends entries as one record.
pub(crate) async fn append(bus: &Bus, entries: Vec<Entry>) -> u64 {
    append_to(bus, LANE, entries).await
}

/// The same to any lane.
pub(crate) async fn append_to(bus: &Bus, lane: Lane, entries: Vec<Entry>) -> u64 {
    let record = Record::new("gateway-test", entries).encode().unwrap();
    bus.log.append(lane, Bytes::from(record)).await.unwrap()
}

/// Every record stored so far.
pub(crate) async fn records(bus: &Bus) -> Vec<(LogRecord, Record)> {
    records_of(bus, LANE).await
}

/// The same of any lane.
pub(crate) async fn records_of(bus: &Bus, lane: Lane) -> Vec<(LogRecord, Record)> {
    let end = bus.log.last_seq(lane).await.unwrap();
    let mut stream = bus.log.read(lane, 1).await.unwrap();
    let mut records = Vec::new();
    while records.last().map_or(0, |(record, _): &(LogRecord, Record)| record.seq) < end {
        let record = stream.next().await.unwrap().unwrap();
        let decoded = Record::decode(&record.bytes).unwrap();
        records.push((record, decoded));
    }
    records
}

/// What engines logged so far.
pub(crate) async fn engine_events(bus: &Bus) -> Vec<EngineEvent> {
    engine_events_of(bus, LANE).await
}

/// The same of any lane.
pub(crate) async fn engine_events_of(bus: &Bus, lane: Lane) -> Vec<EngineEvent> {
    let entries = records_of(bus, lane).await.into_iter().flat_map(|(_, record)| record.entries);
    entries
        .filter_map(|entry| match entry {
            Entry::Engine { event, .. } => Some(event),
            Entry::Message(_) | Entry::Tick => None,
        })
        .collect()
}

/// How many ticks were logged so far.
pub(crate) async fn ticks(bus: &Bus) -> usize {
    let records = records(bus).await;
    records.iter().flat_map(|(_, record)| &record.entries).filter(|entry| matches!(entry, Entry::Tick)).count()
}

/// An agent's end of the bus. It acknowledges what it is told to, nothing by itself.
pub(crate) struct Probe {
    id: AgentId,
    bus: Bus,
    inbox: BoxStream<'static, bus::Received>,
    read: VecDeque<Delivery>,
}

impl Probe {
    pub(crate) async fn connect(bus: &Bus, name: &str) -> Self {
        let id = agent(name);
        let inbox = bus.pub_sub.subscribe(subject::inbox(&id), None).await.unwrap();
        Self { id, bus: bus.clone(), inbox, read: VecDeque::new() }
    }

    /// The deliveries of the next inbox message.
    pub(crate) async fn next_message(&mut self) -> Vec<Delivery> {
        assert!(self.read.is_empty(), "unread deliveries: {:?}", self.read);
        let received = timeout(Duration::from_secs(3600), self.inbox.next()).await.expect("a message within the hour");
        serde_json::from_slice(&received.unwrap().payload).unwrap()
    }

    pub(crate) async fn next(&mut self) -> Delivery {
        if self.read.is_empty() {
            self.read = self.next_message().await.into();
        }
        self.read.pop_front().unwrap()
    }

    /// Reads and acknowledges until something of an act comes; returns that, acknowledged too.
    pub(crate) async fn until(&mut self, act: Act) -> Delivery {
        loop {
            let delivery = self.next().await;
            self.ack(delivery.envelope.msg_id).await;
            if delivery.payload.act() == act {
                return delivery;
            }
        }
    }

    /// Reads and acknowledges until nothing comes for a while.
    pub(crate) async fn drain(&mut self, quiet: Duration) -> Vec<Delivery> {
        let mut drained: Vec<Delivery> = Vec::new();
        while !self.read.is_empty() || !self.is_quiet(quiet).await {
            let delivery = self.next().await;
            self.ack(delivery.envelope.msg_id).await;
            drained.push(delivery);
        }
        drained
    }

    /// Whether no inbox message comes for so long; one that does is kept.
    pub(crate) async fn is_quiet(&mut self, quiet: Duration) -> bool {
        let Ok(received) = timeout(quiet, self.inbox.next()).await else { return true };
        let deliveries: Vec<Delivery> = serde_json::from_slice(&received.unwrap().payload).unwrap();
        self.read.extend(deliveries);
        false
    }

    pub(crate) async fn ack(&self, id: DeliveryId) {
        self.bus.pub_sub.publish(subject::ack(&self.id, id), Bytes::new()).await.unwrap();
    }

    pub(crate) async fn hello(&self) {
        self.bus.pub_sub.publish(subject::hello(&self.id), Bytes::new()).await.unwrap();
    }
}

pub(crate) fn award_no(delivery: &Delivery) -> AwardNo {
    let Notification::Accept(award) = &delivery.payload else { panic!("not an ACCEPT: {delivery:?}") };
    award.award_no
}
