//! The golden cases of `data/contract_net_close.jsonl`, through the real fold: when and why collection closes, who wins,
//! the ranking, the scores, and what becomes of each message.
//!
//! The cases end with the close: no contractor in them ever holds an award. So each is played twice. Without awards
//! (`award: false`) every disposition must be the recorded one. With awards the close, the winner, the ranking and the
//! scores must be, and the dispositions too, except that the winner's WITHDRAW meets an award and declines it (docs/spec/contract-net.md#cn-44).

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/script.rs"]
mod script;

use std::collections::BTreeMap;

use policy_core::{Decision, Event};
use schemas::delivery::Notification;
use schemas::policy::{Close, Gate, OnIncomplete, Weight};
use schemas::{Act, Timestamp, WireTime};
use script::{START_MS, Script, policy};
use serde::Deserialize;
use serde_json::json;

/// Cases in the file; a shorter file must not pass for a whole one.
const CASES: usize = 117;
/// Cases in which the winner withdraws after the close.
const WINNERS_WITHDRAW: usize = 8;

#[derive(Deserialize)]
struct Case {
    id: String,
    policy: CasePolicy,
    expected: Vec<String>,
    deadline: u64,
    events: Vec<CaseEvent>,
    expect: Expect,
}

#[derive(Deserialize)]
struct CasePolicy {
    gates: Vec<Gate>,
    weights: Vec<Weight>,
    on_incomplete: OnIncomplete,
    close: Close,
}

#[derive(Deserialize)]
struct CaseEvent {
    id: String,
    /// Tells apart events of one instant; not the sender's sequence.
    seq: u64,
    t: u64,
    from: String,
    act: Act,
    attrs: Option<BTreeMap<String, i64>>,
    valid_until: Option<u64>,
}

#[derive(Deserialize)]
struct Expect {
    close_t: u64,
    close_reason: String,
    outcome: String,
    winner: Option<String>,
    ranking: Vec<String>,
    scores: BTreeMap<String, u32>,
    dispositions: Vec<(String, String)>,
}

#[test]
fn every_golden_case_closes_and_disposes_as_recorded() {
    let failed: Vec<String> = cases()
        .iter()
        .filter_map(|case| {
            let script = play(case, false);
            let closing = check_closing(case, &script);
            closing.and_then(|()| same(case, "dispositions", &dispositions(&script), &case.expect.dispositions)).err()
        })
        .collect();
    assert!(failed.is_empty(), "{} of {CASES} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_golden_case_awards_as_recorded() {
    let failed: Vec<String> = cases().iter().filter_map(|case| check_award(case).err()).collect();
    assert!(failed.is_empty(), "{} of {CASES} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_winner_that_withdraws_after_the_close_declines_its_award() {
    let withdrawing = cases().iter().filter(|case| dispositions_with_award(case) != case.expect.dispositions).count();
    assert_eq!(withdrawing, WINNERS_WITHDRAW);
}

fn cases() -> Vec<Case> {
    let lines = include_str!("data/contract_net_close.jsonl").lines();
    let cases: Vec<Case> = lines.map(|line| serde_json::from_str(line).expect("a case")).collect();
    assert_eq!(cases.len(), CASES);
    cases
}

fn check_closing(case: &Case, script: &Script) -> Result<(), String> {
    let (close_us, reason) = closing(script);
    same(case, "close_t", &close_us, &(case.expect.close_t * 1000))?;
    same(case, "close_reason", &reason, &case.expect.close_reason)
}

fn check_award(case: &Case) -> Result<(), String> {
    let script = play(case, true);
    check_closing(case, &script)?;
    let decision = decision(&script);
    let outcome = if decision.is_some() { "award" } else { "expired" };
    same(case, "outcome", &outcome, &case.expect.outcome.as_str())?;
    let offers = decision.map(|decision| decision.offers.as_slice()).unwrap_or_default();
    let ranking: Vec<String> = offers.iter().map(|offer| offer.contractor.to_string()).collect();
    same(case, "winner", &awarded(&script), &case.expect.winner)?;
    same(case, "ranking", &ranking, &case.expect.ranking)?;
    let scores = offers.iter().map(|offer| (offer.contractor.to_string(), offer.score)).collect();
    same(case, "scores", &case.expect.scores, &scores)?;
    same(case, "dispositions", &dispositions(&script), &dispositions_with_award(case))
}

/// The recorded dispositions, but for the winner's WITHDRAW after the close.
fn dispositions_with_award(case: &Case) -> Vec<(String, String)> {
    let declines = |id: &str| {
        case.events.iter().any(|event| {
            event.id == id
                && event.act == Act::Withdraw
                && event.t > case.expect.close_t
                && Some(&event.from) == case.expect.winner.as_ref()
        })
    };
    let recorded = case.expect.dispositions.iter().cloned();
    recorded.map(|(id, disposition)| if declines(&id) { (id, "ok".to_owned()) } else { (id, disposition) }).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(case: &Case, what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{}: {what} is {found:?}, should be {wanted:?}", case.id)) }
}

/// Who got the first ACCEPT.
fn awarded(script: &Script) -> Option<String> {
    let accept = script.deliveries.iter().find(|deliver| deliver.told.act() == Act::Accept);
    accept.map(|accept| accept.to.to_string())
}

fn play(case: &Case, award: bool) -> Script {
    let policy = policy(|policy| {
        policy.gates.clone_from(&case.policy.gates);
        policy.weights.clone_from(&case.policy.weights);
        policy.on_incomplete = case.policy.on_incomplete;
        policy.close = case.policy.close.clone();
        policy.award = award;
        // Awards outlast the events, so that what comes late meets an open negotiation.
        (policy.timers_ms.confirm, policy.timers_ms.hard) = (60_000, 120_000);
    });
    let contractors: Vec<&str> = case.expected.iter().map(String::as_str).collect();
    let mut script = Script::empty();
    script.call(0, policy, &contractors, json!({"reply_within_ms": case.deadline}), json!({}));
    let mut events: Vec<&CaseEvent> = case.events.iter().collect();
    events.sort_by_key(|event| (event.t, event.seq));
    for event in events {
        let mut payload = json!({});
        if let Some(attrs) = &event.attrs {
            payload["terms"] = json!(attrs);
        }
        if let Some(until) = event.valid_until {
            payload["valid_until"] = json!(WireTime(Timestamp::from_ms(START_MS + until)));
        }
        script.say_with(event.t, &event.from, event.act, payload, json!({"msg_id": event.id}));
    }
    script.tick(case.deadline + 100_000);
    script.assert_sound();
    script
}

fn closing(script: &Script) -> (u64, String) {
    let mut closings = script.events.iter().filter_map(|event| match event {
        Event::Closed { elapsed_us, reason, .. } => {
            Some((*elapsed_us, json!(reason).as_str().unwrap_or_default().to_owned()))
        }
        _ => None,
    });
    let closing = closings.next().unwrap_or_default();
    assert_eq!(closings.next(), None, "collection closes once");
    closing
}

fn decision(script: &Script) -> Option<&Decision> {
    script.events.iter().find_map(|event| match event {
        Event::Decided(decision) => Some(&**decision),
        _ => None,
    })
}

fn dispositions(script: &Script) -> Vec<(String, String)> {
    let receipts = script.deliveries.iter().filter_map(|deliver| match &*deliver.told {
        Notification::Ack(receipt) if receipt.invited.is_none() => Some(receipt),
        _ => None,
    });
    receipts.map(|receipt| (receipt.ack_of.to_string(), receipt.disposition.as_str().to_owned())).collect()
}
