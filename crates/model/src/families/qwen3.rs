//! Qwen3 dense (arXiv 2505.09388): no biases, and a norm of every query and key head.

use super::{Family, PLAIN};
use crate::Design;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3"],
    architecture: "Qwen3ForCausalLM",
    default_head_dim: Some(128),
    design: |_, num_layers| Ok(Design { has_head_norms: true, ..Design::plain(num_layers) }),
    ..PLAIN
};
