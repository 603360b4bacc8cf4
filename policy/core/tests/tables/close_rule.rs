//! Sections 3 and 4: when collection closes, and what is decided.

use policy_core::{Cause, Decision, Event};
use schemas::policy::{FallingThreshold, Payment, Threshold, TieBreak, WindowAnchor};
use schemas::{Act, Timestamp};
use serde_json::json;

use crate::script::{START_MS, Script, policy};

#[test]
fn k_valid_offers_close_and_a_withdrawn_one_does_not_count() {
    let mut script = Script::open(policy(|policy| policy.close.k_valid = Some(2)), &["a", "b", "c"]);
    script.offer(1, "a", 10);
    script.say(2, "a", Act::Withdraw, json!({}));
    assert_eq!(script.offer(3, "b", 10), ["b<ack:ok"]);
    script.offer(4, "c", 20);
    assert_eq!(closing(&script), ("k_valid".to_owned(), 4_000, true));
}

#[test]
fn a_window_from_the_call_closes_after_it_and_not_at_it() {
    let windowed = || policy(|policy| policy.close.window_ms = Some(200));
    let mut script = Script::open(windowed(), &["a", "b"]);
    script.offer(1, "a", 10);
    assert_eq!(script.tick(200), [""; 0]);
    script.tick(999);
    assert_eq!(closing(&script), ("window".to_owned(), 200_000, false));
    let mut script = Script::open(windowed(), &["a", "b"]);
    script.tick(201);
    script.offer(300, "a", 10);
    assert_eq!(closing(&script), ("window".to_owned(), 300_000, false), "past, it closes at the first valid offer");
}

#[test]
fn a_window_from_the_first_valid_offer_stays_though_that_offer_is_withdrawn() {
    let windowed = policy(|policy| {
        (policy.close.window_ms, policy.close.window_anchor) = (Some(100), WindowAnchor::FirstValid);
    });
    let mut script = Script::open(windowed, &["a", "b", "c"]);
    script.offer(10, "a", 2000);
    script.offer(50, "a", 10);
    script.say(60, "a", Act::Withdraw, json!({}));
    script.offer(70, "b", 10);
    script.tick(400);
    assert_eq!(closing(&script), ("window".to_owned(), 150_000, false));
}

#[test]
fn every_round_has_a_window_of_its_own() {
    let windowed = policy(|policy| (policy.close.window_ms, policy.max_rounds) = (Some(200), 2));
    let mut script = Script::open(windowed, &["a", "b"]);
    script.tick(201);
    script.offer(300, "a", 2000);
    assert_eq!(script.say(400, "b", Act::Refuse, json!({}))[1..], ["a<cfp:2", "b<cfp:2"]);
    assert_eq!(script.offer(500, "a", 10), ["a<ack:ok"]);
    assert_eq!(script.tick(600), [""; 0]);
    assert_eq!(script.tick(601)[1], "a<accept:1@award.0.1");
}

#[test]
fn a_threshold_met_by_too_few_offers_waits_for_the_next() {
    let conceding = policy(|policy| {
        let falling = FallingThreshold { start: 1_000_000, end: 0, exponent: 1 };
        (policy.close.score_at_least, policy.close.min_valid) = (Some(Threshold::Falling(falling)), 2);
    });
    let mut script = Script::open(conceding, &["a", "b", "c"]);
    script.offer(10, "a", 1000);
    assert_eq!(script.tick(400), [""; 0]);
    assert_eq!(script.offer(401, "b", 900)[1], "award.0.1");
    assert_eq!(closing(&script), ("score_at_least".to_owned(), 401_000, false));
}

#[test]
fn a_constant_threshold_closes_at_the_first_offer_that_reaches_it() {
    let choosy = policy(|policy| policy.close.score_at_least = Some(Threshold::Constant(900_000)));
    let mut script = Script::open(choosy, &["a", "b", "c"]);
    assert_eq!(script.offer(1, "a", 143), ["a<ack:ok"]);
    script.offer(2, "b", 142);
    assert_eq!(closing(&script), ("score_at_least".to_owned(), 2_000, false));
}

#[test]
fn a_falling_threshold_closes_at_the_instant_it_meets_the_best_score() {
    let conceding = policy(|policy| {
        let falling = FallingThreshold { start: 1_000_000, end: 0, exponent: 1 };
        policy.close.score_at_least = Some(Threshold::Falling(falling));
    });
    let mut script = Script::open(conceding, &["a", "b"]);
    script.offer(10, "a", 1000);
    assert_eq!(script.lane_state.poll_deadline(), Some(Timestamp::from_ms(START_MS + 350)), "score 300 000 of 500 ms");
    script.say(20, "a", Act::Withdraw, json!({}));
    assert_eq!(script.lane_state.poll_deadline(), Some(Timestamp::from_ms(START_MS + 500)), "nothing to wait for");
    script.offer(30, "a", 500);
    script.tick(499);
    assert_eq!(closing(&script), ("score_at_least".to_owned(), 175_000, false));
}

#[test]
fn too_few_valid_offers_are_awarded_at_the_deadline_all_the_same() {
    let mut script = Script::open(policy(|policy| policy.close.min_valid = 2), &["a", "b", "c"]);
    script.offer(1, "a", 10);
    let effects = script.tick(501);
    assert_eq!(effects[1], "a<accept:1@award.0.1");
    assert_eq!(closing(&script), ("deadline".to_owned(), 500_000, false));
}

