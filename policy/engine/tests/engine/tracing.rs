//! The spans an engine records: one negotiation is one connected trace.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use parking_lot::Mutex;
use policy_engine::{Engine, EngineConfig, EngineHandle, LanePhase};
use schemas::record::{AdmittedMessage, Entry, Qos};
use schemas::{Act, Digest, MsgId};
use serde_json::value::RawValue;
use telemetry::trace::Value;
use telemetry::{Kind, Span, SpanId, Spans, TraceContext, TraceId, Tracer};

use crate::exchange::{
    Probe, agent, append, award_no, call, config, confirm, done, message, metrics, negotiation, offer, open_bus, policy,
};

/// What a client of another trace sends.
const FOREIGN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(start_paused = true)]
async fn one_round_is_one_connected_trace() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    round(&bus, None).await;
    let spans = kept.spans();
    let names: BTreeSet<&str> = spans.iter().map(|span| &*span.name).collect();
    let expected = [
        "deliver accept",
        "deliver ack",
        "deliver cfp",
        "deliver closed",
        "deliver inform",
        "fold cfp",
        "fold confirm",
        "fold inform",
        "fold offer",
        "negotiation contract_net",
        "write register",
    ];
    assert_eq!(names, expected.into());
    assert!(spans.iter().all(|span| span.context.trace == TraceId::of(&negotiation("job")) && span.error.is_none()));
    assert_is_connected(&spans);
    let root = only(&spans, "negotiation contract_net");
    assert_eq!((root.is_root, root.id, root.kind), (true, SpanId::of(&negotiation("job")), Kind::Internal));
    assert_eq!(text(root, "llmx.outcome"), "completed");
    assert!(spans.iter().filter(|span| span.is_root).count() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_hangs_under_the_step_that_caused_it() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    round(&bus, None).await;
    let spans = kept.spans();
    let (call, offered) = (only(&spans, "fold cfp"), only(&spans, "fold offer"));
    assert_eq!(call.context.parent, SpanId::admitted(&agent("alice"), &id("call")));
    assert_eq!(call.id, SpanId::folded(&agent("alice"), &id("call")));
    assert_eq!((call.kind, text(call, "llmx.disposition")), (Kind::Consumer, "ok".to_owned()));
    assert_eq!(only(&spans, "deliver cfp").context.parent, call.id);
    assert_eq!(only(&spans, "deliver accept").context.parent, offered.id, "the first offer closes the collection");
    let written: Vec<_> = spans.iter().filter(|span| span.name == "write register").collect();
    let keys: Vec<_> = written.iter().map(|span| text(span, "messaging.destination.name")).collect();
    assert_eq!(keys, ["award.alice~job.0.1", "award.alice~job.0.1.end", "closed.alice~job"]);
    let parents = ["b1", "b2", "b3"].map(|msg_id| SpanId::folded(&agent("bob"), &id(msg_id)));
    assert_eq!(written.iter().map(|span| span.context.parent).collect::<Vec<_>>(), parents);
    let delivered = only(&spans, "deliver accept");
    assert_eq!((text(delivered, "llmx.agent"), delivered.kind), ("bob".to_owned(), Kind::Producer));
    assert!(delivered.attributes.contains(&("llmx.attempts", Value::Number(1))));
    assert!(spans.iter().all(|span| span.start <= span.end || span.kind == Kind::Internal), "{spans:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_came_with_a_trace_stays_in_it_and_what_others_send_hangs_at_the_negotiation() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    round(&bus, Some(FOREIGN)).await;
    let spans = kept.spans();
    let foreign = TraceContext::parse(FOREIGN).unwrap();
    let whole = only(&spans, "negotiation contract_net");
    assert_eq!((whole.is_root, whole.context), (false, foreign), "under the span of the caller");
    let (own, others): (Vec<&Span>, Vec<&Span>) =
        spans.iter().partition(|span| span.context.trace == TraceId::of(&negotiation("job")));
    let own: BTreeSet<&str> = own.iter().map(|span| &*span.name).collect();
    assert_eq!(own, ["fold confirm", "fold inform", "fold offer"].into(), "bob knows nothing of the trace");
    assert!(others.iter().all(|span| span.context.trace == foreign.trace));
    let root = SpanId::of(&negotiation("job"));
    assert_eq!(only(&spans, "deliver cfp").context.parent, only(&spans, "fold cfp").id);
    assert_eq!(only(&spans, "deliver accept").context.parent, root);
    let written = spans.iter().filter(|span| span.name == "write register");
    assert!(written.clone().count() == 3 && written.into_iter().all(|span| span.context.parent == root));
}

#[tokio::test(start_paused = true)]
async fn what_a_timer_causes_hangs_at_the_negotiation() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    alice.until(Act::Closed).await;
    bob.until(Act::Closed).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let spans = kept.spans();
    let closed: Vec<_> = spans.iter().filter(|span| span.name == "deliver closed").collect();
    assert_eq!(closed.len(), 2);
    assert!(closed.iter().all(|span| span.context.parent == SpanId::of(&negotiation("job"))));
    assert_eq!(only(&spans, "write register").context.parent, SpanId::of(&negotiation("job")));
    assert_is_connected(&spans);
}

