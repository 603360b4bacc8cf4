//! What each behaviour of the stub comes to, on a virtual clock: calls, repairs, and what is sent when.

use schemas::WireTime;
use strum::VariantArray;

use super::*;
use crate::model::stub::{StubBehaviour, StubModel, StubScript, StubValue};
use crate::model::{AnswerForm, Consultation, ConsultationStep};

/// How long the stub takes for an answer, in milliseconds.
const ANSWER_MS: u64 = 100;
/// The page that shows the table of repairs.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/models.md");

/// What a call came to.
struct Course {
    calls: u32,
    repairs: u32,
    sent: Vec<(Timestamp, Action)>,
}

fn script(shares: &[(StubBehaviour, u32)]) -> StubScript {
    let answer = [("price", 85_000_000), ("delivery_ms", 2000)];
    let answer = answer.map(|(name, value)| (name.to_owned(), StubValue::Number(value))).into();
    StubScript { shares: shares.iter().copied().collect(), answer, ..StubScript::default() }
}

/// Plays a call: the n-th answer takes `took_ms(n)`, and the agent's timer goes first, as in its loop.
fn play(
    contractor: &mut ModelContractor,
    told: &Delivery,
    model: &StubModel,
    mut took_ms: impl FnMut(u32) -> u64,
) -> Course {
    let at_once = contractor.handle(T0, told);
    let Some(question) = contractor.poll_question() else {
        let sent = at_once.into_iter().map(|action| (T0, action)).collect();
        return Course { calls: 0, repairs: 0, sent };
    };
    let (number, subject) = (question.number, question.subject.clone());
    let config = contractor.config.model.clone();
    let mut consultation = Consultation::new(question, &config, AnswerForm::Alternatives, subject.deadline, number);
    let mut now = T0;
    loop {
        match consultation.poll(now) {
            ConsultationStep::End => break,
            ConsultationStep::Wait(until) => now = until,
            ConsultationStep::Ask(request) => {
                let timeout_ms = u64::try_from(request.timeout.as_millis()).unwrap();
                let (answer, took_ms) = match (model.answer(&request), took_ms(consultation.calls())) {
                    (Err(CompletionError::TimedOut), _) => (Err(CompletionError::TimedOut), timeout_ms),
                    (_, took_ms) if took_ms >= timeout_ms => (Err(CompletionError::TimedOut), timeout_ms),
                    (answer, took_ms) => (answer, took_ms),
                };
                now = now.plus_ms(took_ms);
                consultation.handle_completion(now, answer);
            }
        }
    }
    let (calls, repairs) = (consultation.calls(), consultation.repairs());
    let mut sent = Vec::new();
    if let Some(at) = contractor.poll_timer().filter(|at| *at <= now) {
        sent.extend(contractor.handle_timer(at).into_iter().map(|action| (at, action)));
    }
    let outcome = consultation.into_outcome().unwrap();
    let answered = contractor.handle_answer(now, &subject.negotiation, number, outcome);
    sent.extend(answered.into_iter().map(|action| (now, action)));
    Course { calls, repairs, sent }
}

/// A row of the table of repairs.
fn row(behaviour: StubBehaviour) -> String {
    let model = StubModel::new(script(&[(behaviour, 1)]), 1);
    let mut contractor = contractor(json!({}));
    let Course { calls, repairs, sent } = play(&mut contractor, &call("n1", json!({})), &model, |_| ANSWER_MS);
    let [(at, action)] = &*sent else { panic!("{behaviour:?}: one answer, not {sent:?}") };
    let [(payload, delay, _)] = &*payloads(std::slice::from_ref(action)) else { panic!("{behaviour:?}: {sent:?}") };
    assert!(at.plus_ms(u64::try_from(delay.as_millis()).unwrap()) < T0.plus_ms(2000), "{behaviour:?}: {sent:?}");
    let is_fault_of_content = repairs > 0;
    assert!(!is_fault_of_content || calls <= 1 + contractor.config.model.repairs, "{behaviour:?}: {calls} calls");
    let (name, act, ms) = (<&str>::from(behaviour), payload.act(), at.since_us(T0) / 1000);
    let reason = if let Payload::Refuse(Reasoned { reason: Some(reason), .. }) = payload { reason } else { "" };
    format!("| `{name}` | {calls} | {repairs} | {} | {reason} | {ms} |", act.as_str())
}

#[test]
fn the_page_of_models_shows_what_each_behaviour_comes_to() {
    let rows: Vec<String> = StubBehaviour::VARIANTS.iter().map(|behaviour| row(*behaviour)).collect();
    let head = "| behaviour | calls | repairs | act | reason | after ms |\n|---|---|---|---|---|---|";
    let table = format!("{head}\n{}\n", rows.join("\n"));
    let page = std::fs::read_to_string(PAGE).unwrap();
    assert!(page.contains(&table), "docs/models.md should hold\n{table}");
}

#[test]
fn no_message_of_ten_thousand_negotiations_leaves_at_or_past_its_deadline() {
    use StubBehaviour::{Drop, Failed, Good, Junk, RateLimited, Slow};
    let stub = StubScript {
        slow_ms: 1500,
        ..script(&[(Good, 4), (Junk, 1), (Slow, 3), (RateLimited, 3), (Failed, 1), (Drop, 3)])
    };
    let scripted = json!({"/model/fallback": "scripted", "/model/timeout_ms": 900,
        "/contractor/script/reply_delay_ms": {"uniform": {"lo": 0, "hi": 1500}}});
    let configs = [config(json!({})), config(scripted)];
    let (mut offers, mut refusals, mut silent, mut late, mut calls_max) = (0, 0, 0, 0, 0);
    for number in 0..10_000_u64 {
        let draw = |what: &str, below: u64| retry::hash(what, number) % below;
        let model = StubModel::new(StubScript { retry_after_s: draw("wait", 3), ..stub.clone() }, number);
        let config = Arc::clone(&configs[usize::try_from(number % 2).unwrap()]);
        let mut contractor = ModelContractor::try_new(&bob(), config, number, 99).unwrap();
        let reply_by = T0.plus_ms(300 + draw("reply_by", 3000));
        let told = call(&number.to_string(), json!({"reply_by": WireTime(reply_by)}));
        let course = play(&mut contractor, &told, &model, |call| draw(&format!("took{call}"), 1200));
        calls_max = course.calls.max(calls_max);
        let said: Vec<(Timestamp, Payload)> = course
            .sent
            .iter()
            .flat_map(|(at, action)| payloads(std::slice::from_ref(action)).into_iter().map(move |sent| (*at, sent)))
            .map(|(at, (payload, delay, _))| (at.plus_ms(u64::try_from(delay.as_millis()).unwrap()), payload))
            .collect();
        assert!(said.len() <= 1, "one call, one answer: {said:?}");
        late += said.iter().filter(|(at, _)| *at >= reply_by).count();
        match said.first() {
            Some((_, Payload::Offer(_))) => offers += 1,
            Some(_) => refusals += 1,
            None => silent += 1,
        }
    }
    assert_eq!(late, 0, "of {offers} offers and {refusals} refusals; {silent} calls got no answer");
    assert!(offers > 2000 && refusals > 1000 && silent > 0, "{offers} offers, {refusals} refusals, {silent} silences");
    // Three attempts and two repairs.
    assert!(calls_max <= 5, "{calls_max} calls of one question");
}
