//! Figures, as SVG and PNG. The font for the bitmap is compiled in, so that a machine without fonts draws the same.

use super::COMMIT;
use crate::student::Estimate;
use anyhow::{Context, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;

/// Pixels of a figure.
const SIZE: (u32, u32) = (960, 540);
const FONT: &str = "sans-serif";
/// Colours that stay apart for the colour-blind and in print (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
];

/// A line through estimates.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    /// Where on the horizontal axis: a position of [`Figure::ticks`], or a number.
    pub(crate) points: Vec<(f64, Estimate)>,
    /// A bound that was computed: dashed, without marks.
    pub(crate) is_limit: bool,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The files' name, without extension.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    /// Names of the positions 0, 1, 2 and so on; none: the axis has numbers.
    pub(crate) ticks: Vec<String>,
    pub(crate) is_logarithmic: bool,
    pub(crate) series: Vec<Series>,
    /// Profile and seeds.
    pub(crate) origin: String,
}

/// A number on an axis, without needless zeros.
fn tick(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    if rounded == 0.0 { "0".to_owned() } else { rounded.to_string() }
}

impl Figure {
    /// Writes `NAME.svg` and `NAME.png`.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).map_err(|_| anyhow!("the font is damaged"))?;
        let svg = directory.join(format!("{}.svg", self.name));
        std::fs::write(&svg, self.svg()?).with_context(|| svg.display().to_string())?;
        let png = directory.join(format!("{}.png", self.name));
        std::fs::write(&png, self.png()?).with_context(|| png.display().to_string())
    }

    fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(text)
    }

    fn png(&self) -> anyhow::Result<Vec<u8>> {
        let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
        self.draw(BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, SIZE.0, SIZE.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&pixels)?;
        Ok(file)
    }

    fn range(&self) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let high = all().map(|(_, y)| y.mean + y.half_width).fold(0.0, f64::max).max(1e-9);
        let low = all().map(|(_, y)| y.mean).filter(|mean| *mean > 0.0).fold(f64::MAX, f64::min);
        let y = if self.is_logarithmic { low.min(high) * 0.7..high * 1.5 } else { 0.0..high * 1.15 };
        let x = if self.ticks.is_empty() {
            0.0..all().map(|(x, _)| *x).fold(0.0, f64::max).max(1e-9) * 1.03
        } else {
            -0.4..self.ticks.len() as f64 - 0.6
        };
        (x, y)
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> anyhow::Result<()>
    where
        B::ErrorType: 'static,
    {
        area.fill(&WHITE)?;
        let (main, foot) = area.split_vertically(SIZE.1 - 28);
        let note = format!("modelled (virtual time), {}, commit {COMMIT}", self.origin);
        foot.draw(&Text::new(note, (12, 6), (FONT, 13).into_font().color(&RGBColor(90, 90, 90))))?;
        let (x, y) = self.range();
        let mut builder = ChartBuilder::on(&main);
        let builder = builder.caption(&self.title, (FONT, 20)).margin(12).x_label_area_size(46).y_label_area_size(72);
        if self.is_logarithmic {
            let mut chart = builder.build_cartesian_2d(x, y.log_scale())?;
            self.axes(&mut chart)?;
            self.plot(&mut chart)
        } else {
            let mut chart = builder.build_cartesian_2d(x, y)?;
            self.axes(&mut chart)?;
            self.plot(&mut chart)
        }
    }

    fn axes<B, Y>(&self, chart: &mut ChartContext<'_, B, Cartesian2d<RangedCoordf64, Y>>) -> anyhow::Result<()>
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let named = |position: &f64| {
            let at = position.round();
            let is_tick = (position - at).abs() < 1e-6 && at >= 0.0;
            self.ticks.get(at as usize).filter(|_| is_tick).cloned().unwrap_or_default()
        };
        let number = |value: &f64| tick(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.x_label).y_desc(self.y_label).axis_desc_style((FONT, 16)).label_style((FONT, 14));
        mesh.light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.12)).y_label_formatter(&number);
        if self.ticks.is_empty() {
            mesh.x_label_formatter(&number).draw()?;
        } else {
            mesh.disable_x_mesh().x_labels(2 * self.ticks.len() + 1).x_label_formatter(&named).draw()?;
        }
        Ok(())
    }

    fn plot<'a, B, Y>(&self, chart: &mut ChartContext<'a, B, Cartesian2d<RangedCoordf64, Y>>) -> anyhow::Result<()>
    where
        B: DrawingBackend + 'a,
        B::ErrorType: 'static,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        for (at, series) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let means = series.points.iter().map(|(x, y)| (*x, y.mean));
            let width = if series.is_limit { 1 } else { 3 };
            let legend =
                move |(x, y): (i32, i32)| PathElement::new(vec![(x, y), (x + 22, y)], colour.stroke_width(width));
            if series.is_limit {
                let line = DashedLineSeries::new(means, 6, 4, colour.stroke_width(1));
                chart.draw_series(line)?.label(&series.label).legend(legend);
                continue;
            }
            chart
                .draw_series(LineSeries::new(means.clone(), colour.stroke_width(2)))?
                .label(&series.label)
                .legend(legend);
            if series.points.len() <= 24 {
                chart.draw_series(means.map(|point| Circle::new(point, 4, colour.filled())))?;
            }
            let bars = series.points.iter().filter(|(_, y)| y.half_width > 0.0);
            let low = |y: &Estimate| (y.mean - y.half_width).max(0.0);
            let bars = bars
                .map(|(x, y)| ErrorBar::new_vertical(*x, low(y), y.mean, y.mean + y.half_width, colour.filled(), 8));
            chart.draw_series(bars)?;
        }
        let mut labels = chart.configure_series_labels();
        let labels = labels.position(SeriesLabelPosition::UpperLeft).label_font((FONT, 14));
        labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).draw()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let estimate = |mean: f64| Estimate { mean, half_width: mean / 10.0 };
        let points = vec![(0.0, estimate(1.0)), (1.0, estimate(3.0))];
        let series = |label: &str, is_limit| Series { label: label.to_owned(), points: points.clone(), is_limit };
        Figure {
            name: "figure".to_owned(),
            title: "Throughput".to_owned(),
            x_label: "servers",
            y_label: "Mops",
            ticks: vec!["16".to_owned(), "1024".to_owned()],
            is_logarithmic: false,
            series: vec![series("farreach", false), series("limit", true)],
            origin: "profile paper, seed 1".to_owned(),
        }
    }

    #[test]
    fn a_figure_says_that_it_is_modelled_and_where_it_comes_from() {
        let directory = std::env::temp_dir().join(format!("switchback-figure-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for is_logarithmic in [false, true] {
            Figure { is_logarithmic, ..figure() }.write(&directory).unwrap();
            let svg = std::fs::read_to_string(directory.join("figure.svg")).unwrap();
            for text in ["modelled", "seed 1", COMMIT, "farreach", "limit", "1024", "servers"] {
                assert!(svg.contains(text), "{text} is missing");
            }
            let png = std::fs::read(directory.join("figure.png")).unwrap();
            assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn numbers_on_axes_are_short() {
        assert_eq!([0.0, 0.5, 100.0, 0.1 + 0.2].map(tick), ["0", "0.5", "100", "0.3"]);
    }
}
