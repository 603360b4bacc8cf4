use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use serde_json::Value;

use super::*;
#[cfg(feature = "metrics")]
use crate::model::config::TokenPrice;
use crate::model::{AnswerShape, ChatMessage, ChatRole, Misfit, ScriptedModel};

/// Any integer below a hundred.
struct Number;

impl Question for Number {
    type Choice = i64;

    fn messages(&self) -> Vec<ChatMessage> {
        vec![ChatMessage { role: ChatRole::System, content: "Say a number.".to_owned() }]
    }

    fn shape(&self) -> AnswerShape {
        AnswerShape::Integer { min: 0, max: 99 }
    }

    fn judge(&self, answer: &Value) -> Result<i64, Misfit> {
        Ok(answer.as_i64().unwrap_or_default())
    }
}

fn subject(own: &str) -> Subject {
    let negotiation = NegotiationId::try_new(&format!("alice~{own}")).unwrap();
    let context = TraceContext::of(None, &negotiation);
    let asked_at = Timestamp::from_ms(1_000_000);
    let agent = AgentId::try_new("bob").unwrap();
    Subject { agent, negotiation, context, asked_at, deadline: asked_at.plus_ms(10_000) }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_one_call_is_never_exceeded() {
    let config = ModelConfig { calls_per_negotiation: 1, ..ModelConfig::default() };
    let called = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&called);
    let model = ScriptedModel::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Completion { content: "junk".to_owned(), ..Completion::default() })
    });
    let consultant = Consultant::new(model, config);
    for own in ["1", "2", "1", "3", "3"] {
        assert_eq!(consultant.consult(&subject(own), Number).await, Err(GaveUp::Budget));
    }
    assert_eq!((called.load(Ordering::Relaxed), consultant.totals().calls), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn the_form_that_works_is_remembered() {
    let model = ScriptedModel::new(|request| match request.form {
        AnswerForm::Alternatives | AnswerForm::JsonSchema | AnswerForm::JsonObject => Err(CompletionError::FormUnknown),
        AnswerForm::Plain => Ok(Completion { content: "5".to_owned(), ..Completion::default() }),
    });
    let consultant = Consultant::new(model, ModelConfig::default());
    for (own, calls) in [("1", 4), ("2", 5), ("3", 6)] {
        assert_eq!(consultant.consult(&subject(own), Number).await, Ok(5));
        assert_eq!(consultant.totals().calls, calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_form_is_left_for_good_only_once_a_weaker_one_is_answered() {
    let model = ScriptedModel::new(|request| {
        let is_strongest = request.form == AnswerForm::Alternatives;
        Err(if is_strongest { CompletionError::FormUnknown } else { CompletionError::Refused { status: 400 } })
    });
    let consultant = Consultant::new(model, ModelConfig::default());
    for (own, calls) in [("1", 2), ("2", 4)] {
        assert_eq!(consultant.consult(&subject(own), Number).await, Err(GaveUp::Unavailable));
        assert_eq!(consultant.totals().calls, calls, "the strongest form is tried again");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_no_endpoint_took_cost_nothing_and_their_reason_is_told() {
    let price = crate::model::config::TokenPrice { input: 1_000_000, output: 1_000_000 };
    for (error, expected) in [
        (
            CompletionError::NotConnected("Connection refused".to_owned()),
            "model_unavailable: cannot connect to http://127.0.0.1:9090/v1 (Connection refused)",
        ),
        (
            CompletionError::Failed { status: 503, retry_after_ms: None },
            "model_unavailable: http://127.0.0.1:9090/v1: the endpoint answers 503",
        ),
    ] {
        let model = ScriptedModel::new(move |_| Err(error.clone()));
        let consultant = Consultant::new(model, ModelConfig { price, ..ModelConfig::default() });
        let gave_up = consultant.consult(&subject("1"), Number).await.unwrap_err();
        assert_eq!(consultant.explain(gave_up), expected);
        assert_eq!(consultant.totals(), ModelTotals { calls: 3, ..ModelTotals::default() });
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_counts_what_was_sent() {
    let model = ScriptedModel::new(|_| Err(CompletionError::Unreachable("the connection was lost".to_owned())));
    let consultant = Consultant::new(model, ModelConfig::default());
    let _ = consultant.consult(&subject("1"), Number).await;
    assert!(consultant.totals().usage.input > 0);
}

#[test]
fn an_endpoint_that_cannot_be_used_is_warned_of_once_until_it_answers_again() {
    let (mut standing, url) = (EndpointStanding::default(), "http://127.0.0.1:9090/v1");
    let gone = CompletionError::NotConnected("Connection refused".to_owned());
    let told = "cannot connect to http://127.0.0.1:9090/v1 (Connection refused)";
    let calls = [
        (Some(&CompletionError::TimedOut), None),
        (Some(&gone), Some(told)),
        (Some(&gone), None),
        (Some(&CompletionError::TimedOut), None),
        (Some(&CompletionError::Refused { status: 401 }), None),
        (None, None),
        (Some(&gone), Some(told)),
        (Some(&gone), None),
    ];
    for (place, (error, expected)) in calls.into_iter().enumerate() {
        assert_eq!(standing.handle_call(url, error).as_deref(), expected, "call {place}");
    }
}

/// Answers nothing.
struct Silent;

impl Model for Silent {
    fn complete(
        &self,
        _: CompletionRequest,
    ) -> futures_util::future::BoxFuture<'static, Result<Completion, CompletionError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn why_an_answer_did_not_fit_is_warned_of_once_for_each_reason() {
    let turn = AtomicU32::new(0);
    let model = ScriptedModel::new(move |_| {
        let content = ["junk", "100", "5"][turn.fetch_add(1, Ordering::Relaxed) as usize % 3];
        Ok(Completion { content: content.to_owned(), ..Completion::default() })
    });
    let consultant = Consultant::new(model, ModelConfig::default());
    for own in ["1", "2"] {
        assert_eq!(consultant.consult(&subject(own), Number).await, Ok(5));
    }
    let mut standing = consultant.standing.lock();
    let told = [InvalidReason::NotJson, InvalidReason::Schema, InvalidReason::Limits, InvalidReason::Limits];
    assert_eq!(told.map(|reason| standing.handle_misfit(reason)), [false, false, true, false], "two are told");
}

#[tokio::test(start_paused = true)]
async fn a_consultation_that_is_dropped_is_paid_and_keeps_no_room() {
    let price = crate::model::config::TokenPrice { input: 1_000_000, output: 1_000_000 };
    // Room for one call at a time: 4 tokens are sent, and 10 may come back.
    let config = ModelConfig { price, answer_tokens: 10, budget: 30, ..ModelConfig::default() };
    let consultant = Consultant::new(Silent, config);
    for dropped in 1..=4 {
        let within = Duration::from_secs(1);
        assert!(tokio::time::timeout(within, consultant.consult(&subject("1"), Number)).await.is_err(), "{dropped}");
        let totals = consultant.totals();
        assert_eq!((totals.calls, totals.estimated_calls, totals.usage.input), (dropped, dropped, 4 * dropped));
        assert_eq!(totals.cost, 4 * dropped);
    }
    assert_eq!(
        consultant.consult(&subject("2"), Number).await,
        Err(GaveUp::Deadline),
        "there is room: 16 of 30 are spent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_answers_costs_no_more_than_the_deadline() {
    let config = ModelConfig { timeout_ms: 4000, ..ModelConfig::default() };
    let (consultant, began) = (Consultant::new(Silent, config), Instant::now());
    assert_eq!(consultant.consult(&subject("1"), Number).await, Err(GaveUp::Unavailable));
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_spans_and_totals_add_up_and_estimates_are_marked() {
    #[derive(Default)]
    struct Kept(Mutex<Vec<Span>>);
    impl telemetry::Spans for Kept {
        fn take(&self, span: Span) {
            self.0.lock().push(span);
        }
    }
    let kept = Arc::new(Kept::default());
    let registry = prometheus::Registry::new();
    let price = TokenPrice { input: 333_333, output: 777_777 };
    let turn = AtomicU32::new(0);
    let model = ScriptedModel::new(move |_| {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let usage = turn.is_multiple_of(2).then_some(TokenUsage { input: 100 + u64::from(turn), output: 7 });
        match turn % 5 {
            3 => Err(CompletionError::RateLimited { retry_after_ms: None }),
            4 => Ok(Completion { content: "secret words".to_owned(), usage, ..Completion::default() }),
            _ => Ok(Completion { content: "5".to_owned(), usage, ..Completion::default() }),
        }
    });
    let consultant = Consultant::new(model, ModelConfig { price, ..ModelConfig::default() })
        .traced(Tracer::new(1.0, Arc::clone(&kept) as _))
        .counted(ModelMetrics::try_new(&registry).unwrap());
    for own in 0..20 {
        assert_eq!(consultant.consult(&subject(&own.to_string()), Number).await, Ok(5));
    }
    let (totals, spans) = (consultant.totals(), kept.0.lock());
    let sum = |name: &str| -> u64 {
        let numbers = spans.iter().flat_map(|span| &span.attributes).filter(|(known, _)| *known == name);
        numbers
            .map(|(_, value)| if let telemetry::trace::Value::Number(number) = value { *number as u64 } else { 0 })
            .sum()
    };
    assert_eq!(spans.len() as u64, totals.calls);
    assert_eq!(sum("gen_ai.usage.input_tokens"), totals.usage.input);
    assert_eq!(sum("gen_ai.usage.output_tokens"), totals.usage.output);
    assert_eq!(sum("llmx.model.cost_micro_units"), totals.cost);
    assert_eq!(sum("llmx.model.estimated"), totals.estimated_calls);
    assert!(totals.estimated_calls > 0 && totals.cost > 0);
    let text = telemetry::metrics::to_text(&registry).unwrap();
    for line in [
        format!("gen_ai_client_token_usage_sum{{gen_ai_token_type=\"input\"}} {}", totals.usage.input),
        format!("gen_ai_client_token_usage_sum{{gen_ai_token_type=\"output\"}} {}", totals.usage.output),
        format!("agent_model_cost_micro_units_total {}", totals.cost),
        format!("agent_model_estimated_calls_total {}", totals.estimated_calls),
        "agent_model_consultations_total{result=\"answered\"} 20".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert!(spans.iter().all(|span| !format!("{span:?}").contains("secret words")), "answers are in no span");
    assert!(spans.iter().all(|span| !format!("{span:?}").contains("Say a number")), "prompts are in no span");
}

#[tokio::test(start_paused = true)]
async fn a_model_is_called_by_its_name_or_by_its_address_and_never_the_stub_where_it_is_none() {
    let other = "http://127.0.0.1:8081/v1";
    for (name, url, is_stub, expected) in [
        ("stub", "http://127.0.0.1:9090/v1", None, "stub"),
        ("stub", other, None, other),
        ("stub", other, Some(true), "stub"),
        ("stub", other, Some(false), other),
        ("gemma", other, Some(false), "gemma"),
        ("gemma", other, None, "gemma"),
    ] {
        let model = ScriptedModel::new(move |_| {
            let answer = |is_stub| Completion { content: "5".to_owned(), is_stub, ..Completion::default() };
            is_stub.map(answer).ok_or(CompletionError::Refused { status: 401 })
        });
        let config = ModelConfig { name: name.to_owned(), url: url.to_owned(), ..ModelConfig::default() };
        let consultant = Consultant::new(model, config);
        let _ = consultant.consult(&subject("1"), Number).await;
        assert_eq!(consultant.label(), expected, "{name} {url} {is_stub:?}");
    }
}

/// Answers after so long.
struct Slow(Duration);

impl Model for Slow {
    fn complete(&self, _: CompletionRequest) -> PendingAnswer {
        let took = self.0;
        Box::pin(async move {
            tokio::time::sleep(took).await;
            Ok(Completion { content: "5".to_owned(), ..Completion::default() })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_counted_with_how_late_and_not_used() {
    let consultant = Consultant::new(Slow(Duration::from_millis(12_500)), ModelConfig::default());
    assert_eq!(consultant.consult(&subject("1"), Number).await, Err(GaveUp::Deadline));
    assert_eq!(consultant.times().late, 0, "it may still come");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let times = consultant.times();
    assert_eq!((times.late, times.late_p50_ms, times.late_max_ms, times.p50_ms), (1, 2500, 2500, 12_500));
    assert!(times.to_string().ends_with(", 1 came 2500 ms too late (at most 2500 ms)"), "{times}");
    let never = Consultant::new(Silent, ModelConfig::default());
    assert_eq!(never.consult(&subject("1"), Number).await, Err(GaveUp::Deadline));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((never.times().late, never.times().p50_ms), (0, 20_001), "longer than it was waited for");
}

#[tokio::test(start_paused = true)]
async fn what_a_model_cannot_answer_in_time_is_refused_at_once() {
    let consultant = Consultant::new(Slow(Duration::from_secs(4)), ModelConfig::default());
    for own in 0..8 {
        assert_eq!(consultant.consult(&subject(&own.to_string()), Number).await, Ok(5));
    }
    let hurried = |own: usize| {
        let subject = subject(&format!("hurried-{own}"));
        Subject { deadline: subject.asked_at.plus_ms(3999), ..subject }
    };
    let (began, calls) = (Instant::now(), consultant.totals().calls);
    for own in 0..7 {
        assert_eq!(consultant.consult(&hurried(own), Number).await, Err(GaveUp::Deadline));
    }
    assert_eq!((began.elapsed(), consultant.totals().calls - calls), (Duration::ZERO, 0));
    assert_eq!(consultant.consult(&hurried(7), Number).await, Err(GaveUp::Deadline));
    assert_eq!((began.elapsed(), consultant.totals().calls - calls), (Duration::from_millis(3999), 1), "asked anyway");
    assert_eq!(consultant.times().unasked, 7);
    let unasked = Consultant::new(Silent, ModelConfig::default());
    unasked.times.lock().note(Duration::from_millis(70));
    let why = "model_deadline: no answer before the deadline; answers took 70 ms (p95 70 ms)";
    assert_eq!(unasked.explain(GaveUp::Deadline), why);
}
