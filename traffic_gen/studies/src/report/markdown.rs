//! The report in a form short enough for a pull request.

use std::fmt::Write;

use crate::figures::Figure;
use crate::figures::draw::decimal;
use crate::figures::hypotheses::HypothesisVerdict;
use crate::record::{PopulationRecord, counts_told};

use super::differences::{Differences, FigureDifference};
use super::paper::{self, PaperComparison};
use super::{ExperimentReport, GroupFigures};

/// Metrics of the tables, the most asked for: of calls, of bargains, of models that decide. A table has the groups that have one
/// of them, and is left out without any.
const SHOWN: [&[&str]; 3] = [
    &["M2d", "M2d.p95", "M5", "M8", "M14", "M16", "M23"],
    &["M31", "M32", "M32.rounds", "M33.welfare", "M34.pareto", "M35", "M36"],
    &["M25.0", "M30", "model.fallbacks", "M33.surplus", "model.calls", "model.tokens", "model.cost"],
];
/// Most groups in the table, and most differences listed.
const ROWS_MAX: usize = 40;

/// The report as Markdown.
pub fn text(report: &ExperimentReport, differences: Option<&Differences>) -> String {
    let mut text = format!("# {}\n\n{}\n", report.name, scope(report));
    text += &table(&OF_HYPOTHESES, hypothesis_rows(report));
    let paper: Vec<_> = report.paper.iter().map(PaperComparison::cells).collect();
    if !paper.is_empty() {
        text += &table(&paper::COLUMNS, paper);
    }
    SHOWN.iter().for_each(|keys| text += &figures(report, keys));
    text += &filled(&OF_POPULATIONS, &population_rows(report));
    text += &filled(&OF_MODELS, &model_rows(report));
    text += &filled(&OF_MISCONDUCT, &misconduct_rows(report));
    if report.groups.len() > ROWS_MAX {
        let _ = writeln!(text, "\n{} further groups are in `figures.json`.", report.groups.len() - ROWS_MAX);
    }
    let compared = Some(&report.policies).filter(|policies| policies.is_told());
    compared.into_iter().chain(differences).for_each(|differences| text += &changes(differences));
    text
}

/// A table behind a blank line.
pub fn table<R: AsRef<[String]>>(columns: &[impl AsRef<str>], rows: impl IntoIterator<Item = R>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heading = columns.iter().map(|title| title.as_ref().to_owned()).collect();
    let mut text = format!("\n{}|{}\n", line(heading), "---|".repeat(columns.len()));
    for row in rows {
        text += &line(row.as_ref().iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect());
    }
    text
}

/// A table of the first rows, and how many there are besides; nothing where there are none.
fn filled(columns: &[impl AsRef<str>], rows: &[impl AsRef<[String]>]) -> String {
    let besides = match rows.len().saturating_sub(ROWS_MAX) {
        0 => String::new(),
        besides => format!("\n{besides} further rows are in `figures.json`.\n"),
    };
    if rows.is_empty() { besides } else { table(columns, rows.iter().take(ROWS_MAX)) + &besides }
}

/// The table of some figures.
fn figures(report: &ExperimentReport, keys: &[&str]) -> String {
    let shown = report.groups.iter().take(ROWS_MAX).filter_map(|group| {
        let found: Vec<Option<&Figure>> =
            keys.iter().map(|key| group.figures.iter().find(|figure| figure.key == *key)).collect();
        let has_value = found.iter().flatten().any(|figure| figure.value.is_some());
        let cells = [group.name.clone(), group.rounds.to_string()].into_iter().chain(found.into_iter().map(value));
        has_value.then(|| cells.collect::<Vec<_>>())
    });
    let titles = ["group", "rounds"].map(str::to_owned).into_iter().chain(keys.iter().map(|key| title(report, key)));
    filled(&titles.collect::<Vec<_>>(), &shown.collect::<Vec<_>>())
}

/// What was read, and what was not.
pub fn scope(report: &ExperimentReport) -> String {
    let rounds: u64 = report.groups.iter().map(|group| group.rounds).sum();
    let mut text = format!(
        "{} cells in {} groups, {rounds} rounds. Intervals are of 95 %, over seeds; from fewer than 6 seeds they are no more than the \
         seeds' range.",
        report.cells,
        report.groups.len()
    );
    for (what, cells) in
        [("Left out, because they did not end", &report.unfinished), ("Ended before their time", &report.interrupted)]
    {
        if !cells.is_empty() {
            let _ = write!(text, " {what}: {}.", cells.join(", "));
        }
    }
    text
}

/// What a comparison says as a whole.
pub fn summary(differences: &Differences) -> String {
    let Differences { with, compared, unmatched, single, beyond_noise, .. } = differences;
    let mut text = format!("Against {with}: {} of {compared} figures differ beyond noise.", beyond_noise.len());
    for (what, groups) in [("Not compared", unmatched), ("Of too few seeds, so nothing can be said", single)] {
        if !groups.is_empty() {
            let _ = write!(text, " {what}: {}.", groups.join(", "));
        }
    }
    text
}

/// A value with its interval.
pub fn value(figure: Option<&Figure>) -> String {
    match figure {
        Some(Figure { value: Some(value), interval: Some(interval), .. }) => {
            format!("{} [{}, {}]", digits(*value), digits(interval.low), digits(interval.high))
        }
        Some(Figure { value: Some(value), .. }) => digits(*value),
        Some(Figure { missing: Some(missing), .. }) if missing.starts_with("too few") => missing.clone(),
        Some(_) | None => "-".to_owned(),
    }
}

