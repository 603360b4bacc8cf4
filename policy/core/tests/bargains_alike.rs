//! Random bargains, fact by fact: the lane's state against the naive reference (`policy/reference`), which shares nothing with it
//! but the names of things. `bargains_alike/plan.rs` says what a case is, `bargains_alike/table.rs` plays it.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "bargains_alike/plan.rs"]
mod plan;
#[path = "bargains_alike/table.rs"]
mod table;

use crate::alike::{assert_covered, explore};
use plan::any_case;
use table::play;

/// Seed, unless the environment names another.
const SEED: u64 = 20_261_121;

#[test]
fn the_naive_reference_says_the_same_of_every_bargain() {
    explore(any_case(), SEED, play);
}

#[test]
fn the_bargains_come_to_every_end_and_every_refusal() {
    assert_covered(any_case(), SEED, play, &WANTED);
}

/// Words of facts.
const WANTED: [&str; 39] = [
    "Agreement",
    "NoAgreement",
    "Ended",
    "Cancelled",
    "Aborted",
    "rounds",
    "deadline",
    "step_timeout",
    "unconfirmed",
    "not_joined",
    "out_of_turn",
    "bad_round",
    "bad_deadline",
    "no_recipient",
    "unsupported_rules",
    "invalid_bargain",
    "invalid_mandate",
    "invalid_policy",
    "out_of_space",
    "validity",
    "currency",
    "condition",
    "repeated",
    "standing",
    "not_yet_valid",
    "terms_digest",
    "mandate_violation",
    "Ok",
    "Duplicate",
    "Conflict",
    "StaleSeq",
    "StaleRound",
    "OutOfTurn",
    "Malformed",
    "Expired",
    "PolicyReject",
    "MandateViolation",
    "Closed",
    "accept",
];
