//! Mandates: what terms are worth, what lies outside, and when a policy accepts in a party's name.

use schemas::Timestamp;
use schemas::bargain::{
    BargainSpec as Rules, CONCESSION_MAX, Comparison, Concession, IssueValues, IssueWorth, Mandate, PPM,
    PREDICATES_MAX, Predicate, TABLE_MAX, Utility, Worth,
};
use schemas::payload::{AttrValue, Terms};
use schemas::policy::{BargainRule, WEIGHT_SUM};

use super::{Bargain, space};
use crate::scoring::Big;

/// Where a mandate does not fit its bargain.
pub(crate) fn fault(mandate: &Mandate, rules: &Rules) -> Option<String> {
    if mandate.policy.is_some() && mandate.utility.is_none() {
        return Some("/policy".to_owned());
    }
    if mandate.reservation > PPM || (mandate.reservation > 0 && mandate.utility.is_none()) {
        return Some("/reservation".to_owned());
    }
    if let Some(pointer) = mandate.utility.as_ref().and_then(|utility| utility_fault(utility, rules)) {
        return Some(format!("/utility{pointer}"));
    }
    if mandate.limits.len() > PREDICATES_MAX {
        return Some("/limits".to_owned());
    }
    let is_issue = |limit: &Predicate| rules.issues.iter().any(|issue| issue.name == limit.attr);
    if let Some(index) = mandate.limits.iter().position(|limit| !is_issue(limit)) {
        return Some(format!("/limits/{index}"));
    }
    match mandate.concession {
        Some(Concession::Boulware(e) | Concession::Conceder(e)) if !(2..=CONCESSION_MAX).contains(&e) => {
            Some("/concession".to_owned())
        }
        Some(Concession::Boulware(_) | Concession::Linear | Concession::Conceder(_)) | None => None,
    }
}

fn utility_fault(utility: &Utility, rules: &Rules) -> Option<String> {
    let worths = match utility {
        Utility::Linear(worths) => worths,
        Utility::Table(table) => {
            if table.len() > TABLE_MAX || space::size(rules) != u128::try_from(table.len()).expect("a length") {
                return Some("/table".to_owned());
            }
            return table.iter().position(|worth| *worth > PPM).map(|index| format!("/table/{index}"));
        }
    };
    for (index, one) in worths.iter().enumerate() {
        let issue = rules.issues.iter().find(|issue| issue.name == one.issue);
        let is_again = worths[..index].iter().any(|other| other.issue == one.issue);
        let Some(issue) = issue.filter(|_| !is_again) else { return Some(format!("/linear/{index}/issue")) };
        if let Some(pointer) = worth_fault(&one.worth, &issue.values) {
            return Some(format!("/linear/{index}{pointer}"));
        }
    }
    let sum: u64 = worths.iter().map(|one| u64::from(one.weight)).sum();
    (sum != u64::from(WEIGHT_SUM)).then(|| "/linear".to_owned())
}

fn worth_fault(worth: &Worth, values: &IssueValues) -> Option<String> {
    match (worth, values) {
        (Worth::Listed { worth }, IssueValues::Discrete { values }) if worth.len() == values.len() => {
            worth.iter().position(|worth| *worth > PPM).map(|index| format!("/worth/{index}"))
        }
        (Worth::Listed { .. }, _) => Some("/worth".to_owned()),
        (Worth::Linear { .. }, IssueValues::Discrete { .. }) => Some("/at_min".to_owned()),
        (Worth::Linear { at_min, .. }, _) if *at_min > PPM => Some("/at_min".to_owned()),
        (Worth::Linear { at_max, .. }, _) => (*at_max > PPM).then(|| "/at_max".to_owned()),
    }
}

/// Of what is absent, or another kind of thing, only "not equal" holds.
pub(crate) fn holds(predicate: &Predicate, value: Option<&AttrValue>) -> bool {
    match (predicate.op, value, &predicate.value) {
        (Comparison::Eq, Some(value), wanted) => value == wanted,
        (Comparison::Ne, value, wanted) => value != Some(wanted),
        (Comparison::Lt, Some(AttrValue::Int(value)), AttrValue::Int(wanted)) => value < wanted,
        (Comparison::Le, Some(AttrValue::Int(value)), AttrValue::Int(wanted)) => value <= wanted,
        (Comparison::Gt, Some(AttrValue::Int(value)), AttrValue::Int(wanted)) => value > wanted,
        (Comparison::Ge, Some(AttrValue::Int(value)), AttrValue::Int(wanted)) => value >= wanted,
        (Comparison::Eq | Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge, _, _) => false,
    }
}

/// Where terms leave a mandate: `/<issue>` of the first limit they break, or nothing in particular when they are worth
/// too little.
pub(crate) fn outside(mandate: &Mandate, rules: &Rules, terms: &Terms) -> Option<String> {
    if let Some(broken) = mandate.limits.iter().find(|limit| !holds(limit, terms.get(&limit.attr))) {
        return Some(format!("/{}", broken.attr));
    }
    let utility = utility(mandate, rules, terms)?;
    (utility < mandate.reservation).then(String::new)
}

/// What terms are worth, where the mandate says so.
fn utility(mandate: &Mandate, rules: &Rules, terms: &Terms) -> Option<u32> {
    match mandate.utility.as_ref()? {
        Utility::Table(table) => {
            let number = space::outcomes(rules).iter().position(|outcome| outcome == terms);
            Some(table[number.expect("an outcome")])
        }
        Utility::Linear(worths) => Some(sum(worths, |one| worth_of(one, rules, &terms[&one.issue]))),
    }
}

