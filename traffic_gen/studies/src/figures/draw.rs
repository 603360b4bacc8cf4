//! Charts as SVG: one plane with axes that name their units, a title, and a text for who does not see it.
//!
//! Colours are variables that follow the reader's colour scheme, so one picture serves light and dark pages, and a file of
//! its own as well.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::prelude::{Cartesian2d, DrawingAreaErrorKind, SVGBackend};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle};

/// Size of a chart in units of its view box; a page scales it.
const SIZE: (u32, u32) = (620, 400);
/// Most points of one series that are drawn; of more, every so many.
const POINTS_MAX: usize = 2_000;
/// Height of the title, and of one row of the legend.
const TITLE_HEIGHT: u32 = 34;
const LEGEND_HEIGHT: u32 = 22;
/// Width of one character of the legend, about.
const CHARACTER: i32 = 9;

// Placeholders that no palette holds: each is replaced by a variable.
const INK: RGBColor = RGBColor(1, 0, 1);
const GRID: RGBColor = RGBColor(1, 0, 2);
const fn placeholder(series: usize) -> RGBColor {
    RGBColor(1, 1, (series % PALETTE.len()) as u8)
}

/// Colours of the series in light and dark: each at least 3 to 1 against the page.
const PALETTE: [(&str, &str); 8] = [
    ("#1a6fb0", "#6cb4ee"),
    ("#b8500a", "#ff9f55"),
    ("#1e7d3a", "#63cf83"),
    ("#8a3fa8", "#d29bea"),
    ("#a8203c", "#ff8095"),
    ("#00767a", "#4fd0d4"),
    ("#6b5a00", "#d9c24a"),
    ("#5a5a5a", "#b5b5b5"),
];

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// What it shows, in a line.
    pub title: String,
    /// What a reader sees in it, in words.
    pub alternative: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the later above the earlier.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// What it measures.
    pub name: String,
    /// Its unit, such as `ms`; empty where it has none.
    pub unit: String,
    /// From and to; what the series need unless given.
    pub range: Option<(f64, f64)>,
}

/// Points of one kind.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Its name in the legend; empty: it is not there.
    pub name: String,
    /// How it is drawn.
    pub style: SeriesStyle,
    /// Its points, in the order they are joined in.
    pub points: Vec<(f64, f64)>,
    /// A vertical interval around each point, where there are any: lower and upper end.
    pub intervals: Vec<(f64, f64)>,
    /// Its colour by number; the number of the series unless given.
    pub color: Option<usize>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SeriesStyle {
    /// A line.
    #[default]
    Line,
    /// A dashed line: theory, or a limit.
    Dashed,
    /// Points.
    Points,
    /// A line through points.
    LineAndPoints,
}

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw `{title}`: {reason}")]
pub struct DrawError {
    /// Title of the chart.
    pub title: String,
    /// What the drawing library says.
    pub reason: String,
}

type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as plotters::prelude::DrawingBackend>::ErrorType>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Axis {
    /// An axis over whatever the series need.
    pub fn new(name: &str, unit: &str) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), range: None }
    }

    /// Its name with its unit.
    pub fn labelled(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, self.unit) }
    }

    /// From and to, with some room above and below what is drawn, and 0 wherever it is near.
    fn span(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if let Some(range) = self.range {
            return range;
        }
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return (0.0, 1.0);
        }
        let low = if low >= 0.0 && low < high * 0.5 { 0.0 } else { low };
        let room = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.1 };
        (if low == 0.0 { 0.0 } else { low - room }, high + room)
    }
}

impl Chart {
    /// Draws the chart as an SVG document.
    ///
    /// # Errors
    /// [`DrawError`].
    pub fn svg(&self) -> Result<String, DrawError> {
        let mut svg = String::new();
        self.paint(&mut svg).map_err(|error| DrawError { title: self.title.clone(), reason: error.to_string() })?;
        Ok(self.dressed(&svg))
    }

