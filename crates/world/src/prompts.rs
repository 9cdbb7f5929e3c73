//! Which prompts RL starts from, and what is added to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_render::{ContextReason, Control, Document, Reason, Renderer};
use worldloom_schema::Prompt;
use worldloom_train::rl::RlPrompt;

use crate::error::{Error, Result};

/// Which prompts are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PromptConfig {
    /// Whether a trajectory may have several prompts, for ablation: their shared prefixes made the published training
    /// collapse. Default: no, such prompts are refused.
    pub several_turns: bool,
    /// Longest prompt in tokens; longer ones are left out. Default: 131,072, as published.
    pub max_tokens: usize,
}

impl Default for PromptConfig {
    fn default() -> Self {
        Self { several_turns: false, max_tokens: 131_072 }
    }
}

/// What was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PromptReport {
    /// Prompts taken.
    pub taken: usize,
    /// Prompts left out for their length.
    pub too_long: usize,
    /// Trajectories with more than one.
    pub several_turns: usize,
    /// Mean share of a prompt that it has in common with an earlier one of its trajectory, over those that have one.
    pub prefix_overlap: f64,
}

/// Leaves out prompts that are too long, and refuses several of one trajectory unless they are asked for.
pub fn select_prompts(prompts: Vec<Prompt>, config: &PromptConfig) -> Result<(Vec<Prompt>, PromptReport)> {
    let before = prompts.len();
    let taken: Vec<Prompt> = prompts.into_iter().filter(|prompt| prompt.tokens.len() <= config.max_tokens).collect();
    let mut by_trajectory: BTreeMap<&str, Vec<&Prompt>> = BTreeMap::new();
    for prompt in &taken {
        by_trajectory.entry(&prompt.trajectory_id).or_default().push(prompt);
    }
    let several: Vec<&Vec<&Prompt>> = by_trajectory.values().filter(|prompts| prompts.len() > 1).collect();
    if let Some(prompts) = several.first().filter(|_| !config.several_turns) {
        let ids: Vec<&str> = prompts.iter().take(3).map(|prompt| prompt.prompt_id.as_str()).collect();
        let (trajectories, ids) = (several.len(), ids.join(", "));
        let detail = format!(
            "false, but {trajectories} trajectories have several prompts ({ids}, …): one turn per trajectory, or \
             `several_turns = true` for ablation"
        );
        return Err(Error::config("prompts.several_turns", detail));
    }
    let shares: Vec<f64> = several
        .iter()
        .flat_map(|prompts| prompts.windows(2))
        .map(|pair| {
            let common = pair[0].tokens.iter().zip(&pair[1].tokens).take_while(|(one, other)| one == other).count();
            common as f64 / pair[1].tokens.len().max(1) as f64
        })
        .collect();
    let report = PromptReport {
        taken: taken.len(),
        too_long: before - taken.len(),
        several_turns: several.len(),
        prefix_overlap: shares.iter().fold(0.0, |sum, share| sum + share) / shares.len().max(1) as f64,
    };
    Ok((taken, report))
}

/// Adds the true answers: the observation in its tags, without thinking, and the stop token. Answers of more than
/// `most` tokens, and those whose text would form a control token, are left out; returns how many.
pub fn add_truths(ids: &mut [RlPrompt], prompts: &[Prompt], renderer: &Renderer, most: usize) -> Result<usize> {
    let mut left_out = 0;
    for (id, prompt) in ids.iter_mut().zip(prompts) {
        let reason = Reason::Context(ContextReason::History);
        let mut document = Document::default();
        document.control(Control::ObservationOpen, reason);
        document.text(format!("\n{}\n", prompt.observation), reason);
        document.control(Control::ObservationClose, reason);
        document.control(Control::TurnEnd, reason);
        let tokens = renderer.encode(&document)?.map(|rendered| rendered.tokens).filter(|tokens| tokens.len() <= most);
        left_out += usize::from(tokens.is_none());
        id.truth = tokens;
    }
    Ok(left_out)
}
