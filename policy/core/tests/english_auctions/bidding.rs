//! docs/spec/english-auction.md#ea-4 to #ea-9.

use schemas::Act;
use schemas::delivery::{Notification, ProgressReport};
use schemas::english_auction::StandingBid;
use serde_json::{Value, json};

use crate::script::Script;
use crate::{auction, bid, rising};

fn standing(script: &Script, of: &str) -> StandingBid {
    let Notification::Inform(ProgressReport::Bid(bid)) = &*script.last(of, Act::Inform).told else { panic!("a bid") };
    StandingBid::clone(bid)
}

#[test]
fn a_bid_stands_and_everybody_is_told_the_price_but_not_whose_it_is() {
    let mut script = auction(rising(json!({})), &["a", "b", "c"]);
    let told =
        ["a<ack:ok", "a<inform:bid:1:100:leads", "b<inform:bid:1:100", "c<inform:bid:1:100", "alice<inform:bid:1:100"];
    assert_eq!(bid(&mut script, 1, "a", 100), told);
    let StandingBid { bid_no, price, leads, bidders, next_price, .. } = standing(&script, "b");
    assert_eq!((bid_no, price, leads, bidders, next_price), (1, 100, false, 3, Some(110)));
    assert!(standing(&script, "a").leads);
    let told = serde_json::to_string(&script.last("b", Act::Inform).told).unwrap();
    assert!(!told.contains("\"a\""), "{told}");
}

#[test]
fn a_bid_that_does_not_beat_the_standing_one_by_a_step_changes_nothing() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    assert_eq!(bid(&mut script, 1, "a", 99), ["a<ack:policy_reject", "a<reject:policy:price.start"]);
    bid(&mut script, 2, "a", 100);
    for price in [100, 109, 0, -1] {
        let refused = ["b<ack:policy_reject", "b<reject:policy:price.step"];
        assert_eq!(bid(&mut script, 3, "b", price), refused, "{price}: an equal bid does not beat the first");
    }
    assert!(bid(&mut script, 4, "b", 110).contains(&"b<inform:bid:2:110:leads".to_owned()));
    let without = script.say(5, "a", Act::Offer, json!({"terms": {"delivery_ms": 1}}));
    assert_eq!(without, ["a<ack:policy_reject", "a<reject:policy:price.required"]);
    script.assert_sound();
}

#[test]
fn where_prices_fall_the_next_bid_is_a_step_below() {
    let rules = json!({"direction": "descending", "start": 1000, "step_permille": 100});
    let mut script = auction(rules, &["a", "b"]);
    assert_eq!(bid(&mut script, 1, "a", 1001)[1], "a<reject:policy:price.start");
    bid(&mut script, 2, "a", 1000);
    assert_eq!(bid(&mut script, 3, "b", 901)[1], "b<reject:policy:price.step");
    assert!(bid(&mut script, 4, "b", 900).contains(&"b<inform:bid:2:900:leads".to_owned()));
    assert_eq!(standing(&script, "a").next_price, Some(810));
}

#[test]
fn who_leads_cannot_bid_against_itself_and_it_costs_no_strike() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    for at in 2..8 {
        assert_eq!(bid(&mut script, at, "a", 500), ["a<ack:out_of_turn", "a<not_understood:out_of_turn"]);
    }
    bid(&mut script, 9, "b", 110);
    assert_eq!(bid(&mut script, 10, "a", 120)[0], "a<ack:ok", "its six strikes count for nothing");
}

#[test]
fn a_second_bid_replaces_the_first() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    bid(&mut script, 2, "b", 110);
    assert_eq!(bid(&mut script, 3, "a", 120)[..2], ["a<ack:ok", "a<reject:replaced"]);
}

#[test]
fn a_bid_stands_to_the_end_and_without_conditions() {
    let mut script = auction(rising(json!({})), &["a"]);
    let cases = [
        (json!({"valid_for_ms": 5}), "a<not_understood:validity:/payload/valid_for_ms"),
        (json!({"valid_until": "2099-01-01T00:00:00Z"}), "a<not_understood:validity:/payload/valid_until"),
        (
            json!({"conditions": [{"attr": "round", "op": "eq", "value": 1}]}),
            "a<not_understood:condition:/payload/conditions",
        ),
    ];
    for (change, refused) in cases {
        let mut payload = json!({"terms": {"price": 100}});
        let Value::Object(change) = change else { panic!("members") };
        change.into_iter().for_each(|(name, value)| payload[name] = value);
        assert_eq!(script.say(1, "a", Act::Offer, payload), ["a<ack:malformed", refused]);
    }
}

#[test]
fn whoever_leaves_is_told_nothing_more_and_its_bid_is_out() {
    let mut script = auction(rising(json!({})), &["a", "b", "c"]);
    bid(&mut script, 1, "a", 100);
    bid(&mut script, 2, "b", 110);
    assert_eq!(script.say(3, "a", Act::Refuse, json!({})), ["a<ack:ok", "a<reject:withdrawn"]);
    assert_eq!(bid(&mut script, 4, "c", 120).len(), 4, "receipt, c, b, alice");
    assert_eq!(standing(&script, "b").bidders, 2);
    assert_eq!(bid(&mut script, 5, "a", 130)[0], "a<ack:out_of_turn");
}

#[test]
fn a_standing_bid_binds_whatever_its_bidder_says() {
    let mut script = auction(rising(json!({})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    for act in [Act::Refuse, Act::Withdraw, Act::NotUnderstood, Act::Refuse, Act::Refuse] {
        assert_eq!(script.say(2, "a", act, json!({}))[0], "a<ack:out_of_turn");
    }
    assert!(script.tick(501).contains(&"a<accept:1@award.0.1".to_owned()));
}

#[test]
fn a_bidder_that_strikes_out_is_excluded_but_not_while_it_leads() {
    let mut script = auction(rising(json!({})), &["a", "b", "c"]);
    bid(&mut script, 1, "a", 100);
    bid(&mut script, 2, "b", 110);
    let inform = |script: &mut Script| script.say(3, "a", Act::Inform, json!({"kind": "done"}));
    inform(&mut script);
    inform(&mut script);
    assert_eq!(inform(&mut script)[2], "a<reject:withdrawn");
    assert_eq!(bid(&mut script, 4, "a", 120)[0], "a<ack:out_of_turn");
}

#[test]
fn bids_are_limited_so_that_whoever_has_bid_to_the_limit_can_confirm() {
    let limits = policy_core::Limits { messages_per_party_max: 1, ..policy_core::Limits::default() };
    let mut script = Script::with_limits(limits);
    script.call(0, crate::policy(), &["a", "b"], json!({"auction": rising(json!({}))}), json!({}));
    for round in 0..4 {
        assert_eq!(bid(&mut script, 1, "a", 100 + 20 * round)[0], "a<ack:ok");
        bid(&mut script, 1, "b", 110 + 20 * round);
    }
    for _ in 0..200 {
        assert_eq!(bid(&mut script, 2, "a", 500), ["a<ack:rate_limited"], "and it costs no message");
    }
    script.tick(501);
    assert!(script.confirm(502, "b", 1).contains(&"b<ack:committed@award.0.1.end".to_owned()));
}
