//! When documents are looked at, negotiated and given a routine, call by call. The schedules of the package `agora-protocol`
//! are those that its own client and server show.

use agora::DocumentHash;
use agora::schedule::{CallStep, InitiatorMemory, Means, ResponderMemory, ResponseStep, Thresholds};
use agora::suitability::Suitability;

const TASK: &str = "weather";
const BOB: &str = "https://bob.example";
const CAROL: &str = "https://carol.example";

fn hash(name: &str) -> DocumentHash {
    DocumentHash::of_bytes(name.as_bytes())
}

/// Makes a call. Checks find what `suits`, a negotiation comes to `agreed`, routines are written. Answers every step, the
/// last one included.
fn call(memory: &mut InitiatorMemory, to: &str, suits: &[&str], agreed: Option<&str>) -> Vec<CallStep> {
    let mut call = memory.begin(TASK, to);
    let mut steps = Vec::new();
    loop {
        let step = memory.step(&mut call);
        assert!(!steps.contains(&step), "{step:?} twice");
        steps.push(step);
        match step {
            CallStep::Check(document) => {
                let is_suitable = suits.iter().any(|name| hash(name) == document);
                let verdict = if is_suitable { Suitability::Adequate } else { Suitability::Inadequate };
                memory.handle_check(&mut call, document, verdict);
            }
            CallStep::Negotiate => memory.handle_agreement(&mut call, agreed.map(hash)),
            CallStep::Write(_) => memory.handle_routine(&mut call, true),
            CallStep::Send { .. } => return steps,
        }
    }
}

fn language() -> CallStep {
    CallStep::Send { document: None, means: Means::Model }
}

fn model(name: &str) -> CallStep {
    CallStep::Send { document: Some(hash(name)), means: Means::Model }
}

fn routine(name: &str) -> CallStep {
    CallStep::Send { document: Some(hash(name)), means: Means::Routine }
}

#[test]
fn the_initiator_keeps_the_schedule_of_the_python_package_call_by_call() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for number in 1..=19 {
        let expected = match number {
            1..=10 => vec![language()],
            11 => vec![CallStep::Negotiate, model("w")],
            12..=15 => vec![model("w")],
            16 => vec![CallStep::Write(hash("w")), routine("w")],
            _ => vec![routine("w")],
        };
        assert_eq!(call(&mut memory, BOB, &[], Some("w")), expected, "call {number}");
    }
}

#[test]
fn the_initiator_keeps_the_schedule_of_the_paper_call_by_call() {
    let mut memory = InitiatorMemory::new(Thresholds::PAPER);
    for number in 1..=8 {
        let expected = match number {
            1..=5 => vec![language()],
            6 => vec![CallStep::Negotiate, CallStep::Write(hash("w")), routine("w")],
            _ => vec![routine("w")],
        };
        assert_eq!(call(&mut memory, BOB, &[], Some("w")), expected, "call {number}");
    }
}

#[test]
fn a_document_that_is_known_is_checked_from_the_threshold_on_and_once() {
    for (thresholds, first) in [(Thresholds::PYPI, 6), (Thresholds::PAPER, 4)] {
        let mut memory = InitiatorMemory::new(thresholds);
        assert!(memory.learn(hash("odd")) && memory.learn(hash("w")));
        for number in 1..first {
            assert_eq!(call(&mut memory, BOB, &["w"], None), [language()], "call {number}");
        }
        let steps = call(&mut memory, BOB, &["w"], None);
        assert_eq!(steps[..2], [CallStep::Check(hash("odd")), CallStep::Check(hash("w"))]);
        assert!(
            matches!(steps.last(), Some(CallStep::Send { document: Some(document), .. }) if *document == hash("w"))
        );
        let next = call(&mut memory, BOB, &["w"], None);
        assert!(!next.iter().any(|step| matches!(step, CallStep::Check(_))), "{next:?}");
        // The verdict holds with everybody: a document outlives the counterpart it was found with, from the first call on.
        let elsewhere = call(&mut memory, CAROL, &[], None);
        assert!(matches!(elsewhere.last(), Some(CallStep::Send { document: Some(_), .. })));
    }
}

#[test]
fn counts_are_of_one_task_with_one_counterpart() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for _ in 0..10 {
        assert_eq!(call(&mut memory, BOB, &[], Some("w")), [language()]);
        assert_eq!(call(&mut memory, CAROL, &[], Some("w")), [language()]);
    }
    let mut other = memory.begin("courier", BOB);
    assert_eq!(memory.step(&mut other), language());
    assert_eq!(call(&mut memory, BOB, &[], Some("w")), [CallStep::Negotiate, model("w")]);
}

