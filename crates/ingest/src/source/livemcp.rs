//! LiveMCPBench runs: one task a file, OpenAI messages with calls of MCP servers through two meta tools.
//!
//! The action is the call as the agent sent it (the real tool is inside `execute-tool`). An observation of exactly
//! 10,000 characters was cut by the harness. Task group: `livemcpbench/` and the task id.

use worldloom_schema::Domain;

use super::{Facts, FormatInfo, Origin, Source, assemble, chat, messages};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Characters after which the harness cuts.
const CUT_CHARS: usize = 10_000;

/// The format.
pub(crate) struct LiveMcp;

impl Source for LiveMcp {
    fn name(&self) -> &'static str {
        "livemcpbench"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "LiveMCPBench runs: `Question`, `task_id` and OpenAI messages".into(),
            example: r#"{"task_id": "7", "Question": "How warm is it in Oslo?", "category": "weather", "messages": [{"role": "user", "content": "How warm is it in Oslo?"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "execute-tool", "arguments": "{\"server_name\": \"weather\", \"tool_name\": \"now\", \"params\": {\"city\": \"Oslo\"}}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "content=[TextContent(text='-3')] isError=False"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        ["messages", "Question", "task_id"].iter().all(|name| fields.contains_key(*name))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = chat::parts(piece.row().unwrap_or_default())?;
        let log = messages::read(&messages, "messages", out.counts)?;
        let mut draft = assemble(&fields, Facts::of(self.name(), log.agent_prompt), log.finished)?;
        draft.domain = Some(Domain::Mcp);
        draft.task_group = json::text(&fields, "task_id")?.map(|id| format!("{}/{id}", self.name()));
        if let Some(question) = json::text(&fields, "Question")?.filter(|question| !question.trim().is_empty()) {
            draft.system.task_description = question;
        }
        for turn in &mut draft.turns {
            turn.truncated |= turn.observation.chars().count() == CUT_CHARS;
            let ends = |end: &str| turn.observation.trim_end().ends_with(end);
            turn.is_error = match (ends("isError=True"), ends("isError=False")) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => turn.is_error,
            };
        }
        out.push(draft.finish(origin)?);
        Ok(())
    }
}