    fn paint<'a>(&self, svg: &'a mut String) -> Result<(), Fault<'a>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let rows = self.legend_rows();
        let (head, body) = root.split_vertically(TITLE_HEIGHT + LEGEND_HEIGHT * u32::try_from(rows.len()).unwrap_or(0));
        head.draw(&Text::new(self.title.clone(), (12, 10), text_style(20)))?;
        draw_legend(&head, &rows)?;
        let points = || self.series.iter().flat_map(|series| &series.points);
        let ends = || self.series.iter().flat_map(|series| &series.intervals).flat_map(|(low, high)| [*low, *high]);
        let (left, right) = self.x.span(points().map(|point| point.0));
        let (bottom, top) = self.y.span(points().map(|point| point.1).chain(ends()));
        let mut plane = ChartBuilder::on(&body)
            .margin(10)
            .margin_right(18)
            .x_label_area_size(48)
            .y_label_area_size(70)
            .build_cartesian_2d(left..right, bottom..top)?;
        plane
            .configure_mesh()
            .x_labels(7)
            .y_labels(7)
            .axis_style(INK.mix(0.6))
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .label_style(text_style(17))
            .axis_desc_style(text_style(18))
            .x_label_formatter(&|value| number(*value, right - left))
            .y_label_formatter(&|value| number(*value, top - bottom))
            .x_desc(self.x.labelled())
            .y_desc(self.y.labelled())
            .draw()?;
        for (place, series) in self.series.iter().enumerate() {
            series.draw(&mut plane, placeholder(series.color.unwrap_or(place)))?;
        }
        root.present()
    }

    /// Entries of the legend, in as many rows as they need.
    fn legend_rows(&self) -> Vec<Vec<(&Series, RGBColor, i32)>> {
        let mut rows: Vec<Vec<(&Series, RGBColor, i32)>> = Vec::new();
        let mut x = i32::MAX;
        for (place, series) in self.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()) {
            let width = 40 + CHARACTER * i32::try_from(series.name.chars().count()).unwrap_or(0);
            if x.saturating_add(width) > i32::try_from(SIZE.0).unwrap_or(i32::MAX) {
                rows.push(Vec::new());
                x = 14;
            }
            if let Some(row) = rows.last_mut() {
                row.push((series, placeholder(series.color.unwrap_or(place)), x));
            }
            x += width;
        }
        rows
    }

    /// The document with its title and alternative, without a fixed size, and with colours of the reader's scheme.
    fn dressed(&self, svg: &str) -> String {
        let body = svg.split_once('>').map_or("", |(_, body)| body);
        let (title, alternative) = (escaped(&self.title), escaped(&self.alternative));
        let variables = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
            let colors = PALETTE.iter().enumerate();
            colors.map(|(series, both)| format!("--chart-{series}:{};", pick(both))).collect::<String>()
        };
        let mut body = body.replace(&hex(INK), "var(--chart-ink)").replace(&hex(GRID), "var(--chart-grid)");
        for series in 0..PALETTE.len() {
            body = body.replace(&hex(placeholder(series)), &format!("var(--chart-{series})"));
        }
        let (light, dark) = (variables(|both| both.0), variables(|both| both.1));
        let (width, height) = SIZE;
        format!(
            "<svg class=\"chart\" role=\"img\" aria-label=\"{title}: {alternative}\" viewBox=\"0 0 {width} {height}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n<title>{title}</title>\n<desc>{alternative}</desc>\n<style>\
             .chart{{--chart-ink:#222;--chart-grid:#ddd;{light}}}\
             @media(prefers-color-scheme:dark){{.chart{{--chart-ink:#e4e4e4;--chart-grid:#3a3a3a;{dark}}}}}\
             </style>\n{}",
            body.trim_start()
        )
    }
}

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, ..Self::default() }
    }

    /// A dashed line in the colour of this number.
    pub fn dashed(name: impl Into<String>, points: Vec<(f64, f64)>, color: usize) -> Self {
        Self { style: SeriesStyle::Dashed, color: Some(color), ..Self::line(name, points) }
    }

    fn draw<'b>(&self, plane: &mut Plane<'_, 'b>, color: RGBColor) -> Result<(), Fault<'b>> {
        let every = self.points.len().div_ceil(POINTS_MAX).max(1);
        let points = || self.points.iter().copied().step_by(every);
        match self.style {
            SeriesStyle::Line | SeriesStyle::LineAndPoints => {
                plane.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
            }
            SeriesStyle::Dashed => {
                let line: Vec<_> = points().collect();
                plane.draw_series(DashedLineSeries::new(line, 7, 5, color.stroke_width(2)))?;
            }
            SeriesStyle::Points => {}
        }
        if matches!(self.style, SeriesStyle::Points | SeriesStyle::LineAndPoints) {
            let radius = if self.points.len() > 200 { 2 } else { 4 };
            plane.draw_series(points().map(|point| Circle::new(point, radius, color.filled())))?;
        }
        let whiskers = self.points.iter().zip(&self.intervals);
        plane.draw_series(whiskers.map(|(point, interval)| {
            PathElement::new(vec![(point.0, interval.0), (point.0, interval.1)], color.stroke_width(2))
        }))?;
        Ok(())
    }
}

