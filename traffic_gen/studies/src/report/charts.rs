//! The pictures of a report.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics, Statistics};

use crate::figures::draw::{Axis, Chart, DrawError, Series, SeriesStyle};
use crate::figures::group::{Group, Weighted};
use crate::figures::theory;

/// Most groups in one picture: as many as colours can be told apart.
const GROUPS_MAX: usize = 6;
/// Points of a line over time.
const BINS: usize = 60;
/// Fewest numbers of contractors that a line is drawn through.
const SIZES_MIN: usize = 3;

/// A picture of the report.
#[derive(Debug, Clone)]
pub struct Picture {
    /// Its title.
    pub title: String,
    /// What it shows and what it does not.
    pub note: &'static str,
    /// The picture, or why there is none.
    pub svg: Result<String, &'static str>,
}

/// Messages against contractors, under one policy.
#[derive(Debug, Clone, Serialize)]
pub struct Volume {
    /// The policy, with what else sets it apart.
    pub policy: String,
    /// Contractors, and messages sent per negotiation.
    pub points: Vec<(f64, f64)>,
    /// Further messages per further contractor.
    pub slope: f64,
    /// Messages without contractors.
    pub intercept: f64,
    /// Share of the variance that the line explains.
    pub r_squared: f64,
}

/// How messages grow with contractors, for each policy of at least three numbers of them.
pub fn volume(groups: &[Group]) -> Vec<Volume> {
    let mut by_policy: BTreeMap<(String, String), BTreeMap<u32, (f64, f64)>> = BTreeMap::new();
    for group in groups.iter().filter(|group| group.cell().protocol != "alternating") {
        let cell = group.cell();
        let (sum, count) = group.whole(|seeds| seeds.sum("messages.sent"));
        let at = by_policy.entry((cell.policy.clone(), cell.bus.clone())).or_default();
        let total = at.entry(cell.contractors).or_default();
        *total = (total.0 + sum, total.1 + count);
    }
    let several = by_policy.iter().filter(|(_, sizes)| sizes.len() >= SIZES_MIN);
    several.map(|((policy, bus), sizes)| line(format!("{policy}, {bus}"), sizes)).collect()
}

fn line(policy: String, sizes: &BTreeMap<u32, (f64, f64)>) -> Volume {
    let points: Vec<(f64, f64)> =
        sizes.iter().map(|(contractors, (sum, count))| (f64::from(*contractors), sum / count.max(1.0))).collect();
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (together, own, other) = (x.iter().covariance(y.iter()), x.iter().variance(), y.iter().variance());
    let slope = together / own;
    // Where every number of contractors takes as many messages there is nothing to explain.
    let r_squared = if other == 0.0 { 1.0 } else { together * together / (own * other) };
    Volume { policy, slope, intercept: y.iter().mean() - slope * x.iter().mean(), r_squared, points }
}

/// Every picture.
///
/// # Errors
/// [`DrawError`].
pub fn all(groups: &[Group], volume: &[Volume]) -> Result<Vec<Picture>, DrawError> {
    let nets: Vec<&Group> = groups.iter().filter(|group| group.cell().protocol != "alternating").collect();
    if nets.is_empty() {
        return Ok(Vec::new());
    }
    let most = nets.iter().map(|group| group.cell().contractors).max().unwrap_or(0);
    let large: Vec<&Group> = nets.iter().copied().filter(|group| group.cell().contractors == most).collect();
    let mut longest = large.clone();
    longest.sort_by_key(|group| std::cmp::Reverse(group.rounds()));
    longest.truncate(GROUPS_MAX);
    let mut plotted = vec![
        over_time(&longest),
        offers(&nets),
        agents(&longest),
        messages(volume),
        trade_off(&large),
        lorenz(&longest),
    ];
    if nets.iter().any(|group| !group.cell().populations.is_empty()) {
        plotted.push(griefing(&nets, groups));
    }
    plotted
        .into_iter()
        .map(|(chart, note, missing)| {
            let is_empty = chart.series.iter().all(|series| series.points.is_empty());
            let svg = if is_empty { Err(missing) } else { Ok(chart.svg()?) };
            Ok(Picture { title: chart.title, note, svg })
        })
        .collect()
}