#[tokio::test(start_paused = true)]
async fn of_messages_that_share_a_record_each_has_what_it_caused() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("a", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let more = call("b", policy("high"), &["bob"], Qos::AtLeastOnce);
    append(&bus, vec![more, message("bob", "a", "b1", offer(3)), message("bob", "b", "b1", offer(3))]).await;
    bob.drain(Duration::from_secs(1)).await;
    let spans = kept.spans();
    for own in ["a", "b"] {
        let trace: Vec<Span> =
            spans.iter().filter(|span| span.context.trace == TraceId::of(&negotiation(own))).cloned().collect();
        let offered = SpanId::folded(&agent("bob"), &id("b1"));
        let accept = only(&trace, "deliver accept");
        assert_eq!(accept.context.parent, offered, "{own}");
        assert_eq!(only(&trace, "deliver cfp").context.parent, only(&trace, "fold cfp").id, "{own}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_trace_that_is_not_kept_only_what_fails_is_recorded() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 0.0).await;
    round(&bus, None).await;
    assert_eq!(kept.spans(), []);
    append(&bus, vec![message("bob", "job", "b9", offer(1)), message("mallory", "job", "x", offer(1))]).await;
    append(&bus, vec![call("late", policy("high"), &["nobody"], Qos::AtLeastOnce)]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let spans = kept.spans();
    let failed: Vec<_> = spans.iter().map(|span| (&*span.name, span.error)).collect();
    assert!(failed.contains(&("fold offer", Some("unauthorized"))), "{failed:?}");
    assert!(failed.contains(&("deliver cfp", Some("attempts"))), "{failed:?}");
    assert!(spans.iter().all(|span| span.error.is_some()));
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_owner_sent_has_its_span_when_its_successor_hears_of_it() {
    let (bus, kept) = (open_bus(), Kept::default());
    let first = start(&bus, "engine-1", &kept, 1.0).await;
    let second = start(&bus, "engine-2", &kept, 1.0).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let sent = bob.next_message().await;
    let folds = kept.spans().iter().filter(|span| span.name == "fold cfp").count();
    assert_eq!(folds, 1, "a standby folds and records nothing");
    let (owner, successor) = if owns(&first) { (first, second) } else { (second, first) };
    assert!(owns(&owner) && !owns(&successor));
    owner.abort();
    tokio::time::sleep(Duration::from_secs(2)).await;
    bob.ack(sent[0].envelope.msg_id).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let spans = kept.spans();
    let delivered = only(&spans, "deliver cfp");
    assert_eq!(delivered.context.parent, only(&spans, "fold cfp").id);
    assert!(owns(&successor));
}

#[tokio::test(start_paused = true)]
async fn no_span_holds_terms() {
    let (bus, kept) = (open_bus(), Kept::default());
    let _engine = start(&bus, "engine-1", &kept, 1.0).await;
    round(&bus, None).await;
    // Not when they began and ended: a clock shows any four digits now and then.
    let spans = kept.spans();
    let told: Vec<_> = spans.iter().map(|span| (&span.name, &span.attributes, &span.error)).collect();
    let text = format!("{told:?}");
    assert!(!text.contains("4711") && !text.contains("price"), "{text}");
}

/// A whole round of bob's; alice and bob acknowledge everything. The call carries a trace context, if there is one.
async fn round(bus: &Bus, traceparent: Option<&str>) {
    let (mut alice, mut bob) = (Probe::connect(bus, "alice").await, Probe::connect(bus, "bob").await);
    let call = call("job", policy("low"), &["bob"], Qos::AtLeastOnce);
    append(bus, vec![traceparent.map_or(call.clone(), |traceparent| within(call, traceparent))]).await;
    bob.until(Act::Cfp).await;
    append(bus, vec![message("bob", "job", "b1", offer(4_711))]).await;
    let accept = bob.until(Act::Accept).await;
    append(bus, vec![message("bob", "job", "b2", confirm(award_no(&accept)))]).await;
    bob.until(Act::Ack).await;
    append(bus, vec![message("bob", "job", "b3", done())]).await;
    bob.until(Act::Closed).await;
    alice.drain(Duration::from_millis(50)).await;
}

fn owns(engine: &EngineHandle) -> bool {
    engine.status().lanes[0].phase == LanePhase::Owner
}

/// The same message with a trace context in its envelope.
fn within(entry: Entry, traceparent: &str) -> Entry {
    let Entry::Message(admitted) = entry else { panic!("a message") };
    let mut body: serde_json::Value = serde_json::from_str(admitted.body.get()).unwrap();
    body["envelope"]["traceparent"] = traceparent.into();
    let body = schemas::digest::canonical(&body).unwrap();
    Entry::Message(AdmittedMessage {
        digest: Digest::of_bytes(&body),
        body: Arc::from(RawValue::from_string(String::from_utf8(body).unwrap()).unwrap()),
        ..admitted
    })
}

async fn start(bus: &Bus, id: &str, kept: &Kept, ratio: f64) -> EngineHandle {
    let tracer = Tracer::new(ratio, Arc::new(kept.clone()));
    let config = EngineConfig { tracer, ..config(id) };
    Engine::start(bus.clone(), config, metrics(), None).await.unwrap()
}

/// Every parent is a span that was recorded, or one a gateway records.
fn assert_is_connected(spans: &[Span]) {
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id.to_bytes()).collect();
    assert_eq!(ids.len(), spans.len(), "no two spans have one id");
    for span in spans.iter().filter(|span| !span.is_root) {
        let is_folded = span.name.starts_with("fold ");
        assert!(is_folded || ids.contains(&span.context.parent.to_bytes()), "{span:#?}");
    }
}

fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut named = spans.iter().filter(|span| span.name == name);
    let first = named.next().unwrap_or_else(|| panic!("`{name}` in {spans:#?}"));
    assert!(named.next().is_none(), "one `{name}` only");
    first
}

fn text(span: &Span, name: &str) -> String {
    let value = span.attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    let Some(Value::Text(text)) = value else { panic!("`{name}` of {span:#?}") };
    text.into_owned()
}

fn id(msg_id: &str) -> MsgId {
    MsgId::try_new(msg_id).unwrap()
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Span>>>);

impl Kept {
    fn spans(&self) -> Vec<Span> {
        self.0.lock().clone()
    }
}

impl Spans for Kept {
    fn take(&self, span: Span) {
        self.0.lock().push(span);
    }
}
