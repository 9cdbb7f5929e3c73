//! Rollouts on disk: the dump of every step, the batch that was sampled ahead, and what is replayed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use worldloom_model::generate::Completion;
use worldloom_schema::{Rollout, RolloutOutcome, hash_file, read_table, write_table};

use super::collect::{Scored, assemble};
use super::config::RlConfig;
use super::rollout::{RlPrompt, Rollouts, Said, Sample, Score};
use crate::error::{Error, Result};

const ROLLOUTS: &str = "rollouts";
const PREFIX: &str = "step-";
const SUFFIX: &str = ".parquet";

/// Writes the step's rollouts into the run's folder, whole or not at all. `staleness` is that of the first mini-batch, in
/// updates.
pub(super) fn dump(
    run: &Path,
    step: u64,
    prompts: &[RlPrompt],
    mini_batches: &[Vec<Sample>],
    staleness: u64,
) -> Result<()> {
    let folder = run.join(ROLLOUTS);
    fs_err::create_dir_all(&folder)?;
    let path = folder.join(format!("{PREFIX}{step:06}{SUFFIX}"));
    let partial = path.with_extension("partial");
    let samples = mini_batches
        .iter()
        .zip(staleness..)
        .flat_map(|(samples, staleness)| samples.iter().map(move |sample| record(step, prompts, sample, staleness)));
    write_table(&partial, samples)?;
    Ok(fs_err::rename(&partial, &path)?)
}

/// Writes a batch that is still to be trained on.
pub(super) fn write(path: &Path, step: u64, prompts: &[RlPrompt], groups: &[Vec<Sample>]) -> Result<()> {
    write_table(path, groups.iter().flatten().map(|sample| record(step, prompts, sample, 0)))?;
    Ok(())
}

fn record(step: u64, prompts: &[RlPrompt], sample: &Sample, staleness: u64) -> Rollout {
    let (score_names, scores) = sample.score.parts().iter().cloned().unzip();
    Rollout {
        step,
        prompt_id: prompts[sample.prompt].id.clone(),
        sample: sample.number as u32,
        tokens: sample.tokens.clone(),
        sampled: (0..sample.tokens.len()).map(|at| at >= sample.prompt_length()).collect(),
        sampler_log_probs: sample.completion.log_probs.clone(),
        trainer_log_probs: sample.old_log_probs.iter().map(|&value| value as f32).collect(),
        stopped: sample.completion.stopped,
        outcome: sample.score.outcome(),
        scores,
        score_names,
        reward: sample.score.reward(),
        advantage: sample.advantage,
        staleness: staleness as u32,
        text: sample.said.text.clone(),
        thinking: sample.said.thinking.clone(),
        label: Some(prompts[sample.prompt].label.clone()).filter(|label| !label.is_empty()),
        reason: sample.score.reason().map(str::to_string),
    }
}

/// Dumps to train from, a file for each step.
#[derive(Debug)]
pub(super) struct Dumps {
    files: Vec<PathBuf>,
}

impl Dumps {
    /// Those of a run's folder, or of the folder of its rollouts, in the order of their steps.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let inner = folder.join(ROLLOUTS);
        let folder = if inner.is_dir() { inner } else { folder.to_path_buf() };
        let mut files = Vec::new();
        for entry in fs_err::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                files.push(path);
            }
        }
        files.sort();
        match files.is_empty() {
            true => {
                Err(Error::file(&folder, format!("no rollouts: expected files `{PREFIX}000001{SUFFIX}` and so on")))
            }
            false => Ok(Self { files }),
        }
    }

    /// The hash of all of them.
    pub(super) fn key(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        for file in &self.files {
            hasher.update(hash_file(file)?.as_bytes());
        }
        Ok(hasher.finalize().to_hex()[..32].to_string())
    }

    /// Refuses to make more steps than there are.
    pub(super) fn check(&self, steps: u64) -> Result<()> {
        match self.files.len() as u64 {
            there if there >= steps => Ok(()),
            there => Err(Error::config("steps", format!("{steps}, but there are rollouts of {there} steps"))),
        }
    }

    /// The rollouts of a step, counted from 0.
    pub(super) fn read(&self, step: u64, config: &RlConfig, prompts: &[RlPrompt]) -> Result<Rollouts> {
        read(&self.files[step as usize], config, prompts)
    }
}

/// Reads groups of these prompts; advantages are computed anew, from the rewards as they were.
pub(super) fn read(path: &Path, config: &RlConfig, prompts: &[RlPrompt]) -> Result<Rollouts> {
    let numbers: HashMap<&str, usize> =
        prompts.iter().enumerate().rev().map(|(number, prompt)| (prompt.id.as_str(), number)).collect();
    let mut groups: Vec<Scored> = Vec::new();
    for (row, rollout) in read_table::<Rollout>(path)?.into_iter().enumerate() {
        let wrong = |detail: String| Error::file(path, format!("row {row}: {detail}"));
        let number = *numbers
            .get(rollout.prompt_id.as_str())
            .ok_or_else(|| wrong(format!("`prompt_id` is `{}`, which is none of the prompts", rollout.prompt_id)))?;
        let sample = rollout.sample;
        let (completion, score, said) = completed(config, &prompts[number], rollout).map_err(wrong)?;
        // Each group starts with its sample 0: a prompt may have been drawn twice.
        match groups.last_mut().filter(|group| sample > 0 && group.prompt == number) {
            Some(group) => {
                group.completions.push(completion);
                group.scores.push(score);
                group.said.push(said);
            }
            None => groups.push(Scored {
                prompt: number,
                completions: vec![completion],
                scores: vec![score],
                said: vec![said],
            }),
        }
    }
    if groups.len() < config.mini_batches {
        let detail = format!("{} groups, expected at least `mini_batches`, {}", groups.len(), config.mini_batches);
        return Err(Error::file(path, detail));
    }
    Ok(assemble(config, prompts, groups))
}

fn completed(config: &RlConfig, prompt: &RlPrompt, rollout: Rollout) -> Result<(Completion, Score, Said), String> {
    let sampled = rollout.sampled.iter().filter(|&&sampled| sampled).count();
    let start = rollout.tokens.len().saturating_sub(sampled);
    if rollout.tokens[..start] != prompt.tokens {
        return Err("`tokens` do not begin with those of the prompt: it was rendered otherwise".into());
    }
    if rollout.sampler_log_probs.len() != sampled || sampled > config.max_completion_tokens {
        return Err(format!(
            "{sampled} sampled tokens with {} `sampler_log_probs`, expected as many and at most \
             `max_completion_tokens`, {}",
            rollout.sampler_log_probs.len(),
            config.max_completion_tokens
        ));
    }
    let parts: Vec<(String, f64)> = rollout.score_names.into_iter().zip(rollout.scores).collect();
    let reason = rollout.reason.unwrap_or_default();
    let score = match (rollout.outcome, rollout.reward) {
        (RolloutOutcome::Scored, Some(reward)) if reward.is_finite() => Score::Scored { reward, parts },
        (RolloutOutcome::Scored, reward) => {
            return Err(format!("`reward` is {reward:?} of a completion that was scored"));
        }
        (RolloutOutcome::PolicyFault, _) => Score::PolicyFault { reason, parts },
        (RolloutOutcome::Unavailable, _) => Score::Unavailable { reason },
    };
    let completion = Completion {
        tokens: rollout.tokens[start..].into(),
        log_probs: rollout.sampler_log_probs,
        stopped: rollout.stopped,
    };
    Ok((completion, score, Said { text: rollout.text, thinking: rollout.thinking }))
}
