//! The examples in the documents for agent authors are documents of the contract: what stands there to be copied works.

use std::fs;
use std::path::Path;

use schemas::delivery::{Disposition, Outcome};
use schemas::validate::{Kind, check_document, check_message, check_policy, check_registration, check_search};
use schemas::{Act, Code, Refusal};
use serde_json::{Value, json};

/// Answers of a gateway, and what has no schema of its own, by members that name it: the answer 202 to a message, a problem,
/// acknowledgements.
const WITHOUT_SCHEMA: [&[&str]; 3] = [&["seq", "index", "msg_id"], &["type", "status", "code"], &["delivery_ids"]];
/// Fewest examples that were recognised when this was written; fewer means that they are not found.
const EXAMPLES_MIN: usize = 80;

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
        for example in examples(&text).map_err(|fault| format!("{name}: {fault}")).unwrap() {
            if let Some(verdict) = judge(&example) {
                assert_eq!(verdict, Ok(()), "{name}: {example}");
                seen += 1;
            } else {
                let is_named = |members: &&[&str]| members.iter().all(|member| example.get(member).is_some());
                assert!(WITHOUT_SCHEMA.iter().any(is_named), "{name}: of no known kind: {example}");
            }
        }
    }
    assert!(seen >= EXAMPLES_MIN, "only {seen} examples");
}

#[test]
fn every_code_act_disposition_and_outcome_has_its_place_in_the_rules() {
    let pages = ["messages", "contract-net", "alternating-offers", "panel", "team", "deliveries", "english-auction"];
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
    let text = "```json\n{\"act\":\"join\"}\n{\"act\":\n  \"end\"}\n```\n```sh\nsay -d '\n  {\"act\": \"end\"}' x\nsay m1 '{\"a\": 1}' '{\"b\": \"'$B'\"}'\n```\n```\nid: 1\ndata: {\"c\":2}\n```\n{}";
    let expected =
        [json!({"act": "join"}), json!({"act": "end"}), json!({"act": "end"}), json!({"a": 1}), json!({"c": 2})];
    assert_eq!(examples(text).unwrap(), expected);
    assert!(judge(&json!({"act": "join", "mandat": {}})).unwrap().is_err(), "a slip of the pen is noticed");
    assert!(judge(&json!({"akt": "join"})).is_none(), "and so is one in the name of what says the kind");
}

#[test]
fn an_example_that_is_no_json_is_a_fault() {
    for text in [
        "```json\n{\"act\":\"join\"}\n{\"cut\":…}\n```\n",
        "```json\n{\"act\":\"join\",}\n```\n",
        "```sh\nsay m1 '{\"act\": \"join\",}'\n```\n",
        "```\ndata: {\"cut\":…}\n```\n",
        "```json\n{\"act\":\"join\"}\n",
    ] {
        assert!(examples(text).is_err(), "{text}");
    }
}

/// The JSON documents in a text: all that stands in blocks of `json`, what commands quote, and the data of server-sent events.
/// A block of `json` or an event that is no JSON is a fault, as one that is cut short (`…`), and so is a message that a command
/// quotes; other quotations may be anything.
fn examples(text: &str) -> Result<Vec<Value>, String> {
    let text = format!("\n{text}");
    let pieces: Vec<&str> = text.split("\n```").collect();
    if pieces.len().is_multiple_of(2) {
        return Err("a block does not end".to_owned());
    }
    let mut found = Vec::new();
    // Every second piece between fences lies inside one; it begins with the language.
    for block in pieces.into_iter().skip(1).step_by(2) {
        let Some((language, body)) = block.split_once('\n') else { continue };
        match language {
            "json" => found.extend(documents(body)?),
            "sh" => {
                for quoted in body.split('\'').filter(|quoted| quoted.trim_start().starts_with('{')) {
                    match documents(quoted) {
                        Ok(quoted) => found.extend(quoted),
                        Err(fault) if quoted.contains("\"act\"") || quoted.contains("\"envelope\"") => {
                            return Err(fault);
                        }
                        Err(_) => {}
                    }
                }
            }
            "" => {
                for event in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
                    found.extend(documents(event)?);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// One JSON document after another.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let documents: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter::<Value>().collect();
    documents.map_err(|fault| format!("{fault}: {text}"))
}

/// What the schema of its kind says of a document; nothing where it is of no kind that has one.
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
    if example.get("role").is_some() {
        return Some(check_document(Kind::View, &bytes(example)));
    }
    if example.get("queries").is_some() {
        return Some(check_search(&bytes(example)).map(drop));
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
