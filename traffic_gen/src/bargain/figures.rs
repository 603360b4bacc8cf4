//! What many bargains came to (docs/bargaining.md).

use std::fmt;

use serde::Serialize;

use super::Played;
use super::analysis::{BySolution, Plane, Solutions};
use super::anchoring::Anchoring;

/// Mean and quantiles of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Sample {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 %.
    pub p95: f64,
    /// How many.
    pub count: usize,
}

impl Sample {
    /// Of some values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| sorted[((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self { mean, p50: at(0.50), p95: at(0.95), count: sorted.len() })
    }
}

/// What a party got.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// Its name; absent where bargains of several domains are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub party: Option<String>,
    /// Its utility of the agreements; its reservation value counts where there was none.
    pub utility: Option<f64>,
    /// The same less the reservation value.
    pub advantage: Option<f64>,
}

/// The figures of many bargains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Bargains that ended.
    pub bargains: u64,
    /// Those with an agreement.
    pub agreements: u64,
    /// Agreements, as a part of the bargains.
    pub agreement_rate: f64,
    /// Rounds to agreement.
    pub rounds: Option<Sample>,
    /// Relative time to agreement, 0 to 1.
    pub relative_time: Option<Sample>,
    /// Sum of the parties' utilities of an agreement.
    pub welfare: Option<Sample>,
    /// What each party got, by the order of turns.
    pub shares: Vec<Share>,
    /// Distance of an agreement to the Pareto frontier.
    pub pareto_distance: Option<Sample>,
    /// Distance of an agreement to the Nash point.
    pub nash_distance: Option<Sample>,
    /// How near agreements came to the best points, see [`AgreementValue::optimality`]; means over the agreements.
    pub optimality: BySolution,
    /// Anchoring of the first party.
    pub anchoring: Option<Anchoring>,
    /// Agreements in which a party has less than its reservation value, or what its limits forbid.
    pub irrational: u64,
}

impl Figures {
    /// The same, with the names of the parties in the order of turns.
    pub fn of_parties<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.shares.iter_mut().zip(names).for_each(|(share, name)| share.party = Some(name.to_owned()));
        self
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, sample: &Option<Sample>| match sample {
            Some(sample) => {
                writeln!(
                    f,
                    "  {name:<24} mean {:>7.3}   p50 {:>7.3}   p95 {:>7.3}",
                    sample.mean, sample.p50, sample.p95
                )
            }
            None => Ok(()),
        };
        let percent = self.agreement_rate * 100.0;
        writeln!(f, "  agreements {} of {} ({percent:.1} %)", self.agreements, self.bargains)?;
        line(f, "rounds to agreement", &self.rounds)?;
        line(f, "relative time", &self.relative_time)?;
        line(f, "welfare", &self.welfare)?;
        line(f, "distance to the frontier", &self.pareto_distance)?;
        line(f, "distance to Nash", &self.nash_distance)?;
        for (party, share) in (1..).zip(&self.shares) {
            let (utility, advantage) = (share.utility.unwrap_or_default(), share.advantage.unwrap_or_default());
            let party = share.party.clone().unwrap_or_else(|| format!("party {party}"));
            writeln!(f, "  {party}: utility {utility:.3}, advantage {advantage:.3}")?;
        }
        writeln!(f, "  optimality: {}", self.optimality.told(", "))?;
        if let Some(anchoring) = &self.anchoring {
            let Anchoring { agreements, seed, .. } = anchoring;
            // A sum with 0 turns -0 into 0: a slope of nothing has no sign.
            let [slope, low, high] =
                [anchoring.slope, anchoring.low, anchoring.high].map(|slope| (slope * 1e3).round() / 1e3 + 0.0);
            writeln!(
                f,
                "  anchoring: slope {slope:.3}, 95 % interval {low:.3} to {high:.3} ({agreements} agreements, seed {seed})"
            )?;
        }
        write!(f, "  agreements that a party may not make, or that are worth less to it than none: {}", self.irrational)
    }
}

