//! Protocol documents in calls, offers, awards and reports: docs/spec/agora.md#ag-29 to #ag-36.

use policy_core::replay::{RecomputedDecision, Replay};
use policy_core::{Decision, Event};
use schemas::policy::{Decider, Policy};
use schemas::{Act, Digest, DocumentHash, Lane};
use serde_json::{Value, json};

use crate::script::{Script, agent, policy};

fn hash(name: &str) -> Value {
    json!(DocumentHash::of_bytes(name.as_bytes()))
}

fn hashes(names: &[&str]) -> Vec<Value> {
    names.iter().copied().map(hash).collect()
}

/// Alice calls a, b and c for one of the documents `first` and `second`.
fn called(require: bool, change: impl FnOnce(&mut Policy)) -> Script {
    let mut script = Script::empty();
    let documents = json!({"documents": {"hashes": hashes(&["first", "second"]), "require": require}});
    script.call(0, policy(change), &["a", "b", "c"], documents, json!({}));
    script
}

fn offer(script: &mut Script, at_ms: u64, from: &str, price: i64, documents: &[&str]) -> Vec<String> {
    let payload = json!({"terms": {"price": price, "delivery_ms": 0}, "documents": hashes(documents)});
    script.say(at_ms, from, Act::Offer, payload)
}

fn told(script: &Script, to: &str, act: Act) -> Value {
    json!(&*script.last(to, act).told)
}

fn decisions(script: &Script) -> Vec<&Decision> {
    let decided = script.events.iter();
    decided.filter_map(|event| if let Event::Decided(decision) = event { Some(&**decision) } else { None }).collect()
}

fn report(script: &mut Script, at_ms: u64, from: &str, routine: Value) -> Vec<String> {
    script.say(at_ms, from, Act::Inform, json!({"kind": "result", "result": "12", "routine": routine}))
}

/// b is awarded under `second` and bound; c is held and knows both.
fn committed() -> Script {
    let mut script = called(false, |_| {});
    offer(&mut script, 1, "a", 30, &["second"]);
    offer(&mut script, 2, "b", 10, &["other", "second"]);
    offer(&mut script, 3, "c", 20, &["second", "first"]);
    script.confirm(4, "b", 1);
    script
}

#[test]
fn contractors_are_told_the_documents_of_the_call() {
    let script = called(true, |_| {});
    let documents = json!({"hashes": hashes(&["first", "second"]), "require": true});
    assert_eq!(told(&script, "a", Act::Cfp)["documents"], documents);
}

#[test]
fn an_award_pins_the_first_of_the_calls_documents_that_its_offer_names() {
    for (named, pinned) in [
        (&["first"][..], Some("first")),
        (&["second"], Some("second")),
        (&["second", "first"], Some("first")),
        (&["other", "second"], Some("second")),
        (&["other"], None),
        (&[], None),
    ] {
        let mut script = called(false, |policy| policy.close.k_valid = Some(1));
        offer(&mut script, 1, "a", 10, named);
        let pinned = pinned.map(hash);
        let news = told(&script, "alice", Act::Inform);
        let view = json!(script.lane_state.view(&script.negotiation, &agent("a")));
        let [decision] = decisions(&script)[..] else { panic!("one decision") };
        for document in [&told(&script, "a", Act::Accept), &news, &view["awards"][0], &json!(decision)["awards"][0]] {
            assert_eq!(document.get("document"), pinned.as_ref(), "{named:?}: {document}");
        }
        assert_eq!(news["decision"], json!(decision.digest()), "what is registered is the digest of the record");
    }
}

#[test]
fn without_documents_in_the_call_an_award_pins_none() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    assert_eq!(offer(&mut script, 1, "a", 10, &["first"])[2], "a<accept:1@award.0.1");
    assert_eq!(told(&script, "a", Act::Accept).get("document"), None);
}

#[test]
fn where_a_document_is_required_an_offer_without_one_fails_a_gate() {
    let refused = ["a<ack:policy_reject", "a<reject:policy:documents"];
    for named in [&["other"][..], &[]] {
        let mut script = called(true, |_| {});
        assert_eq!(offer(&mut script, 1, "a", 1, named), refused);
        assert_eq!(offer(&mut script, 2, "a", 1, &["second"]), ["a<ack:ok"], "it may offer again");
    }
    let mut script = called(false, |_| {});
    assert_eq!(offer(&mut script, 1, "a", 1, &["other"]), ["a<ack:ok"], "none is required");
}

#[test]
fn the_gate_of_documents_stands_behind_currency_and_before_validity() {
    let mut script = Script::empty();
    let call = json!({"currency": "EUR", "documents": {"hashes": hashes(&["first"]), "require": true}});
    script.call(0, policy(|_| {}), &["a", "b"], call, json!({}));
    let over = json!({"terms": {"price": 1, "delivery_ms": 0}, "valid_until": "1970-01-01T00:00:00Z"});
    let mut expired = over.clone();
    expired["currency"] = json!("USD");
    assert_eq!(script.say(1, "a", Act::Offer, expired)[1], "a<reject:policy:currency");
    assert_eq!(script.say(2, "a", Act::Offer, over)[1], "a<reject:policy:documents");
}

