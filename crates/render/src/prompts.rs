//! Prompts of RL: one entry per selected turn, with history and truth for the scorer.

use std::path::Path;

use worldloom_schema::{PROMPT_FILE, Prompt, PromptTurn, TableWriter, Trajectory};

use crate::error::{Refusal, Result};
use crate::renderer::Rendered;
use crate::report::Tally;
use crate::run::Sink;

pub(crate) struct PromptSink {
    writer: Option<TableWriter<Prompt>>,
    max_tokens: usize,
}

impl PromptSink {
    pub(crate) fn create(out: &Path, max_tokens: usize) -> Result<Self> {
        Ok(Self { writer: Some(TableWriter::create(&out.join(PROMPT_FILE))?), max_tokens })
    }
}

impl Sink for PromptSink {
    fn take(&mut self, trajectory: &Trajectory, turn: usize, rendered: Rendered, tally: &mut Tally) -> Result<()> {
        let length = rendered.tokens.len();
        if length > self.max_tokens {
            tally.drop_document(Refusal::TooLong, length);
            return Ok(());
        }
        tally.add("tokens", length as u64);
        tally.add("prompts", 1);
        if let Some(writer) = &mut self.writer {
            writer.push(prompt_of(trajectory, turn, rendered.tokens))?;
        }
        Ok(())
    }

    fn finish(&mut self, _tally: &mut Tally) -> Result<f64> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        Ok(0.0)
    }
}

/// The prompt entry of one turn.
pub(crate) fn prompt_of(trajectory: &Trajectory, turn: usize, tokens: Vec<u32>) -> Prompt {
    let target = &trajectory.turns[turn];
    let history = trajectory.turns[..turn].iter();
    Prompt {
        prompt_id: format!("{}#{turn}", trajectory.trajectory_id),
        trajectory_id: trajectory.trajectory_id.clone(),
        turn: turn as u32,
        domain: trajectory.domain,
        task_group: trajectory.task_group.clone(),
        tokens,
        initial_state: trajectory.system.initial_state.clone(),
        history: history
            .map(|turn| PromptTurn { action: turn.action.clone(), observation: turn.observation.clone() })
            .collect(),
        action: target.action.clone(),
        observation: target.observation.clone(),
        flags: target.flags.clone(),
    }
}
