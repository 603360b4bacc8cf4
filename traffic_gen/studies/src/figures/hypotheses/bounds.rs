//! Bounds that a plan claims, such as `decision_p95_ms <= 11`: held where the whole interval of every group keeps the bound, broken
//! where that of one is beyond it.

use crate::figures::group::{Group, Weighted};
use crate::figures::resample::Estimate;
use crate::plan::Hypothesis;
use crate::plan::hypothesis::{BoundFigure, HypothesisTest};

use super::{Compared, HypothesisVerdict, Side, Words, judged};

const WORDS: Words = Words { expected: "the bound is", agree: "groups keep the bound" };

/// Judges the bounds among the claims of a plan, as B1, B2, and so on.
pub fn all(claims: &[Hypothesis], groups: &[Group]) -> Vec<HypothesisVerdict> {
    let bounds = claims.iter().filter_map(|claim| match claim.test {
        HypothesisTest::Bound { figure, is_most, bound } => Some((claim, figure, is_most, bound)),
        HypothesisTest::Theory(_) => None,
    });
    let verdict = |(number, (claim, figure, is_most, bound)): (usize, (&Hypothesis, BoundFigure, bool, f64))| {
        let side = if is_most { Side::AtMost } else { Side::AtLeast };
        let compared = groups.iter().filter_map(|group| {
            let estimate = estimate(figure, group, groups)?;
            let (subject, rounds) = (group.name.clone(), group.rounds());
            Some(Compared { subject, estimate, theory: bound, tolerance: 0.0, side, rounds })
        });
        let claimed = format!("{} ({})", claim.text, claim.test);
        judged(&format!("B{}", number + 1), &claimed, compared.collect(), needs(figure), &WORDS)
    };
    (0..).zip(bounds).map(verdict).collect()
}

fn estimate(figure: BoundFigure, group: &Group, groups: &[Group]) -> Option<Estimate> {
    let mean = |name: &'static str, scale: f64| group.estimate(move |seeds| Some(seeds.mean(name)? / scale));
    let quantile = |quantile: f64| group.estimate(move |seeds| Some(seeds.quantile("decision", quantile)? / 1e3));
    match figure {
        BoundFigure::DecisionMeanMs => mean("decision", 1e3),
        BoundFigure::DecisionP50Ms => quantile(0.5),
        BoundFigure::DecisionP95Ms => quantile(0.95),
        BoundFigure::DecisionP99Ms => quantile(0.99),
        BoundFigure::Completion => group.estimate(offers_of_invited),
        BoundFigure::AwardRate => mean("awarded", 1.0),
        BoundFigure::OffersPerRound => mean("offers", 1.0),
        BoundFigure::OthersP99Ratio => {
            let p99 = |of: &'static str| move |seeds: Weighted<'_>| seeds.quantile(of, 0.99);
            group.ratio_to(group.calm(groups)?, p99("decision of others"), p99("decision"))
        }
        BoundFigure::OthersCompletion => mean("completed of others", 1.0),
    }
}

fn offers_of_invited(seeds: Weighted<'_>) -> Option<f64> {
    let (offers, invited) = (seeds.sum("offers").0, seeds.sum("invited").0);
    (invited > 0.0).then(|| offers / invited)
}

fn needs(figure: BoundFigure) -> &'static str {
    match figure {
        BoundFigure::DecisionMeanMs
        | BoundFigure::DecisionP50Ms
        | BoundFigure::DecisionP95Ms
        | BoundFigure::DecisionP99Ms => "needs calls that were decided",
        BoundFigure::Completion | BoundFigure::AwardRate | BoundFigure::OffersPerRound => {
            "needs calls that were admitted, of contract nets"
        }
        BoundFigure::OthersP99Ratio => {
            "needs a population, and cells that differ in nothing but that their contractors behave"
        }
        BoundFigure::OthersCompletion => "needs a population, and negotiations that awarded nothing to one",
    }
}
