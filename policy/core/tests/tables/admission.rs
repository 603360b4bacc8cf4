//! The order in which a message is judged (docs/spec/messages.md#ms-32 to #ms-38), strikes, late offers and gates.

use policy_core::Limits;
use schemas::Act;
use schemas::record::{AdmittedMessage, Entry};
use serde_json::{Value, json};

use crate::script::{Script, policy};

#[test]
fn a_duplicate_gets_the_first_disposition_and_reply_again_and_changes_nothing() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let late_to_come = offer(&mut script, "a", 2000);
    assert_eq!(send(&mut script, 1, &late_to_come), ["a<ack:policy_reject", "a<reject:policy:price.max"]);
    assert_eq!(send(&mut script, 2, &late_to_come), ["a<ack:duplicate:policy_reject", "a<reject:policy:price.max"]);
    let good = offer(&mut script, "b", 100);
    assert_eq!(
        send(&mut script, 3, &good),
        ["b<ack:ok", "award.0.1", "b<accept:1@award.0.1", "alice<inform:awarded:b:1@award.0.1"]
    );
    assert_eq!(send(&mut script, 4, &good), ["b<ack:duplicate:ok"]);
    let confirm = script.message("b", Act::Confirm, json!({"award_no": 1}), json!({}));
    send(&mut script, 5, &confirm);
    assert_eq!(send(&mut script, 6, &confirm), ["b<ack:duplicate:committed@award.0.1.end"]);
    script.done(7, "b");
    assert_eq!(send(&mut script, 8, &confirm), ["b<ack:duplicate:committed"]);
    assert_eq!(send(&mut script, 9, &late_to_come), ["a<ack:duplicate:policy_reject"]);
}

#[test]
fn the_same_id_with_another_body_conflicts_and_the_first_stands() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let first = script.message("a", Act::Offer, json!({"terms": {"price": 10}}), json!({"msg_id": "x"}));
    let other = script.message("a", Act::Offer, json!({"terms": {"price": 1}}), json!({"msg_id": "x"}));
    send(&mut script, 1, &first);
    assert_eq!(send(&mut script, 2, &other), ["a<ack:conflict:ok"]);
    let from_b = script.message("b", Act::Offer, json!({"terms": {"price": 5}}), json!({"msg_id": "x"}));
    assert_eq!(send(&mut script, 3, &from_b)[0], "b<ack:ok", "another agent's id is another id");
    script.confirm(4, "b", 1);
    script.done(5, "b");
    assert_eq!(send(&mut script, 6, &other), ["a<ack:conflict:ok"], "also after the end");
}

#[test]
fn a_message_with_a_lower_seq_is_never_applied() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let numbered = |script: &mut Script, act, seq| {
        let payload = if act == Act::Offer { json!({"terms": {"price": 10}}) } else { json!({}) };
        script.message("a", act, payload, json!({"seq": seq}))
    };
    let (first, overtaken) = (numbered(&mut script, Act::Offer, 1), numbered(&mut script, Act::Offer, 2));
    let withdraw = numbered(&mut script, Act::Withdraw, 3);
    assert_eq!(send(&mut script, 1, &first), ["a<ack:ok"]);
    assert_eq!(send(&mut script, 2, &withdraw), ["a<ack:ok", "a<reject:withdrawn"]);
    assert_eq!(send(&mut script, 3, &overtaken), ["a<ack:stale_seq"]);
    assert_eq!(send(&mut script, 4, &overtaken), ["a<ack:duplicate:stale_seq"]);
    assert_eq!(script.offer(5, "a", 10), ["a<ack:stale_seq"], "unnumbered after numbered");
    assert_eq!(script.offer(6, "b", 10)[1], "award.0.1", "a has withdrawn, b is the only offer");
    script.confirm(7, "b", 1);
    script.done(8, "b");
    let outdated = numbered(&mut script, Act::Offer, 2);
    assert_eq!(send(&mut script, 9, &outdated), ["a<ack:stale_seq"], "also after the end");
}