/// A number with as many digits as tell it apart.
pub fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    decimal(value, (3.0 - magnitude).clamp(0.0, 6.0))
}

/// A number, where there is one.
pub fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

fn title(report: &ExperimentReport, key: &str) -> String {
    let figure = report.groups.iter().flat_map(|group| &group.figures).find(|figure| figure.key == key);
    figure.map_or_else(|| key.to_owned(), |figure| format!("{key} {}, {}", figure.name, figure.unit))
}

/// The columns of [`hypothesis_rows`].
pub const OF_HYPOTHESES: [&str; 3] = ["hypothesis", "verdict", "because"];

/// A row for each hypothesis.
pub fn hypothesis_rows(report: &ExperimentReport) -> Vec<[String; 3]> {
    let row = |HypothesisVerdict { id, claim, judgement, reason, rounds_needed, .. }: &HypothesisVerdict| {
        let needed = rounds_needed.map(|needed| format!(". In all about {needed} rounds per group would do."));
        let because = format!("{reason}{}", needed.unwrap_or_default());
        [format!("{id} {claim}"), judgement.as_str().to_owned(), because]
    };
    report.hypotheses.iter().map(row).collect()
}

/// The columns of [`population_rows`]: what a population did, and what those saw that it did not win.
pub const OF_POPULATIONS: [&str; 13] = [
    "group",
    "population",
    "offers per call",
    "refused offers",
    "time to offer, p50, ms",
    "p99, ms",
    "first awards",
    "of its awards binding",
    "refusals per call",
    "decision beside, p99, ms",
    "completion beside",
    "others' p99 against calm",
    "others' completion against calm",
];
/// The figures of the third column and those behind it; where they have quantiles, which.
const FIGURES_OF_POPULATIONS: [&str; 11] =
    ["P1", "P2", "P3.p50", "P3.p99", "P4", "P5", "P6", "P8d.p99", "P7", "P9d", "P11o"];

/// A row for each population of each group, named with its size.
pub fn population_rows(report: &ExperimentReport) -> Vec<Vec<String>> {
    let row = |group: &GroupFigures, PopulationRecord { name, contractors, .. }: &PopulationRecord| {
        let shown = FIGURES_OF_POPULATIONS.map(|of| {
            let of_it = of.split_once('.').map(|(key, quantile)| format!("{key}.{name}.{quantile}"));
            let of_it = of_it.unwrap_or_else(|| format!("{of}.{name}"));
            // Those against calm are of all populations together.
            value(group.figures.iter().find(|figure| figure.key == of_it || figure.key == of))
        });
        [group.name.clone(), format!("{} {name}", contractors.len())].into_iter().chain(shown).collect()
    };
    report.groups.iter().flat_map(|group| group.populations.iter().map(move |of| row(group, of))).collect()
}

/// The columns of [`misconduct_rows`].
pub const OF_MISCONDUCT: [&str; 6] =
    ["group", "population", "sent besides", "envelopes", "answered by gateways", "disposed by the exchange"];

/// A row for each kind of envelope that should not have been sent.
pub fn misconduct_rows(report: &ExperimentReport) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    for group in &report.groups {
        for population in &group.populations {
            for (kind, record) in &population.misconduct {
                let (answers, dispositions) = (counts_told(&record.answers), counts_told(&record.dispositions));
                let (group, population) = (group.name.clone(), population.name.clone());
                rows.push([group, population, kind.clone(), record.sent.to_string(), answers, dispositions]);
            }
        }
    }
    rows
}

/// The columns of [`model_rows`].
pub const OF_MODELS: [&str; 7] = [
    "group",
    "population",
    "model",
    "calls per question",
    "tokens per question",
    "micro-units per question",
    "without an answer",
];

/// A row for each population that asks a model.
pub fn model_rows(report: &ExperimentReport) -> Vec<[String; 7]> {
    let mut rows = Vec::new();
    for group in &report.groups {
        for PopulationRecord { name, model, .. } in &group.populations {
            let Some(model) = model else { continue };
            let shown = |key: &str| {
                let key = format!("{key}.{name}");
                value(group.figures.iter().find(|figure| figure.key == key))
            };
            let model = format!("{} ({})", model.name, <&str>::from(model.source));
            let [calls, tokens, cost, fallbacks] = ["P12", "P13", "P14", "P15"].map(shown);
            rows.push([group.name.clone(), name.clone(), model, calls, tokens, cost, fallbacks]);
        }
    }
    rows
}

/// The columns of [`change_rows`].
pub const OF_CHANGES: [&str; 5] = ["group", "figure", "first", "second", "difference, 95 % for all together"];

/// A row for each difference beyond noise.
pub fn change_rows(differences: &Differences) -> Vec<[String; 5]> {
    let row = |found: &FigureDifference| {
        let figure = format!("{} {}, {}", found.key, found.name, found.unit);
        let interval = format!("[{}, {}]", digits(found.interval.low), digits(found.interval.high));
        [found.group.clone(), figure, digits(found.value), digits(found.other), interval]
    };
    differences.beyond_noise.iter().map(row).collect()
}

fn changes(differences: &Differences) -> String {
    format!("\n{}\n{}", summary(differences), filled(&OF_CHANGES, &change_rows(differences)))
}
