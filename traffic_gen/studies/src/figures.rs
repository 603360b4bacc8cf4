//! Figures of an experiment: M1 to M40 and those of populations, each with its interval over seeds and, where there is one, what theory expects.
//!
//! [`tally`] counts the rounds of one seed, [`group`] holds the seeds of one configuration, [`resample`] makes intervals,
//! [`theory`] says what to expect, [`hypotheses`] judges H1 to H7, and [`draw`] makes pictures.

pub mod bargains;
pub mod draw;
pub mod fairness;
pub mod group;
pub mod hypotheses;
pub mod models;
pub mod populations;
pub mod quality;
pub mod resample;
pub mod tally;
pub mod theory;
pub mod traffic;

use serde::Serialize;

use group::{Group, Weighted};
use resample::{Estimate, Interval};

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

/// What is said of a metric before it is computed.
struct Wording {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    definition: &'static str,
    /// What is needed where the rounds do not hold it.
    needs: &'static str,
}

/// The figures of a group, in the order of the metrics.
#[derive(Debug)]
pub struct Sheet<'a> {
    group: &'a Group,
    /// The group that differs from it in nothing but that its contractors behave.
    calm: Option<&'a Group>,
    figures: Vec<Figure>,
}

/// Computes every metric of a group, beside the one that differs from it in nothing but that its contractors behave.
#[must_use]
pub fn all(group: &Group, calm: Option<&Group>) -> Vec<Figure> {
    let mut sheet = Sheet { group, calm, figures: Vec::new() };
    let is_bargain = group.cell().protocol == "alternating";
    traffic::put(&mut sheet);
    if is_bargain {
        bargains::put(&mut sheet);
        models::put_surplus(&mut sheet);
    } else {
        quality::put(&mut sheet);
        fairness::put(&mut sheet);
        populations::put(&mut sheet);
    }
    sheet.figures.sort_by_key(|figure| number(&figure.key));
    sheet.figures
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
    /// Adds a figure; theory may be set in what is returned.
    fn put(&mut self, entry: &Wording, statistic: impl Fn(Weighted<'_>) -> Option<f64>) -> &mut Figure {
        self.put_estimate(entry, self.group.estimate(statistic))
    }

    /// Adds a figure that is not of this group alone.
    fn put_estimate(&mut self, entry: &Wording, estimate: Option<Estimate>) -> &mut Figure {
        self.figures.push(Figure {
            key: entry.key.to_owned(),
            name: entry.name.to_owned(),
            unit: entry.unit,
            definition: entry.definition,
            value: estimate.as_ref().map(|estimate| estimate.value),
            interval: estimate.as_ref().and_then(Estimate::interval),
            theory: None,
            missing: estimate.is_none().then(|| format!("cannot be said: {}", entry.needs)),
            estimate,
        });
        #[allow(clippy::expect_used, reason = "pushed above")]
        self.figures.last_mut().expect("a figure")
    }

    /// Adds a mean by the name of its sum.
    fn mean(&mut self, entry: &Wording, name: &str) -> &mut Figure {
        self.put(entry, |seeds| seeds.mean(name))
    }

    /// Adds a mean and quantiles of a latency, in milliseconds, of somebody or of all.
    fn latency(&mut self, entry: &Wording, name: &str, of: Option<&str>) {
        self.put(entry, |seeds| Some(seeds.mean(name)? / 1e3)).specify(of);
        for (label, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
            let figure = self.put(entry, |seeds| Some(seeds.quantile(name, quantile)? / 1e3));
            figure.specify(of.into_iter().chain([label]));
        }
    }

    /// Adds sums in parts of the rounds, one per name behind a prefix.
    fn by_name(&mut self, entry: &Wording, prefix: &str) {
        self.each_by_name(entry, prefix, |seeds, name| seeds.per_round(name));
    }

    /// Adds means, one per name behind a prefix.
    fn by_name_mean(&mut self, entry: &Wording, prefix: &str) {
        self.each_by_name(entry, prefix, |seeds, name| seeds.mean(name));
    }

    fn each_by_name(&mut self, entry: &Wording, prefix: &str, of: fn(Weighted<'_>, &str) -> Option<f64>) {
        let names: Vec<String> = self.group.names(prefix).map(str::to_owned).collect();
        if names.is_empty() {
            self.absent(entry);
        }
        for name in names {
            self.put(entry, |seeds| of(seeds, &name)).specify([&name[prefix.len()..]]);
        }
    }

    /// Adds a metric that no record of this kind holds.
    fn absent(&mut self, entry: &Wording) {
        self.put(entry, |_| None);
    }
}
