//! What differs between two experiments, and whether that is more than noise.

use serde::Serialize;

use crate::figures::resample::Interval;
use crate::figures::{Figure, resample};

use super::{ExperimentReport, GroupFigures};

/// Differences smaller than this part of a value are rounding.
const ROUNDING: f64 = 1e-9;

/// Two experiments compared.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// What it is compared with.
    pub with: String,
    /// Figures of both that have intervals: each interval is corrected for this number.
    pub compared: usize,
    /// Groups only this experiment has, or only the other.
    pub unmatched: Vec<String>,
    /// Groups of a single seed on either side: nothing can be said of them.
    pub single: Vec<String>,
    /// Differences beyond noise.
    pub beyond_noise: Vec<FigureDifference>,
}

/// A figure that differs.
#[derive(Debug, Serialize)]
pub struct FigureDifference {
    /// The group.
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
#[must_use]
pub fn compare(own: &ExperimentReport, other: &ExperimentReport) -> Differences {
    let partner = |group: &GroupFigures, of: &ExperimentReport| of.groups.iter().any(|found| found.key == group.key);
    let alone = |from: &ExperimentReport, of: &ExperimentReport, where_: &str| -> Vec<String> {
        let alone = from.groups.iter().filter(|group| !partner(group, of));
        alone.map(|group| format!("{} ({where_})", group.name)).collect()
    };
    let mut pairs: Vec<(&str, &Figure, &Figure)> = Vec::new();
    let mut single = Vec::new();
    for group in &own.groups {
        let Some(found) = other.groups.iter().find(|found| found.key == group.key) else { continue };
        if group.seeds.min(found.seeds) < 2 {
            single.push(group.name.clone());
        }
        for figure in &group.figures {
            let beside = found.figures.iter().find(|other| other.key == figure.key);
            if let Some(beside) = beside.filter(|beside| beside.interval.is_some() && figure.interval.is_some()) {
                pairs.push((&group.name, figure, beside));
            }
        }
    }
    let compared = pairs.len();
    let beyond = |(group, figure, other): &(&str, &Figure, &Figure)| difference(group, figure, other, compared);
    Differences {
        with: other.name.clone(),
        compared,
        unmatched: [alone(own, other, "only here"), alone(other, own, "only there")].concat(),
        single,
        beyond_noise: pairs.iter().filter_map(beyond).collect(),
    }
}

fn difference(group: &str, figure: &Figure, other: &Figure, compared: usize) -> Option<FigureDifference> {
    let (own, beside): (&resample::Estimate, _) = (figure.estimate.as_ref()?, other.estimate.as_ref()?);
    let interval = own.less(beside).interval_among(compared)?;
    let is_rounding = (own.value - beside.value).abs() <= ROUNDING * own.value.abs().max(beside.value.abs());
    (!interval.holds(0.0) && !is_rounding).then(|| FigureDifference {
        group: group.to_owned(),
        key: figure.key.clone(),
        name: figure.name.clone(),
        unit: figure.unit,
        value: own.value,
        other: beside.value,
        interval,
    })
}