type Plotted = (Chart, &'static str, &'static str);

fn over_time(groups: &[&Group]) -> Plotted {
    let series = groups.iter().map(|group| {
        let scale = group.cell().time_scale / 60e6;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for tally in &group.tallies {
            points.extend(tally.timeline.iter().map(|(at, taken)| (*at as f64 * scale, *taken as f64 / 1e3)));
        }
        Series::line(&group.name, medians(points))
    });
    let series: Vec<Series> = series.collect();
    let alternative = format!("Median time to decision over the run, {}.", spans(&series, "ms"));
    let chart = Chart {
        title: "Latency over time".into(),
        alternative,
        x: Axis::new("time of the run", "min"),
        y: Axis::new("median time to decision", "ms"),
        series,
    };
    let note = "The paper's figure 3: medians over equal parts of the run, all seeds together; time is the plan's, before it was \
                compressed. A rise is drift; the soak tests for it, this picture does not.";
    (chart, note, "no call was decided")
}

fn medians(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(last) = points.last().map(|point| point.0.max(f64::MIN_POSITIVE)) else { return points };
    let mut bins: BTreeMap<usize, (f64, Vec<f64>)> = BTreeMap::new();
    for (at, value) in points {
        let bin = bins.entry(((at / last) * (BINS as f64 - 1.0)) as usize).or_default();
        bin.0 += at;
        bin.1.push(value);
    }
    bins.into_values().map(|(sum, values)| (sum / values.len() as f64, Data::new(values).median())).collect()
}

fn offers(groups: &[&Group]) -> Plotted {
    let mut by_policy: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for group in groups {
        if let Some(offers) = group.whole(|seeds| seeds.mean("offers")) {
            by_policy.entry(&group.cell().policy).or_default().push((f64::from(group.cell().contractors), offers));
        }
    }
    let mut series: Vec<Series> = by_policy
        .into_iter()
        .map(|(policy, points)| Series { style: SeriesStyle::LineAndPoints, ..Series::line(policy, points) })
        .collect();
    let most = series.iter().flat_map(|series| &series.points).map(|point| point.0).fold(0.0, f64::max);
    let alternative = format!("Mean offers per round against contractors, {}.", spans(&series, "offers"));
    if !series.is_empty() {
        series.push(Series::dashed("one of each", vec![(0.0, 0.0), (most, most)], 7));
    }
    let chart = Chart {
        title: "Offers per round".into(),
        alternative,
        x: Axis::new("contractors", "count"),
        y: Axis::new("offers per round", "count"),
        series,
    };
    let note = "Every offer that was made, late ones included. Below the dashed line contractors refused, were silent, or \
                learned of the close before they offered.";
    (chart, note, "no call was admitted")
}

fn agents(groups: &[&Group]) -> Plotted {
    let series = groups.iter().take(3).enumerate().map(|(place, group)| {
        let quantiles = |quantile: f64| -> Vec<f64> {
            let contractor = |name: &String| {
                let mut all = hdrhistogram::Histogram::<u64>::new(3).ok()?;
                for tally in &group.tallies {
                    all.add(&tally.contractors.get(name)?.latency).ok()?;
                }
                Some(all.value_at_quantile(quantile) as f64 / 1e3)
            };
            group.contractors().iter().map(|name| contractor(name).unwrap_or(0.0)).collect()
        };
        let shift = place as f64 * 0.2;
        let points = quantiles(0.5).into_iter().enumerate().map(|(number, value)| (number as f64 + 1.0 + shift, value));
        Series {
            style: SeriesStyle::Points,
            intervals: quantiles(0.05).into_iter().zip(quantiles(0.95)).collect(),
            ..Series::line(&group.name, points.collect())
        }
    });
    let series: Vec<Series> = series.collect();
    let alternative = format!("Median time to offer of each contractor, {}.", spans(&series, "ms"));
    let chart = Chart {
        title: "Latency by contractor".into(),
        alternative,
        x: Axis::new("contractor", "number, by name"),
        y: Axis::new("time to offer", "ms"),
        series,
    };
    let note = "Median of each contractor, from the intended time of the call to the offer's admission; the lines reach from \
                the 5th to the 95th percentile of rounds, and are no confidence intervals.";
    (chart, note, "no offer was stored")
}

