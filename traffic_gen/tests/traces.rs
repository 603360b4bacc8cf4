//! The spans of rounds of a real exchange: what hangs under what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::{CallReport, CallRequest, Identity, Initiator};
use bus::memory::{self, MemoryOptions};
use parking_lot::Mutex;
use schemas::{AgentId, NegotiationId};
use telemetry::trace::Value;
use telemetry::{Span, SpanId, Spans, TraceContext, TraceId, Tracer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::Recorder;

/// A caller's own trace.
const CALLERS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Longest wait for the end of a negotiation.
const PATIENCE: Duration = Duration::from_secs(60);
/// What makes agents say what, in a round of the contract net: the act, and what they were told.
const CAUSES: [(&str, &[&str]); 3] = [
    ("send offer", &["process cfp"]),
    ("send confirm", &["process accept"]),
    // The disposition `committed` of its CONFIRM makes a contractor perform.
    ("send inform", &["process ack"]),
];
/// Steps that follow from each other in every round.
const LINKS: [&str; 13] = [
    "negotiation contract_net > send cfp",
    "send cfp > admit cfp",
    "admit cfp > publish log",
    "admit cfp > fold cfp",
    "fold cfp > deliver cfp",
    "deliver cfp > process cfp",
    "process cfp > send offer",
    "send offer > admit offer",
    "admit offer > fold offer",
    "deliver accept > process accept",
    "process accept > send confirm",
    "admit confirm > fold confirm",
    "deliver closed > process closed",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_span_of_a_round_hangs_under_what_caused_it() {
    let kept = Arc::new(Kept::default());
    play(Tracer::new(1.0, kept.clone()), Tracer::off()).await;
    let spans = std::mem::take(&mut *kept.0.lock());
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id.to_bytes()).collect();
    assert_eq!(ids.len(), spans.len(), "no step has two spans");
    let mut by_negotiation: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for span in spans {
        by_negotiation.entry(text(&span, "messaging.message.conversation_id")).or_default().push(span);
    }
    assert!(by_negotiation.len() > 5, "{}", by_negotiation.len());
    let mut seen = BTreeSet::new();
    for (negotiation, spans) in &by_negotiation {
        let negotiation = NegotiationId::try_new(negotiation).unwrap();
        assert!(spans.iter().all(|span| span.context.trace == TraceId::of(&negotiation)), "one trace: {spans:?}");
        let calls: Vec<_> = spans.iter().filter(|span| span.name == "send cfp").collect();
        assert_eq!(calls.len(), 1, "{spans:?}");
        assert_eq!(calls[0].context.parent, SpanId::of(&negotiation));
        for (name, causes) in CAUSES {
            for span in spans.iter().filter(|span| span.name == name) {
                let parent = spans.iter().find(|other| other.id == span.context.parent).expect(name);
                assert!(causes.contains(&parent.name.as_ref()), "{name} under {}", parent.name);
                assert_eq!(text(parent, "llmx.agent"), text(span, "llmx.agent"));
                assert!(parent.start <= span.start, "an effect does not precede its cause");
                seen.insert(name);
            }
        }
    }
    assert_eq!(seen, CAUSES.map(|(name, _)| name).into(), "every kind of step was seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_negotiation_is_one_tree_whoever_takes_part() {
    let kept = Arc::new(Kept::default());
    let tracer = Tracer::new(1.0, kept.clone());
    play(tracer.clone(), tracer).await;
    let mut by_trace: BTreeMap<[u8; 16], Vec<Span>> = BTreeMap::new();
    for span in std::mem::take(&mut *kept.0.lock()) {
        by_trace.entry(span.context.trace.to_bytes()).or_default().push(span);
    }
    assert!(by_trace.len() > 5, "{}", by_trace.len());
    let mut links = BTreeSet::new();
    for spans in by_trace.values() {
        let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span.id.to_bytes(), span)).collect();
        assert_eq!(by_id.len(), spans.len(), "no step has two spans");
        let roots: Vec<_> = spans.iter().filter(|span| span.is_root).map(|span| span.name.as_ref()).collect();
        assert_eq!(roots, ["negotiation contract_net"]);
        for span in spans.iter().filter(|span| !span.is_root) {
            let parent = by_id.get(&span.context.parent.to_bytes());
            let parent = parent.unwrap_or_else(|| panic!("{} has no parent in {spans:#?}", span.name));
            links.insert(format!("{} > {}", parent.name, span.name));
        }
    }
    for link in LINKS {
        assert!(links.contains(link), "{link}: {links:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_trace_holds_all_that_its_call_caused() {
    let kept = Arc::new(Kept::default());
    let tracer = Tracer::new(1.0, kept.clone());
    let options = ExchangeOptions { tracer: tracer.clone(), ..ExchangeOptions::default() };
    let exchange = Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap();
    with_contractors(&exchange, CallScenario::default().traced(tracer.clone()), async |scenario, access, _| {
        let name = &scenario.initiator;
        let initiator = Initiator::spawn((access.transport)(name), (access.identity)(name), scenario.options.clone());
        initiator.connected().await.unwrap();
        let traceparent = Some(CALLERS.to_owned());
        let request = CallRequest { traceparent, ..live::request(scenario, "traced".to_owned()) };
        let end = tokio::time::timeout(PATIENCE, initiator.call_to_end(request)).await.unwrap().unwrap();
        assert!(matches!(end.last().unwrap().report, CallReport::Closed(_)), "{end:?}");
        at_rest(&exchange).await;
        initiator.shutdown().await.unwrap();
    })
    .await;
    exchange.shutdown().await;
    let spans = std::mem::take(&mut *kept.0.lock());
    let callers = TraceContext::parse(CALLERS).unwrap();
    assert!(spans.iter().all(|span| span.context.trace == callers.trace && !span.is_root), "{spans:#?}");
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id.to_bytes()).collect();
    let outside: Vec<_> = spans.iter().filter(|span| !ids.contains(&span.context.parent.to_bytes())).collect();
    assert!(outside.iter().all(|span| span.context.parent == callers.parent), "{outside:#?}");
    assert!(outside.iter().any(|span| span.name == "send cfp"), "the caller's own span is its parent: {outside:#?}");
    assert!(spans.iter().any(|span| span.name == "process closed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_traces_that_are_not_kept_nothing_is_told() {
    let kept = Arc::new(Kept::default());
    play(Tracer::new(0.0, kept.clone()), Tracer::off()).await;
    let spans = kept.0.lock();
    assert!(spans.iter().all(|span| span.error.is_some()), "{spans:?}");
}

/// Some rounds of the contract net whose agents' spans go to `tracer`, and the exchange's to `of_exchange`.
async fn play(tracer: Tracer, of_exchange: Tracer) {
    let options = ExchangeOptions { tracer: of_exchange, ..ExchangeOptions::default() };
    let exchange = Exchange::start(memory::open(MemoryOptions::default()), options).await.unwrap();
    let scenario =
        CallScenario { rate: 20.0, duration: Duration::from_secs(1), ..CallScenario::default() }.traced(tracer);
    with_contractors(&exchange, scenario, async |scenario, access, recorder| {
        live::call(access, scenario, recorder, &CancellationToken::new()).await.unwrap();
        let (counts, verdict) = recorder.finish().unwrap();
        assert!(counts.rounds > 5 && verdict.violated() == 0, "{counts:?} {verdict:?}");
    })
    .await;
    exchange.shutdown().await;
}

/// Does something while four contractors are there.
async fn with_contractors(
    exchange: &Exchange,
    scenario: CallScenario,
    act: impl AsyncFnOnce(&CallScenario, &Access<'_>, &Arc<Recorder>),
) {
    let scenario = CallScenario { contractors: 4, ..scenario };
    let control = ControlClient::try_new(exchange.url()).unwrap();
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let identity = |name: &AgentId| -> Identity { exchange.identity(name).unwrap() };
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
    let population = Population::start(&access, &scenario, Some(&recorder)).await.unwrap();
    act(&scenario, &access, &recorder).await;
    at_rest(exchange).await;
    population.stop().await.unwrap();
}

/// Waits until every delivery is acknowledged, and so has its span.
async fn at_rest(exchange: &Exchange) {
    let rest = async {
        while exchange.engine().status().lanes.iter().any(|lane| lane.outbox > 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("agents acknowledge what they hear");
}

fn text(span: &Span, name: &str) -> String {
    match span.attributes.iter().find(|(found, _)| *found == name) {
        Some((_, Value::Text(text))) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<Span>>);

impl Spans for Kept {
    fn take(&self, span: Span) {
        self.0.lock().push(span);
    }
}
