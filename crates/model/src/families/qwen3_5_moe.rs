//! Qwen3.5 with a mixture of experts, the text part: every layer has experts and a shared one; weights are always normed.

use super::{Family, HYBRID, hybrid, with_experts};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    architecture: "Qwen3_5MoeForCausalLM",
    has_nested_rope: true,
    has_axes: true,
    has_fused_experts: true,
    design: |keys, num_layers| {
        keys.only("norm_topk_prob", &true.into())?;
        with_experts(hybrid(keys, num_layers, false)?, keys, true, true)
    },
    ..HYBRID
};
