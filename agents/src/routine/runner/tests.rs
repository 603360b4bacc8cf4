use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::document::DocumentHash;
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::{Span, SpanId, Spans, TraceContext, Tracer};

use super::*;
use crate::routine::NativeRoutine;

/// Ends as it is told to, or never.
struct Ending(RoutineKind, Option<Result<String, RoutineFault>>);

impl Routine for Ending {
    fn kind(&self) -> RoutineKind {
        self.0
    }

    fn run(&self, _request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        match self.1.clone() {
            Some(outcome) => std::future::ready(outcome).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

fn document() -> DocumentHash {
    DocumentHash::of_bytes(b"a document")
}

fn request(document: Option<DocumentHash>, text: &str) -> RoutineRequest {
    let negotiation = NegotiationId::try_new("alice~n1").unwrap();
    RoutineRequest {
        agent: AgentId::try_new("bob").unwrap(),
        context: TraceContext::of(None, &negotiation),
        negotiation,
        asked_at: Timestamp::from_ms(1_000),
        deadline: Timestamp::from_ms(60_000),
        document,
        text: text.to_owned(),
    }
}

fn runner(routine: impl Routine + 'static) -> RoutineRunner {
    let mut table = RoutineTable::default();
    table.add(document(), Arc::new(routine)).unwrap();
    RoutineRunner::new(table, RoutineLimits::default())
}

fn tally(answered: u64, failed: u64) -> RoutineTally {
    RoutineTally { answered, failed }
}

#[tokio::test(start_paused = true)]
async fn a_routine_that_fails_in_any_way_gives_way_to_the_model_and_that_to_the_sentence() {
    let faults = [
        Some(Err(RoutineFault::Failed("no such city".to_owned()))),
        Some(Err(RoutineFault::Exhausted("memory"))),
        Some(Err(RoutineFault::Unreadable)),
        Some(Err(RoutineFault::Unavailable("gone".to_owned()))),
        Some(Err(RoutineFault::Busy)),
        Some(Ok("x".repeat(RESULT_CHARS_MAX + 1))),
        None,
    ];
    for fault in faults {
        let failing = || Ending(RoutineKind::Native, fault.clone());
        let model = |answer| Arc::new(Ending(RoutineKind::Model, answer));
        let helped = runner(failing()).with_model(model(Some(Ok("by the model".to_owned()))));
        let answer = helped.run(&request(Some(document()), "5")).await;
        let report = RoutineReport { hash: Some(document()), kind: RoutineKind::Model };
        assert_eq!(answer, Some(RoutineAnswer { result: "by the model".to_owned(), report }), "{fault:?}");
        let expected = [(RoutineKind::Native, tally(0, 1)), (RoutineKind::Model, tally(1, 0))];
        assert_eq!(helped.tallies(), expected.into());

        let alone = runner(failing()).with_model(model(None)).saying("sorry");
        let answer = alone.run(&request(Some(document()), "5")).await;
        let report = RoutineReport { hash: None, kind: RoutineKind::Language };
        assert_eq!(answer, Some(RoutineAnswer { result: "sorry".to_owned(), report }), "{fault:?}");
        let expected = [
            (RoutineKind::Native, tally(0, 1)),
            (RoutineKind::Model, tally(0, 1)),
            (RoutineKind::Language, tally(1, 0)),
        ];
        assert_eq!(alone.tallies(), expected.into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_4096_characters_is_taken_however_many_bytes_they_have() {
    let long = "é".repeat(RESULT_CHARS_MAX);
    let answer = runner(Ending(RoutineKind::Native, Some(Ok(long.clone())))).run(&request(Some(document()), "")).await;
    assert_eq!(answer.unwrap().result, long);
}

#[tokio::test(start_paused = true)]
async fn without_a_document_the_model_talks_and_that_counts_as_language() {
    let model = Arc::new(Ending(RoutineKind::Model, Some(Ok("Gladly.".to_owned()))));
    let runner = runner(NativeRoutine::new(|_| Ok("never".to_owned()))).with_model(model);
    let answer = runner.run(&request(None, "Please deliver a parcel.")).await;
    let report = RoutineReport { hash: None, kind: RoutineKind::Language };
    assert_eq!(answer, Some(RoutineAnswer { result: "Gladly.".to_owned(), report }));
    assert_eq!(runner.tallies(), [(RoutineKind::Language, tally(1, 0))].into());
}

#[tokio::test]
async fn a_function_that_panics_or_blocks_ends_within_its_limits() {
    let panicking = runner(NativeRoutine::new(|_| panic!("on purpose")));
    assert_eq!(panicking.run(&request(Some(document()), "")).await, None, "and nothing is left to try");
    assert_eq!(panicking.tallies(), [(RoutineKind::Native, tally(0, 1)), (RoutineKind::Language, tally(0, 1))].into());
    let mut table = RoutineTable::default();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let blocking = NativeRoutine::new(move |_| {
        let _ = held.lock().recv();
        Ok("too late".to_owned())
    });
    table.add(document(), Arc::new(blocking)).unwrap();
    let blocked = RoutineRunner::new(table, RoutineLimits { time: Duration::from_millis(20) });
    assert_eq!(blocked.run(&request(Some(document()), "")).await, None);
    drop(release);
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn every_run_is_counted_by_kind_and_result() {
    let registry = prometheus::Registry::new();
    let metrics = RoutineMetrics::try_new(&registry).unwrap();
    let runner = runner(Ending(RoutineKind::Wasm, None)).counted(metrics).saying("sorry");
    runner.run(&request(Some(document()), "")).await;
    assert_eq!(runner.turn_away(&request(Some(document()), "")).unwrap().result, "sorry");
    let text = telemetry::metrics::to_text(&registry).unwrap();
    for line in [
        r#"exchange_routine_runs_total{kind="wasm",result="timed_out"} 1"#,
        r#"exchange_routine_runs_total{kind="wasm",result="busy"} 1"#,
        r#"exchange_routine_runs_total{kind="language",result="ok"} 2"#,
        r#"exchange_routine_runs_total{kind="native",result="ok"} 0"#,
        r#"exchange_routine_duration_seconds_count{kind="wasm"} 2"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

/// Spans as they are finished.
#[derive(Default)]
struct Finished(Mutex<Vec<Span>>);

impl Spans for Finished {
    fn take(&self, span: Span) {
        self.0.lock().push(span);
    }
}

#[tokio::test(start_paused = true)]
async fn every_run_is_a_span_below_the_receipt_and_a_fault_its_error() {
    let finished = Arc::new(Finished::default());
    let model = Arc::new(Ending(RoutineKind::Model, Some(Ok("by the model".to_owned()))));
    let runner = runner(Ending(RoutineKind::Http, None)).with_model(model).traced(Tracer::new(1.0, finished.clone()));
    let request = request(Some(document()), "5");
    runner.run(&request).await;
    let spans = finished.0.lock();
    let names: Vec<(&str, Option<&str>)> = spans.iter().map(|span| (span.name.as_ref(), span.error)).collect();
    assert_eq!(names, [("routine http", Some("timed_out")), ("routine model", None)]);
    let ids: Vec<SpanId> = spans.iter().map(|span| span.id).collect();
    assert_ne!(ids[0], ids[1]);
    assert!(spans.iter().all(|span| span.context == request.context), "{spans:?}");
}
