use std::collections::BTreeSet;

use schemas::record::{Entry, Record};
use schemas::{Lane, Timestamp};
use serde_json::{Value, json};

use crate::lane::LaneState;
use crate::limits::Limits;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::protocols::{Negotiation, TableEntry};

#[test]
fn a_restored_lane_state_shares_what_was_shared_and_keeps_no_spare_room() {
    let lane_state = busy();
    let restored = LaneState::restore(&lane_state.snapshot(), Lane(0), Limits::default()).expect("a snapshot");
    let (before, after) = (Footprint::of(&lane_state), Footprint::of(&restored));
    assert!(after.spare <= before.spare && after.texts <= before.texts, "{before:?} before, {after:?} after");
    assert_eq!(after.agents, 4, "alice, a, b and c, each stored once");
    assert_eq!((before.policies, after.policies), (2, 2));
}

#[test]
fn names_of_a_restored_lane_state_are_shared_with_negotiations_to_come() {
    let lane_state = busy();
    let mut restored = LaneState::restore(&lane_state.snapshot(), Lane(0), Limits::default()).expect("a snapshot");
    fold(&mut restored, 125, vec![call("alice~later", "low", &["a", "c"])]);
    assert_eq!(Footprint::of(&restored).agents, 4);
}

/// What a lane state has allocated, as far as it can be told from inside.
#[derive(Debug, Default)]
struct Footprint {
    agents: usize,
    policies: usize,
    /// Message ids.
    texts: usize,
    /// Elements that lists could take without growing.
    spare: usize,
}

impl Footprint {
    fn of(lane_state: &LaneState) -> Self {
        let (mut agents, mut policies, mut texts, mut spare) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0);
        for entry in lane_state.table.entries_in_order() {
            match entry {
                TableEntry::Open(
                    Negotiation::Bargain(_) | Negotiation::Panel(_) | Negotiation::Team(_) | Negotiation::Auction(_),
                ) => {}
                TableEntry::Open(Negotiation::ContractNet(open)) => {
                    policies.extend(open.policies().into_iter().map(std::sync::Arc::as_ptr));
                    agents.extend(open.parties().map(|party| place(party.agent.as_str())));
                    texts.extend(open.message_ids().map(|id| place(id.as_str())));
                    spare += open.spare();
                }
                TableEntry::Ended(ended) => {
                    agents.extend(ended.parties.iter().map(|known| place(known.agent.as_str())));
                    spare += ended.seen.capacity() - ended.seen.len();
                }
            }
        }
        Self { agents: agents.len(), policies: policies.len(), texts: texts.len(), spare }
    }
}

fn place(text: &str) -> usize {
    text.as_ptr().addr()
}

/// Two open negotiations under one policy, one under another, and an ended one.
fn busy() -> LaneState {
    let mut lane_state = LaneState::new(Lane(0), Limits::default());
    fold(&mut lane_state, 1, vec![call("alice~ended", "low", &["a", "b"]), offer("alice~ended", "a")]);
    // Beyond its hard deadline, but not so far that it is forgotten.
    fold(&mut lane_state, 121, vec![Entry::Tick]);
    for (second, id, policy) in [(122, "alice~one", "high"), (123, "alice~two", "high"), (124, "alice~three", "medium")]
    {
        fold(&mut lane_state, second, vec![call(id, policy, &["a", "b", "c"]), offer(id, "a"), offer(id, "b")]);
    }
    assert_eq!((lane_state.open_count(), lane_state.tombstone_count()), (3, 1));
    lane_state
}

/// A record whose sequence is its time in seconds.
fn fold(lane_state: &mut LaneState, second: u64, entries: Vec<Entry>) {
    lane_state.handle_record(second, Timestamp::from_ms(second * 1000), &Record::new("test", entries));
    while lane_state.poll_effect().is_some() {}
}

fn call(negotiation: &str, preset: &str, invited: &[&str]) -> Entry {
    let policy = crate::policy::preset(preset).expect("a preset");
    let invited: Vec<Value> = invited.iter().map(|agent| json!({"agent": agent})).collect();
    let digest = policy.digest().expect("canonical");
    let pinned = json!({"policy": policy, "policy_digest": digest, "invited": invited});
    entry("alice", negotiation, &json!({"act": "cfp"}), Some(&pinned))
}

fn offer(negotiation: &str, from: &str) -> Entry {
    entry(from, negotiation, &json!({"act": "offer", "terms": {"price": 7, "delivery_ms": 7}}), None)
}

fn entry(from: &str, negotiation: &str, payload: &Value, pinned: Option<&Value>) -> Entry {
    let envelope =
        json!({"msg_id": format!("{from}-1"), "ts": "2026-01-01T00:00:00Z", "from": format!("agent://{from}")});
    let message = json!({"message": {
        "from": from, "negotiation": negotiation, "act": payload["act"], "digest": "0".repeat(64),
        "body": {"envelope": envelope, "payload": payload}, "pinned": pinned,
    }});
    serde_json::from_str(&message.to_string()).expect("an entry")
}
