//! ShareGPT rows: `conversations` of `{from, value}`, with calls and results as roles of their own (LLaMA-Factory) or
//! as `<tool_call>` and `<tool_response>` tags (Hermes, Qwen).
//!
//! Task group: see [`assemble`](super::assemble).

use serde_json::value::RawValue;

use super::content::split_thoughts;
use super::{Facts, FormatInfo, Origin, Source, assemble, tags};
use crate::episode::{Answer, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct ShareGpt;

impl Source for ShareGpt {
    fn name(&self) -> &'static str {
        "sharegpt"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "ShareGPT conversations whose calls and results are roles or <tool_call> tags".into(),
            example: r#"{"conversations": [{"from": "human", "value": "List the files."}, {"from": "function_call", "value": "{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}"}, {"from": "observation", "value": "notes.txt"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        first_has(piece, &["from"])
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = messages(piece.row().unwrap_or_default())?;
        let mut episode = Episode::default();
        let mut agent_prompt = Vec::new();
        agent_prompt.extend(json::text(&fields, "system")?);
        for (at, raw) in messages.iter().enumerate() {
            let Value::Object(message) = Value::of(raw)? else {
                return Err(Refusal::new("message_type", format!("conversations[{at}]: expected an object")));
            };
            add_message(&message, &mut episode, &mut agent_prompt)
                .map_err(|refusal| Refusal { detail: format!("conversations[{at}]: {}", refusal.detail), ..refusal })?;
        }
        let facts = Facts::of(self.name(), agent_prompt.join("\n\n"));
        let finished = episode.finish();
        out.add_counts(&finished.counts);
        out.push(assemble(&fields, facts, finished)?.finish(origin)?);
        Ok(())
    }
}

/// Whether the first message is an object with all of these keys.
pub(super) fn first_has(piece: &Piece<'_>, keys: &[&str]) -> bool {
    let Some(Ok((_, messages))) = piece.row().map(messages) else { return false };
    let first = messages.first().map(|raw| Value::parse(raw.get()));
    matches!(first, Some(Ok(Value::Object(fields))) if keys.iter().all(|key| fields.contains_key(*key)))
}

pub(super) fn messages(row: &str) -> Result<(Fields<'_>, Vec<&RawValue>), Refusal> {
    let fields = match Value::parse(row).map_err(|error| Refusal::json(&error))? {
        Value::List(messages) => return Ok((Fields::new(), messages)),
        Value::Object(fields) => fields,
        other => return Err(Refusal::field_type("row", "an object", other.kind())),
    };
    let Some(raw) = fields.get("conversations").or_else(|| fields.get("conversation")).copied() else {
        return Err(Refusal::new("no_messages", "no field conversations"));
    };
    match Value::of(raw)? {
        Value::List(messages) => Ok((fields, messages)),
        other => Err(Refusal::field_type("conversations", "a list", other.kind())),
    }
}

fn add_message(message: &Fields<'_>, episode: &mut Episode, agent_prompt: &mut Vec<String>) -> Result<(), Refusal> {
    let role = json::text(message, "from")?.unwrap_or_default();
    let value = json::text(message, "value")?.unwrap_or_default();
    match role.as_str() {
        "system" => agent_prompt.push(value),
        "human" | "user" if value.contains("<tool_response>") => add_answers(&value, episode),
        "human" | "user" => episode.user(value),
        "gpt" | "assistant" | "model" => add_words(&value, episode)?,
        "function_call" | "tool_call" => {
            episode.start_batch();
            tags::json_calls(&value)?.into_iter().for_each(|call| episode.call(call));
        }
        "observation" | "tool" | "function" if value.contains("<tool_response>") => add_answers(&value, episode),
        "observation" | "tool" | "function" => episode.answer(Answer { text: value, ..Answer::default() }),
        _ => return Err(Refusal::new("role", format!("unknown role `{role}`"))),
    }
    Ok(())
}

fn add_answers(value: &str, episode: &mut Episode) {
    tags::answers(value).into_iter().for_each(|answer| episode.answer(answer));
}

/// Words of the agent, thoughts and `<tool_call>` blocks in them.
fn add_words(value: &str, episode: &mut Episode) -> Result<(), Refusal> {
    let (thoughts, words) = split_thoughts(value);
    thoughts.iter().for_each(|text| episode.thoughts(text));
    let (calls, words) = tags::calls(&words)?;
    episode.thoughts(&words);
    if !calls.is_empty() {
        episode.start_batch();
    }
    calls.into_iter().for_each(|call| episode.call(call));
    Ok(())
}
