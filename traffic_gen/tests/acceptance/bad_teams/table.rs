//! Everybody, and a team whose lead looks at it before and after each row.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Delivery, Notification};
use serde_json::{Value, json};

use super::addresses;
use crate::rig::{Rig, open_registration};
use crate::speaker::{Row, Speaker, Way, merged, view};

/// Those that take every call; alice leads.
const AGENTS: [&str; 6] = ["alice", "bob", "carol", "dan", "erin", "stranger"];

/// Everybody, connected by one way, and the team that is spoken to.
pub(super) struct Table<'a> {
    pub(super) rig: &'a Rig,
    speakers: Vec<Speaker>,
    calls: u32,
    /// The team that is spoken to.
    pub(super) team: String,
}

impl<'a> Table<'a> {
    pub(super) async fn start(rig: &'a Rig, way: Way) -> Self {
        let transport = way.into(rig);
        let mut speakers = Vec::new();
        for name in AGENTS {
            rig.register(name, &open_registration()).await;
            speakers.push(Speaker::connect(rig, &*transport, name).await);
        }
        Self { rig, speakers, calls: 0, team: String::new() }
    }

    pub(super) fn speaker(&mut self, name: &str) -> &mut Speaker {
        self.speakers.iter_mut().find(|speaker| speaker.name == name).unwrap()
    }

    /// Alice's call; `to` among its members is whom it addresses instead of bob and carol.
    pub(super) async fn call(&mut self, cfp: Value) -> (String, String) {
        self.calls += 1;
        let own = format!("team-{}", self.calls);
        let mut cfp = merged(json!({ "act": "cfp", "task": "write" }), cfp);
        if cfp.get("reply_by").is_none() && cfp.get("reply_within_ms").is_none() {
            cfp["reply_within_ms"] = json!(60_000);
        }
        let to = cfp.as_object_mut().unwrap().remove("to").unwrap_or(json!(addresses(&["bob", "carol"])));
        let rules = cfp["team"].clone();
        cfp["team"] = merged(json!({ "speak_ms": 600_000, "ends_within_ms": 7_200_000, "max_strikes": 100 }), rules);
        let alice = self.speaker("alice");
        let mut document = alice.document(&own, cfp);
        document["envelope"]["to"] = to;
        (format!("alice~{own}"), alice.say_document(&document).await)
    }

    /// A call to a sub-team, of stranger.
    pub(super) async fn sub_call(&mut self, who: &str, cfp: Value) -> String {
        let mut cfp = merged(json!({ "act": "cfp", "task": "a part of it", "reply_within_ms": 20_000 }), cfp);
        cfp["team"] = merged(json!({ "speak_ms": 1000, "ends_within_ms": 30_000 }), cfp["team"].clone());
        let speaker = self.speaker(who);
        let mut document = speaker.document("", cfp);
        document["envelope"].as_object_mut().unwrap().remove("negotiation");
        document["envelope"]["to"] = json!(addresses(&["stranger"]));
        speaker.say_document(&document).await
    }

    /// A team of alice, bob and carol.
    pub(super) async fn form(&mut self, rules: Value) {
        let (team, found) = self.call(json!({ "team": rules })).await;
        assert_eq!(found, "ok", "{rules}");
        self.team.clone_from(&team);
        for name in ["bob", "carol"] {
            assert_eq!(self.speaker(name).say(&team, json!({ "act": "join" })).await, "ok");
        }
    }

    /// The team as its lead sees it.
    pub(super) async fn view(&self) -> Value {
        view(self.rig, &self.team).await
    }

    pub(super) async fn judge(&mut self, rows: Vec<Row>) {
        self.judge_at("", rows).await;
    }

