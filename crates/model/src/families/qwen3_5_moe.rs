//! Qwen3.5 with a mixture of experts, the text part: every layer has experts and a shared one; weights are always normed.

use super::{Family, hybrid, with_experts};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    architecture: "Qwen3_5MoeForCausalLM",
    default_head_dim: Some(256),
    default_rope_theta: None,
    default_partial_rotary_factor: 0.25,
    has_nested_rope: true,
    has_axes: true,
    is_hybrid: true,
    design: |keys, num_layers| {
        keys.only("norm_topk_prob", &true.into())?;
        with_experts(hybrid(keys, num_layers, false)?, keys, true, true)
    },
};