#[test]
fn a_document_that_was_negotiated_is_checked_before_it_is_used_with_another() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for _ in 0..11 {
        call(&mut memory, BOB, &[], Some("w"));
    }
    assert_eq!(memory.suitability(hash("w"), TASK, BOB), Suitability::Adequate);
    assert_eq!(memory.suitability(hash("w"), TASK, CAROL), Suitability::Unknown);
    for _ in 1..=5 {
        assert_eq!(call(&mut memory, CAROL, &["w"], None), [language()]);
    }
    assert_eq!(call(&mut memory, CAROL, &["w"], None), [CallStep::Check(hash("w")), model("w")]);
    assert_eq!(call(&mut memory, CAROL, &["w"], None), [model("w")]);
}

#[test]
fn a_negotiation_that_comes_to_nothing_is_tried_again_in_the_next_call() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for _ in 0..10 {
        call(&mut memory, BOB, &[], None);
    }
    for _ in 0..2 {
        assert_eq!(call(&mut memory, BOB, &[], None), [CallStep::Negotiate, language()]);
    }
    assert_eq!(call(&mut memory, BOB, &[], Some("w")), [CallStep::Negotiate, model("w")]);
}

#[test]
fn a_routine_that_could_not_be_written_leaves_the_call_to_the_model() {
    let mut memory = InitiatorMemory::new(Thresholds::PAPER);
    memory.learn(hash("w"));
    memory.set_suitability(hash("w"), TASK, Suitability::Adequate);
    let mut first = memory.begin(TASK, BOB);
    assert_eq!(memory.step(&mut first), CallStep::Write(hash("w")));
    memory.handle_routine(&mut first, false);
    assert_eq!(memory.step(&mut first), model("w"));
    assert_eq!(call(&mut memory, BOB, &[], None), [CallStep::Write(hash("w")), routine("w")]);
}

#[test]
fn of_documents_that_suit_the_counterparts_own_come_first_then_those_with_a_routine() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for name in ["first", "routine", "common"] {
        memory.learn(hash(name));
        memory.set_suitability(hash(name), TASK, Suitability::Adequate);
    }
    assert_eq!(call(&mut memory, BOB, &[], None), [model("first")], "known first");
    let mut with_routine = memory.begin("other", BOB);
    memory.handle_agreement(&mut with_routine, Some(hash("routine")));
    memory.handle_routine(&mut with_routine, true);
    assert_eq!(call(&mut memory, BOB, &[], None), [routine("routine")]);
    memory.handle_supported(BOB, [hash("common"), hash("unheard")]);
    assert_eq!(call(&mut memory, BOB, &[], None), [model("common")]);
    assert_eq!(call(&mut memory, CAROL, &[], None), [routine("routine")], "of bob's nothing follows for carol");
}

#[test]
fn what_probably_suits_is_checked_first_and_what_probably_does_not_never() {
    let mut memory = InitiatorMemory::new(Thresholds::PYPI);
    for name in ["unknown", "odd", "likely", "own"] {
        memory.learn(hash(name));
    }
    memory.set_suitability(hash("odd"), TASK, Suitability::ProbablyInadequate);
    memory.set_suitability(hash("likely"), TASK, Suitability::ProbablyAdequate);
    memory.handle_supported(BOB, [hash("own")]);
    for _ in 0..5 {
        call(&mut memory, BOB, &[], None);
    }
    let checks = ["own", "likely", "unknown"].map(|name| CallStep::Check(hash(name)));
    let steps = call(&mut memory, BOB, &[], None);
    assert_eq!(steps, [&checks[..], &[language()]].concat());
}

/// A request under a document; the check ends with `verdict`, routines are written.
fn served(memory: &mut ResponderMemory, name: &str, verdict: Suitability) -> Vec<ResponseStep> {
    let mut steps = vec![memory.handle_request(hash(name))];
    while let Some(step) = steps.last() {
        let next = match step {
            ResponseStep::Check => memory.handle_check(hash(name), verdict),
            ResponseStep::Write => memory.handle_routine(hash(name), true),
            ResponseStep::Reject | ResponseStep::Answer(_) => break,
        };
        steps.push(next);
    }
    steps
}

#[test]
fn the_responder_keeps_the_schedule_of_the_python_package_use_by_use() {
    let mut memory = ResponderMemory::new(Thresholds::PYPI);
    let (by_model, by_routine) = (ResponseStep::Answer(Means::Model), ResponseStep::Answer(Means::Routine));
    for number in 1..=8 {
        let expected = match number {
            1 => vec![ResponseStep::Check, by_model],
            2..=4 => vec![by_model],
            5 => vec![ResponseStep::Write, by_routine],
            _ => vec![by_routine],
        };
        assert_eq!(served(&mut memory, "w", Suitability::Adequate), expected, "use {number}");
    }
}