/// What one bargain came to, by what outcomes are worth to its parties.
#[derive(Debug, Clone, PartialEq)]
pub struct BargainValue {
    /// By party, in the order of turns: utility of the agreement; the reservation value where there was none.
    pub utilities: Vec<f64>,
    /// The same less the reservation value.
    pub advantages: Vec<f64>,
    /// What only an agreement has.
    pub agreement: Option<AgreementValue>,
}

/// What one agreement is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct AgreementValue {
    /// Sum of the utilities.
    pub welfare: f64,
    /// Whether every party may make it, and gets its reservation value at least.
    pub is_rational: bool,
    /// How far it is from the best points.
    pub distances: BySolution,
    /// How near: 1 - distance / the greatest distance two outcomes could have; 1 is on the frontier, or at the point. Of welfare:
    /// the agreement's as part of the greatest.
    pub optimality: BySolution,
    /// Utility of the first offer of the first party, to that party.
    pub first_offer: Option<f64>,
}

impl BargainValue {
    /// Of a bargain over a domain with this plane.
    pub fn of(plane: &Plane, solutions: &Solutions, played: &Played) -> Self {
        let agreement = played.agreement();
        let reserved = plane.reserved().iter().copied();
        let utilities: Vec<f64> = match agreement {
            Some(outcome) => plane.point(outcome).to_vec(),
            None => reserved.clone().collect(),
        };
        let advantages = utilities.iter().zip(reserved).map(|(utility, reserved)| utility - reserved).collect();
        let agreement = agreement.map(|outcome| {
            let far = plane.distances(outcome, solutions);
            let extent = plane.extent();
            let near =
                |distance: Option<f64>| distance.filter(|_| extent > 0.0).map(|far| (1.0 - far / extent).max(0.0));
            let most = solutions.max_welfare.first().map(|&best| plane.welfare(best)).filter(|most| *most > 0.0);
            let optimality = BySolution {
                max_welfare: most.map(|most| plane.welfare(outcome) / most),
                ..BySolution::of(far.parts().map(near))
            };
            AgreementValue {
                welfare: plane.welfare(outcome),
                is_rational: plane.is_rational(outcome),
                distances: far,
                optimality,
                first_offer: played.offers_of(0).next().map(|first| plane.point(first)[0]),
            }
        });
        Self { utilities, advantages, agreement }
    }
}

/// Collects bargains, of one domain or of several.
#[derive(Debug, Clone, Default)]
pub struct MatchupCounts {
    bargains: u64,
    irrational: u64,
    rounds: Vec<f64>,
    relative_time: Vec<f64>,
    welfare: Vec<f64>,
    /// By party: utility, advantage.
    shares: Vec<(Vec<f64>, Vec<f64>)>,
    /// Pareto, Nash.
    distances: [Vec<f64>; 2],
    /// Pareto, Nash, Kalai, Kalai-Smorodinsky, welfare.
    optimality: [Vec<f64>; 5],
    /// Utility of the first offer and of the agreement to the first party.
    anchors: Vec<(f64, f64)>,
}

impl MatchupCounts {
    /// Counts one bargain.
    pub fn add(&mut self, plane: &Plane, solutions: &Solutions, played: &Played) {
        let BargainValue { utilities, advantages, agreement } = BargainValue::of(plane, solutions, played);
        self.bargains += 1;
        self.shares.resize_with(self.shares.len().max(plane.parties()), Default::default);
        for ((of_utility, of_advantage), (utility, advantage)) in
            self.shares.iter_mut().zip(utilities.iter().zip(advantages))
        {
            of_utility.push(*utility);
            of_advantage.push(advantage);
        }
        let Some(AgreementValue { welfare, is_rational, distances, optimality, first_offer }) = agreement else {
            return;
        };
        self.irrational += u64::from(!is_rational);
        self.rounds.push(f64::from(played.rounds));
        self.relative_time.push(played.relative_time);
        self.welfare.push(welfare);
        for (sample, distance) in self.distances.iter_mut().zip([distances.pareto, distances.nash]) {
            sample.extend(distance);
        }
        for (sample, near) in self.optimality.iter_mut().zip(optimality.parts()) {
            sample.extend(near);
        }
        self.anchors.extend(first_offer.zip(utilities.first().copied()));
    }

