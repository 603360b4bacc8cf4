//! Who comes first, and how sure is that.
//!
//! Every domain counts the same. Intervals are of means over domains of the kind: whole domains are drawn again, never bargains,
//! since those of one domain are alike. Competitors are compared domain by domain.

use serde::Serialize;

use super::TournamentRecord;
use crate::figures::resample::{Estimate, Interval, Resamples, SEEDS_MIN};

/// A mean over domains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TournamentFigure {
    /// The mean.
    pub value: f64,
    /// Its confidence interval at 95 %; absent for fewer than [`SEEDS_MIN`] domains.
    pub interval: Option<Interval>,
}

/// What a competitor came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rank {
    /// Place, from 1.
    pub place: usize,
    /// Competitor.
    pub competitor: String,
    /// Bargains, as first and as second party; one against itself counts as both.
    pub bargains: u64,
    /// Utility, 0 to 1; the reservation value counts where there was no agreement.
    pub utility: TournamentFigure,
    /// How much less than that of the place before; the intervals of all places hold together at 95 %.
    pub behind: Option<TournamentFigure>,
    /// Share of bargains with an agreement.
    pub agreements: TournamentFigure,
    /// Distance of an agreement to the Pareto frontier, in parts of the greatest there could be; absent without agreements.
    pub pareto_distance: Option<TournamentFigure>,
    /// The same to the Nash point.
    pub nash_distance: Option<TournamentFigure>,
    /// Utility against each competitor, in the order of places.
    pub against: Vec<f64>,
}

/// Sums over the bargains of one competitor on one domain, by what they are divided by.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    bargains: f64,
    utility: f64,
    agreements: f64,
    /// Agreements, and the sum of their distances.
    pareto: (f64, f64),
    nash: (f64, f64),
}

impl Sums {
    fn add(&mut self, record: &TournamentRecord, party: usize) {
        self.bargains += 1.0;
        self.utility += record.bargain.utilities[party];
        let Some(agreement) = &record.bargain.agreement else { return };
        self.agreements += 1.0;
        for ((count, sum), optimality) in [(&mut self.pareto, agreement.pareto), (&mut self.nash, agreement.nash)] {
            if let Some(optimality) = optimality {
                (*count, *sum) = (*count + 1.0, *sum + 1.0 - optimality);
            }
        }
    }
}

/// Ranks competitors by utility. `by_domain` has the bargains of each domain.
pub fn rank(competitors: &[String], by_domain: &[Vec<TournamentRecord>]) -> Vec<Rank> {
    let domains = by_domain.len();
    let resamples = Resamples::of(domains);
    let figure = |estimate: &Estimate, family| TournamentFigure {
        value: estimate.value,
        interval: if family > 1 { estimate.interval_among(family) } else { estimate.interval() }
            .filter(|_| domains >= SEEDS_MIN),
    };
    // The mean of what each domain has a value of.
    let mean = |sums: &[Sums], of: fn(&Sums) -> (f64, f64)| {
        resamples.estimate(domains, |weights| {
            let of_domain = sums.iter().zip(weights).map(|(sums, &weight)| (of(sums), f64::from(weight)));
            let parts = of_domain.filter(|((count, _), _)| *count > 0.0);
            let (sum, count) =
                parts.fold((0.0, 0.0), |(sum, all), ((count, of), weight)| (sum + of / count * weight, all + weight));
            (count > 0.0).then(|| sum / count)
        })
    };
    let of_all = competitors.iter().filter_map(|name| {
        let sums: Vec<Sums> = by_domain.iter().map(|records| sum(records, name)).collect();
        Some((name, mean(&sums, |sums| (sums.bargains, sums.utility))?, sums))
    });
    let mut ordered: Vec<(&String, Estimate, Vec<Sums>)> = of_all.collect();
    ordered.sort_by(|(_, one, _), (_, other, _)| other.value.total_cmp(&one.value));
    let rank = |(at, (name, utility, sums)): (usize, &(&String, Estimate, Vec<Sums>))| {
        let before = at.checked_sub(1).map(|before| &ordered[before].1);
        let of_agreements = |of| mean(sums, of).map(|estimate| figure(&estimate, 1));
        Some(Rank {
            place: at + 1,
            competitor: (*name).clone(),
            bargains: sums.iter().map(|sums| sums.bargains as u64).sum(),
            utility: figure(utility, 1),
            behind: before.map(|before| figure(&before.less(utility), ordered.len() - 1)),
            agreements: of_agreements(|sums| (sums.bargains, sums.agreements))?,
            pareto_distance: of_agreements(|sums| sums.pareto),
            nash_distance: of_agreements(|sums| sums.nash),
            against: ordered.iter().map(|(other, ..)| against(by_domain, name, other)).collect(),
        })
    };
    ordered.iter().enumerate().filter_map(rank).collect()
}

