//! A format of the user's own: a TOML file that says where the messages are, who acts and who observes.
//!
//! Any JSON whose episodes are lists of messages can be read so, without a line of Rust:
//!
//! ```toml
//! messages = "log.entries"       # path to the list, from the row
//! role = "who"                   # path inside a message
//! content = "text"
//! action_kind = "command"        # or tool_call, code, keystrokes, text
//! domain = "terminal"
//!
//! [roles]
//! agent = ["bot"]                # what it says is the action
//! environment = ["shell"]        # what it says is the observation
//! user = ["human"]
//! system = ["setup"]
//! thoughts = ["plan"]
//! ignore = ["debug"]
//! ```
//!
//! A path is names of fields joined by dots. A role that is in no list refuses the row. With `action` and `observation`
//! in place of `roles`, each message is a step that holds both.

use std::path::Path;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::RawValue;
use worldloom_schema::{ActionKind, Domain, System};

use super::{Draft, FormatInfo, Origin, Source, content};
use crate::episode::{Answer, Episode};
use crate::error::{Error, Result};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The file as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    messages: String,
    role: Option<String>,
    content: Option<String>,
    action: Option<String>,
    observation: Option<String>,
    reasoning: Option<String>,
    error: Option<String>,
    #[serde(default)]
    roles: Roles,
    action_kind: Option<ActionKind>,
    domain: Option<String>,
    task: Option<String>,
    task_group: Option<String>,
    tools: Option<String>,
    initial_state: Option<String>,
    success: Option<String>,
    reward: Option<String>,
    licence: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Roles {
    agent: Vec<String>,
    environment: Vec<String>,
    user: Vec<String>,
    system: Vec<String>,
    thoughts: Vec<String>,
    ignore: Vec<String>,
}

/// The format.
#[derive(Debug, Clone)]
pub(crate) struct MappedSource {
    map: Map,
    domain: Option<Domain>,
    text: String,
}

impl MappedSource {
    /// Reads and checks the file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs_err::read_to_string(path)?;
        let wrong = |detail: String| Error::Map { path: path.into(), detail };
        let map: Map = toml::from_str(&text).map_err(|error| wrong(error.to_string().trim().into()))?;
        let domain = map.domain.as_deref().map(Domain::from_str).transpose().map_err(&wrong)?;
        let has_roles = map.role.is_some() && map.content.is_some() && !map.roles.agent.is_empty();
        let has_steps = map.action.is_some() && map.observation.is_some();
        if has_roles == has_steps {
            return Err(wrong(
                "expected either `role`, `content` and `roles.agent`, or `action` and `observation`".into(),
            ));
        }
        if has_roles && map.roles.environment.is_empty() {
            return Err(wrong("`roles.environment` is empty: nothing would be an observation".into()));
        }
        Ok(Self { map, domain, text })
    }

    /// The file's text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn add_message(
        &self,
        message: &RawValue,
        episode: &mut Episode,
        prompt: &mut Vec<String>,
        out: &mut Sink<'_>,
    ) -> std::result::Result<(), Refusal> {
        let text =
            |path: &Option<String>, out: &mut Sink<'_>| -> std::result::Result<Option<content::Content>, Refusal> {
                let raw = path.as_deref().and_then(|path| at(message, path));
                raw.map(|raw| content::read(Some(raw), out.counts)).transpose()
            };
        if let Some(reasoning) = text(&self.map.reasoning, out)? {
            episode.thoughts(&reasoning.text);
        }
        let is_error =
            self.map.error.as_deref().and_then(|path| at(message, path)).and_then(|raw| match Value::of(raw) {
                Ok(Value::Bool(value)) => Some(value),
                Ok(Value::Number(digits)) => Some(digits != "0"),
                _ => None,
            });
        if self.map.action.is_some() {
            if let Some(action) = text(&self.map.action, out)? {
                self.act(action.text, episode);
            }
            if let Some(observation) = text(&self.map.observation, out)? {
                episode.answer(answer(observation, is_error));
            }
            return Ok(());
        }
        let role = self.map.role.as_deref().and_then(|path| at(message, path)).map(plain).unwrap_or_default();
        let content = text(&self.map.content, out)?.unwrap_or_default();
        let is = |names: &[String]| names.contains(&role);
        let roles = &self.map.roles;
        match () {
            () if is(&roles.agent) => self.act(content.text, episode),
            () if is(&roles.environment) => episode.answer(answer(content, is_error)),
            () if is(&roles.user) => episode.user(content.text),
            () if is(&roles.system) => prompt.push(content.text),
            () if is(&roles.thoughts) => episode.thoughts(&content.text),
            () if is(&roles.ignore) => out.count("messages_ignored_by_the_map", 1),
            () => return Err(Refusal::new("role", format!("role `{role}` is in no list of the map"))),
        }
        Ok(())
    }

    fn act(&self, action: String, episode: &mut Episode) {
        episode.start_batch();
        episode.act(None, String::new(), action, self.map.action_kind.unwrap_or(ActionKind::Text), Vec::new());
    }
}

