//! The pictures: cost and share of models over the queries of a network, and the two agents of the weather.

use crate::figures::draw::{Axis, Chart, Series};

use super::conversation::USD;
use super::figures::{WINDOW, model_share};
use super::query::QueryRecord;
use super::weather::BreakEven;

/// Uses that are drawn of the two agents.
const USES: u64 = 10;

/// What the queries until then cost, with documents and without: the paper's figure 5a.
pub fn cost(queries: &[QueryRecord]) -> Chart {
    let cumulated = |of: fn(&QueryRecord) -> u64| {
        let mut sum = 0;
        let point = |query: &QueryRecord| {
            sum += of(query);
            (query.query as f64, usd(sum))
        };
        queries.iter().map(point).collect::<Vec<_>>()
    };
    let (language, agora) = (cumulated(|query| query.language_cost), cumulated(|query| query.cost.total()));
    let end = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.1);
    Chart {
        title: "Cost of all queries so far".to_owned(),
        alternative: format!(
            "In natural language alone the cost rises to {:.2} dollars, with protocol documents to {:.2}.",
            end(&language),
            end(&agora)
        ),
        x: Axis::new("queries", ""),
        y: Axis::new("cost", "USD"),
        series: vec![Series::line("natural language alone", language), Series::line("Agora", agora)],
    }
}

/// The share of queries in which a model had a part, over a window: the paper's figure 5b.
pub fn share(queries: &[QueryRecord]) -> Chart {
    let at = |end: usize| {
        let window = queries.get(end.saturating_sub(WINDOW)..end).unwrap_or_default();
        (end as f64, 100.0 * model_share(window))
    };
    let points: Vec<_> = (WINDOW.min(queries.len())..=queries.len()).map(at).collect();
    let end = |point: Option<&(f64, f64)>| point.map_or(0.0, |point| point.1);
    Chart {
        title: format!("Queries that needed a model, of the last {WINDOW}"),
        alternative: format!("The share falls from {:.0} % to {:.0} %.", end(points.first()), end(points.last())),
        x: Axis::new("queries", ""),
        y: Axis { range: Some((0.0, 100.0)), ..Axis::new("share", "%") },
        series: vec![Series::line("", points)],
    }
}

/// Documents that have been agreed on.
pub fn documents(queries: &[QueryRecord]) -> Chart {
    let points: Vec<_> = queries.iter().map(|query| (query.query as f64, query.documents as f64)).collect();
    Chart {
        title: "Documents agreed on".to_owned(),
        alternative: format!("The number rises to {}.", points.last().map_or(0.0, |point| point.1)),
        x: Axis::new("queries", ""),
        y: Axis::new("documents", ""),
        series: vec![Series::line("", points)],
    }
}

/// What two agents pay for so many uses.
pub fn weather(measured: BreakEven) -> Chart {
    let language = |of: BreakEven| (0..=USES).map(|uses| (uses as f64, usd(uses * of.language))).collect::<Vec<_>>();
    // The document is paid for before its first use.
    let agora = |of: BreakEven| vec![(0.0, usd(of.setup)), (USES as f64, usd(of.setup))];
    let paper = BreakEven::paper();
    Chart {
        title: "Two agents, one kind of task".to_owned(),
        alternative: format!(
            "Natural language costs less until a document has been used {} times; by the paper's figures, {} times.",
            measured.uses.saturating_sub(1),
            paper.uses.saturating_sub(1)
        ),
        x: Axis::new("uses", ""),
        y: Axis::new("cost", "USD"),
        series: vec![
            Series::line("natural language", language(measured)),
            Series::line("document and routines", agora(measured)),
            Series::dashed("the paper's: natural language", language(paper), 0),
            Series::dashed("the paper's: document", agora(paper), 1),
        ],
    }
}

/// Nano-dollars in dollars.
pub fn usd(nano: u64) -> f64 {
    nano as f64 / USD as f64
}
