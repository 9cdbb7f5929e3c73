//! The policy samples for itself: the bundled sampler, on the decoder's own generation engine.

use worldloom_model::generate::{Completion, Generator, Limits, Request, Sampling};
use worldloom_model::{Decoder, ModelConfig};

use super::rollout::{Failure, RlPrompt, Sampler};
use crate::seeds::{Purpose, split_seed};

/// Samples with a cache, the prompt of a group computed once. The weights are packed anew for every step.
pub struct PolicySampler<'a> {
    /// The model's config.
    pub model: &'a ModelConfig,
    /// How tokens are chosen. Its temperature must be the run's, or the run refuses its log-probs.
    pub sampling: Sampling,
    /// Bounds on memory.
    pub limits: Limits,
    /// Hears how many completions of the step are finished, and of how many.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

impl Sampler for PolicySampler<'_> {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        seed: u64,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        let request = |(slot, prompt): (usize, &&RlPrompt)| Request {
            prompt: prompt.tokens.clone(),
            num_completions: group_size,
            seed: split_seed(seed, Purpose::Sampling, slot as u64),
            sampling: self.sampling.clone(),
        };
        let requests: Vec<Request> = prompts.iter().enumerate().map(request).collect();
        let generator = Generator::new(decoder, self.model).with_limits(self.limits);
        Ok(generator.generate(&requests, self.progress)?)
    }
}
