//! Views and journals are answered from a current state only: not by an engine that is behind the log, nor by one that was
//! stopped while another took its lane. An owner that is behind says so.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Log, LogRecord, LogStream, PubSub, Received};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use policy_engine::LanePhase;
use schemas::admission::LaneAdmission;
use schemas::record::Qos;
use schemas::{Lane, subject};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::exchange::{LANE, append, call, negotiation, open_bus, policy, start};

const WHILE_BEHIND: Duration = Duration::from_millis(900);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_behind_the_log_answers_once_it_has_caught_up() {
    let bus = open_bus();
    let gate = Gate::open();
    let _engine = start(&gate.wrap(&bus), "engine-1").await;
    append(&bus, vec![call("early", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    assert_eq!(outcome(&view(&bus, "early", PATIENCE).await.unwrap()), "found");
    gate.close();
    append(&bus, vec![call("late", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    for own in ["late", "early", "never"] {
        let answer = view(&bus, own, WHILE_BEHIND).await;
        assert!(answer.is_err(), "{own}: {answer:?} from a state without the last record");
        let answer = journal(&bus, own, WHILE_BEHIND).await;
        assert!(answer.is_err(), "{own}: {answer:?} from a state without the last record");
    }
    let ((late, never), ()) =
        tokio::join!(async { tokio::join!(view(&bus, "late", PATIENCE), view(&bus, "never", PATIENCE)) }, async {
            tokio::time::sleep(WHILE_BEHIND).await;
            gate.reopen();
        });
    assert_eq!((outcome(&late.unwrap()), outcome(&never.unwrap())), ("found", "not_found"));
    assert_eq!(outcome(&journal(&bus, "late", PATIENCE).await.unwrap()), "found");
}

#[tokio::test(start_paused = true)]
async fn an_owner_tells_gateways_how_much_its_lane_may_be_asked_to_open() {
    let bus = open_bus();
    let mut words = bus.pub_sub.subscribe(subject::admission(LANE), None).await.unwrap();
    let gate = Gate::open();
    let engine = start(&gate.wrap(&bus), "engine-1").await;
    let _standby = start(&bus, "engine-2").await;
    let mut next = async || {
        let word = tokio::time::timeout(Duration::from_secs(1), words.next()).await.unwrap().unwrap();
        serde_json::from_slice::<LaneAdmission>(&word.payload).unwrap()
    };
    let first = next().await;
    assert_eq!((first.rate_per_s, first.gateways, first.wait_ms, first.queue), (250, 1, 0, None));
    let mut told = first;
    for number in 0..60 {
        append(&bus, vec![call(&format!("job-{number}"), policy("high"), &["bob"], Qos::BestEffort)]).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        while let Some(Some(word)) = words.next().now_or_never() {
            let word: LaneAdmission = serde_json::from_slice(&word.payload).unwrap();
            assert!((word.epoch, word.sent_us) > (told.epoch, told.sent_us), "in order, of one owner: {word:?}");
            told = word;
        }
    }
    assert!(told.rate_per_s >= 250 && told.queue.is_none(), "{told:?}");
    let owner = engine.status().lanes[0].clone();
    assert_eq!(owner.admission.is_some(), owner.phase == LanePhase::Owner);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_was_stopped_leaves_the_answer_to_the_one_that_took_its_lane() {
    let bus = open_bus();
    let gate = Gate::open();
    let stopped = start(&gate.wrap(&bus), "engine-1").await;
    let other = start(&bus, "engine-2").await;
    let owner_of = |engine: &policy_engine::EngineHandle| engine.status().lanes[0].phase == LanePhase::Owner;
    if owner_of(&other) {
        // Ranks are by name; the one that can be stopped has to own the lane first.
        other.shutdown().await;
        gate.close();
        let next = start(&bus, "engine-2").await;
        return answers_alone(&bus, &gate, &stopped, &next).await;
    }
    gate.close();
    answers_alone(&bus, &gate, &stopped, &other).await;
}

/// `other` takes the lane of an engine that is stopped, and alone answers for what it has folded.
async fn answers_alone(
    bus: &Bus,
    gate: &Gate,
    stopped: &policy_engine::EngineHandle,
    other: &policy_engine::EngineHandle,
) {
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(stopped.status().lanes[0].phase, LanePhase::Owner, "it does not know better");
    assert_eq!(other.status().lanes[0].phase, LanePhase::Owner);
    for number in 0..20 {
        let own = format!("late-{number}");
        append(bus, vec![call(&own, policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
        // Both wait for requests now, and the one that was stopped has subscribed first.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(outcome(&view(bus, &own, PATIENCE).await.unwrap()), "found", "{own}");
        assert_eq!(outcome(&journal(bus, &own, PATIENCE).await.unwrap()), "found", "{own}");
    }
    gate.reopen();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(outcome(&view(bus, "late-0", PATIENCE).await.unwrap()), "found");
}

async fn view(bus: &Bus, own: &str, patience: Duration) -> Result<Value, BusError> {
    ask(bus, subject::view(LANE), &json!({"negotiation": negotiation(own), "viewer": "alice"}), patience).await
}

async fn journal(bus: &Bus, own: &str, patience: Duration) -> Result<Value, BusError> {
    ask(bus, subject::journal(LANE), &json!({"negotiation": negotiation(own)}), patience).await
}

async fn ask(bus: &Bus, subject: String, request: &Value, patience: Duration) -> Result<Value, BusError> {
    let answer = bus.pub_sub.request(subject, None, Bytes::from(request.to_string()), patience).await?;
    Ok(serde_json::from_slice(&answer).unwrap())
}

fn outcome(answer: &Value) -> &'static str {
    if answer.get("found").is_some() { "found" } else { "not_found" }
}

/// Holds back what an engine reads of the log and says to other engines, and nothing else.
#[derive(Clone)]
struct Gate(watch::Sender<bool>);

impl Gate {
    fn open() -> Self {
        Self(watch::Sender::new(true))
    }

    fn close(&self) {
        self.0.send_replace(false);
    }

    fn reopen(&self) {
        self.0.send_replace(true);
    }

    fn wrap(&self, bus: &Bus) -> Bus {
        Bus {
            log: Arc::new(Gated { inner: Arc::clone(&bus.log), gate: self.clone() }),
            pub_sub: Arc::new(Gated { inner: Arc::clone(&bus.pub_sub), gate: self.clone() }),
            ..bus.clone()
        }
    }
}

struct Gated<T: ?Sized> {
    inner: Arc<T>,
    gate: Gate,
}

#[bus::async_trait]
impl Log for Gated<dyn Log> {
    fn lanes(&self) -> u8 {
        self.inner.lanes()
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        self.inner.append(lane, record).await
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        let gate = self.gate.0.subscribe();
        let records = self.inner.read(lane, from_seq).await?.then(move |record| {
            let mut gate = gate.clone();
            async move {
                gate.wait_for(|is_open| *is_open).await.unwrap();
                record
            }
        });
        Ok(records.boxed())
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.inner.last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.inner.record(lane, seq).await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.inner.trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.inner.trimmed(lane).await
    }
}

#[bus::async_trait]
impl PubSub for Gated<dyn PubSub> {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        if subject::engine_of(&subject).is_some() && !*self.gate.0.borrow() {
            return Ok(());
        }
        self.inner.publish(subject, payload).await
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        self.inner.subscribe(subject, queue).await
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        self.inner.request(subject, token, payload, timeout).await
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.inner.flush().await
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }
}
