//! The outcome space, small enough to be listed.

use schemas::bargain::space::{OutcomeSpace, size};
use schemas::bargain::{Issue, IssueValues};
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
    /// The first [`DocumentFault`], its pointer starting at `/issues`: what [`OutcomeSpace::new`] refuses, a value no document
    /// can have, more than [`OUTCOMES_MAX`] outcomes.
    pub fn try_new(issues: Vec<Issue>) -> Result<Self, DocumentFault> {
        let outcomes = OutcomeSpace::new(&issues)?.outcomes();
        check_values(&issues)?;
        let len = outcomes.and_then(|outcomes| usize::try_from(outcomes).ok()).filter(|&len| len <= OUTCOMES_MAX);
        let Some(len) = len else {
            let counted = outcomes.map_or_else(|| "more than 2^128".to_owned(), |outcomes| outcomes.to_string());
            let detail =
                format!("{counted} outcomes; an agent lists at most {OUTCOMES_MAX}: use fewer or smaller issues");
            return Err(DocumentFault::at("/issues", detail));
        };
        let sizes = issues.iter().map(|issue| usize::try_from(size(&issue.values)).unwrap_or(usize::MAX)).collect();
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
        self.outcomes().terms(outcome as u128)
    }

    /// The outcome with these terms; absent unless they name a value of every issue, and nothing else.
    #[must_use]
    pub fn outcome(&self, terms: &Terms) -> Option<usize> {
        usize::try_from(self.outcomes().index(terms)?).ok()
    }

    pub(super) fn outcomes(&self) -> OutcomeSpace<'_> {
        OutcomeSpace::of_checked(&self.issues)
    }
}

/// Texts and integers that a call could not carry.
fn check_values(issues: &[Issue]) -> Result<(), DocumentFault> {
    for (number, issue) in issues.iter().enumerate() {
        let IssueValues::Discrete { values } = &issue.values else { continue };
        for (index, value) in values.iter().enumerate() {
            let detail = match value {
                AttrValue::Int(value) if value.unsigned_abs() > INTEGER_MAX.unsigned_abs() => {
                    format!("an integer within ± {INTEGER_MAX}")
                }
                AttrValue::Text(text) if text.chars().count() > ATTR_TEXT_LEN_MAX => {
                    format!("a text of at most {ATTR_TEXT_LEN_MAX} characters")
                }
                AttrValue::Int(_) | AttrValue::Text(_) => continue,
            };
            return Err(DocumentFault::at(format!("/issues/{number}/values/{index}"), detail));
        }
    }
    Ok(())
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
