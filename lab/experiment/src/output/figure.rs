//! Figures and their files, SVG and PNG. The font for the bitmap is compiled in, so that a machine
//! without fonts draws the same picture.

use super::draw;
use crate::confidence::Estimate;
use anyhow::{Context, anyhow};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;

/// Pixels of a figure.
pub(super) const SIZE: (u32, u32) = (960, 540);
pub(super) const FONT: &str = "sans-serif";

/// How estimates are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// A line through marks, or bars if the horizontal axis has [`Ticks::Kinds`].
    Line,
    /// A dashed line through marks: another figure of what the solid line of this ink shows.
    Dashed,
    /// Marks without a line, with names where these have room.
    Marks,
    /// A bound: dashed, without marks.
    Limit,
}

/// Estimates that are one line, or the bars of one colour.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) label: String,
    /// Each point's position on the horizontal axis (one of the figure's ticks, or a number), and
    /// its estimate.
    pub(crate) points: Vec<(f64, Estimate)>,
    /// Names of the points, if they have some.
    pub(crate) names: Vec<String>,
    pub(crate) style: Style,
    /// Index of colour and mark; a scheme has the same one in all figures.
    pub(crate) ink: usize,
}

impl Series {
    /// A solid line.
    pub(crate) fn line(
        label: impl Into<String>,
        ink: usize,
        points: Vec<(f64, Estimate)>,
    ) -> Series {
        Series { label: label.into(), points, names: Vec::new(), style: Style::Line, ink }
    }

    /// A bound.
    pub(crate) fn limit(label: impl Into<String>, points: Vec<(f64, Estimate)>) -> Series {
        Series { style: Style::Limit, ..Series::line(label, 0, points) }
    }
}

/// The ticks of the horizontal axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ticks {
    /// Numbers.
    Numbers,
    /// Positions and their names, in order.
    Steps(Vec<(f64, String)>),
    /// Names of the positions 0, 1, 2 and so on, which have no order: bars.
    Kinds(Vec<String>),
}

impl Ticks {
    /// Steps at the positions 0, 1, 2 and so on.
    pub(crate) fn steps(names: impl IntoIterator<Item = String>) -> Ticks {
        Ticks::Steps((0..).map(f64::from).zip(names).collect())
    }

    /// The positions that have names.
    pub(super) fn positions(&self) -> Vec<f64> {
        match self {
            Ticks::Numbers => Vec::new(),
            Ticks::Steps(steps) => steps.iter().map(|(position, _)| *position).collect(),
            Ticks::Kinds(names) => (0..names.len()).map(|at| at as f64).collect(),
        }
    }

    /// The name of a position, if it has one.
    pub(super) fn name(&self, position: f64) -> Option<String> {
        match self {
            Ticks::Numbers => None,
            Ticks::Steps(steps) => {
                steps.iter().find(|(other, _)| *other == position).map(|(_, name)| name.clone())
            }
            Ticks::Kinds(names) => names.get(position as usize).cloned(),
        }
    }
}

/// A figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The files' name, without extension.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) ticks: Ticks,
    pub(crate) is_logarithmic: bool,
    pub(crate) series: Vec<Series>,
    /// Modelled, with profile and seeds, or measured, with the machine.
    pub(crate) origin: String,
}

impl Figure {
    /// Writes `NAME.svg` and `NAME.png`.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        register_font(FONT, FontStyle::Normal, dejavu::sans::regular())
            .map_err(|_| anyhow!("the font is damaged"))?;
        let svg = directory.join(format!("{}.svg", self.name));
        std::fs::write(&svg, self.svg()?).with_context(|| svg.display().to_string())?;
        let png = directory.join(format!("{}.png", self.name));
        std::fs::write(&png, self.png()?).with_context(|| png.display().to_string())
    }

    fn svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        draw::draw(self, SVGBackend::with_string(&mut text, SIZE).into_drawing_area())?;
        Ok(short(&text))
    }

    fn png(&self) -> anyhow::Result<Vec<u8>> {
        let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
        draw::draw(self, BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area())?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, SIZE.0, SIZE.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&pixels)?;
        Ok(file)
    }
}

