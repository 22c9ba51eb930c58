//! The looks of figures: colours, marks and lines that can be told apart in grey and by the
//! colour-blind, and a legend beside the chart.

use super::COMMIT;
use super::figure::{FONT, Figure, SIZE, Series, Style, Ticks};
use crate::confidence::Estimate;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// The colours of Okabe and Ito ("Color universal design", 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
];
const GREY: RGBColor = RGBColor(90, 90, 90);
/// Corners of a mark around its middle: a circle, a square, triangles, a diamond, a bar.
const MARKS: [&[(i32, i32)]; 6] = [
    &[(2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2), (-2, -4)],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -6), (5, 4), (-5, 4)],
    &[(0, -6), (5, 0), (0, 6), (-5, 0)],
    &[(0, 6), (5, -4), (-5, -4)],
    &[(-6, -2), (6, -2), (6, 2), (-6, 2)],
];
/// A logarithmic axis of more powers of ten than this has ticks at powers of ten only.
const DECADES_MAX: f64 = 4.0;
/// Approximate number of ticks of a linear axis.
const TICKS: usize = 12;
/// More points than this are a line without marks.
const MARKS_MAX: usize = 24;
/// Share of a position that its bars take.
const BARS: f64 = 0.76;
/// Pixels of a row of the legend, of its samples, and of a letter of its text.
const ROW: i32 = 20;
const SAMPLE: i32 = 36;
const LETTER: f64 = 7.6;

/// An axis with given ticks.
#[derive(Clone)]
struct Axis {
    range: Range<f64>,
    is_logarithmic: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// A linear axis with about `ticks` ticks.
    fn linear(range: Range<f64>, ticks: usize) -> Axis {
        let ticks = RangedCoordf64::from(range.clone()).key_points(ticks);
        Axis { range, is_logarithmic: false, ticks }
    }

    /// A logarithmic axis with ticks at powers of ten, and at twice and five times these if there
    /// are few.
    fn logarithmic(range: Range<f64>) -> Axis {
        let powers = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
        let decades = (range.end / range.start).log10();
        let between: &[f64] = if decades > DECADES_MAX { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let ticks =
            powers.flat_map(|power| between.iter().map(move |digit| digit * 10f64.powi(power)));
        let ticks = ticks.filter(|tick| range.contains(tick)).collect();
        Axis { range, is_logarithmic: true, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let on_axis = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let [start, end, value] = [self.range.start, self.range.end, *value].map(on_axis);
        from + ((value - start) / (end - start) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;
/// A corner of the drawing and the opposite one.
type Rectangular = ((i32, i32), (i32, i32));

/// A number on an axis, without needless zeros.
fn tick(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

fn colour(ink: usize) -> RGBColor {
    COLOURS[ink % COLOURS.len()]
}

/// Draws a figure.
pub(super) fn draw<B: DrawingBackend>(
    figure: &Figure,
    area: DrawingArea<B, Shift>,
) -> anyhow::Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let centred = (FONT, 20).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw(&Text::new(figure.title.clone(), (SIZE.0 as i32 / 2, 10), centred))?;
    let legend_end = legend(figure, &area, 38)?;
    let has_intervals =
        figure.series.iter().flat_map(|series| &series.points).any(|(_, y)| y.half_width > 0.0);
    let intervals = if has_intervals { ", bars: 95 % confidence" } else { "" };
    let note = format!("{}{intervals}, commit {COMMIT}", figure.origin);
    area.draw(&Text::new(note, (12, SIZE.1 as i32 - 20), (FONT, 13).into_font().color(&GREY)))?;
    let main = area.margin(legend_end as u32, 28, 0, 0);
    let mut builder = ChartBuilder::on(&main);
    let builder = builder.margin(8).margin_right(24).x_label_area_size(46).y_label_area_size(72);
    let (x, y) = range(figure);
    let x = match &figure.ticks {
        Ticks::Numbers => Axis::linear(x, TICKS),
        named => Axis { ticks: named.positions(), ..Axis::linear(x, TICKS) },
    };
    let y_axis = if figure.is_logarithmic {
        Axis::logarithmic(y.clone())
    } else {
        Axis::linear(y.clone(), TICKS)
    };
    let mut chart = builder.build_cartesian_2d(x, y_axis)?;
    axes(figure, &mut chart)?;
    plot(figure, &mut chart, &y)
}

fn range(figure: &Figure) -> (Range<f64>, Range<f64>) {
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let high = all().map(|(_, y)| y.mean + y.half_width).fold(0.0, f64::max).max(1e-9);
    let low = all().map(|(_, y)| y.mean).filter(|mean| *mean > 0.0).fold(f64::MAX, f64::min);
    let y = if figure.is_logarithmic { low.min(high) * 0.7..high * 1.5 } else { 0.0..high * 1.08 };
    let end = all().map(|(x, _)| *x).fold(0.0, f64::max).max(1e-9);
    let x = match &figure.ticks {
        Ticks::Numbers if figure.series.iter().any(|series| series.style == Style::Marks) => {
            -0.04 * end..1.05 * end
        }
        Ticks::Numbers => 0.0..1.03 * end,
        Ticks::Steps(steps) => {
            let at = |step: Option<&(f64, String)>| step.map_or(0.0, |(position, _)| *position);
            at(steps.first()) - 0.4..at(steps.last()) + 0.4
        }
        Ticks::Kinds(names) => -0.5..names.len() as f64 - 0.5,
    };
    (x, y)
}

fn axes<B>(figure: &Figure, chart: &mut Chart<'_, B>) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let x_label = |position: &f64| figure.ticks.name(*position).unwrap_or_else(|| tick(*position));
    let y_label = |value: &f64| tick(*value);
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(figure.x_label)
        .y_desc(figure.y_label)
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 14));
    mesh.light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.12));
    mesh.disable_x_mesh().x_label_formatter(&x_label).y_label_formatter(&y_label);
    mesh.draw()?;
    Ok(())
}

/// Draws the legend, a sample of each series' line, mark or bar beside its label, in rows from
/// `top` on; returns where they end, in pixels.
fn legend<B: DrawingBackend>(
    figure: &Figure,
    area: &DrawingArea<B, Shift>,
    top: i32,
) -> anyhow::Result<i32>
where
    B::ErrorType: 'static,
{
    let has_bars = matches!(figure.ticks, Ticks::Kinds(_));
    let width =
        |series: &Series| SAMPLE + 8 + (series.label.chars().count() as f64 * LETTER) as i32 + 22;
    let (mut x, mut y) = (84, top);
    for series in &figure.series {
        if x > 84 && x + width(series) > SIZE.0 as i32 - 20 {
            (x, y) = (84, y + ROW);
        }
        let middle = y + ROW / 2;
        let ink = colour(series.ink);
        let line = |from: i32, to: i32, ink: RGBColor| {
            PathElement::new(vec![(x + from, middle), (x + to, middle)], ink.stroke_width(2))
        };
        match series.style {
            Style::Line if has_bars => {
                area.draw(&Rectangle::new(
                    [(x, middle - 6), (x + SAMPLE, middle + 6)],
                    ink.filled(),
                ))?;
            }
            Style::Line => area.draw(&line(0, SAMPLE, ink))?,
            Style::Dashed | Style::Limit => {
                let ink = if series.style == Style::Limit { BLACK } else { ink };
                area.draw(&line(0, 10, ink))?;
                area.draw(&line(SAMPLE - 10, SAMPLE, ink))?;
            }
            Style::Marks => {}
        }
        if series.style != Style::Limit && !has_bars && series.points.len() <= marks_max(series) {
            area.draw(&mark(series, (x + SAMPLE / 2, middle)))?;
        }
        let style = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(series.label.clone(), (x + SAMPLE + 8, middle), style))?;
        x += width(series);
    }
    Ok(y + ROW)
}

