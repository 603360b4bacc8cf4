use proptest::prelude::*;
use schemas::bargain::Issue;
use serde_json::{Value, json};

use super::*;

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

#[test]
fn relative_time_is_the_further_of_rounds_and_time() {
    let rules = |rounds: Option<u32>, deadline_ms: Option<u64>| -> BargainSpec {
        let mut rules = json!({"issues": car()});
        rounds.into_iter().for_each(|rounds| rules["rounds"] = json!(rounds));
        deadline_ms.into_iter().for_each(|ms| rules["deadline_ms"] = json!(ms));
        serde_json::from_str(&rules.to_string()).unwrap()
    };
    for (rounds, deadline_ms, round, elapsed_us, t) in [
        (Some(9), None, 1, 99, 100_000),
        (Some(2), None, 2, 0, 666_666),
        (None, Some(10), 7, 2_500, 250_000),
        (Some(9), Some(10), 1, 2_500, 250_000),
        (Some(9), Some(10), 9, 2_500, 900_000),
        (None, Some(10), 7, 20_000, 1_000_000),
    ] {
        assert_eq!(relative_time_ppm(&rules(rounds, deadline_ms), round, elapsed_us), t);
    }
}

#[test]
fn aspirations_fall_from_the_best_to_the_reservation_value() {
    for (concession, t, aspiration) in [
        (Concession::Linear, 0, 900_000),
        (Concession::Linear, 250_000, 700_000),
        (Concession::Linear, 1_000_000, 100_000),
        (Concession::Boulware(4), 500_000, 850_000),
        (Concession::Conceder(4), 62_500, 500_000),
        // (0.333333)^8 is 152 parts per million, rounded down; of 800 000 that is 121.
        (Concession::Boulware(8), 333_333, 899_879),
        // The eighth root of one part per million is 0.177827.
        (Concession::Conceder(8), 1, 757_739),
    ] {
        assert_eq!(aspiration_ppm(t, concession, 900_000, 100_000), aspiration, "{concession:?} at {t}");
    }
    assert_eq!(aspiration_ppm(500_000, Concession::Linear, 100_000, 900_000), 100_000);
}

proptest! {
    #[test]
    fn aspirations_never_rise_and_stay_in_bounds(
        (one, other) in (0_u32..=PPM, 0_u32..=PPM),
        (best, reservation) in (0_u32..=PPM, 0_u32..=PPM),
        e in 2_u32..=CONCESSION_MAX,
    ) {
        for concession in [Concession::Boulware(e), Concession::Linear, Concession::Conceder(e)] {
            let early = aspiration_ppm(one.min(other), concession, best, reservation);
            let late = aspiration_ppm(one.max(other), concession, best, reservation);
            prop_assert!(late <= early && early <= best && late >= reservation.min(best));
        }
    }

    #[test]
    fn a_root_undone_by_its_power_comes_back_to_where_it_was_or_just_below(t in 0_u32..=PPM, e in 2_u32..=CONCESSION_MAX) {
        let root = u128::from(conceded_ppm(t, Concession::Conceder(e)));
        let (t, whole) = (u128::from(t), u128::from(PPM));
        // Stepwise, because a root to the eighth exceeds 128 bits: both sides rounded to the same side.
        let power = |base: u128| (1..e).fold(base, |power, _| power * base / whole);
        prop_assert!(power(root) <= t && power(root + 1) + u128::from(e) > t);
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
