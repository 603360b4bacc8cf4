//! The report of a run: recomputed from the queries in its folder, and from nothing else.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use agora::schedule::Thresholds;
use maud::{DOCTYPE, PreEscaped, html};
use serde::Serialize;

use crate::figures::draw::Chart;
use crate::report::ReportError;
use crate::report::folder::FolderError;

use super::charts::{self, usd};
use super::figures::{LAST, NetworkFigures, SeedSpread, WINDOW};
use super::query::QueryRecord;
use super::weather::BreakEven;
use super::{AgoraPlan, PLAN, QUERIES, WEATHER, cell};

const STYLE: &str = include_str!("../report/page.css");

/// The columns of the table of networks.
const HEADING: [&str; 11] = [
    "network",
    "natural language",
    "Agora",
    "ratio",
    "needed a model, first 100",
    "last 500",
    "documents",
    "negotiations",
    "checks",
    "routines",
    "in natural language",
];

/// Everything a report says.
#[derive(Debug, Serialize)]
pub struct AgoraReport {
    /// The thresholds of the agents.
    pub thresholds: Thresholds,
    /// The two agents, by the paper's figures.
    pub weather_paper: BreakEven,
    /// The two agents, by ours.
    pub weather: BreakEven,
    /// The networks, by seed.
    pub networks: Vec<NetworkFigures>,
    /// What they came to together.
    pub spread: Option<SeedSpread>,
    /// Pictures of the first network and of the two agents, by the name of their file.
    #[serde(skip)]
    pictures: Vec<(&'static str, Chart)>,
}

/// The plan in a folder, if it is one of such a run.
#[must_use]
pub fn plan(folder: &Path) -> Option<AgoraPlan> {
    serde_json::from_slice(&fs::read(folder.join(PLAN)).ok()?).ok().filter(|plan: &AgoraPlan| plan.name == "agora")
}

/// Computes the report of a folder.
///
/// # Errors
/// [`ReportError`]. Nothing is written.
pub fn compute(folder: &Path) -> Result<AgoraReport, ReportError> {
    let Some(plan) = plan(folder) else { return Err(FolderError::NoCells(folder.to_owned()).into()) };
    let pair = read(folder, WEATHER)?;
    let weather = BreakEven::measured(&pair);
    let (mut networks, mut pictures) = (Vec::new(), Vec::new());
    for seed in plan.seeds() {
        let queries = read(folder, &cell(seed))?;
        if networks.is_empty() {
            pictures.push(("figure-5a.svg", charts::cost(&queries)));
            pictures.push(("figure-5b.svg", charts::share(&queries)));
            pictures.push(("documents.svg", charts::documents(&queries)));
        }
        networks.push(NetworkFigures::of(seed, &queries, plan.thresholds));
    }
    pictures.push(("weather.svg", charts::weather(weather)));
    let spread = SeedSpread::of(&networks);
    let weather_paper = BreakEven::paper();
    Ok(AgoraReport { thresholds: plan.thresholds, weather_paper, weather, networks, spread, pictures })
}

/// Computes the report of a folder and writes it there: `report.html`, `report.md`, `figures.json` and the pictures.
///
/// # Errors
/// [`ReportError`]. Nothing is written unless everything could be computed.
pub fn write(folder: &Path) -> Result<AgoraReport, ReportError> {
    let report = compute(folder)?;
    let json = serde_json::to_string_pretty(&report)
        .map_err(|error| ReportError::Write { path: folder.join("figures.json"), source: error.into() })?;
    let mut files = vec![("figures.json", json + "\n"), ("report.md", report.text())];
    for (name, chart) in &report.pictures {
        files.push((name, chart.svg()?));
    }
    files.push(("report.html", report.page()?));
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| ReportError::Write { path, source })?;
    }
    Ok(report)
}

fn read(folder: &Path, cell: &str) -> Result<Vec<QueryRecord>, ReportError> {
    let folder = folder.join("cells").join(cell);
    let path = folder.join(QUERIES);
    let unreadable = |source: io::Error| FolderError::Unreadable { path: path.clone(), source };
    let lines = BufReader::new(File::open(&path).map_err(unreadable)?).lines();
    let mut records = Vec::new();
    for (line, text) in (1..).zip(lines) {
        let record = serde_json::from_str(&text.map_err(unreadable)?);
        records.push(record.map_err(|error| damaged(&path, line, error.to_string(), &folder))?);
    }
    if records.is_empty() {
        return Err(damaged(&path, 0, "holds no query".to_owned(), &folder).into());
    }
    Ok(records)
}

