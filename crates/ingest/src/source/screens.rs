//! Screens and the actions between them: what the recordings of phones, pages and desktops have in common.
//!
//! A recording shows a screen, acts on it and shows the next one. The first screen is the initial state; each later
//! one is the observation of the action before it. An action after which no screen was recorded makes no turn, since
//! nobody knows what it did, and is counted as `actions_without_a_screen`.

use worldloom_schema::{ActionKind, ObservationKind, Turn};

use super::{Draft, Origin};
use crate::json::{self, Value, quote, respace};
use crate::piece::Sink;
use crate::refusal::{Counts, Refusal, count};

/// What a recording shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Screen {
    /// A tree, in the form of [`tree`](super::tree) or as it came.
    Tree(String),
    /// Pixels only.
    Image,
}

/// What was done on a screen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Act {
    /// The action as text.
    pub(crate) text: String,
    /// How it is written.
    pub(crate) kind: ActionKind,
    /// Thoughts before it.
    pub(crate) reasoning: Option<String>,
    /// Whether the environment refused it.
    pub(crate) is_error: Option<bool>,
    /// Facts as `name:value`.
    pub(crate) flags: Vec<String>,
}

impl Act {
    /// A call of a named action with arguments as JSON text.
    pub(crate) fn call<'a>(name: &str, arguments: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        let arguments: Vec<String> =
            arguments.into_iter().map(|(key, value)| format!("{}: {}", quote(key), respace(&value))).collect();
        let text = format!("{{\"name\": {}, \"arguments\": {{{}}}}}", quote(name), arguments.join(", "));
        let flags = if name.is_empty() { Vec::new() } else { vec![format!("family:{name}")] };
        Self { text, kind: ActionKind::ToolCall, reasoning: None, is_error: None, flags }
    }

    /// A call from an object that names its action in the field `key`; what is null is left out.
    pub(crate) fn from_object(object: &str, key: &str) -> Result<Self, Refusal> {
        let pairs = json::pairs(object).map_err(|error| Refusal::new("action", format!("no object: {error}")))?;
        match pairs.iter().find(|(name, _)| name == key).map(|(_, raw)| Value::of(raw)).transpose()? {
            Some(Value::Text(name)) => {
                let others = pairs.iter().filter(|(name, raw)| name != key && raw.get() != "null");
                Ok(Self::call(&name, others.map(|(name, raw)| (name.as_str(), raw.get().to_string()))))
            }
            _ => Err(Refusal::new("call_name", format!("an action without its name in `{key}`"))),
        }
    }

    /// Program text.
    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self { text: text.into(), kind: ActionKind::Code, reasoning: None, is_error: None, flags: Vec::new() }
    }

    /// Words.
    pub(crate) fn words(text: impl Into<String>) -> Self {
        Self { kind: ActionKind::Text, ..Self::code(text) }
    }

    /// With the thoughts before it; empty ones are none.
    pub(crate) fn because(mut self, thoughts: Option<String>) -> Self {
        self.reasoning = thoughts.map(|text| text.trim().to_string()).filter(|text| !text.is_empty());
        self
    }

    /// With a flag.
    pub(crate) fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push(format!("{name}:{value}"));
        self
    }
}

/// Builds the turns of one recording.
#[derive(Default)]
pub(crate) struct Screens {
    initial: Option<Screen>,
    turns: Vec<Turn>,
    waiting: Option<Act>,
    counts: Counts,
}

impl Screens {
    /// A screen: the answer to the action that waits for one, or the state before the first action.
    pub(crate) fn show(&mut self, screen: Screen) {
        if screen == Screen::Image {
            count(&mut self.counts, "images_left_out", 1);
        }
        match self.waiting.take() {
            Some(act) => self.turns.push(turn(self.turns.len(), act, screen)),
            None if self.turns.is_empty() => self.initial = Some(screen),
            None => count(&mut self.counts, "screens_without_an_action", 1),
        }
    }

    /// An action on the screen shown last.
    pub(crate) fn act(&mut self, act: Act) {
        if self.waiting.replace(act).is_some() {
            count(&mut self.counts, "actions_without_a_screen", 1);
        }
    }

    /// Whether the environment refused the action that was answered last.
    pub(crate) fn set_error(&mut self, is_error: bool) {
        self.turns.last_mut().into_iter().for_each(|turn| turn.is_error = Some(is_error));
    }

    /// Counts something left out.
    pub(crate) fn leave_out(&mut self, name: &'static str, number: u64) {
        count(&mut self.counts, name, number);
    }

    /// The first screen as an initial state, and the turns.
    pub(crate) fn finish(mut self, counts: &mut Counts) -> (Option<String>, Vec<Turn>) {
        let unanswered = u64::from(self.waiting.is_some());
        count(&mut self.counts, "actions_without_a_screen", unanswered);
        self.counts.iter().for_each(|(name, number)| count(counts, name, *number));
        let initial = self.initial.map(|screen| match screen {
            Screen::Tree(text) => text,
            Screen::Image => "[image]".into(),
        });
        (initial, self.turns)
    }

    /// Gives the trajectory: `draft` with the first screen as its initial state and the turns.
    pub(crate) fn give(self, mut draft: Draft, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        (draft.system.initial_state, draft.turns) = self.finish(out.counts);
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

fn turn(index: usize, act: Act, screen: Screen) -> Turn {
    let (observation, observation_kind) = match screen {
        Screen::Tree(text) => (text, ObservationKind::Tree),
        Screen::Image => (String::new(), ObservationKind::Image),
    };
    Turn {
        index: index as u32,
        action: act.text,
        action_kind: act.kind,
        observation,
        observation_kind,
        reasoning: act.reasoning,
        pre_state: None,
        trace: None,
        is_error: act.is_error,
        truncated: false,
        flags: act.flags,
        keep_class: None,
        keep: None,
    }
}
