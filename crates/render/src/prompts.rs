//! Prompts of RL: one entry per selected turn, with history and truth for the scorer.

use std::path::Path;

use worldloom_schema::{PROMPT_FILE, Prompt, TableWriter, Trajectory};

use crate::config::Long;
use crate::error::{Refusal, Result};
use crate::fit::fit_target;
use crate::renderer::Rendered;
use crate::report::Tally;
use crate::run::Sink;

pub(crate) struct PromptSink {
    writer: Option<TableWriter<Prompt>>,
    max_tokens: usize,
    long: Long,
}

impl PromptSink {
    pub(crate) fn create(out: &Path, max_tokens: usize, long: Long) -> Result<Self> {
        Ok(Self { writer: Some(TableWriter::create(&out.join(PROMPT_FILE))?), max_tokens, long })
    }
}

impl Sink for PromptSink {
    fn take(&mut self, trajectory: &Trajectory, turn: usize, rendered: Rendered, tally: &mut Tally) -> Result<()> {
        let (length, label) = (rendered.tokens.len(), trajectory.domain.as_str());
        let cut = long_prompt(&rendered, self.max_tokens, self.long);
        tally.cut(length - cut.as_ref().map_or(0, Vec::len));
        let Some(tokens) = cut else {
            tally.drop_document(label, Refusal::TooLong, length);
            return Ok(());
        };
        tally.add("tokens", tokens.len() as u64);
        tally.add("tokens_cut", (length - tokens.len()) as u64);
        tally.add("truncated", u64::from(length > tokens.len()));
        tally.add("prompts", 1);
        let of = tally.of(label);
        of.kept += 1;
        of.tokens += tokens.len() as u64;
        of.lost_tokens += (length - tokens.len()) as u64;
        of.truncated += u64::from(length > tokens.len());
        if let Some(writer) = &mut self.writer {
            writer.push(Prompt::of(trajectory, turn, tokens))?;
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

/// The prompt's tokens, without its first turns where it is too long and may be cut; none where it does not fit.
fn long_prompt(rendered: &Rendered, max_tokens: usize, long: Long) -> Option<Vec<u32>> {
    let fit = fit_target(rendered, max_tokens, long);
    fit.parts.into_iter().next().map(|part| part.tokens)
}
