//! Sealed mandates, as far as they are arithmetic: whether one fits a space, what an outcome is worth under it, and what
//! is inside. Integers only, so that everybody comes to the same.

use std::cmp::Ordering;

use super::space::{OutcomeSpace, SpaceFault, check_predicates, place_of, size};
use super::{
    CONCESSION_MAX, Comparison, Concession, IssueValues, IssueWorth, Mandate, PPM, Predicate, TABLE_MAX, Utility, Worth,
};
use crate::policy::WEIGHT_SUM;
use crate::terms::{AttrValue, Terms};

/// Checks that a mandate fits the outcome space of its bargain.
///
/// # Errors
/// The first [`SpaceFault`], with its pointer from the mandate: a policy or reservation without a utility, weights that do not
/// add up, an issue that is unknown or stands twice, lists of another length than the values they are for, numbers out of
/// range, limits on what is no issue.
pub fn check(mandate: &Mandate, space: OutcomeSpace<'_>) -> Result<(), SpaceFault> {
    if mandate.utility.is_none() && mandate.policy.is_some() {
        return Err(SpaceFault::at("/policy", "a policy accepts by `utility`, which is missing"));
    }
    if mandate.reservation > PPM {
        return Err(SpaceFault::at("/reservation", "0 to 1000000"));
    }
    if mandate.utility.is_none() && mandate.reservation > 0 {
        return Err(SpaceFault::at("/reservation", "a reservation value is one of `utility`, which is missing"));
    }
    if let Some(utility) = &mandate.utility {
        check_utility(utility, space).map_err(|fault| fault.under("/utility"))?;
    }
    check_predicates(&mandate.limits, space, &[]).map_err(|fault| fault.under("/limits"))?;
    match mandate.concession {
        Some(Concession::Boulware(e) | Concession::Conceder(e)) if !(2..=CONCESSION_MAX).contains(&e) => {
            Err(SpaceFault::at("/concession", "an exponent of 2 to 8"))
        }
        Some(Concession::Boulware(_) | Concession::Linear | Concession::Conceder(_)) | None => Ok(()),
    }
}

/// Checks that a utility fits an outcome space.
///
/// # Errors
/// The first [`SpaceFault`], with its pointer from the utility.
pub fn check_utility(utility: &Utility, space: OutcomeSpace<'_>) -> Result<(), SpaceFault> {
    match utility {
        Utility::Linear(worths) => check_linear(worths, space),
        Utility::Table(table) => check_table(table, space),
    }
}

fn check_linear(worths: &[IssueWorth], space: OutcomeSpace<'_>) -> Result<(), SpaceFault> {
    for (index, one) in worths.iter().enumerate() {
        let pointer = format!("/linear/{index}");
        let Some(issue) = space.issue(&one.issue) else {
            return Err(SpaceFault::at(pointer + "/issue", "names no issue of the bargain"));
        };
        if worths[..index].iter().any(|earlier| earlier.issue == one.issue) {
            return Err(SpaceFault::at(pointer + "/issue", "the issue stands there before"));
        }
        check_worth(&one.worth, &issue.values).map_err(|fault| fault.under(&pointer))?;
    }
    let sum: u64 = worths.iter().map(|one| u64::from(one.weight)).sum();
    if sum == u64::from(WEIGHT_SUM) { Ok(()) } else { Err(SpaceFault::at("/linear", "weights add up to 1000")) }
}

fn check_worth(worth: &Worth, values: &IssueValues) -> Result<(), SpaceFault> {
    let in_range = |pointer: String, worth: u32| {
        if worth <= PPM { Ok(()) } else { Err(SpaceFault::at(pointer, "0 to 1000000")) }
    };
    match (worth, values) {
        (Worth::Listed { worth }, IssueValues::Discrete { values }) if worth.len() == values.len() => {
            worth.iter().enumerate().try_for_each(|(index, worth)| in_range(format!("/worth/{index}"), *worth))
        }
        (Worth::Listed { .. }, IssueValues::Discrete { .. }) => {
            Err(SpaceFault::at("/worth", "one number for each value of the issue"))
        }
        (Worth::Listed { .. }, IssueValues::Range { .. }) => {
            Err(SpaceFault::at("/worth", "of a range, `at_min` and `at_max` tell the worth"))
        }
        (Worth::Linear { at_min, at_max }, IssueValues::Range { .. }) => {
            in_range("/at_min".to_owned(), *at_min)?;
            in_range("/at_max".to_owned(), *at_max)
        }
        (Worth::Linear { .. }, IssueValues::Discrete { .. }) => {
            Err(SpaceFault::at("/at_min", "of a discrete issue, `worth` lists one number for each value"))
        }
    }
}

fn check_table(table: &[u32], space: OutcomeSpace<'_>) -> Result<(), SpaceFault> {
    let is_whole = table.len() <= TABLE_MAX && space.outcomes() == u128::try_from(table.len()).ok();
    if !is_whole {
        return Err(SpaceFault::at("/table", "one number for each outcome, of which there are at most 1024"));
    }
    match table.iter().position(|utility| *utility > PPM) {
        Some(index) => Err(SpaceFault::at(format!("/table/{index}"), "0 to 1000000")),
        None => Ok(()),
    }
}

