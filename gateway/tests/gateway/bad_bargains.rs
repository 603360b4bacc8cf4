//! Bargains that cannot be: each is refused where its fault is, and none is logged.

use serde_json::{Value, json};

use crate::bargains::{call, join, mandate, price, said, start};
use crate::rig::code;

/// Name, message, status, code, pointer.
type Row = (&'static str, Value, u16, &'static str, &'static str);

const MANDATE_POLICY: &str = "/payload/mandate/policy";

#[tokio::test]
async fn bargains_that_cannot_be_are_refused_where_the_fault_is_and_never_logged() {
    let rig = start().await;
    let rows = calls().into_iter().chain(rules()).chain(mandates()).chain(acts());
    for (name, message, status, expected, pointer) in rows {
        let from = message["envelope"]["from"].as_str().unwrap().trim_start_matches("agent://").to_owned();
        let (found, body) = rig.send(&from, &message).await;
        assert_eq!((found, code(&body)), (status, expected), "{name}: {body}");
        assert_eq!(body["pointer"].as_str(), Some(pointer), "{name}: {body}");
        assert!(body["expected"].is_string() || expected == "no_consent", "{name} does not say what was expected");
    }
    assert!(rig.logged().await.is_empty());
}

fn calls() -> Vec<Row> {
    let to = |name, to: Value, status, code| (name, call(|m| m["envelope"]["to"] = to), status, code, "/envelope/to");
    let says = |name, payload: Value, code, pointer| (name, call(|m| m["payload"] = payload), 422, code, pointer);
    let rules = json!({ "issues": [price()], "rounds": 1 });
    vec![
        to("nobody", json!([]), 422, "no_recipient"),
        to("only itself", json!(["agent://alice"]), 422, "no_recipient"),
        to("somebody who does not consent", json!(["agent://deaf"]), 403, "no_consent"),
        says(
            "an acceptance policy beside the rules",
            json!({ "act": "cfp", "policy": "medium", "bargain": rules }),
            "not_allowed",
            "/payload/policy",
        ),
        says(
            "a contract net under a policy for bargains",
            json!({ "act": "cfp", "policy": "bargain-low" }),
            "not_allowed",
            "/payload/policy",
        ),
        says(
            "a mandate for no bargain",
            json!({ "act": "cfp", "mandate": mandate("bargain-low") }),
            "missing_field",
            "/payload/bargain",
        ),
    ]
}

fn rules() -> Vec<Row> {
    let row = |name, rules: Value, code, pointer| (name, call(|m| m["payload"]["bargain"] = rules), 422, code, pointer);
    let issues = |issues: Value| json!({ "issues": issues, "rounds": 1 });
    let one = |issue: Value| issues(json!([issue]));
    let no_end = json!({ "issues": [price()] });
    let reserved = one(json!({ "name": "round", "min": 0, "max": 1 }));
    let value_twice = one(json!({ "name": "colour", "values": ["red", "red"] }));
    let backwards = one(json!({ "name": "price", "min": 1, "max": 0 }));
    let name_twice = issues(json!([price(), price()]));
    vec![
        row("text for rules", json!("alternating"), "wrong_type", "/payload/bargain"),
        row("no rules", json!({}), "missing_field", "/payload/bargain/issues"),
        row("no end", no_end, "missing_field", "/payload/bargain/rounds"),
        row("no issue", issues(json!([])), "out_of_range", "/payload/bargain/issues"),
        row("a name for conditions", reserved, "not_allowed", "/payload/bargain/issues/0/name"),
        row("a value twice", value_twice, "not_allowed", "/payload/bargain/issues/0/values"),
        row("a range that ends before it begins", backwards, "not_allowed", "/payload/bargain/issues/0/max"),
        row("two issues of one name", name_twice, "not_allowed", "/payload/bargain/issues/1/name"),
    ]
}

/// The initiator's mandate is judged against the rules beside it.
fn mandates() -> Vec<Row> {
    let row =
        |name, mandate: Value, code, pointer| (name, call(|m| m["payload"]["mandate"] = mandate), 422, code, pointer);
    let linear = |issue: Value| json!({ "utility": { "linear": [issue] } });
    let too_light = linear(json!({ "issue": "price", "weight": 999, "at_min": 0, "at_max": 1 }));
    let no_issue = linear(json!({ "issue": "colour", "weight": 1000, "worth": [1] }));
    let list_for_range = linear(json!({ "issue": "price", "weight": 1000, "worth": [1] }));
    let too_short = json!({ "utility": { "table": [1, 2] } });
    let limit = json!({ "limits": [{ "attr": "colour", "op": "eq", "value": "red" }] });
    vec![
        row("a policy nobody has", mandate("none"), "unknown_policy", MANDATE_POLICY),
        row("a version nobody has", mandate("bargain-low@9"), "unknown_policy", MANDATE_POLICY),
        row("a policy without bargains", mandate("medium"), "not_allowed", MANDATE_POLICY),
        row("weights that are not all", too_light, "not_allowed", "/payload/mandate/utility/linear"),
        row("the worth of no issue", no_issue, "not_allowed", "/payload/mandate/utility/linear/0/issue"),
        row("a list for a range", list_for_range, "not_allowed", "/payload/mandate/utility/linear/0/worth"),
        row("a table that is too short", too_short, "not_allowed", "/payload/mandate/utility/table"),
        row("a limit on no issue", limit, "not_allowed", "/payload/mandate/limits/0"),
    ]
}

fn acts() -> Vec<Row> {
    let row = |name, payload, code, pointer| (name, said("bob", "m1", payload), 422, code, pointer);
    let offer = |member: &str, value: Value| {
        let mut offer = json!({ "act": "offer", "terms": { "price": 1 } });
        offer[member] = value;
        offer
    };
    let like = offer("conditions", json!([{ "attr": "price", "op": "like", "value": 1 }]));
    let half = offer("conditions", json!([{ "attr": "price" }]));
    let no_zone = offer("valid_from", json!("2026-11-20T20:00"));
    let no_utility = join(json!({ "policy": "bargain-low" }));
    let no_terms = json!({ "$schema": "AlternatingOffer.json" });
    let in_words = json!({ "$schema": "AlternatingOffer.json", "terms": {}, "conditions": "cash" });
    let no_digest = json!({ "act": "accept", "offer_id": "o1-0", "terms_digest": "abc" });
    vec![
        row("joins under a policy nobody has", join(mandate("none")), "unknown_policy", MANDATE_POLICY),
        row("joins under a policy without bargains", join(mandate("medium@1")), "not_allowed", MANDATE_POLICY),
        row("joins with a text", join(json!("low")), "wrong_type", "/payload/mandate"),
        row("joins with a policy and no utility", no_utility, "missing_field", "/payload/mandate/utility"),
        row("tells a turn", json!({ "act": "turn" }), "not_allowed", "/payload/act"),
        row("a predicate there is not", like, "not_allowed", "/payload/conditions/0/op"),
        row("half a predicate", half, "missing_field", "/payload/conditions/0/op"),
        row("a validity without a zone", no_zone, "bad_format", "/payload/valid_from"),
        row("an alternating offer of nothing", no_terms, "missing_field", "/payload/terms"),
        row("an alternating offer with words", in_words, "wrong_type", "/payload/conditions"),
        row("accepts a digest that is none", no_digest, "bad_format", "/payload/terms_digest"),
        row("ends with an award", json!({ "act": "end", "award_no": 1 }), "unknown_field", "/payload/award_no"),
    ]
}