fn marks_max(series: &Series) -> usize {
    if series.style == Style::Marks { usize::MAX } else { MARKS_MAX }
}

/// The mark of a series: filled, or only its outline where the line is dashed.
fn mark(series: &Series, (x, y): (i32, i32)) -> Polygon<(i32, i32)> {
    let corners = MARKS[series.ink % MARKS.len()]
        .iter()
        .map(|(right, down)| (x + right, y + down))
        .collect::<Vec<_>>();
    Polygon::new(corners, colour(series.ink).filled())
}

fn plot<B>(figure: &Figure, chart: &mut Chart<'_, B>, y: &Range<f64>) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let has_bars = matches!(figure.ticks, Ticks::Kinds(_));
    let bars = figure.series.iter().filter(|series| series.style == Style::Line).count();
    let width = BARS / bars.max(1) as f64;
    let mut bar = 0;
    // Bounds come last, so that a bar that reaches its bound doesn't hide it.
    let bounds_last = |bound: bool| {
        figure.series.iter().filter(move |series| (series.style == Style::Limit) == bound)
    };
    for series in bounds_last(false).chain(bounds_last(true)) {
        match series.style {
            Style::Limit if has_bars => {
                for (x, limit) in &series.points {
                    let ends = [(x - BARS / 2.0, limit.mean), (x + BARS / 2.0, limit.mean)];
                    chart.draw_series(DashedLineSeries::new(ends, 6, 4, BLACK.stroke_width(2)))?;
                }
            }
            Style::Limit => {
                let means = series.points.iter().map(|(x, y)| (*x, y.mean));
                chart.draw_series(DashedLineSeries::new(means, 6, 5, BLACK.stroke_width(2)))?;
            }
            Style::Line if has_bars => {
                let left = |x: f64| x - BARS / 2.0 + width * bar as f64;
                let ink = colour(series.ink).filled();
                let filled = series.points.iter().map(|(x, of)| {
                    Rectangle::new([(left(*x), y.start), (left(*x) + 0.92 * width, of.mean)], ink)
                });
                chart.draw_series(filled)?;
                intervals(chart, series, y, |x| left(x) + 0.46 * width, GREY)?;
                bar += 1;
            }
            Style::Line | Style::Dashed | Style::Marks => lines(chart, series, y)?,
        }
    }
    names(figure, chart)
}