#[test]
fn a_party_that_says_too_much_is_rate_limited() {
    let mut script = Script::with_limits(Limits { messages_per_party_max: 2, ..Limits::default() });
    script.call(0, policy(|_| {}), &["a", "b"], json!({}), json!({}));
    script.offer(1, "a", 10);
    script.offer(2, "a", 9);
    assert_eq!(script.offer(3, "a", 8), ["a<ack:rate_limited"]);
    assert_eq!(script.offer(4, "b", 500)[0], "b<ack:ok");
}

#[test]
fn strangers_and_unknown_negotiations_get_the_same_answer() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    for act in [Act::Refuse, Act::Withdraw, Act::Cancel] {
        assert_eq!(script.say(1, "zed", act, json!({})), ["zed<ack:unauthorized"]);
    }
    script.cancel(2);
    assert_eq!(script.offer(3, "zed", 1), ["zed<ack:unauthorized"], "also after the end");
    script.negotiation = schemas::NegotiationId::try_new("alice~other").unwrap();
    assert_eq!(script.offer(4, "a", 1), ["a<ack:unauthorized"]);
    assert_eq!(script.cancel(5), ["alice<ack:unauthorized"]);
}

#[test]
fn a_sender_the_envelope_does_not_name_is_unauthorized() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let mut message = offer(&mut script, "a", 1);
    message.from = crate::script::agent("b");
    assert_eq!(send(&mut script, 1, &message), ["b<ack:unauthorized"]);
}

#[test]
fn a_body_that_cannot_be_read_is_malformed_and_one_without_an_id_is_skipped() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    let unreadable = script.message("a", Act::Confirm, json!({"award_no": "one"}), json!({}));
    assert_eq!(send(&mut script, 1, &unreadable), ["a<ack:malformed"]);
    let mut nameless = offer(&mut script, "a", 1);
    nameless.body = std::sync::Arc::from(serde_json::value::RawValue::from_string("[]".to_owned()).unwrap());
    assert_eq!(send(&mut script, 2, &nameless), [""; 0]);
    assert_eq!(script.offer(3, "a", 1)[0], "a<ack:ok", "no strike, no change");
}

#[test]
fn everything_said_after_the_end_is_closed_but_offers_are_late() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.cancel(2);
    let closed = |name: &str| vec![format!("{name}<ack:closed"), format!("{name}<closed:cancelled")];
    let again = |name: &str| vec![format!("{name}<ack:closed"), format!("{name}<closed:cancelled(told)")];
    assert_eq!(script.say(3, "a", Act::Refuse, json!({})), closed("a"));
    for act in [Act::NotUnderstood, Act::Withdraw] {
        assert_eq!(script.say(3, "a", act, json!({})), again("a"));
    }
    assert_eq!(script.confirm(3, "a", 1), again("a"));
    assert_eq!(script.done(3, "a"), again("a"));
    assert_eq!(script.fail(3, "a", "perform"), again("a"));
    assert_eq!(script.cancel(3), closed("alice"));
    let late = offer(&mut script, "b", 1);
    assert_eq!(send(&mut script, 4, &late), ["b<ack:late", "b<reject:late"]);
    assert_eq!(send(&mut script, 4, &late), ["b<ack:duplicate:late", "b<reject:late"]);
    let effects = script.call(5, policy(|_| {}), &["a"], json!({}), json!({}));
    assert_eq!(effects, again("alice"), "nor can it be opened again");
}

#[test]
fn whoever_answers_each_answer_after_the_end_is_told_once_and_then_gets_receipts() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 10);
    script.cancel(2);
    for name in ["a", "b"] {
        let first = offer(&mut script, name, 1);
        assert_eq!(send(&mut script, 3, &first), [format!("{name}<ack:late"), format!("{name}<reject:late")]);
        // More than is remembered of a party.
        for price in 2..100 {
            let answer = [format!("{name}<ack:late"), format!("{name}<reject:late(told)")];
            assert_eq!(script.offer(4, name, price), answer, "{price}");
        }
        let again = [format!("{name}<ack:duplicate:late"), format!("{name}<reject:late")];
        assert_eq!(send(&mut script, 5, &first), again, "its own answer is told again");
        let closed = [format!("{name}<ack:closed"), format!("{name}<closed:cancelled(told)")];
        assert_eq!(script.say(6, name, Act::Refuse, json!({})), closed, "what is not remembered has only its receipt");
    }
    assert_eq!(script.say(6, "c", Act::Refuse, json!({})), ["c<ack:closed", "c<closed:cancelled"]);
}

