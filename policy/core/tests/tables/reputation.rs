//! Reputation as an attribute of offers: docs/spec/panel.md#pn-39 to #pn-41.

use std::sync::Arc;

use policy_core::{Decision, Event};
use schemas::Act;
use schemas::policy::{Direction, Gate, Payment, Policy, Weight};
use schemas::record::Pinned;
use serde_json::{Value, json};

use crate::script::{Script, pinned, policy};

#[test]
fn with_equal_offers_the_higher_reputation_wins_and_the_decision_holds_what_was_pinned() {
    for (a, b, winner) in [(1_400_000, 600_000, "a"), (600_000, 1_400_000, "b")] {
        let mut script = called(weighing(|_| {}), &[("a", Some(a)), ("b", Some(b))]);
        script.offer(1, "a", 10);
        script.offer(2, "b", 10);
        let decision = decision(&script);
        let ranked: Vec<_> =
            decision.offers.iter().map(|offer| (offer.contractor.as_str(), offer.reputation)).collect();
        let loser = if winner == "a" { "b" } else { "a" };
        assert_eq!(ranked, [(winner, Some(a.max(b))), (loser, Some(a.min(b)))]);
        assert!(decision.offers[0].score > decision.offers[1].score);
    }
}

/// Below `min_runs` gateways pin the average; a record that pins nothing means the same.
#[test]
fn an_average_reputation_makes_no_difference_between_equal_offers() {
    let ranked = |reputations: [Option<u64>; 2]| {
        let mut script = called(weighing(|_| {}), &[("a", reputations[0]), ("b", reputations[1])]);
        script.offer(1, "a", 10);
        script.offer(2, "b", 10);
        let decision = decision(&script);
        assert_eq!(decision.offers[0].score, decision.offers[1].score);
        decision.offers.iter().map(|offer| (offer.contractor.clone(), offer.reputation)).collect::<Vec<_>>()
    };
    let unpinned = ranked([None, None]);
    assert_eq!(ranked([Some(1_000_000), None]), unpinned);
    assert_eq!(ranked([Some(1_000_000), Some(1_000_000)]), unpinned);
    assert!(unpinned.iter().all(|(_, reputation)| *reputation == Some(1_000_000)));
}

#[test]
fn an_offer_that_names_a_reputation_is_refused_whatever_else_it_says() {
    let mut script = called(weighing(|_| {}), &[("a", Some(600_000)), ("b", Some(1_000_000))]);
    let terms = |terms: Value| json!({"terms": terms});
    let refused = ["a<ack:policy_reject", "a<reject:policy:reputation.reserved"];
    let own = terms(json!({"price": 10, "reputation": 9_000_000}));
    assert_eq!(script.say(1, "a", Act::Offer, own), refused);
    let too_dear = terms(json!({"price": 100_000, "reputation": 600_000}));
    assert_eq!(script.say(2, "a", Act::Offer, too_dear), refused, "before the gates");
    assert_eq!(script.say(3, "a", Act::Offer, terms(json!({"price": 10})))[0], "a<ack:ok", "it may say it right");
    assert_eq!(script.say(4, "a", Act::Offer, terms(json!({"price": 10, "reputation": "best"}))), {
        let replaced = "a<reject:replaced".to_owned();
        [refused.map(str::to_owned).to_vec(), vec![replaced]].concat()
    });

    // Without the section it is an attribute like any other.
    let mut plain = called(policy(|_| {}), &[("a", None)]);
    assert_eq!(plain.say(1, "a", Act::Offer, terms(json!({"price": 10, "reputation": 5})))[0], "a<ack:ok");
}

#[test]
fn a_gate_on_reputation_keeps_out_whoever_is_below_it() {
    let gate = Gate { attr: attr("reputation"), min: Some(900_000), max: None, one_of: None, required: false };
    let mut script = called(weighing(|policy| policy.gates.push(gate)), &[("a", Some(899_999)), ("b", Some(900_000))]);
    assert_eq!(script.offer(1, "a", 10), ["a<ack:policy_reject", "a<reject:policy:reputation.min"]);
    assert_eq!(script.offer(2, "b", 10)[0], "b<ack:ok");
}

#[test]
fn without_the_section_a_policy_neither_gates_nor_weighs_reputation() {
    let gate = Gate { attr: attr("reputation"), min: Some(900_000), max: None, one_of: None, required: true };
    let (mut gated, mut weighed) = (policy(|_| {}), weighing(|_| {}));
    gated.gates.push(gate);
    weighed.reputation = None;
    for (policy, pointer) in [(&mut gated, "/gates/1/attr"), (&mut weighed, "/weights/1/attr")] {
        assert_eq!(policy_core::check(policy).map_err(|fault| fault.pointer), Err(pointer.to_owned()));
        policy.reputation = serde_json::from_value(json!({"domain": "algebra"})).expect("a domain is enough");
        assert_eq!(policy_core::check(policy), Ok(()));
    }
}