    /// Of what is said to the team, or to something below it.
    pub(super) async fn judge_at(&mut self, below: &str, rows: Vec<Row>) {
        let mut wrong = Vec::new();
        let negotiation = format!("{}{below}", self.team);
        for (name, who, payload, expected) in rows {
            let before = self.view().await;
            let found = self.speaker(who).say(&negotiation, payload).await;
            wrong.extend((found != expected).then(|| format!("{name}: {found}, not {expected}")));
            if !["ok", "committed"].contains(&expected) && self.view().await != before {
                wrong.push(format!("{name}: {before} becomes {}", self.view().await));
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    /// Of a call to a sub-team that opens none.
    pub(super) async fn judge_call(&mut self, name: &str, who: &str, cfp: Value, expected: &str) {
        let before = self.view().await;
        assert_eq!(self.sub_call(who, cfp).await, expected, "{name}");
        assert_eq!(self.view().await, before, "{name}");
    }

    /// Until alice has heard that a task has ended.
    pub(super) async fn wait_for_task(&mut self, number: u32) {
        let team = self.team.clone();
        let ended = move |delivery: &Delivery| {
            let Notification::Floor(floor) = &delivery.payload else { return None };
            let is_it = delivery.envelope.negotiation.as_str() == team;
            let mut tasks = floor.tasks.iter().filter(|task| task.task == number);
            tasks.any(|task| is_it && task.code.is_some()).then_some(())
        };
        self.speaker("alice").hear(0, ended).await;
    }
    /// Alice calls the team off.
    pub(super) async fn finish(&mut self) {
        self.finish_by(json!({ "act": "cancel" })).await;
    }

    /// Every member has heard each step once, and of others' messages nothing but what they led to.
    pub(super) async fn finish_by(&mut self, end: Value) {
        let team = self.team.clone();
        assert_eq!(self.speaker("alice").say(&team, end).await, "ok");
        let mut heard = Vec::new();
        for name in ["alice", "bob", "carol"] {
            let speaker = self.speaker(name);
            let is_end = |told: &Delivery| told.envelope.negotiation.as_str() == team && is_closed(told);
            speaker.hear(0, |told| is_end(told).then_some(())).await;
            let steps = steps(speaker, &team);
            let last = steps.keys().next_back().copied().unwrap_or_default();
            heard.push((name, last));
        }
        let last = heard.iter().map(|(_, last)| *last).max().unwrap();
        assert!(last > 0, "the team has formed");
        for name in ["alice", "bob", "carol"] {
            let speaker = self.speaker(name);
            // What tells a task's end waits for the register, so it may come behind the end of its team.
            for step in 1..=last {
                speaker
                    .hear(0, |told| {
                        (told.envelope.negotiation.as_str() == team).then(|| step_of(told))?.filter(|it| *it == step)
                    })
                    .await;
            }
            let steps = steps(speaker, &team);
            assert!(steps.values().all(|told| *told == 1), "{name}: {steps:?}");
            assert!(steps.keys().copied().eq(1..=last), "{name}: {steps:?}");
            for told in speaker.heard.iter().filter(|told| told.envelope.negotiation.as_str().starts_with(&team)) {
                assert!(is_own(told, name), "{name} is told of another's message: {told:?}");
            }
        }
    }
}

fn is_closed(told: &Delivery) -> bool {
    matches!(told.payload, Notification::Closed(_))
}

/// Which step of its team a delivery tells.
fn step_of(told: &Delivery) -> Option<u32> {
    match &told.payload {
        Notification::Floor(floor) => Some(floor.step),
        Notification::Ack(receipt) => receipt.step,
        Notification::Cfp(_)
        | Notification::Accept(_)
        | Notification::Reject(_)
        | Notification::Cancel(_)
        | Notification::Inform(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Closed(_)
        | Notification::Turn(_)
        | Notification::Ask(_) => None,
    }
}

/// How often an agent was told each step of a team; repeats of one delivery are one.
fn steps(speaker: &Speaker, team: &str) -> BTreeMap<u32, u32> {
    let (mut ids, mut steps) = (BTreeSet::new(), BTreeMap::new());
    for told in speaker.heard.iter().filter(|told| told.envelope.negotiation.as_str() == team) {
        if let Some(step) = step_of(told).filter(|_| ids.insert(told.envelope.msg_id)) {
            *steps.entry(step).or_default() += 1;
        }
    }
    steps
}

/// Whether a receipt, or a refusal, is of the agent's own message.
fn is_own(told: &Delivery, name: &str) -> bool {
    let is_its = |msg_id: &str| msg_id.starts_with(&format!("{name}-"));
    let is_receipt = told.receipts.iter().all(|receipt| is_its(receipt.ack_of.as_str()));
    let is_answer = || told.envelope.in_reply_to.as_ref().is_some_and(|answered| is_its(answered.as_str()));
    is_receipt
        && match &told.payload {
            Notification::Ack(receipt) => is_its(receipt.ack_of.as_str()),
            Notification::NotUnderstood(_) | Notification::Reject(_) => is_answer(),
            Notification::Cfp(_)
            | Notification::Accept(_)
            | Notification::Cancel(_)
            | Notification::Inform(_)
            | Notification::Failure(_)
            | Notification::Closed(_)
            | Notification::Turn(_)
            | Notification::Ask(_)
            | Notification::Floor(_) => true,
        }
}
