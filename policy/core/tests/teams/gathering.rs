//! A team as a script: alice calls, the invited join, and the floor is alice's.

use std::sync::Arc;

use policy_core::preset;
use schemas::delivery::{Closing, Notification};
use schemas::record::{AdmittedMessage, Entry, Pinned, TaskPolicy};
use schemas::team::Floor;
use schemas::{Act, Digest};
use serde_json::{Value, json};

use crate::script::{INITIATOR, Script, pinned};

/// How long the floor may be held in silence.
pub(crate) const SPEAK_MS: u64 = 1000;
/// The team ends then at the latest.
pub(crate) const ENDS_MS: u64 = 100_000;
/// Everybody must have joined by then.
pub(crate) const REPLY_MS: u64 = 100;
/// Everybody has joined by then.
pub(crate) const BEGIN_MS: u64 = 10;

/// A lane with one team.
pub(crate) struct Gathering {
    pub(crate) script: Script,
}

impl Gathering {
    /// An empty lane.
    pub(crate) fn empty() -> Self {
        Self { script: Script::empty() }
    }

    /// Of `members`, the first of which is alice; all of them have joined.
    pub(crate) fn of(members: &[&str], change: Value) -> Self {
        let mut gathering = Self::empty();
        gathering.call(&members[1..], change, json!({}));
        for member in &members[1..] {
            gathering.say(BEGIN_MS, member, Act::Join, json!({}));
        }
        gathering
    }

    /// Alice calls; `change` is merged into the rules, `payload` into the call.
    pub(crate) fn call(&mut self, invited: &[&str], change: Value, payload: Value) -> Vec<String> {
        let message = self.called(invited, change, payload);
        self.send(0, message)
    }

    /// What alice calls with.
    pub(crate) fn called(&mut self, invited: &[&str], change: Value, payload: Value) -> AdmittedMessage {
        let mut rules = json!({"speak_ms": SPEAK_MS, "ends_within_ms": ENDS_MS, "on_repeat": "pass"});
        merge(&mut rules, change);
        let mut document = json!({"task": "write", "team": rules, "reply_within_ms": REPLY_MS});
        merge(&mut document, payload);
        let mut message = self.script.message(INITIATOR, Act::Cfp, document, json!({}));
        message.pinned = Some(Arc::new(pinned_team(invited)));
        message
    }

    pub(crate) fn send(&mut self, at_ms: u64, message: AdmittedMessage) -> Vec<String> {
        self.script.fold(at_ms, vec![Entry::Message(message)])
    }

    pub(crate) fn say(&mut self, at_ms: u64, who: &str, act: Act, payload: Value) -> Vec<String> {
        self.script.say(at_ms, who, act, payload)
    }

    /// SAY, with the floor for whoever comes next.
    pub(crate) fn speak(&mut self, at_ms: u64, who: &str) -> Vec<String> {
        self.say(at_ms, who, Act::Say, json!({"text": "well"}))
    }

    pub(crate) fn conclude(&mut self, at_ms: u64, who: &str) -> Vec<String> {
        self.say(at_ms, who, Act::Conclude, json!({"text": "so"}))
    }

    /// A vote for the conclusion that `who` was told last.
    pub(crate) fn approve(&mut self, at_ms: u64, who: &str) -> Vec<String> {
        let told = self.floor(who).conclusion.expect("a conclusion is voted on");
        self.say(at_ms, who, Act::Accept, json!({"offer_id": told.offer_id, "terms_digest": told.terms_digest}))
    }

    /// The floor as an agent was told it last.
    pub(crate) fn floor(&self, who: &str) -> Floor {
        let Notification::Floor(floor) = &*self.script.last(who, Act::Floor).told else { panic!("asked for FLOOR") };
        Floor::clone(floor)
    }

    /// The end as an agent was told it.
    pub(crate) fn closing(&self, who: &str) -> Closing {
        let Notification::Closed(closing) = &*self.script.last(who, Act::Closed).told else {
            panic!("asked for CLOSED")
        };
        closing.clone()
    }
}

/// What a gateway pins to the call of a team: `team-seats` to rank who joins, `team-task` for tasks.
pub(crate) fn pinned_team(invited: &[&str]) -> Pinned {
    let policy = preset("team-task").expect("a preset");
    let digest: Digest = policy.digest().expect("canonical");
    let task_policy = Some(TaskPolicy { policy: Arc::new(policy), digest });
    Pinned { task_policy, ..pinned(preset("team-seats").expect("a preset"), invited) }
}

pub(crate) fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        document[name] = value;
    }
}
