//! Figures of an experiment: M1 to M40 and those of populations, each with its interval over seeds and, where there is one, what theory expects.
//!
//! [`tally`] counts the rounds of one seed, [`group`] holds the seeds of one configuration, [`resample`] makes intervals,
//! [`theory`] says what to expect, [`hypotheses`] judges H1 to H7, and [`draw`] makes pictures.

pub mod draw;
pub mod fairness;
pub mod group;
pub mod hypotheses;
pub mod metrics;
pub mod resample;
pub mod tally;
pub mod theory;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use group::{Group, Weighted, fewest};
use resample::{Estimate, Interval, SEEDS_MIN};

use crate::plan::{CellSpec, Plan};

/// One value of a metric, over the seeds of one group.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// The metric with what is meant of it, such as `M2.p95`.
    pub key: String,
    /// What it measures.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// How it is computed.
    pub definition: &'static str,
    /// The value over all seeds; absent where the rounds do not hold it.
    pub value: Option<f64>,
    /// Where the true value lies, with 95 %; absent for one seed.
    pub interval: Option<Interval>,
    /// What theory expects of these rounds.
    pub theory: Option<f64>,
    /// The value with its resamples.
    #[serde(skip)]
    pub estimate: Option<Estimate>,
    /// Why there is no value, and what would be needed.
    pub missing: Option<String>,
}

/// The metrics, with what is said of each: one per line.
static METRICS: LazyLock<Vec<Wording>> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(include_str!("figures/metrics.csv").as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().expect("a table of metrics")
});

/// What is said of a metric before it is computed.
#[derive(Deserialize)]
struct Wording {
    set: String,
    statistic: Statistic,
    /// The sum it is computed of, or what begins the names of those.
    sum: String,
    key: String,
    name: String,
    unit: String,
    definition: String,
    /// What is needed where the rounds do not hold it.
    needs: String,
}

/// How a metric is computed of its sum.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Statistic {
    Mean,
    /// A mean of microseconds, in milliseconds.
    MeanMs,
    /// A mean and quantiles, in milliseconds.
    Latency,
    PerRound,
    /// Means, one per name behind a prefix.
    EachMean,
    /// In parts of the rounds, one per name behind a prefix.
    EachPerRound,
    /// The mean, in parts of that of the calm group.
    MeanToCalm,
    /// 99 %, in parts of that of the calm group.
    P99ToCalm,
    /// No record of this kind holds it.
    Absent,
    /// Its own, see [`Sheet::put`].
    Own,
}

/// The figures of a group, in the order of the metrics.
#[derive(Debug)]
pub struct Sheet<'a> {
    group: &'a Group,
    /// The otherwise identical group whose contractors do not misbehave; absent where there is none.
    calm: Option<&'a Group>,
    figures: Vec<Figure>,
}

/// Computes every metric of a group, beside the one that differs from it in nothing but that its contractors behave.
pub fn all(group: &Group, calm: Option<&Group>) -> Vec<Figure> {
    let mut sheet = Sheet { group, calm, figures: Vec::new() };
    let is_bargain = group.cell().protocol == "alternating";
    metrics::traffic(&mut sheet);
    if is_bargain {
        metrics::bargains(&mut sheet);
        metrics::surplus(&mut sheet);
    } else {
        metrics::quality(&mut sheet);
        fairness::put(&mut sheet);
        metrics::populations(&mut sheet);
    }
    sheet.figures.sort_by_key(|figure| number(&figure.key));
    sheet.figures
}

/// What the rounds of a plan will not be able to say, each with what it takes.
pub fn unsayable(plan: &Plan) -> Vec<String> {
    let mut groups: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for CellSpec { contractors, policy, rate, duration_s, labels, strategies, .. } in &plan.cells {
        let key = format!("{contractors} {} {rate} {duration_s} {labels:?} {strategies:?}", policy.id.as_str());
        let (seeds, rounds) = groups.entry(key).or_default();
        (*seeds, *rounds) = (*seeds + 1, *rounds + rate * duration_s);
    }
    let fewest = fewest(0.95) as f64;
    let of = |count: usize| format!("{count} of {} groups", groups.len());
    let few_seeds = groups.values().filter(|(seeds, _)| *seeds < SEEDS_MIN).count();
    let few_rounds = groups.values().filter(|(_, rounds)| *rounds < fewest);
    let wanted = few_rounds.clone().map(|(seeds, rounds)| (*seeds as f64 * fewest / rounds).ceil()).fold(0.0, f64::max);
    let verdicts = (few_seeds > 0).then(|| {
        format!("no verdict on a hypothesis from {}: it takes {SEEDS_MIN} seeds (--seeds {SEEDS_MIN})", of(few_seeds))
    });
    let quantiles = (wanted > 0.0).then(|| {
        let few = of(few_rounds.count());
        format!("no p95 of {few}: it takes {fewest} rounds, and fewer are expected (--seeds {wanted}, or a longer run)")
    });
    verdicts.into_iter().chain(quantiles).collect()
}

