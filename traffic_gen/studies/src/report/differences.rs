//! What differs between two experiments, or between policies of one, and whether that is more than noise.

use serde::Serialize;

use crate::figures::group::Group;
use crate::figures::resample::{Interval, SEEDS_MIN};
use crate::figures::{Figure, resample};

use super::{ExperimentReport, GroupFigures};

/// Differences smaller than this part of a value are rounding.
const ROUNDING: f64 = 1e-9;
/// What begins the utilities of parties, which policies are compared by, too.
const UTILITIES: &str = "M33.party";
/// Most groups whose policies are compared pair by pair.
const GROUPS_MAX: usize = 100;
/// What policies are compared with.
const WITH_POLICIES: &str = "each other, policy by policy";
/// What policies are compared by: time to decision, messages, completion, regret; of bargains agreement, rounds, welfare.
const BY_POLICY: [&str; 8] = ["M2d", "M2d.p95", "M5", "M8", "M14", "M31", "M32.rounds", "M33.welfare"];

/// Two experiments compared.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// What it is compared with.
    pub with: String,
    /// Figures of both that have intervals: each interval is corrected for this number.
    pub compared: usize,
    /// Groups only this experiment has, or only the other.
    pub unmatched: Vec<String>,
    /// Groups of too few seeds on either side: nothing can be said of them.
    pub single: Vec<String>,
    /// Differences beyond noise.
    pub beyond_noise: Vec<FigureDifference>,
    /// All of them.
    #[serde(skip)]
    pub all: Vec<FigureDifference>,
}

/// A figure of both.
#[derive(Debug, Clone, Serialize)]
pub struct FigureDifference {
    /// The group, or both of them.
    pub group: String,
    /// The metric.
    pub key: String,
    /// What it measures.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Its value here.
    pub value: f64,
    /// Its value there.
    pub other: f64,
    /// Where the true difference lies, this less the other, with 95 % for all figures together.
    pub interval: Interval,
}

/// Compares two reports, group by group.
pub fn compare(own: &ExperimentReport, other: &ExperimentReport) -> Differences {
    let partner = |group: &GroupFigures, of: &ExperimentReport| of.groups.iter().any(|found| found.key == group.key);
    let alone = |from: &ExperimentReport, of: &ExperimentReport, where_: &str| -> Vec<String> {
        let alone = from.groups.iter().filter(|group| !partner(group, of));
        alone.map(|group| format!("{} ({where_})", group.name)).collect()
    };
    let mut pairs = Vec::new();
    let mut single = Vec::new();
    for group in &own.groups {
        let Some(found) = other.groups.iter().find(|found| found.key == group.key) else { continue };
        if group.seeds.min(found.seeds) < 2 {
            single.push(group.name.clone());
        }
        pairs.extend(shared(&group.figures, &found.figures).map(|(own, other)| (group.name.clone(), own, other)));
    }
    let unmatched = [alone(own, other, "only here"), alone(other, own, "only there")].concat();
    Differences { unmatched, single, ..Differences::of(&other.name, &pairs) }
}

/// Compares policies, each pair of them in cells that are otherwise alike, seed by seed.
pub fn of_policies(groups: &[Group], figures: &[GroupFigures]) -> Differences {
    let seeds = |group: &Group| group.tallies.iter().map(|tally| tally.cell.seed).collect::<Vec<_>>();
    if groups.len() > GROUPS_MAX {
        let unmatched = vec![format!("{} groups: more than {GROUPS_MAX}", groups.len())];
        return Differences { unmatched, ..Differences::of(WITH_POLICIES, &[]) };
    }
    let all: Vec<_> = groups.iter().zip(figures).collect();
    let (mut pairs, mut unmatched, mut single) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (group, own)) in all.iter().enumerate() {
        let population = group.population();
        for (later, other) in all[place + 1..].iter().filter(|(later, _)| later.population() == population) {
            let name = format!("{} - {}", own.name, later.cell().policy);
            if seeds(group) != seeds(later) {
                unmatched.push(format!("{name} (other seeds)"));
            } else if own.seeds < SEEDS_MIN {
                single.push(name);
            } else {
                let asked = shared(&own.figures, &other.figures);
                let asked = asked.filter(|(figure, _)| is_by_policy(&figure.key));
                pairs.extend(asked.map(|(own, other)| (name.clone(), own, other)));
            }
        }
    }
    Differences { unmatched, single, ..Differences::of(WITH_POLICIES, &pairs) }
}

fn is_by_policy(key: &str) -> bool {
    BY_POLICY.contains(&key) || key.starts_with(UTILITIES)
}

/// Figures of both that have intervals.
fn shared<'a>(own: &'a [Figure], other: &'a [Figure]) -> impl Iterator<Item = (&'a Figure, &'a Figure)> {
    own.iter().filter_map(|figure| {
        let beside = other.iter().find(|other| other.key == figure.key)?;
        (beside.interval.is_some() && figure.interval.is_some()).then_some((figure, beside))
    })
}

impl Differences {
    /// Whether there is anything to say.
    pub fn is_told(&self) -> bool {
        self.compared > 0 || !self.unmatched.is_empty() || !self.single.is_empty()
    }

    fn of(with: &str, pairs: &[(String, &Figure, &Figure)]) -> Self {
        let compared = pairs.len();
        let difference = |(group, own, other): &(String, &Figure, &Figure)| difference(group, own, other, compared);
        let all: Vec<FigureDifference> = pairs.iter().filter_map(difference).collect();
        let beyond_noise = all.iter().filter(|found| found.is_beyond_noise()).cloned().collect();
        Self { with: with.to_owned(), compared, unmatched: Vec::new(), single: Vec::new(), beyond_noise, all }
    }
}

impl FigureDifference {
    /// Whether the interval leaves 0 out, by more than rounding.
    pub fn is_beyond_noise(&self) -> bool {
        let Self { value, other, interval, .. } = self;
        !interval.holds(0.0) && (value - other).abs() > ROUNDING * value.abs().max(other.abs())
    }
}

fn difference(group: &str, figure: &Figure, other: &Figure, compared: usize) -> Option<FigureDifference> {
    let (own, beside): (&resample::Estimate, _) = (figure.estimate.as_ref()?, other.estimate.as_ref()?);
    Some(FigureDifference {
        group: group.to_owned(),
        key: figure.key.clone(),
        name: figure.name.clone(),
        unit: figure.unit,
        value: own.value,
        other: beside.value,
        interval: own.less(beside).interval_among(compared)?,
    })
}
