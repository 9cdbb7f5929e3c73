//! Qwen3-Next: gated delta-nets between gated attention, interleaved projections, experts with a shared one.

use super::{Family, hybrid, with_experts};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_next"],
    architecture: "Qwen3NextForCausalLM",
    default_head_dim: Some(256),
    default_rope_theta: None,
    default_partial_rotary_factor: 0.25,
    has_nested_rope: false,
    has_axes: false,
    is_hybrid: true,
    design: |keys, num_layers| {
        let norm_topk_prob = keys.look("norm_topk_prob")?.unwrap_or(true);
        with_experts(hybrid(keys, num_layers, true)?, keys, norm_topk_prob, true)
    },
};
