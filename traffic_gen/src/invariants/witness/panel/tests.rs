use schemas::delivery::Delivery;
use schemas::{Act, AgentId, DeliveryId, Lane, NegotiationId};
use serde_json::{Value, json};

use crate::invariants::{Invariant, Verdict, Witness};

#[test]
fn a_panel_that_asks_in_rounds_and_finds_a_consensus_violates_nothing() {
    let mut verdict = judged(&story());
    verdict.absorb(judged(&selection_story()));
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    for invariant in Invariant::ALL.iter().filter(|invariant| invariant.is_of_panels()) {
        assert!(
            verdict.by_name.get(invariant).is_some_and(|tally| tally.checked > 0),
            "{invariant:?} was never checked"
        );
    }
}

#[test]
fn each_fault_of_a_panel_trips_its_invariant() {
    let changed = |index: usize, pointer: &str, value: Value| {
        let mut story = story();
        *story[index].payload.pointer_mut(pointer).unwrap() = value;
        story
    };
    let plus = |told: Seen| {
        let mut story = story();
        story.push(told);
        story
    };
    let shown = |answer: &str| json!([{"answer": answer}, {"answer": "B"}]);
    let other_finding = told("alice", finding(json!({"answer": "C"})));
    let asked_again = told("bob", ask(2, json!({"peers": shown("B"), "own": {"answer": "A"}})));
    for (name, story, broken) in [
        ("two findings", plus(other_finding), Invariant::OneFinding),
        ("an end without a finding", without_finding(), Invariant::OneFinding),
        ("another end than the finding's", changed(END, "/outcome", json!("plurality")), Invariant::OneFinding),
        ("too few agree", changed(FINDING, "/of", json!(2)), Invariant::Quorum),
        ("two of three are no consensus", two_of_three(), Invariant::Quorum),
        ("who agrees said something else", changed(LAST_ANSWER, "/answer", json!("A")), Invariant::Quorum),
        ("the finding is told to a seat", plus(told("bob", finding(json!({})))), Invariant::RoundSealed),
        ("an answer of the running round", changed(SECOND_ASK, "/peers", shown("Z")), Invariant::RoundSealed),
        ("an answer of nobody", changed(SECOND_ASK, "/peers", shown("Q")), Invariant::NoStaleAnswer),
        (
            "another's answer as one's own",
            changed(SECOND_ASK, "/own", json!({"answer": "C"})),
            Invariant::NoStaleAnswer,
        ),
        ("a round too many", changed(FIRST_ASK, "/round", json!(4)), Invariant::CallsBounded),
        ("an ask that is not counted", plus(asked_again), Invariant::CallsBounded),
        ("reviews that nobody gave", changed(SECOND_ASK, "/own", reviewed("A", "of C")), Invariant::NoStaleAnswer),
        (
            "another's review to a reviewer",
            changed(REVIEW_ASK, "/peers/0", reviewed("A", "of A")),
            Invariant::RoundSealed,
        ),
        (
            "more importance than a round has",
            changed(FINDING, "/panelists/0/importance_e12", json!([444_444_444_444_u64, 333_333_333_333_u64])),
            Invariant::ImportanceConserved,
        ),
        (
            "half a review",
            changed(FINDING, "/reviewers/0/total_e12", json!(500_000_000_000_u64)),
            Invariant::ImportanceConserved,
        ),
        ("an answer after its time", changed(FIRST_ASK, "/answer_by", json!(TOO_EARLY)), Invariant::NoStaleAnswer),
        ("more asks than happened", changed(FINDING, "/calls/answers", json!(9)), Invariant::CallsBounded),
    ] {
        let verdict = judged(&story);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
}

#[test]
fn each_fault_of_a_selection_trips_its_invariant() {
    let shown = |own: &str, peers: Value| ask(2, json!({"own": {"answer": own}, "peers": peers}));
    let also_dan = shown("C", json!([{"answer": "B"}]));
    let all_of_them = shown("A", json!([{"answer": "B"}, {"answer": "C"}]));
    let without_first = shown("B", json!([{"answer": "C"}]));
    let part_of_dan = json!([333_333_333_333_u64, 0]);
    for (name, place, payload) in [
        ("who was dropped is asked", selection_story().len(), also_dan),
        ("who was dropped is shown", SELECTED_ASK, all_of_them),
        ("whom the ranker put first is not shown", SELECTED_ASK, without_first),
        ("all count as before", SELECTED_FINDING, with(selected_finding(), json!({"of": 3}))),
        ("who was dropped has a part", SELECTED_FINDING, {
            let mut finding = selected_finding();
            finding["panelists"][2]["importance_e12"] = part_of_dan;
            finding
        }),
    ] {
        let mut story = selection_story();
        if place == story.len() {
            story.push(told("dan", payload));
        } else {
            story[place].payload = payload;
        }
        let verdict = judged(&story);
        let tally = verdict.by_name.get(&Invariant::SelectionFinal);
        assert!(tally.is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
    let unranked: Vec<Seen> = selection_story().into_iter().filter(|seen| seen.agent != "rex").collect();
    let verdict = judged(&unranked);
    assert!(verdict.by_name[&Invariant::SelectionFinal].checked > 0, "three opinions are told, of whom two are kept");
}

#[test]
fn a_result_that_cannot_have_reached_its_initiator_is_not_missed() {
    let story = without_finding();
    let mut witness = witnessed(&story);
    witness.unreached(&agent("alice"), &panel());
    assert_eq!(witness.finish().violated(), 0);
    assert_eq!(witnessed(&story).finish_early().violated(), 0, "it may still be under way");
}

#[test]
fn an_ask_that_may_have_expired_unheard_counts_and_one_that_was_answered_cannot_have() {
    let calls =
        |answers: u32, answered: u32| json!({"answers": answers, "ranks": 0, "reviews": 1, "answered": answered});
    let judged = |calls: Value, are_failures_told: bool| {
        let mut story = story();
        *story[FINDING].payload.pointer_mut("/calls").unwrap() = calls;
        let mut witness = witnessed(&story);
        witness.are_failures_told = are_failures_told;
        witness.finish().by_name[&Invariant::CallsBounded].violated
    };
    assert_eq!(judged(calls(7, 7), false), 0, "the seventh ask expired before its seat had it");
    assert_eq!(judged(calls(7, 7), true), 1, "nobody says that it did");
    assert_eq!(judged(calls(7, 8), false), 1, "all asks were answered, and one of them nobody had");
    assert_eq!(judged(calls(5, 5), false), 1, "more asks were heard than are counted");
}

/// Something an agent sent or was told.
#[derive(Clone)]
struct Seen {
    agent: &'static str,
    /// The id of what was sent; absent for what was told.
    sent: Option<String>,
    payload: Value,
}

fn sent(agent: &'static str, round: u32, payload: Value) -> Seen {
    Seen { agent, sent: Some(format!("{agent}{round}")), payload }
}

fn told(agent: &'static str, payload: Value) -> Seen {
    Seen { agent, sent: None, payload }
}

fn answered(agent: &'static str, round: u32, answer: &str) -> Seen {
    sent(agent, round, json!({"act": "answer", "round": round, "answer": answer}))
}

fn taken(agent: &'static str, round: u32) -> Seen {
    told(agent, json!({"act": "ack", "ack_of": format!("{agent}{round}"), "disposition": "ok"}))
}

fn with(mut document: Value, more: Value) -> Value {
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document
}

fn ask(round: u32, more: Value) -> Value {
    let time = "2026-11-20T00:10:00Z";
    with(json!({"act": "ask", "round": round, "rounds": 3, "answer_by": time, "ends_by": time}), more)
}

fn finding(more: Value) -> Value {
    let third = 333_333_333_333_u64;
    let seat = |agent: &str, agreed: bool| json!({"agent": agent, "answer": "B", "agreed": agreed, "importance_e12": [third, third], "total_e12": 2 * third + 1, "relative_ppm": 1_000_000});
    let finding = json!({"act": "inform", "kind": "finding", "outcome": "consensus", "stopped": "answers", "answer": "B",
        "agreed": 3, "of": 3, "round": 2, "decision": "0".repeat(64), "usage": {"reported_by": 0},
        "calls": {"answers": 6, "ranks": 0, "reviews": 1, "answered": 7},
        "reviewers": [{"agent": "rex", "total_e12": 1_000_000_000_000_u64, "relative_ppm": 1_000_000}],
        "panelists": [seat("bob", true), seat("carol", true), seat("dan", true)]});
    with(finding, more)
}

/// Before anything is told.
const TOO_EARLY: &str = "2026-11-19T00:00:00Z";

const FIRST_ASK: usize = 2;
const REVIEW_ASK: usize = 9;
const SECOND_ASK: usize = 11;
const LAST_ANSWER: usize = 16;
const FINDING: usize = 17;
const END: usize = 18;
const SELECTED_ASK: usize = 13;
const SELECTED_FINDING: usize = 17;

fn reviewed(answer: &str, review: &str) -> Value {
    json!({"answer": answer, "reviews": [review]})
}

/// alice asks bob, carol and dan: A, B and C, which rex reviews, then B alike.
fn story() -> Vec<Seen> {
    let closed = |to| told(to, json!({"act": "closed", "outcome": "consensus", "digest": "0".repeat(64)}));
    let second = |own: &str, peers: [&str; 2]| {
        let shown = |answer: &str| reviewed(answer, &format!("of {answer}"));
        let peers: Vec<Value> = peers.iter().map(|peer| shown(peer)).collect();
        ask(2, json!({"own": shown(own), "peers": peers, "rate": "reviewers"}))
    };
    vec![
        sent("alice", 0, json!({"act": "cfp", "panel": {"rounds": 3, "review": {"by": ["rex"]}}})),
        told("alice", json!({"act": "ack", "ack_of": "alice0", "disposition": "ok", "invited": 3})),
        told("bob", ask(1, json!({}))),
        told("carol", ask(1, json!({}))),
        told("dan", ask(1, json!({}))),
        answered("bob", 1, "A"),
        taken("bob", 1),
        answered("carol", 1, "B"),
        answered("dan", 1, "C"),
        told("rex", ask(1, json!({"review": true, "peers": [{"answer": "A"}, {"answer": "C"}, {"answer": "B"}]}))),
        sent("rex", 1, json!({"act": "answer", "round": 1, "reviews": ["of A", "of C", "of B"]})),
        told("bob", second("A", ["C", "B"])),
        told("carol", second("B", ["A", "C"])),
        told("dan", second("C", ["A", "B"])),
        answered("bob", 2, "B"),
        answered("carol", 2, "B"),
        answered("dan", 2, "B"),
        told("alice", finding(json!({}))),
        closed("alice"),
        closed("bob"),
    ]
}

/// alice asks bob, carol and dan: A, B and C, of which rex ranks A first. Bob and carol go on, and say B.
fn selection_story() -> Vec<Seen> {
    let select = json!({"after_round": 1, "keep": 2, "if_more_than": 2, "ranker": {"kind": "agent", "agent": "rex", "rank_ms": 1000}});
    let peers = json!([{"answer": "A"}, {"answer": "B"}, {"answer": "C"}]);
    let second =
        |own: &str, peer: &str| ask(2, json!({"own": {"answer": own}, "peers": [{"answer": peer}], "rate": "peers"}));
    vec![
        sent("alice", 0, json!({"act": "cfp", "panel": {"rounds": 3, "select": select}})),
        told("alice", json!({"act": "ack", "ack_of": "alice0", "disposition": "ok", "invited": 3})),
        told("bob", ask(1, json!({}))),
        told("carol", ask(1, json!({}))),
        told("dan", ask(1, json!({}))),
        answered("bob", 1, "A"),
        taken("bob", 1),
        answered("carol", 1, "B"),
        taken("carol", 1),
        answered("dan", 1, "C"),
        taken("dan", 1),
        told("rex", ask(1, json!({"rank": {"keep": 2}, "peers": peers}))),
        sent("rex", 1, json!({"act": "answer", "round": 1, "order": [1]})),
        told("bob", second("A", "B")),
        told("carol", second("B", "A")),
        answered("bob", 2, "B"),
        answered("carol", 2, "B"),
        told("alice", selected_finding()),
        told("alice", json!({"act": "closed", "outcome": "consensus", "digest": "0".repeat(64)})),
        taken("rex", 1),
    ]
}

fn selected_finding() -> Value {
    let half = 500_000_000_000_u64;
    let seat = |agent: &str, share: u64| json!({"agent": agent, "agreed": share > 0, "importance_e12": [share, share], "total_e12": 2 * share, "relative_ppm": 1_000_000});
    let panelists = json!([seat("bob", half), seat("carol", half), seat("dan", 0)]);
    let calls = json!({"answers": 5, "ranks": 1, "reviews": 0, "answered": 6});
    finding(json!({"agreed": 2, "of": 2, "calls": calls, "reviewers": [], "panelists": panelists}))
}

fn without_finding() -> Vec<Seen> {
    let mut story = story();
    story.remove(FINDING);
    story
}

/// dan says something else, and the exchange calls it a consensus all the same.
fn two_of_three() -> Vec<Seen> {
    let mut story = story();
    story[LAST_ANSWER] = answered("dan", 2, "C");
    *story[FINDING].payload.pointer_mut("/agreed").unwrap() = json!(2);
    *story[FINDING].payload.pointer_mut("/panelists/2/agreed").unwrap() = json!(false);
    story
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn panel() -> NegotiationId {
    NegotiationId::try_new("alice~p1").unwrap()
}

fn witnessed(story: &[Seen]) -> Witness {
    let mut witness = Witness::default().told_of_failures();
    for (number, seen) in (0..).zip(story) {
        let name = agent(seen.agent);
        if let Some(msg_id) = &seen.sent {
            let act: Act = serde_json::from_value(seen.payload["act"].clone()).unwrap();
            let document = json!({"envelope": {"msg_id": msg_id}, "payload": seen.payload}).to_string();
            witness.sent(&name, &panel(), act, document.as_bytes());
            continue;
        }
        let envelope = json!({"msg_id": DeliveryId::new(Lane(0), [number; 16]), "ts": "2026-11-20T00:00:00Z",
            "from": "exchange://llmx", "to": [format!("agent://{}", seen.agent)], "negotiation": panel()});
        let delivery: Delivery =
            serde_json::from_value(json!({"envelope": envelope, "payload": seen.payload})).unwrap();
        witness.received(&name, &delivery);
    }
    // An answer of the running round, which no story may show.
    let running = json!({"envelope": {"msg_id": "dan9"}, "payload": {"act": "answer", "round": 2, "answer": "Z"}});
    witness.sent(&agent("dan"), &panel(), Act::Answer, running.to_string().as_bytes());
    witness
}

fn judged(story: &[Seen]) -> Verdict {
    witnessed(story).finish()
}
