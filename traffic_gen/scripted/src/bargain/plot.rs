//! The utility plane as a picture: every outcome, the frontier, what each party offered, what was agreed.
//!
//! Two parties make one panel; three make one for each pair, in which the frontier shows as points.

use std::collections::BTreeMap;

use plotters::chart::{ChartBuilder, ChartContext, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, Cross, EmptyElement, PathElement, Text, TriangleMarker};
use plotters::prelude::{Cartesian2d, DrawingAreaErrorKind, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, IntoFont, RGBColor, ShapeStyle, WHITE};

use traffic_gen::bargain::analysis::{Plane, Solutions};

/// Most outcomes drawn as dots; of more, every so many. What stands out is always drawn.
const DOTS_MAX: usize = 3_000;
/// Edge of a panel in pixels.
const PANEL: u32 = 640;
/// Colours of the parties, in the order of their turns.
const PARTY: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(214, 95, 14), RGBColor(44, 130, 60)];
const OUTCOME: RGBColor = RGBColor(190, 190, 190);
const FRONTIER: RGBColor = RGBColor(90, 90, 90);
const AGREEMENT: RGBColor = RGBColor(200, 20, 40);

/// What is drawn.
#[derive(Debug)]
pub struct Picture<'a> {
    /// Title.
    pub title: &'a str,
    /// All outcomes.
    pub plane: &'a Plane,
    /// Those that stand out.
    pub solutions: &'a Solutions,
    /// Names of the parties, in the order of their turns.
    pub parties: &'a [String],
    /// What each party offered, in order.
    pub offers: &'a [Vec<usize>],
    /// What was agreed: in one bargain, or in several.
    pub agreements: &'a [usize],
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// One party has no plane, more than three too many.
    #[error("a utility plane is drawn for two or three parties, not for {0}")]
    Parties(usize),
    /// The drawing itself.
    #[error("cannot draw: {0}")]
    Draw(String),
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Draw(error.to_string())
    }
}