/// The same drawing in fewer bytes: without default attributes, line ends around texts, and
/// decimals that are too small to see.
fn short(svg: &str) -> String {
    let svg = svg
        .replace(" opacity=\"1\"", "")
        .replace(" stroke=\"none\"", "")
        .replace(" stroke-width=\"1\"", "");
    let svg = svg
        .replace(" \"/>", "\"/>")
        .replace(">\n</text>", "></text>")
        .replace("\n</text>", "</text>");
    let mut short = String::with_capacity(svg.len());
    for line in svg.lines() {
        let (line, is_text) = (rounded(line), line.starts_with("<text"));
        short.push_str(&line);
        if !(is_text && line.ends_with('>') && !line.ends_with("</text>")) {
            short.push('\n');
        }
    }
    short
}

/// A line whose size of the font has one decimal.
fn rounded(line: &str) -> String {
    const SIZE: &str = "font-size=\"";
    let size =
        line.split_once(SIZE).and_then(|(before, rest)| Some((before, rest.split_once('"')?)));
    match size.and_then(|(before, (size, after))| Some((before, size.parse::<f64>().ok()?, after)))
    {
        Some((before, size, after)) => format!("{before}{SIZE}{size:.1}\"{after}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::COMMIT;

    fn estimate(mean: f64) -> Estimate {
        Estimate { mean, half_width: mean / 10.0 }
    }

    fn figure() -> Figure {
        let points = vec![(0.0, estimate(1.0)), (1.0, estimate(3.0))];
        Figure {
            name: "figure".to_owned(),
            title: "Throughput".to_owned(),
            x_label: "servers",
            y_label: "Mops",
            ticks: Ticks::steps(["16", "1024"].map(str::to_owned)),
            is_logarithmic: false,
            series: vec![
                Series::line("farreach", 2, points.clone()),
                Series::limit("limit", points),
            ],
            origin: "modelled, profile paper, seed 1".to_owned(),
        }
    }

    #[test]
    fn a_figure_says_that_it_is_modelled_and_names_its_origin() {
        let directory = tempfile::tempdir().unwrap();
        let kinds = Ticks::Kinds(["16", "1024"].map(str::to_owned).to_vec());
        for ticks in [figure().ticks, kinds] {
            for is_logarithmic in [false, true] {
                Figure { is_logarithmic, ticks: ticks.clone(), ..figure() }
                    .write(directory.path())
                    .unwrap();
                let svg = std::fs::read_to_string(directory.path().join("figure.svg")).unwrap();
                for text in [
                    "modelled",
                    "seed 1",
                    "95 % confidence",
                    COMMIT,
                    "farreach",
                    "limit",
                    "1024",
                    "servers",
                ] {
                    assert!(svg.contains(text), "{text} is missing");
                }
                let png = std::fs::read(directory.path().join("figure.png")).unwrap();
                assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
            }
        }
    }

    #[test]
    fn names_that_would_overlap_are_left_out() {
        let names = ["here".to_owned(), "elsewhere".to_owned(), "crowd".to_owned()];
        let mut points = vec![(0.0, estimate(1.0)), (50.0, estimate(9.0))];
        points.extend([(100.0, estimate(5.0)); 30]);
        let names = (0..points.len()).map(|at| names[at.min(2)].clone()).collect();
        let series = Series { names, style: Style::Marks, ..Series::line("clusters", 0, points) };
        let svg = Figure { ticks: Ticks::Numbers, series: vec![series], ..figure() }.svg().unwrap();
        assert!(svg.contains(">here<") && svg.contains(">elsewhere<"), "{svg}");
        assert!((1..8).contains(&svg.matches(">crowd<").count()), "there is no room for thirty");
    }

    #[test]
    fn default_attributes_and_needless_decimals_are_left_out() {
        let text = "<svg>\n<text x=\"1\" font-size=\"10.483870967741936\" opacity=\"1\" \
                    fill=\"#000000\">\nnode 7\n</text>\n<line opacity=\"0.12\" stroke=\"#000000\" \
                    stroke-width=\"1\" x1=\"84\"/>\n</svg>\n";
        let shorter = "<svg>\n<text x=\"1\" font-size=\"10.5\" fill=\"#000000\">node 7</text>\n\
                       <line opacity=\"0.12\" stroke=\"#000000\" x1=\"84\"/>\n</svg>\n";
        assert_eq!(short(text), shorter);
        let svg = figure().svg().unwrap();
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.len() < 10_000,
            "{} bytes",
            svg.len()
        );
    }
}
