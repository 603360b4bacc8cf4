//! Policies that accept for a party: low, medium and high.

use schemas::policy::BargainRule;
use schemas::{Act, delivery::Notification};
use serde_json::{Value, json};

use crate::haggle::{BEGIN_MS, Haggle, delegate};

const TWO: [&str; 2] = ["alice", "bob"];
const THREE: [&str; 3] = ["alice", "bob", "carol"];
const HIGH: BargainRule = BargainRule::Combi { late_ppm: 500_000, window_ppm: 300_000 };

/// What it is worth falls with the price: 100 is worth nothing, 0 everything, and a price counts 10 000 ppm.
fn buyer(reservation: u32) -> Value {
    json!({
        "policy": "delegate", "reservation": reservation,
        "utility": {"linear": [{"issue": "price", "weight": 1000, "at_min": 1_000_000, "at_max": 0}]},
    })
}

/// Alice speaks for herself; a policy accepts for everybody else.
fn with(parties: &[&str], rule: BargainRule, rules: Value, mandate: Value) -> Haggle {
    Haggle::under(parties, rules, |who| (who != "alice").then(|| (mandate.clone(), Some(delegate(rule.clone())))))
}

fn is_agreed(effects: &[String]) -> bool {
    effects.iter().any(|effect| effect.starts_with("award.0.1="))
}

#[test]
fn low_accepts_the_first_offer_inside_the_mandate_in_the_input_that_makes_it() {
    let mut haggle = with(&TWO, BargainRule::Any, json!({}), buyer(600_000));
    assert_eq!(haggle.offer(20, "alice", 41), ["alice<ack:ok", "bob<turn:bob:o4-0"], "worth 590 000");
    haggle.made(21, "bob", 10);
    assert_eq!(
        haggle.offer(22, "alice", 40),
        [
            "alice<ack:ok",
            "award.0.1=o6-0",
            "closed=agreement@award.0.1",
            "alice<closed:agreement@closed",
            "bob<closed:agreement@closed"
        ]
    );
}

#[test]
fn a_policy_accepts_only_what_its_party_could_accept_itself() {
    let offers = [
        json!({"valid_from": "1970-01-01T00:16:50Z"}),
        json!({"conditions": [{"attr": "round", "op": "gt", "value": 1}]}),
    ];
    for offer in offers {
        let mut haggle = with(&TWO, BargainRule::Any, json!({}), buyer(0));
        assert_eq!(haggle.offer_with(20, "alice", 1, offer)[1], "bob<turn:bob:o4-0");
    }
}

#[test]
fn acceptances_by_policy_follow_each_other_until_somebody_decides_alone() {
    let mut haggle = with(&THREE, BargainRule::Any, json!({}), buyer(0));
    assert!(is_agreed(&haggle.offer(20, "alice", 40)), "bob's policy, then carol's");

    let mut haggle = Haggle::under(&["alice", "bob", "carol", "dan"], json!({}), |who| {
        (who == "bob" || who == "carol").then(|| (buyer(0), Some(delegate(BargainRule::Any))))
    });
    let effects = haggle.offer(20, "alice", 40);
    let turn = |who: &str| format!("{who}<turn:dan:o6-0");
    assert_eq!(
        effects,
        ["alice<ack:ok".to_owned(), turn("bob"), turn("carol"), turn("dan")],
        "told once, as it is now"
    );
    let Notification::Turn(told) = &*haggle.script.last("dan", Act::Turn).told else { panic!() };
    let accepted: Vec<_> =
        told.standing.iter().flat_map(|standing| &standing.accepted_by).map(|who| who.as_str()).collect();
    assert_eq!((accepted, told.step, told.round), (vec!["bob", "carol"], 3, 1));
}

#[test]
fn the_initiators_policy_accepts_what_comes_to_its_turn() {
    let mut haggle = Haggle::under(&TWO, json!({}), |who| {
        (who == "alice").then(|| (buyer(500_000), Some(delegate(BargainRule::Any))))
    });
    haggle.made(20, "alice", 0);
    assert!(is_agreed(&haggle.offer(21, "bob", 50)));
}

#[test]
fn medium_accepts_what_is_at_least_as_good_as_its_next_proposal_and_later_anything_inside() {
    // Nine rounds: in round r relative time is r / 10, and a linear party aspires to 1 - (1 - 0.2) r / 10.
    let rule = || BargainRule::Next { any_from_round: 4 };
    for (round, price, is_enough) in [
        (1, 8, true),
        (1, 9, false),
        (2, 16, true),
        (2, 17, false),
        (3, 24, true),
        (3, 25, false),
        (4, 80, true),
        (4, 81, false),
    ] {
        let mut haggle = with(&TWO, rule(), json!({"rounds": 9}), buyer(200_000));
        for passed in 1..round {
            haggle.made(20, "alice", 90 + passed);
            haggle.made(20, "bob", 1);
        }
        assert_eq!(is_agreed(&haggle.offer(20, "alice", price)), is_enough, "round {round}, price {price}");
    }
}