#[test]
fn a_close_by_timer_counts_as_of_its_deadline_however_late_the_record() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.say(1, "a", Act::Offer, json!({"terms": {"price": 1, "delivery_ms": 0}, "valid_for_ms": 600}));
    assert_eq!(script.tick(4_000)[1], "a<accept:1@award.0.1", "valid at 500");
    assert_eq!(closing(&script), ("deadline".to_owned(), 500_000, false));
}

#[test]
fn time_never_goes_back_inside_a_lane() {
    let mut script = Script::open(policy(|_| {}), &["a", "b"]);
    script.tick(501);
    assert_eq!(script.offer(100, "a", 1), ["a<ack:late", "a<reject:late"]);
    assert_eq!(script.lane_state.now(), Timestamp::from_ms(START_MS + 501));
}

#[test]
fn the_decision_record_holds_what_the_award_was_decided_from() {
    let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
    script.offer(1, "a", 30);
    script.offer(2, "b", 10);
    script.offer(3, "c", 20);
    let first = decision(&script);
    let ranking: Vec<(String, u32)> =
        first.offers.iter().map(|offer| (offer.contractor.to_string(), offer.score)).collect();
    assert_eq!(ranking, [("b".to_owned(), 993_000), ("c".to_owned(), 986_000), ("a".to_owned(), 979_000)]);
    assert_eq!((first.cause, first.complete, first.responded, first.expected), (Cause::Score, true, 3, 3));
    assert_eq!((first.awards.len(), first.awards[0].offer_id), (1, script.offer_id("b")));
    let digest = first.digest();
    assert_eq!(json!(&*script.last("alice", Act::Inform).told)["decision"], json!(digest));
    script.fail(4, "b", "perform");
    let second = decision(&script);
    assert_eq!(second.previous, Some(digest));
    assert_eq!((second.awards[0].award_no.0, second.awards[0].offer_id), (2, script.offer_id("c")));
}

#[test]
fn the_second_price_is_that_of_the_best_loser_and_a_runner_ups_that_of_the_next() {
    let mut script = Script::open(policy(|policy| policy.payment = Payment::SecondPrice), &["a", "b", "c"]);
    script.offer(1, "a", 300);
    script.offer(2, "b", 100);
    script.offer(3, "c", 200);
    assert_eq!(json!(&*script.last("b", Act::Accept).told)["payment"], 200);
    script.fail(4, "b", "perform");
    assert_eq!(json!(&*script.last("c", Act::Accept).told)["payment"], 300);
}

#[test]
fn a_single_second_price_offer_is_paid_the_gate() {
    let mut script = Script::open(policy(|policy| policy.payment = Payment::SecondPrice), &["a"]);
    script.offer(1, "a", 300);
    assert_eq!(json!(&*script.last("a", Act::Accept).told)["payment"], 1000);
}

#[test]
fn whoever_won_in_the_lane_before_loses_the_tie_under_least_recent_winner() {
    let fair = || policy(|policy| policy.tie_break = TieBreak::LeastRecentWinner);
    let mut script = Script::empty();
    let mut winners = Vec::new();
    for round in 0..6 {
        script.negotiation = schemas::NegotiationId::try_new(&format!("alice~job{round}")).unwrap();
        script.call(round * 10, fair(), &["a", "b", "c"], json!({}), json!({}));
        for name in ["a", "b", "c"] {
            script.offer(round * 10 + 1, name, 10);
        }
        winners.push(decision(&script).offers[0].contractor.to_string());
    }
    let mut first: Vec<String> = winners[..3].to_vec();
    first.sort();
    assert_eq!(first, ["a", "b", "c"]);
    assert_eq!(winners[..3], winners[3..], "then in the same turn again");
}

#[test]
fn revising_an_offer_does_not_improve_its_place_in_a_tie() {
    let winner = |revisions: usize| {
        let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
        for _ in 0..revisions {
            script.offer(1, "a", 10);
        }
        for _ in revisions..10 {
            script.tick(1);
        }
        script.offer(2, "a", 10);
        script.offer(2, "b", 10);
        script.offer(2, "c", 10);
        decision(&script).offers.iter().map(|offer| offer.contractor.to_string()).collect::<Vec<_>>()
    };
    assert!((1..10).all(|revisions| winner(revisions) == winner(0)));
}

#[test]
fn sealed_nothing_that_leaves_before_the_close_depends_on_another_contractors_offer() {
    let before_close = |price: i64| {
        let mut script = Script::open(policy(|_| {}), &["a", "b", "c"]);
        script.offer(1, "a", price);
        script.offer(2, "b", 50);
        script
            .deliveries
            .iter()
            .filter(|deliver| deliver.to.as_str() != "a")
            .map(|d| json!(&*d.told))
            .collect::<Vec<_>>()
    };
    assert_eq!(before_close(1), before_close(999));
}

fn decision(script: &Script) -> &Decision {
    let found = script.events.iter().rev().find_map(|event| match event {
        Event::Decided(decision) => Some(&**decision),
        _ => None,
    });
    found.expect("a decision")
}

/// Reason, microseconds since the call, completeness.
fn closing(script: &Script) -> (String, u64, bool) {
    let found = script.events.iter().find_map(|event| match event {
        Event::Closed { reason, elapsed_us, complete, .. } => {
            Some((json!(reason).as_str().unwrap_or_default().to_owned(), *elapsed_us, *complete))
        }
        _ => None,
    });
    found.expect("a close")
}
