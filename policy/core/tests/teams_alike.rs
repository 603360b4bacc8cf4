//! Random teams, fact by fact: the lane's state against the naive reference (`policy/reference`), which shares nothing with it
//! but the names of things. `teams_alike/plan.rs` says what a case is, `teams_alike/table.rs` plays it.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "teams_alike/plan.rs"]
mod plan;
#[path = "teams_alike/table.rs"]
mod table;

use crate::alike::{assert_covered, explore};
use plan::any_case;
use table::play;

/// Seed, unless the environment names another.
const SEED: u64 = 20_261_123;

#[test]
fn the_naive_reference_says_the_same_of_every_team() {
    explore(any_case(), SEED, play);
}

#[test]
fn the_teams_come_to_every_end_and_every_refusal() {
    assert_covered(any_case(), SEED, play, &WANTED);
}

/// Words of facts.
const WANTED: [&str; 62] = [
    "Concluded",
    "Unconcluded",
    "NotFormed",
    "Cancelled",
    "Aborted",
    "Some(\"silence\")",
    "Some(\"deadline\")",
    "Some(\"rejected\")",
    "Some(\"left\")",
    "Discussing,",
    "Concluding,",
    "Voting,",
    "Outscored",
    "Policy",
    "formed",
    "out_of_turn",
    "bad_round",
    "bad_deadline",
    "no_recipient",
    "unsupported_rules",
    "must_conclude",
    "unknown_member",
    "terms_digest",
    "Some(\"fit.min\")",
    "Ok",
    "Duplicate",
    "Conflict",
    "StaleSeq",
    "StaleRound",
    "OutOfTurn",
    "Malformed",
    "Late",
    "PolicyReject",
    "RateLimited",
    "Unauthorized",
    "Closed",
    "muted:",
    "votes:",
    "Awaiting,",
    "Paused,",
    "Direct",
    "Committed",
    "Revoked",
    "unknown_task",
    "no_candidate",
    "too_many_tasks",
    "open_tasks",
    "Some(\"no_offers\"),",
    "Some(\"no_candidate\"),",
    "Some(\"timeout\"),",
    "Some(\"cancelled\"),",
    "Some(\"left\"),",
    "Some(\"broken\"),",
    "Some(\"a",
    "Running,",
    "Some(Repeats",
    "repeated",
    "Done,",
    "not_awarded",
    "depth",
    "taken",
    "Some(\"orphaned\")",
];
