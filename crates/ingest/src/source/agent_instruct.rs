//! AgentInstruct rows and their kin: `conversations` in which the agent's actions are lines of its words, each message with
//! a `loss` flag.
//!
//! A `gpt` message says `Think:` or `Thought:`, then `Act:` or `Action:`; of an action with a fenced block the block was
//! run. The next `human` message is the answer. Messages before the first action are the task, but for the agent's `OK`.
//! Left out: the heads with which the harness shows an answer. Written after the documentation, no file of upstream was at
//! hand. Task group: see [`assemble`](super::assemble); the domain is that of the part of the data which `id` names, as in
//! `os_12`, else guessed.

use worldloom_schema::{ActionKind, Domain};

use super::sharegpt::{first_has, messages};
use super::{Draft, Facts, FormatInfo, Origin, Source, assemble};
use crate::episode::{Answer, Episode};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AgentInstruct;

/// Labels of an action, in any case, at the start of a line.
const ACTIONS: [&str; 2] = ["act:", "action:"];
/// Labels of a thought.
const THOUGHTS: [&str; 2] = ["think:", "thought:"];
/// How the harness begins an answer.
const HEADS: [&str; 2] = ["The output of the OS:", "Observation:"];

impl Source for AgentInstruct {
    fn name(&self) -> &'static str {
        "agent-instruct"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "AgentInstruct conversations: `Act:` or `Action:` lines in the words of gpt, answers by human, a loss flag".into(),
            example: r#"{"id": "os_0", "conversations": [{"from": "human", "loss": null, "value": "How many files are here?"}, {"from": "gpt", "loss": true, "value": "Think: I list them.\n\nAct: bash\n\n```bash\nls\n```"}, {"from": "human", "loss": null, "value": "The output of the OS:\n\nnotes.txt"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        first_has(piece, &["from", "loss"])
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = messages(piece.row().unwrap_or_default())?;
        let (mut episode, mut is_open) = (Episode::default(), false);
        for (at, raw) in messages.iter().enumerate() {
            let Value::Object(message) = Value::of(raw)? else {
                return Err(Refusal::new("message_type", format!("conversations[{at}]: expected an object")));
            };
            let role = json::text(&message, "from")?.unwrap_or_default();
            let value = json::text(&message, "value")?.unwrap_or_default();
            match role.as_str() {
                "human" | "user" if is_open => {
                    let text = HEADS.iter().find_map(|head| value.strip_prefix(head)).unwrap_or(&value);
                    episode.answer(Answer { text: text.trim().into(), ..Answer::default() });
                    is_open = false;
                }
                "human" | "user" => episode.user(value),
                "gpt" | "assistant" => is_open = add_action(&value, &mut episode) || is_open,
                _ => return Err(Refusal::new("role", format!("conversations[{at}]: unknown role `{role}`"))),
            }
        }
        let finished = episode.finish();
        out.add_counts(&finished.counts);
        let draft = assemble(&fields, Facts::of(self.name(), String::new()), finished)?;
        let id = json::text(&fields, "id")?.unwrap_or_default();
        out.push(Draft { domain: draft.domain.or_else(|| domain(&id)), ..draft }.finish(origin)?);
        Ok(())
    }
}

/// The domain of the part of the data that an id begins with.
fn domain(id: &str) -> Option<Domain> {
    match id.split(['_', '-']).next()? {
        "os" => Some(Domain::Terminal),
        "webshop" | "mind2web" => Some(Domain::Web),
        "kg" => Some(Domain::Search),
        "db" => Some(Domain::Mcp),
        _ => None,
    }
}

/// Adds the words of the agent; whether they hold an action.
fn add_action(words: &str, episode: &mut Episode) -> bool {
    let Some((before, action)) = after_label(words, &ACTIONS) else {
        if episode.has_calls() {
            episode.thoughts(words.trim());
        }
        return false;
    };
    let thought = after_label(before, &THOUGHTS).map_or(before, |(_, thought)| thought);
    episode.thoughts(thought.trim());
    episode.start_batch();
    let (text, kind) = match fenced(action) {
        Some(("bash" | "sh" | "shell", code)) => (code, ActionKind::Command),
        Some((_, code)) => (code, ActionKind::Code),
        None => (action.trim(), ActionKind::Text),
    };
    episode.act(None, String::new(), text.into(), kind, Vec::new());
    true
}

/// What stands before and after the first line that begins with a label.
fn after_label<'a>(text: &'a str, labels: &[&str]) -> Option<(&'a str, &'a str)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let found =
            labels.iter().find(|label| line.get(..label.len()).is_some_and(|head| head.eq_ignore_ascii_case(label)));
        if let Some(label) = found {
            return Some((&text[..start], &text[start + label.len()..]));
        }
        start += line.len();
    }
    None
}

/// Language and content of the first fenced block.
fn fenced(text: &str) -> Option<(&str, &str)> {
    let (language, rest) = text.split_once("```")?.1.split_once('\n')?;
    let code = rest.split_once("```").map_or(rest, |(code, _)| code);
    Some((language.trim(), code.trim_end_matches('\n')))
}