#[test]
fn declining_after_collection_without_an_award_is_closed_and_no_strike() {
    let mut script = Script::open(policy(|policy| policy.max_strikes = 1), &["a", "b"]);
    script.offer(1, "a", 10);
    script.offer(2, "b", 20);
    for act in [Act::Refuse, Act::NotUnderstood, Act::Withdraw] {
        assert_eq!(script.say(3, "b", act, json!({})), ["b<ack:closed"]);
    }
    assert_eq!(script.fail(4, "a", "perform")[5], "b<accept:2@award.0.2", "b is still held");
}

#[test]
fn an_offer_after_the_negotiations_lifetime_is_expired() {
    let mut script = Script::open(policy(|_| {}), &["a"]);
    script.say(1, "a", Act::Refuse, json!({}));
    assert_eq!(script.offer(5000, "a", 1), ["a<ack:late", "a<reject:late"]);
    assert_eq!(script.offer(5001, "a", 1), ["a<ack:expired"]);
    assert_eq!(script.offer(65_001, "a", 1), ["a<ack:unauthorized"], "forgotten a minute later");
    assert_eq!(script.lane_state.tombstone_count(), 0);
}

#[test]
fn messages_of_an_earlier_round_are_stale_and_of_a_later_one_not_understood() {
    let two_rounds = policy(|policy| policy.max_rounds = 2);
    let mut script = Script::open(two_rounds, &["a", "b"]);
    let ahead = json!({"terms": {"price": 1}, "round": 2});
    assert_eq!(script.say(1, "a", Act::Offer, ahead), ["a<ack:out_of_turn", "a<not_understood:bad_round"]);
    script.offer(2, "a", 2000);
    assert_eq!(script.say(3, "b", Act::Refuse, json!({}))[1..], ["a<cfp:2", "b<cfp:2"]);
    assert_eq!(script.say(4, "a", Act::Offer, json!({"terms": {"price": 1}, "round": 1})), ["a<ack:stale_round"]);
    assert_eq!(script.say(5, "b", Act::Refuse, json!({"round": 1})), ["b<ack:stale_round"]);
    assert_eq!(script.say(6, "a", Act::Offer, json!({"terms": {"price": 1}, "round": 2})), ["a<ack:ok"]);
}

