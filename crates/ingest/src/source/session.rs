//! A terminal session to turns: what was typed, and what a person would have seen after it.
//!
//! With input events the action is the keys up to Enter, a control key, or a pause; in a full-screen program every input
//! event is one. The observation is what was written from the line of the cursor on, or the whole screen of a program
//! that fills it.
//!
//! Without input events the typed words are read off the screen. A *prompt* is a line that ends like one, with the cursor
//! after it, while nothing happens for a moment. What follows it when the cursor leaves the line is the command; what
//! stands between that line and the next prompt of the same kind is the observation, or the last full screen if the
//! command had one. A continuation prompt straight after a command adds its line to it.

use avt::{ScreenKind, Terminal};
use worldloom_schema::{ActionKind, Turn};

use crate::episode::turn;
use crate::refusal::Refusal;

/// A prompt is followed by nothing for this long.
const PROMPT_PAUSE_SECONDS: f64 = 0.03;
/// Keys that stop for this long are an action even without Enter.
const KEYS_PAUSE_SECONDS: f64 = 2.0;
/// What a prompt may end with, before the space.
const PROMPT_ENDS: [&str; 8] = ["$", "#", "%", ">", "❯", "»", "λ", "]:"];
/// Prompts of lines that go on.
const CONTINUATIONS: [&str; 4] = [">", "...", "...:", "dquote>"];
const MAX_PROMPT_CHARS: usize = 120;

/// Something that happened in a recording.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Seconds from the start.
    pub(crate) time: f64,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Output(String),
    Input(String),
    Resize(usize, usize),
    /// The exit status.
    Exit(String),
    /// A marker or something newer.
    Other,
}

/// What a recording gave.
#[derive(Default)]
pub(crate) struct Session {
    /// What was on the screen before the first action.
    pub(crate) initial_state: Option<String>,
    pub(crate) turns: Vec<Turn>,
    first_prompt: Option<String>,
}

impl Session {
    /// Plays a recording in a terminal of this size.
    pub(crate) fn play(columns: usize, rows: usize, events: &[Event]) -> Result<Self, Refusal> {
        let terminal = Terminal::with_scrollback(columns, rows, None)
            .map_err(|error| Refusal::new("cast_header", error.to_string()))?;
        let mut screen = Screen { terminal, last_full: None };
        if events.iter().any(|event| matches!(event.kind, Kind::Input(_))) {
            Ok(play_with_keys(&mut screen, events))
        } else {
            Ok(play_by_prompts(&mut screen, events))
        }
    }
}

/// The emulator, and the last screen of a program that filled it.
struct Screen {
    terminal: Terminal,
    last_full: Option<String>,
}

impl Screen {
    fn is_full(&self) -> bool {
        self.terminal.active_screen_kind() == ScreenKind::Alternate
    }

    fn feed(&mut self, data: &str) {
        // A program clears the screen it leaves: what was there before is what was seen.
        if self.is_full() {
            self.last_full = Some(self.visible());
        }
        self.terminal.feed(data);
        if self.is_full() {
            self.last_full = Some(self.visible());
        }
    }

    /// The visible screen as text.
    fn visible(&self) -> String {
        let lines: Vec<String> =
            self.terminal.screen().visible_lines().map(|line| line.text().trim_end().to_string()).collect();
        lines.join("\n").trim_end().to_string()
    }

    /// All lines of the primary screen, soft wraps joined, without those that are empty at the end.
    fn lines(&self) -> Vec<String> {
        self.terminal.primary_screen().text()
    }

    /// The index of the cursor's line among [`Screen::lines`].
    fn cursor_line(&self) -> usize {
        let screen = self.terminal.primary_screen();
        let total = screen.all_lines().count();
        let visible = screen.visible_lines().len();
        let physical = total - visible + self.terminal.cursor().row.min(visible.saturating_sub(1));
        screen.all_lines().take(physical).filter(|line| !line.is_wrapped()).count()
    }

    /// The text of the cursor's line before it, if nothing stands after it.
    fn before_cursor(&self) -> Option<String> {
        let cursor = self.terminal.cursor();
        let line = self.terminal.screen().line(cursor.row)?;
        let before: String = line.chars().take(cursor.col).collect();
        let after: String = line.chars().skip(cursor.col).collect();
        after.trim().is_empty().then_some(before)
    }

