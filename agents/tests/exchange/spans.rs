//! The spans an agent makes: where they hang, what they say, and when there are none.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agents::transport::bus::BusTransport;
use agents::{Action, Agent, AgentOptions, CallRequest, Initiator, Outgoing};
use parking_lot::Mutex;
use schemas::delivery::{Delivery, Disposition, Notification};
use schemas::payload::{Cfp, Reasoned};
use schemas::{Address, MsgId, Payload, Timestamp};
use serde_json::json;
use telemetry::trace::Value;
use telemetry::{Kind, Span, SpanId, Spans, TraceContext, TraceId, Tracer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::fake::{FakeExchange, Got, agent, call, delivery, delivery_id, identity, negotiation, receipt};

/// A caller's own trace.
const CALLERS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(start_paused = true)]
async fn an_offer_hangs_under_the_call_it_answers_and_the_call_under_its_delivery() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let _handle = refusing(&exchange, Tracer::new(1.0, spans.clone())).spawn(CancellationToken::new());
    exchange.hello().await;
    let before = SystemTime::now();
    exchange.deliver(&agent("bob"), &[call(1, "n1"), call(1, "n1")]).await;
    let message = exchange.message().await;
    exchange.accept(&message, 1).await;
    let made = spans.wait_for(2).await;

    let whole = TraceContext::of(None, &negotiation("n1"));
    let (process, send) = (&made[0], &made[1]);
    assert_eq!((process.name.as_ref(), process.kind), ("process cfp", Kind::Consumer));
    assert_eq!(process.id, SpanId::processed(delivery_id(1)));
    assert_eq!(process.context, whole.under(SpanId::delivered(delivery_id(1))));
    assert_eq!((send.name.as_ref(), send.kind, send.error), ("send refuse", Kind::Producer, None));
    assert_eq!(send.id, SpanId::sent(&agent("bob"), &msg_id(&message)));
    assert_eq!(send.context, whole.under(process.id));
    assert_eq!(traceparent(&message), Some(whole.under(send.id).to_traceparent(true)));
    for span in &made {
        assert!(before <= span.start && span.start <= span.end && span.end <= SystemTime::now(), "{span:?}");
        assert_eq!(text(span, "messaging.message.conversation_id"), "alice~n1");
        assert_eq!(text(span, "llmx.agent"), "bob");
    }
    assert_eq!(text(process, "messaging.destination.name"), "agent.bob.inbox");
    assert_eq!(text(send, "llmx.act"), "refuse");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_message_has_one_span_and_the_same_bytes() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let _handle = refusing(&exchange, Tracer::new(1.0, spans.clone())).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1")]).await;
    let (first, second) = (exchange.message().await, exchange.message().await);
    assert_eq!(first.received.payload, second.received.payload);
    exchange.accept(&second, 1).await;
    let made = spans.wait_for(2).await;
    assert_eq!(made[1].name, "send refuse");
    assert!(made[1].attributes.contains(&("llmx.attempts", Value::Number(2))), "{:?}", made[1]);
}

