//! Traces as a collector sees them: a whole exchange in a process of its own, and a receiver of OTLP that speaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::process::Command;

/// Longest a run may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// What a run of 2 s leaves room for.
const DEMO: [&str; 11] =
    ["demo", "--agents", "3", "--rate", "4", "--duration", "2", "--policy", "medium", "--seed", "7"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_negotiation_is_one_connected_trace_across_agents_gateway_and_engine() {
    let collector = Collector::start().await;
    let output = demo(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url), ("OTEL_TRACES_SAMPLER_ARG", "1.0")]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let traces = collector.traces();
    assert!(traces.len() >= 3, "{} traces", traces.len());
    traces.values().for_each(|trace| assert_connected(trace));
    let completed = |trace: &&Vec<Span>| trace.iter().any(|span| text(span, "llmx.outcome") == "completed");
    let trace = traces.values().find(completed).expect("a negotiation is completed");
    assert_completed(trace);
    assert_nothing_secret(&traces);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_of_none_keeps_none_but_what_fails() {
    let collector = Collector::start().await;
    let output = demo(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url), ("OTEL_TRACES_SAMPLER_ARG", "0")]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for span in collector.traces().values().flatten() {
        assert!(!text(span, "error.type").is_empty(), "{} did not fail", span.name);
    }
}

#[tokio::test]
async fn a_collector_that_is_away_costs_neither_the_run_nor_its_end() {
    let without = demo(&[]).await;
    let since = Instant::now();
    // Nothing listens on the port that is reserved.
    let output = demo(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_TRACES_SAMPLER_ARG", "1")]).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(without.status.success() && output.status.success(), "{stderr}");
    assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
    assert_eq!(stderr.matches("OTEL_EXPORTER_OTLP_ENDPOINT").count(), 1, "it is said once: {stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_proxy_of_the_environment_stands_before_a_collector_of_this_machine() {
    let collector = Collector::start().await;
    let proxy = [("http_proxy", "http://127.0.0.1:9"), ("NO_PROXY", ""), ("no_proxy", "")];
    let traced = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url), ("OTEL_TRACES_SAMPLER_ARG", "1.0")];
    let output = demo(&[&proxy[..], &traced].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!collector.traces().is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_collector_that_is_no_url_ends_the_program_and_a_share_that_is_none_is_passed_over_each_with_its_name() {
    for (variable, value, code) in
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", 2), ("OTEL_TRACES_SAMPLER_ARG", "2", 0)]
    {
        let output = demo(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), (variable, value)]).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.lines().next().is_some_and(|first| first.contains(variable)), "{stderr}");
    }
}

/// One root, all others below it, no two alike, all of one negotiation.
fn assert_connected(trace: &[Span]) {
    let ids: BTreeSet<&[u8]> = trace.iter().map(|span| span.span_id.as_slice()).collect();
    assert_eq!(ids.len(), trace.len(), "no two spans have one id: {:?}", names(trace));
    let roots: Vec<&str> = trace.iter().filter(|span| span.parent_span_id.is_empty()).map(|span| &*span.name).collect();
    assert_eq!(roots, ["negotiation contract_net"], "{:?}", names(trace));
    for span in trace.iter().filter(|span| !span.parent_span_id.is_empty()) {
        assert!(
            ids.contains(span.parent_span_id.as_slice()),
            "the parent of {} is not there: {:?}",
            span.name,
            names(trace)
        );
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{}", span.name);
    }
    let negotiations: BTreeSet<&str> =
        trace.iter().map(|span| text(span, "messaging.message.conversation_id")).collect();
    assert_eq!(negotiations.len(), 1, "{negotiations:?}");
}

/// The steps of a contract net that is completed, each below the one that caused it.
fn assert_completed(trace: &[Span]) {
    let found: BTreeSet<(&str, &str)> = trace.iter().map(|span| (span.name.as_str(), parent(trace, span))).collect();
    let expected: BTreeSet<(&str, &str)> = STEPS.into_iter().collect();
    let (missing, more) =
        (expected.difference(&found).collect::<Vec<_>>(), found.difference(&expected).collect::<Vec<_>>());
    assert!(missing.is_empty(), "not there: {missing:?}");
    for (name, count) in
        [("send cfp", 1), ("fold cfp", 1), ("deliver cfp", 3), ("process cfp", 3), ("deliver accept", 1)]
    {
        assert_eq!(trace.iter().filter(|span| span.name == name).count(), count, "{name}");
    }
    assert!(more.iter().all(|step| MAY_BE.contains(step)), "not expected: {more:?}");
}

