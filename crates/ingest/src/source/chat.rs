//! OpenAI chat messages with tool calls, the commonest format in the wild.
//!
//! A row is an object with `messages` (or `traj`, `trajectory`), or a bare list of messages. Taken: calls and their
//! results as turns, thoughts (`reasoning_content`, `<think>`, words before a call) as reasoning, `tools` as action
//! space, `metadata` of a result (`note` → trace; `class`, `family`, `exit_code` → flags). Left out, counted: words
//! after the last action, user messages in the middle, images, calls that nothing answered.
//! Task group: see [`assemble`](super::assemble).

use serde_json::value::RawValue;

use super::content::{self, split_thoughts};
use super::{Facts, FormatInfo, Origin, Source, assemble};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal};

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
        let mut episode = Episode::default();
        let mut agent_prompt = Vec::new();
        for (at, raw) in messages.iter().enumerate() {
            let Value::Object(message) = Value::of(raw)? else {
                return Err(Refusal::new("message_type", format!("messages[{at}]: expected an object")));
            };
            add_message(&message, &mut episode, &mut agent_prompt, out.counts)
                .map_err(|refusal| Refusal { detail: format!("messages[{at}]: {}", refusal.detail), ..refusal })?;
        }
        let facts = Facts { format: self.name(), agent_prompt: agent_prompt.join("\n\n") };
        let finished = episode.finish();
        out.add_counts(&finished.counts);
        out.push(assemble(&fields, facts, finished)?.finish(origin)?);
        Ok(())
    }
}

/// The fields of the row and its messages.
fn parts(row: &str) -> Result<(Fields<'_>, Vec<&RawValue>), Refusal> {
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

fn add_message(
    message: &Fields<'_>,
    episode: &mut Episode,
    agent_prompt: &mut Vec<String>,
    counts: &mut Counts,
) -> Result<(), Refusal> {
    let role = json::text(message, "role")?.unwrap_or_default();
    let content = content::read(message.get("content").copied(), counts)?;
    match role.as_str() {
        "system" | "developer" => agent_prompt.push(content.text),
        "user" | "human" => episode.user(content.text),
        "assistant" | "model" => add_assistant(message, content, episode)?,
        "tool" | "function" => episode.answer(answer(message, content)?),
        _ => return Err(Refusal::new("role", format!("unknown role `{role}`"))),
    }
    Ok(())
}

fn add_assistant(message: &Fields<'_>, content: content::Content, episode: &mut Episode) -> Result<(), Refusal> {
    for name in ["reasoning_content", "reasoning", "thinking"] {
        if let Some(Value::Text(text)) = message.get(name).map(|raw| Value::of(raw)).transpose()? {
            episode.thoughts(&text);
        }
    }
    let (thoughts, words) = split_thoughts(&content.text);
    content.thoughts.iter().chain(&thoughts).chain([&words]).for_each(|text| episode.thoughts(text));
    let calls = calls(message)?;
    if !calls.is_empty() {
        episode.start_batch();
    }
    calls.into_iter().for_each(|call| episode.call(call));
    Ok(())
}

/// The calls of a message: `tool_calls`, or the older `function_call`.
fn calls(message: &Fields<'_>) -> Result<Vec<Call>, Refusal> {
    let mut calls = Vec::new();
    match message.get("tool_calls").map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => {}
        Some(Value::List(items)) => {
            for item in items {
                calls.push(call(item)?);
            }
        }
        Some(other) => return Err(Refusal::field_type("tool_calls", "a list", other.kind())),
    }
    if calls.is_empty()
        && let Some(function) = json::object(message, "function_call")?
    {
        calls.push(named_call(None, &function)?);
    }
    Ok(calls)
}

fn call(raw: &RawValue) -> Result<Call, Refusal> {
    let Value::Object(fields) = Value::of(raw)? else {
        return Err(Refusal::new("field_type", "`tool_calls`: expected a list of objects"));
    };
    let id = json::text(&fields, "id")?.filter(|id| !id.is_empty());
    match json::object(&fields, "function")? {
        Some(function) => named_call(id, &function),
        None => named_call(id, &fields),
    }
}

fn named_call(id: Option<String>, function: &Fields<'_>) -> Result<Call, Refusal> {
    let name = json::text(function, "name")?.unwrap_or_default();
    if name.is_empty() {
        return Err(Refusal::new("call_name", "a call without the name of its tool"));
    }
    let arguments = function.get("arguments").or_else(|| function.get("parameters"));
    Ok(Call { id, name, arguments: arguments.map(|raw| raw.get().to_string()) })
}

fn answer(message: &Fields<'_>, content: content::Content) -> Result<Answer, Refusal> {
    let metadata = json::object(message, "metadata")?.unwrap_or_default();
    let mut flags = Vec::new();
    for name in ["class", "family", "exit_code"] {
        flags.extend(json::text(&metadata, name)?.map(|value| format!("{name}:{value}")));
    }
    let exit_code = json::text(&metadata, "exit_code")?;
    let is_error = match exit_code {
        Some(code) => Some(code != "0"),
        None => json::boolean(&metadata, "is_error")?.or(json::boolean(message, "is_error")?),
    };
    Ok(Answer {
        id: result_id(message)?,
        name: json::text(message, "name")?,
        is_image_only: content.images > 0 && content.text.is_empty(),
        text: content.text,
        is_error,
        is_truncated: json::boolean(&metadata, "truncated")?.unwrap_or(false),
        trace: json::text(&metadata, "note")?,
        flags,
    })
}

/// `tool_call_id`, or the first of `tool_call_ids`.
fn result_id(message: &Fields<'_>) -> Result<Option<String>, Refusal> {
    let id = match message.get("tool_call_ids").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::List(ids)) => match ids.first().map(|raw| Value::of(raw)).transpose()? {
            Some(Value::Text(id)) => Some(id),
            _ => None,
        },
        _ => json::text(message, "tool_call_id")?,
    };
    Ok(id.filter(|id| !id.is_empty()))
}
