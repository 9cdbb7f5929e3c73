//! What a request can get wrong, and what a broken model does.

/// Why nothing was generated. Requests and completions are counted from 0.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to continue.
    #[error("request {request}: the prompt is empty")]
    EmptyPrompt {
        /// Index of the request.
        request: usize,
    },
    /// Nothing may be generated.
    #[error("request {request}: `max_new_tokens` is 0")]
    NoNewTokens {
        /// Index of the request.
        request: usize,
    },
    /// The model has not enough positions.
    #[error(
        "request {request}: {prompt} prompt tokens and {max_new_tokens} new ones are more than the model's {positions} \
         positions"
    )]
    TooLong {
        /// Index of the request.
        request: usize,
        /// Tokens of the prompt.
        prompt: usize,
        /// Most tokens to generate.
        max_new_tokens: usize,
        /// `max_position_embeddings` of the model.
        positions: usize,
    },
    /// The prompt holds a number that is no token.
    #[error("request {request}: token {token} at {position} of the prompt, and the vocabulary has {vocab_size}")]
    UnknownToken {
        /// Index of the request.
        request: usize,
        /// Its place.
        position: usize,
        /// The number.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A sampling parameter is out of its range.
    #[error("request {request}: `{parameter}` is {found}, expected {expected}")]
    Sampling {
        /// Index of the request.
        request: usize,
        /// Its name.
        parameter: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: &'static str,
    },
    /// One sequence alone is more than the limits allow.
    #[error("request {request} needs {needed} cache tokens for one completion, and `max_cache_tokens` is {limit}")]
    CacheLimit {
        /// Index of the request.
        request: usize,
        /// Positions of the prompt and of the longest completion, and what the states of both count for.
        needed: usize,
        /// `max_cache_tokens`.
        limit: usize,
    },
    /// No sequence may be active.
    #[error("`max_active_sequences` is 0")]
    NoActiveSequences,
    /// The logits hold a NaN or an infinity: the weights are broken or have diverged.
    #[error("request {request}, completion {completion}: the logits before token {position} are not finite")]
    NotFinite {
        /// Index of the request.
        request: usize,
        /// Index in the group.
        completion: usize,
        /// Number of tokens generated before.
        position: usize,
    },
}
