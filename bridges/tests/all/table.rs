//! The table of tools: written for the narrowest model API behind a host.

use bridges::tools::{TOOLS, Tool, ToolSet};
use serde_json::{Map, Value, json};

/// Most characters of a description: hosts cut from 2,048 on.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// Most bytes of the list that is sent by default.
const LIST_BYTES_MAX: usize = 24 * 1024;

#[test]
fn every_tool_keeps_the_rules_of_the_narrowest_model_api() {
    for tool in TOOLS.iter() {
        assert_eq!(faults(&tool.listed), Vec::<String>::new(), "{}", tool.name);
    }
    let mut names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TOOLS.len());
}

/// Breaks one rule.
type Break = fn(&mut Value);

#[test]
fn each_rule_notices_a_tool_that_breaks_it() {
    let good = || TOOLS.iter().find(|tool| tool.name == "offer").unwrap().listed.clone();
    let breaks: [(&str, Break); 12] = [
        ("object at the top", |tool| tool["inputSchema"]["type"] = json!("array")),
        ("properties, also when empty", |tool| {
            tool["inputSchema"].as_object_mut().unwrap().remove("properties");
        }),
        ("no alternatives", |tool| tool["inputSchema"]["anyOf"] = json!([{}])),
        ("one type a value", |tool| tool["inputSchema"]["properties"]["currency"]["type"] = json!(["string", "null"])),
        ("no alternatives below", |tool| tool["inputSchema"]["properties"]["currency"]["oneOf"] = json!([{}])),
        ("no references", |tool| tool["inputSchema"]["properties"]["currency"] = json!({"$ref": "#/$defs/x"})),
        ("no constants", |tool| tool["inputSchema"]["properties"]["currency"]["const"] = json!("EUR")),
        ("no boolean schemas", |tool| tool["inputSchema"]["properties"]["currency"] = json!(true)),
        ("items of one type", |tool| {
            tool["inputSchema"]["properties"]["documents"].as_object_mut().unwrap().remove("items");
        }),
        ("an object has properties", |tool| tool["inputSchema"]["properties"]["terms"]["properties"] = json!({})),
        ("a short description", |tool| tool["description"] = json!("x".repeat(DESCRIPTION_CHARS_MAX + 1))),
        ("each argument described", |tool| {
            tool["inputSchema"]["properties"]["currency"].as_object_mut().unwrap().remove("description");
        }),
    ];
    for (rule, break_it) in breaks {
        let mut tool = Value::Object(good());
        break_it(&mut tool);
        assert_eq!(faults(tool.as_object().unwrap()).len(), 1, "{rule}");
    }
}

#[test]
fn the_list_that_is_sent_by_default_fits_the_attention_of_a_model() {
    let of = |sets: &[ToolSet]| -> Vec<_> {
        TOOLS.iter().filter(|tool| sets.contains(&tool.set)).map(|tool| json!(tool.listed)).collect()
    };
    let default = of(&ToolSet::DEFAULT);
    assert_eq!(default.len(), 16);
    assert!(json!({ "tools": default }).to_string().len() <= LIST_BYTES_MAX);
    assert_eq!(of(&ToolSet::ALL).len(), TOOLS.len());
}

#[test]
fn who_is_asked_before_a_tool_binds_is_said_by_its_hints() {
    let with = |hint: &str| -> Vec<&str> {
        TOOLS.iter().filter(|tool| tool.listed["annotations"][hint] == json!(true)).map(|tool| tool.name).collect()
    };
    assert_eq!(
        with("readOnlyHint"),
        ["find_agents", "list_policies", "follow", "inbox", "find_documents", "get_document"]
    );
    assert_eq!(with("destructiveHint"), ["accept", "cancel", "offer", "confirm", "withdraw", "leave", "conclude"]);
    assert_eq!(with("idempotentHint").len(), TOOLS.len() - 1, "a request to one agent is made again");
}

#[test]
fn examples_of_descriptions_pass_their_schemas() {
    let mut count = 0;
    for tool in TOOLS.iter() {
        let description = tool.listed["description"].as_str().unwrap();
        let Some((_, example)) = description.split_once("Example: ") else { continue };
        let example: Value = serde_json::from_str(example.trim_end_matches('.')).unwrap();
        tool.check(&example).unwrap();
        count += 1;
    }
    assert!(count >= 6, "{count}");
}

