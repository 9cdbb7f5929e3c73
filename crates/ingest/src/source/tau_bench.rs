//! tau-bench runs: an array of trials, OpenAI messages under `traj`, the customer played by a language model.
//!
//! The customer's words are no observations; those before the first action are left to the task, which is the
//! instruction the customer was given. The agent's policy is the action space, as the tools are not in the file.
//! Task group: `tau-bench/`, the customer's id and the task id, so that all trials of a task stay together.

use worldloom_schema::Domain;

use super::{Facts, FormatInfo, Origin, Source, assemble, chat, messages};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct TauBench;

impl Source for TauBench {
    fn name(&self) -> &'static str {
        "tau-bench"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "tau-bench trials: `traj` with OpenAI messages, `info.task` and `reward`".into(),
            example: r#"{"task_id": 3, "trial": 0, "reward": 1.0, "info": {"task": {"user_id": "ana_1", "instruction": "You want to cancel your order."}}, "traj": [{"role": "system", "content": "Shop policy"}, {"role": "user", "content": "Hello, I am ana_1."}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_user", "arguments": "{\"user_id\": \"ana_1\"}"}}]}, {"role": "tool", "tool_call_id": "a", "name": "get_user", "content": "{\"name\": \"Ana\"}"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        ["traj", "info", "task_id", "trial"].iter().all(|name| fields.contains_key(*name))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = chat::parts(piece.row().unwrap_or_default())?;
        let log = messages::read(&messages, "traj", out.counts)?;
        let mut draft = assemble(&fields, Facts::of(self.name(), log.agent_prompt), log.finished)?;
        let info = json::object(&fields, "info")?.unwrap_or_default();
        let task = json::object(&info, "task")?.unwrap_or_default();
        if let Some(instruction) = json::text(&task, "instruction")? {
            draft.system.task_description = instruction;
        }
        let customer = json::text(&task, "user_id")?.unwrap_or_default();
        let id = json::text(&fields, "task_id")?.unwrap_or_default();
        draft.task_group = Some(format!("{}/{customer}/{id}", self.name()));
        draft.domain = Some(Domain::Mcp);
        draft.outcome.success = draft.outcome.reward.map(|reward| reward >= 1.0);
        for turn in &mut draft.turns {
            if turn.observation.starts_with("Error:") {
                turn.is_error = Some(true);
            }
        }
        out.push(draft.finish(origin)?);
        Ok(())
    }
}