fn damaged(path: &Path, line: u64, reason: String, cell: &Path) -> FolderError {
    FolderError::Damaged { path: PathBuf::from(path), line, reason, cell: PathBuf::from(cell) }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl AgoraReport {
    /// What is printed, and stands in `report.md`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec!["# What protocol documents save".to_owned(), String::new()];
        lines.push(
            "| two agents | negotiating and implementing | one exchange in natural language | cheaper from use |"
                .to_owned(),
        );
        lines.push("|---|---|---|---|".to_owned());
        for (name, of) in [("the paper's figures", self.weather_paper), ("these texts", self.weather)] {
            let (setup, language, uses) = (usd(of.setup), usd(of.language), of.uses);
            lines.push(format!("| {name} | {setup:.4} USD | {language:.4} USD | {uses} |"));
        }
        lines.push(String::new());
        lines.push(format!("| {} |", HEADING.join(" | ")));
        lines.push(format!("|{}", "---|".repeat(HEADING.len())));
        lines.extend(self.rows().iter().map(|row| format!("| {} |", row.join(" | "))));
        if let Some(first) = self.networks.first() {
            lines.extend([String::new(), format!("Cost with Agora, seed {}:", first.seed), String::new()]);
            for (name, cost, share) in first.split() {
                lines.push(format!("* {name}: {:.2} USD, {}", usd(cost), percent(share)));
            }
        }
        for paragraph in [self.spread_text(), self.note()] {
            if !paragraph.is_empty() {
                lines.extend([String::new(), paragraph]);
            }
        }
        lines.join("\n") + "\n"
    }

    /// The rows of the table of networks.
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |one: &NetworkFigures| {
            vec![
                format!("seed {}", one.seed),
                format!("{:.2} USD", usd(one.language_cost)),
                format!("{:.2} USD", usd(one.cost.total())),
                format!("{:.2}", one.ratio),
                percent(one.share_first),
                percent(one.share_last),
                one.documents.to_string(),
                one.negotiations.to_string(),
                one.checks.to_string(),
                one.routines.to_string(),
                one.in_language.to_string(),
            ]
        };
        self.networks.iter().map(row).collect()
    }

    fn spread_text(&self) -> String {
        let Some(spread) = self.spread.filter(|spread| spread.seeds > 1) else { return String::new() };
        let (low, high) = spread.share_at_four;
        let mut text = format!(
            "{} seeds: ratio {:.2} to {:.2}, median {:.2}; at least 4 in {} (95 % interval of the share: {} to {}). Needed a model, \
             last {LAST} queries: median {}, at most {}. The first {} calls of an assistant to a server are in natural language, \
             whatever agents do. If everything else cost nothing, the ratio would be {:.2} in the median, and at least 4 in {}.",
            spread.seeds,
            spread.ratio_low,
            spread.ratio_high,
            spread.ratio_median,
            spread.seeds_at_four,
            percent(low),
            percent(high),
            percent(spread.share_last_median),
            percent(spread.share_last_high),
            self.thresholds.documents,
            spread.ratio_bound_median,
            spread.seeds_bound_at_four,
        );
        if let Some(correlation) = spread.ratio_and_bound {
            text += &format!(" Rank correlation of the ratio with this bound: {correlation:.2}.");
        }
        text
    }

    fn note(&self) -> String {
        let Thresholds { documents, negotiation, routine, responder_routine, responder_negotiation } = self.thresholds;
        let asks = responder_negotiation.map_or_else(|| "never".to_owned(), |count| count.to_string());
        format!(
            "Thresholds: documents {documents}, negotiation {negotiation}, routine {routine}; of responders: routine \
             {responder_routine}, asks for a negotiation {asks}. Tokens are bytes of the texts over 4; prices are the paper's. No \
             model was asked."
        )
    }

    fn page(&self) -> Result<String, ReportError> {
        let pictures: Vec<String> = self.pictures.iter().map(|(_, chart)| chart.svg()).collect::<Result<_, _>>()?;
        let table = |head: &[String], rows: &[Vec<String>]| {
            html! {
                div.scroll role="region" aria-label="Figures" tabindex="0" {
                    table {
                        thead { tr { @for cell in head { th { (cell) } } } }
                        tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
                    }
                }
            }
        };
        let weather_head = ["two agents", "negotiating and implementing", "natural language", "cheaper from use"];
        let weather = [("the paper's figures", self.weather_paper), ("these texts", self.weather)].map(|(name, of)| {
            let (setup, language) = (usd(of.setup), usd(of.language));
            vec![name.to_owned(), format!("{setup:.4} USD"), format!("{language:.4} USD"), of.uses.to_string()]
        });
        let split = self.networks.first().map(NetworkFigures::split).into_iter().flatten();
        let split: Vec<Vec<String>> = split
            .map(|(name, cost, share)| vec![name.to_owned(), format!("{:.2} USD", usd(cost)), percent(share)])
            .collect();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { "What protocol documents save" }
                    style { (PreEscaped(STYLE)) }
                }
                body { main {
                    h1 { "What protocol documents save" }
                    @if self.networks.len() > 1 { p { (self.spread_text()) } }
                    h2 { "Two agents" }
                    (table(&weather_head.map(str::to_owned), &weather))
                    h2 { "The network" }
                    (table(&HEADING.map(str::to_owned), &self.rows()))
                    h2 { "Where the cost with Agora goes, first seed" }
                    (table(&["part", "cost", "share"].map(str::to_owned), &split))
                    h2 { "Pictures" }
                    p.quiet { "Of the first seed. A query needed a model when one had any part in it, on either side; the window has " (WINDOW) " queries." }
                    div.figures { @for picture in &pictures { figure { (PreEscaped(picture)) } } }
                    p.quiet { (self.note()) }
                } }
            }
        };
        Ok(page.into_string())
    }
}
