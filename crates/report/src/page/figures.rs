//! The curves of each stage: loss of the supervised stages, reward, faults and reward parts of RL.

use base64::Engine;

use worldloom_schema::Evaluation;

use crate::chart::{LINES, Line, draw, draw_shares, standalone};
use crate::curves::Curves;
use crate::error::Result;
use crate::html::{escape, grouped};
use crate::run::Stage;

/// A figure: its title, and the metrics in it (a trailing dot takes all names below, a star any one name).
struct Figure {
    title: &'static str,
    metrics: &'static [(&'static str, &'static str)],
    axis: Axis,
}

/// Where the axis of the values begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// At the least value.
    Least,
    /// At 0.
    Zero,
    /// At 0; the figure is left out while all values are 0, which says that nothing of it was asked for.
    ZeroIfAny,
}

const fn figure(title: &'static str, axis: Axis, metrics: &'static [(&'static str, &'static str)]) -> Figure {
    Figure { title, metrics, axis }
}

/// Figures in order; one without any of its metrics is left out. A prefix takes what no other figure names.
const FIGURES: [Figure; 27] = [
    figure("loss", Axis::Least, &[("loss", "training"), ("validation.loss", "validation")]),
    figure("validation loss by domain", Axis::Least, &[("validation.domains.*.loss", "")]),
    figure("bits per byte", Axis::Least, &[("validation.bits_per_byte", "validation")]),
    figure("answers that greedy decoding gives exactly, share", Axis::Zero, &[("validation.exact", "validation")]),
    figure("gradient norm", Axis::Zero, &[("grad_norm", "before clipping")]),
    figure("learning rate", Axis::Zero, &[("learning_rate", "rate")]),
    figure("tokens by part of the mixture", Axis::Zero, &[("parts.", "")]),
    figure("tokens a second", Axis::Zero, &[("clock.tokens_per_s", "tokens/s")]),
    figure("choices of the busiest expert, times an even share", Axis::Zero, &[("routers.busiest", "busiest")]),
    figure(
        "mean reward, 0–25",
        Axis::Zero,
        &[("reward_mean", "reward"), ("validation.reward_mean", "held-out prompts")],
    ),
    figure("mean reward by domain, 0–25", Axis::Zero, &[("by_label.*.reward_mean", "")]),
    figure(
        "faults and groups without signal, share",
        Axis::Zero,
        &[("fault_share", "faults"), ("zero_variance_share", "groups of equal rewards")],
    ),
    figure("faults by reason, completions", Axis::Zero, &[("faults.", "")]),
    figure("completions without a score", Axis::ZeroIfAny, &[("unavailable", "all"), ("unavailable_reasons.", "")]),
    figure(
        "rubric by dimension, 1–5",
        Axis::Least,
        &[
            ("reward_parts.format", "format"),
            ("reward_parts.factuality", "factuality"),
            ("reward_parts.consistency", "consistency"),
            ("reward_parts.realism", "realism"),
            ("reward_parts.quality", "quality"),
        ],
    ),
    figure("rubric and rule, 0–25", Axis::Zero, &[("reward_parts.rubric", "rubric"), ("reward_parts.rule", "rule")]),
    figure("matches of scored completions, share", Axis::Zero, &[("reward_parts.match", "match")]),
    figure("other reward parts", Axis::Zero, &[("reward_parts.", "")]),
    figure(
        "held-out prompts: rubric by dimension, 1–5",
        Axis::Least,
        &[
            ("validation.reward_parts.format", "format"),
            ("validation.reward_parts.factuality", "factuality"),
            ("validation.reward_parts.consistency", "consistency"),
            ("validation.reward_parts.realism", "realism"),
            ("validation.reward_parts.quality", "quality"),
        ],
    ),
    figure(
        "held-out prompts: matches of scored completions, share",
        Axis::Zero,
        &[("validation.reward_parts.match", "match")],
    ),
    figure(
        "batches that the sampler's weights are old, and their largest weight",
        Axis::ZeroIfAny,
        &[("staleness", "batches"), ("correction_max", "weight before the cut"), ("correction", "mean weight")],
    ),
    figure("completion length, mean", Axis::Zero, &[("response_length", "tokens")]),
    figure("completions that end by themselves and are not cut, share", Axis::Zero, &[("stopped_share", "ended")]),
    figure("entropy by token", Axis::Zero, &[("entropy", "entropy")]),
    figure("divergence from the reference by token (k3)", Axis::ZeroIfAny, &[("kl", "divergence")]),
    figure("tokens clipped, share", Axis::Zero, &[("clip_low", "below the range"), ("clip_high", "above the range")]),
    figure("negative log-likelihood of the true answers", Axis::ZeroIfAny, &[("truth_nll", "by token")]),
];

