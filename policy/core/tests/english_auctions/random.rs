//! Random auctions: fact by fact against the naive reference, and against what must hold of every auction, told from effects only.

use std::collections::BTreeMap;

use policy_core::{Effect, Event};
use schemas::AgentId;
use schemas::delivery::{Disposition, Notification, Outcome, ProgressReport};
use schemas::english_auction::AuctionRules;

use crate::alike::{Played, assert_covered, explore};
use crate::plan::{Case, any_case};
use crate::recording::record;
use crate::table::play;

/// Seed, unless the environment names another.
const SEED: u64 = 20_261_130;

#[test]
fn the_naive_reference_says_the_same_of_every_auction() {
    explore(any_case(), SEED, play);
}

#[test]
fn the_auctions_come_to_every_end_and_every_refusal() {
    assert_covered(any_case(), SEED, play, &WANTED);
}

#[test]
fn prices_move_one_way_by_a_step_nobody_outbids_itself_and_the_award_is_the_last_bid() {
    explore(any_case(), SEED, |case| play(case).map(|played| check(case, &played)).map(|()| Played::default()));
}

#[test]
#[ignore = "writes golden logs where there are none"]
fn record_golden_auctions() {
    record(SEED);
}

/// What a bidder is told, and what follows, as a model of twenty lines expects it.
fn check(case: &Case, played: &Played) {
    let rules: AuctionRules = serde_json::from_value(case.rules.clone()).expect("rules");
    let reserve = case.rules["reserve"].as_i64();
    let mut last: Option<(u32, i64, AgentId)> = None;
    let mut paid: BTreeMap<AgentId, i64> = BTreeMap::new();
    let mut is_first = true;
    for effect in played.steps.iter().flat_map(|step| &step.effects) {
        match effect {
            Effect::Deliver(deliver) => match &*deliver.told {
                Notification::Inform(ProgressReport::Bid(bid)) if bid.leads => {
                    let before = last.as_ref().map(|(_, price, _)| *price);
                    assert!(rules.is_bid(bid.price, before), "{} after {before:?}", bid.price);
                    assert_eq!(bid.bid_no, last.as_ref().map_or(1, |(bid_no, ..)| bid_no + 1));
                    assert!(last.as_ref().is_none_or(|(.., leader)| *leader != deliver.to), "it outbid itself");
                    last = Some((bid.bid_no, bid.price, deliver.to.clone()));
                    paid.insert(deliver.to.clone(), bid.price);
                }
                Notification::Accept(award) => {
                    assert_eq!(award.payment, paid.get(&deliver.to).copied(), "its own last bid");
                    let price = award.payment.expect("a price");
                    assert!(reserve.is_none_or(|reserve| rules.reaches(price, reserve)), "{price} below the reserve");
                    let leader = last.as_ref().map(|(.., leader)| leader);
                    assert!(!is_first || leader == Some(&deliver.to), "the leader is awarded first");
                    is_first = false;
                }
                told => {
                    let told = serde_json::to_string(told).expect("JSON");
                    assert!(!told.contains("reserve\""), "{told}");
                }
            },
            Effect::Event(Event::Ended { outcome: Outcome::ReserveNotMet, .. }) => {
                let (_, price, _) = last.as_ref().expect("a bid");
                assert!(reserve.is_some_and(|reserve| !rules.reaches(*price, reserve)));
            }
            Effect::Event(Event::Ended { outcome: Outcome::NoOffers, .. }) => assert!(last.is_none(), "there are bids"),
            Effect::Event(Event::Disposed { score: Some(score), disposition: Disposition::Ok, .. }) => {
                assert!(*score > 0, "bids are numbered from 1");
            }
            Effect::Event(Event::InvariantViolated { invariant, .. }) => panic!("{invariant:?}"),
            _ => {}
        }
    }
}

/// Words of facts.
const WANTED: [&str; 34] = [
    "Completed",
    "NoOffers",
    "ReserveNotMet",
    "NoCandidate",
    "Timeout",
    "Cancelled",
    "Aborted",
    "AllResponded",
    "Window",
    "Deadline",
    "StandingBid",
    "out_of_turn",
    "bad_round",
    "bad_deadline",
    "no_recipient",
    "unsupported_rules",
    "invalid_auction",
    "invalid_policy",
    "validity",
    "condition",
    "accept",
    "Ok",
    "Duplicate",
    "Conflict",
    "StaleSeq",
    "StaleRound",
    "OutOfTurn",
    "Malformed",
    "PolicyReject",
    "RateLimited",
    "Late",
    "Committed",
    "Replaced",
    "Withdrawn",
];