/// Every step of a completed contract net, beside its parent.
const STEPS: [(&str, &str); 35] = [
    ("admit cfp", "send cfp"),
    ("admit confirm", "send confirm"),
    ("admit inform", "send inform"),
    ("admit offer", "send offer"),
    ("deliver accept", "fold offer"),
    ("deliver ack", "fold cfp"),
    ("deliver ack", "fold confirm"),
    ("deliver cfp", "fold cfp"),
    ("deliver closed", "fold inform"),
    ("deliver inform", "fold confirm"),
    ("deliver inform", "fold inform"),
    ("deliver inform", "fold offer"),
    ("deliver reject", "fold confirm"),
    ("fold cfp", "admit cfp"),
    ("fold confirm", "admit confirm"),
    ("fold inform", "admit inform"),
    ("fold offer", "admit offer"),
    ("negotiation contract_net", ""),
    ("process accept", "deliver accept"),
    ("process ack", "deliver ack"),
    ("process cfp", "deliver cfp"),
    ("process closed", "deliver closed"),
    ("process inform", "deliver inform"),
    ("process reject", "deliver reject"),
    ("publish log", "admit cfp"),
    ("publish log", "admit confirm"),
    ("publish log", "admit inform"),
    ("publish log", "admit offer"),
    ("send cfp", "negotiation contract_net"),
    ("send confirm", "process accept"),
    ("send inform", "process ack"),
    ("send offer", "process cfp"),
    ("write register", "fold confirm"),
    ("write register", "fold inform"),
    ("write register", "fold offer"),
];
/// Steps there are where a contractor refuses, or the deadline of the collection decides instead of the last offer.
const MAY_BE: [(&str, &str); 14] = [
    ("deliver reject", "fold offer"),
    ("deliver accept", "negotiation contract_net"),
    ("deliver inform", "negotiation contract_net"),
    ("deliver reject", "negotiation contract_net"),
    ("write register", "negotiation contract_net"),
    ("send inform", "process accept"),
    ("deliver ack", "fold refuse"),
    ("deliver accept", "fold refuse"),
    ("deliver inform", "fold refuse"),
    ("write register", "fold refuse"),
    ("send refuse", "process cfp"),
    ("admit refuse", "send refuse"),
    ("publish log", "admit refuse"),
    ("fold refuse", "admit refuse"),
];

fn parent<'a>(trace: &'a [Span], span: &Span) -> &'a str {
    trace.iter().find(|other| other.span_id == span.parent_span_id).map_or("", |parent| &parent.name)
}

/// Attributes are those that are meant to be told, and no value is a document.
fn assert_nothing_secret(traces: &BTreeMap<Vec<u8>, Vec<Span>>) {
    for attribute in traces.values().flatten().flat_map(|span| &span.attributes) {
        let is_named = ["messaging.", "llmx.", "error.type"].iter().any(|known| attribute.key.starts_with(known));
        assert!(is_named, "{}", attribute.key);
        let value = format!("{:?}", attribute.value);
        for secret in ["{\"", "eyJ", "mandate", "price"] {
            assert!(!value.contains(secret), "{}: {value}", attribute.key);
        }
    }
}

fn text<'a>(span: &'a Span, name: &str) -> &'a str {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.as_ref()).and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        _ => "",
    }
}

fn names(trace: &[Span]) -> Vec<&str> {
    trace.iter().map(|span| span.name.as_str()).collect()
}

/// Runs a demo to its end.
async fn demo(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_llmx"));
    command.args(DEMO).env_remove("LLMX_LOG").env("LLMX_LOG_FORMAT", "json").env("NO_PROXY", "*").kill_on_drop(true);
    for name in
        ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"]
    {
        command.env_remove(name);
    }
    command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").envs(variables.iter().copied());
    tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
}

/// A receiver of OTLP over HTTP.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().route("/v1/traces", post(receive)).with_state(Arc::clone(&spans));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, spans }
    }

    /// What has come, by trace.
    fn traces(&self) -> BTreeMap<Vec<u8>, Vec<Span>> {
        let mut traces: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for span in self.spans.lock().iter() {
            traces.entry(span.trace_id.clone()).or_default().push(span.clone());
        }
        traces
    }
}

async fn receive(State(spans): State<Arc<Mutex<Vec<Span>>>>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    let of_processes = request.resource_spans.into_iter().flat_map(|process| process.scope_spans);
    spans.lock().extend(of_processes.flat_map(|scope| scope.spans));
    StatusCode::OK
}
