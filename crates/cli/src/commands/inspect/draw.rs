//! The view as cells of a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, List, ListItem, ListState, Paragraph};
use worldloom_schema::{ObservationKind, Trajectory, Turn};

use super::text::{clean, wrap};
use super::view::{Focus, Opened, View};

/// A longer text is cut in the view; `--json` prints it whole.
const LONGEST_TEXT: usize = 200_000;
const KEYS: &str = "↑↓ move  ⏎ turns  ⎋ list  / text  d domain  o source  p pool  c clear  t thoughts  ? help  q quit";
const HELP: &str = "\
in the list
  ↑ ↓ k j       the trajectory before, after
  PgUp PgDn     a page of them
  g G           the first, the last
  ⏎ → Tab       to its turns

in the turns
  ↑ ↓ k j       the turn before, after
  PgUp PgDn     the text up, down
  g G           what was known before, the last turn
  t             thoughts of the agent, on and off
  ⎋ ← Tab       back to the list

which trajectories
  d o p         next domain, source, pool
  /             with a text (⏎ looks for it, ⎋ does not)
  c             all again

q               the end";

/// Draws everything; tells the view how many lines fit.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)]).areas(frame.area());
    let narrow = body.width < 80;
    let sides = match (narrow, view.focus) {
        (true, Focus::List) => [body, Rect::ZERO],
        (true, Focus::Turns) => [Rect::ZERO, body],
        (false, _) => Layout::horizontal([Constraint::Percentage(38), Constraint::Percentage(62)]).areas(body),
    };
    view.height = usize::from(body.height.saturating_sub(2)).max(1);
    frame.render_widget(filter_line(view), head);
    if !sides[0].is_empty() {
        draw_list(frame, view, sides[0]);
    }
    if !sides[1].is_empty() {
        draw_turns(frame, view, sides[1]);
    }
    frame.render_widget(Line::from(KEYS).style(Style::new().fg(Color::DarkGray)), foot);
    if view.shows_help {
        draw_help(frame, body);
    }
}

fn filter_line(view: &View) -> Line<'static> {
    if let Some(typed) = &view.typed {
        return Line::from(vec![Span::from("text: ").bold_cyan(), Span::from(clean(typed)), Span::from("▏")]);
    }
    let filter = &view.filter;
    let join = |names: Vec<String>| if names.is_empty() { "all".into() } else { names.join(", ") };
    let domains = join(filter.domains.iter().map(ToString::to_string).collect());
    let pools = join(filter.pools.iter().map(ToString::to_string).collect());
    let sources = clean(&join(filter.sources.clone()));
    let mut parts = vec![("domain ", domains), ("source ", sources), ("pool ", pools)];
    if !filter.text.is_empty() {
        parts.push(("text ", clean(&filter.text)));
    }
    let state = match (&view.failure, view.is_done) {
        (Some(failure), _) => format!("stopped: {}", clean(failure)),
        (None, false) => "reading…".into(),
        (None, true) => String::new(),
    };
    let mut spans: Vec<Span<'static>> =
        parts.into_iter().flat_map(|(name, value)| [Span::from(name).bold_cyan(), Span::from(value + "  ")]).collect();
    spans.push(Span::from(format!("{} of {} trajectories  {state}", view.list.len(), view.total)));
    Line::from(spans)
}

/// The look of a name.
trait Named {
    fn bold_cyan(self) -> Span<'static>;
}

impl Named for Span<'static> {
    fn bold_cyan(self) -> Span<'static> {
        self.style(Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD))
    }
}

fn border(title: String, has_focus: bool) -> Block<'static> {
    let color = if has_focus { Color::Cyan } else { Color::DarkGray };
    Block::bordered().title(title).border_style(Style::new().fg(color))
}

fn draw_list(frame: &mut Frame<'_>, view: &View, area: Rect) {
    // Only what is near the selection is made into items: a list may have millions.
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let first = view.selected.saturating_sub(height / 2).min(view.list.len().saturating_sub(height));
    let shown = view.list.iter().skip(first).take(height);
    let items = shown.map(|summary| {
        let pool = summary.pool.map_or(String::new(), |pool| format!("{pool} "));
        ListItem::new(Line::from(vec![
            Span::styled(format!("{:8} ", summary.domain.as_str()), Style::new().fg(Color::Green)),
            Span::styled(format!("{:>3} ", summary.turns), Style::new().fg(Color::DarkGray)),
            Span::styled(pool, Style::new().fg(Color::Magenta)),
            Span::from(summary.task.clone()),
        ]))
    });
    let position = if view.list.is_empty() { 0 } else { view.selected + 1 };
    let title = format!(" {position} / {} ", view.list.len());
    let list = List::new(items)
        .block(border(title, view.focus == Focus::List))
        .highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = ListState::default().with_selected(Some(view.selected - first));
    frame.render_stateful_widget(list, area, &mut state);
}

