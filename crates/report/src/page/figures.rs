//! The curves of each stage: loss of the supervised stages, reward, faults and reward parts of RL.

use base64::Engine;

use worldloom_schema::Evaluation;

use crate::chart::{LINES, Line, draw, draw_shares};
use crate::curves::Curves;
use crate::error::Result;
use crate::html::{escape, grouped};
use crate::run::Stage;

/// A figure: its title, the metrics in it (a trailing dot takes all names below, a star any one name) and whether its axis starts at 0.
struct Figure {
    title: &'static str,
    metrics: &'static [(&'static str, &'static str)],
    from_zero: bool,
}

/// Figures in order; one without any of its metrics is left out. A prefix takes what no other figure names.
const FIGURES: [Figure; 16] = [
    Figure { title: "loss", metrics: &[("loss", "training"), ("validation_loss", "validation")], from_zero: false },
    Figure { title: "validation loss by domain", metrics: &[("validation.domains.*.loss", "")], from_zero: false },
    Figure { title: "bits per byte", metrics: &[("validation.bits_per_byte", "validation")], from_zero: false },
    Figure {
        title: "answers that greedy decoding gives exactly, share",
        metrics: &[("validation.exact", "validation")],
        from_zero: true,
    },
    Figure { title: "gradient norm", metrics: &[("grad_norm", "before clipping")], from_zero: true },
    Figure { title: "learning rate", metrics: &[("learning_rate", "rate")], from_zero: true },
    Figure { title: "tokens by part of the mixture", metrics: &[("parts.", "")], from_zero: true },
    Figure { title: "tokens a second", metrics: &[("clock.tokens_per_s", "tokens/s")], from_zero: true },
    Figure { title: "mean reward, 0–25", metrics: &[("reward_mean", "reward")], from_zero: true },
    Figure {
        title: "faults and groups without signal, share",
        metrics: &[("fault_share", "faults"), ("zero_variance_share", "groups of equal rewards")],
        from_zero: true,
    },
    Figure { title: "faults by reason, completions", metrics: &[("faults.", "")], from_zero: true },
    Figure {
        title: "rubric by dimension, 1–5",
        metrics: &[
            ("reward_parts.format", "format"),
            ("reward_parts.factuality", "factuality"),
            ("reward_parts.consistency", "consistency"),
            ("reward_parts.realism", "realism"),
            ("reward_parts.quality", "quality"),
        ],
        from_zero: false,
    },
    Figure {
        title: "rubric and rule, 0–25",
        metrics: &[("reward_parts.rubric", "rubric"), ("reward_parts.rule", "rule")],
        from_zero: true,
    },
    Figure {
        title: "matches of scored completions, share",
        metrics: &[("reward_parts.match", "match")],
        from_zero: true,
    },
    Figure { title: "other reward parts", metrics: &[("reward_parts.", "")], from_zero: true },
    Figure { title: "completion length, mean", metrics: &[("response_length", "tokens")], from_zero: true },
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
            if let Some(svg) = draw(&title, &lines, figure.from_zero)? {
                count += 1;
                out += &figure_html(&title, &lines, &svg);
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
    let figure = figure_html(title, &lines, &svg);
    Ok((format!("<h3>Calibration</h3>\n<p>{about}</p>\n<div class=\"figures\">\n{figure}</div>\n"), 1))
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

fn figure_html(title: &str, lines: &[Line], svg: &str) -> String {
    let key = |(index, line): (usize, &Line)| {
        let last = line.points.last().map_or(String::new(), |(_, value)| format!(" {value:.3}"));
        format!("<span class=\"key line-{}\">{}{last}</span> ", index % LINES.len(), escape(&line.name))
    };
    let keys = lines.iter().enumerate().map(key).collect::<String>();
    // A file of its own: the colours of the drawing are in it, and it needs no style sheet.
    let file = base64::engine::general_purpose::STANDARD.encode(svg.trim());
    let title = escape(title);
    let export = format!(
        "<a class=\"export\" download=\"{}.svg\" href=\"data:image/svg+xml;base64,{file}\">SVG</a>",
        title.replace([':', ',', ' ', '/'], "-")
    );
    let svg = svg.trim().replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{title}\" "), 1);
    format!("<figure>\n{svg}\n<figcaption>{title} {keys}{export}</figcaption>\n</figure>\n")
}
