//! Calls: docs/spec/contract-net.md#cn-1 to #cn-7.

use schemas::envelope::TTL_S_MAX;
use schemas::payload::INTEGER_MAX;
use schemas::record::Entry;
use schemas::{Act, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::script::{START_MS, Script, pinned, policy};
use policy_core::Limits;

#[test]
fn a_call_is_delivered_to_everyone_invited_and_acknowledged_with_their_number() {
    let mut script = Script::empty();
    let effects =
        script.call(0, policy(|_| {}), &["a", "b"], json!({}), json!({"to": ["topic://courier", "agent://a"]}));
    assert_eq!(effects, ["a<cfp", "b<cfp", "alice<ack:ok", "notice:called"]);
    let receipt = json!(&*script.last("alice", Act::Ack).told);
    assert_eq!((&receipt["invited"], &receipt["left_out"]), (&json!(2), &json!(0)));
    let call = script.last("a", Act::Cfp);
    assert_eq!(call.from.as_ref().map(ToString::to_string), Some("alice".to_owned()));
    assert_eq!(call.expires, Timestamp::from_ms(START_MS + 500));
}

#[test]
fn the_initiator_cannot_be_its_own_contractor() {
    let mut script = Script::empty();
    let effects = script.call(0, policy(|_| {}), &["a", "alice"], json!({}), json!({}));
    assert_eq!(effects, ["a<cfp", "alice<ack:ok"]);
    let mut script = Script::empty();
    let effects = script.call(0, policy(|_| {}), &["alice"], json!({}), json!({}));
    assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:no_recipient"]);
    assert_eq!(script.lane_state.open_count(), 0);
}

#[test]
fn the_collection_deadline_is_the_calls_else_the_lifetime_else_the_policys() {
    let by = |ms: u64| json!(WireTime(Timestamp::from_ms(START_MS + ms)));
    let cases: [(Value, Value, u64); 5] = [
        (json!({"reply_within_ms": 70}), json!({"scope": {"consent": "opt-in", "ttl": 3}}), 70),
        (json!({"reply_by": by(80)}), json!({}), 80),
        (json!({"deadline": by(90)}), json!({}), 90),
        (json!({}), json!({"scope": {"consent": "opt-in", "ttl": 3}}), 3000),
        (json!({}), json!({}), 500),
    ];
    for (payload, envelope, reply_ms) in cases {
        let mut script = Script::empty();
        script.call(0, policy(|_| {}), &["a"], payload.clone(), envelope);
        assert_eq!(script.lane_state.poll_deadline(), Some(Timestamp::from_ms(START_MS + reply_ms)), "{payload}");
    }
}

#[test]
fn a_shorter_lifetime_bounds_the_whole_negotiation() {
    let mut script = Script::empty();
    let envelope = json!({"scope": {"consent": "opt-in", "ttl": 1}});
    script.call(0, policy(|_| {}), &["a"], json!({"reply_within_ms": 900}), envelope);
    script.offer(10, "a", 100);
    assert_eq!(script.lane_state.poll_deadline(), Some(Timestamp::from_ms(START_MS + 110)), "confirm");
    script.confirm(50, "a", 1);
    assert_eq!(script.lane_state.poll_deadline(), Some(Timestamp::from_ms(START_MS + 350)), "perform");
    let mut script = Script::empty();
    let envelope = json!({"scope": {"consent": "opt-in", "ttl": 1}});
    script.call(0, policy(|_| {}), &["a"], json!({"reply_within_ms": 1000}), envelope);
    assert_eq!(script.tick(1001), ["closed=timeout", "alice<closed:timeout@closed", "a<closed:timeout@closed"]);
}

#[test]
fn a_call_without_time_to_reply_is_not_understood_and_stores_nothing() {
    let by = |ms: u64| json!(WireTime(Timestamp::from_ms(ms)));
    let cases = [
        json!({"reply_by": by(START_MS)}),
        json!({"reply_by": by(START_MS - 1)}),
        json!({"reply_within_ms": 0}),
        json!({"reply_within_ms": 5001}),
        json!({"reply_within_ms": TTL_S_MAX * 1000 + 1}),
        json!({"reply_within_ms": INTEGER_MAX}),
        json!({"reply_by": "9998-01-01T00:00:00Z"}),
    ];
    for payload in cases {
        let mut script = Script::empty();
        let effects = script.call(0, policy(|_| {}), &["a"], payload.clone(), json!({}));
        assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:bad_deadline"], "{payload}");
        assert_eq!((script.lane_state.open_count(), script.lane_state.poll_deadline()), (0, None));
    }
}

#[test]
fn a_call_without_pinned_policy_or_with_one_of_another_digest_opens_nothing() {
    let mut script = Script::empty();
    assert_eq!(script.say(0, "alice", Act::Cfp, json!({})), ["alice<ack:malformed"]);
    let mut message = script.message("alice", Act::Cfp, json!({}), json!({}));
    let mut forged = pinned(policy(|_| {}), &["a"]);
    forged.policy = std::sync::Arc::new(policy(|policy| policy.awards = 2));
    message.pinned = Some(std::sync::Arc::new(forged));
    let effects = script.fold(0, vec![Entry::Message(message)]);
    assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:invalid_policy"]);
    assert_eq!(script.lane_state.open_count(), 0);
}

#[test]
fn a_policy_that_contradicts_itself_opens_nothing_even_if_a_gateway_pins_it() {
    let mut bad = policy(|_| {});
    bad.weights[0].lo = bad.weights[0].hi;
    let mut script = Script::empty();
    let effects = script.call(0, bad, &["a"], json!({}), json!({}));
    assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:invalid_policy"]);
}

#[test]
fn nobody_can_open_a_negotiation_in_anothers_name() {
    let mut script = Script::empty();
    let mut message = script.message("mallory", Act::Cfp, json!({}), json!({}));
    message.pinned = Some(std::sync::Arc::new(pinned(policy(|_| {}), &["a"])));
    assert_eq!(script.fold(0, vec![Entry::Message(message)]), ["mallory<ack:unauthorized"]);
    assert_eq!(script.lane_state.open_count(), 0);
}

#[test]
fn a_second_call_for_the_same_negotiation_is_a_duplicate_or_out_of_turn() {
    let mut script = Script::empty();
    let mut message = script.message("alice", Act::Cfp, json!({}), json!({}));
    message.pinned = Some(std::sync::Arc::new(pinned(policy(|_| {}), &["a"])));
    script.fold(0, vec![Entry::Message(message.clone())]);
    // Another gateway annotated it differently: the first record counts.
    message.pinned = Some(std::sync::Arc::new(pinned(policy(|policy| policy.awards = 2), &["b"])));
    assert_eq!(script.fold(1, vec![Entry::Message(message)]), ["alice<ack:duplicate:ok"]);
    let effects = script.call(2, policy(|_| {}), &["a", "b"], json!({}), json!({}));
    assert_eq!(effects, ["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"]);
    assert_eq!(script.offer(3, "b", 1), ["b<ack:unauthorized"]);
}

#[test]
fn a_full_lane_refuses_calls_and_nothing_else() {
    let mut script = Script::with_limits(Limits { open_max: 1, ..Limits::default() });
    script.call(0, policy(|_| {}), &["a"], json!({}), json!({}));
    let first = script.negotiation.clone();
    script.negotiation = schemas::NegotiationId::try_new("alice~other").unwrap();
    assert_eq!(script.call(1, policy(|_| {}), &["a"], json!({}), json!({})), ["alice<ack:rate_limited"]);
    script.negotiation = first;
    assert_eq!(script.offer(2, "a", 100)[0], "a<ack:ok");
}
