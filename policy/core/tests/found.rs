//! Schedules the properties found, shortened to what matters. Each failed before the fault it names was removed.

#[path = "support/script.rs"]
mod script;

use policy_core::Limits;
use schemas::Act;
use script::{Script, policy};
use serde_json::json;

#[test]
fn an_undelivered_call_counts_not_once_the_contractor_was_heard_again() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let call = script.last("a", Act::Cfp).id;
    script.say(1, "a", Act::Confirm, json!({"award_no": 7}));
    assert_eq!(script.undelivered(2, call, "a"), [""; 0], "a is alive, and may still offer");
    assert_eq!(script.offer(3, "a", 10), ["a<ack:ok"]);
}

#[test]
fn what_a_long_pause_has_delayed_is_retried_as_long_as_anything_else() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.tick(10_000_000);
    for (to, act) in [("a", Act::Cancel), ("a", Act::Closed), ("b", Act::Closed), ("alice", Act::Closed)] {
        let late = script.last(to, act);
        assert_eq!(late.expires, late.at.plus_ms(Limits::default().tombstone_grace_ms), "{act} to {to}");
    }
}
