use serde_json::json;
use strum::VariantArray;

use super::*;

/// A price of which the owner takes no less than 42.
struct Price;

impl Question for Price {
    type Choice = i64;

    fn messages(&self) -> Vec<ChatMessage> {
        let message = |role, content: &str| ChatMessage { role, content: content.to_owned() };
        vec![message(ChatRole::System, "You sell."), message(ChatRole::User, "What is the price?")]
    }

    fn shape(&self) -> AnswerShape {
        let price = AnswerShape::Nullable(Box::new(AnswerShape::Integer { min: 0, max: 1000 }));
        let act = AnswerShape::one_of(&["offer".to_owned(), "refuse".to_owned()]);
        AnswerShape::Object(vec![("act".to_owned(), act), ("price".to_owned(), price)])
    }

    fn judge(&self, answer: &Value) -> Result<i64, Misfit> {
        let misfit = |reason, expected| Misfit::new(reason, "/price", expected);
        match answer["price"].as_i64() {
            _ if answer["act"] == "refuse" => Err(misfit(InvalidReason::Illegal, "an offer: you cannot refuse now")),
            None => Err(misfit(InvalidReason::Illegal, "a price")),
            Some(price) if price < 42 => Err(misfit(InvalidReason::Limits, "a higher value")),
            Some(price) => Ok(price),
        }
    }
}

const START: Timestamp = Timestamp(1_000_000_000);
const GOOD: &str = r#"{"act":"offer","price":50}"#;

type Reply = Result<Completion, CompletionError>;

fn said(content: &str) -> Reply {
    Ok(Completion { content: content.to_owned(), ..Completion::default() })
}

/// How a consultation went on a clock of its own.
struct Course {
    outcome: Result<i64, GaveUp>,
    calls: usize,
    requests: Vec<CompletionRequest>,
    reasons: Vec<InvalidReason>,
    ended_at: Timestamp,
}

/// Tells the replies in turn, the last one over and over; each takes `reply_ms`.
fn run(config: &ModelConfig, within_ms: u64, reply_ms: u64, replies: &[Reply]) -> Course {
    let deadline = START.plus_ms(within_ms);
    let mut consultation = Consultation::new(Price, config, AnswerForm::Alternatives, deadline, 7);
    let (mut now, mut requests, mut reasons) = (START, Vec::new(), Vec::new());
    for _ in 0..1000 {
        match consultation.poll(now) {
            ConsultationStep::End => {
                let calls = requests.len();
                let outcome = consultation.into_outcome().unwrap();
                return Course { outcome, calls, requests, reasons, ended_at: now };
            }
            ConsultationStep::Wait(until) => {
                assert!(now < until && until < deadline, "a wait moves time, and ends before the deadline");
                now = until;
            }
            ConsultationStep::Ask(request) => {
                assert!(now < deadline, "nothing is asked at or past the deadline");
                assert!(now.plus_ms(u64::try_from(request.timeout.as_millis()).unwrap()) <= deadline);
                let timeout_ms = u64::try_from(request.timeout.as_millis()).unwrap();
                let reply = replies[requests.len().min(replies.len() - 1)].clone();
                now = now.plus_ms(reply_ms.min(timeout_ms));
                let reply = if reply_ms > timeout_ms { Err(CompletionError::TimedOut) } else { reply };
                requests.push(*request);
                reasons.extend(consultation.handle_completion(now, reply));
            }
        }
    }
    panic!("it never ends");
}

