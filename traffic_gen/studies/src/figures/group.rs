//! The cells that differ in nothing but their seed, and statistics over them.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;

use crate::record::{CellRecord, WARM_UP};

use super::resample::{Estimate, Resamples};
use super::tally::{ContractorTally, Tally};
use super::theory;

/// Offers from which the distribution of costs or delays is read.
const OFFERS_MIN: f64 = 100.0;
/// How far moments may be from those of the distribution they are taken for, in parts.
const MOMENTS_TOLERANCE: f64 = 0.1;

/// The means of [`Weighted::first_proposal_advantage`].
pub const WINS: [&str; 2] = ["first wins", "another wins"];
/// The same as theory expects them.
pub const WINS_EXPECTED: [&str; 2] = ["theory first wins", "theory another wins"];

/// Labels of contractors that do not behave.
const MISCONDUCT_LABELS: [&str; 2] = ["faults", "populations"];

/// Cells that differ in nothing but their seed.
#[derive(Debug)]
pub struct Group {
    /// What it is called: policy, contractors, and whatever else the groups differ in.
    pub name: String,
    /// The seeds, in their order.
    pub tallies: Vec<Tally>,
    resamples: Resamples,
    distributions: BTreeMap<String, Counted>,
    /// Sum and count of every mean in each seed.
    means: BTreeMap<String, Vec<(f64, f64)>>,
    /// Every contractor of any seed, in the order of names.
    contractors: Vec<String>,
    by_contractor: Vec<Vec<ContractorTally>>,
}

/// A latency in every seed: how often each value, or one below it, came.
#[derive(Debug)]
struct Counted {
    values: Vec<u64>,
    by_seed: Vec<Vec<u64>>,
}

/// The seeds of a group, each counted so often.
#[derive(Debug, Clone, Copy)]
pub struct Weighted<'a> {
    group: &'a Group,
    weights: &'a [u32],
}

