use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Instant, SystemTime};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use schemas::{AgentId, MsgId, NegotiationId};

use super::*;
use crate::trace::{Kind, SpanId, TraceContext, TraceId};

#[test]
fn a_span_arrives_as_it_was_taken() {
    let (address, received) = collector(200);
    let (otlp, counts) = start(address, &[("OTEL_RESOURCE_ATTRIBUTES", "zone=a")]);
    otlp.take(root("alice~1"));
    otlp.take(step("alice~1"));
    otlp.finish();
    let request = received.recv_timeout(Duration::from_secs(5)).unwrap();
    let [of_process] = &request.resource_spans[..] else { panic!("{request:?}") };
    let names: Vec<_> = of_process.resource.as_ref().unwrap().attributes.iter().map(|one| one.key.as_str()).collect();
    for name in ["service.name", "service.instance.id", "service.version", "zone"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let [of_scope] = &of_process.scope_spans[..] else { panic!("{of_process:?}") };
    assert_eq!(of_scope.scope.as_ref().unwrap().name, "llmx");
    let [root, step] = &of_scope.spans[..] else { panic!("{of_scope:?}") };
    let negotiation = NegotiationId::try_new("alice~1").unwrap();
    assert_eq!(root.trace_id, TraceId::of(&negotiation).to_bytes());
    assert_eq!(root.span_id, SpanId::of(&negotiation).to_bytes());
    assert!(root.parent_span_id.is_empty(), "a root has no parent");
    assert_eq!((root.name.as_str(), step.name.as_str()), ("negotiation contract_net", "admit cfp"));
    assert_eq!((step.parent_span_id.clone(), step.trace_id.clone()), (root.span_id.clone(), root.trace_id.clone()));
    assert!(step.end_time_unix_nano >= step.start_time_unix_nano);
    let status = step.status.as_ref().unwrap();
    assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "policy"));
    let text = |name: &str| {
        let found = step.attributes.iter().find(|one| one.key == name)?;
        found.value.as_ref()?.value.clone()
    };
    assert_eq!(text("llmx.transport"), Some(Any::StringValue("http".to_owned())));
    assert_eq!(text("messaging.message.body.size"), Some(Any::IntValue(120)));
    assert_eq!(text("error.type"), Some(Any::StringValue("policy".to_owned())));
    assert_eq!((counts.exported.get(), counts.failed.get(), counts.dropped.get()), (2, 0, 0));
    assert_eq!(counts.queued.get(), 0);
}

#[test]
fn every_span_of_many_is_accounted_for() {
    let (address, received) = collector(200);
    let (otlp, counts) = start(address, &[]);
    (0..10_000).for_each(|number| otlp.take(root(&format!("alice~{number}"))));
    otlp.finish();
    otlp.take(root("alice~late"));
    let arrived: usize = received.try_iter().map(|request| spans(&request)).sum();
    assert_eq!(counts.exported.get(), arrived as u64);
    assert_eq!(counts.exported.get() + counts.dropped.get(), 10_001);
    assert!(arrived >= QUEUE_MAX, "{arrived}");
}

#[test]
fn a_collector_that_refuses_costs_spans_and_no_time() {
    let (address, _received) = collector(503);
    let (otlp, counts) = start(address, &[]);
    (0..100).for_each(|number| otlp.take(root(&format!("alice~{number}"))));
    let since = Instant::now();
    otlp.finish();
    assert!(since.elapsed() < EXPORT_TIMEOUT, "{:?}", since.elapsed());
    assert_eq!((counts.exported.get(), counts.failed.get(), counts.dropped.get()), (0, 100, 0));
}

#[test]
fn a_collector_that_is_silent_does_not_hold_the_end() {
    // It accepts, since its queue does, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (otlp, counts) = start(silent.local_addr().unwrap(), &[]);
    let since = Instant::now();
    (0..2 * QUEUE_MAX).for_each(|number| otlp.take(root(&format!("alice~{number}"))));
    assert!(since.elapsed() < EXPORT_TIMEOUT, "taking spans must not wait: {:?}", since.elapsed());
    assert_eq!(counts.dropped.get(), QUEUE_MAX as u64, "what does not fit is dropped");
    otlp.finish();
    otlp.finish();
    assert!(since.elapsed() < EXPORT_TIMEOUT, "{:?}", since.elapsed());
    assert_eq!(counts.dropped.get(), 2 * QUEUE_MAX as u64, "and so is what is left");
}

fn start(address: SocketAddr, more: &[(&str, &str)]) -> (Otlp, SpanCounts) {
    let endpoint = format!("http://{address}");
    let variable = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
        other => more.iter().find(|(known, _)| *known == other).map(|(_, value)| (*value).to_owned()),
    };
    let config = OtlpConfig::read("llmx-test", "test-1", variable).unwrap().unwrap();
    let counts = SpanCounts::try_new().unwrap();
    (Otlp::start(&config, counts.clone()).unwrap(), counts)
}

fn root(negotiation: &str) -> Span {
    let negotiation = NegotiationId::try_new(negotiation).unwrap();
    let context = TraceContext::of(None, &negotiation);
    let id = SpanId::of(&negotiation);
    let mut span = Span::new("negotiation contract_net", Kind::Internal, context, id, SystemTime::now());
    span.is_root = true;
    span
}

fn step(negotiation: &str) -> Span {
    let negotiation = NegotiationId::try_new(negotiation).unwrap();
    let (sender, message) = (AgentId::try_new("alice").unwrap(), MsgId::try_new("m1").unwrap());
    let (context, id) = (TraceContext::of(None, &negotiation), SpanId::admitted(&sender, &message));
    // A clock that went back between start and end.
    let start = SystemTime::now() + Duration::from_secs(60);
    Span::new("admit cfp", Kind::Server, context, id, start)
        .with("llmx.transport", "http")
        .with("messaging.message.body.size", 120_usize)
        .failed(Some("policy"))
}

fn spans(request: &ExportTraceServiceRequest) -> usize {
    request.resource_spans.iter().flat_map(|one| &one.scope_spans).map(|one| one.spans.len()).sum()
}

/// Answers every request with `status`, and passes on what it held.
fn collector(status: u16) -> (SocketAddr, Receiver<ExportTraceServiceRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let sender = sender.clone();
            std::thread::spawn(move || serve(&stream, status, &sender));
        }
    });
    (address, receiver)
}

fn serve(stream: &TcpStream, status: u16, sender: &Sender<ExportTraceServiceRequest>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut lines) = (0, 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim().to_ascii_lowercase();
            if lines == 0 {
                assert_eq!(line, "post /v1/traces http/1.1");
            }
            lines += 1;
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        // The receiver is gone when its test is over.
        let _ = sender.send(ExportTraceServiceRequest::decode(&body[..]).unwrap());
        let mut stream = stream;
        let head =
            format!("HTTP/1.1 {status} Status\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    }
}
