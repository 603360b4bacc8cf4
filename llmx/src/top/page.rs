//! The page, drawn from one look. The same on a terminal and as text.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use ratatui::{Frame, Terminal};

use super::sight::{Named, Sight, Snapshot};
use crate::output::{Failure, table, table_under};

/// Rows of a window that is too low for a second row of each sparkline.
const LOW_ROWS: u16 = 30;
/// Engines shown.
const ENGINES_SHOWN: usize = 8;
/// Gateways shown.
const GATEWAYS_SHOWN: usize = 4;

/// The page as text, without spaces at the ends of lines and without empty lines at its end.
pub fn text(sight: &Sight, columns: u16, rows: u16) -> Result<String, Failure> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).map_err(Failure::failed)?;
    terminal.draw(|frame| draw_within(frame, frame.area(), sight)).map_err(Failure::failed)?;
    let buffer = terminal.backend().buffer();
    let line = |row: u16| {
        let cells = (0..columns).filter_map(|column| buffer.cell((column, row)));
        cells.map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
    };
    let page: Vec<String> = (0..rows).map(line).collect();
    Ok(page.join("\n").trim_end().to_owned())
}

/// Draws the page, as much of it as fits, and how to leave it.
pub fn draw(frame: &mut Frame<'_>, sight: &Sight) {
    let [page, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    draw_within(frame, page, sight);
    let help = Style::new().add_modifier(Modifier::DIM);
    frame.render_widget(Paragraph::new("q ends").style(help), below);
}

fn draw_within(frame: &mut Frame<'_>, page: Rect, sight: &Sight) {
    let snapshot = sight.snapshot.clone().unwrap_or_default();
    let gateways = gateways(sight);
    let engines = engines(&snapshot);
    let line_rows = if page.height < LOW_ROWS { 1 } else { 2 };
    let heights = [
        1,
        u16::from(sight.fault.is_some()) * 2,
        6,
        1 + line_rows,
        1 + line_rows,
        rows(&gateways) + 1,
        rows(&engines) + 1,
    ];
    let constraints = heights.map(Constraint::Length).into_iter().chain([Constraint::Min(0)]);
    let areas = Layout::vertical(constraints).split(page);
    frame.render_widget(Paragraph::new(title(sight, &snapshot)), areas[0]);
    if let Some(fault) = &sight.fault {
        let style = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Paragraph::new(fault.as_str()).style(style).wrap(Wrap { trim: true }), areas[1]);
    }
    frame.render_widget(Paragraph::new(figures(&snapshot)), areas[2]);
    let ended = snapshot.history.iter().map(|point| point.ended_per_s);
    sparkline(frame, areas[3], "rounds per second", ended, |peak| format!("{peak:.1}"));
    let p95 = snapshot.history.iter().map(|point| point.p95_us as f64 / 1000.0);
    sparkline(frame, areas[4], "call to end p95", p95, |peak| format!("{peak:.1} ms"));
    frame.render_widget(Paragraph::new(gateways), areas[5]);
    frame.render_widget(Paragraph::new(engines), areas[6]);
    frame.render_widget(Paragraph::new(agents(&snapshot, areas[7])), areas[7]);
}

fn rows(text: &str) -> u16 {
    u16::try_from(text.lines().count()).unwrap_or(u16::MAX)
}

fn title(sight: &Sight, snapshot: &Snapshot) -> Line<'static> {
    let gateway = snapshot.named.as_ref().map_or("", |named| named.gateway.as_str()).to_owned();
    let seen = match (&sight.snapshot, snapshot.named.is_some()) {
        (None, _) => "waiting for a gateway",
        (Some(_), true) => "",
        (Some(_), false) => "counts only: names need an administrator's token (--token, --key)",
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![Span::styled("llmx top", bold), Span::raw(format!("  {gateway}  {seen}"))])
}

