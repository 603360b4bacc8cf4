//! The outcome space, small enough to be listed.

use schemas::bargain::{ATTR_ELAPSED_MS, ATTR_ROUND, ISSUE_VALUES_MAX, ISSUES_MAX, Issue, IssueValues};
use schemas::payload::{ATTR_TEXT_LEN_MAX, AttrValue, INTEGER_MAX, Terms};

use super::DocumentFault;

/// Most outcomes an agent lists: one utility for each takes 8 MB, and sorting them a fifth of a second. The exchange
/// itself takes larger spaces, and never lists them.
pub const OUTCOMES_MAX: usize = 1_000_000;

/// The outcomes over some issues, numbered from 0, row-major: the last issue runs fastest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    issues: Vec<Issue>,
    sizes: Vec<usize>,
    len: usize,
}

impl Space {
    /// The space over these issues.
    ///
    /// # Errors
    /// The first [`DocumentFault`], its pointer starting at `/issues`: no issue or too many, a name twice or reserved, no values or
    /// one twice, a range that ends before it begins, more than [`OUTCOMES_MAX`] outcomes.
    pub fn try_new(issues: Vec<Issue>) -> Result<Self, DocumentFault> {
        if issues.is_empty() || issues.len() > ISSUES_MAX {
            return Err(DocumentFault::at("/issues", format!("1 to {ISSUES_MAX} issues make an outcome space")));
        }
        let mut sizes = Vec::with_capacity(issues.len());
        for (index, issue) in issues.iter().enumerate() {
            let pointer = format!("/issues/{index}");
            if [ATTR_ROUND, ATTR_ELAPSED_MS].contains(&issue.name.as_str()) {
                return Err(DocumentFault::at(pointer + "/name", format!("`{}` is a name of conditions", issue.name)));
            }
            if issues[..index].iter().any(|earlier| earlier.name == issue.name) {
                return Err(DocumentFault::at(pointer + "/name", format!("another issue is named `{}`", issue.name)));
            }
            sizes.push(check_values(&issue.values).map_err(|fault| fault.under(&pointer))?);
        }
        let outcomes = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        let len = outcomes.and_then(|outcomes| usize::try_from(outcomes).ok()).filter(|&len| len <= OUTCOMES_MAX);
        let Some(len) = len else {
            let counted = outcomes.map_or_else(|| "more than 2^64".to_owned(), |outcomes| outcomes.to_string());
            let detail =
                format!("{counted} outcomes; an agent lists at most {OUTCOMES_MAX}: use fewer or smaller issues");
            return Err(DocumentFault::at("/issues", detail));
        };
        let sizes = sizes.into_iter().map(|size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
        Ok(Self { issues, sizes, len })
    }

    /// The issues.
    #[must_use]
    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    /// How many values each issue has.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// How many outcomes there are, 1 to [`OUTCOMES_MAX`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a space is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The terms of an outcome; absent from [`Self::len`] on.
    #[must_use]
    pub fn terms(&self, outcome: usize) -> Option<Terms> {
        if outcome >= self.len {
            return None;
        }
        let mut rest = outcome;
        let mut terms = Terms::new();
        for (issue, size) in self.issues.iter().zip(&self.sizes).rev() {
            terms.insert(issue.name.clone(), value_at(&issue.values, rest % size)?);
            rest /= size;
        }
        Some(terms)
    }

    /// The outcome with these terms; absent unless they name a value of every issue, and nothing else.
    #[must_use]
    pub fn outcome(&self, terms: &Terms) -> Option<usize> {
        if terms.len() != self.issues.len() {
            return None;
        }
        self.issues.iter().zip(&self.sizes).try_fold(0, |outcome, (issue, size)| {
            Some(outcome * size + place_of(&issue.values, terms.get(&issue.name)?)?)
        })
    }
}

fn value_at(values: &IssueValues, place: usize) -> Option<AttrValue> {
    match values {
        IssueValues::Discrete { values } => values.get(place).cloned(),
        IssueValues::Range { min, .. } => Some(AttrValue::Int(min.checked_add_unsigned(place as u64)?)),
    }
}

fn place_of(values: &IssueValues, value: &AttrValue) -> Option<usize> {
    match (values, value) {
        (IssueValues::Discrete { values }, _) => values.iter().position(|one| one == value),
        (IssueValues::Range { min, max }, AttrValue::Int(value)) if min <= value && value <= max => {
            usize::try_from(value.abs_diff(*min)).ok()
        }
        (IssueValues::Range { .. }, AttrValue::Int(_) | AttrValue::Text(_)) => None,
    }
}

/// How many values an issue has.
fn check_values(values: &IssueValues) -> Result<u64, DocumentFault> {
    match values {
        IssueValues::Discrete { values } => {
            if values.is_empty() || values.len() > ISSUE_VALUES_MAX {
                return Err(DocumentFault::at(
                    "/values",
                    format!("1 to {ISSUE_VALUES_MAX} values make a discrete issue"),
                ));
            }
            for (index, value) in values.iter().enumerate() {
                check_value(value).map_err(|detail| DocumentFault::at(format!("/values/{index}"), detail))?;
                if values[..index].contains(value) {
                    return Err(DocumentFault::at(format!("/values/{index}"), "the value stands there before"));
                }
            }
            Ok(values.len() as u64)
        }
        IssueValues::Range { min, max } => {
            for (pointer, value) in [("/min", min), ("/max", max)] {
                check_value(&AttrValue::Int(*value)).map_err(|detail| DocumentFault::at(pointer, detail))?;
            }
            if min > max {
                return Err(DocumentFault::at("/max", "must not lie below `min`"));
            }
            Ok(max.abs_diff(*min) + 1)
        }
    }
}

fn check_value(value: &AttrValue) -> Result<(), String> {
    match value {
        AttrValue::Int(value) if value.unsigned_abs() > INTEGER_MAX.unsigned_abs() => {
            Err(format!("an integer within ± {INTEGER_MAX}"))
        }
        AttrValue::Text(text) if text.chars().count() > ATTR_TEXT_LEN_MAX => {
            Err(format!("a text of at most {ATTR_TEXT_LEN_MAX} characters"))
        }
        AttrValue::Int(_) | AttrValue::Text(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn outcomes_are_numbered_row_major_with_the_last_issue_fastest() {
        let space =
            space(&json!([{"name": "colour", "values": ["red", "blue"]}, {"name": "price", "min": -1, "max": 1}]));
        assert_eq!((space.len(), space.sizes()), (6, &[2, 3][..]));
        let terms = |outcome| serde_json::to_value(space.terms(outcome)).unwrap();
        assert_eq!(terms(0), json!({"colour": "red", "price": -1}));
        assert_eq!(terms(1), json!({"colour": "red", "price": 0}));
        assert_eq!(terms(3), json!({"colour": "blue", "price": -1}));
        assert_eq!(terms(5), json!({"colour": "blue", "price": 1}));
        assert_eq!(terms(6), Value::Null);
    }

    #[test]
    fn terms_that_are_no_outcome_have_no_number() {
        let space = space(&json!([{"name": "colour", "values": ["red", 7]}, {"name": "price", "min": 1, "max": 3}]));
        for (terms, outcome) in [
            (json!({"colour": "red", "price": 3}), Some(2)),
            (json!({"colour": 7, "price": 1}), Some(3)),
            (json!({"colour": "7", "price": 1}), None),
            (json!({"colour": "red", "price": 4}), None),
            (json!({"colour": "red", "price": 0}), None),
            (json!({"colour": "red", "price": "1"}), None),
            (json!({"colour": "red"}), None),
            (json!({"colour": "red", "price": 1, "size": 2}), None),
            (json!({"colour": "red", "size": 2}), None),
        ] {
            assert_eq!(space.outcome(&serde_json::from_value(terms.clone()).unwrap()), outcome, "{terms}");
        }
    }

    #[test]
    fn a_space_that_makes_no_sense_is_refused_where_it_is_at_fault() {
        let many: Vec<Value> = (0..33).map(|n| json!({"name": format!("i{n}"), "values": [1]})).collect();
        let cases = [
            (json!([]), "/issues"),
            (json!(many), "/issues"),
            (json!([{"name": "round", "values": [1]}]), "/issues/0/name"),
            (json!([{"name": "a", "values": [1]}, {"name": "a", "values": [2]}]), "/issues/1/name"),
            (json!([{"name": "a", "values": []}]), "/issues/0/values"),
            (json!([{"name": "a", "values": [1, 2, 1]}]), "/issues/0/values/2"),
            (json!([{"name": "a", "values": ["x".repeat(257)]}]), "/issues/0/values/0"),
            (json!([{"name": "a", "min": 2, "max": 1}]), "/issues/0/max"),
            (json!([{"name": "a", "min": 0, "max": 9_007_199_254_740_992_i64}]), "/issues/0/max"),
            (json!([{"name": "a", "min": 1, "max": 1_000_001}]), "/issues"),
            (json!([{"name": "a", "min": 1, "max": 1_000_000}, {"name": "b", "values": [1, 2]}]), "/issues"),
        ];
        for (issues, pointer) in cases {
            let found = Space::try_new(serde_json::from_value(issues.clone()).unwrap());
            assert_eq!(found.unwrap_err().pointer, pointer, "{issues}");
        }
        assert_eq!(space(&json!([{"name": "a", "min": 1, "max": 1_000_000}])).len(), OUTCOMES_MAX);
    }

    proptest! {
        #[test]
        fn number_and_terms_of_an_outcome_are_one_to_one(sizes in prop::collection::vec(1..6_i64, 1..5)) {
            let issues: Vec<Value> =
                (0..).zip(&sizes).map(|(n, size)| json!({"name": format!("i{n}"), "min": -1, "max": size - 2})).collect();
            let space = space(&json!(issues));
            prop_assert_eq!(space.len() as i64, sizes.iter().product::<i64>());
            for outcome in 0..space.len() {
                prop_assert_eq!(space.outcome(&space.terms(outcome).unwrap()), Some(outcome));
            }
        }
    }

    fn space(issues: &Value) -> Space {
        Space::try_new(serde_json::from_value(issues.clone()).unwrap()).unwrap()
    }
}
