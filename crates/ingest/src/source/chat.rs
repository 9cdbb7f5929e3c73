//! Chat messages with calls and results: OpenAI's, the commonest format in the wild, Anthropic's blocks, and tags in
//! the text.
//!
//! A row is an object with `messages` (or `traj`, `trajectory`), or a bare list of messages. Taken: calls and their
//! results as turns, thoughts (`reasoning_content`, `<think>`, words before a call) as reasoning, `tools` (else the
//! agent's system prompt) as action space, `metadata` of a result (`note` → trace; `class`, `family`, `exit_code`, `axis`,
//! `axis_distance` → flags). Left out, counted: words after the last action, user messages in the middle, images, calls
//! that nothing answered.
//! Task group: see [`assemble`](super::assemble).

use serde_json::value::RawValue;

use super::{Facts, FormatInfo, Origin, Source, assemble, messages};
use crate::json::{Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Where the messages of a row may be.
const MESSAGE_FIELDS: [&str; 3] = ["messages", "traj", "trajectory"];

/// The format.
pub(crate) struct Chat;

impl Source for Chat {
    fn name(&self) -> &'static str {
        "chat"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "OpenAI chat messages with tool calls: a JSON object with `messages`, or a list of messages".into(),
            example: r#"{"messages": [{"role": "user", "content": "List the files."}, {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}, {"role": "tool", "tool_call_id": "call_0", "content": "notes.txt"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(value)) = piece.row().map(Value::parse) else { return false };
        let has_role = |message: &&RawValue| matches!(Value::parse(message.get()), Ok(Value::Object(fields)) if fields.contains_key("role"));
        match value {
            Value::List(messages) => messages.first().is_some_and(has_role),
            Value::Object(fields) => MESSAGE_FIELDS.iter().filter_map(|name| fields.get(*name)).any(|raw| {
                matches!(Value::parse(raw.get()), Ok(Value::List(messages)) if messages.first().is_none_or(has_role))
            }),
            _ => false,
        }
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = parts(piece.row().unwrap_or_default())?;
        let log = messages::read(&messages, "messages", out.counts)?;
        out.push(assemble(&fields, Facts::of(self.name(), log.agent_prompt), log.finished)?.finish(origin)?);
        Ok(())
    }
}

/// The fields of a row and its messages.
pub(crate) fn parts(row: &str) -> Result<(Fields<'_>, Vec<&RawValue>), Refusal> {
    let fields = match Value::parse(row).map_err(|error| Refusal::json(&error))? {
        Value::List(messages) => return Ok((Fields::new(), messages)),
        Value::Object(fields) => fields,
        other => return Err(Refusal::field_type("row", "an object or a list of messages", other.kind())),
    };
    let Some((name, raw)) = MESSAGE_FIELDS.iter().find_map(|name| Some((*name, *fields.get(*name)?))) else {
        return Err(Refusal::new("no_messages", format!("no field {}", MESSAGE_FIELDS.join(", "))));
    };
    match Value::of(raw)? {
        Value::List(messages) => Ok((fields, messages)),
        other => Err(Refusal::field_type(name, "a list of messages", other.kind())),
    }
}
