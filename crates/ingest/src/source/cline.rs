//! Cline sessions: Anthropic messages with `file` blocks and named results, the system prompt beside them.
//!
//! A result's own `success` says whether it is an error. Task group: the hash of the task.

use worldloom_schema::Domain;

use super::{Facts, FormatInfo, Origin, Source, assemble, chat, messages};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct Cline;

impl Source for Cline {
    fn name(&self) -> &'static str {
        "cline"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "Cline sessions: `sessionId`, `system_prompt` and Anthropic messages".into(),
            example: r#"{"version": 1, "sessionId": "s", "system_prompt": "You are Cline.", "messages": [{"id": "m1", "role": "user", "content": [{"type": "text", "text": "Rename the pie."}]}, {"id": "m2", "role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "editor", "input": {"path": "pie.py"}}]}, {"id": "m3", "role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "name": "editor", "content": "{\"query\": \"edit:pie.py\", \"result\": \"Edited\", \"success\": true}"}]}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        ["messages", "sessionId", "system_prompt"].iter().all(|name| fields.contains_key(*name))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = chat::parts(piece.row().unwrap_or_default())?;
        let log = messages::read(&messages, "messages", out.counts)?;
        let prompt = json::text(&fields, "system_prompt")?.unwrap_or(log.agent_prompt);
        let mut draft = assemble(&fields, Facts::of(self.name(), prompt), log.finished)?;
        draft.domain = Some(Domain::Swe);
        for turn in &mut draft.turns {
            turn.is_error = turn.is_error.or_else(|| succeeded(&turn.observation).map(|success| !success));
        }
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// Whether all results in an observation say that they succeeded; none where one does not say.
fn succeeded(observation: &str) -> Option<bool> {
    let success = |text: &str| match Value::parse(text).ok()? {
        Value::Object(fields) => json::boolean(&fields, "success").ok().flatten(),
        _ => None,
    };
    match Value::parse(observation).ok()? {
        Value::List(items) => {
            let all: Option<Vec<bool>> = items.iter().map(|item| success(item.get())).collect();
            all.filter(|all| !all.is_empty()).map(|all| all.iter().all(|success| *success))
        }
        _ => success(observation),
    }
}