fn messages(volume: &[Volume]) -> Plotted {
    let mut series = Vec::new();
    for (color, volume) in volume.iter().take(GROUPS_MAX).enumerate() {
        let most = volume.points.iter().map(|point| point.0).fold(0.0, f64::max);
        series.push(Series {
            name: format!("{} (R\u{b2} {:.4})", volume.policy, volume.r_squared),
            style: SeriesStyle::Points,
            points: volume.points.clone(),
            color: Some(color),
            ..Series::default()
        });
        let points = vec![(0.0, volume.intercept), (most, volume.intercept + volume.slope * most)];
        series.push(Series::dashed("", points, color));
    }
    let fits: Vec<String> = volume
        .iter()
        .map(|volume| {
            format!("{}: {:.2} per contractor, R squared {:.4}", volume.policy, volume.slope, volume.r_squared)
        })
        .collect();
    let chart = Chart {
        title: "Message volume".into(),
        alternative: format!(
            "Messages per negotiation against contractors, with a line through each policy; {}.",
            fits.join("; ")
        ),
        x: Axis::new("contractors", "count"),
        y: Axis::new("messages", "per negotiation"),
        series,
    };
    let note = "What agents sent, each message once; repeats are M7, and what they were sent is M5d. R\u{b2} says how straight the \
                line is, not how good it is.";
    (chart, note, "needs one policy with at least three numbers of contractors")
}