#[test]
fn an_award_to_a_runner_up_pins_what_its_own_offer_names() {
    for lose in [|script: &mut Script| script.fail(5, "b", "decommit"), |script: &mut Script| script.tick(500)] {
        let mut script = called(false, |policy| policy.hold_until = schemas::policy::HoldUntil::Done);
        offer(&mut script, 1, "a", 30, &[]);
        offer(&mut script, 2, "b", 10, &["second"]);
        offer(&mut script, 3, "c", 20, &["first"]);
        assert_eq!(told(&script, "b", Act::Accept)["document"], hash("second"));
        script.confirm(4, "b", 1);
        lose(&mut script);
        assert_eq!(told(&script, "c", Act::Accept)["document"], hash("first"));
        let pinned: Vec<_> = decisions(&script).iter().map(|one| json!(one.awards)[0]["document"].clone()).collect();
        assert_eq!(pinned, [hash("second"), hash("first")]);
    }
}

#[test]
fn the_initiators_choice_pins_as_well_and_it_is_told_which_before() {
    let mut script = called(false, |policy| policy.decider = Decider::Initiator);
    offer(&mut script, 1, "a", 10, &["second"]);
    offer(&mut script, 2, "b", 20, &["first"]);
    offer(&mut script, 3, "c", 30, &[]);
    let offers = told(&script, "alice", Act::Inform)["offers"].clone();
    let shown = |who: &str| offers.as_array().unwrap().iter().find(|offer| offer["contractor"] == who).unwrap().clone();
    assert_eq!(shown("a")["document"], hash("second"));
    assert_eq!(shown("b")["document"], hash("first"));
    assert_eq!(shown("c").get("document"), None);
    script.say(4, "alice", Act::Accept, json!({"offer_id": shown("a")["offer_id"]}));
    assert_eq!(told(&script, "a", Act::Accept)["document"], hash("second"));
}

#[test]
fn a_report_names_the_pinned_document_or_none() {
    for routine in [json!({"kind": "wasm", "hash": hash("second")}), json!({"kind": "language"})] {
        let mut script = committed();
        assert_eq!(report(&mut script, 5, "b", routine.clone())[..2], ["b<ack:ok", "alice<inform:result:b:1"]);
        assert_eq!(told(&script, "alice", Act::Inform)["routine"], routine);
    }
}

#[test]
fn a_report_that_names_another_document_is_malformed_and_may_be_sent_right() {
    let mut script = committed();
    let refused = ["b<ack:malformed", "b<not_understood:document:/payload/routine/hash"];
    for (at_ms, name) in (5..).zip(["first", "other"]) {
        assert_eq!(report(&mut script, at_ms, "b", json!({"kind": "native", "hash": hash(name)})), refused);
    }
    assert_eq!(told(&script, "b", Act::NotUnderstood)["expected"], json!(["inform", "failure"]));
    assert_eq!(report(&mut script, 9, "b", json!({"kind": "native", "hash": hash("second")}))[0], "b<ack:ok");
    script.assert_sound();
}

#[test]
fn without_a_pinned_document_a_report_names_none() {
    let mut script = called(false, |policy| policy.close.k_valid = Some(1));
    offer(&mut script, 1, "a", 10, &["other"]);
    script.confirm(2, "a", 1);
    let refused = ["a<ack:malformed", "a<not_understood:document:/payload/routine/hash"];
    assert_eq!(report(&mut script, 3, "a", json!({"kind": "native", "hash": hash("other")})), refused);
    assert_eq!(report(&mut script, 4, "a", json!({"kind": "language"}))[0], "a<ack:ok");
}

#[test]
fn the_answer_to_a_cancel_names_no_other_document_either() {
    let mut script = committed();
    script.cancel(5);
    let other = json!({"kind": "http", "hash": hash("first")});
    assert_eq!(report(&mut script, 6, "b", other)[0], "b<ack:malformed");
    assert_eq!(report(&mut script, 7, "b", json!({"kind": "http", "hash": hash("second")}))[0], "b<ack:ok");
}

#[test]
fn a_decision_recomputed_from_an_altered_offer_is_another() {
    let fold = |name: &str| {
        let mut script = called(false, |policy| policy.close.k_valid = Some(1));
        offer(&mut script, 1, "a", 10, &[name]);
        let mut replay = Replay::new(policy_core::Limits::default());
        script.log().iter().for_each(|(seq, time, record)| replay.handle_record(Lane(0), *seq, *time, record));
        let decided: Vec<Digest> = replay.decisions().iter().map(RecomputedDecision::digest).collect();
        decided
    };
    assert_eq!(fold("first"), fold("first"));
    assert_ne!(fold("first"), fold("second"));
}