/// The figures: two columns of names and values.
fn figures(snapshot: &Snapshot) -> String {
    let Snapshot { totals, per_s, round, .. } = snapshot;
    let ms = |us: u64| format!("{:.1} ms", us as f64 / 1000.0);
    let (agents, present) = agents_present(snapshot);
    let policy = snapshot.named.as_ref().map_or_else(|| "-".to_owned(), |named| named.default_policy.clone());
    let cells = [
        [
            "rounds/s",
            &format!("{:.1}", per_s.ended),
            "call to end p50",
            &ms(round.p50_us),
            "open",
            &totals.open.to_string(),
        ],
        [
            "calls/s",
            &format!("{:.1}", per_s.started),
            "            p95",
            &ms(round.p95_us),
            "ended",
            &totals.ended.to_string(),
        ],
        [
            "offers/s",
            &format!("{:.1}", per_s.offers),
            "            p99",
            &ms(round.p99_us),
            "awards",
            &totals.awards.to_string(),
        ],
        [
            "awards/s",
            &format!("{:.1}", per_s.awards),
            "of rounds",
            &round.count.to_string(),
            "unacknowledged",
            &totals.unacknowledged.to_string(),
        ],
        [
            "lanes",
            &format!("{} of {} owned", snapshot.lanes_owned, snapshot.lanes),
            "default policy",
            &policy,
            agents,
            &present,
        ],
    ];
    table(&cells.map(|row| row.map(str::to_owned).to_vec()))
}

/// How many agents are registered, and how many of those named are present.
fn agents_present(snapshot: &Snapshot) -> (&'static str, String) {
    let named = snapshot.named.iter().flat_map(|named| &named.agents);
    let known: Vec<bool> = named.filter_map(|agent| agent.present).collect();
    if known.is_empty() || known.len() as u64 != snapshot.agents {
        return ("agents", snapshot.agents.to_string());
    }
    let present = known.iter().filter(|&&is_present| is_present).count();
    ("agents present", format!("{present} of {}", snapshot.agents))
}

fn sparkline(
    frame: &mut Frame<'_>,
    area: Rect,
    name: &str,
    values: impl Iterator<Item = f64>,
    unit: impl Fn(f64) -> String,
) {
    let values: Vec<f64> = values.collect();
    // The newest on the right; of a long history what fits.
    let shown = &values[values.len().saturating_sub(usize::from(area.width))..];
    let peak = shown.iter().copied().fold(0.0, f64::max);
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let over = if shown.is_empty() { String::new() } else { format!(", last {} s, peak {}", shown.len(), unit(peak)) };
    frame.render_widget(Paragraph::new(format!("{name}{over}")), head);
    let scaled = shown.iter().map(|value| (value * 1000.0) as u64);
    frame.render_widget(Sparkline::default().data(scaled), body);
}

fn gateways(sight: &Sight) -> String {
    let rows = sight.gateways.iter().take(GATEWAYS_SHOWN).map(|gateway| {
        let answer = gateway.answer_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        [gateway.url.clone(), gateway.state.to_owned(), answer]
    });
    with_rest(table_under(["GATEWAY", "STATE", "ANSWER"], rows), sight.gateways.len(), GATEWAYS_SHOWN)
}

fn engines(snapshot: &Snapshot) -> String {
    let Some(Named { engines, lanes, .. }) = &snapshot.named else {
        return format!("{} engines", snapshot.engines);
    };
    let rows = engines.iter().take(ENGINES_SHOWN).map(|engine| {
        let owned: Vec<String> = engine.owned.iter().map(u64::to_string).collect();
        [
            engine.engine.clone(),
            format!("{:.1} s ago", engine.heard_ms_ago as f64 / 1000.0),
            if owned.is_empty() { "standby".to_owned() } else { owned.join(" ") },
            engine.open.to_string(),
            engine.unacknowledged.to_string(),
            format!("{:.1}", engine.ended_per_s),
            format!("{:.1} ms", engine.p95_us as f64 / 1000.0),
        ]
    });
    let heading = ["ENGINE", "HEARD", "LANES", "OPEN", "UNACKED", "ROUNDS/S", "P95"];
    let unowned: Vec<String> =
        lanes.iter().filter(|lane| lane.owners.is_empty()).map(|lane| lane.lane.to_string()).collect();
    let shown = with_rest(table_under(heading, rows), engines.len(), ENGINES_SHOWN);
    if unowned.is_empty() { shown } else { format!("{shown}\nlanes without an owner: {}", unowned.join(" ")) }
}

fn with_rest(shown: String, count: usize, shown_max: usize) -> String {
    if count > shown_max { format!("{shown}\nand {} more", count - shown_max) } else { shown }
}