/// What an outcome is worth, 0 to [`PPM`], rounded down; absent without a utility, or when the terms are no outcome.
#[must_use]
pub fn utility_ppm(mandate: &Mandate, space: OutcomeSpace<'_>, terms: &Terms) -> Option<u32> {
    match mandate.utility.as_ref()? {
        Utility::Table(table) => table.get(usize::try_from(space.index(terms)?).ok()?).copied(),
        Utility::Linear(worths) => {
            space.contains(terms).ok()?;
            let worth = |one: &IssueWorth| worth_of(one, space, terms.get(&one.issue)?);
            weighted(worths, worth)
        }
    }
}

/// What the best outcome is worth: for a linear utility found issue by issue, for a table by a look at each entry.
#[must_use]
pub fn best_ppm(mandate: &Mandate, space: OutcomeSpace<'_>) -> Option<u32> {
    match mandate.utility.as_ref()? {
        Utility::Table(table) => table.iter().copied().max(),
        Utility::Linear(worths) => weighted(worths, |one| match &one.worth {
            Worth::Listed { worth } => worth.iter().copied().max(),
            Worth::Linear { at_min, at_max } => {
                let (mut best, issue) = (*at_min.max(at_max), space.issue(&one.issue)?);
                if matches!(issue.values, IssueValues::Range { min, max } if min == max) {
                    best = *at_min;
                }
                Some(best)
            }
        }),
    }
}

/// floor(sum of weight * worth / 1000).
fn weighted(worths: &[IssueWorth], worth: impl Fn(&IssueWorth) -> Option<u32>) -> Option<u32> {
    let sum = worths.iter().try_fold(0_u64, |sum, one| {
        let part = u64::from(one.weight).checked_mul(u64::from(worth(one)?))?;
        sum.checked_add(part)
    })?;
    u32::try_from(sum / u64::from(WEIGHT_SUM)).ok()
}

/// The worth of one issue's value.
fn worth_of(one: &IssueWorth, space: OutcomeSpace<'_>, value: &AttrValue) -> Option<u32> {
    let values = &space.issue(&one.issue)?.values;
    worth_at(&one.worth, place_of(values, value)?, size(values))
}

/// The worth of the value at a place among `values` of an issue. Of a range: floor((at_min * (max - v) + at_max * (v - min)) /
/// (max - min)), and `at_min` where it has one value only.
#[must_use]
pub fn worth_at(worth: &Worth, place: u128, values: u128) -> Option<u32> {
    match worth {
        Worth::Listed { worth } => worth.get(usize::try_from(place).ok()?).copied(),
        Worth::Linear { at_min, at_max } => {
            let width = values.checked_sub(1)?;
            let sum = u128::from(*at_min) * width.checked_sub(place)? + u128::from(*at_max) * place;
            sum.checked_div(width).map_or(Some(*at_min), |worth| u32::try_from(worth).ok())
        }
    }
}

/// Whether terms are inside a mandate: every limit holds, and they are worth its reservation value at least.
///
/// # Errors
/// A [`SpaceFault`] with its pointer from the terms: to the issue whose limit is broken, or to the terms themselves when they
/// are worth too little.
pub fn inside(mandate: &Mandate, space: OutcomeSpace<'_>, terms: &Terms) -> Result<(), SpaceFault> {
    if let Some(broken) = mandate.limits.iter().find(|limit| !holds(limit, terms.get(&limit.attr))) {
        return Err(SpaceFault::at(format!("/{}", broken.attr), "outside the limits of the mandate"));
    }
    let is_worth_it = mandate.utility.is_none()
        || utility_ppm(mandate, space, terms).is_some_and(|utility| utility >= mandate.reservation);
    if is_worth_it { Ok(()) } else { Err(SpaceFault::at("", "worth less than the mandate's reservation value")) }
}

/// Whether a predicate holds of a value. Of one that is absent, or of another kind than the constant, only `ne` does; texts
/// are equal or not, and nothing else.
#[must_use]
pub fn holds(predicate: &Predicate, value: Option<&AttrValue>) -> bool {
    let order = match (value, &predicate.value) {
        (Some(AttrValue::Int(value)), AttrValue::Int(constant)) => value.cmp(constant),
        (Some(AttrValue::Text(value)), AttrValue::Text(constant)) => {
            return match predicate.op {
                Comparison::Eq => value == constant,
                Comparison::Ne => value != constant,
                Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge => false,
            };
        }
        (Some(AttrValue::Int(_)), AttrValue::Text(_)) | (Some(AttrValue::Text(_)), AttrValue::Int(_)) | (None, _) => {
            return predicate.op == Comparison::Ne;
        }
    };
    match predicate.op {
        Comparison::Eq => order == Ordering::Equal,
        Comparison::Ne => order != Ordering::Equal,
        Comparison::Lt => order == Ordering::Less,
        Comparison::Le => order != Ordering::Greater,
        Comparison::Gt => order == Ordering::Greater,
        Comparison::Ge => order != Ordering::Less,
    }
}

#[cfg(test)]
mod tests;
