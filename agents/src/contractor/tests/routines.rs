use std::sync::Arc;

use schemas::document::{CallDocuments, DocumentHash, RoutineKind, RoutineReport};

use schemas::payload::FailurePhase;

use super::*;
use crate::routine::{NativeRoutine, RoutineLimits, RoutineRunner};

fn hash(text: &str) -> DocumentHash {
    DocumentHash::of_bytes(text.as_bytes())
}

/// A contractor with routines for these documents.
fn with_routines(documents: &[&str]) -> Contractor {
    contractor(|_| {}).with_routines(table(documents))
}

fn table(documents: &[&str]) -> RoutineTable {
    let mut table = RoutineTable::default();
    for document in documents {
        table.add(hash(document), Arc::new(NativeRoutine::new(|text| Ok(text.to_owned())))).unwrap();
    }
    table
}

fn call_naming(own: &str, documents: &[&str]) -> Delivery {
    let mut told = call(own, 1);
    let Notification::Cfp(call) = &mut told.payload else { panic!("no call") };
    call.task = Some("1250".to_owned());
    let hashes: Vec<DocumentHash> = documents.iter().map(|document| hash(document)).collect();
    call.documents = (!hashes.is_empty()).then_some(CallDocuments { hashes, require: false });
    told
}

fn award_pinning(own: &str, award_no: u32, terms: &Terms, document: Option<&str>) -> Delivery {
    let mut told = award(own, award_no, terms);
    let Notification::Accept(award) = &mut told.payload else { panic!("no award") };
    award.document = document.map(hash);
    told
}

#[test]
fn words_where_the_call_requires_a_document_are_reported_as_a_failure() {
    for (requires, act, [done, failures]) in [(true, Act::Failure, [0, 1]), (false, Act::Inform, [1, 0])] {
        let mut contractor = with_routines(&["a"]);
        let mut told = call_naming("n1", &["a"]);
        let Notification::Cfp(call) = &mut told.payload else { panic!("no call") };
        call.documents = Some(CallDocuments { hashes: vec![hash("a")], require: requires });
        let Payload::Offer(Offer { terms, .. }) = only(contractor.handle(T0, &told)).payload else {
            panic!("no offer")
        };
        contractor.handle(T0, &award_pinning("n1", 1, &terms, Some("a")));
        contractor.handle(T0, &receipt("n1", Disposition::Committed, 1));
        let run = contractor.poll_question().unwrap();
        let report = RoutineReport { hash: None, kind: RoutineKind::Language };
        let words = RoutineAnswer { result: "Some 575, I think.".to_owned(), report };
        assert_eq!(only(contractor.take_answer(T0, &run, Some(words))).payload.act(), act);
        assert_eq!([contractor.counts().done, contractor.counts().failures], [done, failures]);
    }
}

/// The run that a binding award leads to.
fn committed(contractor: &mut Contractor, own: &str, document: Option<&str>) -> RoutineRun {
    let Payload::Offer(Offer { terms, .. }) = only(contractor.handle(T0, &call_naming(own, &["a", "b"]))).payload
    else {
        panic!("no offer")
    };
    assert_eq!(only(contractor.handle(T0, &award_pinning(own, 1, &terms, document))).payload.act(), Act::Confirm);
    assert!(contractor.poll_question().is_none(), "nothing runs before the award is binding");
    assert_eq!(contractor.handle(T0, &receipt(own, Disposition::Committed, 1)), [Action::Defer]);
    let run = contractor.poll_question().unwrap();
    assert!(contractor.poll_question().is_none());
    run
}

fn answer(result: &str, document: &str) -> Option<RoutineAnswer> {
    let report = RoutineReport { hash: Some(hash(document)), kind: RoutineKind::Native };
    Some(RoutineAnswer { result: result.to_owned(), report })
}

#[test]
fn an_offer_names_those_of_the_calls_documents_that_have_a_routine_in_the_calls_order() {
    for (known, asked, offered) in [
        (&["a", "b", "c"][..], &["c", "x", "a"][..], &["c", "a"][..]),
        (&["a"], &["b"], &[]),
        (&["a"], &[], &[]),
        (&[], &["a"], &[]),
    ] {
        let offer = only(with_routines(known).handle(T0, &call_naming("n1", asked)));
        let Payload::Offer(Offer { documents, .. }) = offer.payload else { panic!("no offer") };
        assert_eq!(documents, offered.iter().map(|document| hash(document)).collect::<Vec<_>>(), "{known:?} {asked:?}");
    }
}

