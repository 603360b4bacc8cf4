mod prompts;

use schemas::delivery::{Disposition, Receipt};
use schemas::panel::RATING_MAX;
use schemas::{Act, MsgId};
use serde_json::{Value, json};
use strum::VariantArray as _;

use super::*;
use crate::model::stub::{StubBehaviour, StubScript};
use crate::model::{
    AnswerForm, Completion, CompletionError, CompletionRequest, Consultation, ModelConfig, Question, StubModel,
};
use crate::strategy::{SendOutcome, Way};

const T0: Timestamp = Timestamp::from_ms(1_760_000_000_000);
const MARKER_SEED: u64 = 99;

#[test]
fn what_a_model_says_is_an_answer_that_the_exchange_takes() {
    let first = json!({"round": 1, "answer": options(&["A", "B"])});
    let later = json!({"round": 2, "answer": options(&["A", "B"]), "peers": [{"answer": "A"}, {"answer": null}], "rate": "peers"});
    let rating = json!({"1": 5, "2": 1});
    for (ask, said, expected) in [
        (&first, json!({"text": " it is odd ", "answer": "B"}), json!({"answer": "B", "text": "it is odd"})),
        (&first, json!({"text": "", "answer": null}), json!({"answer": null})),
        (&later, json!({"text": "", "answer": "A", "ratings": rating}), json!({"answer": "A", "ratings": [5, 1]})),
        (
            &json!({"rank": {"keep": 2}, "peers": [{"answer": "A"}, {"answer": "B"}, {"answer": "A"}]}),
            json!({"order": {"1": 3, "2": 3}}),
            json!({"order": [3]}),
        ),
        (
            &json!({"review": true, "peers": [{"answer": "A"}, {"answer": "B"}], "rate": "peers"}),
            json!({"reviews": {"1": "wrong", "2": ""}, "ratings": {"1": 1, "2": 4}}),
            json!({"reviews": ["wrong", null], "ratings": [1, 4]}),
        ),
        (
            &json!({"review": true, "peers": [{"answer": "A"}]}),
            json!({"reviews": {"1": "fine"}}),
            json!({"reviews": ["fine"]}),
        ),
    ] {
        let question = question(ask);
        assert!(question.shape().check(&said).is_ok(), "{said}");
        let answer = question.judge(&said).unwrap();
        assert_eq!(document(&answer), with_round(ask, expected), "{said}");
    }
}

#[test]
fn a_number_that_no_double_keeps_is_no_answer() {
    let question = question(&json!({"answer": {"kind": "number"}}));
    for (said, found) in
        [("-5", Some("-5")), ("0.25", Some("0.25")), ("0.12345678901234567", None), ("12345678901234567890123", None)]
    {
        let number: Value = serde_json::from_str(said).unwrap();
        let answer = question.salvage(&json!({"text": "", "answer": number}));
        assert_eq!(answer.and_then(|answer| answer.answer.flatten()).as_deref(), found, "{said}");
    }
}

#[test]
fn the_answer_is_found_by_its_kind_and_what_is_none_is_repaired() {
    let text = |kind: Value, answer: &str| {
        let said = json!({"text": "", "answer": answer});
        question(&json!({"answer": kind})).judge(&said).map(|answer| answer.answer.flatten().unwrap())
    };
    let sentence = options(&["the first of May", "2", "none of these"]);
    for (kind, said, expected) in [
        (options(&["A", "B"]), "I take (b)", Ok("B")),
        (options(&["A", "B"]), "neither", Err("one of `options`")),
        // Options of many words have numbers.
        (sentence.clone(), "2", Ok("2")),
        (sentence.clone(), "1", Ok("the first of May")),
        (sentence, "the first of May", Err("the number of one of the quoted options")),
        (json!({"kind": "number"}), "about 1,234.5", Ok("1,234.5")),
        (json!({"kind": "number"}), "many", Err("one number")),
        (json!({"kind": "math"}), "The answer is $\\frac12$.", Ok("\\frac12")),
        (json!({"kind": "exact"}), " 7 May ", Ok("7 May")),
        (json!({"kind": "exact"}), " ", Err("a text that is not empty, or null")),
        (json!({"kind": "set", "of": "exact"}), "a, b", Ok("a, b")),
        (json!({"kind": "json"}), "{\"a\":1}", Ok("{\"a\":1}")),
        (json!({"kind": "bleu"}), "return a", Ok("return a")),
    ] {
        let found = text(kind.clone(), said).map_err(|misfit| (misfit.pointer, misfit.expected));
        let expected = expected.map(str::to_owned).map_err(|expected| ("/answer".to_owned(), expected.to_owned()));
        assert_eq!(found, expected, "{kind} {said}");
    }
}

