//! Cancelling, the hard deadline, `decider: initiator`: docs/spec/contract-net.md#cn-55 to #cn-58, #cn-35 to #cn-37.

use schemas::Act;
use schemas::policy::Decider;
use serde_json::json;

use crate::script::{Script, policy};

fn awarded() -> Script {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    script.offer(3, "c", 20);
    script
}

fn performing() -> Script {
    let mut script = awarded();
    script.confirm(4, "b", 1);
    script
}

#[test]
fn before_any_award_the_negotiation_is_cancelled_at_once() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    let end = [
        "alice<ack:ok",
        "a<reject:cancelled",
        "closed=cancelled",
        "alice<closed:cancelled@closed",
        "a<closed:cancelled@closed",
        "b<closed:cancelled@closed",
    ];
    assert_eq!(script.cancel(2), end);
    script.assert_sound();
}

#[test]
fn awarded_and_bound_contractors_are_asked_to_stop() {
    let mut script = awarded();
    let effects =
        ["alice<ack:ok", "c<reject:cancelled", "award.0.1.end=revoked@award.0.1", "b<cancel:1:cancelled@award.0.1.end"];
    assert_eq!(script.cancel(5), effects);
    assert_eq!(performing().cancel(5), ["alice<ack:ok", "b<cancel:1:cancelled@award.0.1.end"]);
}

#[test]
fn only_the_initiator_cancels_and_only_once() {
    let mut script = performing();
    assert_eq!(script.say(5, "b", Act::Cancel, json!({}))[0], "b<ack:out_of_turn");
    script.cancel(6);
    assert_eq!(script.cancel(7), ["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"]);
}

#[test]
fn each_answer_to_a_cancel_ends_the_negotiation() {
    type Answer = fn(&mut Script) -> Vec<String>;
    let cases: [(Answer, &str, &str); 4] = [
        (
            |s| s.say(6, "b", Act::Inform, json!({"kind": "cancelled"})),
            "alice<inform:cancelled:b:1",
            "closed:cancelled",
        ),
        (|s| s.done(6, "b"), "alice<inform:done:b:1", "closed:cancelled:done_before_cancel"),
        (|s| s.fail(6, "b", "cannot_cancel"), "alice<failure:b:1:broken", "closed:cancelled:cannot_cancel"),
        (|s| s.tick(56), "", "closed:cancelled:cancel_timeout"),
    ];
    for (answer, news, closed) in cases {
        let mut script = performing();
        script.cancel(5);
        let effects = answer(&mut script);
        assert!(news.is_empty() || effects.contains(&news.to_owned()), "{effects:?}");
        assert!(effects.contains(&"closed=cancelled@award.0.1.end".to_owned()), "{effects:?}");
        for name in ["alice", "a", "b", "c"] {
            assert!(effects.contains(&format!("{name}<{closed}@closed")), "{effects:?}");
        }
        assert_eq!(script.lane_state.open_count(), 0);
        script.assert_sound();
    }
}

#[test]
fn what_crosses_a_cancel_is_answered_and_changes_nothing() {
    let mut script = awarded();
    script.cancel(5);
    assert_eq!(script.confirm(6, "b", 1), ["b<ack:revoked", "b<cancel:1:revoked"]);
    assert_eq!(script.say(7, "b", Act::Refuse, json!({})), ["b<ack:closed"]);
    assert_eq!(script.offer(8, "a", 1), ["a<ack:late", "a<reject:late"]);
    assert_eq!(script.done(9, "c")[0], "c<ack:out_of_turn");
}

