//! Mandates: what their party may not offer or accept, whatever it says; and conditions of offers.

use schemas::Act;
use serde_json::{Value, json};

use crate::haggle::Haggle;

const TWO: [&str; 2] = ["alice", "bob"];

/// Alice sells for 40 at least; what it is worth to her rises with the price.
fn seller() -> Value {
    json!({
        "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 0, "at_max": 1_000_000}]},
        "limits": [{"attr": "price", "op": "ge", "value": 40}],
    })
}

/// Bob buys what is worth half of the best to him: 50 at most.
fn buyer() -> Value {
    json!({
        "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 1_000_000, "at_max": 0}]},
        "reservation": 500_000,
    })
}

fn market() -> Haggle {
    Haggle::under(&TWO, json!({}), |who| Some((if who == "alice" { seller() } else { buyer() }, None)))
}

#[test]
fn an_offer_outside_its_senders_mandate_is_refused_without_a_strike() {
    let mut market = market();
    for at in 0..9 {
        assert_eq!(
            market.offer(20 + at, "alice", 39),
            ["alice<ack:mandate_violation", "alice<not_understood:mandate_violation:/payload/terms/price"]
        );
    }
    assert_eq!(market.offer(30, "alice", 40)[0], "alice<ack:ok");
    assert_eq!(
        market.offer(31, "bob", 51),
        ["bob<ack:mandate_violation", "bob<not_understood:mandate_violation:/payload/terms"]
    );
    assert_eq!(market.offer(32, "bob", 50)[0], "bob<ack:ok");
}

#[test]
fn an_acceptance_outside_its_senders_mandate_is_refused_and_the_turn_goes_on() {
    let mut market = market();
    let dear = market.made(20, "alice", 51);
    assert_eq!(
        market.accept(21, "bob", dear),
        ["bob<ack:mandate_violation", "bob<not_understood:mandate_violation:/payload/offer_id"]
    );
    market.made(22, "bob", 45);
    let fair = market.made(23, "alice", 50);
    assert_eq!(market.accept(24, "bob", fair)[1], "award.0.1=o7-0");
}

#[test]
fn anothers_mandate_does_not_keep_an_offer_from_standing() {
    assert_eq!(market().offer(20, "alice", 100), ["alice<ack:ok", "bob<turn:bob:o4-0"]);
}

#[test]
fn conditions_about_the_terms_must_hold_of_the_offer_itself() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    let cases = [
        (json!([{"attr": "price", "op": "lt", "value": 5}]), "condition:/payload/conditions/0"),
        (
            json!([{"attr": "round", "op": "eq", "value": 9}, {"attr": "size", "op": "ne", "value": 1}]),
            "condition:/payload/conditions/1",
        ),
        (json!("only on a sunny day"), "condition:/payload/conditions"),
    ];
    for (conditions, reason) in cases {
        let effects = haggle.offer_with(20, "alice", 5, json!({"conditions": conditions}));
        assert_eq!(effects, ["alice<ack:malformed".to_owned(), format!("alice<not_understood:{reason}")]);
    }
    let currency = haggle.offer_with(21, "alice", 5, json!({"currency": "EUR"}));
    assert_eq!(currency[1], "alice<not_understood:currency:/payload/currency", "the call names none");
}

#[test]
fn conditions_about_time_are_judged_when_the_offer_is_accepted() {
    let mut haggle = Haggle::between(&TWO, json!({}));
    let late = json!({"conditions": [{"attr": "elapsed_ms", "op": "ge", "value": 30}]});
    let offer = haggle.made_with(20, "alice", 5, late);
    assert_eq!(haggle.accept(39, "bob", offer), ["bob<ack:policy_reject", "bob<not_understood:condition"]);
    assert_eq!(haggle.accept(40, "bob", offer)[1], "award.0.1=o4-0");

    let mut haggle = Haggle::between(&TWO, json!({}));
    let second =
        json!({"conditions": [{"attr": "round", "op": "ge", "value": 2}, {"attr": "price", "op": "eq", "value": 5}]});
    let early = haggle.made_with(20, "alice", 5, second.clone());
    assert_eq!(haggle.accept(21, "bob", early)[1], "bob<not_understood:condition");
    let offer = haggle.made_with(22, "bob", 5, second);
    assert_eq!(haggle.accept(23, "alice", offer)[1], "award.0.1=o6-0", "the second round has begun");
}

#[test]
fn what_is_no_act_of_a_bargain_is_out_of_turn_even_in_turn() {
    let mut haggle = Haggle::between(&TWO, json!({"max_strikes": 100}));
    let acts = [
        (Act::Inform, json!({"kind": "done"})),
        (Act::Failure, json!({"phase": "perform", "code": "broken"})),
        (Act::Confirm, json!({"award_no": 1})),
        (Act::Join, json!({})),
        (Act::Refuse, json!({})),
    ];
    for (act, payload) in acts {
        assert_eq!(haggle.say(20, "alice", act, payload)[0], "alice<ack:out_of_turn", "{act}");
    }
}
