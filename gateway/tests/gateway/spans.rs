//! The spans of admission, as whoever keeps them gets them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bus::memory::{self, MemoryOptions};
use bytes::Bytes;
use gateway::keys::{KeyAlgorithm, SigningKey};
use gateway::{Credentials, Ingress, Transport};
use parking_lot::Mutex;
use schemas::{MsgId, NegotiationId, subject};
use serde_json::{Value, json};
use telemetry::trace::Value as Attribute;
use telemetry::{Kind, Span, SpanId, Spans, TraceContext, TraceId, Tracer};

use crate::admission::Silent;
use crate::rig::{PATIENCE, Rig, agent, cfp, offer};
use crate::streams::{frame, opened, send};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn every_way_in_leaves_the_same_two_spans_in_the_trace_of_the_negotiation() {
    let (rig, kept) = traced(1.0).await;
    let began = SystemTime::now();
    enter_by_every_way(&rig).await;
    let spans = kept.take();
    let context = TraceContext::of(None, &negotiation("alice~job"));
    assert_eq!(spans.len(), 8, "{spans:?}");
    for (way, message) in [("http", "m1"), ("ws", "m2"), ("nats", "m3"), ("in_process", "m4")] {
        let id = MsgId::try_new(message).unwrap();
        let admitted = spans.iter().find(|span| span.id == SpanId::admitted(&agent("bob"), &id)).unwrap();
        assert_eq!((admitted.name.as_ref(), admitted.kind, admitted.context), ("admit offer", Kind::Server, context));
        assert_eq!((text(admitted, "llmx.transport"), text(admitted, "llmx.act")), (Some(way), Some("offer")));
        assert_eq!(text(admitted, "messaging.message.conversation_id"), Some("alice~job"));
        assert_eq!(text(admitted, "messaging.message.id"), Some(message));
        assert_eq!((admitted.error, admitted.is_root), (None, false));
        let published = spans.iter().find(|span| span.id == SpanId::published(&agent("bob"), &id)).unwrap();
        assert_eq!((published.name.as_ref(), published.kind), ("publish log", Kind::Producer));
        assert_eq!(published.context, context.under(admitted.id));
        assert!(text(published, "messaging.destination.name").unwrap().starts_with("log."));
        let times = [began, admitted.start, published.start, published.end, admitted.end, SystemTime::now()];
        assert!(times[..5].is_sorted(), "{times:?}");
    }
}

#[tokio::test]
async fn a_message_that_carries_a_trace_is_admitted_in_that_trace() {
    let (rig, kept) = traced(1.0).await;
    let mut message = offer("bob", "m1", "alice~job");
    message["envelope"]["traceparent"] = json!(PARENT);
    assert_eq!(rig.send("bob", &message).await.0, 202);
    let spans = kept.take();
    let admitted = spans.iter().find(|span| span.kind == Kind::Server).unwrap();
    assert_eq!(admitted.context, TraceContext::parse(PARENT).unwrap());
}

#[tokio::test]
async fn a_repeat_has_spans_of_its_own_and_the_first_keeps_the_ids_others_know() {
    let (rig, kept) = traced(1.0).await;
    let message = offer("bob", "m1", "alice~job");
    for _ in 0..3 {
        assert_eq!(rig.send("bob", &message).await.0, 202);
    }
    let spans = kept.take();
    let ids: BTreeSet<[u8; 8]> = spans.iter().map(|span| span.id.to_bytes()).collect();
    assert_eq!((spans.len(), ids.len()), (6, 6), "{spans:?}");
    let id = SpanId::admitted(&agent("bob"), &MsgId::try_new("m1").unwrap());
    assert_eq!(spans.iter().position(|span| span.id == id), Some(0));
    let repeats = spans.iter().filter(|span| span.attributes.contains(&("llmx.repeat", Attribute::Flag(true))));
    assert_eq!(repeats.count(), 2);
    assert_eq!(rig.metric("exchange_message_repeats_total", &[("transport", "http")]), 2.0);
}

#[tokio::test]
async fn a_message_refused_and_then_sent_again_gets_its_id_only_when_it_is_taken() {
    let (rig, kept) = traced(1.0).await;
    let call = cfp("alice", "job", &["agent://bob"]);
    assert_eq!(rig.send("alice", &call).await.0, 422);
    rig.register("bob").await;
    assert_eq!(rig.send("alice", &call).await.0, 202);
    let spans = kept.take();
    let id = SpanId::admitted(&agent("alice"), &MsgId::try_new("job").unwrap());
    let [refused, admitted, _] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((refused.name.as_ref(), refused.error), ("admit cfp", Some("no_recipient")));
    assert_eq!(refused.context, TraceContext::of(None, &negotiation("alice~job")));
    assert!(refused.id != id && admitted.id == id);
}

