//! What outcomes are worth to a party.

use schemas::bargain::{self, IssueValues, PPM, TABLE_MAX, Worth, mandate};
use schemas::ids::AttrName;
use schemas::policy::WEIGHT_SUM;

use super::DocumentFault;
use super::space::Space;

/// How far weights may miss their sum of 1, and utilities leave 0 to 1, by rounding.
pub const ROUNDING: f64 = 1e-9;

/// A utility function over an outcome space.
#[derive(Debug, Clone, PartialEq)]
pub enum Utility {
    /// As mandates have it: integers, parts per million. The exchange comes to the same numbers.
    Ppm(bargain::Utility),
    /// The sum of weight * worth over the issues, in real numbers; weights add up to 1. Issues that are not listed count
    /// nothing.
    Linear(Vec<Contribution>),
    /// One real number from 0 to 1 per outcome, in the order of their numbers.
    Table(Vec<f64>),
}

/// What one issue contributes to a linear utility.
#[derive(Debug, Clone, PartialEq)]
pub struct Contribution {
    /// The issue.
    pub issue: AttrName,
    /// 0 to 1.
    pub weight: f64,
    /// The worth of its values.
    pub worth: ValueWorth,
}

/// The worth of an issue's values, each 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueWorth {
    /// Of each value of a discrete issue, in their order.
    Listed(Vec<f64>),
    /// Of a range: linear between its ends; where it has one value, `at_min`.
    Linear {
        /// Worth of the smallest value.
        at_min: f64,
        /// Worth of the largest value.
        at_max: f64,
    },
}

impl Utility {
    /// Checks that the function fits a space.
    ///
    /// # Errors
    /// The first [`DocumentFault`], its pointer starting at the utility: an issue unknown or twice, weights of another sum, a list of
    /// another length than what it is for, a number out of range.
    pub fn check(&self, space: &Space) -> Result<(), DocumentFault> {
        match self {
            Self::Ppm(utility) => Ok(mandate::check_utility(utility, space.outcomes())?),
            Self::Linear(contributions) => check_linear(contributions, space),
            Self::Table(table) => check_list("/table_real", table, space.len(), "outcome"),
        }
    }

    /// The utility of every outcome, 0 to 1, in the order of their numbers. Of a function that fits the space.
    #[must_use]
    pub fn evaluate(&self, space: &Space) -> Vec<f64> {
        match self {
            Self::Ppm(utility) => {
                let ppm = |utility: u64| utility as f64 / f64::from(PPM);
                evaluate_ppm(utility, space).into_iter().map(ppm).collect()
            }
            Self::Linear(contributions) => {
                let parts: Vec<Vec<f64>> = per_issue(space, |name, size| {
                    let one = contributions.iter().find(|one| one.issue == *name);
                    let worth = |place| one.map_or(0.0, |one| one.weight * one.worth.at(place, size));
                    (0..size).map(worth).collect()
                });
                // A sum of weights that rounds to more than 1 is still a utility.
                sums(&parts).into_iter().map(|utility: f64| utility.clamp(0.0, 1.0)).collect()
            }
            Self::Table(table) => table.clone(),
        }
    }

    /// The same in parts per million, rounded down, as mandates have it.
    ///
    /// # Errors
    /// A [`DocumentFault`] where mandates have no words for it: a function in real numbers over more than [`TABLE_MAX`] outcomes.
    pub fn to_ppm(&self, space: &Space) -> Result<bargain::Utility, DocumentFault> {
        match self {
            Self::Ppm(utility) => Ok(utility.clone()),
            Self::Linear(_) | Self::Table(_) if space.len() > TABLE_MAX => Err(DocumentFault::at(
                "",
                format!(
                    "a mandate lists at most {TABLE_MAX} utilities, and the space has {}: write the utility as `linear`, \
                     in parts per million",
                    space.len()
                ),
            )),
            Self::Linear(_) | Self::Table(_) => {
                Ok(bargain::Utility::Table(self.evaluate(space).into_iter().map(ppm).collect()))
            }
        }
    }
}