#[test]
fn illegal_acts_are_out_of_turn_and_say_what_was_expected() {
    let cases: [(&str, Act, Value, Value); 10] = [
        ("a", Act::Withdraw, json!({}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("a", Act::Confirm, json!({"award_no": 1}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("a", Act::Inform, json!({"kind": "done"}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("a", Act::Cancel, json!({}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("a", Act::Accept, json!({"offer_id": "o1-0"}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("a", Act::Cfp, json!({}), json!(["offer", "refuse", "not_understood", "failure"])),
        ("b", Act::Refuse, json!({}), json!(["offer", "withdraw"])),
        ("b", Act::Failure, json!({"phase": "offer", "code": "x"}), json!(["offer", "withdraw"])),
        ("c", Act::Offer, json!({"terms": {"price": 1}}), json!([])),
        ("alice", Act::Accept, json!({"offer_id": "o2-0"}), json!(["cancel"])),
    ];
    for (from, act, payload, expected) in cases {
        let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
        script.offer(1, "b", 10);
        script.say(2, "c", Act::Refuse, json!({}));
        let effects = script.say(3, from, act, payload);
        assert_eq!(effects, [format!("{from}<ack:out_of_turn"), format!("{from}<not_understood:out_of_turn")], "{act}");
        assert_eq!(json!(&*script.last(from, Act::NotUnderstood).told)["expected"], expected, "{from} {act}");
    }
}

#[test]
fn a_contractor_that_strikes_out_is_excluded_and_its_offer_leaves_the_running() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    for at_ms in [2, 3] {
        assert_eq!(script.done(at_ms, "a"), ["a<ack:out_of_turn", "a<not_understood:out_of_turn"]);
    }
    assert_eq!(script.done(4, "a"), ["a<ack:out_of_turn", "a<not_understood:out_of_turn", "a<reject:withdrawn"]);
    assert_eq!(script.offer(5, "a", 1), ["a<ack:out_of_turn", "a<not_understood:out_of_turn"]);
    assert_eq!(script.offer(6, "b", 500)[3], "alice<inform:awarded:b:1@award.0.1", "exclusion counts as an answer");
    script.assert_sound();
}

#[test]
fn strikes_never_end_a_commitment() {
    let mut script = Script::open(policy(|policy| policy.max_strikes = 1), &["a"]);
    script.offer(1, "a", 10);
    script.done(2, "a");
    assert_eq!(script.confirm(3, "a", 1)[1], "a<ack:committed@award.0.1.end");
    script.confirm(4, "a", 1);
    assert_eq!(script.done(5, "a")[1], "alice<inform:done:a:1");
}

#[test]
fn an_offer_after_the_close_is_late() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.offer(1, "a", 10);
    script.tick(501);
    assert_eq!(script.offer(502, "b", 1), ["b<ack:late", "b<reject:late"]);
    assert_eq!(script.offer(503, "a", 1), ["a<ack:late", "a<reject:late"]);
}

#[test]
fn each_gate_has_its_code_and_the_contractor_may_offer_again() {
    let valued = policy(|policy| {
        policy.gates[0].min = Some(5);
        policy.gates.push(serde_json::from_value(json!({"attr": "mode", "enum": ["road", "rail"]})).unwrap());
        policy.gates.push(serde_json::from_value(json!({"attr": "slot", "required": true})).unwrap());
    });
    let cases = [
        (json!({"terms": {"price": 4, "mode": "road", "slot": 1}}), "price.min"),
        (json!({"terms": {"price": 1001, "mode": "road", "slot": 1}}), "price.max"),
        (json!({"terms": {"price": "ten", "mode": "road", "slot": 1}}), "price.min"),
        (json!({"terms": {"mode": "road", "slot": 1}}), "price.required"),
        (json!({"terms": {"price": 10, "mode": "sea", "slot": 1}}), "mode.enum"),
        (json!({"terms": {"price": 10, "mode": 7, "slot": 1}}), "mode.enum"),
        (json!({"terms": {"price": 10, "mode": "rail"}}), "slot.required"),
        (json!({"terms": {"price": 10, "mode": "rail", "slot": 1}, "currency": "USD"}), "currency"),
        (json!({"terms": {"price": 10, "mode": "rail", "slot": 1}, "valid_until": "1970-01-01T00:16:40Z"}), "validity"),
    ];
    let mut script = Script::empty();
    script.call(0, valued, &["a", "b"], json!({"currency": "EUR"}), json!({}));
    for (payload, code) in cases {
        let effects = script.say(1, "a", Act::Offer, payload);
        assert_eq!(effects, ["a<ack:policy_reject".to_owned(), format!("a<reject:policy:{code}")]);
    }
    let good = json!({"terms": {"price": 10, "mode": "rail", "slot": "x"}, "currency": "EUR", "valid_for_ms": 0});
    assert_eq!(script.say(1, "a", Act::Offer, good), ["a<ack:ok"]);
}

fn offer(script: &mut Script, from: &str, price: i64) -> AdmittedMessage {
    script.message(from, Act::Offer, json!({"terms": {"price": price, "delivery_ms": 0}}), json!({}))
}

fn send(script: &mut Script, at_ms: u64, message: &AdmittedMessage) -> Vec<String> {
    script.fold(at_ms, vec![Entry::Message(message.clone())])
}
