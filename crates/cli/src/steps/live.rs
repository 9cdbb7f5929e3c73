//! The live view of a training: curves and figures in the lines below the cursor, redrawn in place.
//!
//! The terminal stays as it is (no raw mode, no other screen): Ctrl-C stops the run as ever, and the last picture stays
//! above what follows.

use std::io::{IsTerminal, Stderr, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, Gauge, GraphType, Paragraph};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use worldloom_train::rl::RlStepMetrics;
use worldloom_train::{StepMetrics, Validation};

use crate::progress::{duration, size};

const HEIGHT: u16 = 18;
/// The shortest time between two pictures.
const REDRAW: Duration = Duration::from_millis(150);
/// Points of a curve; beyond it, neighbours are joined.
const MOST_POINTS: usize = 400;

/// A view that is on the terminal.
pub(super) struct Live {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    view: View,
    drawn: Instant,
}

impl Live {
    /// Opens the view, if there is a terminal to draw on and answers to read.
    pub(super) fn open(label: &str, steps: u64) -> Option<Self> {
        if !(stderr().is_terminal() && stdout().is_terminal() && stdin().is_terminal()) {
            return None;
        }
        let options = TerminalOptions { viewport: Viewport::Inline(HEIGHT) };
        let terminal = Terminal::with_options(CrosstermBackend::new(stderr()), options).ok()?;
        Some(Self { terminal, view: View::new(label, steps), drawn: Instant::now() - REDRAW })
    }

    /// Takes a step; draws if the last picture is old enough.
    pub(super) fn show(&mut self, metrics: &StepMetrics) {
        self.view.take(metrics);
        self.draw_if_due(metrics.step);
    }

    /// The same of a step of RL.
    pub(super) fn show_rl(&mut self, metrics: &RlStepMetrics) {
        self.view.take_rl(metrics);
        self.draw_if_due(metrics.step);
    }

    fn draw_if_due(&mut self, step: u64) {
        if self.drawn.elapsed() >= REDRAW || step == self.view.steps {
            self.drawn = Instant::now();
            self.draw();
        }
    }

    fn draw(&mut self) {
        let view = &self.view;
        // A terminal that went away stops the pictures, not the training.
        if let Err(error) = self.terminal.draw(|frame| draw(frame, view)) {
            tracing::debug!(%error, "cannot draw");
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.draw();
        let _ = self.terminal.show_cursor();
        eprintln!();
    }
}

/// What is shown.
struct View {
    label: String,
    steps: u64,
    /// Losses, or RL's rewards, and those of validation.
    curve: Curve,
    validated: Vec<(f64, f64)>,
    names: [&'static str; 2],
    last: Option<Last>,
    validation: Option<Validation>,
    /// The last step with a flag, and the flag.
    flagged: Option<(u64, String)>,
    skipped: u64,
    /// Steps and seconds of this process.
    done: u64,
    seconds: f64,
}

/// The last step.
enum Last {
    Supervised(Box<StepMetrics>),
    Reinforced(Box<RlStepMetrics>),
}

impl Last {
    fn step(&self) -> u64 {
        match self {
            Last::Supervised(metrics) => metrics.step,
            Last::Reinforced(metrics) => metrics.step,
        }
    }
}

/// Means over spans of steps that double when there are too many.
#[derive(Default)]
struct Curve {
    points: Vec<(f64, f64)>,
    span: usize,
    open: Vec<(f64, f64)>,
}

impl Curve {
    fn push(&mut self, step: f64, value: f64) {
        self.span = self.span.max(1);
        self.open.push((step, value));
        if self.open.len() == self.span {
            self.points.push(mean(&self.open));
            self.open.clear();
        }
        if self.points.len() == MOST_POINTS {
            self.points = self.points.chunks(2).map(mean).collect();
            self.span *= 2;
        }
    }
}

fn mean(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    (points.iter().map(|point| point.0).sum::<f64>() / count, points.iter().map(|point| point.1).sum::<f64>() / count)
}

impl View {
    fn new(label: &str, steps: u64) -> Self {
        Self {
            label: label.into(),
            steps,
            curve: Curve::default(),
            validated: Vec::new(),
            names: ["loss", "validation"],
            last: None,
            validation: None,
            flagged: None,
            skipped: 0,
            done: 0,
            seconds: 0.0,
        }
    }

