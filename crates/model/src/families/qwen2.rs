//! Qwen2 and Qwen2.5 (arXiv 2412.15115): Llama with biases on queries, keys and values.

use super::{Family, PLAIN};
use crate::Design;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen2"],
    architecture: "Qwen2ForCausalLM",
    default_rope_theta: Some(10_000.0),
    design: |_, num_layers| Ok(Design { has_qkv_bias: true, ..Design::plain(num_layers) }),
    ..PLAIN
};
