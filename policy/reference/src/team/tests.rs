//! Scripts of teams, as docs/spec/team.md tells them.

use std::sync::Arc;

use policy_core::{Limits, preset};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, Entry, Invitation, Pinned, Qos, Record, TaskPolicy};
use schemas::{Act, AgentId, Digest, NegotiationId, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Reference;

#[test]
fn the_floor_goes_round_and_a_conclusion_is_told_to_every_member() {
    let mut team = Script::formed(json!({}));
    let facts = team.say("ann", Act::Say, json!({"text": "well"}));
    assert!(
        facts.iter().any(|fact| fact.contains("cat Floor { step: 2, turn: 2") && fact.contains("bob")),
        "{facts:#?}"
    );
    assert!(!facts.iter().any(|fact| fact.contains(" ann Floor")));
    assert!(facts.iter().any(|fact| fact.ends_with("Ok None None step 2 turn Some(2) []")), "{facts:#?}");
    let facts = team.say("bob", Act::Conclude, json!({"text": "done"}));
    assert_eq!(facts.iter().filter(|fact| fact.contains("closed Concluded")).count(), 3);
}

#[test]
fn silence_passes_the_floor_to_the_lead_and_mutes_in_the_end() {
    let mut team = Script::formed(json!({"max_strikes": 1}));
    let facts = team.wait(1_001);
    assert!(facts.iter().any(|fact| fact.contains("turn: 2") && fact.contains("muted: [AgentId(ann)]")), "{facts:#?}");
    let facts = team.wait(1_001);
    assert!(facts.iter().any(|fact| fact.contains("speaker: Some(AgentId(cat))")), "{facts:#?}");
    let facts = team.wait(1_001);
    assert_eq!(facts.iter().filter(|fact| fact.contains("closed Unconcluded Some(\"silence\")")).count(), 3);
}

#[test]
fn the_last_awaited_task_gives_the_floor_back_in_its_own_step() {
    let mut team = Script::formed(json!({}));
    let tasks = json!([{"title": "a", "text": "b", "owner": "bob"}, {"title": "c", "text": "d", "owner": "cat"}]);
    let facts = team.say("ann", Act::Assign, json!({"mode": "sync", "tasks": tasks}));
    assert!(facts.iter().any(|fact| fact.contains("state: Awaiting") && fact.contains("waits: [1, 2]")), "{facts:#?}");
    assert!(facts.iter().any(|fact| fact.starts_with("ann~job~t1 bob accept")), "{facts:#?}");
    for (who, task, state) in [("bob", 1, "Awaiting"), ("cat", 2, "Discussing")] {
        team.in_task(who, task, Act::Confirm, json!({"award_no": 1}));
        let facts = team.in_task(who, task, Act::Inform, json!({"kind": "result", "result": "42"}));
        let floors: Vec<&String> = facts.iter().filter(|fact| fact.contains(" Floor ")).collect();
        assert_eq!(floors.len(), 3);
        assert!(floors.iter().all(|floor| floor.contains(state) && floor.contains("42")), "{floors:#?}");
    }
}

#[test]
fn whoever_leaves_takes_its_awards_along() {
    let mut team = Script::formed(json!({"at_conclusion": "cancel"}));
    let tasks = json!([{"title": "a", "text": "b", "owner": "bob"}]);
    team.say("ann", Act::Assign, json!({"mode": "async", "tasks": tasks}));
    let facts = team.say("bob", Act::End, json!({}));
    assert!(facts.iter().any(|fact| fact.contains("closed NoCandidate")), "{facts:#?}");
    assert!(
        facts.iter().any(|fact| fact.contains("status: Failed") && fact.contains("code: Some(\"left\")")),
        "{facts:#?}"
    );
}

#[test]
fn a_task_without_an_owner_goes_to_the_best_offer() {
    let mut team = Script::formed(json!({}));
    team.say("ann", Act::Assign, json!({"mode": "async", "tasks": [{"title": "a", "text": "b"}]}));
    team.in_task("bob", 1, Act::Offer, json!({"terms": {"price": 900000000, "delivery_ms": 1}}));
    let facts = team.in_task("cat", 1, Act::Offer, json!({"terms": {"price": 5, "delivery_ms": 1}}));
    assert!(facts.iter().any(|fact| fact.starts_with("ann~job~t1 cat accept")), "{facts:#?}");
}

/// Ann, bob and cat in a team.
struct Script {
    reference: Reference,
    now: Timestamp,
    seq: u64,
}

impl Script {
    fn formed(rules: Value) -> Self {
        let mut script =
            Self { reference: Reference::new(&Limits::default()), now: Timestamp::from_ms(1_000_000), seq: 0 };
        let mut team = json!({"members": {"min": 2, "max": 4}, "speak_ms": 1000});
        for (name, value) in rules.as_object().expect("members") {
            team[name] = value.clone();
        }
        let mut call = script.message("ann", Act::Cfp, json!({"team": team, "reply_within_ms": 5000}), &id());
        let policy = Arc::new(preset("high").expect("a preset"));
        let digest = policy.digest().expect("integers and texts");
        let invited = ["bob", "cat"].map(|name| Invitation {
            agent: agent(name),
            qos: Qos::AtLeastOnce,
            durable: false,
            reputation: None,
        });
        call.pinned = Some(Arc::new(Pinned {
            policy: Arc::clone(&policy),
            policy_digest: digest,
            invited: invited.to_vec(),
            left_out: 0,
            task_policy: Some(TaskPolicy { policy, digest }),
            panel: None,
        }));
        script.fold(Entry::Message(call));
        script.say("bob", Act::Join, json!({}));
        let facts = script.say("cat", Act::Join, json!({}));
        assert!(facts.iter().any(|fact| fact.contains("ann Floor { step: 1, turn: 1")), "{facts:#?}");
        script
    }

    fn say(&mut self, from: &str, act: Act, payload: Value) -> Vec<String> {
        let message = self.message(from, act, payload, &id());
        self.fold(Entry::Message(message))
    }

    fn in_task(&mut self, from: &str, task: u32, act: Act, payload: Value) -> Vec<String> {
        let message = self.message(from, act, payload, &id().task(task).expect("a team's"));
        self.fold(Entry::Message(message))
    }

    fn wait(&mut self, ms: u64) -> Vec<String> {
        self.now = self.now.plus_ms(ms);
        self.fold(Entry::Tick)
    }

    fn fold(&mut self, entry: Entry) -> Vec<String> {
        self.seq += 1;
        self.reference.fold(self.seq, self.now, &Record::new("test", vec![entry]))
    }

    fn message(&self, from: &str, act: Act, mut payload: Value, negotiation: &NegotiationId) -> AdmittedMessage {
        payload["act"] = json!(act);
        let envelope = json!({"msg_id": format!("m{}", self.seq), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": negotiation});
        let body = canonical(&json!({"envelope": envelope, "payload": payload})).expect("integers and texts");
        AdmittedMessage {
            from: agent(from),
            negotiation: negotiation.clone(),
            act,
            digest: Digest::of_bytes(&body),
            body: RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON").into(),
            pinned: None,
            receipts_all: true,
            capabilities: Vec::new(),
        }
    }
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}

fn id() -> NegotiationId {
    NegotiationId::try_new("ann~job").expect("an id")
}