    /// Forgets all lines above the screen, so that a long session costs no more per line than a short one.
    fn forget_history(&mut self) {
        let (columns, rows) = self.terminal.size();
        let dump = self.terminal.dump();
        if let Ok(mut fresh) = Terminal::with_scrollback(columns, rows, None) {
            fresh.feed(dump.as_str());
            self.terminal = fresh;
        }
    }
}

/// Lines `from..to` as one text.
fn text_of(lines: &[String], from: usize, to: usize) -> String {
    let to = to.min(lines.len());
    lines.get(from.min(to)..to).unwrap_or_default().join("\n").trim_end().to_string()
}

fn play_with_keys(screen: &mut Screen, events: &[Event]) -> Session {
    let mut session = Session::default();
    let (mut keys, mut is_sent, mut last_key, mut start) = (String::new(), false, 0.0, 0);
    for event in events {
        match &event.kind {
            Kind::Input(data) => {
                let has_paused = event.time - last_key >= KEYS_PAUSE_SECONDS;
                if !keys.is_empty() && (is_sent || has_paused) {
                    session.push_keys(std::mem::take(&mut keys), screen, start);
                }
                if keys.is_empty() {
                    session.initial_state.get_or_insert_with(|| screen.visible());
                    start = screen.cursor_line();
                }
                keys.push_str(data);
                last_key = event.time;
                let is_control = |letter: char| letter.is_control() && letter != '\t' && letter != '\u{7f}';
                is_sent = screen.is_full() || data.chars().next_back().is_some_and(is_control);
            }
            Kind::Output(data) => screen.feed(data),
            Kind::Resize(columns, rows) => screen.terminal.resize(*columns, *rows),
            Kind::Exit(_) | Kind::Other => {}
        }
    }
    if !keys.is_empty() {
        session.push_keys(keys, screen, start);
    }
    session.add_exit(events);
    session
}

impl Session {
    /// The exit status of the session, as a flag of the last turn.
    fn add_exit(&mut self, events: &[Event]) {
        let status = events.iter().rev().find_map(|event| match &event.kind {
            Kind::Exit(status) => Some(status),
            _ => None,
        });
        if let (Some(turn), Some(status)) = (self.turns.last_mut(), status) {
            turn.flags.push(format!("session_exit:{status}"));
        }
    }

    fn push_keys(&mut self, keys: String, screen: &Screen, start: usize) {
        let (text, flag) = match screen.is_full() {
            true => (screen.visible(), "screen:full"),
            false => (text_of(&screen.lines(), start, usize::MAX), "screen:lines"),
        };
        let mut turn = turn(keys, ActionKind::Keystrokes, text);
        turn.flags.push(flag.into());
        self.turns.push(turn);
    }
}

/// Where a session without input events is.
enum State {
    /// No prompt has been seen.
    Start,
    /// At a prompt, whose text and line these are; a command may have begun on earlier lines.
    Prompt { prompt: String, line: usize, begun: Option<String> },
    /// A command runs; its output begins at this line.
    Running { command: String, from: usize },
}

fn play_by_prompts(screen: &mut Screen, events: &[Event]) -> Session {
    let (mut session, mut state) = (Session::default(), State::Start);
    for (at, event) in events.iter().enumerate() {
        match &event.kind {
            Kind::Output(data) => screen.feed(data),
            Kind::Resize(columns, rows) => screen.terminal.resize(*columns, *rows),
            Kind::Input(_) | Kind::Exit(_) | Kind::Other => continue,
        }
        if screen.is_full() {
            if let State::Prompt { prompt, line, begun } = state {
                state = left_prompt(screen, prompt, line, begun);
            }
            continue;
        }
        if let State::Prompt { prompt, line, begun } = state {
            state = left_prompt(screen, prompt, line, begun);
        }
        let is_last = events.get(at + 1).is_none_or(|next| next.time - event.time >= PROMPT_PAUSE_SECONDS);
        if is_last && let Some(prompt) = prompt_here(screen) {
            state = at_prompt(screen, state, prompt, &mut session);
        }
    }
    if let State::Running { command, from } = state {
        let line = screen.cursor_line() + 1;
        session.push_command(command, screen, from, line);
        if let Some(turn) = session.turns.last_mut() {
            turn.flags.push("ends_with:recording".into());
        }
    }
    session.add_exit(events);
    session
}