    fn take(&mut self, metrics: &StepMetrics) {
        let step = metrics.step as f64;
        if metrics.loss.is_finite() {
            self.curve.push(step, metrics.loss);
        }
        self.validated.extend(metrics.validation_before.as_ref().map(|before| (step - 1.0, before.all.loss)));
        self.validated.extend(metrics.validation_loss.map(|loss| (step, loss)));
        if metrics.validation.is_some() {
            self.validation.clone_from(&metrics.validation);
        }
        if !metrics.flags.is_empty() {
            self.flagged = Some((metrics.step, format!("{} jumped", metrics.flags.join(" and "))));
        }
        self.skipped += u64::from(metrics.skipped);
        self.done += 1;
        self.seconds += metrics.clock.seconds;
        self.last = Some(Last::Supervised(Box::new(metrics.clone())));
    }

    fn take_rl(&mut self, metrics: &RlStepMetrics) {
        let step = metrics.step as f64;
        self.names = ["reward", "held-out prompts"];
        self.curve.push(step, metrics.reward_mean);
        let held_out = |before: f64, held_out: &worldloom_train::rl::HeldOut| (step - before, held_out.all.reward_mean);
        self.validated.extend(metrics.validation_before.as_ref().map(|measured| held_out(1.0, measured)));
        self.validated.extend(metrics.validation.as_ref().map(|measured| held_out(0.0, measured)));
        if !metrics.alarms.is_empty() {
            self.flagged = Some((metrics.step, format!("alarm: {}", metrics.alarms.join(", "))));
        }
        self.done += 1;
        self.seconds += metrics.clock.seconds;
        self.last = Some(Last::Reinforced(Box::new(metrics.clone())));
    }

    fn seconds_left(&self, step: u64) -> f64 {
        self.seconds / self.done.max(1) as f64 * self.steps.saturating_sub(step) as f64
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(last) = &view.last else { return };
    let rows = [Constraint::Length(1), Constraint::Min(6), Constraint::Length(4)];
    let [head, chart, figures] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, view, last.step(), head);
    draw_chart(frame, view, chart);
    let lines = match last {
        Last::Supervised(last) => figure_lines(view, last),
        Last::Reinforced(last) => rl_lines(view, last),
    };
    frame.render_widget(Paragraph::new(lines), figures);
}

fn draw_head(frame: &mut Frame<'_>, view: &View, step: u64, area: Rect) {
    let left = duration(view.seconds_left(step));
    let label = format!("{}  step {step} of {}, about {left} left", view.label, view.steps);
    let share = (step as f64 / view.steps.max(1) as f64).clamp(0.0, 1.0);
    let style = Style::new().fg(Color::Blue).bg(Color::Black);
    frame.render_widget(Gauge::default().gauge_style(style).ratio(share).label(label), area);
}

fn draw_chart(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let all = || view.curve.points.iter().chain(&view.validated);
    let low = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return;
    }
    let pad = ((high - low) * 0.05).max(1e-3);
    let (low, high) = (low - pad, high + pad);
    let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = view.last.as_ref().map_or(first, |last| last.step() as f64).max(first + 1.0);
    let curve = |name: &'static str, points, marker, colour| {
        Dataset::default().name(name).data(points).marker(marker).graph_type(GraphType::Line).style(colour)
    };
    let curves = vec![
        curve(view.names[0], &view.curve.points, Marker::Braille, Color::Blue),
        curve(view.names[1], &view.validated, Marker::Dot, Color::Yellow),
    ];
    let labels = |values: [f64; 3], decimals: usize| values.map(|value| Line::from(format!("{value:.decimals$}")));
    let steps = Axis::default().bounds([first, last]).labels(labels([first, (first + last) / 2.0, last], 0));
    let losses = Axis::default().bounds([low, high]).labels(labels([low, (low + high) / 2.0, high], 2));
    frame.render_widget(Chart::new(curves).x_axis(steps).y_axis(losses), area);
}

