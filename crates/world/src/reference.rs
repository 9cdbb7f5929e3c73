//! What the policy predicted as training began: the measure of the reward `reference_pairwise`.

use std::collections::HashMap;

use worldloom_judge::{Extraction, extract};
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_render::Renderer;
use worldloom_schema::Prompt;
use worldloom_train::{Purpose, split_seed};

use crate::error::Result;

/// The weights that training starts from, with one completion of each prompt that was asked for. It follows from the
/// seed and the prompt's number alone, so that a run that goes on finds the same.
pub struct Reference {
    generator: Generator,
    sampling: Sampling,
    seed: u64,
    known: HashMap<usize, Extraction>,
}

impl Reference {
    /// `generator` holds the starting weights; completions are sampled as the policy's are.
    pub fn new(generator: Generator, sampling: Sampling, seed: u64) -> Self {
        Self { generator, sampling, seed: split_seed(seed, Purpose::Sampling, u64::MAX), known: HashMap::new() }
    }

    /// Completes those of these prompts that have no completion yet.
    pub(crate) fn complete(&mut self, prompts: &[(usize, &Prompt)], renderer: &Renderer) -> Result<()> {
        let mut missing: Vec<(usize, &Prompt)> = prompts.to_vec();
        missing.retain(|(number, _)| !self.known.contains_key(number));
        missing.sort_by_key(|(number, _)| *number);
        missing.dedup_by_key(|(number, _)| *number);
        let request = |(number, prompt): &(usize, &Prompt)| Request {
            prompt: prompt.tokens.clone(),
            num_completions: 1,
            seed: split_seed(self.seed, Purpose::Sampling, *number as u64),
            sampling: self.sampling.clone(),
        };
        let requests: Vec<Request> = missing.iter().map(request).collect();
        let groups = self.generator.generate(&requests, &mut |_, _| {})?;
        for ((number, _), group) in missing.into_iter().zip(groups) {
            for completion in group {
                let text = renderer.completion_text(&completion.tokens)?;
                self.known.insert(number, extract(&text, completion.stopped));
            }
        }
        Ok(())
    }

    pub(crate) fn of(&self, prompt: usize) -> Option<&Extraction> {
        self.known.get(&prompt)
    }
}