/// The prompt that the cursor stands after, if it does.
fn prompt_here(screen: &Screen) -> Option<String> {
    let before = screen.before_cursor()?;
    let bare = before.trim_end();
    let is_short = (1..=MAX_PROMPT_CHARS).contains(&before.chars().count());
    (is_short && before.ends_with(' ') && end_of(bare).is_some()).then_some(before)
}

/// What a prompt ends with.
fn end_of(prompt: &str) -> Option<&'static str> {
    let is_continuation = CONTINUATIONS.iter().find(|text| prompt.trim() == **text);
    is_continuation.or_else(|| PROMPT_ENDS.iter().find(|end| prompt.ends_with(**end))).copied()
}

/// Whether two prompts are of one kind: the same end and the same first letter.
fn is_same_kind(one: &str, other: &str) -> bool {
    end_of(one.trim_end()) == end_of(other.trim_end())
        && one.trim_start().chars().next() == other.trim_start().chars().next()
}

/// The state after the cursor may have left the line of the prompt.
fn left_prompt(screen: &Screen, prompt: String, line: usize, begun: Option<String>) -> State {
    if !screen.is_full() && screen.cursor_line() == line {
        return State::Prompt { prompt, line, begun };
    }
    let lines = screen.lines();
    let bare = prompt.trim_end();
    // A screen that was cleared has moved its lines: the last one that begins with the prompt is meant.
    let is_here = lines.get(line).is_some_and(|text| text.starts_with(bare));
    let found = if is_here { Some(line) } else { (0..lines.len()).rev().find(|at| lines[*at].starts_with(bare)) };
    let Some(line) = found else { return State::Prompt { prompt, line, begun } };
    let typed = lines[line][bare.len()..].trim_end();
    let command = match begun {
        // Its indentation belongs to a line that goes on: to Python it is what the line means.
        Some(begun) => format!("{begun}\n{}", typed.strip_prefix(' ').unwrap_or(typed)),
        None => typed.trim_start().to_string(),
    };
    State::Running { command, from: line + 1 }
}

/// The state at a prompt: the first one, the next after a command, or a line that goes on.
fn at_prompt(screen: &mut Screen, state: State, found: String, session: &mut Session) -> State {
    let line = screen.cursor_line();
    match state {
        State::Start => {
            session.initial_state = Some(text_of(&screen.lines(), 0, line + 1));
            session.first_prompt = Some(found.clone());
            State::Prompt { prompt: found, line, begun: None }
        }
        State::Prompt { prompt, line, begun } => State::Prompt { prompt, line, begun },
        State::Running { command, from } => {
            let first = session.first_prompt.clone().unwrap_or_else(|| found.clone());
            if !is_same_kind(&found, &first) {
                let is_continuation = CONTINUATIONS.contains(&found.trim()) && line == from;
                return match is_continuation {
                    true => State::Prompt { prompt: found, line, begun: Some(command) },
                    false => State::Running { command, from },
                };
            }
            session.push_command(command, screen, from, line);
            screen.last_full = None;
            screen.forget_history();
            State::Prompt { prompt: found, line: screen.cursor_line(), begun: None }
        }
    }
}

impl Session {
    fn push_command(&mut self, command: String, screen: &Screen, from: usize, to: usize) {
        if command.is_empty() {
            return;
        }
        let prompt = self.first_prompt.as_deref().unwrap_or_default();
        let is_code = matches!(end_of(prompt.trim_end()), Some("]:")) || prompt.trim_start().starts_with(">>>");
        let kind = if is_code { ActionKind::Code } else { ActionKind::Command };
        let (text, flag) = match &screen.last_full {
            Some(full) => (full.clone(), "screen:full"),
            None => (text_of(&screen.lines(), from, to), "screen:lines"),
        };
        let mut turn = turn(command, kind, text);
        turn.flags.push(flag.into());
        self.turns.push(turn);
    }
}
