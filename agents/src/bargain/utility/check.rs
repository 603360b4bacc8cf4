//! Whether a utility function fits an outcome space.

use schemas::bargain::{self, IssueValues, PPM, TABLE_MAX, Worth};
use schemas::ids::AttrName;
use schemas::policy::WEIGHT_SUM;

use super::{Contribution, ROUNDING, Utility, ValueWorth};
use crate::bargain::DocumentFault;
use crate::bargain::space::Space;

pub(super) fn check(utility: &Utility, space: &Space) -> Result<(), DocumentFault> {
    match utility {
        Utility::Ppm(bargain::Utility::Linear(worths)) => check_linear_ppm(worths, space),
        Utility::Ppm(bargain::Utility::Table(table)) => {
            if space.len() > TABLE_MAX {
                return Err(DocumentFault::at(
                    "/table",
                    format!("at most {TABLE_MAX} outcomes; the space has {}", space.len()),
                ));
            }
            check_length("/table", table.len(), space.len(), "outcome")?;
            check_each("/table", table, |utility| *utility <= PPM, "0 to 1000000")
        }
        Utility::Linear(contributions) => check_linear(contributions, space),
        Utility::Table(table) => {
            check_length("/table_real", table.len(), space.len(), "outcome")?;
            check_each("/table_real", table, |utility| (0.0..=1.0).contains(utility), "0 to 1")
        }
    }
}

fn check_linear_ppm(worths: &[bargain::IssueWorth], space: &Space) -> Result<(), DocumentFault> {
    for (index, one) in worths.iter().enumerate() {
        let earlier = worths[..index].iter().map(|one| &one.issue);
        check_issue(&one.issue, earlier, space)
            .and_then(|values| check_worth_ppm(&one.worth, values))
            .map_err(|fault| fault.under(&format!("/linear/{index}")))?;
    }
    let sum: u64 = worths.iter().map(|one| u64::from(one.weight)).sum();
    if sum == u64::from(WEIGHT_SUM) {
        Ok(())
    } else {
        Err(DocumentFault::at("/linear", format!("weights add up to {WEIGHT_SUM}, not to {sum}")))
    }
}

fn check_linear(contributions: &[Contribution], space: &Space) -> Result<(), DocumentFault> {
    for (index, one) in contributions.iter().enumerate() {
        let earlier = contributions[..index].iter().map(|one| &one.issue);
        let checked = check_issue(&one.issue, earlier, space).and_then(|values| {
            if !(0.0..=1.0).contains(&one.weight) {
                return Err(DocumentFault::at("/weight", "0 to 1"));
            }
            check_worth(&one.worth, values)
        });
        checked.map_err(|fault| fault.under(&format!("/linear_real/{index}")))?;
    }
    let sum: f64 = contributions.iter().map(|one| one.weight).sum();
    if (sum - 1.0).abs() <= ROUNDING {
        Ok(())
    } else {
        Err(DocumentFault::at("/linear_real", format!("weights add up to 1, not to {sum}")))
    }
}

fn check_issue<'a, 'b>(
    name: &AttrName,
    mut earlier: impl Iterator<Item = &'b AttrName>,
    space: &'a Space,
) -> Result<&'a IssueValues, DocumentFault> {
    if earlier.any(|earlier| earlier == name) {
        return Err(DocumentFault::at("/issue", format!("`{name}` stands there before")));
    }
    let issue = space.issues().iter().find(|issue| issue.name == *name);
    issue.map(|issue| &issue.values).ok_or_else(|| DocumentFault::at("/issue", format!("there is no issue `{name}`")))
}

fn check_worth_ppm(worth: &Worth, values: &IssueValues) -> Result<(), DocumentFault> {
    let is_worth = |worth: &u32| *worth <= PPM;
    match (worth, values) {
        (Worth::Listed { worth }, IssueValues::Discrete { values }) => {
            check_length("/worth", worth.len(), values.len(), "value of the issue")?;
            check_each("/worth", worth, is_worth, "0 to 1000000")
        }
        (Worth::Linear { at_min, at_max }, IssueValues::Range { .. }) => {
            check_ends([at_min, at_max], is_worth, "0 to 1000000")
        }
        (Worth::Listed { .. }, IssueValues::Range { .. }) => Err(listed_of_a_range()),
        (Worth::Linear { .. }, IssueValues::Discrete { .. }) => Err(ends_of_values()),
    }
}

fn check_worth(worth: &ValueWorth, values: &IssueValues) -> Result<(), DocumentFault> {
    let is_worth = |worth: &f64| (0.0..=1.0).contains(worth);
    match (worth, values) {
        (ValueWorth::Listed(worth), IssueValues::Discrete { values }) => {
            check_length("/worth", worth.len(), values.len(), "value of the issue")?;
            check_each("/worth", worth, is_worth, "0 to 1")
        }
        (ValueWorth::Linear { at_min, at_max }, IssueValues::Range { .. }) => {
            check_ends([at_min, at_max], is_worth, "0 to 1")
        }
        (ValueWorth::Listed(_), IssueValues::Range { .. }) => Err(listed_of_a_range()),
        (ValueWorth::Linear { .. }, IssueValues::Discrete { .. }) => Err(ends_of_values()),
    }
}

fn listed_of_a_range() -> DocumentFault {
    DocumentFault::at("/worth", "the issue is a range: `at_min` and `at_max` tell its worth")
}

fn ends_of_values() -> DocumentFault {
    DocumentFault::at("/at_min", "the issue lists its values: `worth` has one number for each")
}

fn check_ends<T>(ends: [&T; 2], is_worth: impl Fn(&T) -> bool, range: &str) -> Result<(), DocumentFault> {
    let at_fault = ends.into_iter().zip(["/at_min", "/at_max"]).find(|(end, _)| !is_worth(end));
    at_fault.map_or(Ok(()), |(_, pointer)| Err(DocumentFault::at(pointer, range)))
}

fn check_length(pointer: &str, len: usize, expected: usize, of: &str) -> Result<(), DocumentFault> {
    if len == expected {
        Ok(())
    } else {
        Err(DocumentFault::at(pointer, format!("one number for each {of}: {expected}, not {len}")))
    }
}

fn check_each<T>(pointer: &str, list: &[T], is_good: impl Fn(&T) -> bool, range: &str) -> Result<(), DocumentFault> {
    let at_fault = list.iter().position(|one| !is_good(one));
    at_fault.map_or(Ok(()), |index| Err(DocumentFault::at(format!("{pointer}/{index}"), range)))
}