#[tokio::test(start_paused = true)]
async fn a_call_opens_the_negotiations_trace_unless_the_caller_brings_one() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let options = AgentOptions { tracer: Tracer::new(1.0, spans.clone()), ..AgentOptions::default() };
    let initiator = Initiator::spawn(BusTransport::new(&exchange.bus), identity("alice"), options);
    for (own, brought) in [("own", None), ("brought", Some(CALLERS.to_owned()))] {
        let request = CallRequest { traceparent: brought.clone(), ..request(own) };
        initiator.call(request, mpsc::channel(16).0).await.unwrap();
        let cfp = exchange.message().await;
        exchange.accept(&cfp, 1).await;
        let made = spans.wait_for(1).await;
        assert_eq!(made[0].name, "send cfp");
        assert_eq!(made[0].context, TraceContext::of(brought.as_deref(), &negotiation(own)));
        assert_eq!(made[0].context.trace == TraceId::of(&negotiation(own)), brought.is_none());
        assert_eq!(traceparent(&cfp), Some(made[0].context.under(made[0].id).to_traceparent(true)));
        // What is said later in the call stays in its trace.
        initiator.cancel(negotiation(own), None).await.unwrap();
        let cancel = exchange.message().await;
        exchange.accept(&cancel, 2).await;
        let made = spans.wait_for(1).await;
        assert_eq!(
            (made[0].name.as_ref(), made[0].context),
            ("send cancel", TraceContext::of(brought.as_deref(), &negotiation(own)))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_answer_and_one_to_no_delivery_in_particular_keep_their_cause() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let strategy = |_now: Timestamp, delivery: &Delivery| -> Vec<Action> {
        let outgoing = Outgoing::new(delivery.envelope.negotiation.clone(), refuse());
        vec![outgoing.after_ms(250).into()]
    };
    let options = AgentOptions { tracer: Tracer::new(1.0, spans.clone()), ..AgentOptions::default() };
    let agent_of_test = Agent::new(BusTransport::new(&exchange.bus), identity("bob"), strategy).with_options(options);
    let _handle = agent_of_test.spawn(CancellationToken::new());
    exchange.hello().await;
    let mut told = call(1, "n1");
    told.envelope.traceparent = Some(CALLERS.to_owned());
    exchange.deliver(&agent("bob"), &[told]).await;
    let message = exchange.message().await;
    exchange.accept(&message, 1).await;
    let made = spans.wait_for(2).await;
    let callers = TraceContext::parse(CALLERS).unwrap();
    assert_eq!(made[1].context, callers.under(SpanId::processed(delivery_id(1))));
    let took = made[1].end.duration_since(made[1].start).unwrap();
    assert!(took < Duration::from_millis(100), "the delay is no part of sending: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_kept_although_its_trace_is_not() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let _handle = refusing(&exchange, Tracer::new(0.0, spans.clone())).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[call(1, "n1"), call(2, "n2")]).await;
    let (first, second) = (exchange.message().await, exchange.message().await);
    assert_eq!((traceparent(&first), traceparent(&second)), (None, None), "a trace that is not kept is not named");
    exchange.accept(&first, 1).await;
    exchange.answer(&second, &json!({"refused": {"code": "no_consent", "detail": "no"}})).await;
    let made = spans.wait_for(1).await;
    assert_eq!((made[0].name.as_ref(), made[0].error), ("send refuse", Some("no_consent")));
    assert_eq!(text(&made[0], "messaging.message.conversation_id"), "alice~n2");
}

#[tokio::test(start_paused = true)]
async fn without_a_tracer_a_callers_context_is_passed_on_as_it_is() {
    let mut exchange = FakeExchange::start().await;
    let _handle = refusing(&exchange, Tracer::off()).spawn(CancellationToken::new());
    exchange.hello().await;
    let mut told = call(1, "n1");
    told.envelope.traceparent = Some(CALLERS.to_owned());
    exchange.deliver(&agent("bob"), &[told]).await;
    assert_eq!(traceparent(&exchange.message().await).as_deref(), Some(CALLERS));
}

#[tokio::test(start_paused = true)]
async fn a_span_says_how_a_message_was_disposed_of() {
    let (mut exchange, spans) = (FakeExchange::start().await, Arc::new(Kept::default()));
    let _handle = refusing(&exchange, Tracer::new(1.0, spans.clone())).spawn(CancellationToken::new());
    exchange.hello().await;
    exchange.deliver(&agent("bob"), &[delivery(9, "n1", receipt("m1", Disposition::Ok, None))]).await;
    let made = spans.wait_for(1).await;
    assert_eq!((made[0].name.as_ref(), text(&made[0], "llmx.disposition")), ("process ack", "ok".to_owned()));
}

/// Refuses every call.
fn refusing(exchange: &FakeExchange, tracer: Tracer) -> Agent<impl agents::Strategy + 'static> {
    let strategy = |_now: Timestamp, delivery: &Delivery| -> Vec<Action> {
        let is_call = matches!(delivery.payload, Notification::Cfp(_));
        if is_call { vec![Action::reply(delivery, refuse())] } else { Vec::new() }
    };
    let options = AgentOptions { tracer, ..AgentOptions::default() };
    Agent::new(BusTransport::new(&exchange.bus), identity("bob"), strategy).with_options(options)
}

fn refuse() -> Payload {
    Payload::Refuse(Reasoned::default())
}

fn request(own: &str) -> CallRequest {
    CallRequest::new(own, vec![Address::Agent(agent("bob"))], Cfp::default())
}

fn msg_id(got: &Got) -> MsgId {
    MsgId::try_new(got.document["envelope"]["msg_id"].as_str().unwrap()).unwrap()
}

fn traceparent(got: &Got) -> Option<String> {
    got.document["envelope"]["traceparent"].as_str().map(str::to_owned)
}

fn text(span: &Span, name: &str) -> String {
    match span.attributes.iter().find(|(found, _)| *found == name) {
        Some((_, Value::Text(text))) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Spans as they are finished.
#[derive(Default)]
struct Kept(Mutex<Vec<Span>>);

impl Spans for Kept {
    fn take(&self, span: Span) {
        self.0.lock().push(span);
    }
}

impl Kept {
    /// The spans made since the last time, once there are so many; that no more follow is seen a while later.
    async fn wait_for(&self, count: usize) -> Vec<Span> {
        crate::fake::in_time(async {
            while self.0.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        })
        .await;
        let made = std::mem::take(&mut *self.0.lock());
        assert_eq!(made.len(), count, "{made:?}");
        made
    }
}
