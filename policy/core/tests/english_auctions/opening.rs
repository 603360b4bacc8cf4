//! docs/spec/english-auction.md#ea-1 to #ea-3.

use schemas::Act;
use schemas::delivery::Notification;
use serde_json::json;

use crate::script::{Script, agent};
use crate::{auction, bid, policy, rising};

#[test]
fn a_call_to_an_auction_tells_its_rules_but_not_the_reserve() {
    let script = auction(rising(json!({"reserve": 987_654_321_098_i64, "quiet_ms": 50})), &["a", "b"]);
    let told = script.last("b", Act::Cfp);
    let Notification::Cfp(call) = &*told.told else { panic!("a call") };
    let auction = call.auction.as_deref().expect("rules");
    assert_eq!((auction.rules.start, auction.latest_by), (100, call.reply_by));
    assert!(!serde_json::to_string(&told.told).unwrap().contains("987654321098"));
}

#[test]
fn the_reserve_reaches_nobody_by_notice_view_or_debug_text() {
    let mut script = auction(rising(json!({"reserve": 987_654_321_098_i64})), &["a", "b"]);
    bid(&mut script, 1, "a", 100);
    bid(&mut script, 2, "b", 200);
    script.tick(501);
    let told = format!("{:?}", script.effects);
    let views: Vec<_> = ["alice", "a", "b"]
        .map(|viewer| script.lane_state.view(&script.negotiation, &agent(viewer)))
        .into_iter()
        .map(|view| serde_json::to_string(&view).unwrap())
        .collect();
    assert!(
        !told.contains("987654321098")
            && !views.concat().contains("987654321098")
            && !format!("{:?}", script.lane_state).contains("987654321098")
    );
}

#[test]
fn a_policy_that_would_not_award_the_leader_opens_no_auction() {
    type Spoil = fn(&mut schemas::Policy);
    let spoils: [Spoil; 5] = [
        |policy| policy.eps_band = 1,
        |policy| policy.awards = 2,
        |policy| policy.award = false,
        |policy| policy.decider = schemas::policy::Decider::Initiator,
        |policy| policy.payment = schemas::policy::Payment::SecondPrice,
    ];
    for spoil in spoils {
        let mut policy = policy();
        spoil(&mut policy);
        let effects = Script::empty().call(0, policy, &["a"], json!({"auction": rising(json!({}))}), json!({}));
        assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:invalid_policy:/payload/policy"]);
    }
}

#[test]
fn an_auction_beside_another_protocol_opens_nothing_and_says_where() {
    let others = [
        ("bargain", json!({"issues": [{"name": "price", "min": 0, "max": 9}], "rounds": 3})),
        ("panel", json!({})),
        ("team", json!({})),
    ];
    for (name, rules) in others {
        let payload = json!({"auction": rising(json!({})), name: rules});
        let effects = Script::empty().call(0, policy(), &["a"], payload, json!({}));
        let not_understood = format!("alice<not_understood:invalid_auction:/payload/{name}");
        assert_eq!(effects, ["alice<ack:malformed".to_owned(), not_understood]);
    }
}

#[test]
fn bidding_cannot_be_extended_beyond_the_auction_or_to_before_its_end() {
    let pointer = "/payload/auction/extend/latest_within_ms";
    for (latest, is_open) in [(499, false), (500, true), (4_900, true), (4_901, false)] {
        let rules = rising(json!({"extend": {"ms": 10, "latest_within_ms": latest}}));
        let effects = Script::empty().call(0, policy(), &["a"], json!({"auction": rules}), json!({}));
        let refused = format!("alice<not_understood:bad_deadline:{pointer}");
        assert_eq!(effects.contains(&refused), !is_open, "{latest}: {effects:?}");
    }
}

#[test]
fn an_auction_has_at_most_256_bidders() {
    let names: Vec<String> = (0..257).map(|number| format!("b{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (bidders, is_open) in [(256, true), (257, false)] {
        let payload = json!({"auction": rising(json!({}))});
        let effects = Script::empty().call(0, policy(), &names[..bidders], payload, json!({}));
        assert_eq!(effects.contains(&"alice<not_understood:too_many_parties".to_owned()), !is_open);
    }
}
