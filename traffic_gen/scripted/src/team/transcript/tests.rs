use serde_json::{Value, json};

use super::*;

#[test]
fn a_transcript_is_the_same_whoever_was_told_a_step_and_in_whatever_order() {
    let root = NegotiationId::try_new("alice~play").unwrap();
    let told = story();
    let (first, second) = (TranscriptKeeper::new(), TranscriptKeeper::new());
    told.iter().for_each(|told| tell(&first, told));
    told.iter().rev().for_each(|told| tell(&second, told));
    told.iter().for_each(|told| tell(&second, told));
    let transcript = first.transcript(&root);
    assert_eq!(transcript, second.transcript(&root));
    let page = transcript.to_string();
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(
        &lines[..9],
        [
            "team alice~play: alice, bob",
            "    1  alice: Who draws?",
            "    2  bob repeats step 2",
            "    3  alice assigns 1 figures (bob)",
            "    4  alice waits for 1 figures (bob)",
            "       task 1 done by bob: two",
            "    5  alice proposes: two figures",
            "  concluded by alice, 2 to 0: two figures",
            "",
        ]
    );
    assert!(lines[9].starts_with("transcript "), "{page}");
}

#[test]
fn the_digest_changes_with_what_is_said_and_not_with_what_timing_and_names_decide() {
    let digest = |told: &[(&str, Value)], root: &str| {
        let keeper = TranscriptKeeper::new();
        told.iter().for_each(|told| tell(&keeper, told));
        keeper.transcript(&NegotiationId::try_new(root).unwrap()).digest.unwrap()
    };
    let told = story();
    let whole = digest(&told, "alice~play");
    // The step of a task's end, and the id of the run.
    let mut later = told.clone();
    later[5].1["step"] = json!(99);
    assert_eq!(digest(&later, "alice~play"), whole);
    let renamed: Vec<(&str, Value)> = told.iter().map(|(_, told)| ("alice~other", told.clone())).collect();
    assert_eq!(digest(&renamed, "alice~other"), whole);
    for (index, pointer, value) in [
        (1, "/said/text", json!("Who writes?")),
        (2, "/by", json!("alice")),
        (5, "/tasks/0/result", json!("three")),
        (7, "/conclusion/text", json!("three figures")),
        (7, "/outcome", json!("unconcluded")),
    ] {
        let mut changed = told.clone();
        *changed[index].1.pointer_mut(pointer).unwrap() = value;
        assert_ne!(digest(&changed, "alice~play"), whole, "{pointer}");
    }
}

#[tokio::test]
async fn a_call_that_is_refused_is_told_to_whoever_waits() {
    let keeper = TranscriptKeeper::new();
    let root = NegotiationId::try_new("alice~play").unwrap();
    let why = json!({"act": "not_understood", "reason": "bad_deadline", "expected": [], "pointer": "/payload/team"});
    tell(&keeper, &("alice~play", why));
    assert_eq!(keeper.ended(&root).await, Err("bad_deadline at /payload/team".to_owned()));
}

#[test]
fn what_a_member_was_refused_stands_behind_the_step_before_with_its_reason_and_not_in_the_digest() {
    let root = NegotiationId::try_new("alice~play").unwrap();
    let keeper = TranscriptKeeper::new();
    let told = story();
    told.iter().take(4).for_each(|told| tell(&keeper, told));
    let receipt = json!({"act": "ack", "ack_of": "m5", "disposition": "policy_reject"});
    tell(&keeper, &("alice~play", receipt));
    let why = json!({"act": "not_understood", "reason": "open_tasks", "expected": ["say"], "pointer": "/payload/act"});
    tell(&keeper, &("alice~play", why));
    let applied = json!({"act": "ack", "ack_of": "m6", "disposition": "ok", "step": 5, "turn": 4});
    tell(&keeper, &("alice~play", applied));
    told.iter().skip(4).take(1).for_each(|told| tell(&keeper, told));
    let transcript = keeper.transcript(&root);
    let page = transcript.to_string();
    let lines: Vec<&str> = page.lines().skip(3).take(3).collect();
    assert_eq!(
        lines,
        [
            "    3  alice assigns 1 figures (bob)",
            "    4  alice is refused: policy_reject, open_tasks at /payload/act",
            "    4  alice waits for 1 figures (bob)",
        ],
        "{page}"
    );
    let as_json = serde_json::to_value(&transcript.teams[0].acts[4]).unwrap();
    let refused = json!({"step": 4, "turn": 4, "by": "alice", "act": "refused", "disposition": "policy_reject",
        "reason": "open_tasks at /payload/act"});
    assert_eq!(as_json, refused);
    let unrefused = TranscriptKeeper::new();
    told.iter().take(5).for_each(|told| tell(&unrefused, told));
    assert_eq!(transcript.digest, unrefused.transcript(&root).digest);
}

/// Two members, a say, a repetition, a task, a vote.
fn story() -> Vec<(&'static str, Value)> {
    let floor = |step: u32, turn: u32, more: Value| {
        let mut floor = json!({"act": "floor", "step": step, "turn": turn, "turns_left": 9, "state": "discussing",
            "ends_by": "2026-11-20T00:10:00Z"});
        floor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("alice~play", floor)
    };
    let conclusion = json!({"offer_id": "o1-0", "by": "alice", "text": "two figures", "terms_digest": "0".repeat(64)});
    let closing = json!({"by": "alice", "offer_id": "o1-0", "text": "two figures", "digest": "0".repeat(64), "turn": 5,
        "votes": {"yes": 2, "no": 0}});
    vec![
        floor(1, 1, json!({"members": ["alice", "bob"]})),
        floor(2, 2, json!({"by": "alice", "said": {"text": "Who draws?"}})),
        floor(3, 3, json!({"by": "bob", "said": {"repeats": 2}})),
        floor(
            4,
            4,
            json!({"by": "alice", "tasks": [{"task": 1, "status": "open", "title": "figures", "owner": "bob"}]}),
        ),
        floor(5, 5, json!({"by": "alice", "state": "paused", "waits": [1]})),
        floor(6, 5, json!({"tasks": [{"task": 1, "status": "done", "owner": "bob", "result": "two"}]})),
        floor(7, 5, json!({"by": "alice", "state": "voting", "conclusion": conclusion})),
        (
            "alice~play",
            json!({"act": "closed", "outcome": "concluded", "digest": "0".repeat(64), "conclusion": closing}),
        ),
    ]
}

fn tell(keeper: &TranscriptKeeper, (negotiation, payload): &(&str, Value)) {
    let alice = AgentId::try_new("alice").unwrap();
    let delivery = serde_json::from_value(json!({
        "envelope": {"msg_id": format!("{:032x}", 1), "ts": "2026-11-20T00:00:00Z", "from": "exchange://llmx",
            "to": ["agent://alice"], "negotiation": negotiation},
        "payload": payload,
    }))
    .unwrap();
    keeper.handle(&alice, Instant::now(), Observed::Delivered { delivery: &delivery, is_repeat: false });
}
