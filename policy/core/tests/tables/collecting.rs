//! Collecting and closing: docs/spec/contract-net.md#cn-8 to #cn-28.

use schemas::Act;
use schemas::policy::{OfferRevision, OnIncomplete};
use serde_json::json;

use crate::script::{Script, policy};

#[test]
fn an_offer_is_recorded_and_its_revision_replaces_it() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    assert_eq!(script.offer(1, "a", 10), ["a<ack:ok"]);
    let first = script.offer_id("a");
    assert_eq!(script.offer(2, "a", 20), ["a<ack:ok", "a<reject:replaced"]);
    assert_eq!(json!(&*script.last("a", Act::Reject).told)["offer_id"], json!(first));
    assert_ne!(script.offer_id("a"), first);
}

#[test]
fn where_revision_is_refused_the_first_offer_stands() {
    let mut script = Script::open(policy(|policy| policy.offer_revision = OfferRevision::Refuse), &["a", "b"]);
    script.offer(1, "a", 10);
    assert_eq!(script.offer(2, "a", 20), ["a<ack:out_of_turn", "a<not_understood:out_of_turn"]);
    script.say(3, "a", Act::Withdraw, json!({}));
    assert_eq!(script.offer(4, "a", 20), ["a<ack:ok"], "after a withdrawal there is no first offer");
}

#[test]
fn contractors_that_withdrew_or_failed_a_gate_may_offer_again() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    assert_eq!(script.offer(2, "a", 2000), ["a<ack:policy_reject", "a<reject:policy:price.max", "a<reject:replaced"]);
    assert_eq!(script.offer(3, "a", 10), ["a<ack:ok"]);
    assert_eq!(script.say(4, "a", Act::Withdraw, json!({})), ["a<ack:ok", "a<reject:withdrawn"]);
    assert_eq!(script.offer(5, "a", 10), ["a<ack:ok"]);
    script.cancel(6);
    script.assert_sound();
}

#[test]
fn refusals_misunderstandings_and_failures_are_answers() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c", "d"]);
    assert_eq!(script.say(1, "a", Act::Refuse, json!({})), ["a<ack:ok"]);
    assert_eq!(script.say(2, "b", Act::NotUnderstood, json!({})), ["b<ack:ok"]);
    assert_eq!(script.fail(3, "c", "offer"), ["c<ack:ok"]);
    let award = ["d<ack:ok", "award.0.1", "d<accept:1@award.0.1", "alice<inform:awarded:d:1@award.0.1"];
    assert_eq!(script.offer(4, "d", 10), award);
}

#[test]
fn a_withdrawal_is_an_answer_and_frees_the_offer() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 1);
    script.say(2, "a", Act::Withdraw, json!({}));
    assert_eq!(script.offer(3, "b", 999)[2], "b<accept:1@award.0.1");
}

#[test]
fn the_collection_deadline_closes_and_a_message_at_exactly_it_is_on_time() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 20);
    assert_eq!(script.tick(500), [""; 0]);
    assert_eq!(script.offer(500, "b", 10), ["b<ack:ok"]);
    let effects = script.offer(501, "c", 1);
    assert_eq!(effects[..3], ["award.0.1", "b<accept:1@award.0.1", "alice<inform:awarded:b:1@award.0.1"]);
    assert_eq!(effects[3..], ["c<ack:late", "c<reject:late"]);
}

#[test]
fn the_best_is_accepted_the_next_held_and_the_rest_outscored() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    let effects = script.offer(3, "c", 20);
    assert_eq!(
        effects,
        ["c<ack:ok", "award.0.1", "b<accept:1@award.0.1", "alice<inform:awarded:b:1@award.0.1", "a<reject:outscored"]
    );
    let accept = json!(&*script.last("b", Act::Accept).told);
    assert_eq!(accept["offer_id"], json!(script.offer_id("b")));
    assert_eq!((&accept["payment"], &accept["terms"]["price"]), (&json!(10), &json!(10)));
    assert_eq!(accept["terms_digest"], json!(schemas::Digest::of(&accept["terms"]).unwrap()));
    let news = json!(&*script.last("alice", Act::Inform).told);
    assert_eq!(
        (&news["reason"], &news["complete"], &news["offers"]),
        (&json!("all_responded"), &json!(true), &json!(3))
    );
}

