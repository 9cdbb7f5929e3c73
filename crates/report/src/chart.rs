//! Line charts, bars and flows as inline SVG. Colours are fixed in the file and mapped by the page's style sheet, so that one drawing
//! serves light, dark and print.

mod bars;
mod export;
mod flow;

use std::ops::Range;

use plotters::prelude::*;

use crate::curves::Curve;
use crate::error::{Error, Result};

pub(crate) use bars::{Bar, Group, bars};
pub(crate) use export::standalone;
pub(crate) use flow::{Flow, FlowRow, Part, flow};

/// Width and height in units of the drawing; the page scales it.
const SIZE: (u32, u32) = (520, 300);
/// Size of text for the drawing library, which makes it a fifth smaller.
const TEXT_SIZE: i32 = 17;
/// Room for the labels of the values.
const LABELS_LEFT: u32 = 66;
/// Text colour, mapped by the style sheet.
const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Grid colour, mapped by the style sheet.
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
/// Line colours, distinguishable with colour-blind eyes (Okabe and Ito).
pub(crate) const LINES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// One named line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Name in the legend.
    pub(crate) name: String,
    /// Finite points in order of the step.
    pub(crate) points: Curve,
}

/// Draws lines over steps. `None` when there is nothing to draw.
pub(crate) fn draw(title: &str, lines: &[Line], from_zero: bool) -> Result<Option<String>> {
    let Some(([left, right], [low, high])) = ranges(lines, from_zero) else { return Ok(None) };
    let num_steps = (right - left) as usize + 1;
    let across = Across { name: "step", decimals: 0, labels: num_steps.min(6) };
    paint_to_string(title, lines, across, left..right, low..high).map(Some)
}

/// Draws lines over shares from 0 to 1, which are shares themselves.
pub(crate) fn draw_shares(title: &str, lines: &[Line], across: &'static str) -> Result<String> {
    paint_to_string(title, lines, Across { name: across, decimals: 1, labels: 6 }, 0.0..1.0, 0.0..1.0)
}

/// The horizontal axis.
struct Across {
    name: &'static str,
    decimals: usize,
    labels: usize,
}

fn paint_to_string(
    title: &str,
    lines: &[Line],
    across: Across,
    steps: Range<f64>,
    values: Range<f64>,
) -> Result<String> {
    let mut svg = String::new();
    paint(&mut svg, lines, across, steps, values)
        .map_err(|detail| Error::Draw { figure: title.into(), detail: detail.to_string() })?;
    Ok(svg)
}

fn paint(
    svg: &mut String,
    lines: &[Line],
    across: Across,
    steps: Range<f64>,
    values: Range<f64>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let decimals = decimals(&values);
    let Across { name, decimals: decimals_across, labels } = across;
    let mut chart = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_right(18)
        .x_label_area_size(46)
        .y_label_area_size(LABELS_LEFT)
        .build_cartesian_2d(steps, values)?;
    let text = ("sans-serif", TEXT_SIZE).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .x_labels(labels)
        .y_labels(6)
        .x_label_formatter(&|value| format!("{value:.decimals_across$}"))
        .y_label_formatter(&|value| label(*value, decimals))
        .x_desc(name)
        .label_style(text)
        .axis_desc_style(("sans-serif", TEXT_SIZE).into_font().color(&TEXT))
        .draw()?;
    for (line, colour) in lines.iter().zip(LINES.iter().cycle()) {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        if let [point] = line.points[..] {
            chart.draw_series([Circle::new(point, 3, colour.filled())])?;
        }
    }
    drop(chart);
    root.present()?;
    Ok(())
}

/// The ranges of steps and values, a little wider than the data; `None` without points.
fn ranges(lines: &[Line], from_zero: bool) -> Option<([f64; 2], [f64; 2])> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let span = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (left, right) = span(&mut points().map(|point| point.0));
    let (low, high) = span(&mut points().map(|point| point.1));
    if left > right {
        return None;
    }
    let low = if from_zero { low.min(0.0) } else { low };
    let pad = ((high - low) * 0.05).max(high.abs() * 1e-3).max(1e-6);
    let bottom = if from_zero && low == 0.0 { 0.0 } else { low - pad };
    Some(([left, if right > left { right } else { left + 1.0 }], [bottom, high + pad]))
}

/// Decimals that tell neighbouring labels apart.
fn decimals(values: &Range<f64>) -> usize {
    (1.0 - (values.end - values.start).log10()).ceil().clamp(0.0, 6.0) as usize
}

/// A value on the axis: as short as its neighbours allow, with an exponent where it would be all zeros.
fn label(value: f64, decimals: usize) -> String {
    match value {
        0.0 => "0".into(),
        value if decimals > 4 => format!("{value:.1e}"),
        value => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { name: "train".into(), points: points.to_vec() }
    }

    #[test]
    fn lines_become_svg_without_addresses() {
        let svg = draw("loss", &[line(&[(1.0, 7.5), (2.0, 6.25)]), line(&[(2.0, 6.5)])], false).unwrap().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("<polyline") && svg.contains("<circle"));
        assert_eq!(svg.matches("http").count(), svg.matches("http://www.w3.org/2000/svg").count());
    }

    #[test]
    fn small_values_have_labels_that_tell_them_apart() {
        assert_eq!(
            [label(0.00002, 6), label(0.0, 6), label(0.0015, 4), label(3000.0, 0)],
            ["2.0e-5", "0", "0.0015", "3000"]
        );
    }

    #[test]
    fn nothing_to_draw_is_no_figure() {
        assert_eq!(draw("loss", &[], false).unwrap(), None);
        assert_eq!(draw("loss", &[line(&[])], true).unwrap(), None);
    }

    #[test]
    fn a_flat_line_and_a_single_point_have_a_range() {
        for points in [&[(3.0, 2.0)][..], &[(1.0, 0.0), (9.0, 0.0)]] {
            let ([left, right], [low, high]) = ranges(&[line(points)], false).unwrap();
            assert!(left < right && low < high);
            assert!(draw("flat", &[line(points)], true).unwrap().is_some());
        }
    }
}