#[test]
fn prose_counts_where_it_says_all_that_was_asked_for_and_in_the_end_where_it_says_a_part() {
    let choice = json!({"round": 2, "answer": options(&["A", "B"]), "peers": [{"answer": "A"}], "rate": "peers"});
    let number = json!({"round": 2, "answer": {"kind": "number"}, "peers": [{"answer": "9"}], "rate": "peers"});
    let first = json!({"answer": options(&["A", "B"])});
    let ranker = json!({"rank": {"keep": 1}, "peers": [{"answer": "A"}, {"answer": "B"}]});
    let reviewer = json!({"review": true, "peers": [{"answer": "A"}, {"answer": "B"}], "rate": "peers"});
    for (ask, said, at_once, at_last) in [
        (&first, "So (B).", Some(json!({"answer": "B"})), Some(json!({"answer": "B"}))),
        (&first, "Sure, with pleasure!", None, None),
        (
            &choice,
            "(B) [[4]]",
            Some(json!({"answer": "B", "ratings": [4]})),
            Some(json!({"answer": "B", "ratings": [4]})),
        ),
        (&choice, "(B) [[4, 4]]", None, Some(json!({"answer": "B"}))),
        (&number, "It is 12. [[4]]", None, Some(json!({"answer": "12", "ratings": [4]}))),
        (&json!({"answer": {"kind": "exact"}}), "well", None, None),
        (&ranker, "The best is [2]", Some(json!({"order": [2]})), Some(json!({"order": [2]}))),
        (&ranker, "The best is 2", None, None),
        (&reviewer, "[[5, 1]]", None, Some(json!({"reviews": [null, null], "ratings": [5, 1]}))),
        (&reviewer, "fine", None, None),
    ] {
        let read = |is_last: bool| {
            let answer = question(ask).read(said, is_last)?;
            Some(document(&PanelAnswer { text: None, ..answer }))
        };
        let expected = |answer: Option<Value>| answer.map(|answer| with_round(ask, answer));
        assert_eq!((read(false), read(true)), (expected(at_once), expected(at_last)), "{said}");
    }
}

#[test]
fn an_answer_without_its_form_counts_after_the_repairs_without_ratings_where_they_are_unclear() {
    let ask = json!({"round": 2, "answer": options(&["A", "B"]), "peers": [{"answer": "A"}, {"answer": "B"}], "rate": "peers"});
    let salvage = |said: Value| question(&ask).salvage(&said).map(|answer| document(&answer));
    for (said, ratings) in [
        (json!({"answer": "(a)", "ratings": [5, 2]}), Some([5, 2])),
        (json!({"answer": "(a)", "ratings": "[[9, 2]]"}), Some([5, 2])),
        (json!({"answer": "(a)", "ratings": {"1": 5, "2": 2}, "more": 1}), Some([5, 2])),
        (json!({"answer": "(a)", "ratings": {"1": 5}}), None),
        (json!({"answer": "(a)", "ratings": [5]}), None),
        (json!({"answer": "(a)"}), None),
    ] {
        let mut expected = json!({"answer": "A", "round": 2});
        if let Some(ratings) = ratings {
            expected["ratings"] = json!(ratings);
        }
        assert_eq!(salvage(said.clone()), Some(expected), "{said}");
    }
    for said in [json!({"answer": "C"}), json!({"answer": null}), json!([]), json!("(a)")] {
        assert_eq!(salvage(said.clone()), None, "{said}");
    }
}