fn draw_turns(frame: &mut Frame<'_>, view: &mut View, area: Rect) {
    let has_focus = view.focus == Focus::Turns;
    let shows_thoughts = view.shows_thoughts;
    let Some(opened) = &mut view.opened else {
        let words = if view.is_done { "nothing here" } else { "reading…" };
        frame.render_widget(Paragraph::new(words).block(border(String::new(), has_focus)), area);
        return;
    };
    let width = usize::from(area.width.saturating_sub(2));
    let height = usize::from(area.height.saturating_sub(2));
    let lines = lines(opened, width, shows_thoughts);
    opened.scroll = opened.scroll.min(lines.len().saturating_sub(height));
    let place = match lines.len() > height {
        true => format!("lines {}–{} of {} ", opened.scroll + 1, opened.scroll + height, lines.len()),
        false => String::new(),
    };
    let title = match opened.page {
        0 => format!(" before the first of {} turns  {place}", opened.trajectory.turns.len()),
        page => format!(" turn {page} of {}  {place}", opened.trajectory.turns.len()),
    };
    let shown: Vec<Line<'static>> = lines.into_iter().skip(opened.scroll).take(height).collect();
    frame.render_widget(Paragraph::new(shown).block(border(title, has_focus)), area);
}

/// The page of the opened trajectory as lines.
fn lines(opened: &Opened, width: usize, shows_thoughts: bool) -> Vec<Line<'static>> {
    let sections = match opened.page.checked_sub(1) {
        None => before(&opened.trajectory),
        Some(index) => turn(&opened.trajectory.turns[index], shows_thoughts),
    };
    let mut lines = Vec::new();
    for (title, text, style) in sections {
        lines.push(Line::from(Span::from(title).bold_cyan()));
        lines.extend(wrap(&cut(&text), width).into_iter().map(|line| Line::from(line).style(style)));
        lines.push(Line::default());
    }
    lines.pop();
    lines
}

type Section = (String, String, Style);

/// What is known before the first turn.
fn before(trajectory: &Trajectory) -> Vec<Section> {
    let system = &trajectory.system;
    let outcome = &trajectory.outcome;
    let mut facts = vec![
        format!("{} · {} · {}", trajectory.domain, trajectory.source, trajectory.format),
        format!("{} row {}", trajectory.source_path, trajectory.source_row),
        format!("id {}", trajectory.trajectory_id),
        format!("group {}", trajectory.task_group),
    ];
    facts.extend(trajectory.licence.as_ref().map(|licence| format!("licence {licence}")));
    facts.extend(trajectory.pool.map(|pool| format!("pool {pool}")));
    facts.extend(outcome.reward.map(|reward| format!("reward {reward}")));
    facts.extend(outcome.success.map(|success| format!("success {success}")));
    let plain = Style::new();
    let mut sections = vec![("trajectory".into(), facts.join("\n"), plain.fg(Color::DarkGray))];
    sections.push(("task".into(), system.task_description.clone(), plain));
    let optional = [
        ("initial state", &system.initial_state),
        ("simulation instruction", &system.simulation_instruction),
        ("actions available", &system.action_space),
    ];
    sections.extend(optional.into_iter().filter_map(|(title, text)| Some((title.into(), text.clone()?, plain))));
    let demonstrations = system.demonstrations.iter();
    sections.extend(demonstrations.map(|text| ("demonstration".into(), text.clone(), plain)));
    sections
}