#[test]
fn medium_concedes_as_its_party_says() {
    // Round 5 of 9: t = 0.5. Boulware 2: 1 - 0.25; conceder 2: 1 - 0.707106 (rounded down), so 0.292894.
    for (concession, price, is_enough) in [
        (json!("linear"), 50, true),
        (json!("linear"), 51, false),
        (json!({"boulware": 2}), 25, true),
        (json!({"boulware": 2}), 26, false),
        (json!({"conceder": 2}), 70, true),
        (json!({"conceder": 2}), 71, false),
    ] {
        let mut mandate = buyer(0);
        mandate["concession"] = concession.clone();
        let mut haggle = with(&TWO, BargainRule::Next { any_from_round: 1000 }, json!({"rounds": 9}), mandate);
        for passed in 1..5 {
            haggle.made(20, "alice", 90 + passed);
            haggle.made(20, "bob", 1);
        }
        assert_eq!(is_agreed(&haggle.offer(20, "alice", price)), is_enough, "{concession}, price {price}");
    }
}

#[test]
fn high_takes_only_its_best_before_it_is_late() {
    for (price, is_enough) in [(0, true), (1, false)] {
        let mut haggle = with(&TWO, HIGH, json!({"rounds": 9}), buyer(0));
        assert_eq!(is_agreed(&haggle.offer(20, "alice", price)), is_enough, "price {price}");
    }
}

#[test]
fn high_then_takes_what_is_as_good_as_the_best_in_its_window() {
    // Rounds of a tenth each. From 0.5 on bob looks back three rounds, the present one left out.
    for (offers, is_enough) in [
        (vec![90, 30, 50, 40, 30], true),
        (vec![90, 30, 50, 40, 31], false),
        (vec![1, 90, 80, 70, 70], true),
        (vec![1, 90, 80, 70, 71], false),
    ] {
        let mut haggle = with(&TWO, HIGH, json!({"rounds": 9}), buyer(0));
        let (last, earlier) = offers.split_last().expect("offers");
        for price in earlier {
            haggle.made(20, "alice", *price);
            haggle.made(20, "bob", 1);
        }
        assert_eq!(is_agreed(&haggle.offer(20, "alice", *last)), is_enough, "{offers:?}");
    }
}

#[test]
fn high_does_not_compare_with_what_was_offered_in_the_same_moment() {
    let rule = BargainRule::Combi { late_ppm: 0, window_ppm: 1_000_000 };
    let mut haggle = Haggle::under(&THREE, json!({"rounds": 9}), |who| {
        (who == "carol").then(|| (buyer(0), Some(delegate(rule.clone()))))
    });
    haggle.made(20, "alice", 10);
    assert_eq!(haggle.offer(20, "bob", 50)[1], "alice<turn:alice:o6-0", "carol's policy took the 50");
    haggle.made(20, "alice", 20);
    assert_eq!(haggle.offer(20, "bob", 60)[1], "alice<turn:carol:o8-0", "there was a 10 the round before");
}

#[test]
fn high_takes_anything_inside_in_its_last_turn() {
    for (price, is_enough) in [(80, true), (81, false)] {
        let mut haggle = with(&TWO, HIGH, json!({"rounds": 2}), buyer(200_000));
        haggle.made(20, "alice", 99);
        haggle.made(20, "bob", 1);
        assert_eq!(is_agreed(&haggle.offer(20, "alice", price)), is_enough, "price {price}");
    }
}

#[test]
fn the_last_turn_before_a_deadline_is_the_one_after_which_no_whole_turn_is_left() {
    // A turn takes 1000 ms; with 1001 ms left another one may still come.
    for (left_ms, is_last) in [(1001, false), (1000, true)] {
        let rules = json!({"rounds": null, "deadline_ms": 3000, "step_ms": 1000});
        let mut haggle = with(&TWO, BargainRule::Combi { late_ppm: 1_000_000, window_ppm: 0 }, rules, buyer(0));
        for at in [500, 1200, 1999 - 20] {
            let who = party_in_turn(&haggle);
            haggle.made(BEGIN_MS + at, &who, 60);
        }
        if party_in_turn(&haggle) == "bob" {
            haggle.made(BEGIN_MS + 1985, "bob", 60);
        }
        assert_eq!(is_agreed(&haggle.offer(BEGIN_MS + 3000 - left_ms, "alice", 90)), is_last, "{left_ms} ms left");
    }
}

fn party_in_turn(haggle: &Haggle) -> String {
    let turns = haggle.script.deliveries.iter().rev().filter_map(|deliver| match &*deliver.told {
        Notification::Turn(turn) => Some(turn.party.to_string()),
        _ => None,
    });
    turns.into_iter().next().expect("somebody's turn")
}