#[test]
fn texts_are_cut_until_the_exchange_takes_them_and_an_answer_is_not() {
    let said = |text: &str, answer: &str| {
        let said = json!({"text": text, "answer": answer});
        question(&json!({"answer": {"kind": "exact"}})).judge(&said)
    };
    let control = "\u{1}".repeat(2000);
    let answer = said(&format!("why {control}"), "7").unwrap();
    assert_eq!(answer.oversized(), None);
    assert!(answer.text.unwrap().starts_with("why \u{1}"));
    assert_eq!(said("", &format!("7{control}")).unwrap_err().pointer, "/answer");
    let of = 31;
    let review = json!({"review": true, "peers": vec![json!({"answer": "A"}); of]});
    let reviews: serde_json::Map<String, Value> =
        (1..=of).map(|number| (number.to_string(), json!("é".repeat(600)))).collect();
    let answer = question(&review).judge(&json!({"reviews": reviews})).unwrap();
    assert_eq!((answer.oversized(), answer.reviews.unwrap().iter().flatten().count()), (None, of));
}

#[test]
fn a_question_leaves_once_and_its_answer_goes_out_with_what_it_cost() {
    let mut panelist = panelist();
    let asked = delivery(1, json!({"answer": options(&["A", "B"])}));
    assert_eq!(panelist.handle(T0, &asked), [Action::Defer]);
    let question = panelist.poll_question().unwrap();
    assert_eq!((question.subject.asked_at, question.subject.deadline), (T0, T0.plus_ms(9_500)));
    // Told anew while the model thinks: it is asked once.
    assert_eq!(panelist.handle(T0, &delivery(2, json!({"answer": options(&["A", "B"])}))), [Action::Defer]);
    assert!(panelist.poll_question().is_none());
    let cost = ConsultationCost { calls: 2, usage: crate::model::TokenUsage { input: 30, output: 4 } };
    let answer = question.question.judge(&json!({"text": "", "answer": "B"})).map_err(|_| GaveUp::Output);
    let panel = asked.envelope.negotiation.clone();
    let sent = panelist.handle_answer(T0.plus_ms(50), &panel, question.number, (answer.clone(), cost));
    let usage = json!({"calls": 2, "prompt_tokens": 30, "completion_tokens": 4});
    assert_eq!(said(&sent), json!({"act": "answer", "round": 1, "answer": "B", "usage": usage}));
    // And after it has answered.
    assert_eq!(said(&panelist.handle(T0, &asked)), said(&sent));
    assert!(panelist.handle_answer(T0, &panel, question.number, (answer, cost)).is_empty());
    let counts = ModelCounts { questions: 1, answers: 1, fallbacks: 0, stale: 1 };
    assert_eq!((panelist.counts(), panelist.poll_question().is_none()), (counts, true));
}

#[test]
fn without_a_usable_answer_a_seat_has_no_opinion_and_a_ranker_or_reviewer_leaves() {
    let no_opinion = json!({"act": "answer", "round": 1, "answer": null});
    let leaves = |code: &str| json!({"act": "refuse", "reason": code});
    let peers = json!([{"answer": "A"}, {"answer": "B"}]);
    let seat = json!({"answer": options(&["A", "B"])});
    let ranker = json!({"rank": {"keep": 1}, "peers": peers});
    let reviewer = json!({"review": true, "peers": peers, "rate": "peers"});
    for (ask, reason, expected) in [
        (&seat, GaveUp::Output, no_opinion.clone()),
        (&seat, GaveUp::Deadline, no_opinion.clone()),
        (&seat, GaveUp::Unavailable, no_opinion),
        // It could answer no later ask either.
        (&seat, GaveUp::Budget, leaves("model_budget")),
        (&ranker, GaveUp::Output, leaves("model_output")),
        (&ranker, GaveUp::Deadline, leaves("model_deadline")),
        (&reviewer, GaveUp::Unavailable, leaves("model_unavailable")),
    ] {
        let mut panelist = panelist();
        let asked = delivery(1, ask.clone());
        panelist.handle(T0, &asked);
        let number = panelist.poll_question().unwrap().number;
        let given_up = (Err(reason), ConsultationCost::default());
        let sent = panelist.handle_answer(T0, &asked.envelope.negotiation, number, given_up);
        assert_eq!(said(&sent), expected, "{ask} {reason:?}");
        assert_eq!(panelist.counts().fallbacks, 1);
    }
}

