//! M1 to M19, M25 to M36 and those of populations: what can be had of sums by name, and what needs a statistic of its own.
//!
//! Keys of populations are `P1` to `P8` with the population's name, and `P12` to `P15` where it asks a model; `P9` to `P11` are of all
//! populations together, against the group whose contractors behave.

use super::Sheet;
use super::group::Weighted;

/// What begins the sums of first offers, by domain.
const ANCHOR: &str = "anchor x ";

/// Adds M1 to M12 and M26 to M29: time, messages, completeness, faults.
pub fn traffic(sheet: &mut Sheet<'_>) {
    sheet.put_set("traffic", None);
    if sheet.group.waits_for_all() {
        let answered = sheet.group.whole(|seeds| seeds.mean("answered"));
        let contractors = sheet.group.cell().contractors;
        let figure = sheet.put("M11", |seeds| Some(1.0 - seeds.mean("all answered")?));
        figure.theory = answered.map(|answered| 1.0 - answered.powf(f64::from(contractors)));
    } else {
        sheet.put("M11", |_| None);
    }
    let has_faults = sheet.group.cell().labels.contains_key("faults");
    sheet.put("M26", |seeds| has_faults.then(|| seeds.mean("completed"))?);
    let figure = sheet
        .put("M28", |seeds| Some(seeds.over_seeds(|tally| Some(tally.cell.violations.values().sum::<u64>() as f64)).0));
    (figure.interval, figure.theory) = (None, Some(0.0));
}

/// Adds M13 to M19: what was chosen, against what could have been.
pub fn quality(sheet: &mut Sheet<'_>) {
    let range = sheet.group.uniform_range();
    let is_free = !sheet.group.is_threshold();
    let theory = |name: &'static str| sheet.group.whole(|seeds| seeds.mean(name)).filter(|_| is_free);
    let (expected_regret, expected_best, expected_rank) =
        (theory("theory regret"), theory("theory best chosen"), theory("theory rank"));
    let expected_regret = expected_regret.and_then(|expected| Some(expected * range?));
    sheet.put_set("quality", None);
    sheet.expect("M14", expected_regret);
    sheet.expect("M16", expected_best);
    sheet.expect("M17", expected_rank);
    let scales = range.zip(sheet.group.exponential_delay());
    sheet.put("M18", |seeds: Weighted<'_>| scales.and_then(|(range, delay)| seeds.above_frontier(range, delay)));
}

/// Adds M31 to M36: what bargains come to.
pub fn bargains(sheet: &mut Sheet<'_>) {
    sheet.put_set("bargains", None);
    sheet.expect("M36", Some(0.0));
    let domains: Vec<String> = sheet.group.names(ANCHOR).map(|name| name[ANCHOR.len()..].to_owned()).collect();
    sheet.put("M35", |seeds| slope(seeds, &domains));
}

/// Least squares within each domain, over all of them together.
fn slope(seeds: Weighted<'_>, domains: &[String]) -> Option<f64> {
    let (mut covariance, mut variance) = (0.0, 0.0);
    for domain in domains {
        let sum = |of: &str| seeds.sum(&format!("anchor {of} {domain}"));
        let ((x, count), (y, _), (xx, _), (xy, _)) = (sum("x"), sum("y"), sum("xx"), sum("xy"));
        if count > 0.0 {
            covariance += xy - x * y / count;
            variance += xx - x * x / count;
        }
    }
    // First offers that are all alike leave rounding errors.
    (variance > 1e-9).then(|| covariance / variance)
}

/// Adds M25, M30 and the costs of an initiator's model.
pub fn models(sheet: &mut Sheet<'_>) {
    sheet.put_set("lists", None);
    let expected = 1.0 / f64::from(sheet.group.cell().contractors.max(1));
    let places = sheet.figures.iter_mut().filter(|figure| figure.key.starts_with("M25."));
    places.for_each(|figure| figure.theory = Some(expected));
    if sheet.group.cell().model.is_some() {
        sheet.put_set("choices", None);
        sheet.put_set("costs", None);
    }
}

/// Adds what a model gets out of bargains, and what it costs.
pub fn surplus(sheet: &mut Sheet<'_>) {
    if sheet.group.cell().model.is_some() {
        sheet.put_set("surplus", None);
        sheet.put_set("costs", None);
    }
}

/// Adds the figures of every population, where not all contractors of a group behave alike: its own and those of the negotiations beside it, what its model was asked, the warm-up
/// with it, and those of the negotiations that awarded nothing to a population, and of all of them, against those of the group
/// whose contractors behave.
pub fn populations(sheet: &mut Sheet<'_>) {
    let populations = &sheet.group.cell().populations;
    for population in populations {
        sheet.put_set("population", Some(&population.name));
        if population.model.is_some() {
            sheet.put_set("asked", Some(&population.name));
        }
    }
    if !populations.is_empty() {
        sheet.put_set("against calm", None);
    }
}
