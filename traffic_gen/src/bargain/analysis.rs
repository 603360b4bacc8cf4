//! What an agreement is worth beside what was possible: the Pareto frontier and the points of Nash, Kalai,
//! Kalai-Smorodinsky and most welfare over all outcomes of a domain, and the distance of an outcome to each.
//!
//! Definitions are those of NegMAS 0.16, for any number of parties. Only
//! individually rational outcomes count: those in which every party has at least its reservation value, and which its hard
//! limits allow, where it has such. With r the reservation value of a party, or its least utility where that is higher,
//! m its greatest utility, and u its utility:
//!
//! | solution | of the frontier, the outcomes with |
//! |---|---|
//! | Nash | the greatest product of u - r |
//! | Kalai | the greatest least u - r |
//! | Kalai-Smorodinsky | the least difference between the greatest and the least (u - r) / (m - r) |
//! | welfare | the greatest sum of u |
//!
//! Ties within [`TIE`] all count, outcomes of equal utilities too (NegMAS keeps one of those). A party that can gain
//! nothing makes every outcome of the frontier a solution, as in NegMAS.

use serde::Serialize;

/// Values that differ by no more are equal.
pub const TIE: f64 = 1e-12;
/// Names of the solutions, in the order of [`BySolution`].
const SOLUTIONS: [&str; 5] = ["Pareto", "Nash", "Kalai", "Kalai-Smorodinsky", "welfare"];

/// The utilities of all outcomes of a domain to all parties.
#[derive(Debug, Clone, PartialEq)]
pub struct Plane {
    parties: usize,
    /// Outcome by outcome, party by party.
    utilities: Vec<f64>,
    reserved: Vec<f64>,
    is_rational: Vec<bool>,
}

/// Why utilities make no plane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaneError {
    /// A party without a utility function or reservation value, an outcome one party does not know, or nothing at all.
    #[error("every party needs a reservation value and the utility of every outcome, and there must be both")]
    Ragged,
    /// Not a number, or an infinity.
    #[error("party {party}: a utility or reservation value is not a finite number")]
    NotFinite {
        /// The party, counted from 0.
        party: usize,
    },
}

/// The outcomes that stand out, each list ascending.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solutions {
    /// Rational outcomes no outcome improves on for one party without loss to another.
    pub pareto: Vec<usize>,
    /// Nash.
    pub nash: Vec<usize>,
    /// Kalai.
    pub kalai: Vec<usize>,
    /// Kalai-Smorodinsky.
    pub kalai_smorodinsky: Vec<usize>,
    /// Most welfare.
    pub max_welfare: Vec<usize>,
    /// How far the nearest rational outcome is from everybody's best at once, utilities as parts of each party's greatest:
    /// 0 means no conflict. Absent where no outcome is rational.
    pub opposition: Option<f64>,
}

/// A figure of an outcome for each solution; absent where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BySolution {
    /// Of the frontier.
    pub pareto: Option<f64>,
    /// Of the Nash point.
    pub nash: Option<f64>,
    /// Of the Kalai point.
    pub kalai: Option<f64>,
    /// Of the Kalai-Smorodinsky point.
    pub kalai_smorodinsky: Option<f64>,
    /// Of the outcome of most welfare.
    pub max_welfare: Option<f64>,
}

impl BySolution {
    /// These figures, in the order of declaration.
    pub fn of([pareto, nash, kalai, kalai_smorodinsky, max_welfare]: [Option<f64>; 5]) -> Self {
        Self { pareto, nash, kalai, kalai_smorodinsky, max_welfare }
    }

    /// The figures, in the order of declaration.
    pub fn parts(self) -> [Option<f64>; 5] {
        [self.pareto, self.nash, self.kalai, self.kalai_smorodinsky, self.max_welfare]
    }

    /// Each figure behind its solution's name, a dash where there is none, and a text between two of them.
    pub fn told(self, between: &str) -> String {
        let told = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{part:.3}"));
        let parts = SOLUTIONS.into_iter().zip(self.parts()).map(|(name, part)| format!("{name} {}", told(part)));
        parts.collect::<Vec<_>>().join(between)
    }
}

impl Plane {
    /// A plane from the utilities of each party, one per outcome, and the parties' reservation values.
    ///
    /// # Errors
    /// [`PlaneError`].
    pub fn try_new(by_party: &[Vec<f64>], reserved: &[f64]) -> Result<Self, PlaneError> {
        let outcomes = by_party.first().map_or(0, Vec::len);
        if outcomes == 0 || reserved.len() != by_party.len() || by_party.iter().any(|known| known.len() != outcomes) {
            return Err(PlaneError::Ragged);
        }
        for (party, (known, reserved)) in by_party.iter().zip(reserved).enumerate() {
            if !known.iter().chain([reserved]).all(|value| value.is_finite()) {
                return Err(PlaneError::NotFinite { party });
            }
        }
        let utilities = (0..outcomes).flat_map(|outcome| by_party.iter().map(move |known| known[outcome])).collect();
        let has_its_due = |outcome: usize| by_party.iter().zip(reserved).all(|(known, least)| known[outcome] >= *least);
        let is_rational = (0..outcomes).map(has_its_due).collect();
        Ok(Self { parties: by_party.len(), utilities, reserved: reserved.to_vec(), is_rational })
    }