fn figure(name: &str, value: String) -> [Span<'static>; 2] {
    [Span::styled(format!("{name} "), Style::new().fg(Color::DarkGray)), Span::raw(format!("{value}   "))]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn warning() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

fn rl_lines(view: &View, last: &RlStepMetrics) -> Vec<Line<'static>> {
    let part = |name: &str, value: Option<&f64>| value.map(|value| figure(name, format!("{value:.2}")));
    let parts = |names: &[&str], parts: &std::collections::BTreeMap<String, f64>| {
        names.iter().flat_map(|name| part(name, parts.get(*name))).flatten().collect::<Vec<_>>()
    };
    let mut first = Vec::new();
    first.extend(figure("reward", format!("{:.2}", last.reward_mean)));
    first.extend(parts(&["rubric", "rule", "match"], &last.reward_parts));
    first.extend(figure("faults", percent(last.fault_share)));
    first.extend(figure("length", format!("{:.0}", last.response_length)));
    first.extend(figure("equal groups", percent(last.zero_variance_share)));
    let dimensions = ["format", "factuality", "consistency", "realism", "quality"];
    let mut second = parts(&dimensions, &last.reward_parts);
    second.extend(
        view.validated
            .last()
            .map(|(_, reward)| figure("held-out prompts", format!("{reward:.2}")))
            .into_iter()
            .flatten(),
    );
    let mut third = Vec::new();
    third.extend(figure("entropy", format!("{:.3}", last.entropy)));
    third.extend(figure("gradient norm", format!("{:.3}", last.grad_norm)));
    third.extend(figure("rate", format!("{:.2e}", last.learning_rate)));
    third.extend(figure("tokens/s", format!("{:.0}", last.clock.tokens_per_s)));
    third
        .extend((last.unavailable > 0).then(|| figure("unscored", last.unavailable.to_string())).into_iter().flatten());
    let alarm = view.flagged.iter().map(|(step, flag)| Span::styled(format!("{flag} at step {step}"), warning()));
    [first, second, third, alarm.collect()].map(Line::from).into()
}