#[test]
fn nothing_is_asked_of_a_model_without_time_and_nothing_is_said_past_the_deadline() {
    let mut panelist = panelist();
    let asked = delivery(1, json!({}));
    let late = panelist.handle(T0.plus_ms(10_000), &asked);
    assert_eq!(said(&late), json!({"act": "answer", "round": 1, "answer": null}));
    assert!(panelist.poll_question().is_none());
    let next = delivery(2, json!({"round": 2}));
    panelist.handle(T0, &next);
    let number = panelist.poll_question().unwrap().number;
    let answer = (Ok(PanelAnswer::default()), ConsultationCost::default());
    assert!(panelist.handle_answer(T0.plus_ms(10_001), &next.envelope.negotiation, number, answer).is_empty());
}

#[test]
fn a_later_ask_takes_the_place_of_one_that_waits_and_the_end_of_the_panel_forgets_both() {
    let mut panelist = panelist();
    panelist.handle(T0, &delivery(1, json!({"round": 1})));
    let first = panelist.poll_question().unwrap();
    let second = delivery(2, json!({"round": 2}));
    panelist.handle(T0, &second);
    let number = panelist.poll_question().unwrap().number;
    let panel = second.envelope.negotiation;
    let answer = || (Ok(PanelAnswer::default()), ConsultationCost::default());
    assert!(panelist.handle_answer(T0, &panel, first.number, answer()).is_empty());
    panelist.handle(T0, &told(3, json!({"act": "closed", "outcome": "cancelled", "digest": "0".repeat(64)})));
    assert!(panelist.handle_answer(T0, &panel, number, answer()).is_empty());
    assert_eq!(panelist.counts().stale, 2);
}

#[test]
fn a_refused_answer_is_put_to_the_model_again_with_the_reason_at_most_twice() {
    let mut panelist = panelist();
    let asked = delivery(1, json!({"answer": {"kind": "number"}}));
    let panel = asked.envelope.negotiation.clone();
    panelist.handle(T0, &asked);
    let answer = |text: &str| {
        let answer = PanelAnswer { round: 1, answer: Some(Some(text.to_owned())), ..PanelAnswer::default() };
        (Ok(answer), ConsultationCost::default())
    };
    let number = panelist.poll_question().unwrap().number;
    panelist.handle_answer(T0, &panel, number, answer("1/0"));
    let refused =
        json!({"act": "not_understood", "reason": "bad_answer", "pointer": "/payload/answer", "expected": []});
    for (corrected, n) in [("2/0", 2), ("3/1", 3)] {
        assert!(panelist.handle(T0, &told(n, refused.clone())).is_empty());
        let again = panelist.poll_question().unwrap();
        let messages = again.question.messages();
        assert!(messages[0].content.contains("`refused` says why"), "{}", messages[0].content);
        assert!(
            messages[1].content.contains("\"refused\":\"bad_answer at /payload/answer\""),
            "{}",
            messages[1].content
        );
        let sent = panelist.handle_answer(T0, &panel, again.number, answer(corrected));
        assert_eq!(said(&sent), json!({"act": "answer", "round": 1, "answer": corrected}));
    }
    assert!(panelist.handle(T0, &told(4, refused)).is_empty());
    assert!(panelist.poll_question().is_none());
    // A gateway's refusal is one as well, of another panel.
    let other = Delivery {
        envelope: schemas::delivery::DeliveryEnvelope { negotiation: id("n2"), ..asked.envelope.clone() },
        ..asked
    };
    panelist.handle(T0, &other);
    let number = panelist.poll_question().unwrap().number;
    panelist.handle_answer(T0, &id("n2"), number, answer("1"));
    let refusal = schemas::Refusal::new(schemas::Code::OutOfRange, "too long").at("/payload/text");
    let msg_id = MsgId::try_new("m1").unwrap();
    let outcome = SendOutcome::Refused(refusal);
    let sent = Sent { negotiation: id("n2"), msg_id: msg_id.clone(), act: Act::Answer, outcome, way: Way::default() };
    assert!(panelist.handle_sent(T0, &sent).is_empty());
    assert!(panelist.poll_question().is_some());
    // What counts is not corrected.
    let receipt = serde_json::to_value(Notification::Ack(Receipt::new(msg_id, Disposition::Ok))).unwrap();
    panelist.handle(T0, &told(9, receipt));
    assert!(panelist.poll_question().is_none());
}

