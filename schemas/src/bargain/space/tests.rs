use serde_json::json;

use super::*;

#[test]
fn outcomes_are_numbered_with_the_last_issue_fastest() {
    let issues = car();
    let space = OutcomeSpace::new(&issues).unwrap();
    assert_eq!(space.outcomes(), Some(12));
    assert_eq!(space.terms(0), Some(terms(json!({"colour": "red", "price": -1, "doors": 3}))));
    assert_eq!(space.terms(1), Some(terms(json!({"colour": "red", "price": -1, "doors": 5}))));
    assert_eq!(space.terms(2), Some(terms(json!({"colour": "red", "price": 0, "doors": 3}))));
    assert_eq!(space.terms(11), Some(terms(json!({"colour": "blue", "price": 1, "doors": 5}))));
    assert_eq!(space.terms(12), None);
    for index in 0..12 {
        assert_eq!(space.index(&space.terms(index).unwrap()), Some(index));
    }
}

#[test]
fn terms_outside_the_space_are_found_where_they_leave_it() {
    let issues = car();
    let space = OutcomeSpace::new(&issues).unwrap();
    let cases = [
        (json!({"colour": "red", "price": 0}), "/doors"),
        (json!({"colour": "green", "price": 0, "doors": 3}), "/colour"),
        (json!({"colour": "red", "price": 2, "doors": 3}), "/price"),
        (json!({"colour": "red", "price": "0", "doors": 3}), "/price"),
        (json!({"colour": "red", "price": 0, "doors": 3, "bribe": 1}), "/bribe"),
    ];
    for (outside, pointer) in cases {
        let outside = terms(outside);
        assert_eq!(space.contains(&outside).unwrap_err().pointer, pointer);
        assert_eq!(space.index(&outside), None);
    }
}

#[test]
fn a_space_too_large_to_count_still_knows_its_terms() {
    let wide: Vec<_> = (0..4).map(|n| json!({"name": format!("i{n}"), "min": 0, "max": INTEGER_MAX})).collect();
    let issues = issues(json!(wide));
    let space = OutcomeSpace::new(&issues).unwrap();
    let inside = terms(json!({"i0": 0, "i1": 1, "i2": 2, "i3": INTEGER_MAX}));
    assert_eq!((space.outcomes(), space.index(&inside), space.terms(0)), (None, None, None));
    assert_eq!(space.contains(&inside), Ok(()));
}

#[test]
fn rules_that_contradict_themselves_are_refused_where_they_do() {
    let sound = json!({"issues": [{"name": "price", "min": 0, "max": 9}], "rounds": 5});
    let cases = [
        ("/issues", json!({"issues": []})),
        ("/issues/0/name", json!({"issues": [{"name": "round", "min": 0, "max": 9}]})),
        ("/issues/0/name", json!({"issues": [{"name": "elapsed_ms", "values": ["a"]}]})),
        ("/issues/1/name", json!({"issues": [{"name": "a", "values": [1]}, {"name": "a", "values": [2]}]})),
        ("/issues/0/values", json!({"issues": [{"name": "a", "values": []}]})),
        ("/issues/0/values/2", json!({"issues": [{"name": "a", "values": [1, 2, 1]}]})),
        ("/issues/0/max", json!({"issues": [{"name": "a", "min": 1, "max": 0}]})),
        ("/rounds", json!({"rounds": null})),
        ("/rounds", json!({"rounds": 0})),
        ("/rounds", json!({"rounds": 1001})),
        ("/deadline_ms", json!({"deadline_ms": 86_400_001})),
        ("/step_ms", json!({"step_ms": 0})),
        ("/confirm_ms", json!({"confirm_ms": 0})),
        ("/max_strikes", json!({"max_strikes": 0})),
    ];
    for (pointer, change) in cases {
        let mut rules = sound.clone();
        rules.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let rules: BargainSpec = serde_json::from_str(&rules.to_string()).unwrap();
        assert_eq!(check_rules(&rules).unwrap_err().pointer, pointer, "{change}");
    }
    let rules: BargainSpec = serde_json::from_str(&sound.to_string()).unwrap();
    assert_eq!(check_rules(&rules).unwrap().outcomes(), Some(10));
}

fn issues(document: serde_json::Value) -> Vec<Issue> {
    serde_json::from_str(&document.to_string()).unwrap()
}

fn terms(document: serde_json::Value) -> Terms {
    serde_json::from_str(&document.to_string()).unwrap()
}

fn car() -> Vec<Issue> {
    issues(json!([
        {"name": "colour", "values": ["red", "blue"]},
        {"name": "price", "min": -1, "max": 1},
        {"name": "doors", "values": [3, 5]},
    ]))
}