#[test]
fn the_hard_deadline_ends_every_open_state() {
    let everyone = |outcome: &str| ["alice", "a", "b", "c"].map(|name| format!("{name}<closed:{outcome}@closed"));
    let slow = || {
        policy(|policy| {
            policy.timers_ms.collect = 4_000;
            (policy.timers_ms.confirm, policy.timers_ms.perform, policy.timers_ms.cancel) = (9_000, 9_000, 9_000);
        })
    };
    let mut script = Script::empty();
    script.call(0, slow(), &["a", "b", "c"], json!({"reply_within_ms": 5000}), json!({}));
    script.offer(1, "a", 30);
    let effects = script.tick(5001);
    assert_eq!(effects[..2], ["a<reject:expired", "closed=timeout"], "collecting");
    assert_eq!(effects[2..], everyone("timeout"));

    let offers = |script: &mut Script| {
        script.offer(1, "a", 30);
        script.offer(2, "b", 10);
        script.offer(3, "c", 20);
    };
    let mut script = Script::open(slow(), &["a", "b", "c"]);
    offers(&mut script);
    let effects = script.tick(5001);
    let last = ["award.0.1.end=revoked@award.0.1", "b<cancel:1:timeout@award.0.1.end", "c<reject:expired"];
    assert_eq!(effects[..3], last, "awarding");
    script.assert_sound();

    let mut script = Script::open(slow(), &["a", "b", "c"]);
    offers(&mut script);
    script.confirm(4, "b", 1);
    let effects = script.tick(5001);
    assert_eq!(effects[..2], ["b<cancel:1:timeout@award.0.1.end", "closed=timeout@award.0.1.end"], "performing");
    script.assert_sound();

    let mut script = Script::open(slow(), &["a", "b", "c"]);
    offers(&mut script);
    script.cancel(4);
    let effects = script.tick(5001);
    assert_eq!(effects[1..], everyone("cancelled:cancel_timeout"), "cancelling");
    script.assert_sound();
}

fn deciding() -> Script {
    let asking = policy(|policy| (policy.decider, policy.decide_ms) = (Decider::Initiator, 200));
    let mut script = Script::open(asking, &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    script.offer(3, "c", 20);
    script
}

#[test]
fn deciding_reveals_all_offers_at_once_and_the_initiators_accept_decides() {
    let mut script = deciding();
    let news = json!(&*script.last("alice", Act::Inform).told);
    assert_eq!(news["offers"].as_array().map(Vec::len), Some(3));
    let chosen = script.offer_id("a");
    let effects = script.say(4, "alice", Act::Accept, json!({"offer_id": chosen}));
    let award = ["alice<ack:ok", "award.0.1", "a<accept:1@award.0.1", "alice<inform:awarded:a:1@award.0.1"];
    assert_eq!(effects[..4], award);
    assert_eq!(effects[4..], ["c<reject:outscored"], "b, the best by score, is held");
}

#[test]
fn deciding_falls_back_to_the_score_when_the_initiator_is_silent() {
    let mut script = deciding();
    assert_eq!(script.tick(203), [""; 0]);
    assert_eq!(script.tick(204)[1], "b<accept:1@award.0.1");
}

#[test]
fn deciding_accepts_only_valid_offers_of_this_negotiation() {
    let mut script = deciding();
    let not_understood = ["alice<ack:out_of_turn", "alice<not_understood:unknown_offer"];
    assert_eq!(script.say(4, "alice", Act::Accept, json!({"offer_id": "o999-0"})), not_understood);
    let asking = policy(|policy| policy.decider = Decider::Initiator);
    let mut script = Script::open(asking, &["a"]);
    script.say(1, "a", Act::Offer, json!({"terms": {"price": 1}, "valid_for_ms": 10}));
    let expired = script.offer_id("a");
    assert_eq!(script.say(12, "alice", Act::Accept, json!({"offer_id": expired})), not_understood);
    assert_eq!(script.tick(4_000), [""; 0]);
    assert_eq!(script.tick(5_001)[..2], ["a<reject:expired", "closed=timeout"]);
}

#[test]
fn deciding_without_a_valid_offer_left_expires() {
    let asking = policy(|policy| (policy.decider, policy.decide_ms) = (Decider::Initiator, 200));
    let mut script = Script::open(asking, &["a"]);
    script.say(1, "a", Act::Offer, json!({"terms": {"price": 1}, "valid_for_ms": 10}));
    assert_eq!(script.tick(202)[..2], ["a<reject:expired", "closed=no_offers"]);
    script.assert_sound();
}

#[test]
fn deciding_is_closed_to_contractors_and_can_be_cancelled() {
    let mut script = deciding();
    assert_eq!(script.offer(4, "a", 1), ["a<ack:late", "a<reject:late"]);
    assert_eq!(script.say(5, "b", Act::Withdraw, json!({})), ["b<ack:closed"]);
    assert_eq!(script.cancel(6)[1..4], ["a<reject:cancelled", "b<reject:cancelled", "c<reject:cancelled"]);
    script.assert_sound();
}