#[test]
fn every_fault_of_an_answer_is_repaired_a_bounded_number_of_times() {
    let config = ModelConfig::default();
    let fenced = format!("```json\n{GOOD}\n```");
    let thinking = format!("<think>50 or 51?</think>{GOOD}");
    for fine in [GOOD, &fenced, &thinking] {
        let course = run(&config, 60_000, 5, &[said(fine)]);
        assert_eq!((course.outcome, course.calls), (Ok(50), 1), "{fine}");
    }
    let truncated = Ok(Completion { is_truncated: true, ..said(r#"{"act":"off"#).unwrap() });
    let refused = Ok(Completion { is_refusal: true, ..Completion::default() });
    for (fault, reason, pointer, expected) in [
        (said("I offer fifty."), InvalidReason::NotJson, "as a whole", "one JSON object, every member once"),
        (said(""), InvalidReason::Empty, "as a whole", "one JSON object"),
        (truncated, InvalidReason::Truncated, "as a whole", "a shorter answer"),
        (refused, InvalidReason::Refusal, "as a whole", "an answer; `refuse` is one of its acts"),
        (
            said(r#"{"act":"offer","price":"50"}"#),
            InvalidReason::Schema,
            "/price",
            "an integer from 0 to 1000, or null",
        ),
        (said(r#"{"act":"award","price":50}"#), InvalidReason::Schema, "/act", "one of: offer, refuse"),
        (said(r#"{"act":"offer","price":50,"more":1}"#), InvalidReason::Schema, "as a whole", "and no other"),
        (said(r#"{"act":"refuse","price":null}"#), InvalidReason::Illegal, "/price", "an offer: you cannot refuse now"),
        (said(r#"{"act":"offer","price":41}"#), InvalidReason::Limits, "/price", "a higher value"),
    ] {
        let repaired = run(&config, 60_000, 5, &[fault.clone(), said(GOOD)]);
        assert_eq!((repaired.outcome, repaired.calls, repaired.reasons), (Ok(50), 2, vec![reason]));
        let [.., repeated, complaint] = &*repaired.requests[1].messages else { panic!("no repair") };
        assert_eq!((repeated.role, complaint.role), (ChatRole::Assistant, ChatRole::User));
        assert_eq!(repeated.content, fault.as_ref().unwrap().content);
        assert!(complaint.content.contains(&format!("At: {pointer}\n")), "{}", complaint.content);
        assert!(complaint.content.contains(expected), "{}", complaint.content);
        assert!(!complaint.content.contains("42"), "a limit stands in no prompt");
        let given_up = run(&config, 60_000, 5, &[fault]);
        assert_eq!((given_up.outcome, given_up.calls), (Err(GaveUp::Output), 1 + config.repairs as usize));
        assert_eq!(given_up.requests[2].messages.len(), 4, "only the last answer is repeated");
    }
    let huge = run(&config, 60_000, 5, &[Err(CompletionError::TooLarge), said(GOOD)]);
    assert_eq!((huge.outcome, huge.calls, huge.reasons), (Err(GaveUp::Output), 1, vec![InvalidReason::TooLarge]));
}

#[test]
fn faults_of_the_way_are_retried_a_bounded_number_of_times() {
    let config = ModelConfig::default();
    for fault in [
        CompletionError::RateLimited { retry_after_ms: None },
        CompletionError::Failed { status: 503, retry_after_ms: None },
        CompletionError::NotConnected("refused".to_owned()),
        CompletionError::TimedOut,
        CompletionError::Unreadable,
    ] {
        let answered = run(&config, 60_000, 5, &[Err(fault.clone()), Err(fault.clone()), said(GOOD)]);
        assert_eq!((answered.outcome, answered.calls), (Ok(50), 3), "{fault}");
        assert_eq!(answered.requests[2].retry, 2, "the endpoint is told how often it was asked");
        let given_up = run(&config, 60_000, 5, &[Err(fault.clone())]);
        assert_eq!((given_up.outcome, given_up.calls), (Err(GaveUp::Unavailable), 3), "{fault}");
    }
    let refused = run(&config, 60_000, 5, &[Err(CompletionError::Refused { status: 401 })]);
    assert_eq!((refused.outcome, refused.calls), (Err(GaveUp::Unavailable), 1));
    let alternating: Vec<Reply> =
        (0..20).map(|n| if n % 2 == 0 { Err(CompletionError::TimedOut) } else { said("junk") }).collect();
    let mixed = run(&config, 600_000, 5, &alternating);
    assert_eq!((mixed.outcome, mixed.calls), (Err(GaveUp::Unavailable), 5), "3 attempts and 2 repairs are all");
}

#[test]
fn an_endpoint_that_asks_for_time_gets_it_unless_the_deadline_is_before() {
    let config = ModelConfig::default();
    let later = |ms| Err(CompletionError::RateLimited { retry_after_ms: Some(ms) });
    let waited = run(&config, 10_000, 5, &[later(3000), said(GOOD)]);
    assert_eq!((waited.outcome, waited.calls), (Ok(50), 2));
    assert_eq!(waited.ended_at, START.plus_ms(3010));
    for ms in [9_995, 10_000, u64::MAX] {
        let given_up = run(&config, 10_000, 5, &[later(ms), said(GOOD)]);
        assert_eq!((given_up.outcome, given_up.calls), (Err(GaveUp::Deadline), 1));
        assert_eq!(given_up.ended_at, START.plus_ms(5), "it gives up at once instead of waiting in vain");
    }
}

#[test]
fn nothing_is_asked_at_or_past_the_deadline() {
    let config = ModelConfig { timeout_ms: 400, attempts: 10, ..ModelConfig::default() };
    for within_ms in 0..3000 {
        let course = run(&config, within_ms, 500, &[said(GOOD)]);
        assert_eq!(course.outcome, Err(GaveUp::Deadline), "{within_ms}");
        assert!(course.ended_at <= START.plus_ms(within_ms.max(1)), "{within_ms}");
    }
    assert_eq!(run(&config, 0, 1, &[said(GOOD)]).calls, 0);
}

#[test]
fn the_form_is_stepped_down_until_the_endpoint_knows_it() {
    let config = ModelConfig { attempts: 1, repairs: 0, ..ModelConfig::default() };
    let unknown = || Err(CompletionError::FormUnknown);
    let course = run(&config, 60_000, 5, &[unknown(), unknown(), unknown(), said(GOOD)]);
    assert_eq!((course.outcome, course.calls), (Ok(50), 4), "a step down is no attempt");
    let forms: Vec<AnswerForm> = course.requests.iter().map(|request| request.form).collect();
    assert_eq!(forms, AnswerForm::VARIANTS);
    let is_schema_told: Vec<bool> =
        course.requests.iter().map(|request| request.messages[0].content.contains("additionalProperties")).collect();
    assert_eq!(is_schema_told, [false, false, true, true], "who is not given the schema reads it in the prompt");
    assert_eq!(course.requests[0].schema, Price.shape().to_schema(AnswerForm::Alternatives));
    let never = run(&config, 60_000, 5, &[Err(CompletionError::FormUnknown)]);
    assert_eq!((never.outcome, never.calls), (Err(GaveUp::Unavailable), 4));
}

#[test]
fn a_long_answer_is_repeated_in_part() {
    let long = json!({"act": "x".repeat(100_000), "price": 1}).to_string();
    let course = run(&ModelConfig::default(), 60_000, 5, &[said(&long), said(GOOD)]);
    assert_eq!(course.requests[1].messages[2].content.len(), REPEATED_CHARS_MAX);
}
