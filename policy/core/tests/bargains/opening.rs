//! Calls to a bargain, and who joins it.

use policy_core::preset;
use schemas::delivery::Notification;
use schemas::policy::BargainRule;
use schemas::record::EngineEvent;
use schemas::{Act, DocumentHash, Policy};
use serde_json::{Value, json};

use crate::haggle::{Haggle, delegate, rules};
use crate::script::{Script, policy};

#[test]
fn a_call_tells_the_invited_the_rules_and_the_parties_in_the_order_of_their_turns() {
    let mut haggle = Haggle::empty();
    let effects = haggle.call(&["carol", "bob"], rules(json!({"confirm_ms": 50})), None);
    assert_eq!(effects, ["bob<cfp", "carol<cfp", "alice<ack:ok"]);
    let Notification::Cfp(call) = &*haggle.script.last("bob", Act::Cfp).told else { panic!() };
    let bargain = call.bargain.as_ref().unwrap();
    let parties: Vec<_> = bargain.parties.iter().map(|party| party.as_str()).collect();
    assert_eq!(parties, ["alice", "bob", "carol"]);
    assert_eq!(
        (bargain.rules.rounds, bargain.rules.confirm_ms, call.policy.as_str()),
        (Some(3), Some(50), "alternating_offers")
    );
    let span_us = call.ends_by.0.0 - call.reply_by.0.0;
    assert_eq!(span_us, (3 * 3 * 1000 + 50) * 1000, "every turn of every party, and the confirmation");
}

#[test]
fn a_call_to_a_bargain_names_no_protocol_documents() {
    let mut haggle = Haggle::empty();
    let documents = json!({"hashes": [DocumentHash::of_bytes(b"a document")]});
    let payload = json!({"bargain": rules(json!({})), "documents": documents});
    let effects = haggle.script.call(0, policy(|_| {}), &["bob"], payload, json!({}));
    assert_eq!(effects, ["alice<ack:malformed", "alice<not_understood:document:/payload/documents"]);
}

#[test]
fn the_first_turn_begins_when_the_last_party_has_joined() {
    let mut haggle = Haggle::empty();
    haggle.call(&["bob", "carol"], rules(json!({})), None);
    assert_eq!(haggle.join(10, "carol", None), ["carol<ack:ok"]);
    assert_eq!(haggle.join(20, "bob", None), ["bob<ack:ok", "alice<turn:alice", "carol<turn:alice"]);
    let Notification::Turn(turn) = &*haggle.script.last("alice", Act::Turn).told else { panic!() };
    assert_eq!((turn.round, turn.step, turn.t_ppm), (1, 0, 250_000));
    assert_eq!(turn.ends_by.0.0 - turn.act_by.0.0, 8_000_000, "the hard deadline counts from the first turn as well");
}

#[test]
fn whoever_refuses_or_does_not_understand_ends_the_bargain() {
    for act in [Act::Refuse, Act::NotUnderstood, Act::End] {
        let mut haggle = Haggle::empty();
        haggle.call(&["bob", "carol"], rules(json!({})), None);
        let effects = haggle.say(10, "carol", act, json!({}));
        assert_eq!(effects[..2], ["carol<ack:ok", "closed=ended"]);
        assert_eq!(effects[2..], ["alice", "bob", "carol"].map(|who| format!("{who}<closed:ended:carol@closed")));
    }
}

#[test]
fn a_bargain_that_not_all_have_joined_in_time_ends_without_an_agreement() {
    let mut haggle = Haggle::empty();
    haggle.call(&["bob", "carol"], rules(json!({})), None);
    haggle.join(100, "bob", None);
    assert_eq!(haggle.script.tick(100), [""; 0]);
    assert_eq!(haggle.script.tick(101)[1], "alice<closed:no_agreement:not_joined@closed");
}

#[test]
fn who_acts_before_all_have_joined_is_out_of_turn() {
    let mut haggle = Haggle::empty();
    haggle.call(&["bob", "carol"], rules(json!({})), None);
    assert_eq!(haggle.offer(10, "alice", 5), ["alice<ack:out_of_turn", "alice<not_understood:out_of_turn"]);
    haggle.join(11, "bob", None);
    assert_eq!(haggle.join(12, "bob", None)[0], "bob<ack:out_of_turn");
}

