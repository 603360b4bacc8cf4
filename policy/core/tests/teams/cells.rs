//! Every act that agents send, of every kind of sender, in every state of a team: what it is answered and what follows
//! (docs/spec/team.md#what-is-legal). The table stands in `tests/data/team_cells.txt`; the naive reference must come to the same
//! facts in every cell.

#![allow(clippy::disallowed_methods, reason = "the table is read, and written by whoever renews it")]

use std::fs;
use std::path::PathBuf;

use policy_core::{Effect, Limits};
use policy_reference::{Reference, fact};
use schemas::delivery::Notification;
use schemas::{Act, Digest};
use serde_json::{Value, json};

use crate::gathering::{BEGIN_MS, Gathering, SPEAK_MS};

/// The states, in the order of the table.
const STATES: [&str; 7] = ["forming", "discussing", "awaiting", "paused", "concluding", "voting", "ended"];
/// What agents send; ANSWER is of panels alone.
const ACTS: [Act; 16] = [
    Act::Cfp,
    Act::Offer,
    Act::Refuse,
    Act::NotUnderstood,
    Act::Withdraw,
    Act::Accept,
    Act::Confirm,
    Act::Inform,
    Act::Failure,
    Act::Cancel,
    Act::Join,
    Act::End,
    Act::Say,
    Act::Assign,
    Act::Pause,
    Act::Conclude,
];
/// Who sends, and what it is in the team.
const SENDERS: [(&str, &str); 6] = [
    ("bob", "holder"),
    ("alice", "lead"),
    ("carol", "member"),
    ("dan", "left"),
    ("erin", "unseated"),
    ("mallory", "stranger"),
];
/// When the act of a cell is said, unless its state begins later.
const SAID_MS: u64 = 40;
/// What stands where the fold does not know the act, or cannot come to the state, yet.
const NOT_IN_FORCE: &str = "not in force";
const HEADER: &str = "\
# What a team answers to every act, and what follows: state, act, sender, effects. Written by
# `cargo test -p policy_core --test teams -- --ignored writes_the_table_of_cells`, and compared by every run of the tests.
#
# alice leads; bob holds the floor, or held it when the state was entered (while forming he has joined); carol is another
# member; dan has left (while forming: declined); erin was invited and has no seat; mallory is a stranger. With one strike a
# member is muted, so that `+muted:` shows every strike. Effects are written as in `tests/support/effect_text.rs`.
";

/// A team in some state, on both sides.
struct Pair {
    gathering: Gathering,
    reference: Reference,
    /// Records that the reference has folded, and effects compared.
    folded: usize,
    compared: usize,
}

impl Pair {
    /// In a state of the table, and when the next message comes; absent where the fold cannot come to it yet.
    fn in_state(state: &str) -> Option<(Self, u64)> {
        let mut pair = Self {
            gathering: Gathering::empty(),
            reference: Reference::new(&Limits::default()),
            folded: 0,
            compared: 0,
        };
        let rules = json!({
            "members": {"max": 4}, "max_strikes": 1, "turns": if state == "concluding" { 1 } else { 8 },
            "vote": if state == "voting" { json!({"of": "all"}) } else { Value::Null },
        });
        let call = pair.gathering.called(&["bob", "carol", "dan", "erin"], rules, json!({}));
        pair.gathering.send(0, call);
        for who in ["bob", "carol", "dan"] {
            if state != "forming" || who != "dan" {
                pair.gathering.say(BEGIN_MS, who, Act::Join, json!({}));
            }
        }
        pair.gathering.say(BEGIN_MS + 1, "dan", Act::End, json!({}));
        if state == "forming" {
            return Some((pair, SAID_MS));
        }
        pair.gathering.say(BEGIN_MS + 2, "alice", Act::Say, json!({"text": "well", "next": "bob"}));
        let mut at_ms = SAID_MS;
        match state {
            "awaiting" => pair.enters(20, Act::Assign, assignment("sync"))?,
            "paused" => {
                pair.enters(20, Act::Assign, assignment("async"))?;
                pair.enters(21, Act::Pause, json!({"triggers": [1]}))?;
            }
            "concluding" => {
                // The lead is asked first, and says nothing.
                at_ms = BEGIN_MS + 3 + SPEAK_MS;
                drop(pair.gathering.script.tick(at_ms));
            }
            "voting" | "ended" => pair.enters(20, Act::Conclude, json!({"text": "so"}))?,
            _ => {}
        }
        Some((pair, at_ms))
    }

    /// Bob enters the state; absent where the fold does not know the act yet.
    fn enters(&mut self, at_ms: u64, act: Act, payload: Value) -> Option<()> {
        let texts = self.gathering.say(at_ms, "bob", act, payload);
        (!is_unsupported(&texts)).then(|| assert_eq!(texts[0], "bob<ack:ok", "{act}: {texts:?}"))
    }

