//! Grouped bars with the whiskers of their intervals.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{GRID, LABELS_LEFT, LINES, SIZE, TEXT, TEXT_SIZE, decimals, label};
use crate::error::{Error, Result};
use crate::html::cut;

/// Share of a group's width that its bars take.
const FILLED: f64 = 0.8;
/// Width of a letter of a label, about.
const LETTER: u32 = 8;

/// Bars side by side under one label, one for each series.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Stands below the bars.
    pub(crate) label: String,
    /// In the order of the series; none where a series has no value.
    pub(crate) bars: Vec<Option<Bar>>,
}

/// A value from 0 up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bar {
    /// The height.
    pub(crate) value: f64,
    /// Ends of the whisker, where there is an interval.
    pub(crate) interval: Option<[f64; 2]>,
}

/// Draws groups of bars, whose colours are those of lines. `None` when there is nothing to draw.
pub(crate) fn bars(title: &str, groups: &[Group]) -> Result<Option<String>> {
    let tops = groups.iter().flat_map(|group| &group.bars).flatten();
    let tops = tops.map(|bar| bar.interval.map_or(bar.value, |[_, high]| high.max(bar.value)));
    let Some(top) = tops.reduce(f64::max) else { return Ok(None) };
    let mut svg = String::new();
    paint(&mut svg, groups, if top > 0.0 { 1.05 * top } else { 1.0 })
        .map_err(|detail| Error::Draw { figure: title.into(), detail: detail.to_string() })?;
    Ok(Some(svg))
}

fn paint(svg: &mut String, groups: &[Group], top: f64) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let text = ("sans-serif", TEXT_SIZE).into_font().color(&TEXT);
    let decimals = decimals(&(0.0..top));
    let mut chart = ChartBuilder::on(&root)
        .margin_top(12)
        .margin_right(18)
        .x_label_area_size(28)
        .y_label_area_size(LABELS_LEFT)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .y_labels(6)
        .y_label_formatter(&|value| label(*value, decimals))
        .label_style(text.clone())
        .draw()?;
    for (place, group) in groups.iter().enumerate() {
        let width = FILLED / group.bars.len() as f64;
        let left = |series: usize| place as f64 + (1.0 - FILLED) / 2.0 + series as f64 * width;
        for (series, bar) in group.bars.iter().enumerate().filter_map(|(series, bar)| Some((series, (*bar)?))) {
            let corners = [(left(series), 0.0), (left(series) + 0.92 * width, bar.value)];
            chart.draw_series([Rectangle::new(corners, LINES[series % LINES.len()].filled())])?;
            if let Some([low, high]) = bar.interval {
                let middle = left(series) + 0.46 * width;
                let whisker = vec![(middle, low.max(0.0)), (middle, high)];
                chart.draw_series([PathElement::new(whisker, TEXT.stroke_width(1))])?;
            }
        }
    }
    let room = SIZE.0 - LABELS_LEFT;
    let letters = (room / LETTER / groups.len() as u32).max(3) as usize;
    for (place, group) in groups.iter().enumerate() {
        let (x, y) = chart.plotting_area().map_coordinate(&(place as f64 + 0.5, 0.0));
        let style = text.clone().pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(cut(&group.label, letters), (x, y + 8), style))?;
    }
    drop(chart);
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_bar_with_its_whisker_and_what_is_missing_leaves_a_gap() {
        let bar = |value: f64| Some(Bar { value, interval: Some([value - 1.0, value + 1.0]) });
        let groups = [
            Group { label: "terminal".into(), bars: vec![bar(40.0), bar(0.5)] },
            Group { label: "a label of a great many letters <b> \u{1b}".repeat(2), bars: vec![None, bar(60.0)] },
        ];
        let svg = bars("by domain", &groups).unwrap().unwrap();
        assert_eq!(svg.matches("<rect ").count(), 3);
        assert_eq!(svg.matches("stroke=\"#222222\"").count(), 3, "a whisker each");
        assert!(svg.contains("terminal") && svg.contains('…') && !svg.contains("<b>") && !svg.contains('\u{1b}'));
        let heights: Vec<f64> = svg
            .split("<rect ")
            .skip(1)
            .map(|rect| rect.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert!((heights[2] / heights[0] - 1.5).abs() < 0.02, "heights are as the values: {heights:?}");
    }

    #[test]
    fn no_value_is_no_figure_and_zeros_are_one() {
        assert_eq!(bars("none", &[Group { label: "a".into(), bars: vec![None] }]).unwrap(), None);
        let zero = Group { label: "a".into(), bars: vec![Some(Bar { value: 0.0, interval: None })] };
        assert!(bars("zero", &[zero]).unwrap().is_some());
    }
}
