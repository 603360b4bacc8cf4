use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_linear_utility_is_the_weighted_sum_rounded_down() {
    let space = space();
    let utility = ppm_utility(&json!({"linear": [
        {"issue": "colour", "weight": 333, "worth": [1_000_000, 1]},
        {"issue": "price", "weight": 667, "at_min": 1_000_000, "at_max": 0},
    ]}));
    utility.check(&space).unwrap();
    // The worth of the price falls in thirds, 666 666 and 333 333; of blue's 0.333 nothing is left but a carry.
    let expected = [1_000_000, 777_666, 555_333, 333_000, 667_000, 444_666, 222_333, 0];
    assert_eq!(utility.evaluate(&space).into_iter().map(ppm).collect::<Vec<_>>(), expected);
}

#[test]
fn an_issue_that_is_not_listed_counts_nothing() {
    let utility = ppm_utility(&json!({"linear": [{"issue": "colour", "weight": 1000, "worth": [10, 20]}]}));
    let expected = [10, 10, 10, 10, 20, 20, 20, 20];
    assert_eq!(utility.evaluate(&space()).into_iter().map(ppm).collect::<Vec<_>>(), expected);
}

#[test]
fn a_range_of_one_value_is_worth_its_beginning() {
    let space = Space::try_new(serde_json::from_value(json!([{"name": "a", "min": 5, "max": 5}])).unwrap()).unwrap();
    let whole = ppm_utility(&json!({"linear": [{"issue": "a", "weight": 1000, "at_min": 7, "at_max": 9}]}));
    assert_eq!(ppm(whole.evaluate(&space)[0]), 7);
    let worth = ValueWorth::Linear { at_min: 0.25, at_max: 0.75 };
    let real = Utility::Linear(vec![Contribution { issue: name("a"), weight: 1.0, worth }]);
    assert_eq!(real.evaluate(&space), [0.25]);
}

#[test]
fn real_utilities_become_a_table_of_parts_per_million_rounded_down() {
    let space = space();
    let table = Utility::Table(vec![0.29, 0.123_456_9, 1.0, 0.0, 0.5, 0.999_999_9, 0.1, 0.7]);
    let expected = vec![290_000, 123_456, 1_000_000, 0, 500_000, 999_999, 100_000, 700_000];
    assert_eq!(table.to_ppm(&space).unwrap(), bargain::Utility::Table(expected));
    let issues = json!([{"name": "a", "min": 1, "max": 1025}]);
    let large = Space::try_new(serde_json::from_value(issues).unwrap()).unwrap();
    assert!(Utility::Table(vec![0.0; 1025]).to_ppm(&large).is_err());
}

#[test]
fn a_function_that_does_not_fit_is_refused_where_it_is_at_fault() {
    let colour = |worth: Value| json!({"issue": "colour", "weight": 1000, "worth": worth});
    for (utility, pointer) in [
        (json!({"linear": []}), "/linear"),
        (json!({"linear": [{"issue": "colour", "weight": 999, "worth": [1, 2]}]}), "/linear"),
        (json!({"linear": [{"issue": "size", "weight": 1000, "worth": [1, 2]}]}), "/linear/0/issue"),
        (json!({"linear": [colour(json!([1, 2])), colour(json!([1, 2]))]}), "/linear/1/issue"),
        (json!({"linear": [colour(json!([1]))]}), "/linear/0/worth"),
        (json!({"linear": [colour(json!([1, 1_000_001]))]}), "/linear/0/worth/1"),
        (json!({"linear": [{"issue": "price", "weight": 1000, "worth": [1, 2, 3, 4]}]}), "/linear/0/worth"),
        (json!({"linear": [{"issue": "colour", "weight": 1000, "at_min": 1, "at_max": 2}]}), "/linear/0/at_min"),
        (json!({"linear": [{"issue": "price", "weight": 1000, "at_min": 1, "at_max": 1_000_001}]}), "/linear/0/at_max"),
        (json!({"table": [1, 2, 3]}), "/table"),
        (json!({"table": [1, 2, 3, 4, 5, 6, 7, 1_000_001]}), "/table/7"),
    ] {
        assert_eq!(ppm_utility(&utility).check(&space()).unwrap_err().pointer, pointer, "{utility}");
    }
    let real = |weight, worth| Utility::Linear(vec![Contribution { issue: name("colour"), weight, worth }]);
    for (utility, pointer) in [
        (real(0.5, ValueWorth::Listed(vec![0.0, 1.0])), "/linear_real"),
        (real(1.5, ValueWorth::Listed(vec![0.0, 1.0])), "/linear_real/0/weight"),
        (real(1.0, ValueWorth::Listed(vec![0.0, f64::NAN])), "/linear_real/0/worth/1"),
        (real(1.0, ValueWorth::Linear { at_min: 0.0, at_max: 1.0 }), "/linear_real/0/at_min"),
        (Utility::Table(vec![0.0; 9]), "/table_real"),
        (Utility::Table(vec![0.0, 0.5, -0.1, 0.0, 0.0, 0.0, 0.0, 0.0]), "/table_real/2"),
    ] {
        assert_eq!(utility.check(&space()).unwrap_err().pointer, pointer, "{utility:?}");
    }
}

