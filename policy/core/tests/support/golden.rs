//! Golden logs: one file each, a log and what folding it leads to, one document per line (`golden/README.md`).

#![allow(dead_code, unreachable_pub, reason = "one test crate writes golden logs, another reads them")]

use std::path::PathBuf;

use policy_core::{Effect, Event, LaneState, Limits};
use schemas::digest::canonical;
use schemas::record::Record;
use schemas::{Digest, Lane, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A digest stands after so many records, and after the last one.
const DIGEST_EVERY: usize = 16;

/// A log of one lane.
pub struct GoldenLog {
    pub lane: Lane,
    pub limits: Limits,
    pub records: Vec<Logged>,
}

/// One record.
#[derive(Serialize, Deserialize)]
pub struct Logged {
    pub seq: u64,
    pub time: Timestamp,
    pub record: Record,
}

/// Where golden files stand.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The folder of a rules version.
pub fn rules_folder(version: u32) -> PathBuf {
    folder().join(format!("rules-{version}"))
}

/// The snapshot of a format: of the first bargain, where it holds most.
pub fn snapshot_file(format: u32) -> PathBuf {
    folder().join(format!("snapshots/format-{format}.bin"))
}

/// What the panels of a rules version come to.
pub fn evidence_file(version: u32) -> PathBuf {
    folder().join(format!("evidence/rules-{version}.jsonl"))
}

impl GoldenLog {
    /// The log in a golden file, without what it led to.
    pub fn read(text: &str) -> Self {
        let header: Value = serde_json::from_str(text.lines().next().expect("a header")).expect("a document");
        let lane = serde_json::from_value(header["lane"].clone()).expect("a lane");
        let records = text.lines().filter(|line| line.starts_with(r#"{"seq":"#));
        let records = records.map(|line| serde_json::from_str(line).expect("a record")).collect();
        Self { lane, limits: read_limits(&header["limits"]), records }
    }

    /// The golden file of this log, as this build folds it.
    pub fn transcript(&self) -> String {
        let mut lane_state = self.lane_state();
        let mut told = Digest([0; 32]);
        let mut lines = vec![json!({"lane": self.lane, "limits": write_limits(&self.limits)}).to_string()];
        for (index, logged) in self.records.iter().enumerate() {
            lines.push(serde_json::to_string(logged).expect("a record is JSON"));
            let effects = logged.fold(&mut lane_state);
            lines.extend(effects.iter().filter_map(consequence));
            told = effects
                .iter()
                .filter_map(words)
                .fold(told, |told, words| Digest::of_parts(&[&told.0, words.as_bytes()]));
            if (index + 1) % DIGEST_EVERY == 0 || index + 1 == self.records.len() {
                let digests = json!({"digest": lane_state.digest(), "position": lane_state.position(), "told": told});
                lines.push(digests.to_string());
            }
        }
        lines.join("\n") + "\n"
    }

    /// An empty lane state for it.
    pub fn lane_state(&self) -> LaneState {
        LaneState::new(self.lane, self.limits.clone())
    }
}

impl Logged {
    /// Folds it.
    pub fn fold(&self, lane_state: &mut LaneState) -> Vec<Effect> {
        lane_state.handle_record(self.seq, self.time, &self.record);
        std::iter::from_fn(|| lane_state.poll_effect()).collect()
    }
}

/// What a golden file says of an effect in full.
fn consequence(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Event(Event::Decided(decision)) => Some(format!(r#"{{"decision":{}}}"#, text(&**decision))),
        Effect::Event(Event::Found(decision)) => Some(format!(r#"{{"decision":{}}}"#, text(&**decision))),
        Effect::Register(write) => Some(format!(r#"{{"register":"{}","value":{}}}"#, write.key, text(&write.value))),
        Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => None,
    }
}

/// What goes into the digest of everything told.
fn words(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Deliver(deliver) => {
            let waits = deliver.after.as_ref().map(ToString::to_string);
            let (from, answers) = (&deliver.from, &deliver.in_reply_to);
            let times = (deliver.at, deliver.expires, deliver.qos, &deliver.traceparent);
            let told = (&deliver.told, &deliver.receipts);
            let parts = (&deliver.id, &deliver.to, &deliver.negotiation, from, answers, told, times, waits);
            Some(text(&parts))
        }
        Effect::Notice(notice) => Some(text(&(&notice.to, &notice.notice))),
        Effect::Register(_) | Effect::Event(_) => None,
    }
}

fn text(document: &impl Serialize) -> String {
    String::from_utf8(canonical(document).expect("integers and texts")).expect("JSON is UTF-8")
}

fn write_limits(limits: &Limits) -> Value {
    json!({
        "open_max": limits.open_max,
        "invited_max": limits.invited_max,
        "messages_per_party_max": limits.messages_per_party_max,
        "tombstones_max": limits.tombstones_max,
        "tombstone_grace_ms": limits.tombstone_grace_ms,
        "stranger_receipt_ms": limits.stranger_receipt_ms,
        "names_shared_max": limits.names_shared_max,
        "winners_max": limits.winners_max,
    })
}

fn read_limits(limits: &Value) -> Limits {
    let count = |name: &str| usize::try_from(time(limits, name)).expect("a count");
    Limits {
        open_max: count("open_max"),
        invited_max: count("invited_max"),
        messages_per_party_max: count("messages_per_party_max"),
        tombstones_max: count("tombstones_max"),
        tombstone_grace_ms: time(limits, "tombstone_grace_ms"),
        stranger_receipt_ms: time(limits, "stranger_receipt_ms"),
        names_shared_max: count("names_shared_max"),
        winners_max: count("winners_max"),
    }
}

fn time(limits: &Value, name: &str) -> u64 {
    limits[name].as_u64().unwrap_or_else(|| panic!("the header names no {name}"))
}