/// A series as a line, as marks, or both.
fn lines<B>(chart: &mut Chart<'_, B>, series: &Series, y: &Range<f64>) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let ink = colour(series.ink);
    let means = || series.points.iter().map(|(x, y)| (*x, y.mean));
    match series.style {
        Style::Dashed => {
            chart.draw_series(DashedLineSeries::new(means(), 7, 5, ink.stroke_width(2)))?;
        }
        Style::Line => {
            chart.draw_series(LineSeries::new(means(), ink.stroke_width(2)))?;
        }
        Style::Marks | Style::Limit => {}
    }
    if series.points.len() <= marks_max(series) {
        let area = chart.plotting_area().strip_coord_spec();
        means().try_for_each(|point| area.draw(&mark(series, pixel(chart, point))))?;
    }
    intervals(chart, series, y, |x| x, ink)
}

/// Draws confidence intervals, clipped at the ends of the axis.
fn intervals<B>(
    chart: &mut Chart<'_, B>,
    series: &Series,
    range: &Range<f64>,
    at: impl Fn(f64) -> f64,
    ink: RGBColor,
) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let area = chart.plotting_area().strip_coord_spec();
    let within = |y: f64| y.clamp(range.start, range.end);
    for (x, y) in series.points.iter().filter(|(_, y)| y.half_width > 0.0) {
        let end = |value: f64| pixel(chart, (at(*x), within(value)));
        let ((x, low), (_, high)) = (end(y.mean - y.half_width), end(y.mean + y.half_width));
        for path in
            [[(x, low), (x, high)], [(x - 4, low), (x + 4, low)], [(x - 4, high), (x + 4, high)]]
        {
            area.draw(&PathElement::new(path, ink))?;
        }
    }
    Ok(())
}

/// Draws names of points beside, above or below them, where they hide neither a mark nor another
/// name.
fn names<B>(figure: &Figure, chart: &mut Chart<'_, B>) -> anyhow::Result<()>
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    let named = || figure.series.iter().filter(|series| !series.names.is_empty());
    let place = |(x, y): &(f64, Estimate)| pixel(chart, (*x, y.mean));
    let mut taken: Vec<Rectangular> = Vec::new();
    for series in named() {
        taken
            .extend(series.points.iter().map(place).map(|(x, y)| ((x - 5, y - 5), (x + 5, y + 5))));
    }
    let mut texts = Vec::new();
    for series in named() {
        for (point, name) in
            series.points.iter().zip(&series.names).filter(|(_, name)| !name.is_empty())
        {
            let (x, y) = place(point);
            let width = (name.chars().count() as f64 * LETTER * 0.9) as i32 + 2;
            let (middle, left, right) = (y - 7, x - 8 - width, x + 8);
            let corners =
                [(right, middle), (left, middle), (x - width / 2, y - 21), (x - width / 2, y + 7)];
            let free = corners.into_iter().map(|(x, y)| ((x, y), (x + width, y + 14)));
            if let Some(spot) =
                free.into_iter().find(|spot| !taken.iter().any(|other| overlap(*spot, *other)))
            {
                taken.push(spot);
                texts.push((spot.0, name.clone()));
            }
        }
    }
    let area = chart.plotting_area().strip_coord_spec();
    for (corner, name) in texts {
        area.draw(&Text::new(name, corner, (FONT, 13).into_font().color(&BLACK)))?;
    }
    Ok(())
}

/// A point's place in pixels of the plotting area.
fn pixel<B>(chart: &Chart<'_, B>, point: (f64, f64)) -> (i32, i32)
where
    B: DrawingBackend,
{
    let ((x, y), (left, top)) =
        (chart.backend_coord(&point), chart.plotting_area().get_base_pixel());
    (x - left, y - top)
}

fn overlap(one: Rectangular, other: Rectangular) -> bool {
    let apart = |a: (i32, i32), b: (i32, i32)| a.1 <= b.0 || b.1 <= a.0;
    let ((x, y), (right, bottom)) = one;
    let ((other_x, other_y), (other_right, other_bottom)) = other;
    !apart((x, right), (other_x, other_right)) && !apart((y, bottom), (other_y, other_bottom))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes_are_short() {
        assert_eq!([0.0, 0.5, 100.0, 0.1 + 0.2].map(tick), ["0", "0.5", "100", "0.3"]);
    }

    #[test]
    fn a_logarithmic_axis_has_ticks_between_powers_of_ten_where_these_are_few() {
        assert_eq!(
            Axis::logarithmic(15.0..1800.0).ticks,
            [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!(Axis::logarithmic(15.0..14_000.0).ticks.len(), 9);
        assert_eq!(Axis::logarithmic(0.5..2e4).ticks, [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        let axis = Axis::logarithmic(1.0..100.0);
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.map(&value, (500, 300))), [500, 400, 300]);
    }

    #[test]
    fn rectangles_that_touch_do_not_overlap() {
        assert!(overlap(((0, 0), (10, 10)), ((9, 9), (20, 20))));
        assert!(!overlap(((0, 0), (10, 10)), ((10, 0), (20, 10))));
    }
}