fn figure_lines(view: &View, last: &StepMetrics) -> Vec<Line<'static>> {
    let mut first = Vec::new();
    first.extend(figure("loss", format!("{:.4}", last.loss)));
    first.extend(figure("rate", format!("{:.2e}", last.learning_rate)));
    first.extend(figure("gradient norm", format!("{:.3}", last.grad_norm)));
    first.extend(figure("tokens/s", format!("{:.0}", last.clock.tokens_per_s)));
    first.extend(figure("padding", percent(last.padding)));
    first.extend(last.clock.memory_bytes.map(|bytes| figure("memory", size(bytes))).into_iter().flatten());
    let mut second = Vec::new();
    let mut third = Vec::new();
    if let Some(validation) = &view.validation {
        second.extend(figure("validation", format!("{:.4}", validation.all.loss)));
        let bits = validation.all.bits_per_byte.map(|bits| figure("bits/byte", format!("{bits:.3}")));
        second.extend(bits.into_iter().flatten());
        second.extend(figure("exact answers", percent(validation.all.exact)));
        let domains = validation.domains.iter().flat_map(|(name, score)| figure(name, format!("{:.3}", score.loss)));
        third.extend(domains);
    }
    let mut fourth = Vec::new();
    if let Some((step, flag)) = &view.flagged {
        fourth.push(Span::styled(format!("{flag} at step {step}   "), warning()));
    }
    if view.skipped > 0 {
        fourth.push(Span::styled(format!("{} steps skipped, not finite", view.skipped), warning()));
    }
    [first, second, third, fourth].map(Line::from).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;
    use worldloom_train::{Score, StepClock};

    fn step(step: u64, loss: f64) -> StepMetrics {
        StepMetrics {
            step,
            loss,
            learning_rate: 1e-3,
            grad_norm: 0.75,
            routers: None,
            rows: 2,
            tokens: 100,
            trained_tokens: 50,
            padding: 0.125,
            parts: Default::default(),
            skipped: false,
            flags: Vec::new(),
            validation_before: None,
            validation_loss: None,
            validation: None,
            clock: StepClock {
                seconds: 0.5,
                tokens_per_s: 200.0,
                memory_bytes: Some(3 << 30),
                device_bytes: None,
                exchange_seconds: None,
            },
            row_numbers: Vec::new(),
        }
    }

    fn picture(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, HEIGHT)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_picture_has_the_figures_of_the_last_step_and_measurement() {
        let mut view = View::new("train cpt", 40);
        (1..=19).for_each(|at| view.take(&step(at, 3.0 - at as f64 * 0.1)));
        let score = |loss| Score { loss, bits_per_byte: Some(0.5), entropy: 1.0, exact: 0.25, answers: 4 };
        let domains = [("terminal".to_string(), score(1.5))].into();
        let validation = Some(Validation { all: score(1.25), domains });
        let flags = vec!["loss".to_string()];
        view.take(&StepMetrics { validation, validation_loss: Some(1.25), flags, ..step(20, 1.0) });
        let picture = picture(&view);
        for words in [
            "train cpt  step 20 of 40, about 10 s left",
            "loss 1.0000",
            "gradient norm 0.750",
            "padding 12.5 %",
            "memory 3.00 GiB",
            "validation 1.2500",
            "bits/byte 0.500",
            "exact answers 25.0 %",
            "terminal 1.500",
            "loss jumped at step 20",
        ] {
            assert!(picture.contains(words), "no `{words}` in\n{picture}");
        }
    }

    #[test]
    fn a_picture_of_rl_has_the_reward_and_what_it_is_made_of() {
        let mut view = View::new("train rl", 10);
        let parts = [("rubric", 17.5), ("match", 0.25), ("format", 4.5)].map(|(name, value)| (name.to_string(), value));
        let held_out = |reward_mean| {
            let all = worldloom_train::rl::LabelFigures { reward_mean, ..Default::default() };
            Some(worldloom_train::rl::HeldOut { all, ..Default::default() })
        };
        let step = |step: u64| RlStepMetrics {
            step,
            reward_mean: 10.0 + step as f64,
            reward_parts: parts.clone().into(),
            fault_share: 0.125,
            validation_before: if step == 1 { held_out(9.0) } else { None },
            validation: if step == 5 { held_out(12.0) } else { None },
            alarms: if step == 5 { vec!["truncation".into()] } else { Vec::new() },
            ..Default::default()
        };
        (1..=5).for_each(|at| view.take_rl(&step(at)));
        assert_eq!(view.validated, [(0.0, 9.0), (5.0, 12.0)]);
        let picture = picture(&view);
        for words in [
            "train rl  step 5 of 10",
            "reward 15.00",
            "rubric 17.50",
            "match 0.25",
            "faults 12.5 %",
            "format 4.50",
            "held-out prompts 12.00",
            "alarm: truncation at step 5",
        ] {
            assert!(picture.contains(words), "no `{words}` in\n{picture}");
        }
    }

    #[test]
    fn nothing_is_drawn_before_the_first_step_and_a_long_curve_stays_small() {
        let mut view = View::new("train sft", 10_000);
        assert!(!picture(&view).contains("step"));
        (1..=10_000).for_each(|at| view.take(&step(at, f64::from(at as u32 % 7))));
        assert!(view.curve.points.len() < MOST_POINTS);
        let mean = view.curve.points.iter().map(|point| point.1).sum::<f64>() / view.curve.points.len() as f64;
        assert!((mean - 3.0).abs() < 0.1, "{mean}");
    }
}