impl Source for MappedSource {
    fn name(&self) -> &'static str {
        "map"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A format of your own, described by a TOML file (--map)".into(),
            example: String::new(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let raw = piece.row().and_then(|row| serde_json::from_str::<&RawValue>(row).ok());
        raw.and_then(|raw| at(raw, &self.map.messages)).is_some_and(|raw| matches!(Value::of(raw), Ok(Value::List(_))))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> std::result::Result<(), Refusal> {
        let row: &RawValue =
            serde_json::from_str(piece.row().unwrap_or_default()).map_err(|error| Refusal::json(&error))?;
        let list = at(row, &self.map.messages);
        let messages = match list.map(Value::of).transpose()? {
            Some(Value::List(messages)) => messages,
            Some(other) => return Err(Refusal::field_type(&self.map.messages, "a list", other.kind())),
            None => return Err(Refusal::new("no_messages", format!("nothing at `{}`", self.map.messages))),
        };
        let (mut episode, mut prompt) = (Episode::default(), Vec::new());
        for (at, message) in messages.iter().enumerate() {
            self.add_message(message, &mut episode, &mut prompt, out)
                .map_err(|refusal| Refusal { detail: format!("message {at}: {}", refusal.detail), ..refusal })?;
        }
        let finished = episode.finish();
        out.add_counts(&finished.counts);
        let field = |path: &Option<String>| path.as_deref().and_then(|path| at(row, path)).map(plain);
        let prompt = Some(prompt.join("\n\n")).filter(|prompt| !prompt.is_empty());
        let draft = Draft {
            format: self.name(),
            domain: self.domain,
            task_group: field(&self.map.task_group),
            licence: field(&self.map.licence),
            system: System {
                task_description: field(&self.map.task).unwrap_or(finished.task),
                action_space: field(&self.map.tools).or(prompt),
                initial_state: field(&self.map.initial_state),
                ..System::default()
            },
            turns: finished.turns,
            outcome: worldloom_schema::Outcome {
                reward: field(&self.map.reward).and_then(|text| text.parse().ok()),
                success: field(&self.map.success).map(|text| matches!(text.as_str(), "true" | "1" | "1.0")),
            },
            source: None,
        };
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

fn answer(content: content::Content, is_error: Option<bool>) -> Answer {
    Answer {
        is_image_only: content.images > 0 && content.text.is_empty(),
        text: content.text,
        is_error,
        ..Answer::default()
    }
}

/// The value at a path of field names; a list is entered by its index. The empty path is the value itself.
fn at<'a>(raw: &'a RawValue, path: &str) -> Option<&'a RawValue> {
    let mut raw = raw;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        raw = match Value::of(raw).ok()? {
            Value::Object(fields) => field(&fields, name)?,
            Value::List(items) => *items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    (raw.get() != "null").then_some(raw)
}

fn field<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a RawValue> {
    fields.get(name).copied()
}

/// A string without its quotes, all else as [`json::data`] writes it.
fn plain(raw: &RawValue) -> String {
    match Value::of(raw) {
        Ok(Value::Text(text)) => text,
        _ => json::data(raw),
    }
}
