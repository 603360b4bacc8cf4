//! The report in a form short enough for a pull request.

use std::fmt::Write;

use crate::figures::Figure;
use crate::figures::draw::decimal;
use crate::record::{PopulationRecord, counts_told};

use super::ExperimentReport;
use super::differences::Differences;
use super::paper::{self, PaperComparison};

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
#[must_use]
pub fn text(report: &ExperimentReport, differences: Option<&Differences>) -> String {
    let mut text = format!("# {}\n\n{}\n", report.name, scope(report));
    let hypotheses = report.hypotheses.iter().map(|verdict| {
        let claim = format!("{} {}", verdict.id, verdict.claim);
        [claim, verdict.judgement.as_str().to_owned(), verdict.reason.clone()]
    });
    text += &table("| hypothesis | verdict | because |", hypotheses);
    let paper: Vec<_> = report.paper.iter().map(PaperComparison::cells).collect();
    if !paper.is_empty() {
        text += &table(&format!("| {} |", paper::COLUMNS.join(" | ")), paper);
    }
    SHOWN.iter().for_each(|keys| text += &figures(report, keys));
    let columns = OF_POPULATIONS.map(|(title, ..)| title).join(" | ");
    text += &filled(&format!("| group | population | {columns} |"), &population_rows(report));
    text += &filled(&format!("| {} |", OF_MODELS.join(" | ")), &model_rows(report));
    text += &filled(&format!("| {} |", OF_MISCONDUCT.join(" | ")), &misconduct_rows(report));
    if report.groups.len() > ROWS_MAX {
        let _ = writeln!(text, "\n{} further groups are in `figures.json`.", report.groups.len() - ROWS_MAX);
    }
    if let Some(differences) = differences {
        text += &changes(differences);
    }
    text
}

/// A table behind a blank line, its heading as Markdown writes it.
#[must_use]
pub fn table<R: AsRef<[String]>>(heading: &str, rows: impl IntoIterator<Item = R>) -> String {
    let columns = heading.matches('|').skip(1).count();
    let mut text = format!("\n{heading}\n|{}\n", "---|".repeat(columns));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.as_ref().join(" | "));
    }
    text
}

/// A table of the first rows; nothing where there are none.
fn filled(heading: &str, rows: &[impl AsRef<[String]>]) -> String {
    if rows.is_empty() { String::new() } else { table(heading, rows.iter().take(ROWS_MAX)) }
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
    let titles: Vec<String> = keys.iter().map(|key| title(report, key)).collect();
    filled(&format!("| group | rounds | {} |", titles.join(" | ")), &shown.collect::<Vec<_>>())
}

/// What was read, and what was not.
#[must_use]
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
#[must_use]
pub fn summary(differences: &Differences) -> String {
    let Differences { with, compared, unmatched, single, beyond_noise } = differences;
    let mut text = format!("Against {with}: {} of {compared} figures differ beyond noise.", beyond_noise.len());
    for (what, groups) in [("Not compared", unmatched), ("Of one seed, so nothing can be said", single)] {
        if !groups.is_empty() {
            let _ = write!(text, " {what}: {}.", groups.join(", "));
        }
    }
    text
}

/// A value with its interval.
#[must_use]
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
#[must_use]
pub fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    decimal(value, (3.0 - magnitude).clamp(0.0, 6.0))
}

/// A number, where there is one.
#[must_use]
pub fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

fn title(report: &ExperimentReport, key: &str) -> String {
    let figure = report.groups.iter().flat_map(|group| &group.figures).find(|figure| figure.key == key);
    figure.map_or_else(|| key.to_owned(), |figure| format!("{key} {}, {}", figure.name, figure.unit))
}

/// What is shown of each population: what it did, and what those saw that it did not win.
pub const OF_POPULATIONS: [(&str, &str, &str); 11] = [
    ("offers per call", "P1", ""),
    ("refused offers", "P2", ""),
    ("time to offer, p50, ms", "P3", ".p50"),
    ("p99, ms", "P3", ".p99"),
    ("first awards", "P4", ""),
    ("of its awards binding", "P5", ""),
    ("refusals per call", "P6", ""),
    ("decision beside, p99, ms", "P8d", ".p99"),
    ("completion beside", "P7", ""),
    ("others' p99 against calm", "P9d", ""),
    ("others' completion against calm", "P11o", ""),
];

/// A row for each population of each group: the group, the population with its size, a value for each of [`OF_POPULATIONS`].
#[must_use]
pub fn population_rows(report: &ExperimentReport) -> Vec<[String; 13]> {
    let mut rows = Vec::new();
    for group in &report.groups {
        for population in &group.populations {
            let name = &population.name;
            let shown = |(_, key, rest): (&str, &str, &str)| {
                let of_it = format!("{key}.{name}{rest}");
                // Those against calm are of all populations together.
                value(group.figures.iter().find(|figure| figure.key == of_it || figure.key == key))
            };
            let mut row = std::array::from_fn(|_| String::new());
            row[0].clone_from(&group.name);
            row[1] = format!("{} {name}", population.contractors.len());
            for (cell, column) in row[2..].iter_mut().zip(OF_POPULATIONS) {
                *cell = shown(column);
            }
            rows.push(row);
        }
    }
    rows
}

/// The columns of [`misconduct_rows`].
pub const OF_MISCONDUCT: [&str; 6] =
    ["group", "population", "sent besides", "envelopes", "answered by gateways", "disposed by the exchange"];

/// A row for each kind of envelope that should not have been sent.
#[must_use]
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
#[must_use]
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

fn changes(differences: &Differences) -> String {
    let rows = differences.beyond_noise.iter().map(|found| {
        let figure = format!("{} {}, {}", found.key, found.name, found.unit);
        let interval = format!("[{}, {}]", digits(found.interval.low), digits(found.interval.high));
        [found.group.clone(), figure, digits(found.value), digits(found.other), interval]
    });
    let table = filled("| group | figure | here | there | difference |", &rows.collect::<Vec<_>>());
    format!("\n{}\n{table}", summary(differences))
}