type PlotArea<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws a picture as an SVG document.
///
/// # Errors
/// [`PlotError`].
pub fn draw(picture: &Picture<'_>) -> Result<String, PlotError> {
    let pairs: &[(usize, usize)] = match picture.plane.parties() {
        2 => &[(0, 1)],
        3 => &[(0, 1), (0, 2), (1, 2)],
        other => return Err(PlotError::Parties(other)),
    };
    let mut svg = String::new();
    {
        let width = PANEL * u32::try_from(pairs.len()).unwrap_or(1);
        let root = SVGBackend::with_string(&mut svg, (width, PANEL)).into_drawing_area();
        root.fill(&WHITE)?;
        let titled = root.titled(picture.title, ("sans-serif", 20))?;
        for (area, &pair) in titled.split_evenly((1, pairs.len())).iter().zip(pairs) {
            panel(picture, area, pair)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn panel(
    picture: &Picture<'_>,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    pair: (usize, usize),
) -> Result<(), PlotError> {
    let (x, y) = pair;
    let upper = |party: usize| {
        let best = (0..picture.plane.outcomes()).map(|outcome| picture.plane.point(outcome)[party]);
        best.fold(1.0_f64, f64::max) * 1.02
    };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..upper(x), 0.0..upper(y))?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(format!("utility of {}", picture.parties[x]))
        .y_desc(format!("utility of {}", picture.parties[y]))
        .draw()?;
    draw_outcomes(picture, &mut chart, pair)?;
    draw_offers(picture, &mut chart, pair)?;
    draw_agreements(picture, &mut chart, pair)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(OUTCOME)
        .draw()?;
    Ok(())
}

fn draw_outcomes(picture: &Picture<'_>, chart: &mut PlotArea<'_, '_>, (x, y): (usize, usize)) -> Result<(), PlotError> {
    let at = |outcome: usize| (picture.plane.point(outcome)[x], picture.plane.point(outcome)[y]);
    let outcomes = picture.plane.outcomes();
    let every = outcomes.div_ceil(DOTS_MAX).max(1);
    chart.draw_series((0..outcomes).step_by(every).map(|outcome| Circle::new(at(outcome), 2, OUTCOME.filled())))?;
    for (party, along_x) in [(x, true), (y, false)] {
        let reserved = picture.plane.reserved()[party];
        let line =
            if along_x { vec![(reserved, 0.0), (reserved, 2.0)] } else { vec![(0.0, reserved), (2.0, reserved)] };
        chart.draw_series([PathElement::new(line, OUTCOME.stroke_width(1))])?;
    }
    let mut frontier: Vec<(f64, f64)> = picture.solutions.pareto.iter().map(|&outcome| at(outcome)).collect();
    frontier.sort_by(|a, b| a.0.total_cmp(&b.0));
    if picture.plane.parties() == 2 {
        chart.draw_series(LineSeries::new(frontier.iter().copied(), FRONTIER))?;
    }
    chart
        .draw_series(frontier.iter().map(|&point| Circle::new(point, 3, FRONTIER.filled())))?
        .label("Pareto frontier")
        .legend(|(x, y)| Circle::new((x + 8, y), 3, FRONTIER.filled()));
    draw_solutions(picture, chart, (x, y))
}

/// Rings around the first outcome of each solution; one that solves several is named once.
fn draw_solutions(
    picture: &Picture<'_>,
    chart: &mut PlotArea<'_, '_>,
    (x, y): (usize, usize),
) -> Result<(), PlotError> {
    let solutions = picture.solutions;
    let mut names_by_outcome: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (name, found) in [
        ("Nash", &solutions.nash),
        ("Kalai", &solutions.kalai),
        ("Kalai-Smorodinsky", &solutions.kalai_smorodinsky),
        ("welfare", &solutions.max_welfare),
    ] {
        if let Some(&outcome) = found.first() {
            names_by_outcome.entry(outcome).or_default().push(name);
        }
    }
    let text = ("sans-serif", 12).into_font().color(&FRONTIER);
    chart.draw_series(names_by_outcome.into_iter().map(|(outcome, names)| {
        let point = picture.plane.point(outcome);
        let label = Text::new(names.join(", "), (9, -9), text.clone());
        EmptyElement::at((point[x], point[y])) + Circle::new((0, 0), 6, FRONTIER.stroke_width(1)) + label
    }))?;
    Ok(())
}

fn draw_offers(picture: &Picture<'_>, chart: &mut PlotArea<'_, '_>, (x, y): (usize, usize)) -> Result<(), PlotError> {
    let at = |outcome: usize| (picture.plane.point(outcome)[x], picture.plane.point(outcome)[y]);
    for (party, offers) in picture.offers.iter().enumerate() {
        let style: ShapeStyle = PARTY[party % PARTY.len()].stroke_width(1);
        let marks = PARTY[party % PARTY.len()].filled();
        chart.draw_series(LineSeries::new(offers.iter().map(|&outcome| at(outcome)), style))?;
        chart
            .draw_series(offers.iter().map(|&outcome| TriangleMarker::new(at(outcome), 5, marks)))?
            .label(format!("{} offers", picture.parties[party]))
            .legend(move |(x, y)| TriangleMarker::new((x + 8, y), 5, marks));
    }
    Ok(())
}

fn draw_agreements(
    picture: &Picture<'_>,
    chart: &mut PlotArea<'_, '_>,
    (x, y): (usize, usize),
) -> Result<(), PlotError> {
    if picture.agreements.is_empty() {
        return Ok(());
    }
    let points =
        || picture.agreements.iter().map(|&outcome| picture.plane.point(outcome)).map(|point| (point[x], point[y]));
    let style = AGREEMENT.stroke_width(3);
    chart
        .draw_series(points().map(|at| Cross::new(at, 8, style)))?
        .label("agreement")
        .legend(move |(x, y)| Cross::new((x + 8, y), 5, style));
    chart.draw_series(points().map(|at| Circle::new(at, 2, BLACK.filled())))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(parties: usize) -> Result<String, PlotError> {
        let by_party: Vec<Vec<f64>> = (0..parties).map(|party| vec![0.2, 0.9 - party as f64 / 10.0, 0.5]).collect();
        let plane = Plane::try_new(&by_party, &vec![0.1; parties]).unwrap();
        let names: Vec<String> = (0..parties).map(|party| format!("party <{party}>")).collect();
        let picture = Picture {
            title: "a & b",
            plane: &plane,
            solutions: &plane.solutions(),
            parties: &names,
            offers: &vec![vec![0, 1, 2]; parties],
            agreements: &[1],
        };
        draw(&picture)
    }

    #[test]
    fn a_picture_names_parties_offers_and_agreement_and_escapes_what_it_is_given() {
        let svg = drawn(2).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["a &amp; b", "utility of party &lt;0&gt;", "party &lt;1&gt; offers", "agreement", "Nash"] {
            assert!(svg.contains(text), "`{text}` is missing");
        }
    }

    #[test]
    fn three_parties_are_drawn_in_pairs_and_four_are_refused() {
        assert!(drawn(3).unwrap().contains("utility of party &lt;2&gt;"));
        assert!(matches!(drawn(4), Err(PlotError::Parties(4))));
    }
}