impl ValueWorth {
    fn at(&self, place: usize, size: usize) -> f64 {
        match self {
            Self::Listed(worth) => worth.get(place).copied().unwrap_or(0.0),
            Self::Linear { at_min, .. } if size < 2 => *at_min,
            Self::Linear { at_min, at_max } => at_min + (at_max - at_min) * (place as f64 / (size - 1) as f64),
        }
    }
}

/// A utility in parts per million, rounded down. Decimal fractions of six digits keep them all.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a product of 0 to 1 and a million")]
pub fn ppm(utility: f64) -> u32 {
    let scaled = utility.clamp(0.0, 1.0) * f64::from(PPM);
    // 0.29 is 0.28999…: what lies within rounding of an integer means that integer.
    let nearest = scaled.round();
    (if (scaled - nearest).abs() < 1e-6 { nearest } else { scaled.floor() }) as u32
}

fn evaluate_ppm(utility: &bargain::Utility, space: &Space) -> Vec<u64> {
    match utility {
        bargain::Utility::Table(table) => table.iter().map(|&utility| u64::from(utility)).collect(),
        bargain::Utility::Linear(worths) => {
            let parts: Vec<Vec<u64>> = per_issue(space, |name, size| {
                let one = worths.iter().find(|one| one.issue == *name);
                let worth = |place| one.map_or(0, |one| u64::from(one.weight) * worth_ppm(&one.worth, place, size));
                (0..size).map(worth).collect()
            });
            sums(&parts).into_iter().map(|sum: u64| sum / u64::from(WEIGHT_SUM)).collect()
        }
    }
}

fn worth_ppm(worth: &Worth, place: usize, size: usize) -> u64 {
    mandate::worth_at(worth, place as u128, size as u128).map_or(0, u64::from)
}

fn per_issue<T>(space: &Space, part: impl Fn(&AttrName, usize) -> Vec<T>) -> Vec<Vec<T>> {
    space.issues().iter().zip(space.sizes()).map(|(issue, &size)| part(&issue.name, size)).collect()
}

/// The sums of one part per issue, for every outcome in the order of their numbers.
fn sums<T: Copy + Default + std::ops::Add<Output = T>>(parts: &[Vec<T>]) -> Vec<T> {
    parts.iter().fold(vec![T::default()], |sums, part| {
        sums.iter().flat_map(|&sum| part.iter().map(move |&one| sum + one)).collect()
    })
}

/// What a party wants: a utility for every outcome, and which outcomes it may agree to.
#[derive(Debug, Clone, PartialEq)]
pub struct Preferences {
    utilities: Vec<f64>,
    reservation: f64,
    /// Outcomes it may agree to, worst first; equal ones in the order of their numbers.
    ranking: Vec<usize>,
    is_acceptable: Vec<bool>,
    /// Of all outcomes its hard limits allow.
    worst: f64,
    best: f64,
}

