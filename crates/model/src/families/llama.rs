//! Llama and what is built like it, SmolLM2 for instance (arXiv 2302.13971): plain blocks.

use super::{Family, PLAIN};

pub(super) const FAMILY: Family =
    Family { model_types: &["llama"], architecture: "LlamaForCausalLM", default_rope_theta: Some(10_000.0), ..PLAIN };