impl Group {
    /// Groups cells by everything but their seeds, in the order of contractors, policies and the rest.
    pub fn all(tallies: Vec<Tally>) -> Vec<Self> {
        let mut by_key: BTreeMap<String, Vec<Tally>> = BTreeMap::new();
        for tally in tallies {
            by_key.entry(key(&tally.cell)).or_default().push(tally);
        }
        let mut groups: Vec<Self> = by_key.into_values().map(Self::new).collect();
        let parts: Vec<Vec<String>> = groups.iter().map(|group| parts(group.cell())).collect();
        for (group, own) in groups.iter_mut().zip(&parts) {
            let told = own
                .iter()
                .enumerate()
                .filter(|(place, part)| *place < 2 || parts.iter().any(|other| other.get(*place) != Some(part)));
            group.name =
                told.map(|(_, part)| part.as_str()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        }
        groups
    }

    fn new(mut tallies: Vec<Tally>) -> Self {
        tallies.sort_by(|a, b| (a.cell.seed, &a.cell.id).cmp(&(b.cell.seed, &b.cell.id)));
        let mut distributions = BTreeMap::new();
        for name in tallies.iter().flat_map(|tally| tally.latencies.keys()) {
            distributions.entry(name.clone()).or_insert_with(|| Counted::of(name, &tallies));
        }
        let mut means: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (place, tally) in tallies.iter().enumerate() {
            for (name, sum) in tally.means() {
                means.entry(name.clone()).or_insert_with(|| vec![(0.0, 0.0); tallies.len()])[place] = *sum;
            }
        }
        let contractors: BTreeSet<&String> = tallies.iter().flat_map(|tally| tally.contractors.keys()).collect();
        let of_seed = |tally: &Tally| -> Vec<ContractorTally> {
            contractors.iter().map(|name| tally.contractors.get(*name).cloned().unwrap_or_default()).collect()
        };
        Self {
            name: String::new(),
            resamples: Resamples::of(tallies.len()),
            distributions,
            means,
            by_contractor: tallies.iter().map(of_seed).collect(),
            contractors: contractors.into_iter().cloned().collect(),
            tallies,
        }
    }

    /// What all its cells are alike in.
    pub fn cell(&self) -> &CellRecord {
        &self.tallies[0].cell
    }

    /// What the group is known by: everything but the seed, as one line.
    pub fn key(&self) -> String {
        key(self.cell())
    }

    /// Every seed once.
    pub fn whole<T>(&self, of: impl Fn(Weighted<'_>) -> T) -> T {
        of(Weighted { group: self, weights: &vec![1; self.tallies.len()] })
    }

    /// A statistic with what the resamples make of it.
    pub fn estimate(&self, statistic: impl Fn(Weighted<'_>) -> Option<f64>) -> Option<Estimate> {
        self.resamples.estimate(self.tallies.len(), |weights| statistic(Weighted { group: self, weights }))
    }

    /// What groups must be alike in to be compared by policy: everything but that.
    pub fn population(&self) -> String {
        key(&CellRecord { policy: String::new(), ..self.cell().clone() })
    }

    /// The group that differs from this one in nothing but that its contractors behave, if it is among these.
    pub fn calm<'a>(&self, among: &'a [Self]) -> Option<&'a Self> {
        let mut cell = CellRecord { populations: Vec::new(), ..self.cell().clone() };
        MISCONDUCT_LABELS.iter().for_each(|label| drop(cell.labels.remove(*label)));
        let key = key(&cell);
        among.iter().find(|group| group.key() == key && key != self.key())
    }

    /// A statistic in parts of one of another group, seed by seed where their seeds are the same.
    pub fn ratio_to(
        &self,
        calm: &Self,
        own: impl Fn(Weighted<'_>) -> Option<f64>,
        of_calm: impl Fn(Weighted<'_>) -> Option<f64>,
    ) -> Option<Estimate> {
        let (own, calm) = (self.estimate(own)?, calm.estimate(of_calm).filter(|calm| calm.value > 0.0)?);
        Some(Estimate::combined(&[&own, &calm], |values| values[0] / values[1]))
    }

    /// Contractors, in the order of [`Weighted::by_contractor`].
    pub fn contractors(&self) -> &[String] {
        &self.contractors
    }

    /// Names of means that begin so.
    pub fn names<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.means.keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }

    /// Rounds of all seeds.
    pub fn rounds(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.rounds).sum()
    }

    /// Whether a policy of this group waits for every answer.
    pub fn waits_for_all(&self) -> bool {
        ["high", "paper41-high"].iter().any(|name| self.cell().policy.starts_with(name))
    }

    /// Whether its policy closes by the offers' worth, so that how many came says something about it.
    pub fn is_threshold(&self) -> bool {
        self.cell().policy.starts_with("threshold")
    }

    /// The range of costs, where they are uniform: as far as their mean and variance say.
    pub fn uniform_range(&self) -> Option<f64> {
        let (low, high) = self.tallies.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), tally| {
            (low.min(tally.costs.0), high.max(tally.costs.1))
        });
        let (mean, variance) = self.whole(|seeds| seeds.moments("cost", "cost squared"))?;
        let range = high - low;
        let is_uniform = is_near(variance * 12.0, range * range) && is_near(mean - low, range / 2.0);
        (range > 0.0 && is_uniform).then_some(range)
    }

    /// The mean delay in microseconds, where delays are scripted and exponential: as far as their variance says.
    pub fn exponential_delay(&self) -> Option<f64> {
        let (mean, variance) = self.whole(|seeds| seeds.moments("delay", "delay squared"))?;
        // Behind an early close nobody waits to the end, and the longest delays are missing from the record.
        let (offers, rounds) = self.whole(|seeds| (seeds.sum("offers"), seeds.sum("invited")));
        let is_whole = offers.0 >= 0.98 * rounds.0;
        (mean > 0.0 && is_whole && is_near(variance, mean * mean)).then_some(mean)
    }
}