#[test]
fn preferences_rank_what_is_allowed_and_worth_the_reservation_value() {
    let preferences = Preferences::try_new(vec![0.5, 0.2, 0.9, 0.5, 1.0], 0.5, |outcome| outcome != 4).unwrap();
    assert_eq!(preferences.ranking(), [0, 3, 2]);
    assert_eq!((preferences.best(), preferences.span()), (Some(2), Some((0.5, 0.9))));
    let acceptable: Vec<bool> = (0..6).map(|outcome| preferences.is_acceptable(outcome)).collect();
    assert_eq!(acceptable, [true, false, true, true, false, false]);
    assert_eq!([0.0, 0.5, 0.6, 0.91].map(|utility| preferences.position_at_least(utility)), [0, 0, 2, 3]);
    let nothing = Preferences::try_new(vec![0.5], 0.6, |_| true).unwrap();
    assert_eq!((nothing.best(), nothing.span()), (None, None));
    assert!(Preferences::try_new(vec![0.5, f64::NAN], 0.0, |_| true).is_err());
    assert!(Preferences::try_new(Vec::new(), 0.0, |_| true).is_err());
}

proptest! {
    #[test]
    fn what_is_worth_the_reservation_value_is_so_in_parts_per_million(one in 0.0..=1.0_f64, other in 0.0..=1.0_f64) {
        prop_assert!(ppm(one.max(other)) >= ppm(one.min(other)));
    }

    #[test]
    fn real_and_integer_linear_utilities_differ_by_rounding_only(
        weight in 0..=1000_u32,
        worths in prop::array::uniform4(0..=PPM),
    ) {
        let space = space();
        let whole = ppm_utility(&json!({"linear": [
            {"issue": "colour", "weight": weight, "worth": [worths[0], worths[1]]},
            {"issue": "price", "weight": 1000 - weight, "at_min": worths[2], "at_max": worths[3]},
        ]}));
        whole.check(&space).unwrap();
        let [first, second, at_min, at_max] = worths.map(|worth| f64::from(worth) / f64::from(PPM));
        let weight = f64::from(weight) / 1000.0;
        let listed = ValueWorth::Listed(vec![first, second]);
        let real = Utility::Linear(vec![
            Contribution { issue: name("colour"), weight, worth: listed },
            Contribution { issue: name("price"), weight: 1.0 - weight, worth: ValueWorth::Linear { at_min, at_max } },
        ]);
        real.check(&space).unwrap();
        for (whole, real) in whole.evaluate(&space).into_iter().zip(real.evaluate(&space)) {
            prop_assert!(whole <= real + 1e-9 && real - whole < 3e-6, "{whole} {real}");
        }
    }
}

fn space() -> Space {
    let issues = json!([{"name": "colour", "values": ["red", "blue"]}, {"name": "price", "min": 1, "max": 4}]);
    Space::try_new(serde_json::from_value(issues).unwrap()).unwrap()
}

fn ppm_utility(utility: &Value) -> Utility {
    Utility::Ppm(serde_json::from_value(utility.clone()).unwrap())
}

fn name(text: &str) -> AttrName {
    AttrName::try_new(text).unwrap()
}
