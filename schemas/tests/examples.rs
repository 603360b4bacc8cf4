//! The examples in the documents for agent authors are documents of the contract: what stands there to be copied works.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;

use schemas::delivery::{Disposition, Outcome};
use schemas::validate::{Kind, check_document, check_message, check_policy, check_registration};
use schemas::{Act, Code, Refusal};
use serde_json::{Value, json};

/// Fewest examples that were recognised when this was written; fewer means that they are not found.
const EXAMPLES_MIN: usize = 20;

#[test]
fn every_example_is_a_document_of_the_contract() {
    let mut seen = 0;
    for name in [
        "agents.md",
        "agora.md",
        "spec/messages.md",
        "spec/contract-net.md",
        "spec/alternating-offers.md",
        "spec/panel.md",
        "spec/team.md",
    ] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap();
        for example in examples(&text) {
            if let Some(verdict) = judge(&example) {
                assert_eq!(verdict, Ok(()), "{name}: {example}");
                seen += 1;
            }
        }
    }
    assert!(seen >= EXAMPLES_MIN, "only {seen} examples");
}

#[test]
fn every_code_act_disposition_and_outcome_has_its_place_in_the_rules() {
    let pages = ["messages", "contract-net", "alternating-offers", "panel", "team", "deliveries"];
    let path = |page: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/spec/{page}.md"));
    let rules: String = pages.iter().map(|page| fs::read_to_string(path(page)).unwrap()).collect();
    let names = Code::ALL.iter().map(|code| code.as_str());
    let names = names.chain(Disposition::ALL.iter().map(|disposition| disposition.as_str()));
    let names = names.chain(Outcome::ALL.iter().map(|outcome| outcome.as_str()));
    let names = names.chain(Act::ALL.iter().map(|act| act.as_str()));
    let missing: Vec<&str> = names.filter(|name| !rules.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_example_is_found_in_a_block_of_json_and_in_a_command() {
    let text = "```json\n{\"act\":\"join\"}\n{\"cut\":…}\n```\n```sh\nsay -d '\n  {\"act\": \"end\"}' x\nsay m1 '{\"a\": 1}'\n```\n{}";
    assert_eq!(examples(text), [json!({"act": "join"}), json!({"act": "end"}), json!({"a": 1})]);
    assert!(judge(&json!({"act": "join", "mandat": {}})).unwrap().is_err(), "a slip of the pen is noticed");
}

/// The JSON objects in a text: blocks of `json`, whole or line by line, and what commands quote. Those that are cut short
/// (`…`) do not parse and are left out.
fn examples(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    // Every second piece between fences lies inside one; it begins with the language.
    for block in format!("\n{text}").split("\n```").skip(1).step_by(2) {
        let Some((language, body)) = block.split_once('\n') else { continue };
        match language {
            "json" => match serde_json::from_str(body) {
                Ok(whole) => found.push(whole),
                Err(_) => found.extend(body.lines().filter_map(|line| serde_json::from_str(line).ok())),
            },
            "sh" => found.extend(body.split('\'').filter_map(|quoted| serde_json::from_str(quoted).ok())),
            _ => {}
        }
    }
    found.retain(Value::is_object);
    found
}

/// What the schema of its kind says of a document; nothing for other answers of the exchange.
fn judge(example: &Value) -> Option<Result<(), Refusal>> {
    let bytes = |document: &Value| serde_json::to_vec(document).unwrap();
    let either = |sent: &Value, told: &Value| {
        let as_told = check_document(Kind::Delivery, &bytes(told));
        check_message(&bytes(sent)).map(drop).or_else(|refused| as_told.map_err(|_| refused))
    };
    if example.get("envelope").is_some() {
        return Some(either(example, example));
    }
    if example.get("act").is_some() {
        let (sent, told) = around(example);
        return Some(either(&sent, &told));
    }
    if example.get("consent").is_some() {
        return Some(check_registration(&bytes(example)).map(drop));
    }
    example.get("id").filter(|_| example.get("timers_ms").is_some() || example.get("bargain").is_some())?;
    Some(check_policy(&bytes(example)).map(drop))
}

/// A payload in a message of an agent, and in a delivery.
fn around(payload: &Value) -> (Value, Value) {
    let sent =
        json!({"msg_id": "m1", "ts": "2026-11-20T22:00:00Z", "from": "agent://bob", "negotiation": "alice~deal"});
    let told = json!({
        "msg_id": "03ababababababababababababababab", "ts": "2026-11-20T22:00:00Z", "from": "exchange://llmx",
        "to": ["agent://bob"], "negotiation": "alice~deal"
    });
    (json!({"envelope": sent, "payload": payload}), json!({"envelope": told, "payload": payload}))
}