/// The number of a metric; those of populations come last.
fn number(key: &str) -> u32 {
    let digits = key.trim_start_matches('M');
    digits.split('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}

impl Figure {
    /// Says of what it is, the widest first.
    fn specify<'a>(&mut self, parts: impl IntoIterator<Item = &'a str>) {
        for part in parts {
            self.key = format!("{}.{part}", self.key);
            self.name = format!("{}, {part}", self.name);
        }
    }
}

impl Sheet<'_> {
    /// Adds a metric with a statistic of its own; theory may be set in what is returned.
    fn put(&mut self, key: &str, statistic: impl Fn(Weighted<'_>) -> Option<f64>) -> &mut Figure {
        let metric = METRICS.iter().find(|metric| metric.statistic == Statistic::Own && metric.key == key);
        self.put_estimate(metric.expect("a metric of the table"), self.group.estimate(statistic))
    }

    fn put_estimate(&mut self, metric: &'static Wording, estimate: Option<Estimate>) -> &mut Figure {
        self.figures.push(Figure {
            key: metric.key.clone(),
            name: metric.name.clone(),
            unit: &metric.unit,
            definition: &metric.definition,
            value: estimate.as_ref().map(|estimate| estimate.value),
            interval: estimate.as_ref().and_then(Estimate::interval),
            theory: None,
            missing: estimate.is_none().then(|| format!("cannot be said: {}", metric.needs)),
            estimate,
        });
        self.figures.last_mut().expect("a figure")
    }

    /// Adds the metrics of a set, of somebody or of all; those with a statistic of their own apart.
    fn put_set(&mut self, set: &str, of: Option<&str>) {
        for metric in METRICS.iter().filter(|metric| metric.set == set) {
            let name = of.map_or_else(|| metric.sum.clone(), |of| format!("{} {of}", metric.sum));
            let estimate = match metric.statistic {
                Statistic::Mean => self.group.estimate(|seeds| seeds.mean(&name)),
                Statistic::MeanMs | Statistic::Latency => self.group.estimate(|seeds| Some(seeds.mean(&name)? / 1e3)),
                Statistic::PerRound => self.group.estimate(|seeds| seeds.per_round(&name)),
                Statistic::EachMean | Statistic::EachPerRound => {
                    self.put_each(metric);
                    continue;
                }
                Statistic::MeanToCalm => self.to_calm(&name, |seeds, name| seeds.mean(name)),
                Statistic::P99ToCalm => self.to_calm(&name, |seeds, name| seeds.quantile(name, 0.99)),
                Statistic::Absent => None,
                Statistic::Own => continue,
            };
            self.put_estimate(metric, estimate).specify(of);
            let quantiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
            for (label, quantile) in quantiles.into_iter().filter(|_| metric.statistic == Statistic::Latency) {
                let estimate = self.group.estimate(|seeds| Some(seeds.quantile(&name, quantile)? / 1e3));
                let (count, fewest) = (self.group.whole(|seeds| seeds.sum(&name).1), fewest(quantile));
                let figure = self.put_estimate(metric, estimate);
                figure.specify(of.into_iter().chain([label]));
                if figure.value.is_none() && count > 0.0 {
                    figure.missing = Some(format!("too few: {count} of {fewest}"));
                }
            }
        }
    }

    /// Adds a metric once per name behind a prefix.
    fn put_each(&mut self, metric: &'static Wording) {
        let is_mean = metric.statistic == Statistic::EachMean;
        let names: Vec<String> = self.group.names(&metric.sum).map(str::to_owned).collect();
        if names.is_empty() {
            self.put_estimate(metric, None);
        }
        for name in names {
            let estimate =
                self.group.estimate(|seeds| if is_mean { seeds.mean(&name) } else { seeds.per_round(&name) });
            self.put_estimate(metric, estimate).specify([&name[metric.sum.len()..]]);
        }
    }

    /// A statistic in parts of that of the calm group, where a sum may be of those only that a population left alone.
    fn to_calm(&self, name: &str, of: fn(Weighted<'_>, &str) -> Option<f64>) -> Option<Estimate> {
        let of_calm = name.trim_end_matches(" of others");
        self.group.ratio_to(self.calm?, |seeds| of(seeds, name), |seeds| of(seeds, of_calm))
    }

    /// Says what theory expects of a metric that was added.
    fn expect(&mut self, key: &str, theory: Option<f64>) {
        self.figures.iter_mut().filter(|figure| figure.key == key).for_each(|figure| figure.theory = theory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Asked, preset, read};

    #[test]
    fn what_a_plan_cannot_say_is_known_before_it_runs() {
        let paper = |seeds| {
            let asked = Asked { seeds: Some(seeds), ..Asked::default() };
            unsayable(&read("paper", preset("paper").unwrap(), asked).unwrap())
        };
        let few = paper(3);
        assert!(few[0].starts_with("no verdict on a hypothesis from 22 of 22 groups"), "{few:?}");
        assert!(few[1].starts_with("no p95 of 19 of 22 groups") && few[1].contains("(--seeds 9"), "{few:?}");
        assert_eq!(paper(20), [""; 0]);
    }
}