impl Weighted<'_> {
    /// A mean's sum and count.
    pub fn sum(self, name: &str) -> (f64, f64) {
        let Some(by_seed) = self.group.means.get(name) else { return (0.0, 0.0) };
        by_seed.iter().zip(self.weights).fold((0.0, 0.0), |(total, count), (sum, weight)| {
            (total + sum.0 * f64::from(*weight), count + sum.1 * f64::from(*weight))
        })
    }

    /// A mean by name, where anything was counted for it.
    pub fn mean(self, name: &str) -> Option<f64> {
        let (total, count) = self.sum(name);
        (count > 0.0).then(|| total / count)
    }

    /// A sum in parts of the rounds.
    pub fn per_round(self, name: &str) -> Option<f64> {
        let rounds = self.rounds();
        (rounds > 0.0).then(|| self.sum(name).0 / rounds)
    }

    /// Rounds.
    pub fn rounds(self) -> f64 {
        self.fold(0.0, |rounds, tally, weight| rounds + tally.rounds as f64 * weight)
    }

    /// A quantile of a latency, in microseconds; absent of fewer than [`fewest`] values.
    pub fn quantile(self, name: &str, quantile: f64) -> Option<f64> {
        let counted = self.group.distributions.get(name)?;
        let up_to = |place: usize| -> u64 {
            let by_seed = counted.by_seed.iter().zip(self.weights);
            by_seed.map(|(counts, weight)| counts[place] * u64::from(*weight)).sum()
        };
        let total = up_to(counted.values.len().checked_sub(1)?);
        // Of all seeds, not of those that are drawn: resamples are compared pair by pair, and none is left out.
        let counted_all: u64 = counted.by_seed.iter().filter_map(|counts| counts.last()).sum();
        if quantile < 1.0 && counted_all < fewest(quantile) {
            return None;
        }
        let wanted = ((total as f64 * quantile).ceil() as u64).max(1);
        let (mut low, mut high) = (0, counted.values.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if up_to(middle) < wanted { low = middle + 1 } else { high = middle }
        }
        counted.values.get(low).map(|value| *value as f64)
    }

    /// Something of every contractor, in the order of their names.
    pub fn by_contractor(self, of: impl Fn(&ContractorTally) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.group.contractors.len()];
        for (contractors, weight) in
            self.group.by_contractor.iter().zip(self.weights).filter(|(_, weight)| **weight > 0)
        {
            for (sum, contractor) in sums.iter_mut().zip(contractors) {
                *sum += of(contractor) * f64::from(*weight);
            }
        }
        sums
    }

    /// Sum of something of every seed that has it, and of how many.
    pub fn over_seeds(self, of: impl Fn(&Tally) -> Option<f64>) -> (f64, f64) {
        self.fold((0.0, 0.0), |(total, count), tally, weight| match of(tally) {
            Some(value) => (total + value * weight, count + weight),
            None => (total, count),
        })
    }

    /// How many times more often the first to offer is chosen than any one other.
    pub fn first_proposal_advantage(self, [first, another]: [&str; 2]) -> Option<f64> {
        let another = self.mean(another).filter(|another| *another > 0.0)?;
        Some(self.mean(first)? / another)
    }

    /// Mean regret, as a share of the cost range, above the lowest that waiting for a fixed number of offers reaches in the same
    /// decision time.
    pub fn above_frontier(self, range: f64, delay: f64) -> Option<f64> {
        let time = self.mean("decision")? / delay;
        Some(self.mean("regret")? / range - theory::frontier(self.group.cell().contractors, time))
    }

    fn moments(self, mean: &str, squares: &str) -> Option<(f64, f64)> {
        let (mean, count) = (self.mean(mean)?, self.sum(mean).1);
        (count >= OFFERS_MIN).then_some((mean, self.mean(squares)? - mean * mean))
    }

    fn fold<T>(self, initial: T, with: impl Fn(T, &Tally, f64) -> T) -> T {
        let seeds = self.group.tallies.iter().zip(self.weights).filter(|(_, weight)| **weight > 0);
        seeds.fold(initial, |all, (tally, weight)| with(all, tally, f64::from(*weight)))
    }
}

impl Counted {
    fn of(name: &str, tallies: &[Tally]) -> Self {
        let seeds = || tallies.iter().map(|tally| tally.latencies.get(name));
        let recorded = |latency: &Histogram<u64>| -> BTreeMap<u64, u64> {
            latency.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
        };
        let by_seed: Vec<_> = seeds().map(|latency| latency.map(recorded).unwrap_or_default()).collect();
        let values: BTreeSet<u64> = by_seed.iter().flat_map(BTreeMap::keys).copied().collect();
        let up_to = |seed: &BTreeMap<u64, u64>| {
            let counts = values.iter().map(|value| seed.get(value).copied().unwrap_or(0));
            counts
                .scan(0, |below, count| {
                    *below += count;
                    Some(*below)
                })
                .collect()
        };
        Self { by_seed: by_seed.iter().map(up_to).collect(), values: values.into_iter().collect() }
    }
}

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= MOMENTS_TOLERANCE * expected.abs()
}

/// What a cell may be called by, the most telling first.
fn parts(cell: &CellRecord) -> Vec<String> {
    let CellRecord { protocol, contractors, policy, rate, duration_s, time_scale, bus, deciders, labels, .. } = cell;
    let labels = |is_warm_up: bool| {
        let told = labels.iter().filter(move |(name, _)| (*name == WARM_UP) == is_warm_up);
        told.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };
    vec![
        policy.clone(),
        format!("{contractors} contractors"),
        protocol.clone(),
        format!("{rate} calls/s"),
        format!("{duration_s} s"),
        format!("time x{time_scale}"),
        bus.clone(),
        deciders.clone(),
        labels(false),
        labels(true),
    ]
}

/// How many values a quantile takes: of fewer it is the largest of them.
pub fn fewest(quantile: f64) -> u64 {
    (1.0 / (1.0 - quantile)).round() as u64
}

/// Everything of a cell but its seed and what it came to, so that keys sort by contractors first.
fn key(cell: &CellRecord) -> String {
    let CellRecord { protocol, contractors, policy, rate, duration_s, time_scale, bus, deciders, labels, .. } = cell;
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!(
        "{protocol} {contractors:05} {policy} rate={rate} duration={duration_s} scale={time_scale} bus={bus} \
         deciders={deciders} {}",
        labels.join(" ")
    )
    .trim_end()
    .to_owned()
}