fn draw_legend<'a>(head: &Area<'a>, rows: &[Vec<(&Series, RGBColor, i32)>]) -> Result<(), Fault<'a>> {
    let mut y = i32::try_from(TITLE_HEIGHT).unwrap_or(0) + 4;
    for row in rows {
        for (series, color, x) in row {
            let middle = y + 8;
            match series.style {
                SeriesStyle::Points => head.draw(&Circle::new((x + 11, middle), 4, color.filled()))?,
                SeriesStyle::Dashed => {
                    for start in [*x, x + 12] {
                        head.draw(&PathElement::new(
                            vec![(start, middle), (start + 8, middle)],
                            color.stroke_width(2),
                        ))?;
                    }
                }
                SeriesStyle::Line | SeriesStyle::LineAndPoints => {
                    head.draw(&PathElement::new(vec![(*x, middle), (x + 22, middle)], color.stroke_width(3)))?;
                }
            }
            head.draw(&Text::new(series.name.clone(), (x + 28, y), text_style(17)))?;
        }
        y += i32::try_from(LEGEND_HEIGHT).unwrap_or(0);
    }
    Ok(())
}

fn text_style(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK)
}

/// A number beside an axis of this span: no more digits than tell its marks apart.
fn number(value: f64, span: f64) -> String {
    let text = decimal(value, (1.0 - span.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0));
    if text == "-0" { "0".to_owned() } else { text }
}

/// A number with so many decimals, without zeros at their end.
pub fn decimal(value: f64, decimals: f64) -> String {
    let text = format!("{value:.*}", decimals as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

/// A text as XML and HTML hold it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = Series { name: "a & b".into(), points: vec![(0.0, 1.0), (1.0, 3.0)], ..Series::default() };
        let points = Series {
            name: "measured".into(),
            style: SeriesStyle::Points,
            points: vec![(0.5, 2.0)],
            intervals: vec![(1.5, 9.0)],
            ..Series::default()
        };
        let theory = Series { style: SeriesStyle::Dashed, ..line.clone() };
        Chart {
            title: "Latency <1 s>".into(),
            alternative: "It \"rises\".".into(),
            x: Axis::new("time", "min"),
            y: Axis::new("latency", "ms"),
            series: vec![line, points, theory],
        }
    }

    #[test]
    fn a_chart_has_its_title_its_axes_with_units_its_legend_and_its_alternative() {
        let svg = chart().svg().unwrap();
        for text in [
            "<title>Latency &lt;1 s&gt;</title>",
            "<desc>It &quot;rises&quot;.</desc>",
            "time (min)",
            "latency (ms)",
            "measured",
            "a &amp; b",
        ] {
            assert!(svg.contains(text), "`{text}` is missing in {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    }

    #[test]
    fn no_colour_is_fixed_outside_of_the_schemes() {
        let svg = chart().svg().unwrap();
        let drawn = svg.split_once("</style>").unwrap().1;
        assert!(!drawn.contains("\"#"), "{drawn}");
    }

    #[test]
    fn an_interval_beyond_the_points_is_inside_the_plane() {
        let axis = Axis::new("latency", "ms");
        assert!(axis.span([1.0, 9.0].into_iter()).1 > 9.0);
        assert_eq!(axis.span(std::iter::empty()), (0.0, 1.0));
        assert_eq!(axis.span([1.0, f64::NAN, 9.0].into_iter()).0, 0.0);
        let near = axis.span([99.0, 100.0].into_iter());
        assert!(near.0 > 98.0 && near.0 < 99.0, "{near:?}");
    }

    #[test]
    fn marks_of_an_axis_have_no_more_digits_than_tell_them_apart() {
        let told: Vec<_> =
            [(0.0, 1.0), (0.2, 1.0), (1500.0, 2000.0), (0.003, 0.01)].map(|(value, span)| number(value, span)).into();
        assert_eq!(told, ["0", "0.2", "1500", "0.003"]);
    }

    #[test]
    fn nothing_to_draw_is_an_empty_plane() {
        let svg = Chart { title: "Nothing".into(), ..Chart::default() }.svg().unwrap();
        assert!(svg.contains("<title>Nothing</title>"));
    }
}
