//! The report as one page that needs no other file, no script and no network.

use super::drift::{Drift, SeriesVerdict};
use super::report::{SoakReport, SoakVerdict, row};
use super::sample::SoakLine;
use crate::figures::draw::{Axis, Chart, Series, escaped};

/// Points of one part that are drawn; of more, every so many.
const POINTS_MAX: usize = 400;
const MIB: f64 = 1024.0 * 1024.0;

const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fff;--ink:#222;--line:#ddd;--bad:#a8203c;--good:#1e7d3a}\
@media(prefers-color-scheme:dark){:root{--page:#161616;--ink:#e4e4e4;--line:#3a3a3a;--bad:#ff8095;--good:#63cf83}}\
body{background:var(--page);color:var(--ink);font:16px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1280px;padding:16px}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}.wide{overflow-x:auto}\
table{border-collapse:collapse}td,th{border-bottom:1px solid var(--line);padding:4px 12px 4px 0;text-align:left}\
.drifting,.violated{color:var(--bad);font-weight:600}.steady{color:var(--good)}\
.charts{display:grid;gap:16px;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr))}\
figure{border:1px solid var(--line);margin:0;min-width:0;padding:8px}svg{display:block;height:auto;width:100%}";

/// The page.
#[must_use]
pub fn page(report: &SoakReport, lines: &[SoakLine]) -> String {
    let class = match report.verdict {
        SoakVerdict::Violated | SoakVerdict::Drifting => "drifting",
        SoakVerdict::Steady => "steady",
        SoakVerdict::TooFew => "",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Soak</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Soak</h1>\n\
         <p class=\"{class}\">{}</p>\n<p>{}</p>\n{}<h2>Series</h2>\n{}<h2>Charts</h2>\n<div class=\"charts\">\n{}</div>\n\
         </body>\n</html>\n",
        escaped(&report.sentence()),
        escaped(&report.heading()),
        parts(report),
        table(report),
        charts(report, lines)
    )
}

fn parts(report: &SoakReport) -> String {
    let facts = report.facts().chain(report.examples.iter().cloned());
    let items: String = facts.map(|fact| format!("<li>{}</li>\n", escaped(&fact))).collect();
    format!("<ul>\n{items}</ul>\n")
}

fn table(report: &SoakReport) -> String {
    let mut text = "<div class=\"wide\"><table>\n<tr><th>series</th><th>verdict</th><th>median</th>\
                    <th>slope per hour (95 % interval)</th><th>p, corrected</th></tr>\n"
        .to_owned();
    for verdict in &report.series {
        let class: &str = verdict.drift.into();
        let cells = row(verdict).map(|cell| format!("<td>{}</td>", escaped(&cell))).concat();
        text += &format!("<tr class=\"{class}\">{cells}</tr>\n");
    }
    text + "</table></div>\n"
}

/// A chart of each series, those that drift first.
fn charts(report: &SoakReport, lines: &[SoakLine]) -> String {
    let mut verdicts: Vec<&SeriesVerdict> = report.series.iter().collect();
    verdicts.sort_by_key(|verdict| verdict.drift != Drift::Drifting);
    let drawn = verdicts.into_iter().map(|verdict| match chart(verdict, lines).svg() {
        Ok(svg) => format!("<figure>\n{svg}</figure>\n"),
        Err(error) => format!("<figure><p>{}</p></figure>\n", escaped(&error.to_string())),
    });
    drawn.collect()
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
