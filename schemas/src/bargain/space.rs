//! The outcome space of a bargain: which terms can be agreed on, and the number of each
//! (docs/spec/alternating-offers.md#ao-5). Nothing here lists outcomes, of which there may be more than a machine can
//! count.

use super::{ATTR_ELAPSED_MS, ATTR_ROUND, BargainSpec, ISSUE_VALUES_MAX, ISSUES_MAX, Issue, IssueValues};
use super::{PREDICATES_MAX, Predicate, ROUNDS_MAX};
use crate::ids::AttrName;
use crate::policy::{STRIKES_MAX, TIMER_MS_MAX};
use crate::terms::{AttrValue, INTEGER_MAX, Terms};

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {reason}")]
pub struct SpaceFault {
    /// JSON pointer (RFC 6901) from the document that was checked to the fault; empty for the document itself.
    pub pointer: String,
    /// What is wrong, or what would be right.
    pub reason: &'static str,
}

impl SpaceFault {
    /// A fault at a pointer.
    #[must_use]
    pub fn at(pointer: impl Into<String>, reason: &'static str) -> Self {
        Self { pointer: pointer.into(), reason }
    }

    /// The same fault, seen from a document this one stands in.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self { pointer: format!("{prefix}{}", self.pointer), ..self }
    }
}

/// The outcome space over some issues. Outcomes are numbered from 0, row-major: the last issue runs fastest.
#[derive(Debug, Clone, Copy)]
pub struct OutcomeSpace<'a> {
    issues: &'a [Issue],
    outcomes: Option<u128>,
}

impl<'a> OutcomeSpace<'a> {
    /// The space of these issues.
    ///
    /// # Errors
    /// The first [`SpaceFault`], with its pointer from `/issues`: none or more than [`ISSUES_MAX`], a name twice or reserved, no
    /// values, a value twice, a range that ends before it begins.
    pub fn new(issues: &'a [Issue]) -> Result<Self, SpaceFault> {
        if issues.is_empty() || issues.len() > ISSUES_MAX {
            return Err(SpaceFault::at("/issues", "1 to 32 issues make an outcome space"));
        }
        for (index, issue) in issues.iter().enumerate() {
            let pointer = format!("/issues/{index}");
            if [ATTR_ROUND, ATTR_ELAPSED_MS].contains(&issue.name.as_str()) {
                return Err(SpaceFault::at(pointer + "/name", "`round` and `elapsed_ms` are names of conditions"));
            }
            if issues[..index].iter().any(|earlier| earlier.name == issue.name) {
                return Err(SpaceFault::at(pointer + "/name", "another issue has this name"));
            }
            check_values(&issue.values).map_err(|fault| fault.under(&pointer))?;
        }
        Ok(Self::of_checked(issues))
    }

    /// As [`Self::new`], for issues that were checked before.
    #[must_use]
    pub fn of_checked(issues: &'a [Issue]) -> Self {
        let outcomes = issues.iter().try_fold(1_u128, |product, issue| product.checked_mul(size(&issue.values)));
        Self { issues, outcomes }
    }

    /// The issues.
    #[must_use]
    pub fn issues(&self) -> &'a [Issue] {
        self.issues
    }

    /// How many outcomes there are; absent when 128 bits cannot count them.
    #[must_use]
    pub fn outcomes(&self) -> Option<u128> {
        self.outcomes
    }

    /// Whether the terms are an outcome: a value for every issue, and nothing else.
    ///
    /// # Errors
    /// The first [`SpaceFault`], with its pointer from the terms: of the issues in their order, then of what is none.
    pub fn contains(&self, terms: &Terms) -> Result<(), SpaceFault> {
        for issue in self.issues {
            let pointer = || format!("/{}", issue.name);
            let value =
                terms.get(&issue.name).ok_or_else(|| SpaceFault::at(pointer(), "an offer names every issue"))?;
            if place_of(&issue.values, value).is_none() {
                return Err(SpaceFault::at(pointer(), "the issue cannot have this value"));
            }
        }
        match terms.keys().find(|name| self.issue(name).is_none()) {
            Some(name) => Err(SpaceFault::at(format!("/{name}"), "this is no issue of the bargain")),
            None => Ok(()),
        }
    }

    /// The number of an outcome; absent when the terms are none, or 128 bits cannot number them.
    #[must_use]
    pub fn index(&self, terms: &Terms) -> Option<u128> {
        self.outcomes?;
        self.contains(terms).ok()?;
        self.issues.iter().try_fold(0_u128, |index, issue| {
            let place = place_of(&issue.values, terms.get(&issue.name)?)?;
            Some(index * size(&issue.values) + place)
        })
    }

    /// The outcome with this number; absent from [`Self::outcomes`] on.
    #[must_use]
    pub fn terms(&self, index: u128) -> Option<Terms> {
        if index >= self.outcomes? {
            return None;
        }
        let mut rest = index;
        let mut terms = Terms::new();
        for issue in self.issues.iter().rev() {
            let size = size(&issue.values);
            terms.insert(issue.name.clone(), value_at(&issue.values, rest % size)?);
            rest /= size;
        }
        Some(terms)
    }

    /// The issue of this name.
    #[must_use]
    pub fn issue(&self, name: &AttrName) -> Option<&'a Issue> {
        self.issues.iter().find(|issue| issue.name == *name)
    }
}