#[test]
fn a_document_that_does_not_serve_is_checked_once_and_rejected_from_then_on() {
    let mut memory = ResponderMemory::new(Thresholds::PYPI);
    let rejected = [ResponseStep::Check, ResponseStep::Reject];
    assert_eq!(served(&mut memory, "odd", Suitability::Inadequate), rejected);
    for _ in 0..6 {
        assert_eq!(served(&mut memory, "odd", Suitability::Adequate), rejected[1..]);
    }
}

#[test]
fn the_papers_responder_asks_for_a_negotiation_at_its_tenth_conversation_with_anybody_and_counts_anew() {
    let mut memory = ResponderMemory::new(Thresholds::PAPER);
    for _ in 0..2 {
        for number in 1..=10 {
            assert!(!memory.asks_for_negotiation(), "before conversation {number}");
            memory.handle_language();
        }
        assert!(memory.asks_for_negotiation());
        memory.handle_negotiation();
    }
    let mut package = ResponderMemory::new(Thresholds::PYPI);
    for _ in 0..100 {
        package.handle_language();
    }
    assert!(!package.asks_for_negotiation());
}

#[test]
fn a_verdict_stands_in_the_last_ten_characters_of_a_reply() {
    for (reply, expected) in [
        ("Sure. YES", Suitability::Adequate),
        ("yes", Suitability::Adequate),
        ("  It is: Yes.  \n", Suitability::Adequate),
        ("yes, but then I thought about it: NO", Suitability::Inadequate),
        ("YES 12345678", Suitability::Inadequate),
        ("YES 1234567", Suitability::Inadequate),
        ("YES 123456", Suitability::Adequate),
        ("", Suitability::Inadequate),
        ("ÄÖÜ: ja, 温度温度温度温度温度温度", Suitability::Inadequate),
    ] {
        assert_eq!(Suitability::of_verdict(reply), expected, "{reply}");
    }
}

#[test]
fn a_counterpart_that_asks_for_a_document_gets_one_before_the_thresholds_are_reached() {
    let mut memory = InitiatorMemory::new(Thresholds::PAPER);
    let mut first = memory.begin(TASK, BOB);
    memory.handle_asked(&mut first);
    assert_eq!(memory.step(&mut first), CallStep::Negotiate, "nothing is known");
    memory.handle_agreement(&mut first, None);
    assert_eq!(memory.step(&mut first), language());
    memory.learn(hash("w"));
    assert_eq!(call(&mut memory, BOB, &["w"], None), [language()], "nobody asked in this call");
    let mut third = memory.begin(TASK, BOB);
    memory.handle_asked(&mut third);
    assert_eq!(memory.step(&mut third), CallStep::Check(hash("w")), "what is known comes first");
}

#[test]
fn a_document_serves_with_another_responder_without_a_negotiation() {
    let mut alice = InitiatorMemory::new(Thresholds::PYPI);
    for _ in 0..17 {
        call(&mut alice, BOB, &[], Some("w"));
    }
    // Bob is gone. Carol's memory is of another stack: it knows nothing of the document.
    let mut carol = ResponderMemory::new(Thresholds::PAPER);
    for number in 1..=20 {
        let steps = call(&mut alice, CAROL, &["w"], None);
        assert!(!steps.contains(&CallStep::Negotiate), "call {number}: {steps:?}");
        let expected = match number {
            1..=5 => vec![language()],
            6 => vec![CallStep::Check(hash("w")), routine("w")],
            _ => vec![routine("w")],
        };
        assert_eq!(steps, expected, "call {number}");
        if number > 5 {
            let last = served(&mut carol, "w", Suitability::Adequate).pop();
            assert_eq!(last, Some(ResponseStep::Answer(Means::Routine)), "call {number}");
        }
    }
}

#[test]
fn of_two_documents_for_one_task_the_initiators_choice_wins_and_both_keep_working() {
    let (mut alice, mut dora) = (InitiatorMemory::new(Thresholds::PAPER), InitiatorMemory::new(Thresholds::PAPER));
    let mut bob = ResponderMemory::new(Thresholds::PAPER);
    for _ in 0..6 {
        call(&mut alice, BOB, &[], Some("brief"));
        call(&mut dora, BOB, &[], Some("long"));
    }
    for (initiator, other) in [(&mut alice, "long"), (&mut dora, "brief")] {
        initiator.handle_supported(BOB, [hash("brief"), hash("long")]);
        initiator.set_suitability(hash(other), TASK, Suitability::Adequate);
    }
    for _ in 0..3 {
        for (initiator, own) in [(&mut alice, "brief"), (&mut dora, "long")] {
            assert_eq!(call(initiator, BOB, &[], None), [routine(own)], "each keeps to the one it has a routine for");
            let answered = served(&mut bob, own, Suitability::Adequate).pop();
            assert_eq!(answered, Some(ResponseStep::Answer(Means::Routine)));
        }
    }
}