#[test]
fn the_initiator_may_cancel_at_any_time_and_nobody_else() {
    let mut haggle = Haggle::between(&["alice", "bob"], json!({}));
    assert_eq!(haggle.say(20, "bob", Act::Cancel, json!({}))[0], "bob<ack:out_of_turn");
    assert_eq!(haggle.script.cancel(21)[1..3], ["closed=cancelled", "alice<closed:cancelled@closed"]);
}

#[test]
fn calls_that_cannot_be_followed_open_nothing_and_say_where_it_lies() {
    let cases = [
        (json!({"bargain": rules(json!({"rounds": 0}))}), "invalid_bargain:/payload/bargain/rounds"),
        (json!({"bargain": rules(json!({"issues": []}))}), "invalid_bargain:/payload/bargain/issues"),
        (
            json!({"bargain": rules(json!({})), "mandate": {"reservation": 5}}),
            "invalid_mandate:/payload/mandate/reservation",
        ),
        (json!({"bargain": rules(json!({})), "mandate": mandate("low")}), "invalid_policy:/payload/mandate/policy"),
        (json!({"bargain": rules(json!({})), "reply_within_ms": 0}), "bad_deadline"),
        (json!({"bargain": rules(json!({"rounds": 1000, "step_ms": 80_000_000}))}), "bad_deadline"),
        (json!({"bargain": rules(json!({})), "round": 2}), "bad_round"),
    ];
    for (payload, reason) in cases {
        let mut haggle = Haggle::empty();
        let effects = haggle.script.call(0, policy(|_| {}), &["bob"], payload, json!({}));
        assert_eq!(effects, ["alice<ack:malformed".to_owned(), format!("alice<not_understood:{reason}")]);
        assert_eq!((haggle.script.lane_state.open_count(), haggle.script.lane_state.tombstone_count()), (0, 0));
    }
}

#[test]
fn a_bargain_has_two_to_sixty_four_parties() {
    let names: Vec<String> = (0..64).map(|number| format!("party-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (invited, reason) in [(0, Some("no_recipient")), (1, None), (63, None), (64, Some("too_many_parties"))] {
        let mut haggle = Haggle::empty();
        let effects = haggle.call(&names[..invited], rules(json!({})), None);
        let last = effects.last().cloned();
        let expected = reason.map_or("alice<ack:ok".to_owned(), |reason| format!("alice<not_understood:{reason}"));
        assert_eq!(last, Some(expected), "{invited}");
    }
}

#[test]
fn a_lane_of_earlier_rules_opens_no_bargain() {
    let mut script = Script::empty();
    script.engine(0, 0, EngineEvent::Rules { version: 0 });
    let payload = json!({"bargain": rules(json!({}))});
    let refused = ["alice<ack:malformed", "alice<not_understood:unsupported_rules"];
    assert_eq!(script.call(0, policy(|_| {}), &["bob"], payload.clone(), json!({})), refused);
    script.engine(1, 0, EngineEvent::Rules { version: 1 });
    assert_eq!(script.call(2, policy(|_| {}), &["bob"], payload, json!({})), ["bob<cfp", "alice<ack:ok"]);
}

#[test]
fn a_contract_nets_offer_with_conditions_is_refused() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    let offer = json!({
        "terms": {"price": 5, "delivery_ms": 0}, "conditions": [{"attr": "price", "op": "le", "value": 5}],
    });
    assert_eq!(
        script.say(3, "b", Act::Offer, offer),
        ["b<ack:malformed", "b<not_understood:condition:/payload/conditions"]
    );
}

#[test]
fn a_mandate_that_does_not_fit_is_refused_and_its_party_may_join_again() {
    let mut haggle = Haggle::empty();
    haggle.call(&["bob"], rules(json!({})), None);
    let misfit = json!({"utility": {"table": [1, 2]}});
    assert_eq!(
        haggle.join(10, "bob", Some((misfit, None))),
        ["bob<ack:malformed", "bob<not_understood:invalid_mandate:/payload/mandate/utility/table"]
    );
    let idle = Policy { bargain: None, ..preset("medium").expect("a preset") };
    for (name, policy) in [("delegate", None), ("another", Some(delegate(BargainRule::Any))), ("medium", Some(idle))] {
        assert_eq!(
            haggle.join(11, "bob", Some((mandate(name), policy))),
            ["bob<ack:malformed", "bob<not_understood:invalid_policy:/payload/mandate/policy"],
            "{name}"
        );
    }
    assert_eq!(haggle.join(12, "bob", None), ["bob<ack:ok", "alice<turn:alice"]);
}

fn mandate(policy: &str) -> Value {
    json!({"policy": policy, "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 0, "at_max": 1_000_000}]}})
}