    /// Bargains counted.
    pub fn bargains(&self) -> u64 {
        self.bargains
    }

    /// Agreements counted.
    pub fn agreements(&self) -> u64 {
        self.rounds.len() as u64
    }

    /// The figures, anchoring among them where there is a seed for its interval. It means something only over bargains of one domain.
    pub fn figures(&self, seed: Option<u64>) -> Figures {
        let mean = |values: &[f64]| Sample::of(values).map(|sample| sample.mean);
        Figures {
            bargains: self.bargains,
            agreements: self.agreements(),
            agreement_rate: if self.bargains == 0 { 0.0 } else { self.agreements() as f64 / self.bargains as f64 },
            rounds: Sample::of(&self.rounds),
            relative_time: Sample::of(&self.relative_time),
            welfare: Sample::of(&self.welfare),
            shares: self
                .shares
                .iter()
                .map(|(utilities, advantages)| Share {
                    party: None,
                    utility: mean(utilities),
                    advantage: mean(advantages),
                })
                .collect(),
            pareto_distance: Sample::of(&self.distances[0]),
            nash_distance: Sample::of(&self.distances[1]),
            optimality: BySolution::of(self.optimality.each_ref().map(|near| mean(near))),
            anchoring: seed.and_then(|seed| Anchoring::of(&self.anchors, seed)),
            irrational: self.irrational,
        }
    }
}

#[cfg(test)]
mod tests {
    use agents::bargain::OfferMade;

    use super::*;
    use crate::bargain::BargainEnd;

    fn played(end: BargainEnd, rounds: u32) -> Played {
        let trace = vec![OfferMade { step: 0, round: 1, party: 0, outcome: 0 }];
        Played { end, rounds, steps: 2 * rounds, relative_time: f64::from(rounds) / 11.0, trace }
    }

    /// Two agreements of three bargains: one at the Nash point, one that the second party should not have made.
    #[test]
    fn figures_are_those_of_the_bargains_counted() {
        let plane = Plane::try_new(&[vec![1.0, 0.6, 0.9], vec![0.2, 0.6, 0.1]], &[0.1, 0.2]).unwrap();
        let solutions = plane.solutions();
        let mut tally = MatchupCounts::default();
        tally.add(&plane, &solutions, &played(BargainEnd::Agreement { outcome: 1, by: 0 }, 4));
        tally.add(&plane, &solutions, &played(BargainEnd::Agreement { outcome: 2, by: 1 }, 6));
        tally.add(&plane, &solutions, &played(BargainEnd::NoAgreement { detail: "rounds".to_owned() }, 10));
        let figures = tally.figures(Some(1));
        assert_eq!((figures.bargains, figures.agreements, figures.irrational), (3, 2, 1));
        let close = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-12;
        assert!(close(Some(figures.agreement_rate), 2.0 / 3.0));
        assert!(close(figures.rounds.map(|sample| sample.mean), 5.0), "{figures:?}");
        assert!(close(figures.welfare.map(|sample| sample.mean), 1.1), "{figures:?}");
        assert!(close(figures.shares[0].utility, (0.6 + 0.9 + 0.1) / 3.0), "{figures:?}");
        assert!(close(figures.shares[1].advantage, (0.4 - 0.1 + 0.0) / 3.0), "{figures:?}");
        assert!(close(figures.optimality.max_welfare, (1.0 + 1.0 / 1.2) / 2.0), "{figures:?}");
        assert!(close(figures.pareto_distance.map(|sample| sample.p50), 0.0), "{figures:?}");
        assert_eq!(figures.anchoring, None, "two agreements show no slope");
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let sample = Sample::of(&values).unwrap();
        assert_eq!((sample.p50, sample.p95, sample.count), (50.0, 95.0, 100));
        assert_eq!(Sample::of(&[]), None);
    }
}