/// The agents by name, in columns; one that is absent stands in parentheses.
fn agents(snapshot: &Snapshot, area: Rect) -> String {
    let Some(named) = &snapshot.named else { return String::new() };
    let names: Vec<String> = named
        .agents
        .iter()
        .map(|agent| if agent.present == Some(false) { format!("({})", agent.agent) } else { agent.agent.clone() })
        .collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) + 2;
    let columns = (usize::from(area.width) / width.max(1)).max(1);
    let room = columns * usize::from(area.height).saturating_sub(2);
    let rows: Vec<Vec<String>> = names.chunks(columns).map(<[String]>::to_vec).collect();
    let shown: Vec<Vec<String>> = rows.into_iter().take(usize::from(area.height).saturating_sub(2)).collect();
    let rest = (snapshot.agents as usize).saturating_sub(room.min(names.len()));
    let rest = if rest > 0 { format!("\nand {rest} more: llmx agent list") } else { String::new() };
    format!("AGENTS\n{}{rest}", table(&shown))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sight::GatewayState;
    use super::*;

    #[test]
    fn a_page_says_who_works_how_fast_and_where() {
        assert_eq!(text(&sight(true), 80, 24).unwrap(), include_str!("page/all.txt").trim_end());
    }

    #[test]
    fn a_page_of_counts_says_what_names_would_need() {
        assert_eq!(text(&sight(false), 80, 24).unwrap(), include_str!("page/counts.txt").trim_end());
    }

    #[test]
    fn a_page_without_a_gateway_says_so_and_keeps_what_it_has() {
        let mut sight = sight(true);
        sight.fail(Vec::new(), &Failure::failed(anyhow::anyhow!("no gateway answers at http://127.0.0.1:1")));
        let page = text(&sight, 80, 24).unwrap();
        assert!(page.contains("no gateway answers at http://127.0.0.1:1; trying again"), "{page}");
        assert!(page.contains("rounds/s  10.2"), "{page}");
        let first = text(&Sight::default(), 80, 24).unwrap();
        assert!(first.contains("waiting for a gateway"), "{first}");
    }

    #[test]
    fn who_is_present_fits_eighty_columns() {
        let mut sight = sight(true);
        let snapshot = sight.snapshot.as_mut().unwrap();
        snapshot.agents = 60;
        let page = text(&sight, 80, 24).unwrap();
        assert!(page.contains("agents present  59 of 60\n"), "{page}");
    }

    #[test]
    fn a_page_fits_every_window() {
        for (columns, rows) in [(1, 1), (20, 5), (80, 24), (140, 40), (300, 100)] {
            let page = text(&sight(true), columns, rows).unwrap();
            assert!(page.lines().count() <= usize::from(rows), "{page}");
        }
    }

    fn sight(is_named: bool) -> Sight {
        let history: Vec<_> = (0..120)
            .map(|second| json!({"ended_per_s": f64::from(second % 10), "p95_us": 200_000 + second * 100}))
            .collect();
        let mut raw = json!({
            "sight": "totals", "engines": 2, "lanes": 4, "lanes_owned": 3, "agents": 70,
            "totals": {"open": 3, "started": 1203, "ended": 1200, "awards": 1190, "offers": 14400, "unacknowledged": 5},
            "per_s": {"started": 10.1, "ended": 10.2, "awards": 10.0, "offers": 120.5},
            "round": {"count": 600, "p50_us": 210_000, "p95_us": 220_500, "p99_us": 230_000},
            "history": history,
        });
        if is_named {
            raw["named"] = json!({
                "gateway": "gateway-1", "default_policy": "medium",
                "engines": [
                    {"engine": "engine-1", "heard_ms_ago": 400, "owned": [0, 1], "open": 2, "unacknowledged": 5, "ended_per_s": 6.1, "p95_us": 220_500},
                    {"engine": "engine-2", "heard_ms_ago": 900, "owned": [], "open": 1, "unacknowledged": 0, "ended_per_s": 4.1, "p95_us": 0},
                ],
                "lanes": [{"lane": 0, "owners": ["engine-1"]}, {"lane": 1, "owners": ["engine-1"]}, {"lane": 2, "owners": ["engine-2"]}, {"lane": 3, "owners": []}],
                "agents": (0..60).map(|number| json!({"agent": format!("contractor-{number}"), "present": number != 1})).collect::<Vec<_>>(),
            });
        }
        let gateways = vec![
            GatewayState {
                url: "http://127.0.0.1:8080".to_owned(),
                state: "ready",
                fault: None,
                answer_ms: Some(1.25),
            },
            GatewayState {
                url: "http://127.0.0.1:8081".to_owned(),
                state: "unreachable",
                fault: None,
                answer_ms: None,
            },
        ];
        let snapshot = serde_json::from_value(raw.clone()).unwrap();
        Sight { gateways, raw, snapshot: Some(snapshot), fault: None }
    }
}
