//! Qwen3.5 dense, the text part: gated delta-nets between gated attention, and one feed-forward part.

use super::{Family, HYBRID, hybrid};

pub(super) const FAMILY: Family = Family {
    model_types: &["qwen3_5_text", "qwen3_5"],
    architecture: "Qwen3_5ForCausalLM",
    has_nested_rope: true,
    has_axes: true,
    design: |keys, num_layers| hybrid(keys, num_layers, false),
    ..HYBRID
};
