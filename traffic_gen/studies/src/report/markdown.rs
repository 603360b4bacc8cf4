//! The report in a form short enough for a pull request.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::figures::Figure;
use crate::record::PopulationRecord;

use super::ExperimentReport;
use super::differences::Differences;

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
    let _ = writeln!(text, "\n| hypothesis | verdict | because |\n|---|---|---|");
    for verdict in &report.hypotheses {
        let _ = writeln!(
            text,
            "| {} {} | {} | {} |",
            verdict.id,
            verdict.claim,
            verdict.judgement.as_str(),
            verdict.reason
        );
    }
    if !report.paper.is_empty() {
        let _ = writeln!(text, "\n| paper | ours | p95 paper, ms | p95 ours, ms | factor |\n|---|---|---|---|---|");
        for run in &report.paper {
            let (ours, factor) = (number(run.p95_ms), number(run.factor));
            let _ = writeln!(
                text,
                "| {} | {}, {} | {} | {ours} | {factor} |",
                run.run, run.group, run.measure, run.paper_p95
            );
        }
    }
    SHOWN.iter().for_each(|keys| figures(&mut text, report, keys));
    populations(&mut text, report);
    table(&mut text, OF_MODELS, &model_rows(report));
    table(&mut text, OF_MISCONDUCT, &misconduct_rows(report));
    if report.groups.len() > ROWS_MAX {
        let _ = writeln!(text, "\n{} further groups are in `figures.json`.", report.groups.len() - ROWS_MAX);
    }
    if let Some(differences) = differences {
        changes(&mut text, differences);
    }
    text
}

/// The table of some figures.
fn figures(text: &mut String, report: &ExperimentReport, keys: &[&str]) {
    let shown = report.groups.iter().take(ROWS_MAX).filter_map(|group| {
        let found: Vec<Option<&Figure>> =
            keys.iter().map(|key| group.figures.iter().find(|figure| figure.key == *key)).collect();
        let has_value = found.iter().flatten().any(|figure| figure.value.is_some());
        let cells: Vec<String> = found.into_iter().map(value).collect();
        has_value.then(|| format!("| {} | {} | {} |", group.name, group.rounds, cells.join(" | ")))
    });
    let rows: Vec<String> = shown.collect();
    if rows.is_empty() {
        return;
    }
    let titles: Vec<String> = keys.iter().map(|key| title(report, key)).collect();
    let _ = writeln!(text, "\n| group | rounds | {} |\n|---|---|{}", titles.join(" | "), "---|".repeat(keys.len()));
    rows.iter().for_each(|row| text.extend([row, "\n"]));
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
        Some(_) | None => "-".to_owned(),
    }
}

/// A number with as many digits as tell it apart.
#[must_use]
pub fn digits(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let digits = (3.0 - magnitude).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
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

fn populations(text: &mut String, report: &ExperimentReport) {
    let rows = population_rows(report);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| group | population | {} |", OF_POPULATIONS.map(|(title, ..)| title).join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(OF_POPULATIONS.len()));
    for row in rows.iter().take(ROWS_MAX) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

/// The columns of [`misconduct_rows`].
pub const OF_MISCONDUCT: [&str; 6] =
    ["group", "population", "sent besides", "envelopes", "answered by gateways", "disposed by the exchange"];

/// A row for each kind of envelope that should not have been sent.
#[must_use]
pub fn misconduct_rows(report: &ExperimentReport) -> Vec<[String; 6]> {
    let counts = |of: &BTreeMap<String, u64>| {
        of.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut rows = Vec::new();
    for group in &report.groups {
        for population in &group.populations {
            for (kind, record) in &population.misconduct {
                let (answers, dispositions) = (counts(&record.answers), counts(&record.dispositions));
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

/// A table, unless it would be empty.
fn table<const N: usize>(text: &mut String, columns: [&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| {} |\n|{}", columns.join(" | "), "---|".repeat(N));
    for row in rows.iter().take(ROWS_MAX) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

fn changes(text: &mut String, differences: &Differences) {
    let _ = writeln!(text, "\n{}", summary(differences));
    if differences.beyond_noise.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n| group | figure | here | there | difference |\n|---|---|---|---|---|");
    for found in differences.beyond_noise.iter().take(ROWS_MAX) {
        let (here, there) = (digits(found.value), digits(found.other));
        let (low, high) = (digits(found.interval.low), digits(found.interval.high));
        let _ = writeln!(
            text,
            "| {} | {} {}, {} | {here} | {there} | [{low}, {high}] |",
            found.group, found.key, found.name, found.unit
        );
    }
}
