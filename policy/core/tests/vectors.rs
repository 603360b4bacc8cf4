//! The golden cases of `data/contract_net_close.jsonl`, through the real book: when and why collection closes, who wins,
//! the ranking, the scores, and what becomes of each message.

#[path = "support/script.rs"]
mod script;

use std::collections::BTreeMap;

use policy_core::{Decision, Event};
use schemas::delivery::Told;
use schemas::policy::{Close, Gate, OnIncomplete, Weight};
use schemas::{Act, Timestamp, WireTime};
use script::{START_MS, Script, policy};
use serde::Deserialize;
use serde_json::json;

/// Cases in the file; a shorter file must not pass for a whole one.
const CASES: usize = 117;

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
fn every_golden_case_closes_awards_and_disposes_as_recorded() {
    let cases: Vec<Case> = include_str!("data/contract_net_close.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case"))
        .collect();
    assert_eq!(cases.len(), CASES);
    let failed: Vec<String> = cases.iter().filter_map(|case| run(case).err()).collect();
    assert!(failed.is_empty(), "{} of {CASES} failed:\n{}", failed.len(), failed.join("\n"));
}

fn run(case: &Case) -> Result<(), String> {
    let script = play(case);
    let differs = |what: &str, found: String, wanted: String| {
        if found == wanted { Ok(()) } else { Err(format!("{}: {what} is {found}, should be {wanted}", case.id)) }
    };
    let (close_t, reason) = closing(&script);
    differs("close_t", close_t.to_string(), (case.expect.close_t * 1000).to_string())?;
    differs("close_reason", reason, case.expect.close_reason.clone())?;
    let decision = decision(&script);
    let outcome = if decision.is_some() { "award" } else { "expired" };
    differs("outcome", outcome.to_owned(), case.expect.outcome.clone())?;
    let ranking: Vec<String> = decision.iter().flat_map(|d| &d.offers).map(|o| o.contractor.to_string()).collect();
    differs("winner", format!("{:?}", ranking.first()), format!("{:?}", case.expect.winner.as_ref()))?;
    differs("ranking", format!("{ranking:?}"), format!("{:?}", case.expect.ranking))?;
    let scores: BTreeMap<String, u32> =
        decision.iter().flat_map(|d| &d.offers).map(|o| (o.contractor.to_string(), o.score)).collect();
    differs("scores", format!("{scores:?}"), format!("{:?}", case.expect.scores))?;
    differs("dispositions", format!("{:?}", dispositions(&script)), format!("{:?}", case.expect.dispositions))
}

fn play(case: &Case) -> Script {
    let policy = policy(|policy| {
        policy.gates.clone_from(&case.policy.gates);
        policy.weights.clone_from(&case.policy.weights);
        policy.on_incomplete = case.policy.on_incomplete;
        policy.close = case.policy.close.clone();
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
        Told::Ack(receipt) if receipt.invited.is_none() => Some(receipt),
        _ => None,
    });
    receipts.map(|receipt| (receipt.ack_of.to_string(), receipt.disposition.as_str().to_owned())).collect()
}