    /// The same without the outcomes that somebody may not agree to, whatever they are worth.
    pub fn only(mut self, is_allowed: impl Fn(usize) -> bool) -> Self {
        for (outcome, is_rational) in self.is_rational.iter_mut().enumerate() {
            *is_rational &= is_allowed(outcome);
        }
        self
    }

    /// How many parties.
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// How many outcomes.
    pub fn outcomes(&self) -> usize {
        self.utilities.len() / self.parties
    }

    /// The reservation values, party by party.
    pub fn reserved(&self) -> &[f64] {
        &self.reserved
    }

    /// The utilities of an outcome, party by party.
    ///
    /// # Panics
    /// When there is no such outcome.
    pub fn point(&self, outcome: usize) -> &[f64] {
        &self.utilities[outcome * self.parties..][..self.parties]
    }

    /// The sum of all parties' utilities of an outcome.
    pub fn welfare(&self, outcome: usize) -> f64 {
        self.point(outcome).iter().sum()
    }

    /// Whether every party has at least its reservation value, and may agree to it.
    ///
    /// # Panics
    /// When there is no such outcome.
    pub fn is_rational(&self, outcome: usize) -> bool {
        self.is_rational[outcome]
    }

    /// The outcomes that stand out.
    pub fn solutions(&self) -> Solutions {
        let pareto = self.frontier();
        let whole: Vec<(f64, f64)> = (0..self.parties).map(|party| self.worst_and_best(party)).collect();
        let ranges: Vec<(f64, f64)> =
            whole.iter().zip(&self.reserved).map(|(&(worst, best), &reserved)| (worst.max(reserved), best)).collect();
        let best = |ranges: &[(f64, f64)], worth: &dyn Fn(&[f64]) -> f64| {
            if ranges.iter().any(|(low, high)| high - low <= TIE) {
                return pareto.clone();
            }
            let worth_of = |outcome: &usize| worth(self.point(*outcome));
            let most = pareto.iter().map(worth_of).fold(f64::NEG_INFINITY, f64::max);
            pareto.iter().copied().filter(|outcome| worth_of(outcome) >= most - TIE).collect()
        };
        let gains = |point: &[f64]| -> Vec<f64> { point.iter().zip(&ranges).map(|(u, (low, _))| u - low).collect() };
        let spread = |point: &[f64]| {
            let parts = point.iter().zip(&ranges).map(|(u, (low, high))| (u - low) / (high - low));
            let (least, most) = parts.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), p| (a.min(p), b.max(p)));
            most - least
        };
        Solutions {
            nash: best(&ranges, &|point| gains(point).iter().product()),
            kalai: best(&ranges, &|point| gains(point).iter().copied().fold(f64::INFINITY, f64::min)),
            kalai_smorodinsky: best(&ranges, &|point| -spread(point)),
            max_welfare: best(&whole, &|point| point.iter().sum()),
            opposition: self.opposition(),
            pareto,
        }
    }

    /// How far an outcome is, in the space of utilities, from the nearest outcome of each solution.
    pub fn distances(&self, outcome: usize, solutions: &Solutions) -> BySolution {
        let to = |others: &[usize]| {
            others.iter().map(|&other| distance(self.point(outcome), self.point(other))).min_by(f64::total_cmp)
        };
        let Solutions { pareto, nash, kalai, kalai_smorodinsky, max_welfare, .. } = solutions;
        BySolution::of([pareto, nash, kalai, kalai_smorodinsky, max_welfare].map(|others| to(others)))
    }

    /// The greatest distance two outcomes could have: between everybody's worst and everybody's best.
    pub fn extent(&self) -> f64 {
        (0..self.parties).map(|party| self.worst_and_best(party)).map(|(a, b)| (b - a).powi(2)).sum::<f64>().sqrt()
    }

    /// An outcome that another dominates comes after it in descending order of the utilities, so one pass that compares
    /// with the frontier found so far is enough. With two parties the last one found is the other's best so far, and
    /// decides alone: a million outcomes must not be compared with half a million.
    fn frontier(&self) -> Vec<usize> {
        let mut rational: Vec<usize> = (0..self.outcomes()).filter(|&outcome| self.is_rational(outcome)).collect();
        rational.sort_by(|&a, &b| {
            let by_utility = self.point(b).iter().zip(self.point(a)).map(|(b, a)| b.total_cmp(a));
            by_utility.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        let mut frontier: Vec<usize> = Vec::new();
        let compared = if self.parties == 2 { 1 } else { usize::MAX };
        for outcome in rational {
            let point = self.point(outcome);
            if !frontier.iter().rev().take(compared).any(|&other| dominates(self.point(other), point)) {
                frontier.push(outcome);
            }
        }
        frontier.sort_unstable();
        frontier
    }

    fn worst_and_best(&self, party: usize) -> (f64, f64) {
        let utilities = (0..self.outcomes()).map(|outcome| self.point(outcome)[party]);
        utilities.fold((f64::INFINITY, f64::NEG_INFINITY), |(worst, best), u| (worst.min(u), best.max(u)))
    }

    fn opposition(&self) -> Option<f64> {
        let best: Vec<f64> = (0..self.parties).map(|party| self.worst_and_best(party).1).collect();
        let conflict = |outcome| {
            let parts = self.point(outcome).iter().zip(&best).map(|(u, best)| if *best == 0.0 { *u } else { u / best });
            parts.map(|part| (1.0 - part).powi(2)).sum::<f64>().sqrt()
        };
        (0..self.outcomes()).filter(|&outcome| self.is_rational(outcome)).map(conflict).min_by(f64::total_cmp)
    }
}

/// Whether `a` is at least as good for every party, and better for one.
fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b) && a.iter().zip(b).any(|(a, b)| a > b)
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(points: &[[f64; 2]], reserved: [f64; 2]) -> Plane {
        let of = |party: usize| points.iter().map(|point| point[party]).collect();
        Plane::try_new(&[of(0), of(1)], &reserved).unwrap()
    }

    #[test]
    fn the_frontier_leaves_out_what_is_dominated_and_what_one_party_would_never_take() {
        let plane = plane(&[[1.0, 0.0], [0.6, 0.6], [0.5, 0.6], [0.3, 0.9], [0.1, 1.0]], [0.2, 0.1]);
        assert_eq!(plane.solutions().pareto, [1, 3]);
    }

    #[test]
    fn outcomes_of_equal_utilities_are_all_on_the_frontier() {
        let plane = plane(&[[0.6, 0.6], [0.6, 0.6], [0.6, 0.5]], [0.0, 0.0]);
        let solutions = plane.solutions();
        assert_eq!((&solutions.pareto, &solutions.nash), (&vec![0, 1], &vec![0, 1]));
    }

    /// Nash: products .20 .24 .21; Kalai: least gains .2 .4 .3 - all from reservation values of 0.
    #[test]
    fn each_solution_weighs_what_it_is_named_for() {
        let plane = plane(&[[1.0, 0.2], [0.6, 0.4], [0.3, 0.7]], [0.0, 0.0]);
        let solutions = plane.solutions();
        assert_eq!((&solutions.nash, &solutions.kalai), (&vec![1], &vec![1]));
        // Parts of the greatest gain: (1, .29), (.6, .57), (.3, 1).
        assert_eq!(solutions.kalai_smorodinsky, [1]);
        assert_eq!(solutions.max_welfare, [0]);
        let far = plane.distances(2, &solutions);
        assert_eq!(far.pareto, Some(0.0));
        assert!((far.nash.unwrap() - 0.18_f64.sqrt()).abs() < 1e-12, "{far:?}");
    }

    #[test]
    fn where_nothing_is_rational_there_is_no_solution_and_no_distance() {
        let plane = plane(&[[0.1, 0.9], [0.9, 0.1]], [0.5, 0.5]);
        let solutions = plane.solutions();
        assert!(solutions.pareto.is_empty() && solutions.nash.is_empty());
        assert_eq!(solutions.opposition, None);
        assert_eq!(plane.distances(0, &solutions).pareto, None);
    }

    #[test]
    fn what_somebody_may_not_agree_to_is_no_solution() {
        let plane = plane(&[[1.0, 0.2], [0.6, 0.6], [0.5, 0.5]], [0.0, 0.0]).only(|outcome| outcome != 1);
        assert_eq!(plane.solutions().pareto, [0, 2]);
        assert!(!plane.is_rational(1));
    }

    #[test]
    fn three_parties_have_a_frontier_too() {
        let by_party = [vec![1.0, 0.0, 0.0, 0.5, 0.4], vec![0.0, 1.0, 0.0, 0.5, 0.5], vec![0.0, 0.0, 1.0, 0.5, 0.5]];
        let plane = Plane::try_new(&by_party, &[0.0; 3]).unwrap();
        let solutions = plane.solutions();
        assert_eq!(solutions.pareto, [0, 1, 2, 3]);
        assert_eq!((&solutions.kalai, &solutions.max_welfare), (&vec![3], &vec![3]));
        assert!((plane.extent() - 3.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn utilities_that_make_no_plane_are_refused() {
        assert_eq!(Plane::try_new(&[], &[]), Err(PlaneError::Ragged));
        assert_eq!(Plane::try_new(&[vec![0.1], vec![]], &[0.0, 0.0]), Err(PlaneError::Ragged));
        assert_eq!(Plane::try_new(&[vec![0.1], vec![f64::NAN]], &[0.0, 0.0]), Err(PlaneError::NotFinite { party: 1 }));
    }
}
