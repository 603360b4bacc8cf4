//! Anything at all that is said to a team and its tasks: nothing panics, the reference says the same, and nothing takes long.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "how long it takes is what is measured")]

use std::sync::Arc;
use std::time::Instant;

use fuzzing::Fuzzing;
use policy_core::{Effect, LaneState, Limits};
use policy_reference::{Reference, fact};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::draws::Draws;
use crate::gathering::pinned_team;

/// Messages of a quick run.
const MESSAGES: u64 = 20_000;
/// Messages to one team, until another is called.
const PER_TEAM: u64 = 60;
const MEMBERS: [&str; 4] = ["alice", "bob", "carol", "dan"];

/// A lane and the reference, in which one team after another is called.
struct FuzzedLane {
    draws: Draws,
    lane_state: LaneState,
    /// Folds the same: of what an input takes the lesser counts, because whoever folds may be interrupted.
    twin: LaneState,
    reference: Reference,
    now: Timestamp,
    teams: u64,
    messages: u64,
    fuzzing: Fuzzing,
}

#[test]
fn nothing_that_is_said_to_a_team_makes_it_panic_or_take_long() {
    let limits = Limits { tombstone_grace_ms: 500, tombstones_max: 64, open_max: 256, ..Limits::default() };
    let mut lane = FuzzedLane {
        draws: Draws::of(20_261_123),
        lane_state: LaneState::new(Lane(0), limits.clone()),
        twin: LaneState::new(Lane(0), limits.clone()),
        reference: Reference::new(&limits),
        now: Timestamp::from_ms(1_000_000),
        teams: 0,
        messages: 0,
        fuzzing: Fuzzing::begin("team-messages", MESSAGES),
    };
    while lane.fuzzing.goes_on() {
        lane.play();
    }
    lane.fuzzing.finish();
}

impl FuzzedLane {
    /// One team, from its call to whatever it comes to.
    fn play(&mut self) {
        self.teams += 1;
        let team = NegotiationId::try_new(&format!("alice~job{}", self.teams)).expect("an id");
        let rules = json!({"speak_ms": 1000, "ends_within_ms": 60_000, "turns": 1 + self.draws.below(40),
            "on_repeat": self.draws.pick(&["pass", "reference", "refuse"]), "max_strikes": 1 + self.draws.below(20),
            "at_conclusion": self.draws.pick(&["settle", "cancel", "leave"])});
        let call = json!({"act": "cfp", "task": "write", "team": rules, "reply_within_ms": 100});
        let mut message = self.message(&team, "alice", Act::Cfp, &call);
        message.pinned = Some(Arc::new(pinned_team(&MEMBERS[1..])));
        self.fold(message);
        for member in &MEMBERS[1..] {
            let message = self.message(&team, member, Act::Join, &json!({"act": "join"}));
            self.fold(message);
        }
        for _ in 0..PER_TEAM {
            let message = self.any_message(&team);
            self.fold(message);
        }
    }

    fn any_message(&mut self, team: &NegotiationId) -> AdmittedMessage {
        let draws = &mut self.draws;
        let who = if draws.one_in(20) { "mallory" } else { draws.pick(&MEMBERS) };
        let act = draws.pick(&[
            Act::Say,
            Act::Say,
            Act::Assign,
            Act::Assign,
            Act::Pause,
            Act::Conclude,
            Act::Join,
            Act::Accept,
        ]);
        let in_task = draws.pick(&[Act::Offer, Act::Confirm, Act::Inform, Act::Cancel, Act::Failure]);
        let task = u32::try_from(1 + draws.below(6)).expect("few");
        let (negotiation, act) =
            if draws.one_in(3) { (team.task(task).expect("a task's"), in_task) } else { (team.clone(), act) };
        let mut payload = payload(draws, act);
        for _ in 0..draws.below(3) {
            spoil(draws, &mut payload);
        }
        payload["act"] = json!(act);
        self.message(&negotiation, who, act, &payload)
    }

