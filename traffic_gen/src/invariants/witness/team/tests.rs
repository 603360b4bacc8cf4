use schemas::delivery::Delivery;
use schemas::{DeliveryId, Lane};
use serde_json::{Value, json};

use crate::invariants::{Invariant, Verdict, Witness};
use schemas::{Act, AgentId, NegotiationId};

#[test]
fn a_team_that_speaks_in_turn_and_concludes_violates_nothing() {
    let verdict = judged(&story());
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    for invariant in Invariant::ALL.iter().filter(|invariant| invariant.is_of_teams()) {
        assert!(
            verdict.by_name.get(invariant).is_some_and(|tally| tally.checked > 0),
            "{invariant:?} was never checked"
        );
    }
}

#[test]
fn each_fault_of_a_team_trips_its_invariant() {
    let changed = |index: usize, pointer: &str, value: Value| {
        let mut story = story();
        *story[index].payload.pointer_mut(pointer).unwrap() = value;
        story
    };
    let without = |index: usize| {
        let mut story = story();
        story.remove(index);
        story
    };
    let plus = |told: Event| {
        let mut story = story();
        story.push(told);
        story
    };
    let told_mallory = told("mallory", floor(1, 1, "alice", json!({"members": ["alice", "bob", "carol"]})));
    let also_told = told("bob", floor(3, 3, "carol", json!({"by": "bob", "said": {"text": "two"}})));
    for (name, story, broken) in [
        ("another held the floor", changed(8, "/speaker", json!("carol")), Invariant::OneFloor),
        ("the floor was nobody's", changed(8, "/state", json!("awaiting")), Invariant::OneFloor),
        ("a say behind the last turn", changed(7, "/turn", json!(99)), Invariant::TurnLimit),
        ("a discussion behind the last turn", changed(11, "/turn", json!(33)), Invariant::TurnLimit),
        ("a stranger is told a step", plus(told_mallory), Invariant::MembersOnly),
        ("a step in two versions", changed(13, "/said/text", json!("three")), Invariant::SameStory),
        ("a step that a member misses", without(13), Invariant::SameStory),
        ("a step told to whoever made it", plus(also_told), Invariant::SameStory),
        ("a seat without a join", without(2), Invariant::Seated),
    ] {
        let verdict = judged(&story);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
}

/// Something an agent sent or was told.
#[derive(Clone)]
struct Event {
    agent: &'static str,
    /// The id of what was sent; absent for what was told.
    sent: Option<&'static str>,
    payload: Value,
}

fn sent(agent: &'static str, msg_id: &'static str, payload: Value) -> Event {
    Event { agent, sent: Some(msg_id), payload }
}

fn told(agent: &'static str, payload: Value) -> Event {
    Event { agent, sent: None, payload }
}

fn floor(step: u32, turn: u32, speaker: &str, more: Value) -> Value {
    let mut floor = json!({"act": "floor", "step": step, "turn": turn, "turns_left": 33 - turn, "state": "discussing",
        "speaker": speaker, "ends_by": "2026-11-20T00:10:00Z"});
    floor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    floor
}

fn receipt(ack_of: &str, more: Value) -> Value {
    let mut receipt = json!({"act": "ack", "ack_of": ack_of, "disposition": "ok"});
    receipt.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    receipt
}

/// alice calls bob and carol; alice says one, bob two, carol concludes.
fn story() -> Vec<Event> {
    let first = |name| told(name, floor(1, 1, "alice", json!({"members": ["alice", "bob", "carol"]})));
    let said =
        |to, step, speaker, by, text| told(to, floor(step, step, speaker, json!({"by": by, "said": {"text": text}})));
    let conclusion = json!({"by": "carol", "offer_id": "o1-0", "text": "three", "digest": "0".repeat(64), "turn": 3});
    let closed = |to| {
        told(to, json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64), "conclusion": conclusion}))
    };
    vec![
        sent("alice", "a1", json!({"act": "cfp", "team": {}})),
        told("alice", receipt("a1", json!({"invited": 2}))),
        sent("bob", "b1", json!({"act": "join"})),
        told("bob", receipt("b1", json!({}))),
        sent("carol", "c1", json!({"act": "join"})),
        told("carol", receipt("c1", json!({}))),
        sent("alice", "a2", json!({"act": "say", "text": "one"})),
        told("alice", receipt("a2", json!({"step": 2, "turn": 2}))),
        first("alice"),
        first("bob"),
        first("carol"),
        said("bob", 2, "bob", "alice", "one"),
        said("carol", 2, "bob", "alice", "one"),
        said("carol", 3, "carol", "bob", "two"),
        said("alice", 3, "carol", "bob", "two"),
        sent("bob", "b2", json!({"act": "say", "text": "two"})),
        told("bob", receipt("b2", json!({"step": 3, "turn": 3}))),
        sent("carol", "c2", json!({"act": "conclude", "text": "three"})),
        told("carol", receipt("c2", json!({"step": 4, "turn": 3}))),
        closed("alice"),
        closed("bob"),
        closed("carol"),
    ]
}

fn judged(story: &[Event]) -> Verdict {
    let mut witness = Witness::default();
    let team = NegotiationId::try_new("alice~team").unwrap();
    for (index, Event { agent, sent, payload }) in story.iter().enumerate() {
        let agent = AgentId::try_new(agent).unwrap();
        if let Some(msg_id) = sent {
            let act: Act = serde_json::from_value(payload["act"].clone()).unwrap();
            let document = json!({"envelope": {"msg_id": msg_id}, "payload": payload}).to_string();
            witness.sent(&agent, &team, act, document.as_bytes());
            continue;
        }
        let id = DeliveryId::new(Lane(0), [u8::try_from(index).unwrap(); 16]);
        let delivery: Delivery = serde_json::from_value(json!({
            "envelope": {"msg_id": id, "ts": "2026-11-20T00:00:00Z", "from": "exchange://llmx",
                "to": [format!("agent://{agent}")], "negotiation": team},
            "payload": payload,
        }))
        .unwrap();
        witness.received(&agent, &delivery);
    }
    witness.finish()
}
