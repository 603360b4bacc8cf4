use serde_json::{Value, json};

use super::*;

#[test]
fn a_domain_yields_the_call_and_the_mandates() {
    let domain = Domain::parse(&document().to_string()).unwrap();
    assert_eq!((domain.name.as_str(), domain.space.len()), ("bicycle", 6));
    let rules = json!({"issues": document()["issues"], "rounds": 20, "step_ms": 5000, "max_strikes": 3});
    assert_eq!(serde_json::to_value(domain.bargain()).unwrap(), rules);
    let mandate = json!({
        "policy": "bargain-medium",
        "utility": {"linear": document()["parties"][0]["utility"]["linear"]},
        "reservation": 250_000,
        "limits": [{"attr": "price", "op": "ge", "value": 102}],
        "concession": {"boulware": 4},
    });
    assert_eq!(serde_json::to_value(domain.mandate(0).unwrap()).unwrap(), mandate);
    let mandate =
        json!({"utility": {"table": [1_000_000, 500_000, 400_000, 290_000, 100_000, 0]}, "reservation": 290_000});
    assert_eq!(serde_json::to_value(domain.mandate(1).unwrap()).unwrap(), mandate);
    assert!(domain.mandate(2).is_err());
}

#[test]
fn what_a_party_may_agree_to_is_worth_its_reservation_value_and_keeps_its_limits() {
    let domain = Domain::parse(&document().to_string()).unwrap();
    // The seller's utilities are 0.2, 0, 0.6, 0.4, 1.0, 0.8; its limit excludes two it would agree to.
    assert_eq!(domain.preferences(0).unwrap().ranking(), [5, 4]);
    assert_eq!(domain.preferences(1).unwrap().ranking(), [3, 2, 1, 0]);
}

#[test]
fn where_nothing_bounds_a_bargain_it_has_a_hundred_rounds() {
    for (rules, rounds) in [
        (json!({}), Some(100)),
        (json!({"deadline_ms": 1000}), None),
        (json!({"deadline_ms": 1000, "rounds": 7}), Some(7)),
    ] {
        let domain = Domain::parse(&with("/rules", &rules).to_string()).unwrap();
        assert_eq!(domain.bargain().rounds, rounds, "{rules}");
    }
}

#[test]
fn a_reservation_value_in_parts_per_million_is_an_integer_by_its_digits() {
    let parse = |text: &str| Domain::parse(&document().to_string().replace("250000", text));
    assert!(parse("250000.0").is_ok() && parse("2.5e5").is_ok());
    for text in ["250000.00000000000000000001", "1e-400", "\"250000\"", "[]"] {
        assert_eq!(parse(text).unwrap_err().pointer, "/parties/0/reservation", "{text}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused_where_it_is_at_fault() {
    let party = &document()["parties"][0];
    for (pointer, value, at) in [
        ("", json!(7), ""),
        ("/name", json!(""), "/name"),
        ("/name", json!(7), "/name"),
        ("/name", json!("a\u{1b}[2J"), "/name"),
        ("/colour", json!(7), "/colour"),
        ("/issues/0/size", json!(7), "/issues/0/size"),
        ("/issues/0/values", json!([1]), "/issues/0"),
        ("/issues/0/max", json!(99), "/issues/0/max"),
        ("/issues/1/values", json!([1.5]), "/issues/1/values/0"),
        ("/issues/1/name", json!("a b"), "/issues/1/name"),
        ("/parties", json!([party]), "/parties"),
        ("/parties", json!([party, party]), "/parties/1/name"),
        ("/parties/0/utility", json!({"sealed": []}), "/parties/0/utility"),
        ("/parties/0/utility/linear/0/at_max", json!(-1), "/parties/0/utility/linear/0/at_max"),
        ("/parties/0/utility/linear/0/at_max", json!(1_000_001), "/parties/0/utility/linear/0/at_max"),
        ("/parties/0/utility/linear/0/worth", json!([1]), "/parties/0/utility/linear/0"),
        ("/parties/0/utility/linear/0/weight", json!(1), "/parties/0/utility/linear"),
        ("/parties/0/reservation", json!(0.5), "/parties/0/reservation"),
        ("/parties/0/reservation", json!(1_000_001), "/parties/0/reservation"),
        ("/parties/1/reservation", json!(1.5), "/parties/1/reservation"),
        ("/parties/1/utility/table_real", json!([1]), "/parties/1/utility/table_real"),
        ("/parties/0/limits/0/attr", json!("size"), "/parties/0/limits/0/attr"),
        ("/parties/0/limits/0/op", json!("like"), "/parties/0/limits/0/op"),
        ("/parties/0/concession", json!({"boulware": 1}), "/parties/0/concession"),
        ("/rules/rounds", json!(0), "/rules/rounds"),
        ("/rules/rounds", json!(1001), "/rules/rounds"),
        ("/rules/step_ms", json!(0), "/rules/step_ms"),
        ("/rules/patience", json!(1), "/rules/patience"),
    ] {
        let found = Domain::parse(&with(pointer, &value).to_string()).unwrap_err();
        assert_eq!(found.pointer, at, "{pointer} {value}: {found}");
        assert!(!found.detail.is_empty());
    }
    assert!(Domain::parse("{").is_err() && Domain::parse(&(document().to_string() + "{}")).is_err());
}

#[test]
fn a_table_of_utilities_is_a_domain_too() {
    let tables = vec![(vec![0.1, 0.2, 0.3, 0.4], 0.2), (vec![0.4, 0.3, 0.2, 0.1], 0.3)];
    let domain = Domain::tabular("vector", &[2, 2], tables, BargainRules::with_rounds(5)).unwrap();
    assert_eq!(domain.preferences(1).unwrap().ranking(), [1, 0]);
    let terms = serde_json::to_value(domain.space.terms(2)).unwrap();
    assert_eq!(terms, json!({"i0": 1, "i1": 0}));
    assert!(
        Domain::tabular("vector", &[2, 2], vec![(vec![0.1], 0.0), (vec![0.1], 0.0)], BargainRules::default()).is_err()
    );
}

fn document() -> Value {
    json!({
        "name": "bicycle",
        "issues": [
            {"name": "price", "min": 100, "max": 102},
            {"name": "fetched_by", "values": ["buyer", "seller"]},
        ],
        "parties": [
            {
                "name": "seller",
                "utility": {"linear": [
                    {"issue": "price", "weight": 800, "at_min": 0, "at_max": 1_000_000},
                    {"issue": "fetched_by", "weight": 200, "worth": [1_000_000, 0]},
                ]},
                "reservation": 250_000,
                "limits": [{"attr": "price", "op": "ge", "value": 102}],
                "policy": "bargain-medium",
                "concession": {"boulware": 4},
            },
            {"name": "buyer", "utility": {"table_real": [1.0, 0.5, 0.4, 0.29, 0.1, 0]}, "reservation": 0.29},
        ],
        "rules": {"rounds": 20, "step_ms": 5000},
    })
}

/// The document with one member replaced or added.
fn with(pointer: &str, value: &Value) -> Value {
    let mut document = document();
    let (parent, member) = pointer.rsplit_once('/').unwrap_or(("", ""));
    if member.is_empty() {
        return value.clone();
    }
    document.pointer_mut(parent).unwrap()[member] = value.clone();
    document
}