#[test]
fn a_second_price_is_paid_as_far_as_reputation_lets_the_winner_lead() {
    let paid = |reputation| {
        let second = |policy: &mut Policy| policy.payment = Payment::SecondPrice;
        let mut script = called(weighing(second), &[("a", Some(reputation)), ("b", Some(1_000_000))]);
        script.offer(1, "a", 10);
        script.offer(2, "b", 500);
        decision(&script).offers[0].payment.expect("a payment")
    };
    assert_eq!(paid(1_000_000), 500);
    assert!(paid(1_200_000) > 500, "it may ask more than b and still score as much");
}

#[test]
fn no_delivery_holds_a_reputation_nor_depends_on_anothers() {
    let played = |other: u64| {
        let reputations = [("a", Some(1_234_567)), ("b", Some(other))];
        let mut script = called(weighing(|policy| policy.standby = 0), &reputations);
        script.offer(1, "a", 10);
        script.offer(2, "b", 700);
        script.confirm(3, "a", 1);
        script.done(4, "a");
        script.tick(60_000);
        script
    };
    let (one, other) = (played(1_111_111), played(999_983));
    let told = |script: &Script| {
        let told = script.deliveries.iter().filter(|deliver| deliver.to.as_str() != "alice");
        told.map(|deliver| serde_json::to_string(&*deliver.told).unwrap()).collect::<Vec<_>>()
    };
    for text in told(&one) {
        for word in ["reputation", "1234567", "1111111"] {
            assert!(!text.contains(word), "{text}");
        }
    }
    let closings = |told: Vec<String>| told.into_iter().filter(|text| !text.contains("\"digest\"")).collect::<Vec<_>>();
    assert!(told(&one).len() > 4);
    assert_eq!(closings(told(&one)).len(), closings(told(&other)).len());
    assert_eq!(closings(told(&one)), closings(told(&other)));
}

/// The fold reads the record: what its ledger says does not matter.
#[test]
fn a_net_replayed_after_the_evidence_has_changed_decides_as_before() {
    let decided = |panels: u32| {
        let mut script = Script::empty();
        for number in 0..panels {
            panel(&mut script, number);
        }
        let known = script.lane_state.evidence().entries().map(|(_, counts)| counts.runs).sum::<u64>();
        assert_eq!(known, u64::from(panels) * 3);
        script.call_pinned(10_000, with(weighing(|_| {}), &[("a", Some(1_300_000)), ("b", Some(800_000))]));
        script.offer(10_001, "a", 10);
        script.offer(10_002, "b", 10);
        decision(&script).offers.into_iter().map(|one| (one.contractor, one.score, one.reputation)).collect::<Vec<_>>()
    };
    assert_eq!(decided(0), decided(12));
}

/// A panel in which a, b and c agree at once.
fn panel(script: &mut Script, number: u32) {
    let own = script.negotiation.clone();
    script.negotiation =
        schemas::NegotiationId::try_new(&format!("alice~panel-{number}")).expect("an agent and a name are an id");
    let mut call = script.message("alice", Act::Cfp, json!({"panel": {"domain": "algebra"}}), json!({}));
    call.pinned = Some(Arc::new(pinned(policy(|_| {}), &["a", "b", "c"])));
    script.fold(0, vec![schemas::record::Entry::Message(call)]);
    for who in ["a", "b", "c"] {
        script.say(1, who, Act::Answer, json!({"round": 1, "answer": "1"}));
    }
    script.negotiation = own;
}

/// Three tenths of the score are reputation, from half the average to one and a half.
fn weighing(change: impl FnOnce(&mut Policy)) -> Policy {
    policy(|policy| {
        policy.reputation = serde_json::from_value(json!({"domain": "algebra"})).expect("a domain is enough");
        let dir = Direction::Higher;
        policy.weights[1] = Weight { attr: attr("reputation"), dir, lo: 500_000, hi: 1_500_000, w: 300 };
        change(policy);
    })
}

fn called(policy: Policy, invited: &[(&str, Option<u64>)]) -> Script {
    let mut script = Script::empty();
    script.call_pinned(0, with(policy, invited));
    script
}

fn with(policy: Policy, invited: &[(&str, Option<u64>)]) -> Pinned {
    let names: Vec<&str> = invited.iter().map(|(name, _)| *name).collect();
    let mut pinned = pinned(policy, &names);
    for (invitation, (_, reputation)) in pinned.invited.iter_mut().zip(invited) {
        invitation.reputation = *reputation;
    }
    pinned
}

fn decision(script: &Script) -> Decision {
    let decided = script.events.iter().rev().find_map(|event| match event {
        Event::Decided(decision) => Some(Decision::clone(decision)),
        _ => None,
    });
    decided.expect("a decision")
}

fn attr(name: &str) -> schemas::ids::AttrName {
    schemas::ids::AttrName::try_new(name).expect("letters are a name")
}
