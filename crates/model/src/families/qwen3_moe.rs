//! Qwen3 with a mixture of experts (arXiv 2505.09388): Qwen3 whose layers choose experts for each token.

use super::{Family, PLAIN, with_experts};
use crate::Design;

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_moe"],
    architecture: "Qwen3MoeForCausalLM",
    windows_every_layer: true,
    design: |keys, num_layers| {
        let qwen3 = Design { has_head_norms: true, ..Design::plain(num_layers) };
        with_experts(qwen3, keys, keys.look("norm_topk_prob")?.unwrap_or(false), false)
    },
    ..PLAIN
};