    /// Holds whatever was folded since against the reference.
    fn compare(&mut self, what: &str) {
        let script = &self.gathering.script;
        let mut expected = Vec::new();
        for (seq, time, record) in &script.log()[self.folded..] {
            expected.extend(self.reference.fold(*seq, *time, record));
            self.reference.note(&script.effects[self.compared..]);
        }
        expected.sort();
        let found = fact::facts(&script.effects[self.compared..]);
        assert_eq!(found, expected, "{what}: the fold, and the reference");
        let counts = (script.lane_state.open_count(), script.lane_state.tombstone_count());
        assert_eq!(counts, self.reference.counts(), "{what}: open, ended");
        assert_eq!(script.lane_state.poll_deadline(), self.reference.deadline(), "{what}: the next deadline");
        (self.folded, self.compared) = (script.log().len(), script.effects.len());
    }
}

/// The effects of one cell.
fn cell(state: &str, act: Act, sender: &str) -> String {
    let what = format!("{act} of {sender} while {state}");
    let Some((mut pair, at_ms)) = Pair::in_state(state) else { return NOT_IN_FORCE.to_owned() };
    pair.compare(&what);
    let (told, compared) = (pair.gathering.script.deliveries.len(), pair.compared);
    let payload = payload(&pair.gathering, act);
    let message = pair.gathering.script.message(sender, act, payload, json!({}));
    let texts = pair.gathering.send(at_ms, message);
    if is_unsupported(&texts) {
        return NOT_IN_FORCE.to_owned();
    }
    pair.compare(&what);
    let is_followed = texts.first() == Some(&format!("{sender}<ack:ok"));
    if !is_followed {
        assert_refused(&pair.gathering, told, &what, sender);
    }
    let muted = muted(&pair.gathering.script.effects[compared..]);
    muted.map_or_else(|| texts.join(" "), |muted| format!("{} +muted:{muted}", texts.join(" ")))
}

/// A message that is not followed takes no turn, opens nothing, and others hear of a strike alone.
fn assert_refused(gathering: &Gathering, told: usize, what: &str, sender: &str) {
    let others = gathering.script.deliveries[told..].iter().filter(|deliver| deliver.to.as_str() != sender);
    for deliver in others {
        let Notification::Floor(floor) = &*deliver.told else { panic!("{what}: {} hears {deliver:?}", deliver.to) };
        assert!(!floor.muted.is_empty() && floor.said.is_none() && floor.tasks.is_empty(), "{what}: {floor:?}");
    }
}

/// Who is muted by then, of a strike.
fn muted(effects: &[Effect]) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        Effect::Deliver(deliver) => match &*deliver.told {
            Notification::Floor(floor) => floor.muted.first().map(ToString::to_string),
            _ => None,
        },
        _ => None,
    })
}

fn is_unsupported(texts: &[String]) -> bool {
    texts.iter().any(|text| text.contains("not_understood:unsupported_rules"))
}

fn assignment(mode: &str) -> Value {
    json!({"mode": mode, "tasks": [{"title": "figures", "text": "draw figure 1", "owner": "carol"}]})
}

/// What is sent: well formed, and about this team.
fn payload(gathering: &Gathering, act: Act) -> Value {
    match act {
        Act::Cfp => json!({"task": "another"}),
        Act::Offer => json!({"terms": {}}),
        Act::Accept => {
            let floors = gathering.script.deliveries.iter().rev().filter_map(|deliver| match &*deliver.told {
                Notification::Floor(floor) => floor.conclusion.clone(),
                _ => None,
            });
            let meant = floors.map(|told| json!({"offer_id": told.offer_id, "terms_digest": told.terms_digest})).next();
            meant.unwrap_or_else(|| json!({"offer_id": "o1-0", "terms_digest": Digest([0; 32])}))
        }
        Act::Confirm => json!({"award_no": 1}),
        Act::Inform => json!({"kind": "done"}),
        Act::Failure => json!({"phase": "perform", "code": "broken"}),
        Act::Say | Act::Conclude => json!({"text": "x"}),
        Act::Assign => assignment("async"),
        Act::Pause => json!({"triggers": [1]}),
        _ => json!({}),
    }
}

/// The whole table, and how many of its cells are in force.
fn table() -> (String, usize) {
    let mut lines = vec![HEADER.to_owned()];
    let mut in_force = 0;
    for state in STATES {
        for act in ACTS {
            for (sender, role) in SENDERS {
                let effects = cell(state, act, sender);
                in_force += usize::from(effects != NOT_IN_FORCE);
                lines.push(format!("{state:<10} {act:<14} {role:<8} {effects}\n", act = act.as_str()));
            }
        }
    }
    (lines.concat(), in_force)
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/team_cells.txt")
}

#[test]
fn every_cell_of_the_table_is_as_it_stands_and_as_the_reference_says() {
    let (found, in_force) = table();
    let cells = STATES.len() * ACTS.len() * SENDERS.len();
    let expected = fs::read_to_string(file()).expect("the table");
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "the table has changed: its header says how it is written anew");
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "lines");
    println!("cells {cells} in_force {in_force} equal {in_force}");
}

#[test]
#[ignore = "writes the table anew"]
fn writes_the_table_of_cells() {
    fs::write(file(), table().0).expect("the table is written");
}