    fn message(&self, negotiation: &NegotiationId, from: &str, act: Act, payload: &Value) -> AdmittedMessage {
        let envelope = json!({"msg_id": format!("m{}", self.messages + 1), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": negotiation});
        let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("integers and texts");
        let body = String::from_utf8(body).expect("text");
        AdmittedMessage {
            from: AgentId::try_new(from).expect("a name"),
            negotiation: negotiation.clone(),
            act,
            digest: Digest::of_bytes(body.as_bytes()),
            body: RawValue::from_string(body).expect("JSON").into(),
            pinned: None,
            receipts_all: true,
            capabilities: Vec::new(),
        }
    }

    fn fold(&mut self, message: AdmittedMessage) {
        self.messages += 1;
        self.now = Timestamp(self.now.0 + self.draws.below(100_000) as u64);
        let record = Record::new("test", vec![Entry::Message(message)]);
        let seq = self.lane_state.position() + 1;
        let now = self.now;
        let fold = |lane_state: &mut LaneState| {
            let began = Instant::now();
            lane_state.handle_record(seq, now, &record);
            let effects: Vec<Effect> = std::iter::from_fn(|| lane_state.poll_effect()).collect();
            (began.elapsed(), effects)
        };
        let (cost, effects) = fold(&mut self.lane_state);
        let (again, same) = fold(&mut self.twin);
        assert_eq!(fact::facts(&same), fact::facts(&effects), "message {}", self.messages);
        self.fuzzing.note(cost.min(again), || format!("{record:?}"));
        let expected = self.reference.fold(seq, self.now, &record);
        self.reference.note(&effects);
        assert_eq!(fact::facts(&effects), expected, "message {}", self.messages);
    }
}

/// What an act carries, where nothing is spoiled.
fn payload(draws: &mut Draws, act: Act) -> Value {
    match act {
        Act::Say => json!({"text": text(draws), "next": draws.pick(&MEMBERS)}),
        Act::Assign => {
            let tasks: Vec<Value> = (0..1 + draws.below(17)).map(|_| task(draws)).collect();
            json!({"mode": draws.pick(&["sync", "async"]), "tasks": tasks})
        }
        Act::Pause => {
            let triggers: Vec<usize> = (0..1 + draws.below(4)).map(|_| draws.below(6)).collect();
            json!({"triggers": triggers, "text": text(draws)})
        }
        Act::Conclude => json!({"text": text(draws)}),
        Act::Accept => json!({"offer_id": "o1-0", "terms_digest": "0".repeat(64)}),
        Act::Offer => json!({"terms": {"fit": draws.below(1_000_001), "delivery_ms": 0}}),
        Act::Confirm => json!({"award_no": draws.below(3)}),
        Act::Inform => json!({"kind": draws.pick(&["result", "done", "cancelled"]), "result": text(draws)}),
        Act::Failure => json!({"phase": "perform", "code": "broken"}),
        _ => json!({}),
    }
}

fn task(draws: &mut Draws) -> Value {
    let mut task = json!({"title": "it", "text": text(draws)});
    match draws.below(4) {
        0 => task["owner"] = json!(draws.pick(&MEMBERS)),
        1 => task["requires"] = json!(["wings"]),
        _ => {}
    }
    if draws.one_in(4) {
        task["perform_ms"] = number(draws);
    }
    if draws.one_in(4) {
        task["reply_within_ms"] = number(draws);
    }
    task
}

/// Puts something else in the place of a member, or adds one.
fn spoil(draws: &mut Draws, payload: &mut Value) {
    let names = ["turn", "text", "next", "tasks", "triggers", "mode", "policy", "award_no", "terms", "unknown"];
    let value = match draws.below(6) {
        0 => number(draws),
        1 => json!(text(draws)),
        2 => json!([number(draws), number(draws)]),
        3 => json!({"text": text(draws)}),
        4 => Value::Null,
        _ => json!([task(draws), number(draws)]),
    };
    payload[draws.pick(&names)] = value;
}

fn number(draws: &mut Draws) -> Value {
    let edge =
        draws.pick(&[0, 1, 2, 64, 65, 1000, 1001, 3_600_000, 86_400_001, i64::from(u32::MAX), (1 << 53) - 1, -1]);
    json!(edge)
}

/// Few words, or as many characters as a text may have and one more, of any kind.
fn text(draws: &mut Draws) -> String {
    let kinds =
        ["a", "B", "7", " ", "\n", "\u{0}", "\"", "\\", "-", "ü", "図", "\u{202e}", "\u{1f600}", "\u{301}", "ẞ"];
    match draws.below(8) {
        0 => String::new(),
        1 => draws.pick(&kinds).repeat(4096 + draws.below(2)),
        2 => (0..4096).map(|_| draws.pick(&kinds)).collect(),
        3 => (0..800).map(|_| format!("w{} ", draws.below(500))).collect(),
        _ => (0..draws.below(12))
            .map(|_| format!("{} ", draws.pick(&["we", "write", "the", "survey", "7", "図"])))
            .collect(),
    }
}
