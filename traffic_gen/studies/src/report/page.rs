//! The report as one page: no script, nothing from elsewhere, light and dark.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figures::Figure;

use super::charts::Picture;
use super::differences::Differences;
use super::markdown::{
    OF_CHANGES, OF_HYPOTHESES, OF_MISCONDUCT, OF_MODELS, OF_POPULATIONS, change_rows, hypothesis_rows, misconduct_rows,
    model_rows, number, population_rows, scope, summary, value,
};
use super::paper::{self, PaperComparison};
use super::{ExperimentReport, GroupFigures};

const STYLE: &str = include_str!("page.css");

/// The report as HTML.
pub fn html(report: &ExperimentReport, differences: Option<&Differences>) -> String {
    let body = html! {
        h1 { "Experiment " (report.name) }
        p { (scope(report)) }
        h2 { "Hypotheses" }
        (plain_table("Hypotheses", &OF_HYPOTHESES, &hypothesis_rows(report)))
        @if !report.paper.is_empty() { h2 { "The paper's runs" } (paper(&report.paper)) }
        @if report.policies.is_told() { h2 { "Policies" } (changes("Policies", &report.policies)) }
        @if let Some(differences) = differences { h2 { "Differences" } (changes("Differences", differences)) }
        @if !report.pictures.is_empty() {
            h2 { "Figures" }
            div.figures { @for picture in &report.pictures { (figure(picture)) } }
        }
        (populations(report))
        h2 { "Metrics" }
        p.quiet { "A value, its interval over seeds, and what theory expects of these rounds. What a round does not hold says what it needs." }
        @for group in &report.groups { (metrics(group)) }
    };
    document(&format!("{} - experiment", report.name), &body)
}

/// A page that needs nothing from elsewhere.
pub fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// A table that scrolls by itself where the page is narrow.
fn table(name: &str, head: &Markup, rows: &Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(name) tabindex="0" {
            table { thead { tr { (head) } } tbody { (rows) } }
        }
    }
}

fn paper(runs: &[PaperComparison]) -> Markup {
    html! {
        (plain_table("The paper's runs", &paper::COLUMNS, &runs.iter().map(PaperComparison::cells).collect::<Vec<_>>()))
        p.quiet {
            "The factor is the paper's 95th percentile, the upper end where it prints a range, over ours: below 1 we are slower. \
             Of fewer than 20 rounds a 95th percentile is the longest. Counts of the paper are those of one run, ours of all seeds. \
             Rounds of the paper ran on another machine, and it does not say how it measured."
        }
    }
}

/// What each population did; nothing where all contractors behave alike.
fn populations(report: &ExperimentReport) -> Markup {
    let rows = population_rows(report);
    let models = model_rows(report);
    let sent = misconduct_rows(report);
    html! {
        @if !rows.is_empty() {
            h2 { "Populations" }
            (plain_table("Populations", &OF_POPULATIONS, &rows))
            p.quiet { "What is beside a population is the negotiations that awarded nothing to it; the others are those that awarded nothing to any \
                      but the rest. Calm is the group that differs in nothing but that its contractors behave." }
        }
        @if !models.is_empty() {
            (plain_table("Models", &OF_MODELS, &models))
            p.quiet { "What the models of populations were asked, of all seeds and the warm-up." }
        }
        @if !sent.is_empty() {
            (plain_table("Misconduct", &OF_MISCONDUCT, &sent))
            p.quiet { "Envelopes that should not have been sent, of all seeds and the warm-up. A disposition of `ok` may never be told." }
        }
    }
}

/// A table of texts: verdicts have their colours, numbers stand at the right.
pub fn plain_table(name: &str, columns: &[&str], rows: &[impl AsRef<[String]>]) -> Markup {
    let of_column = |place: usize| rows.first().and_then(|row| row.as_ref().get(place)).map_or("", |cell| class(cell));
    let head = html! { @for (place, title) in columns.iter().enumerate() { th scope="col" class=(of_column(place)) { (title) } } };
    let body = html! {
        @for row in rows {
            tr {
                @for cell in row.as_ref().iter().take(1) { th scope="row" { (cell) } }
                @for cell in row.as_ref().iter().skip(1) { td class=(class(cell)) { (cell) } }
            }
        }
    };
    table(name, &head, &body)
}

fn class(cell: &str) -> &'static str {
    let is_number = |part: &str| part.trim_matches(['[', ']', '(', ')', ',', '%']).parse::<f64>().is_ok();
    match cell {
        "held" | "steady" => "held",
        "broken" | "DRIFTING" => "broken",
        "cannot be said" => "cannot",
        _ if cell.split(' ').all(is_number) => "number",
        _ => "",
    }
}

fn changes(name: &str, differences: &Differences) -> Markup {
    let rows = change_rows(differences);
    html! {
        p { (summary(differences)) }
        @if !rows.is_empty() { (plain_table(name, &OF_CHANGES, &rows)) }
    }
}

fn figure(picture: &Picture) -> Markup {
    html! {
        figure {
            @match &picture.svg {
                Ok(svg) => (PreEscaped(svg)),
                Err(missing) => p { strong { (picture.title) } ": not drawn, " (missing) "." },
            }
            figcaption { (picture.note) }
        }
    }
}

fn metrics(group: &GroupFigures) -> Markup {
    let head = html! { th { "metric" } th.number { "value" } th { "unit" } th.number { "theory" } th { "is" } };
    let rows = html! { @for figure in &group.figures { (metric(figure)) } };
    html! {
        details {
            summary { (group.name) ": " (group.rounds) " rounds of " (group.seeds) " seeds" }
            (table(&group.name, &head, &rows))
        }
    }
}

fn metric(figure: &Figure) -> Markup {
    html! {
        tr {
            th scope="row" { (figure.key) " " (figure.name) }
            td.number { (value(Some(figure))) }
            td { (figure.unit) }
            td.number { (number(figure.theory)) }
            td.quiet { (figure.missing.as_deref().unwrap_or(figure.definition)) }
        }
    }
}