#[test]
fn offers_whose_validity_ran_out_are_expired_and_never_win() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.say(1, "a", Act::Offer, json!({"terms": {"price": 1, "delivery_ms": 0}, "valid_for_ms": 10}));
    let effects = script.offer(12, "b", 900);
    assert_eq!(effects[..3], ["b<ack:ok", "a<reject:expired", "award.0.1"]);
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.say(1, "a", Act::Offer, json!({"terms": {"price": 1, "delivery_ms": 0}, "valid_for_ms": 10}));
    assert_eq!(script.offer(11, "b", 900)[2], "a<accept:1@award.0.1", "valid at exactly its end");
}

#[test]
fn without_a_valid_offer_the_next_round_calls_those_who_answered() {
    let mut script = Script::open(policy(|policy| policy.max_rounds = 2), &["a", "b", "c", "d"]);
    script.offer(1, "a", 2000);
    script.say(2, "b", Act::Refuse, json!({}));
    script.say(3, "c", Act::NotUnderstood, json!({}));
    assert_eq!(script.tick(501), ["a<cfp:2", "b<cfp:2"], "c did not understand, d was silent");
    assert_eq!(script.offer(502, "d", 1), ["d<ack:out_of_turn", "d<not_understood:out_of_turn"]);
    script.offer(503, "a", 900);
    assert_eq!(
        script.say(504, "b", Act::Refuse, json!({}))[2],
        "a<accept:1@award.0.1",
        "two were called, two answered"
    );
    assert_eq!(script.tick(505), [""; 0]);
}

#[test]
fn an_incomplete_round_under_fail_rejects_its_offers_and_begins_another() {
    let strict = policy(|policy| (policy.max_rounds, policy.on_incomplete) = (2, OnIncomplete::Fail));
    let mut script = Script::open(strict, &["a", "b"]);
    script.offer(1, "a", 10);
    assert_eq!(script.tick(501), ["a<reject:round", "a<cfp:2"]);
    assert_eq!(script.offer(502, "a", 10)[2], "a<accept:1@award.0.1");
    script.assert_sound();
}

#[test]
fn without_a_valid_offer_and_rounds_the_negotiation_expires() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 2000);
    let end =
        ["closed=no_offers", "alice<closed:no_offers@closed", "a<closed:no_offers@closed", "b<closed:no_offers@closed"];
    assert_eq!(script.tick(501), end);
    assert_eq!(
        (script.lane_state.open_count(), script.lane_state.tombstone_count(), script.lane_state.poll_deadline()),
        (0, 1, None)
    );
}

#[test]
fn missing_answers_under_fail_expire_the_negotiation() {
    let mut script = Script::open(policy(|policy| policy.on_incomplete = OnIncomplete::Fail), &["a", "b"]);
    script.offer(1, "a", 10);
    let end = [
        "a<reject:expired",
        "closed=incomplete",
        "alice<closed:incomplete@closed",
        "a<closed:incomplete@closed",
        "b<closed:incomplete@closed",
    ];
    assert_eq!(script.tick(501), end);
    script.assert_sound();
}

#[test]
fn missing_answers_under_extend_buy_time_and_call_the_silent_again() {
    let patient = policy(|policy| policy.on_incomplete = OnIncomplete::Extend { ms: 100, max: 2 });
    let mut script = Script::open(patient, &["a", "b"]);
    script.offer(1, "a", 10);
    assert_eq!(script.tick(501), ["b<cfp"]);
    assert_eq!(script.tick(602), ["b<cfp"], "counted from the record that fired the timer");
    assert_eq!(script.tick(703)[1], "a<accept:1@award.0.1");
}

#[test]
fn a_policy_that_awards_nobody_closes_and_tells_every_offerer() {
    let mut script = Script::open(policy(|policy| policy.award = false), &["a", "b"]);
    script.offer(1, "a", 10);
    let end = [
        "b<ack:ok",
        "a<reject:expired",
        "b<reject:expired",
        "closed=incomplete",
        "alice<closed:incomplete:policy_awards_nobody@closed",
        "a<closed:incomplete:policy_awards_nobody@closed",
        "b<closed:incomplete:policy_awards_nobody@closed",
    ];
    assert_eq!(script.offer(2, "b", 20), end);
    script.assert_sound();
}
