//! Samples RL's completions from the policy itself, with the generation engine.

use worldloom_model::generate::{Generator, Limits, Request, Sampling};
use worldloom_model::{Decoder, ModelConfig};
use worldloom_schema::Prompt;
use worldloom_train::rl::{Completion, Draw, Failure, RlPrompt, Sampler};
use worldloom_train::{Purpose, split_seed};

/// The prompts as the trainer sees them, in the same order as the scorer's.
pub fn rl_prompts(prompts: &[Prompt]) -> Vec<RlPrompt> {
    let rl_prompt = |prompt: &Prompt| RlPrompt {
        id: prompt.prompt_id.clone(),
        tokens: prompt.tokens.clone(),
        label: prompt.domain.as_str().into(),
        truth: None,
    };
    prompts.iter().map(rl_prompt).collect()
}

/// Packs the policy's weights anew for every batch, so that what samples is what is trained.
pub struct GeneratorSampler {
    config: ModelConfig,
    sampling: Sampling,
    limits: Limits,
}

impl GeneratorSampler {
    /// Samples without truncation: the trainer's log-probs are those of the whole distribution.
    pub fn new(config: ModelConfig, max_new_tokens: usize, temperature: f32, stop_ids: Vec<u32>) -> Self {
        let sampling = Sampling::plain(max_new_tokens, temperature, stop_ids);
        Self { config, sampling, limits: Limits::default() }
    }

    /// The same sampler with other bounds on its work in progress; they change no completion.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}

impl Sampler for GeneratorSampler {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        let request = |(place, prompt): (usize, &&RlPrompt)| Request {
            prompt: prompt.tokens.clone(),
            num_completions: group_size,
            seed: split_seed(draw.seed, Purpose::Sampling, place as u64),
            sampling: self.sampling.clone(),
        };
        let requests: Vec<Request> = prompts.iter().enumerate().map(request).collect();
        let generator = Generator::new(decoder, &self.config)?.with_limits(self.limits);
        let groups = generator.generate(&requests, &mut |_, _| {})?;
        let completion = |completion: worldloom_model::generate::Completion| Completion {
            tokens: completion.tokens,
            log_probs: completion.log_probs,
            stopped: completion.stopped,
        };
        Ok(groups.into_iter().map(|group| group.into_iter().map(completion).collect()).collect())
    }
}
