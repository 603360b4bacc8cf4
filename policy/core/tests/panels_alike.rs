//! Random panels, fact by fact: the lane's state against the naive reference (`policy/reference`). `panels_alike/plan.rs` says
//! what a case is, `panels_alike/table.rs` plays it.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "panels_alike/plan.rs"]
mod plan;
#[path = "panels_alike/table.rs"]
mod table;

use policy_core::panel::evidence::EvidenceLedger;
use policy_reference::evidence::EvidenceList;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use schemas::evidence::{EvidenceCounts, EvidenceRole, EvidenceSubject};
use schemas::ids::DomainName;
use serde_json::json;

use crate::alike::{assert_covered, explore, party};
use plan::{Action, AnswerPlan, Case, Move, RatingsPlan, Who, any_case};
use table::play;

/// Seed, unless the environment names another.
const SEED: u64 = 20_261_123;

#[test]
fn the_naive_reference_says_the_same_of_every_panel() {
    explore(any_case(), SEED, play);
}

#[test]
fn the_panels_come_to_every_end_and_every_refusal() {
    assert_covered(any_case(), SEED, play, &WANTED);
}

/// Few of everything, so that shares and the whole are full most of the time.
#[test]
fn the_ledger_holds_and_forgets_what_the_naive_list_does() {
    let names = |count: usize| (0..count).prop_map(party);
    let subject = (names(6), names(5), proptest::bool::ANY, 0_u64..5);
    let additions = proptest::collection::vec(subject, 0..120);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(SEED), ..Config::default() });
    let explored = runner.run(&(additions, 3_usize..16, 1_usize..6), |(additions, entries_max, share_max)| {
        let (mut ledger, mut list) =
            (EvidenceLedger::new(entries_max, share_max), EvidenceList::new(entries_max, share_max));
        for (agent, initiator, reviews, total_e12) in additions {
            let domain = DomainName::try_new("algebra").expect("a name");
            let role = if reviews { EvidenceRole::Reviewer } else { EvidenceRole::Panelist };
            let subject = EvidenceSubject { domain, agent, role, initiator };
            let counts = EvidenceCounts { runs: 1, total_e12, ..EvidenceCounts::default() };
            ledger.add(subject.clone(), &counts);
            list.add(subject, &counts);
            proptest::prop_assert_eq!(ledger.entries().collect::<Vec<_>>(), list.sorted());
        }
        Ok(())
    });
    explored.expect("alike");
}

/// Nobody is waited for, so no timer is armed but the last one.
#[test]
fn a_ranking_that_keeps_only_those_who_have_left_ends_the_panel_at_once() {
    let rules = json!({"rounds": 2, "answer_ms": 100, "asking": "all", "consensus_from": 0, "select": {"after_round": 1, "keep": 1,
        "if_more_than": 1, "ranker": {"kind": "agent", "agent": "q", "rank_ms": 50}}});
    let plan = AnswerPlan { answer: Some("1"), text: None, ratings: RatingsPlan::None, shift: 0, usage: None };
    let answers = [Who::Seat(0), Who::Seat(1)].map(|who| Move::at_once(who, Action::Answer(plan.clone())));
    let leaves = [Who::Seat(0), Who::Seat(1)].map(|who| Move::at_once(who, Action::Refuse));
    let moves = [&answers[..], &leaves, &[Move::at_once(Who::Ranker, Action::Order(vec![1]))]].concat();
    let case = Case { seats: 2, reputations: Vec::new(), rules, is_pinned: true, reply_ms: None, is_new: true, moves };
    let words = play(&case).unwrap().words;
    assert!(words.contains("Plurality") && words.contains("silence"), "{words:?}");
}

/// Words of facts.
const WANTED: [&str; 39] = [
    "Consensus",
    "Plurality",
    "NoAnswer",
    "Cancelled",
    "Aborted",
    "answers",
    "selection",
    "rounds",
    "timeout",
    "silence",
    "out_of_turn",
    "not_asked",
    "bad_round",
    "bad_answer",
    "bad_ratings",
    "bad_order",
    "bad_reviews",
    "Some(Reviewers),",
    "bad_deadline",
    "no_recipient",
    "unsupported_rules",
    "invalid_panel",
    "Ok",
    "Duplicate",
    "Conflict",
    "StaleSeq",
    "StaleRound",
    "Late",
    "Closed",
    "OutOfTurn",
    "Malformed",
    "Unauthorized",
    "Ask",
    "Chosen",
    "Trial",
    "Finding",
    "found",
    "along",
    "evidence",
];
