//! Llama and what is built like it, SmolLM2 for instance (arXiv 2302.13971): plain blocks.

use super::Family;
use crate::Design;

pub(super) const FAMILY: Family = Family {
    model_types: &["llama"],
    architecture: "LlamaForCausalLM",
    default_head_dim: None,
    default_rope_theta: Some(10_000.0),
    default_partial_rotary_factor: 1.0,
    has_nested_rope: false,
    has_axes: false,
    is_hybrid: false,
    design: |_, num_layers| Ok(Design::plain(num_layers)),
};
