//! The report as one page that needs no other file, no script and no network.

use maud::{PreEscaped, html};

use super::drift::{Drift, SeriesVerdict};
use super::report::{OF_SERIES, SoakReport, SoakVerdict, row};
use super::sample::SoakLine;
use crate::figures::draw::{Axis, Chart, Series};
use crate::report::page::{document, plain_table};

/// Points of one part that are drawn; of more, every so many.
const POINTS_MAX: usize = 400;
const MIB: f64 = 1024.0 * 1024.0;

/// The page, with a chart of each series, those that drift first.
pub fn page(report: &SoakReport, lines: &[SoakLine]) -> String {
    let class = match report.verdict {
        SoakVerdict::Violated | SoakVerdict::Drifting => "broken",
        SoakVerdict::Steady => "held",
        SoakVerdict::TooFew => "",
    };
    let mut verdicts: Vec<&SeriesVerdict> = report.series.iter().collect();
    verdicts.sort_by_key(|verdict| verdict.drift != Drift::Drifting);
    let body = html! {
        h1 { "Soak" }
        p class=(class) { (report.sentence()) }
        p { (report.heading()) }
        ul { @for fact in report.facts().chain(report.examples.iter().cloned()) { li { (fact) } } }
        h2 { "Series" }
        (plain_table("Series", &OF_SERIES, &report.series.iter().map(row).collect::<Vec<_>>()))
        h2 { "Charts" }
        div.figures {
            @for verdict in verdicts {
                figure {
                    @match chart(verdict, lines).svg() { Ok(svg) => (PreEscaped(svg)), Err(error) => p { (error) } }
                }
            }
        }
    };
    document("Soak", &body)
}

/// The whole series over the time since the soak began, with its breaks, and Sen's line where there is one.
fn chart(verdict: &SeriesVerdict, lines: &[SoakLine]) -> Chart {
    let (factor, unit) = if verdict.unit == "bytes" { (1.0 / MIB, "MiB") } else { (1.0, verdict.unit.as_str()) };
    let parts = parts_of(&verdict.series, lines, factor);
    let [title, drift, median, slope, p] = row(verdict);
    let mut series: Vec<Series> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let name = if number == 0 { "measured".to_owned() } else { String::new() };
        let every = part.len().div_ceil(POINTS_MAX).max(1);
        let points = part.iter().copied().step_by(every).collect();
        series.push(Series { color: Some(0), ..Series::line(name, points) });
    }
    if let (Some(slope), Some(middle), [only]) = (verdict.slope_per_hour, verdict.median, &parts[..])
        && let (Some(first), Some(last)) = (only.first(), only.last())
    {
        let (slope, middle) = (slope * factor, middle * factor);
        let half = (last.0 - first.0) / 2.0;
        let points = vec![(first.0, middle - slope * half), (last.0, middle + slope * half)];
        series.push(Series::dashed("Sen's line", points, 4));
    }
    let gaps = parts.len().saturating_sub(1);
    let gaps = if gaps == 0 { String::new() } else { format!(" The line breaks at {gaps} gaps.") };
    let told =
        if slope.is_empty() { String::new() } else { format!(" Median {median}, slope per hour {slope}, p {p}.") };
    Chart {
        title: format!("{title} ({drift})"),
        alternative: format!("{title} over the time of the soak: {drift}.{told}{gaps}"),
        x: Axis::new("time since the start", "h"),
        y: Axis::new(verdict.quantity.title(), if unit == "count" { "" } else { unit }),
        series,
    }
}

/// The points of a series by part, in hours since the first part began.
fn parts_of(series: &str, lines: &[SoakLine], factor: f64) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    let (mut first, mut offset_h) = (None, 0.0);
    for line in lines {
        match line {
            SoakLine::Begin(begin) => {
                let began = *first.get_or_insert(begin.at);
                offset_h = begin.at.duration_since(began).as_secs_f64() / 3600.0;
                parts.push(Vec::new());
            }
            SoakLine::Sample(sample) => {
                if let (Some(value), Some(part)) = (sample.values.get(series), parts.last_mut()) {
                    part.push((offset_h + sample.elapsed_s / 3600.0, value * factor));
                }
            }
            SoakLine::End(_) => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