/// Whatever a model does, an ask comes to an answer that has its form, or to a reason why there is none.
#[test]
fn every_behaviour_of_the_stub_comes_to_an_answer_or_to_none() {
    let shown = json!([{"answer": "A", "text": "so"}, {"answer": null}, {"answer": "B"}, {"answer": "C"}]);
    let asks = [
        json!({"answer": options(&["A", "B", "C"])}),
        json!({"round": 2, "answer": options(&["A", "B", "C"]), "peers": shown, "rate": "peers"}),
        json!({"round": 2, "answer": {"kind": "exact"}, "peers": shown, "rate": "peers"}),
        json!({"rank": {"keep": 2}, "peers": shown}),
        json!({"review": true, "peers": shown, "rate": "peers"}),
    ];
    let (mut usable, mut all) = (0, 0);
    let played = StubBehaviour::VARIANTS.iter().flat_map(|behaviour| (0..8).map(move |seed| (behaviour, seed)));
    for (behaviour, seed) in played {
        let script = StubScript { shares: [(*behaviour, 1)].into(), ..StubScript::default() };
        let model = StubModel::new(script, seed);
        for ask in &asks {
            all += 1;
            match consulted(ask, |request| model.answer(request)) {
                Ok(answer) => {
                    usable += 1;
                    check(ask, &answer);
                }
                Err(GaveUp::Output | GaveUp::Unavailable | GaveUp::Deadline) => {}
                Err(GaveUp::Budget) => panic!("{behaviour:?}: there is no limit here"),
            }
        }
    }
    // Half of the behaviours are answers of no use.
    assert!(usable * 5 > all * 2, "{usable} of {all}");
}

#[test]
fn prose_that_says_everything_takes_one_call_and_what_says_a_part_is_repaired_first() {
    let ask = json!({"round": 2, "answer": options(&["A", "B"]), "peers": [{"answer": "A"}], "rate": "peers"});
    for (said, ratings, calls) in [("So (B). [[2]]", Some(vec![2]), 1), ("So (B).", None, 3)] {
        let asked = std::cell::Cell::new(0);
        let answer = consulted(&ask, |_| {
            asked.set(asked.get() + 1);
            Ok(Completion { content: format!("<think>(A)?</think>{said}"), ..Completion::default() })
        });
        let answer = answer.unwrap();
        assert_eq!(
            (answer.answer, answer.ratings, asked.get()),
            (Some(Some("B".to_owned())), ratings, calls),
            "{said}"
        );
    }
    // What was cut off may have been about to say something else.
    let cut = consulted(&ask, |_| {
        Ok(Completion { content: "(B) is".to_owned(), is_truncated: true, ..Completion::default() })
    });
    assert_eq!(cut, Err(GaveUp::Output));
}

