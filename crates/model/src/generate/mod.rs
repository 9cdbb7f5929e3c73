//! Generation on token ids: groups of completions with their log-probs, on the CPU.
//!
//! A *request* is one prompt and a *group* of completions. The prompt is computed once; its cache is shared by the
//! group's *sequences*, each of which adds a cache of its own and goes on from a copy of the delta-nets' states. All active sequences, of whatever request, advance
//! together by one token a *step*; a finished sequence leaves and the next waiting one enters ([`Limits`]).
//!
//! What a completion is depends on the weights, the prompt, the sampling, the seed and its index in the group, and on
//! nothing else: not on the other requests, the limits or the number of threads, to the bit.
//!
//! Left out: text, templates, gradients. The training forward pass gives the same log-probs up to rounding.

mod attention;
mod delta_net;
mod error;
mod feed_forward;
mod forward;
mod prefix;
mod sampling;
mod schedule;
mod weights;

pub use error::Error;
pub use sampling::Sampling;
pub use schedule::{Batch, End, Event, Sampled, Ticket};

use crate::weights::Parameters;
use crate::{Decoder, ModelConfig, Precision};
use burn::tensor::Device;
use std::path::Path;
use weights::Weights;

/// A model's weights, packed for decoding.
///
/// It is a copy: after training steps, make a new one.
pub struct Generator {
    weights: Weights,
    limits: Limits,
}

/// One prompt and how to continue it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// Size of the group. The first `n` completions are the same for every size of at least `n`.
    pub num_completions: usize,
    /// Completion `i` draws from the stream `i` of this seed.
    pub seed: u64,
    /// How tokens are chosen and when a completion ends.
    pub sampling: Sampling,
}

/// One continuation of a prompt.
///
/// With the stop token 2, a completion that ended by itself is for instance `tokens: [17, 5, 2]`,
/// `log_probs: [-0.2, -1.4, -0.01]`, `stopped: true`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The sampled tokens, with the stop token if one was sampled.
    pub tokens: Vec<u32>,
    /// Log-probability of each token under the softmax of `logits / temperature` over the whole vocabulary, before
    /// any truncation; at temperature 0 (greedy) that of the plain softmax.
    pub log_probs: Vec<f32>,
    /// Whether a stop token ended it, rather than its length.
    pub stopped: bool,
}

/// Bounds on what is in work at one time. They change the speed and the memory, never a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sequences that advance together.
    pub max_active_sequences: usize,
    /// Positions reserved in all caches together: each prompt in work once, and per sequence its longest completion.
    /// Delta-nets' states, one of each prompt and of each sequence, count as the positions that take as much memory.
    pub max_cache_tokens: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_active_sequences: 64, max_cache_tokens: 1 << 17 }
    }
}

impl Generator {
    /// Packs the weights of `decoder`, in its precision.
    ///
    /// # Errors
    /// A parameter of another type, by its name.
    pub fn new(decoder: &Decoder, config: &ModelConfig) -> Result<Generator, crate::Error> {
        decoder.check_dtypes()?;
        let mut weights = Weights::zeros(config, decoder.precision());
        decoder.for_each_parameter(&mut |path, _, values| weights.set(path, values));
        Ok(Generator { weights, limits: Limits::default() })
    }

    /// Packs a checkpoint without a decoder between: what it takes in memory is the packed model and one tensor.
    ///
    /// # Errors
    /// Those of [`load_in`](crate::load_in).
    pub fn load(dir: &Path, precision: Precision, device: &Device) -> Result<(Generator, ModelConfig), crate::Error> {
        precision.check(device)?;
        let checkpoint = Parameters::open(dir, device)?;
        let config = checkpoint.config.clone();
        let mut weights = Weights::zeros(&config, precision);
        checkpoint.read_each(&mut |path, _, values| weights.set(path, values));
        Ok((Generator { weights, limits: Limits::default() }, config))
    }

    /// Bytes that the delta-nets of one sequence take, whatever its length.
    pub fn state_bytes_per_sequence(&self) -> usize {
        self.weights.state_bytes_per_sequence()
    }

    /// The same generator with other bounds.
    pub fn with_limits(self, limits: Limits) -> Generator {
        Generator { limits, ..self }
    }

    /// Its bounds.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Bytes that one position takes in a cache.
    pub fn cache_bytes_per_token(&self) -> usize {
        self.weights.cache_bytes_per_token()
    }

    /// Most tokens of a prompt and its completion together: what the model has positions for and the limits room.
    pub fn longest(&self) -> usize {
        let room = self.limits.max_cache_tokens.saturating_sub(2 * self.weights.state_positions());
        self.weights.config.max_position_embeddings.min(room)
    }

    /// Whether a request can be met; errors name it as request 0.
    pub fn check(&self, request: &Request) -> Result<(), Error> {
        schedule::check(&self.weights, self.limits, 0, request)
    }

    /// An empty batch, to which requests are added one by one. Of the prompts that were computed, `prefix_tokens`
    /// positions are kept for later prompts with the same beginning.
    pub fn batch(&self, prefix_tokens: usize) -> Batch<'_> {
        Batch::new(&self.weights, self.limits, prefix_tokens)
    }

    /// The logits of the token that follows `tokens`, of which there is at least one.
    pub fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        assert!(!tokens.is_empty(), "logits: nothing to continue");
        forward::prefill(&self.weights, tokens, &mut forward::Workspace::default()).logits
    }

    /// The completions of every request, in the order of the requests. `progress` hears how many completions are
    /// finished, and of how many, whenever that changes.
    ///
    /// All requests are checked before any is computed. The work is spread over the current rayon pool.
    pub fn generate(
        &self,
        requests: &[Request],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Vec<Completion>>, Error> {
        schedule::run(&self.weights, self.limits, requests, progress)
    }
}