/// Checks what the fold relies on in the rules of a bargain.
///
/// # Errors
/// The first [`SpaceFault`], with its pointer from the rules.
pub fn check_rules(rules: &BargainSpec) -> Result<OutcomeSpace<'_>, SpaceFault> {
    let space = OutcomeSpace::new(&rules.issues)?;
    if rules.rounds.is_none() && rules.deadline_ms.is_none() {
        return Err(SpaceFault::at("/rounds", "`rounds` or `deadline_ms` bounds a bargain: at least one is needed"));
    }
    let counts = [
        ("/rounds", rules.rounds.map(u64::from), u64::from(ROUNDS_MAX), "1 to 1000 rounds"),
        ("/deadline_ms", rules.deadline_ms, TIMER_MS_MAX, "1 ms to a day"),
        ("/step_ms", Some(rules.step_ms), TIMER_MS_MAX, "1 ms to a day"),
        ("/confirm_ms", rules.confirm_ms, TIMER_MS_MAX, "1 ms to a day"),
        ("/max_strikes", Some(u64::from(rules.max_strikes)), u64::from(STRIKES_MAX), "1 to 100 strikes"),
    ];
    for (pointer, count, max, reason) in counts {
        if count.is_some_and(|count| !(1..=max).contains(&count)) {
            return Err(SpaceFault::at(pointer, reason));
        }
    }
    Ok(space)
}

/// Whether predicates are few enough, and each names an issue, or one of `others`.
///
/// # Errors
/// The first [`SpaceFault`], with its pointer from the list.
pub fn check_predicates(predicates: &[Predicate], space: OutcomeSpace<'_>, others: &[&str]) -> Result<(), SpaceFault> {
    if predicates.len() > PREDICATES_MAX {
        return Err(SpaceFault::at("", "at most 32 predicates"));
    }
    for (index, predicate) in predicates.iter().enumerate() {
        if space.issue(&predicate.attr).is_none() && !others.contains(&predicate.attr.as_str()) {
            return Err(SpaceFault::at(format!("/{index}"), "names no issue of the bargain"));
        }
    }
    Ok(())
}

fn check_values(values: &IssueValues) -> Result<(), SpaceFault> {
    match values {
        IssueValues::Discrete { values } => {
            if values.is_empty() || values.len() > ISSUE_VALUES_MAX {
                return Err(SpaceFault::at("/values", "1 to 256 values make a discrete issue"));
            }
            let again = (1..values.len()).find(|&index| values[..index].contains(&values[index]));
            match again {
                Some(index) => Err(SpaceFault::at(format!("/values/{index}"), "the value stands there before")),
                None => Ok(()),
            }
        }
        IssueValues::Range { min, max } => {
            let is_integer = |value: i64| value.unsigned_abs() <= INTEGER_MAX.unsigned_abs();
            match (is_integer(*min), is_integer(*max), min <= max) {
                (false, _, _) => Err(SpaceFault::at("/min", "beyond the integers of a document")),
                (_, false, _) => Err(SpaceFault::at("/max", "beyond the integers of a document")),
                (_, _, false) => Err(SpaceFault::at("/max", "must not lie below `min`")),
                (true, true, true) => Ok(()),
            }
        }
    }
}

/// How many values an issue can have; at least one of a checked issue.
#[must_use]
pub fn size(values: &IssueValues) -> u128 {
    match values {
        IssueValues::Discrete { values } => u128::try_from(values.len()).unwrap_or(u128::MAX),
        IssueValues::Range { min, max } => u128::from(max.abs_diff(*min)) + 1,
    }
}

/// Where a value stands among those of an issue.
pub(super) fn place_of(values: &IssueValues, value: &AttrValue) -> Option<u128> {
    match (values, value) {
        (IssueValues::Discrete { values }, _) => {
            values.iter().position(|one| one == value).and_then(|place| u128::try_from(place).ok())
        }
        (IssueValues::Range { min, max }, AttrValue::Int(value)) if (min..=max).contains(&value) => {
            Some(u128::from(value.abs_diff(*min)))
        }
        (IssueValues::Range { .. }, AttrValue::Int(_) | AttrValue::Text(_)) => None,
    }
}

fn value_at(values: &IssueValues, place: u128) -> Option<AttrValue> {
    match values {
        IssueValues::Discrete { values } => values.get(usize::try_from(place).ok()?).cloned(),
        IssueValues::Range { min, .. } => min.checked_add(i64::try_from(place).ok()?).map(AttrValue::Int),
    }
}

#[cfg(test)]
mod tests;