/// What the best outcome is worth.
fn best(mandate: &Mandate, rules: &Rules) -> Option<u32> {
    match mandate.utility.as_ref()? {
        Utility::Table(table) => table.iter().max().copied(),
        Utility::Linear(worths) => Some(sum(worths, |one| {
            let issue = rules.issues.iter().find(|issue| issue.name == one.issue).expect("checked");
            let ends = match &issue.values {
                IssueValues::Discrete { values } => values.clone(),
                IssueValues::Range { min, max } => vec![AttrValue::Int(*min), AttrValue::Int(*max)],
            };
            ends.iter().map(|value| worth_of(one, rules, value)).max().expect("an issue has values")
        })),
    }
}

/// floor(sum of weight * worth / 1000).
fn sum(worths: &[IssueWorth], worth: impl Fn(&IssueWorth) -> u64) -> u32 {
    let sum: u64 = worths.iter().map(|one| u64::from(one.weight) * worth(one)).sum();
    u32::try_from(sum / 1000).expect("at most a million")
}

fn worth_of(one: &IssueWorth, rules: &Rules, value: &AttrValue) -> u64 {
    let issue = rules.issues.iter().find(|issue| issue.name == one.issue).expect("checked");
    match (&one.worth, &issue.values, value) {
        (Worth::Listed { worth }, IssueValues::Discrete { values }, _) => {
            worth[values.iter().position(|other| other == value).expect("in the space")].into()
        }
        (Worth::Linear { at_min, .. }, IssueValues::Range { min, max }, _) if min == max => (*at_min).into(),
        (Worth::Linear { at_min, at_max }, IssueValues::Range { min, max }, AttrValue::Int(value)) => {
            let (min, max, value) = (i128::from(*min), i128::from(*max), i128::from(*value));
            let worth = (i128::from(*at_min) * (max - value) + i128::from(*at_max) * (value - min)) / (max - min);
            u64::try_from(worth).expect("between the ends")
        }
        _ => unreachable!("checked when the mandate came"),
    }
}

/// Whether a policy accepts what stands for the party whose turn it is.
pub(crate) fn accepts(bargain: &Bargain, seat: usize, now: Timestamp) -> bool {
    let (Some(mandate), Some(rule)) = (&bargain.seats[seat].mandate, &bargain.seats[seat].rule) else { return false };
    let Some(made) = bargain.stands() else { return false };
    let is_acceptable = made.by != seat
        && made.from.is_none_or(|from| from <= now)
        && made.until.is_none_or(|until| until >= now)
        && bargain.conditions_met(made, now)
        && outside(mandate, &bargain.rules, &made.terms).is_none();
    if !is_acceptable {
        return false;
    }
    let worth = |terms: &Terms| utility(mandate, &bargain.rules, terms).expect("a policy needs a utility");
    let (offered, best) = (worth(&made.terms), best(mandate, &bargain.rules).expect("a policy needs a utility"));
    let t = bargain.t_ppm(now);
    match rule {
        BargainRule::Any => true,
        BargainRule::Next { any_from_round } => {
            bargain.round() >= *any_from_round || offered >= aspiration(mandate, best, t)
        }
        BargainRule::Combi { .. } if is_last_turn(bargain, now) => true,
        BargainRule::Combi { late_ppm, .. } if t < *late_ppm => offered == best,
        BargainRule::Combi { window_ppm, .. } => {
            let is_seen = |other: &&super::Made| {
                other.by != seat && other.t_ppm < t && other.t_ppm >= t.saturating_sub(*window_ppm)
            };
            let seen = bargain.offers.iter().filter(is_seen).map(|other| worth(&other.terms));
            seen.max().is_none_or(|seen| offered >= seen)
        }
    }
}

fn is_last_turn(bargain: &Bargain, now: Timestamp) -> bool {
    let by_time = bargain.rules.deadline_ms.is_some_and(|ms| {
        let left_us = (ms * 1000).saturating_sub(bargain.elapsed_us(now));
        left_us < (bargain.rules.step_ms + 1) * 1000
    });
    by_time || bargain.rules.rounds == Some(bargain.round())
}

/// best - (best - reservation) * t^e, what is taken off rounded down.
fn aspiration(mandate: &Mandate, best: u32, t: u32) -> u32 {
    let span = u64::from(best.saturating_sub(mandate.reservation));
    let off = span * conceded(t, mandate.concession.unwrap_or(Concession::Linear)) / 1_000_000;
    best - u32::try_from(off).expect("at most the span")
}

/// floor(t^e) in ppm: the largest number that is not above it.
pub(crate) fn conceded(t: u32, concession: Concession) -> u64 {
    let power = |base: u64, times: u32| (0..times).fold(Big::of(1), |power, _| power.times(base));
    let is_above = |x: u64| match concession {
        Concession::Linear => x > u64::from(t),
        // x > t^e / m^(e-1), and x^e > t * m^(e-1).
        Concession::Boulware(e) => !power(t.into(), e).is_at_least(&power(1_000_000, e - 1).times(x)),
        Concession::Conceder(e) => !power(1_000_000, e - 1).times(t.into()).is_at_least(&power(x, e)),
    };
    let (mut fits, mut above) = (0, 1_000_001);
    while above - fits > 1 {
        let middle = (fits + above) / 2;
        if is_above(middle) { above = middle } else { fits = middle }
    }
    fits
}
