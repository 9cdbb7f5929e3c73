//! OpenHands SDK completion logs: one file per call of the model, with all messages before it.
//!
//! Such files are prefixes of one another: curate keeps each turn once. `raw_messages`, where there are any, are the
//! messages before the SDK wrote calls as text; they are read in place of `messages`. The last call of a session is only
//! in `response` and has no result; it is counted. Task group: see [`assemble`](super::assemble).

use worldloom_schema::Domain;

use super::{Facts, FormatInfo, Origin, Source, assemble, messages};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct OpenHandsLlm;

impl Source for OpenHandsLlm {
    fn name(&self) -> &'static str {
        "openhands-llm"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "OpenHands SDK completion logs: `messages`, `tools`, `response` of one call of the model".into(),
            example: r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "List the files."}]}, {"role": "assistant", "content": [], "tool_calls": [{"id": "a", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls\"}"}}]}, {"role": "tool", "tool_call_id": "a", "name": "terminal", "content": [{"type": "text", "text": "notes.txt"}]}], "tools": [], "kwargs": {}, "response": {"choices": []}, "latency_sec": 1.5}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        ["messages", "response", "latency_sec"].iter().all(|name| fields.contains_key(*name))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let row = piece.row().unwrap_or_default();
        let Value::Object(fields) = Value::parse(row).map_err(|error| Refusal::json(&error))? else {
            return Err(Refusal::new("no_messages", "no field messages"));
        };
        let raw = |name: &str| Some(Value::of(fields.get(name)?));
        let (name, messages) = match (raw("raw_messages"), raw("messages")) {
            (Some(Ok(Value::List(messages))), _) => ("raw_messages", messages),
            (_, Some(Ok(Value::List(messages)))) => ("messages", messages),
            _ => return Err(Refusal::new("no_messages", "no list in field messages")),
        };
        let log = messages::read(&messages, name, out.counts)?;
        out.count("calls_only_in_the_response", pending_calls(&fields));
        let mut draft = assemble(&fields, Facts::of(self.name(), log.agent_prompt), log.finished)?;
        draft.domain = Some(Domain::Swe);
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// Calls of the response, which nothing has answered yet.
fn pending_calls(fields: &json::Fields<'_>) -> u64 {
    let choices = || -> Option<usize> {
        let response = json::object(fields, "response").ok()??;
        let Ok(Value::List(choices)) = Value::of(response.get("choices")?) else { return None };
        let Ok(Value::Object(choice)) = Value::of(choices.first()?) else { return None };
        let message = json::object(&choice, "message").ok()??;
        let Ok(Value::List(calls)) = Value::of(message.get("tool_calls")?) else { return None };
        Some(calls.len())
    };
    choices().unwrap_or(0) as u64
}