impl Preferences {
    /// From one utility per outcome, and the utility of no agreement. Outcomes worth less than that are not acceptable, nor
    /// are those that `is_allowed` (hard limits) excludes.
    ///
    /// # Errors
    /// A [`DocumentFault`] when there is no utility, or one that is not a finite number.
    pub fn try_new(
        utilities: Vec<f64>,
        reservation: f64,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Self, DocumentFault> {
        if utilities.is_empty() {
            return Err(DocumentFault::at("", "no outcome has a utility"));
        }
        if let Some(outcome) = utilities.iter().position(|utility| !utility.is_finite()) {
            return Err(DocumentFault::at(format!("/{outcome}"), "a utility is a number"));
        }
        if !reservation.is_finite() {
            return Err(DocumentFault::at("", "a reservation value is a number"));
        }
        let allowed: Vec<usize> = (0..utilities.len()).filter(|&outcome| is_allowed(outcome)).collect();
        let mut ranking: Vec<usize> =
            allowed.iter().copied().filter(|&outcome| utilities[outcome] >= reservation).collect();
        ranking.sort_by(|&left, &right| utilities[left].total_cmp(&utilities[right]));
        let mut is_acceptable = vec![false; utilities.len()];
        for &outcome in &ranking {
            is_acceptable[outcome] = true;
        }
        let worst = allowed.iter().map(|&outcome| utilities[outcome]).fold(f64::INFINITY, f64::min);
        let best = allowed.iter().map(|&outcome| utilities[outcome]).fold(f64::NEG_INFINITY, f64::max);
        Ok(Self { utilities, reservation, ranking, is_acceptable, worst, best })
    }

    /// What an outcome is worth; nothing at all when it is none.
    #[must_use]
    pub fn utility(&self, outcome: usize) -> f64 {
        self.utilities.get(outcome).copied().unwrap_or(f64::NEG_INFINITY)
    }

    /// The utility of every outcome.
    #[must_use]
    pub fn utilities(&self) -> &[f64] {
        &self.utilities
    }

    /// What no agreement is worth.
    #[must_use]
    pub fn reservation(&self) -> f64 {
        self.reservation
    }

    /// Whether the party may agree to an outcome: its hard limits allow it, and it is worth the reservation value.
    #[must_use]
    pub fn is_acceptable(&self, outcome: usize) -> bool {
        self.is_acceptable.get(outcome).copied().unwrap_or(false)
    }

    /// The outcomes it may agree to, worst first; equal ones in the order of their numbers.
    #[must_use]
    pub fn ranking(&self) -> &[usize] {
        &self.ranking
    }

    /// The best outcome it may agree to, if there is any.
    #[must_use]
    pub fn best(&self) -> Option<usize> {
        self.ranking.last().copied()
    }

    /// The least utility it could agree to and the greatest: the larger of its worst outcome and its reservation value, and
    /// its best outcome. Absent when it may agree to nothing.
    #[must_use]
    pub fn span(&self) -> Option<(f64, f64)> {
        (!self.ranking.is_empty()).then(|| (self.worst.max(self.reservation), self.best))
    }

    /// The position in the ranking of the first outcome worth at least this much; the length of the ranking when none is.
    #[must_use]
    pub fn position_at_least(&self, utility: f64) -> usize {
        self.ranking.partition_point(|&outcome| self.utilities[outcome] < utility)
    }
}

fn check_linear(contributions: &[Contribution], space: &Space) -> Result<(), DocumentFault> {
    for (index, one) in contributions.iter().enumerate() {
        let earlier = contributions[..index].iter().map(|one| &one.issue);
        let checked = check_issue(&one.issue, earlier, space).and_then(|values| {
            check_part("/weight", one.weight)?;
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

fn check_worth(worth: &ValueWorth, values: &IssueValues) -> Result<(), DocumentFault> {
    match (worth, values) {
        (ValueWorth::Listed(worth), IssueValues::Discrete { values }) => {
            check_list("/worth", worth, values.len(), "value of the issue")
        }
        (ValueWorth::Linear { at_min, at_max }, IssueValues::Range { .. }) => {
            check_part("/at_min", *at_min)?;
            check_part("/at_max", *at_max)
        }
        (ValueWorth::Listed(_), IssueValues::Range { .. }) => {
            Err(DocumentFault::at("/worth", "the issue is a range: `at_min` and `at_max` tell its worth"))
        }
        (ValueWorth::Linear { .. }, IssueValues::Discrete { .. }) => {
            Err(DocumentFault::at("/at_min", "the issue lists its values: `worth` has one number for each"))
        }
    }
}

fn check_list(pointer: &str, list: &[f64], expected: usize, of: &str) -> Result<(), DocumentFault> {
    if list.len() != expected {
        return Err(DocumentFault::at(pointer, format!("one number for each {of}: {expected}, not {}", list.len())));
    }
    let mut numbers = list.iter().enumerate();
    numbers.try_for_each(|(index, &number)| {
        check_part("", number).map_err(|fault| fault.under(&format!("{pointer}/{index}")))
    })
}

fn check_part(pointer: &str, number: f64) -> Result<(), DocumentFault> {
    if (0.0..=1.0).contains(&number) { Ok(()) } else { Err(DocumentFault::at(pointer, "0 to 1")) }
}

#[cfg(test)]
mod tests;