/// The section and its number of figures.
pub(super) fn render(stages: &[Stage]) -> Result<(String, u64)> {
    if stages.is_empty() {
        return Ok((String::new(), 0));
    }
    let mut out = String::from("<section>\n<h2>Training</h2>\n");
    let mut count = 0;
    for stage in stages {
        let name = escape(&stage.name);
        out += &format!("<h3>{name}</h3>\n<p class=\"muted\">{} steps.</p>\n", grouped(stage.curves.steps));
        out += "<div class=\"figures\">\n";
        for figure in &FIGURES {
            let lines = lines(figure, &stage.curves);
            let title = format!("{}: {}", stage.name, figure.title);
            if figure.axis == Axis::ZeroIfAny && lines.iter().all(is_zero) {
                continue;
            }
            if let Some(svg) = draw(&title, &lines, figure.axis != Axis::Least)? {
                count += 1;
                out += &figure_html(&title, &with_last(&lines), &svg);
            }
        }
        out += "</div>\n";
    }
    Ok((out + "</section>\n", count))
}

/// Confidence against matches, a line for each predictor; empty where nobody said how sure it was.
pub(super) fn calibration(evaluation: &Evaluation) -> Result<(String, u64)> {
    let mut lines: Vec<Line> = Vec::new();
    for predictor in evaluation.predictors.iter().filter(|predictor| !predictor.calibration.is_empty()) {
        let points = predictor.calibration.iter().map(|bin| (bin.confidence, bin.matches)).collect();
        lines.push(Line { name: predictor.name.clone(), points });
    }
    if lines.is_empty() {
        return Ok((String::new(), 0));
    }
    lines.push(Line { name: "as sure as right".into(), points: vec![(0.0, 0.0), (1.0, 1.0)] });
    let title = "calibration: confidence, and share of matches";
    let svg = draw_shares(title, &lines, "confidence")?;
    let about = "Predictions in ten groups of equal size by confidence, exp of the mean log-prob of their tokens; below \
                 the diagonal a model is surer than it is right.";
    let keys: Vec<String> = lines.into_iter().map(|line| line.name).collect();
    let figure = figure_html(title, &keys, &svg);
    Ok((format!("<h3>Calibration</h3>\n<p>{about}</p>\n<div class=\"figures\">\n{figure}</div>\n"), 1))
}

fn is_zero(line: &Line) -> bool {
    line.points.iter().all(|(_, value)| *value == 0.0)
}

fn lines(figure: &Figure, curves: &Curves) -> Vec<Line> {
    let named = |metric: &str, name: &str| Some(Line { name: name.into(), points: curves.thinned(metric)? });
    let is_named = |full: &str| FIGURES.iter().flat_map(|figure| figure.metrics).any(|(metric, _)| *metric == full);
    let mut lines = Vec::new();
    for (metric, name) in figure.metrics {
        if let Some((before, after)) = metric.split_once('*') {
            let matching = curves.names(before).into_iter().filter(|full| full.ends_with(after));
            lines.extend(matching.filter_map(|full| named(&full, &full[before.len()..full.len() - after.len()])));
        } else if metric.ends_with('.') {
            let rest = curves.names(metric).into_iter().filter(|full| !is_named(full));
            lines.extend(rest.filter_map(|full| named(&full, &full[metric.len()..])));
        } else {
            lines.extend(named(metric, name));
        }
    }
    lines
}

/// Names with the last value of each.
fn with_last(lines: &[Line]) -> Vec<String> {
    let last = |line: &Line| line.points.last().map_or(String::new(), |(_, value)| format!(" {}", short(*value)));
    lines.iter().map(|line| format!("{}{}", line.name, last(line))).collect()
}

/// Three decimals, or an exponent where they would be zeros.
fn short(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 { format!("{value:.1e}") } else { format!("{value:.3}") }
}

/// A drawing with its title, its keys in the order of the colours, and a link to it as a file.
pub(super) fn figure_html(title: &str, keys: &[String], svg: &str) -> String {
    let key = |(index, key): (usize, &String)| {
        format!("<span class=\"key line-{}\">{}</span> ", index % LINES.len(), escape(key))
    };
    let spans = keys.iter().enumerate().map(key).collect::<String>();
    // A file of its own: the colours, the title and the keys are in it, and it needs no style sheet.
    let file = base64::engine::general_purpose::STANDARD.encode(standalone(title, keys, svg));
    let title = escape(title);
    let export = format!(
        "<a class=\"export\" download=\"{}.svg\" href=\"data:image/svg+xml;base64,{file}\">SVG</a>",
        title.replace([':', ',', ' ', '/'], "-")
    );
    let svg = svg.trim().replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
    format!("<figure>\n{svg}\n<figcaption>{title}<br>{spans}{export}</figcaption>\n</figure>\n")
}