#[tokio::test]
async fn a_message_whose_outcome_is_unknown_keeps_its_id_because_it_may_be_in_the_log() {
    let mut bus = memory::open(MemoryOptions::default());
    let silent = Arc::new(Silent { log: bus.log.clone(), is_silent: AtomicBool::new(true) });
    bus.log = silent.clone();
    let kept = Kept::default();
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(bus, key, |config| {
        config.limits.append_ms = 200;
        config.tracer = Tracer::new(1.0, kept.sink());
    })
    .await;
    let message = offer("bob", "m1", "alice~job");
    assert_eq!(rig.send("bob", &message).await.0, 503);
    silent.is_silent.store(false, Ordering::Relaxed);
    assert_eq!(rig.send("bob", &message).await.0, 202);
    let spans = kept.take();
    let told: Vec<_> = spans.iter().map(|span| (span.name.as_ref(), span.error)).collect();
    let unknown = Some("log_unavailable");
    assert_eq!(
        told,
        [("admit offer", unknown), ("publish log", unknown), ("admit offer", None), ("publish log", None)]
    );
    let id = SpanId::admitted(&agent("bob"), &MsgId::try_new("m1").unwrap());
    assert!(spans[0].id == id && spans[2].id != id);
    assert!(spans[0].end.duration_since(spans[0].start).unwrap().as_millis() >= 200, "the wait is seen");
}

#[tokio::test]
async fn a_message_that_names_no_negotiation_stands_alone_in_a_trace_of_its_own() {
    let (rig, kept) = traced(1.0).await;
    let token = rig.token("bob");
    assert_eq!(rig.post(&token, "{").await.0, 422);
    assert_eq!(rig.post("no-token", offer("bob", "m1", "alice~job").to_string()).await.0, 401);
    let mut socket = opened(&rig, "bob").await;
    send(&mut socket, json!({ "type": "nonsense" })).await;
    assert_eq!(frame(&mut socket).await["type"], "refused");
    let spans = kept.take();
    let errors: Vec<_> = spans.iter().map(|span| span.error.unwrap()).collect();
    assert_eq!(errors, ["malformed_json", "unauthenticated", "wrong_type"]);
    assert!(spans.iter().all(|span| span.name == "admit message" && span.is_root), "{spans:?}");
    let traces: BTreeSet<[u8; 16]> = spans.iter().map(|span| span.context.trace.to_bytes()).collect();
    assert_eq!(traces.len(), 3);
    assert!(!traces.contains(&TraceId::of(&negotiation("alice~job")).to_bytes()), "it was never read so far");
}

#[tokio::test]
async fn what_is_refused_is_kept_although_its_trace_is_not() {
    let (rig, kept) = traced(0.0).await;
    assert_eq!(rig.send("bob", &offer("bob", "m1", "alice~job")).await.0, 202);
    assert_eq!(rig.send("bob", &offer("carol", "m2", "alice~job")).await.0, 403);
    let spans = kept.take();
    let told: Vec<_> = spans.iter().map(|span| (span.name.as_ref(), span.error)).collect();
    assert_eq!(told, [("admit offer", Some("unauthorized"))]);
}

#[tokio::test]
async fn spans_hold_no_token_and_nothing_of_a_payload() {
    const CANARY: &str = "canary-9d41";
    let (rig, kept) = traced(1.0).await;
    let mut message = offer("bob", "m1", "alice~job");
    message["payload"]["conditions"] = json!(CANARY);
    message["payload"]["terms"] = json!({ "price": 987_654 });
    assert_eq!(rig.send("bob", &message).await.0, 202);
    message["payload"][CANARY] = json!(1);
    assert_eq!(rig.send("bob", &message).await.0, 422);
    let token = rig.token("bob");
    let told = format!("{:?}", kept.take());
    for secret in [CANARY, "987654", token.split('.').next().unwrap()] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}

/// Spans that were kept.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<Span>>>);

impl Kept {
    pub(crate) fn sink(&self) -> Arc<dyn Spans> {
        Arc::new(self.clone())
    }

    fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Spans for Kept {
    fn take(&self, span: Span) {
        self.0.lock().push(span);
    }
}

async fn traced(ratio: f64) -> (Rig, Kept) {
    let kept = Kept::default();
    let sink = kept.sink();
    (Rig::with(|config| config.tracer = Tracer::new(ratio, sink)).await, kept)
}

/// Offers `m1` to `m4` of bob, each by another way.
async fn enter_by_every_way(rig: &Rig) {
    let message = |id: &str| offer("bob", id, "alice~job");
    let bytes = |message: &Value| Bytes::from(message.to_string());
    assert_eq!(rig.send("bob", &message("m1")).await.0, 202);
    let mut socket = opened(rig, "bob").await;
    send(&mut socket, json!({ "type": "message", "message": message("m2") })).await;
    assert_eq!(frame(&mut socket).await["type"], "accepted");
    let (token, to) = (rig.token("bob"), subject::gateway_in(&agent("bob")));
    rig.bus.pub_sub.request(to, Some(token.clone()), bytes(&message("m3")), PATIENCE).await.unwrap();
    let credentials = Credentials::Token(Some(&token));
    let ingress = Ingress {
        transport: Transport::InProcess,
        credentials,
        named_sender: None,
        peer: None,
        bytes: bytes(&message("m4")),
    };
    rig.handle.admission().admit(ingress).await.unwrap();
}

fn negotiation(id: &str) -> NegotiationId {
    NegotiationId::try_new(id).unwrap()
}

fn text<'s>(span: &'s Span, name: &str) -> Option<&'s str> {
    let (_, value) = span.attributes.iter().find(|(known, _)| *known == name)?;
    match value {
        Attribute::Text(text) => Some(text),
        Attribute::Number(_) | Attribute::Flag(_) => None,
    }
}
