//! Qwen3-Next: gated delta-nets between gated attention, interleaved projections, experts with a shared one.

use super::{Family, HYBRID, hybrid, with_experts};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_next"],
    architecture: "Qwen3NextForCausalLM",
    design: |keys, num_layers| {
        let norm_topk_prob = keys.look("norm_topk_prob")?.unwrap_or(true);
        with_experts(hybrid(keys, num_layers, true)?, keys, norm_topk_prob, true)
    },
    ..HYBRID
};