fn turn(turn: &Turn, shows_thoughts: bool) -> Vec<Section> {
    let mut facts = turn.flags.clone();
    facts.extend(turn.is_error.map(|is_error| format!("error:{is_error}")));
    facts.extend(turn.truncated.then(|| "truncated".to_string()));
    facts.extend(turn.keep_class.map(|class| format!("mask:{class:?}").to_lowercase()));
    facts.extend(turn.keep.map(|keep| format!("keep:{keep}")));
    let plain = Style::new();
    let mut sections = Vec::new();
    if !facts.is_empty() {
        sections.push(("facts".into(), facts.join("  "), plain.fg(Color::DarkGray)));
    }
    for (title, text) in [("thoughts", &turn.reasoning), ("trace", &turn.trace), ("state before", &turn.pre_state)] {
        if let Some(text) = text
            && (shows_thoughts || title != "thoughts")
        {
            sections.push((title.into(), text.clone(), plain.fg(Color::DarkGray)));
        }
    }
    let action_color = if turn.is_error == Some(true) { Color::Red } else { Color::Yellow };
    sections.push(("action".into(), turn.action.clone(), plain.fg(action_color)));
    let observation = match (turn.observation_kind, turn.observation.as_str()) {
        (ObservationKind::Image, "") => "(an image)",
        (_, "") => "(empty)",
        (_, text) => text,
    };
    sections.push(("observation".into(), observation.into(), plain));
    sections
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}\n… {} more characters", &text[..end], text[end..].chars().count()),
        None => text.into(),
    }
}

fn draw_help(frame: &mut Frame<'_>, body: Rect) {
    let lines: Vec<&str> = HELP.lines().collect();
    let wanted = Rect { x: 0, y: 0, width: 62, height: lines.len() as u16 + 2 };
    let area = Rect {
        x: body.x + body.width.saturating_sub(wanted.width) / 2,
        y: body.y + body.height.saturating_sub(wanted.height) / 2,
        width: wanted.width.min(body.width),
        height: wanted.height.min(body.height),
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(border(" keys ".into(), true)), area);
}

#[cfg(test)]
pub(super) mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use worldloom_report::data::{Filter, Place};
    use worldloom_schema::{ActionKind, Domain, Outcome, System};

    use super::super::scan::{News, Summary};
    use super::*;

    /// A trajectory with two turns.
    pub(in super::super) fn trajectory() -> Trajectory {
        let turn = |index: u32, action: &str, observation: &str, kind: ObservationKind| Turn {
            index,
            action: action.into(),
            action_kind: ActionKind::ToolCall,
            observation: observation.into(),
            observation_kind: kind,
            reasoning: Some("It is there.".into()),
            pre_state: None,
            trace: None,
            is_error: None,
            truncated: false,
            flags: vec!["family:click".into()],
            keep_class: None,
            keep: None,
        };
        Trajectory {
            trajectory_id: "0a1b".into(),
            source: "shops".into(),
            source_path: "a.json".into(),
            source_row: 3,
            format: "chat".into(),
            domain: Domain::Web,
            task_group: "g".into(),
            licence: None,
            system: System {
                task_description: "Buy a\u{1b}[31m fig.".into(),
                initial_state: Some("[1] button \"Figs\"".into()),
                ..System::default()
            },
            turns: vec![
                turn(0, "click(1)", "[2] heading \"Figs\"\n[3] button \"Buy\"", ObservationKind::Tree),
                turn(1, "click(3)", "", ObservationKind::Image),
            ],
            outcome: Outcome { reward: Some(1.0), success: None },
            pool: None,
        }
    }

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_string() + "\n").collect()
    }

    fn opened() -> View {
        let mut view = View::new(Filter::default(), 7);
        view.hear(News::Found(vec![Summary::new(Place { file: 0, row: 0 }, &trajectory())]));
        view.hear(News::Done);
        view.show(trajectory());
        view
    }

    #[test]
    fn the_list_and_what_was_known_before_stand_side_by_side() {
        let found = screen(&mut opened(), 100, 20);
        let expected = expect_test::expect_file!["view_list.txt"];
        expected.assert_eq(&found);
        assert!(!found.contains('\u{1b}'));
    }

    #[test]
    fn a_narrow_terminal_shows_one_side_and_a_turn_shows_its_observation() {
        let mut view = opened();
        view.focus = Focus::Turns;
        view.shows_thoughts = true;
        if let Some(opened) = &mut view.opened {
            opened.page = 1;
        }
        expect_test::expect_file!["view_turn.txt"].assert_eq(&screen(&mut view, 60, 16));
        if let Some(opened) = &mut view.opened {
            (opened.page, opened.scroll) = (2, 99);
        }
        let found = screen(&mut view, 60, 16);
        assert!(found.contains("(an image)") && found.contains("turn 2 of 2"), "{found}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (3, 2), (20, 4), (300, 100)] {
            for help in [true, false] {
                let mut view = opened();
                view.shows_help = help;
                screen(&mut view, width, height);
                screen(&mut View::new(Filter::default(), 0), width, height);
            }
        }
    }
}
