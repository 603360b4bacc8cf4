//! English auctions: the tables of docs/spec/english-auction.md, random ones beside the naive reference, and what must hold of each.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and skips the others")]

#[path = "support/alike.rs"]
mod alike;
#[path = "english_auctions/awarding.rs"]
mod awarding;
#[path = "english_auctions/bidding.rs"]
mod bidding;
#[path = "english_auctions/ending.rs"]
mod ending;
#[path = "support/golden.rs"]
mod golden;
#[path = "english_auctions/opening.rs"]
mod opening;
#[path = "english_auctions/plan.rs"]
mod plan;
#[path = "english_auctions/random.rs"]
mod random;
#[path = "english_auctions/recording.rs"]
mod recording;
#[path = "support/script.rs"]
mod script;
#[path = "english_auctions/table.rs"]
mod table;

use policy_core::policy::preset;
use schemas::Policy;
use schemas::policy::Timers;
use serde_json::{Value, json};

use script::Script;

/// Prices rise from 100 by 10; bidding ends after 500 ms.
fn rising(change: Value) -> Value {
    let mut rules = json!({"direction": "ascending", "start": 100, "step": 10});
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        rules[name] = value;
    }
    rules
}

fn policy() -> Policy {
    let mut policy = preset("medium").expect("a preset");
    policy.gates.clear();
    policy.timers_ms = Timers { collect: 500, confirm: 100, perform: 300, cancel: 50, hard: 5_000 };
    policy
}

/// An auction among these, by these rules.
fn auction(rules: Value, bidders: &[&str]) -> Script {
    let mut script = Script::empty();
    script.call(0, policy(), bidders, json!({"auction": rules}), json!({}));
    script
}

fn bid(script: &mut Script, at_ms: u64, from: &str, price: i64) -> Vec<String> {
    script.say(at_ms, from, schemas::Act::Offer, json!({"terms": {"price": price}}))
}
