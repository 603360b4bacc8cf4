//! Rules and outcome spaces, checked one after the other.

use schemas::bargain::{
    ATTR_ELAPSED_MS, ATTR_ROUND, BargainSpec as Rules, ISSUE_VALUES_MAX, ISSUES_MAX, IssueValues, ROUNDS_MAX,
};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, INTEGER_MAX, Terms};
use schemas::policy::{STRIKES_MAX, TIMER_MS_MAX};

/// Where rules contradict themselves first.
pub(crate) fn fault(rules: &Rules) -> Option<String> {
    if !(1..=ISSUES_MAX).contains(&rules.issues.len()) {
        return Some("/issues".to_owned());
    }
    for (index, issue) in rules.issues.iter().enumerate() {
        let is_taken = rules.issues[..index].iter().any(|other| other.name == issue.name);
        if is_taken || [ATTR_ROUND, ATTR_ELAPSED_MS].contains(&issue.name.as_str()) {
            return Some(format!("/issues/{index}/name"));
        }
        if let Some(pointer) = values_fault(&issue.values) {
            return Some(format!("/issues/{index}{pointer}"));
        }
    }
    let is_between = |number: u64, max: u64| number >= 1 && number <= max;
    let faults = [
        ("/rounds", rules.rounds.is_none() && rules.deadline_ms.is_none()),
        ("/rounds", rules.rounds.is_some_and(|rounds| !is_between(rounds.into(), ROUNDS_MAX.into()))),
        ("/deadline_ms", rules.deadline_ms.is_some_and(|ms| !is_between(ms, TIMER_MS_MAX))),
        ("/step_ms", !is_between(rules.step_ms, TIMER_MS_MAX)),
        ("/confirm_ms", rules.confirm_ms.is_some_and(|ms| !is_between(ms, TIMER_MS_MAX))),
        ("/max_strikes", !is_between(rules.max_strikes.into(), STRIKES_MAX.into())),
    ];
    faults.into_iter().find(|(_, is_fault)| *is_fault).map(|(pointer, _)| pointer.to_owned())
}

fn values_fault(values: &IssueValues) -> Option<String> {
    match values {
        IssueValues::Discrete { values } if !(1..=ISSUE_VALUES_MAX).contains(&values.len()) => {
            Some("/values".to_owned())
        }
        IssueValues::Discrete { values } => {
            let again = (0..values.len()).find(|&index| values[..index].contains(&values[index]));
            again.map(|index| format!("/values/{index}"))
        }
        IssueValues::Range { min, .. } if min.unsigned_abs() > INTEGER_MAX.unsigned_abs() => Some("/min".to_owned()),
        IssueValues::Range { min, max } => {
            (max.unsigned_abs() > INTEGER_MAX.unsigned_abs() || min > max).then(|| "/max".to_owned())
        }
    }
}

/// The issue in which terms leave the space, if they do: of the issues in their order, then of what is none.
pub(crate) fn outside(rules: &Rules, terms: &Terms) -> Option<AttrName> {
    let of_issues = rules.issues.iter().find(|issue| match (&issue.values, terms.get(&issue.name)) {
        (_, None) | (IssueValues::Range { .. }, Some(AttrValue::Text(_))) => true,
        (IssueValues::Discrete { values }, Some(value)) => !values.contains(value),
        (IssueValues::Range { min, max }, Some(AttrValue::Int(value))) => value < min || value > max,
    });
    let stranger = || terms.keys().find(|name| rules.issues.iter().all(|issue| issue.name != **name)).cloned();
    of_issues.map(|issue| issue.name.clone()).or_else(stranger)
}

/// How many outcomes there are, as far as anybody counts them.
pub(crate) fn size(rules: &Rules) -> u128 {
    rules.issues.iter().fold(1, |size, issue| {
        let values: u128 = match &issue.values {
            IssueValues::Discrete { values } => values.iter().map(|_| 1).sum(),
            IssueValues::Range { min, max } => u128::from(max.abs_diff(*min)) + 1,
        };
        size.saturating_mul(values)
    })
}

/// Every outcome in the order of their numbers; for small spaces.
pub(crate) fn outcomes(rules: &Rules) -> Vec<Terms> {
    let mut outcomes = vec![Terms::new()];
    for issue in &rules.issues {
        let values: Vec<AttrValue> = match &issue.values {
            IssueValues::Discrete { values } => values.clone(),
            IssueValues::Range { min, max } => (*min..=*max).map(AttrValue::Int).collect(),
        };
        let extended = |outcome: &Terms| {
            let with = |value: &AttrValue| {
                let mut longer = outcome.clone();
                longer.insert(issue.name.clone(), value.clone());
                longer
            };
            values.iter().map(with).collect::<Vec<_>>()
        };
        outcomes = outcomes.iter().flat_map(extended).collect();
    }
    outcomes
}