fn trade_off(groups: &[&Group]) -> Plotted {
    let mut series: Vec<Series> = Vec::new();
    let mut theories: Vec<Series> = Vec::new();
    let scale = |group: &Group| {
        groups.iter().filter(|found| found.population() == group.population()).find_map(|found| found.uniform_range())
    };
    for group in groups.iter().filter(|group| !group.whole(|seeds| seeds.mean("regret")).is_none_or(f64::is_nan)) {
        let Some(range) = scale(group) else { continue };
        let regret = group.estimate(|seeds: Weighted<'_>| Some(seeds.mean("regret")? / range));
        let (Some(regret), Some(time)) = (regret, group.whole(|seeds| seeds.mean("decision"))) else { continue };
        series.push(Series {
            name: if series.len() < GROUPS_MAX { group.name.clone() } else { String::new() },
            style: SeriesStyle::Points,
            points: vec![(time / 1e3, regret.value)],
            intervals: regret.interval().map(|interval| (interval.low, interval.high)).into_iter().collect(),
            color: Some(series.len()),
        });
        if let Some(delay) = group.exponential_delay().filter(|_| theories.is_empty()) {
            let n = group.cell().contractors;
            let point = |k: u32| (theory::kth_arrival(n, k) * delay / 1e3, theory::regret(f64::from(n), f64::from(k)));
            theories.push(Series::dashed("theory, k = 1 to n", (1..=n).map(point).collect(), 7));
        }
    }
    let alternative =
        format!("Regret against time to decision, a point per policy, {}.", spans(&series, "of the cost range"));
    let chart = Chart {
        title: "Policy trade-off".into(),
        alternative,
        x: Axis::new("mean time to decision", "ms"),
        y: Axis::new("regret", "share of the cost range"),
        series: series.into_iter().chain(theories).collect(),
    };
    let note = "Down and to the left is better. The dashed line is what waiting for the first k offers gives where costs are uniform \
                and delays exponential; it leaves out what the exchange itself takes. Without late offers regret cannot be seen, and a point is too low.";
    (chart, note, "needs awards, and uniform costs of at least 100 offers")
}

fn lorenz(groups: &[&Group]) -> Plotted {
    let mut series: Vec<Series> = Vec::new();
    for group in groups {
        let mut wins = group.whole(|seeds| seeds.by_contractor(|contractor| contractor.wins as f64));
        let (total, contractors) = (wins.iter().sum::<f64>(), wins.len() as f64);
        if total == 0.0 {
            continue;
        }
        wins.sort_by(f64::total_cmp);
        let mut sum = 0.0;
        let points = wins.iter().enumerate().map(|(place, wins)| {
            sum += wins / total;
            ((place + 1) as f64 / contractors, sum)
        });
        let points = std::iter::once((0.0, 0.0)).chain(points).collect();
        series.push(Series::line(&group.name, points));
    }
    if !series.is_empty() {
        series.push(Series::dashed("equal", vec![(0.0, 0.0), (1.0, 1.0)], 7));
    }
    let chart = Chart {
        title: "Lorenz curve of awards".into(),
        alternative: "Cumulative share of the awards against that of contractors, from those with the fewest; on the diagonal all \
                      win as often."
            .into(),
        x: Axis { range: Some((0.0, 1.0)), ..Axis::new("contractors, from the fewest awards", "share") },
        y: Axis { range: Some((0.0, 1.0)), ..Axis::new("awards", "share") },
        series,
    };
    let note = "Chance alone bends the curve: from few rounds it says nothing of fairness, and M20 holds its number back until \
                there are enough.";
    (chart, note, "nothing was awarded")
}

/// Statistics of one group, and what each is in a calm one.
type Against = (&'static str, fn(Weighted<'_>) -> Option<f64>, fn(Weighted<'_>) -> Option<f64>);

const AGAINST_CALM: [Against; 3] = [
    ("others' p99", |own| own.quantile("decision of others", 0.99), |calm| calm.quantile("decision", 0.99)),
    ("p99 of all", |own| own.quantile("decision", 0.99), |calm| calm.quantile("decision", 0.99)),
    ("others' completion", |own| own.mean("completed of others"), |calm| calm.mean("completed")),
];

fn griefing(groups: &[&Group], all: &[Group]) -> Plotted {
    let pairs: Vec<(&Group, &Group)> = groups.iter().filter_map(|group| Some((*group, group.calm(all)?))).collect();
    let mut series: Vec<Series> = Vec::new();
    for (place, (name, own, of_calm)) in AGAINST_CALM.into_iter().enumerate() {
        let mut shown = Series { name: name.to_owned(), style: SeriesStyle::Points, ..Series::default() };
        for (number, (group, calm)) in pairs.iter().enumerate() {
            let Some(ratio) = group.ratio_to(calm, own, of_calm) else { continue };
            let interval =
                ratio.interval().map_or((ratio.value, ratio.value), |interval| (interval.low, interval.high));
            shown.points.push((number as f64 + 1.0 + place as f64 * 0.2, ratio.value));
            shown.intervals.push(interval);
        }
        series.push(shown);
    }
    let names = (1..).zip(&pairs).map(|(number, (group, _))| format!("{number} is {}", group.name));
    let alternative = format!(
        "Time to decision and completion against calm, {}; {}.",
        spans(&series, "times calm"),
        names.collect::<Vec<_>>().join("; ")
    );
    if !pairs.is_empty() {
        series.push(Series::dashed("calm", vec![(1.0, 1.0), (pairs.len() as f64 + 0.4, 1.0)], 7));
    }
    let chart = Chart {
        title: "Others against calm".into(),
        alternative,
        x: Axis::new("group", "number, as in the table"),
        y: Axis::new("in parts of the calm group", "ratio"),
        series,
    };
    let note = "Groups in the order of the table of populations, without those that have no calm group beside them. Others are the negotiations \
                that awarded nothing to a named population. An award that is never confirmed costs its own negotiation the policy's confirm \
                deadline, 10 s in most presets, before the next best is awarded: that is time to confirmation, not to decision.";
    (chart, note, "needs a group that differs in nothing but that its contractors behave")
}

/// What each series spans, in words.
fn spans(series: &[Series], unit: &str) -> String {
    let span = |series: &Series| {
        let values: Vec<f64> = series.points.iter().map(|point| point.1).collect();
        let (low, high) = (Statistics::min(values.as_slice()), Statistics::max(values.as_slice()));
        format!("{} between {low:.3} and {high:.3} {unit}", series.name)
    };
    let spans: Vec<String> = series.iter().filter(|series| !series.points.is_empty()).map(span).collect();
    if spans.is_empty() { "nothing".to_owned() } else { spans.join("; ") }
}