#[test]
fn a_binding_award_becomes_one_run_of_the_pinned_document_and_its_result_the_inform() {
    let mut contractor = with_routines(&["a", "b"]);
    let run = committed(&mut contractor, "n1", Some("b"));
    let request = run.request();
    assert_eq!((request.text.as_str(), request.document), ("1250", Some(hash("b"))));
    assert_eq!((request.asked_at, request.deadline), (T0, T0.plus_ms(120_000)));
    assert_eq!(contractor.handle(T0, &receipt("n1", Disposition::Committed, 1)), [], "a repeat runs nothing again");
    assert!(contractor.poll_question().is_none());

    let inform = only(contractor.take_answer(T0, &run, answer("575", "b")));
    let routine = Some(RoutineReport { hash: Some(hash("b")), kind: RoutineKind::Native });
    let expected = Inform { kind: InformKind::Result, result: Some("575".to_owned()), routine };
    assert_eq!((inform.payload, inform.once), (Payload::Inform(expected), Some(1)));
    assert_eq!((contractor.counts().commitments, contractor.counts().done), (1, 1));
}

#[test]
fn an_award_that_nothing_carried_out_is_reported_as_failed() {
    let mut contractor = with_routines(&["a"]);
    let run = committed(&mut contractor, "n1", Some("a"));
    let report = only(contractor.take_answer(T0, &run, None));
    let Payload::Failure(failure) = report.payload else { panic!("no failure") };
    assert_eq!(
        (failure.phase, failure.code.as_str(), failure.retryable),
        (FailurePhase::Perform, "routine_failed", true)
    );
    assert_eq!((contractor.counts().done, contractor.counts().failures), (0, 1));
}

#[test]
fn the_result_of_an_award_that_was_cancelled_says_nothing() {
    let mut contractor = with_routines(&["a"]);
    let run = committed(&mut contractor, "n1", Some("a"));
    let cancellation = Cancellation { award_no: AwardNo(1), reason: "cancelled".to_owned() };
    assert_eq!(contractor.handle(T0, &delivery("n1", Notification::Cancel(cancellation))).len(), 2);
    assert_eq!(contractor.take_answer(T0, &run, answer("575", "a")), []);
    assert_eq!(contractor.counts().done, 0);

    let run = committed(&mut contractor, "n2", Some("a"));
    contractor.handle(T0, &closed("n2"));
    assert_eq!(contractor.take_answer(T0, &run, answer("575", "a")), [], "nor does that of one that is over");
}

#[test]
fn a_later_award_is_carried_out_by_the_document_it_pins_itself() {
    let mut contractor = with_routines(&["a", "b"]);
    let Payload::Offer(Offer { terms, .. }) = only(contractor.handle(T0, &call_naming("n1", &["a", "b"]))).payload
    else {
        panic!("no offer")
    };
    contractor.handle(T0, &award_pinning("n1", 1, &terms, Some("a")));
    contractor.handle(T0, &award_pinning("n1", 2, &terms, None));
    contractor.handle(T0, &receipt("n1", Disposition::Committed, 2));
    let run = contractor.poll_question().unwrap();
    assert_eq!((run.award_no(), run.request().document), (AwardNo(2), None));
    contractor.handle(T0, &award_pinning("n1", 3, &terms, Some("b")));
    assert_eq!(
        contractor.take_answer(T0, &run, answer("575", "a")),
        [],
        "the result of an award that another followed"
    );
}

#[test]
fn runs_that_find_no_room_are_answered_at_once_in_words() {
    let runner = Arc::new(RoutineRunner::new(table(&["a"]), RoutineLimits::default()).saying("busy"));
    let (mut contractor, runs) = PerformingContractor::new(with_routines(&["a"]), Arc::clone(&runner));
    drop(runs);
    let run = committed(contractor.strategy(), "n1", Some("a"));
    contractor.strategy().runs.push_back(run);
    let inform = only(contractor.handle(T0, &receipt("n1", Disposition::Ok, 1)));
    let routine = Some(RoutineReport { hash: None, kind: RoutineKind::Language });
    let expected = Inform { kind: InformKind::Result, result: Some("busy".to_owned()), routine };
    assert_eq!(inform.payload, Payload::Inform(expected));
    assert_eq!(runner.tallies()[&RoutineKind::Native].failed, 1);
}
