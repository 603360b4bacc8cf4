//! Seeded draws.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, INTEGER_MAX, Terms};
use schemas::{AgentId, Digest, NegotiationId};
use serde::{Deserialize, Serialize};

/// A distribution over the integers 0 to [`INTEGER_MAX`]: micro-units or milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Always the same.
    Constant(i64),
    /// Every integer from `lo` to `hi`, both included, equally often.
    Uniform {
        /// Smallest.
        lo: i64,
        /// Largest.
        hi: i64,
    },
    /// Exponential, rounded down, cut at [`INTEGER_MAX`].
    Exponential {
        /// Mean before rounding.
        mean: f64,
    },
    /// Normal, rounded, values outside moved to the nearest bound.
    Normal {
        /// Mean before clamping.
        mean: f64,
        /// Standard deviation before clamping.
        sd: f64,
        /// Smallest.
        lo: i64,
        /// Largest.
        hi: i64,
    },
}

impl Distribution {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_range = |lo: i64, hi: i64| 0 <= lo && lo <= hi && hi <= INTEGER_MAX;
        match *self {
            Self::Constant(value) if !is_range(value, value) => Err("a constant lies between 0 and 2^53 - 1"),
            Self::Uniform { lo, hi } | Self::Normal { lo, hi, .. } if !is_range(lo, hi) => {
                Err("lo and hi lie between 0 and 2^53 - 1, lo first")
            }
            Self::Exponential { mean } if !(mean.is_finite() && mean > 0.0) => Err("a mean is a positive number"),
            Self::Normal { mean, sd, .. } if !(mean.is_finite() && sd.is_finite() && sd >= 0.0) => {
                Err("mean and sd are finite, sd is not negative")
            }
            Self::Constant(_) | Self::Uniform { .. } | Self::Exponential { .. } | Self::Normal { .. } => Ok(()),
        }
    }

    fn sample(&self, rng: &mut ChaCha12Rng) -> i64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { lo, hi } => rng.random_range(lo..=hi),
            Self::Exponential { mean } => clamp(Exp1.sample(rng), |unit: f64| unit * mean, 0, INTEGER_MAX),
            Self::Normal { mean, sd, lo, hi } => {
                clamp(StandardNormal.sample(rng), |unit: f64| (unit * sd + mean).round(), lo, hi)
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a float cast saturates, and the result is clamped to the range")]
fn clamp(unit: f64, scale: impl Fn(f64) -> f64, lo: i64, hi: i64) -> i64 {
    (scale(unit) as i64).clamp(lo, hi)
}

/// One agent's script: a random generator for every (negotiation, stage, number), each independent of the others.
#[derive(Debug, Clone)]
pub(super) struct Script {
    seed: u64,
    agent: AgentId,
}

impl Script {
    pub(super) fn new(seed: u64, agent: &AgentId) -> Self {
        Self { seed, agent: agent.clone() }
    }

    pub(super) fn draws(&self, negotiation: &NegotiationId, stage: &str, number: u32) -> Draws {
        let digest = Digest::of_parts(&[
            &self.seed.to_be_bytes(),
            self.agent.as_str().as_bytes(),
            negotiation.as_str().as_bytes(),
            stage.as_bytes(),
            &number.to_be_bytes(),
        ]);
        Draws(ChaCha12Rng::from_seed(digest.0))
    }
}

/// The draws of one stage, to be made in a fixed order.
#[derive(Debug)]
pub(super) struct Draws(ChaCha12Rng);

impl Draws {
    pub(super) fn comes_true(&mut self, chance: f64) -> bool {
        self.0.random::<f64>() < chance
    }

    pub(super) fn sample_ms(&mut self, distribution: &Distribution) -> u64 {
        u64::try_from(distribution.sample(&mut self.0)).unwrap_or(0)
    }

    pub(super) fn terms(&mut self, model: &BTreeMap<AttrName, Distribution>) -> Terms {
        let mut draw = |(name, distribution): (&AttrName, &Distribution)| {
            (name.clone(), AttrValue::Int(distribution.sample(&mut self.0)))
        };
        model.iter().map(&mut draw).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_range_and_mean_they_were_asked_for() {
        for (distribution, lo, hi, mean) in [
            (Distribution::Constant(7), 7, 7, 7.0),
            (Distribution::Uniform { lo: 10, hi: 20 }, 10, 20, 15.0),
            (Distribution::Exponential { mean: 1000.0 }, 0, INTEGER_MAX, 999.5),
            (Distribution::Normal { mean: 100.0, sd: 10.0, lo: 60, hi: 140 }, 60, 140, 100.0),
        ] {
            distribution.check().unwrap();
            let mut rng = ChaCha12Rng::seed_from_u64(1);
            let samples: Vec<i64> = (0..20_000).map(|_| distribution.sample(&mut rng)).collect();
            assert!(samples.iter().all(|sample| (lo..=hi).contains(sample)), "{distribution:?}");
            let found = samples.iter().sum::<i64>() as f64 / samples.len() as f64;
            // Four standard errors of the widest, the exponential.
            assert!((found - mean).abs() <= mean * 0.03, "{distribution:?}: {found}");
        }
    }

    #[test]
    fn draws_depend_on_seed_agent_negotiation_stage_and_number_and_on_nothing_else() {
        let (alice, bob) = (AgentId::try_new("alice").unwrap(), AgentId::try_new("bob").unwrap());
        let (n1, n2) = (NegotiationId::try_new("x~1").unwrap(), NegotiationId::try_new("x~2").unwrap());
        let wide = Distribution::Uniform { lo: 0, hi: INTEGER_MAX };
        let draw = |seed, agent: &AgentId, negotiation: &NegotiationId, stage: &str, number| {
            Script::new(seed, agent).draws(negotiation, stage, number).sample_ms(&wide)
        };
        let first = draw(1, &alice, &n1, "call", 1);
        assert_eq!(first, draw(1, &alice, &n1, "call", 1));
        for other in [
            draw(2, &alice, &n1, "call", 1),
            draw(1, &bob, &n1, "call", 1),
            draw(1, &alice, &n2, "call", 1),
            draw(1, &alice, &n1, "award", 1),
            draw(1, &alice, &n1, "call", 2),
        ] {
            assert_ne!(first, other);
        }
    }
}