#[test]
fn arguments_that_do_not_fit_are_refused_where_the_fault_is() {
    let table = [
        ("call_for_offers", json!({"task": "t", "to": ["bob"]}), "missing_field", "/id"),
        ("call_for_offers", json!({"id": "a~b", "task": "t", "to": ["bob"]}), "bad_format", "/id"),
        ("call_for_offers", json!({"id": "a".repeat(65), "task": "t", "to": ["bob"]}), "out_of_range", "/id"),
        ("call_for_offers", json!({"id": "a", "task": "t", "to": []}), "out_of_range", "/to"),
        (
            "call_for_offers",
            json!({"id": "a", "task": "t", "to": ["bob"], "price_max": "90"}),
            "wrong_type",
            "/price_max",
        ),
        ("follow", json!({"negotiation": "a~b", "wait_ms": 60_000}), "out_of_range", "/wait_ms"),
        ("offer", json!({"negotiation": "a~b", "terms": {"price": 8.5}}), "wrong_type", "/terms/price"),
        ("offer", json!({"negotiation": "a~b", "terms": {"price": {}}}), "wrong_type", "/terms/price"),
        ("offer", json!({"negotiation": "a~b", "terms": {}, "extra": 1}), "unknown_field", "/extra"),
        ("confirm", json!({"negotiation": "a~b", "award_no": 0}), "out_of_range", "/award_no"),
        ("report", json!({"negotiation": "a~b", "stopped": "yes"}), "wrong_type", "/stopped"),
        ("inbox", json!({"limit": 51}), "out_of_range", "/limit"),
        (
            "accept",
            json!({"negotiation": "a~b", "offer_id": "o1-0", "terms_digest": "X"}),
            "bad_format",
            "/terms_digest",
        ),
    ];
    for (tool, arguments, code, pointer) in table {
        let refusal = Tool::named(tool).unwrap().check(&arguments).unwrap_err();
        let told = (refusal.code.as_str(), refusal.pointer.as_deref().unwrap_or_default());
        assert_eq!(told, (code, pointer), "{tool} {arguments}");
    }
}

/// What is wrong with a tool as it is listed.
fn faults(listed: &Map<String, Value>) -> Vec<String> {
    let mut faults = Vec::new();
    let schema = &listed["inputSchema"];
    if schema["type"] != "object" {
        faults.push("the top is no object".to_owned());
    }
    if !schema["properties"].is_object() {
        faults.push("the top has no properties".to_owned());
    }
    if listed["description"].as_str().is_none_or(|text| text.chars().count() > DESCRIPTION_CHARS_MAX) {
        faults.push("the description".to_owned());
    }
    faults.extend(
        ["oneOf", "anyOf", "allOf"].iter().filter(|word| schema.get(**word).is_some()).map(ToString::to_string),
    );
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if property.is_object() && property.get("description").is_none() && property.get("$ref").is_none() {
            faults.push(format!("{name} is not described"));
        }
        check(property, name, &mut faults);
    }
    faults
}

fn check(schema: &Value, place: &str, faults: &mut Vec<String>) {
    let Some(members) = schema.as_object() else {
        faults.push(format!("{place} is a boolean schema"));
        return;
    };
    for word in ["oneOf", "anyOf", "allOf", "$ref", "$defs", "const", "if"] {
        if members.contains_key(word) {
            faults.push(format!("{place} has {word}"));
            return;
        }
    }
    match schema["type"].as_str() {
        None => faults.push(format!("{place} has no one type")),
        Some("array") if schema["items"]["type"].is_null() => faults.push(format!("{place} has items of no type")),
        Some("array") => check(&schema["items"], &format!("{place}/items"), faults),
        Some("object") if schema["properties"].as_object().is_none_or(Map::is_empty) => {
            faults.push(format!("{place} is an object without properties"));
        }
        Some("object") => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                check(property, &format!("{place}/{name}"), faults);
            }
        }
        Some(_) => {}
    }
}