/// What the exchange wants of an answer to an ask.
fn check(ask: &Value, answer: &PanelAnswer) {
    let ask = ask_of(ask);
    let of = ask.peers.as_ref().map_or(0, Vec::len);
    assert_eq!((answer.round, answer.oversized()), (ask.round, None));
    let is_rating = |rating: &u32| (1..=RATING_MAX).contains(rating);
    assert!(answer.ratings.as_ref().is_none_or(|ratings| ratings.len() == of && ratings.iter().all(is_rating)));
    match (&answer.answer, &answer.order, &answer.reviews) {
        (Some(said), None, None) => {
            let options = ["A", "B", "C"];
            let is_choice = matches!(ask.answer.as_deref(), Some(schemas::panel::AnswerKind::Choice { .. }));
            assert!(!is_choice || said.as_ref().is_none_or(|said| options.contains(&said.as_str())), "{said:?}");
        }
        (None, Some(order), None) => {
            let mut places = order.clone();
            places.sort_unstable();
            places.dedup();
            assert!(!order.is_empty() && places.len() == order.len() && order.len() <= 2, "{order:?}");
            assert!(order.iter().all(|place| (1..=of).contains(&(*place as usize))), "{order:?}");
        }
        (None, None, Some(reviews)) => assert_eq!(reviews.len(), of),
        _ => panic!("exactly one of three is said: {answer:?}"),
    }
}

#[test]
fn what_the_schema_admits_is_an_answer_to_the_ask() {
    let peers = json!([{"answer": "A"}, {"answer": "B"}, {"answer": null}]);
    for ask in [
        json!({"answer": options(&["A", "B"])}),
        json!({"answer": {"kind": "exact"}, "peers": peers, "rate": "peers"}),
        json!({"rank": {"keep": 2}, "peers": peers}),
        json!({"review": true, "peers": peers, "rate": "peers"}),
    ] {
        let mut opinions = 0;
        for (said, judged) in crate::model::shape::drawn::drawn(&question(&ask), 10_000) {
            opinions +=
                u32::from(judged.unwrap_or_else(|misfit| panic!("{said}: {misfit:?}")).answer.flatten().is_some());
        }
        assert!(ask.get("answer").is_none() || (4000..6000).contains(&opinions), "{opinions} of 10000 have one");
    }
}

fn consulted(
    ask: &Value,
    answer: impl Fn(&CompletionRequest) -> Result<Completion, CompletionError>,
) -> Result<PanelAnswer, GaveUp> {
    let config = ModelConfig::default();
    let consultation = Consultation::new(question(ask), &config, AnswerForm::Alternatives, T0.plus_ms(9_500), 1);
    consultation.run(T0, |_, request| Some((answer(request), 100_000)))
}

fn panelist() -> ModelPanelist {
    ModelPanelist::new(AgentId::try_new("bob").unwrap(), Arc::default(), MARKER_SEED)
}

fn id(own: &str) -> NegotiationId {
    NegotiationId::try_new(&format!("alice~{own}")).unwrap()
}

fn options(options: &[&str]) -> Value {
    json!({"kind": "choice", "options": options})
}

/// An ask of ten seconds with these members.
fn ask_document(changes: &Value) -> Value {
    let mut ask = json!({"act": "ask", "round": 1, "task": "Which?", "answer_by": "2025-10-09T08:53:30Z", "ends_by": "2025-10-09T08:55:00Z"});
    ask.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    ask
}

fn ask_of(changes: &Value) -> Ask {
    let Notification::Ask(ask) = serde_json::from_value(ask_document(changes)).unwrap() else { panic!("it is an ask") };
    *ask
}

fn question(changes: &Value) -> PanelQuestion {
    PanelQuestion::new(&id("n1"), &ask_of(changes), None, "Be brief.", MARKER_SEED)
}

fn delivery(n: u8, changes: Value) -> Delivery {
    told(n, ask_document(&changes))
}

fn told(n: u8, payload: Value) -> Delivery {
    let envelope = json!({"msg_id": format!("{n:032x}"), "ts": "2025-10-09T08:53:20Z", "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": id("n1")});
    serde_json::from_value(json!({"envelope": envelope, "payload": payload})).unwrap()
}

fn document(answer: &PanelAnswer) -> Value {
    serde_json::to_value(answer).unwrap()
}

fn with_round(ask: &Value, mut answer: Value) -> Value {
    answer["round"] = ask.get("round").cloned().unwrap_or_else(|| json!(1));
    answer
}

/// The payload of the one message among actions.
fn said(actions: &[Action]) -> Value {
    match actions {
        [Action::Send(outgoing)] => serde_json::to_value(&outgoing.payload).unwrap(),
        other => panic!("one message is expected: {other:?}"),
    }
}
