//! The report of a run: recomputed from the queries in its folder, and from nothing else.

use std::path::Path;

use agora::schedule::Thresholds;
use maud::{PreEscaped, html};
use serde::Serialize;

use crate::report::folder::{FolderError, damaged, read_lines};
use crate::report::markdown::table;
use crate::report::page::{document, plain_table};
use crate::report::{ReportError, write_files};
use crate::run::files::{self, CELLS};
use crate::study;

use super::charts::{self, usd};
use super::figures::{LAST, NetworkFigures, SeedSpread, WINDOW};
use super::query::QueryRecord;
use super::weather::BreakEven;
use super::{AgoraPlan, QUERIES, WEATHER, cell};

const TITLE: &str = "What protocol documents save";

/// The columns of the table of networks.
const OF_TWO_AGENTS: [&str; 4] =
    ["two agents", "negotiating and implementing", "one exchange in natural language", "cheaper from use"];
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
    pictures: Vec<(&'static str, String)>,
}

/// The plan in a folder, if it is one of such a run.
pub fn plan(folder: &Path) -> Option<AgoraPlan> {
    files::plan(folder).filter(|plan: &AgoraPlan| plan.name == "agora")
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
    for seed in study::seeds(plan.seed, plan.seeds) {
        let queries = read(folder, &cell(seed))?;
        if networks.is_empty() {
            pictures.push(("figure-5a.svg", charts::cost(&queries).svg()?));
            pictures.push(("figure-5b.svg", charts::share(&queries).svg()?));
            pictures.push(("documents.svg", charts::documents(&queries).svg()?));
        }
        networks.push(NetworkFigures::of(seed, &queries, plan.thresholds));
    }
    pictures.push(("weather.svg", charts::weather(weather).svg()?));
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
    let texts = [("report.md", report.text()), ("report.html", report.page())];
    write_files(folder, &report, report.pictures.iter().cloned().chain(texts).collect())?;
    Ok(report)
}

fn read(folder: &Path, cell: &str) -> Result<Vec<QueryRecord>, ReportError> {
    let path = folder.join(CELLS).join(cell).join(QUERIES);
    let mut records = Vec::new();
    match read_lines(&path, |record| records.push(record))? {
        0 => Err(damaged(&path, 0, "holds no query".to_owned()).into()),
        _ => Ok(records),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl AgoraReport {
    /// What is printed, and stands in `report.md`.
    pub fn text(&self) -> String {
        let mut text = format!("# {TITLE}\n{}", table(&OF_TWO_AGENTS, self.weather_rows()));
        text += &table(&HEADING, self.rows());
        if let Some(first) = self.networks.first() {
            text += &format!("\nCost with Agora, seed {}:\n\n", first.seed);
            for (name, cost, share) in first.split() {
                text += &format!("* {name}: {:.2} USD, {}\n", usd(cost), percent(share));
            }
        }
        for paragraph in [self.spread_text(), self.note()].iter().filter(|paragraph| !paragraph.is_empty()) {
            text += &format!("\n{paragraph}\n");
        }
        text
    }

    /// The rows of the table of the two agents.
    fn weather_rows(&self) -> [[String; 4]; 2] {
        [("the paper's figures", self.weather_paper), ("these texts", self.weather)].map(|(name, of)| {
            let (setup, language) = (usd(of.setup), usd(of.language));
            [name.to_owned(), format!("{setup:.4} USD"), format!("{language:.4} USD"), of.uses.to_string()]
        })
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

    fn page(&self) -> String {
        let split = self.networks.first().map(NetworkFigures::split).into_iter().flatten();
        let split: Vec<[String; 3]> = split
            .map(|(name, cost, share)| [name.to_owned(), format!("{:.2} USD", usd(cost)), percent(share)])
            .collect();
        let body = html! {
            h1 { (TITLE) }
            @if self.networks.len() > 1 { p { (self.spread_text()) } }
            h2 { "Two agents" }
            (plain_table("Figures", &OF_TWO_AGENTS, &self.weather_rows()))
            h2 { "The network" }
            (plain_table("Figures", &HEADING, &self.rows()))
            h2 { "Where the cost with Agora goes, first seed" }
            (plain_table("Figures", &["part", "cost", "share"], &split))
            h2 { "Pictures" }
            p.quiet { "Of the first seed. A query needed a model when one had any part in it, on either side; the window has " (WINDOW) " queries." }
            div.figures { @for (_, picture) in &self.pictures { figure { (PreEscaped(picture)) } } }
            p.quiet { (self.note()) }
        };
        document(TITLE, &body)
    }
}
