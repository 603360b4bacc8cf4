use serde_json::{Value, json};

use super::*;
use crate::bargain::Issue;

#[test]
fn a_linear_utility_weighs_the_worth_of_each_issue_and_rounds_down_once() {
    let issues = car();
    let space = OutcomeSpace::of_checked(&issues);
    let mandate = mandate(json!({"utility": {"linear": [
        {"issue": "colour", "weight": 333, "worth": [1_000_000, 1]},
        {"issue": "price", "weight": 667, "at_min": 1_000_000, "at_max": 0},
    ]}}));
    for (colour, price, utility) in [
        ("red", 0, 1_000_000),
        ("red", 3, 333_000),
        ("blue", 3, 0),
        // 333 * 1 + 667 * floor(2/3 of a million) = 333 + 444 666 222, of which a thousandth is 444 666.
        ("blue", 1, 444_666),
    ] {
        let terms = terms(json!({"colour": colour, "price": price, "doors": 3}));
        assert_eq!(utility_ppm(&mandate, space, &terms), Some(utility), "{colour} {price}");
    }
    assert_eq!(best_ppm(&mandate, space), Some(1_000_000));
    assert_eq!(utility_ppm(&mandate, space, &terms(json!({"colour": "red", "price": 4, "doors": 3}))), None);
}

#[test]
fn a_table_is_read_by_the_number_of_the_outcome() {
    let issues = car();
    let space = OutcomeSpace::of_checked(&issues);
    let table: Vec<u32> = (0..16).collect();
    let mandate = mandate(json!({"utility": {"table": table}}));
    assert_eq!(check(&mandate, space), Ok(()));
    assert_eq!(utility_ppm(&mandate, space, &terms(json!({"colour": "blue", "price": 0, "doors": 5}))), Some(9));
    assert_eq!(best_ppm(&mandate, space), Some(15));
}

#[test]
fn terms_worth_the_reservation_value_are_inside_and_those_worth_a_millionth_less_are_not() {
    let issues = car();
    let space = OutcomeSpace::of_checked(&issues);
    let table: Vec<u32> = (0..16).collect();
    let worth_9 = terms(json!({"colour": "blue", "price": 0, "doors": 5}));
    for (reservation, is_inside) in [(8, true), (9, true), (10, false)] {
        let mandate = mandate(json!({"reservation": reservation, "utility": {"table": table}}));
        assert_eq!(inside(&mandate, space, &worth_9).is_ok(), is_inside, "{reservation}");
    }
}

#[test]
fn a_mandate_that_does_not_fit_is_refused_where_it_does_not() {
    let worth = |change: Value| {
        let mut one = json!({"issue": "colour", "weight": 1000, "worth": [1, 2]});
        one.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"utility": {"linear": [one]}})
    };
    let range = |worth: Value| {
        let mut one = json!({"issue": "price", "weight": 1000});
        one.as_object_mut().unwrap().extend(worth.as_object().unwrap().clone());
        json!({"utility": {"linear": [one]}})
    };
    let twice = json!({"issue": "colour", "weight": 500, "worth": [1, 2]});
    let many: Vec<Value> = (0..33).map(|_| json!({"attr": "price", "op": "ne", "value": 1})).collect();
    let cases = [
        ("/policy", json!({"policy": "low"})),
        ("/reservation", json!({"reservation": 1})),
        ("/reservation", json!({"reservation": 1_000_001, "utility": {"table": []}})),
        ("/utility/linear", worth(json!({"weight": 999}))),
        ("/utility/linear/0/issue", worth(json!({"issue": "size"}))),
        ("/utility/linear/1/issue", json!({"utility": {"linear": [twice, twice]}})),
        ("/utility/linear/0/worth", worth(json!({"worth": [1]}))),
        ("/utility/linear/0/worth/1", worth(json!({"worth": [1, 1_000_001]}))),
        ("/utility/linear/0/worth", range(json!({"worth": [1, 2, 3, 4]}))),
        ("/utility/linear/0/at_max", range(json!({"at_min": 0, "at_max": 1_000_001}))),
        (
            "/utility/linear/0/at_min",
            json!({"utility": {"linear": [
            {"issue": "colour", "weight": 1000, "at_min": 0, "at_max": 1}]}}),
        ),
        ("/utility/table", json!({"utility": {"table": [1, 2]}})),
        ("/utility/table/2", json!({"utility": {"table": [0, 0, 2_000_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}})),
        ("/limits/0", json!({"limits": [{"attr": "round", "op": "eq", "value": 1}]})),
        ("/limits", json!({"limits": many})),
        ("/concession", json!({"concession": {"boulware": 9}})),
        ("/concession", json!({"concession": {"conceder": 1}})),
    ];
    let issues = car();
    for (pointer, document) in cases {
        let found = check(&mandate(document.clone()), OutcomeSpace::of_checked(&issues));
        assert_eq!(found.map_err(|fault| fault.pointer), Err(pointer.to_owned()), "{document}");
    }
}

#[test]
fn predicates_compare_integers_by_size_and_texts_by_sameness_only() {
    let value = |value: Value| -> AttrValue { serde_json::from_value(value).unwrap() };
    let (five, text) = (value(json!(5)), value(json!("x")));
    for (op, constant, of_five, of_text, of_nothing) in [
        ("eq", json!(5), true, false, false),
        ("ne", json!(5), false, true, true),
        ("lt", json!(6), true, false, false),
        ("le", json!(5), true, false, false),
        ("gt", json!(5), false, false, false),
        ("ge", json!(6), false, false, false),
        ("eq", json!("x"), false, true, false),
        ("ne", json!("x"), true, false, true),
        ("ge", json!("x"), false, false, false),
    ] {
        let predicate: Predicate =
            serde_json::from_value(json!({"attr": "price", "op": op, "value": constant})).unwrap();
        let found = [Some(&five), Some(&text), None].map(|value| holds(&predicate, value));
        assert_eq!(found, [of_five, of_text, of_nothing], "{op} {constant}");
    }
}

fn car() -> Vec<Issue> {
    let issues = json!([
        {"name": "colour", "values": ["red", "blue"]},
        {"name": "price", "min": 0, "max": 3},
        {"name": "doors", "values": [3, 5]},
    ]);
    serde_json::from_str(&issues.to_string()).unwrap()
}

fn mandate(document: Value) -> Mandate {
    serde_json::from_str(&document.to_string()).unwrap()
}

fn terms(document: Value) -> Terms {
    serde_json::from_str(&document.to_string()).unwrap()
}
