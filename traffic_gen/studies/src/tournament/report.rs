//! The report of a tournament, recomputed from the bargains in its folder, and from nothing else.

use std::fs;
use std::path::Path;

use schemas::Digest;
use scripted::bargain::plot::{self, Picture, PlotError};
use serde::Serialize;

use super::ranking::{Rank, TournamentFigure, rank};
use super::{BARGAINS, DOMAIN, TournamentDomain, TournamentPlan, TournamentRecord, cell};
use crate::figures::draw::DrawError;
use crate::figures::resample::SEEDS_MIN;
use crate::report::folder::{FolderError, damaged, read_lines, unreadable};
use crate::report::markdown::table;
use crate::report::{ReportError, write_files};
use crate::run::files::{self, CELLS};

/// Everything a report says.
#[derive(Debug, Serialize)]
pub struct TournamentReport {
    /// What was to be played.
    pub plan: TournamentPlan,
    /// Domains that were played by every pair.
    pub domains: Vec<String>,
    /// Competitors, the first first.
    pub ranks: Vec<Rank>,
    /// Agreements that a party may not make, or that are worth less to it than none.
    pub irrational: usize,
    /// Turns in which a competitor failed.
    pub failed_turns: u64,
}

/// The plan in a folder, if it is one of a tournament.
pub fn plan(folder: &Path) -> Option<TournamentPlan> {
    files::plan(folder)
}

/// Computes the report of a folder and writes it there: `report.md`, `figures.json`, and `domain-N.svg` with the agreements over
/// each domain.
///
/// # Errors
/// [`ReportError`]. Nothing is written unless everything could be computed.
pub fn write(folder: &Path) -> Result<TournamentReport, ReportError> {
    let Some(plan) = plan(folder) else { return Err(FolderError::NoCells(folder.to_owned()).into()) };
    let (mut domains, mut by_domain, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    for place in 0..plan.domains.len() {
        let cell_folder = folder.join(CELLS).join(cell(place));
        let (bargains, document) = (cell_folder.join(BARGAINS), cell_folder.join(DOMAIN));
        if !bargains.exists() {
            continue;
        }
        let text = fs::read_to_string(&document).map_err(unreadable(&document))?;
        let domain = TournamentDomain::read(&text).map_err(|reason| damaged(&document, 1, reason))?;
        let mut records: Vec<TournamentRecord> = Vec::new();
        read_lines(&bargains, |record| records.push(record))?;
        let outcomes = domain.matchup.plane().outcomes();
        if Digest::of_bytes(text.as_bytes()) != *plan.documents.get(place).unwrap_or(&Digest([0; 32])) {
            return Err(damaged(&document, 1, "another domain than was played".to_owned()).into());
        }
        let is_of_domain = |record: &TournamentRecord| {
            let is_utility = |utility: &f64| (0.0..=1.0).contains(utility);
            record.bargain.utilities.len() == 2
                && record.bargain.utilities.iter().all(is_utility)
                && record.outcome.is_none_or(|outcome| outcome < outcomes)
        };
        let is_planned = |(record, (seed, first, second)): (&TournamentRecord, (u64, &String, &String))| {
            (record.seed, &record.first, &record.second) == (seed, first, second)
        };
        let unfit = records.iter().zip(plan.bargains()).position(|of| !is_of_domain(of.0) || !is_planned(of));
        let planned = usize::try_from(plan.bargains_per_domain()).unwrap_or(usize::MAX);
        let missing = (planned != records.len()).then_some(planned.min(records.len()));
        if let Some(line) = unfit.or(missing) {
            return Err(damaged(&bargains, line as u64 + 1, "not the bargain that is planned here".to_owned()).into());
        }
        texts.push((format!("{}.svg", cell(place)), picture(&domain, &records)?));
        domains.push(domain.name().to_owned());
        by_domain.push(records);
    }
    let irrational = by_domain.iter().flatten().filter_map(|record| record.bargain.agreement.as_ref());
    let irrational = irrational.filter(|agreement| agreement.is_irrational).count();
    let failed_turns = by_domain.iter().flatten().map(|record| record.failed_turns).sum();
    let report =
        TournamentReport { ranks: rank(&plan.competitors, &by_domain), plan, domains, irrational, failed_turns };
    texts.push(("report.md".to_owned(), report.text()));
    write_files(folder, &report, texts)?;
    Ok(report)
}

/// The plane of a domain with every agreement.
fn picture(domain: &TournamentDomain, records: &[TournamentRecord]) -> Result<String, ReportError> {
    let matchup = &domain.matchup;
    let mut agreements: Vec<usize> = records.iter().filter_map(|record| record.outcome).collect();
    agreements.sort_unstable();
    agreements.dedup();
    let picture = Picture {
        title: domain.name(),
        plane: matchup.plane(),
        solutions: matchup.solutions(),
        parties: &matchup.parties().iter().map(|party| party.agent.to_string()).collect::<Vec<_>>(),
        offers: &[],
        agreements: &agreements,
    };
    let fault = |error: PlotError| DrawError { title: domain.name().to_owned(), reason: error.to_string() };
    Ok(plot::draw(&picture).map_err(fault)?)
}

impl TournamentReport {
    /// What is printed, and stands in `report.md`.
    pub fn text(&self) -> String {
        let TournamentPlan { competitors, domains, seed, seeds, .. } = &self.plan;
        let (played, bargains) =
            (self.domains.len(), self.plan.bargains_per_domain().saturating_mul(self.domains.len() as u64));
        let last = seed.saturating_add(seeds.saturating_sub(1));
        let missing =
            if played < domains.len() { format!("; {} are missing", domains.len() - played) } else { String::new() };
        let about = if played < SEEDS_MIN {
            format!("Too few domains for intervals: {SEEDS_MIN} are needed.")
        } else {
            "In brackets: 95 % intervals of means over such domains. Where that of `behind` holds 0, the two cannot be told apart."
                .to_owned()
        };
        let ranks = self.ranks.iter().map(|rank| {
            let (behind, pareto, nash) = (rank.behind, rank.pareto_distance, rank.nash_distance);
            [
                rank.place.to_string(),
                rank.competitor.clone(),
                told(Some(rank.utility)),
                told(behind),
                told(Some(rank.agreements)),
                told(pareto),
                told(nash),
            ]
        });
        let names = self.ranks.iter().map(|rank| rank.competitor.as_str());
        let names: Vec<&str> = std::iter::once("utility against").chain(names).collect();
        let against = self.ranks.iter().map(|rank| {
            let utilities = rank.against.iter().map(|utility| format!("{utility:.3}"));
            std::iter::once(rank.competitor.clone()).chain(utilities).collect::<Vec<_>>()
        });
        format!(
            "# Tournament\n\n{} competitors, {played} domains{missing}, seeds {seed} to {last}: {bargains} bargains. Agreements that a \
             party may not make: {}. Turns in which a competitor failed: {}.\n\n{about}\n{}{}",
            competitors.len(),
            self.irrational,
            self.failed_turns,
            table(&["", "competitor", "utility", "behind", "agreements", "to Pareto", "to Nash"], ranks),
            table(&names, against),
        )
    }
}

fn told(figure: Option<TournamentFigure>) -> String {
    let Some(TournamentFigure { value, interval }) = figure else { return "-".to_owned() };
    let interval = interval.map(|interval| format!(" ({:.3} to {:.3})", interval.low, interval.high));
    format!("{value:.3}{}", interval.unwrap_or_default())
}
