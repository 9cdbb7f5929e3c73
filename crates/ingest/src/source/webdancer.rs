//! WebDancer samples: ChatML rows whose tools, question, calls and results are all in the text.
//!
//! The fields `functions` and `tool_calls` are out of date and not used: the tools are the `<tools>` block of the first
//! user message, the question is what follows `User:` in it. Task group: the hash of the question.

use worldloom_schema::Domain;

use super::{Facts, FormatInfo, Origin, Source, assemble, chat, messages, tags};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct WebDancer;

impl Source for WebDancer {
    fn name(&self) -> &'static str {
        "webdancer"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "WebDancer samples: `type` chatml, tools and question in the first user message".into(),
            example: r#"{"type": "chatml", "task": "agent/multiturn_search", "messages": [{"role": "system", "content": "You seek."}, {"role": "user", "content": "Tools:\n<tools>\n{\"name\": \"search\"}\n</tools>\n\nUser: Who baked it?"}, {"role": "assistant", "content": "<think>\nI search.\n</think>\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": [\"pie\"]}}\n</tool_call>"}, {"role": "user", "content": "<tool_response>\nA baker.\n</tool_response>"}, {"role": "assistant", "content": "<answer>A baker.</answer>"}], "functions": [], "tool_calls": []}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        fields.contains_key("messages") && json::text(&fields, "type").ok().flatten().as_deref() == Some("chatml")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (mut fields, messages) = chat::parts(piece.row().unwrap_or_default())?;
        for name in ["task", "functions", "tools"] {
            fields.remove(name);
        }
        let log = messages::read(&messages, "messages", out.counts)?;
        let first = log.finished.task.clone();
        let mut draft = assemble(&fields, Facts::of(self.name(), log.agent_prompt), log.finished)?;
        let (tools, _) = tags::split_tag(&first, "<tools>", "</tools>");
        if let Some(tools) = tools.first() {
            draft.system.action_space = Some(tools.trim().to_string());
        }
        if let Some((_, question)) = first.rsplit_once("\nUser:") {
            draft.system.task_description = question.trim().to_string();
        }
        draft.domain = Some(Domain::Search);
        for turn in &mut draft.turns {
            if turn.observation.starts_with("The useful information in ") {
                turn.flags.push("written_by:model".into());
            }
        }
        out.push(draft.finish(origin)?);
        Ok(())
    }
}
