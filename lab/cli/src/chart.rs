//! A prediction as a figure: the load of the nodes, and gains by size of the cache.

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use serde::Deserialize;

/// Pixels of the figure, and of its left half.
const SIZE: (u32, u32) = (1100, 460);
const HALF: u32 = 540;
/// Nodes that are drawn, the busiest first if there are more.
const NODES_MAX: usize = 64;
/// Gains beyond this are drawn as this.
const GAIN_MAX: f64 = 1000.0;
const FONT: &str = "sans-serif";
/// Colours that stay apart for the colour-blind and in print (Okabe and Ito).
const GREY: RGBColor = RGBColor(0xb4, 0xb4, 0xb4);
const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);

/// What is drawn of a prediction.
#[derive(Deserialize)]
pub(crate) struct Prediction {
    outcomes: Vec<Outcome>,
    steps: Vec<Step>,
}

/// The load of the nodes under one way of caching.
#[derive(Deserialize)]
struct Outcome {
    way: String,
    /// Share of all requests that each node serves.
    node_load: Vec<f64>,
}

/// Gains by the number of cached records; `None`: without limit.
#[derive(Deserialize)]
struct Step {
    records: u64,
    write_through: Option<f64>,
    write_back: Option<f64>,
}

impl Prediction {
    /// The nodes' load under a way of caching.
    fn load(&self, way: &str) -> anyhow::Result<&[f64]> {
        let found = self.outcomes.iter().find(|outcome| outcome.way == way);
        Ok(&found.with_context(|| format!("it says nothing of {way}"))?.node_load)
    }
}

/// The figure as SVG.
pub(crate) fn svg(prediction: &Prediction) -> anyhow::Result<String> {
    register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| anyhow!("the font is damaged"))?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (left, right) = area.split_horizontally(HALF);
        loads(prediction, &left)?;
        gains(prediction, &right)?;
        area.present()?;
    }
    Ok(text)
}

/// Bars of what each node serves: without a cache, and what write-back leaves of it.
fn loads(prediction: &Prediction, area: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
    let (none, write_back) = (prediction.load("no_cache")?, prediction.load("write_back")?);
    let mut loads: Vec<(f64, f64)> = none.iter().copied().zip(write_back.iter().copied()).collect();
    loads.sort_by(|a, b| b.0.total_cmp(&a.0));
    loads.truncate(NODES_MAX);
    let high = loads.first().map_or(1.0, |(load, _)| load * 100.0) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption("Share of the requests by node, busiest first (%)", (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d(0.0..loads.len() as f64, 0.0..high)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(1).x_label_formatter(&|_| String::new()).x_desc("nodes");
    mesh.light_line_style(TRANSPARENT).label_style((FONT, 12)).draw()?;
    for (label, colour, inset, share) in [
        ("no cache", GREY, 0.1, (|load: &(f64, f64)| load.0) as fn(&(f64, f64)) -> f64),
        ("write-back", BLUE, 0.3, |load| load.1),
    ] {
        let bar = |(at, load): (usize, &(f64, f64))| {
            let (from, to) = (at as f64 + inset, (at + 1) as f64 - inset);
            Rectangle::new([(from, 0.0), (to, 100.0 * share(load))], colour.filled())
        };
        let key = move |(x, y): (i32, i32)| {
            Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled())
        };
        chart.draw_series(loads.iter().enumerate().map(bar))?.label(label).legend(key);
    }
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 13))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}

/// Lines of the gain over no cache by records cached.
fn gains(prediction: &Prediction, area: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
    let shown = |gain: Option<f64>| gain.unwrap_or(GAIN_MAX).clamp(1.0, GAIN_MAX);
    let steps = &prediction.steps;
    let high = steps.iter().map(|step| shown(step.write_back)).fold(2.0, f64::max) * 1.2;
    let records = |step: &Step| step.records.max(1) as f64;
    let first = steps.first().map_or(1.0, records);
    let last = steps.last().map_or(10.0, records).max(first * 10.0);
    let mut chart = ChartBuilder::on(area)
        .caption("Gain over no cache by records cached (limits)", (FONT, 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(52)
        .build_cartesian_2d((first..last).log_scale(), (1.0..high).log_scale())?;
    let number =
        |value: &f64| if *value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("records")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&number);
    mesh.light_line_style(TRANSPARENT).label_style((FONT, 12)).draw()?;
    for (label, colour, gain) in [
        (
            "write-through, ideal",
            ORANGE,
            (|step: &Step| step.write_through) as fn(&Step) -> Option<f64>,
        ),
        ("write-back", BLUE, |step| step.write_back),
    ] {
        let points = steps.iter().map(|step| (records(step), shown(gain(step))));
        let key = move |(x, y): (i32, i32)| {
            PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2))
        };
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(label)
            .legend(key);
    }
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperLeft)
        .label_font((FONT, 13))
        .background_style(WHITE)
        .draw()?;
    Ok(())
}
