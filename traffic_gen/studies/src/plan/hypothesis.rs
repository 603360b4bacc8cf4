//! What a plan claims, with the test that decides it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

/// What a test may be.
pub const EXPECTED: &str = "give H1 to H7, or a figure with its bound: decision_mean_ms, decision_p50_ms, decision_p95_ms, \
                            decision_p99_ms, completion, award_rate, offers_per_round, others_p99_ratio or \
                            others_completion, <= or >=, a number";

/// A claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// In words.
    pub text: String,
    /// What decides it.
    pub test: HypothesisTest,
}

/// What decides a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HypothesisTest {
    /// One of the hypotheses of the report, 1 to 7.
    Theory(u8),
    /// A bound that the figure of every cell keeps.
    Bound {
        /// The figure.
        figure: BoundFigure,
        /// Whether the bound is the most, or the least.
        is_most: bool,
        /// The bound.
        bound: f64,
    },
}

/// What can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum BoundFigure {
    /// Mean latency of decisions.
    DecisionMeanMs,
    /// Median.
    #[strum(serialize = "decision_p50_ms")]
    DecisionP50Ms,
    /// 95 %.
    #[strum(serialize = "decision_p95_ms")]
    DecisionP95Ms,
    /// 99 %.
    #[strum(serialize = "decision_p99_ms")]
    DecisionP99Ms,
    /// Offers over those that were asked for.
    Completion,
    /// Rounds with a binding award over all.
    AwardRate,
    /// Mean.
    OffersPerRound,
    /// 99 % of the latency of decisions in negotiations that awarded nothing to a population, in parts of that of cells that
    /// differ in nothing but that their contractors behave.
    #[strum(serialize = "others_p99_ratio")]
    OthersP99Ratio,
    /// Negotiations that awarded nothing to a population and completed, over all that awarded nothing to one.
    OthersCompletion,
}

impl BoundFigure {
    /// Whether bargains have no such figure.
    pub const fn is_of_contract_nets(self) -> bool {
        !matches!(self, Self::DecisionMeanMs | Self::DecisionP50Ms | Self::DecisionP95Ms | Self::DecisionP99Ms)
    }
}

impl FromStr for HypothesisTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_prefix('H').and_then(|number| number.parse().ok()) {
            return if (1..=7).contains(&number) {
                Ok(Self::Theory(number))
            } else {
                Err("there is no such one".into())
            };
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let [figure, relation, bound] = words[..] else { return Err("three words are expected".into()) };
        let figure = figure.parse().map_err(|_| {
            let meant = super::fault::nearest(figure, BoundFigure::VARIANTS.iter().copied());
            meant.map_or("the figure is unknown".to_owned(), |name| format!("did you mean {name}?"))
        })?;
        let is_most = match relation {
            "<=" => true,
            ">=" => false,
            _ => return Err(format!("`{relation}` is neither <= nor >=")),
        };
        let bound = bound.parse().ok().filter(|bound: &f64| bound.is_finite()).ok_or("the bound is no number")?;
        Ok(Self::Bound { figure, is_most, bound })
    }
}

impl fmt::Display for HypothesisTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Theory(number) => write!(f, "H{number}"),
            Self::Bound { figure, is_most, bound } => {
                write!(f, "{} {} {bound}", <&str>::from(figure), if *is_most { "<=" } else { ">=" })
            }
        }
    }
}

impl TryFrom<String> for HypothesisTest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HypothesisTest> for String {
    fn from(test: HypothesisTest) -> Self {
        test.to_string()
    }
}
