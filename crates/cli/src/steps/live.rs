//! The live view of a supervised training: curves and figures in the lines below the cursor, redrawn in place.
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
        if self.drawn.elapsed() >= REDRAW || metrics.step == self.view.steps {
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
    losses: Curve,
    validation_losses: Vec<(f64, f64)>,
    last: Option<StepMetrics>,
    validation: Option<Validation>,
    /// The last step with a flag, and the flag.
    flagged: Option<(u64, String)>,
    skipped: u64,
    /// Steps and seconds of this process.
    done: u64,
    seconds: f64,
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
            losses: Curve::default(),
            validation_losses: Vec::new(),
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
            self.losses.push(step, metrics.loss);
        }
        self.validation_losses.extend(metrics.validation_loss.map(|loss| (step, loss)));
        if metrics.validation.is_some() {
            self.validation.clone_from(&metrics.validation);
        }
        if !metrics.flags.is_empty() {
            self.flagged = Some((metrics.step, metrics.flags.join(" and ")));
        }
        self.skipped += u64::from(metrics.skipped);
        self.done += 1;
        self.seconds += metrics.clock.seconds;
        self.last = Some(metrics.clone());
    }

    fn seconds_left(&self, step: u64) -> f64 {
        self.seconds / self.done.max(1) as f64 * self.steps.saturating_sub(step) as f64
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let Some(last) = &view.last else { return };
    let rows = [Constraint::Length(1), Constraint::Min(6), Constraint::Length(4)];
    let [head, chart, figures] = Layout::vertical(rows).areas(frame.area());
    draw_head(frame, view, last, head);
    draw_chart(frame, view, chart);
    frame.render_widget(Paragraph::new(figure_lines(view, last)), figures);
}

fn draw_head(frame: &mut Frame<'_>, view: &View, last: &StepMetrics, area: Rect) {
    let left = duration(view.seconds_left(last.step));
    let label = format!("{}  step {} of {}, about {left} left", view.label, last.step, view.steps);
    let share = (last.step as f64 / view.steps.max(1) as f64).clamp(0.0, 1.0);
    let style = Style::new().fg(Color::Blue).bg(Color::Black);
    frame.render_widget(Gauge::default().gauge_style(style).ratio(share).label(label), area);
}

fn draw_chart(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let all = || view.losses.points.iter().chain(&view.validation_losses);
    let low = all().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return;
    }
    let pad = ((high - low) * 0.05).max(1e-3);
    let (low, high) = (low - pad, high + pad);
    let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = view.last.as_ref().map_or(first, |last| last.step as f64).max(first + 1.0);
    let curve = |name: &'static str, points, marker, colour| {
        Dataset::default().name(name).data(points).marker(marker).graph_type(GraphType::Line).style(colour)
    };
    let curves = vec![
        curve("loss", &view.losses.points, Marker::Braille, Color::Blue),
        curve("validation", &view.validation_losses, Marker::Dot, Color::Yellow),
    ];
    let labels = |values: [f64; 3], decimals: usize| values.map(|value| Line::from(format!("{value:.decimals$}")));
    let steps = Axis::default().bounds([first, last]).labels(labels([first, (first + last) / 2.0, last], 0));
    let losses = Axis::default().bounds([low, high]).labels(labels([low, (low + high) / 2.0, high], 2));
    frame.render_widget(Chart::new(curves).x_axis(steps).y_axis(losses), area);
}

fn figure_lines(view: &View, last: &StepMetrics) -> Vec<Line<'static>> {
    let figure = |name: &str, value: String| {
        [Span::styled(format!("{name} "), Style::new().fg(Color::DarkGray)), Span::raw(format!("{value}   "))]
    };
    let mut first = Vec::new();
    first.extend(figure("loss", format!("{:.4}", last.loss)));
    first.extend(figure("rate", format!("{:.2e}", last.learning_rate)));
    first.extend(figure("gradient norm", format!("{:.3}", last.grad_norm)));
    first.extend(figure("tokens/s", format!("{:.0}", last.clock.tokens_per_s)));
    first.extend(figure("padding", format!("{:.1} %", 100.0 * last.padding)));
    first.extend(last.clock.memory_bytes.map(|bytes| figure("memory", size(bytes))).into_iter().flatten());
    let mut second = Vec::new();
    let mut third = Vec::new();
    if let Some(validation) = &view.validation {
        second.extend(figure("validation", format!("{:.4}", validation.all.loss)));
        let bits = validation.all.bits_per_byte.map(|bits| figure("bits/byte", format!("{bits:.3}")));
        second.extend(bits.into_iter().flatten());
        second.extend(figure("exact answers", format!("{:.1} %", 100.0 * validation.all.exact)));
        let domains = validation.domains.iter().flat_map(|(name, score)| figure(name, format!("{:.3}", score.loss)));
        third.extend(domains);
    }
    let mut fourth = Vec::new();
    let warn = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    if let Some((step, flag)) = &view.flagged {
        fourth.push(Span::styled(format!("{flag} jumped at step {step}   "), warn));
    }
    if view.skipped > 0 {
        fourth.push(Span::styled(format!("{} steps skipped, not finite", view.skipped), warn));
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
            validation_loss: None,
            validation: None,
            clock: StepClock { seconds: 0.5, tokens_per_s: 200.0, memory_bytes: Some(3 << 30), device_bytes: None },
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
    fn nothing_is_drawn_before_the_first_step_and_a_long_curve_stays_small() {
        let mut view = View::new("train sft", 10_000);
        assert!(!picture(&view).contains("step"));
        (1..=10_000).for_each(|at| view.take(&step(at, f64::from(at as u32 % 7))));
        assert!(view.losses.points.len() < MOST_POINTS);
        let mean = view.losses.points.iter().map(|point| point.1).sum::<f64>() / view.losses.points.len() as f64;
        assert!((mean - 3.0).abs() < 0.1, "{mean}");
    }
}