fn sum(records: &[TournamentRecord], name: &str) -> Sums {
    let mut sums = Sums::default();
    for record in records {
        for (party, who) in [&record.first, &record.second].into_iter().enumerate() {
            if who == name {
                sums.add(record, party);
            }
        }
    }
    sums
}

/// Mean utility of a competitor in the bargains with another.
fn against(by_domain: &[Vec<TournamentRecord>], name: &str, other: &str) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for record in by_domain.iter().flatten() {
        for (party, pair) in [[&record.first, &record.second], [&record.second, &record.first]].into_iter().enumerate()
        {
            if pair == [name, other] {
                (sum, count) = (sum + record.bargain.utilities[party], count + 1.0);
            }
        }
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AgreementRecord, BargainRecord};

    fn bargain(first: &str, second: &str, utilities: [f64; 2], is_agreed: bool) -> TournamentRecord {
        let agreement = AgreementRecord {
            welfare: 1.0,
            pareto: Some(0.9),
            nash: Some(0.8),
            kalai: None,
            kalai_smorodinsky: None,
            max_welfare: None,
            first_offer: None,
            is_irrational: false,
        };
        let bargain = BargainRecord {
            domain: "d".to_owned(),
            rounds: 1,
            steps: 1,
            relative_time: 0.1,
            utilities: utilities.to_vec(),
            advantages: utilities.to_vec(),
            agreement: is_agreed.then_some(agreement),
        };
        let (first, second, end) = (first.to_owned(), second.to_owned(), "agreement".to_owned());
        TournamentRecord { seed: 1, first, second, end, outcome: None, failed_turns: 0, bargain }
    }

    /// Over domain `n` everything is worth n / 50 more to both: a has 0.5 of a and 0.6 of b, b has 0.3 of a and, without an
    /// agreement, 0.2 of b.
    fn domain(n: u32) -> Vec<TournamentRecord> {
        let [a, a_of_b, b_of_a, b] = [0.5, 0.6, 0.3, 0.2].map(|utility| utility + f64::from(n) / 50.0);
        vec![
            bargain("a", "a", [a, a], true),
            bargain("a", "b", [a_of_b, b_of_a], true),
            bargain("b", "a", [b_of_a, a_of_b], true),
            bargain("b", "b", [b, b], false),
        ]
    }

    fn ranked(domains: u32) -> Vec<Rank> {
        rank(&["b", "a"].map(str::to_owned), &(0..domains).map(domain).collect::<Vec<_>>())
    }

    #[test]
    fn competitors_are_ranked_by_mean_utility_over_domains() {
        let ranks = ranked(10);
        let of: Vec<(&str, usize, u64)> =
            ranks.iter().map(|rank| (rank.competitor.as_str(), rank.place, rank.bargains)).collect();
        assert_eq!(of, [("a", 1, 40), ("b", 2, 40)]);
        // a: (0.5 + 0.5 + 2 x 0.6) / 4 + 0.09; b: (0.2 + 0.2 + 2 x 0.3) / 4 + 0.09.
        assert!(
            (ranks[0].utility.value - 0.64).abs() < 1e-12 && (ranks[1].utility.value - 0.34).abs() < 1e-12,
            "{ranks:?}"
        );
        assert!((ranks[1].behind.unwrap().value - 0.3).abs() < 1e-12);
        assert_eq!((ranks[0].agreements.value, ranks[1].agreements.value), (1.0, 0.5));
        assert!((ranks[0].pareto_distance.unwrap().value - 0.1).abs() < 1e-12);
        assert!((ranks[0].against[1] - 0.69).abs() < 1e-12 && (ranks[1].against[1] - 0.29).abs() < 1e-12);
    }

    #[test]
    fn an_interval_of_the_difference_is_narrower_than_those_of_both_where_domains_move_them_together() {
        let ranks = ranked(10);
        let [own, behind] = [ranks[1].utility, ranks[1].behind.unwrap()].map(|figure| figure.interval.unwrap());
        assert!(own.high - own.low > 0.05 && behind.high - behind.low < 1e-9, "{own:?}, {behind:?}");
    }

    #[test]
    fn fewer_than_six_domains_have_a_mean_and_no_interval() {
        assert!(ranked(6).iter().all(|rank| rank.utility.interval.is_some()));
        assert!(ranked(5).iter().all(|rank| rank.utility.interval.is_none() && rank.agreements.interval.is_none()));
        assert!(ranked(0).is_empty());
    }
}
