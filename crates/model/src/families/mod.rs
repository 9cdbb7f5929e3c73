//! The families of decoders that are read. A family is one file and one line in [`FAMILIES`].

mod llama;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;

use crate::config::{Keys, invalid};
use crate::{DeltaNetShape, Design, Error, ExpertShape, FeedForwardKind, Mixer};

/// Every family that is read.
const FAMILIES: [&Family; 7] = [
    &llama::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &qwen3_moe::FAMILY,
    &qwen3_next::FAMILY,
    &qwen3_5::FAMILY,
    &qwen3_5_moe::FAMILY,
];

/// What is fixed by `model_type`.
pub(crate) struct Family {
    /// The names that published files have for it.
    pub(crate) model_types: &'static [&'static str],
    /// The class that `transformers` loads it with.
    pub(crate) architecture: &'static str,
    /// Width of a head where the file does not say; none: the hidden width over the heads.
    pub(crate) default_head_dim: Option<usize>,
    /// Base of the rotary angles where the file does not say; none: it must.
    pub(crate) default_rope_theta: Option<f64>,
    /// Share of a head that turns where the file does not say; 1: the family always turns whole heads.
    pub(crate) default_partial_rotary_factor: f64,
    /// Whether rotary constants are published in `rope_parameters`, not at the top.
    pub(crate) has_nested_rope: bool,
    /// Whether its published rotary constants speak of the axes of images.
    pub(crate) has_axes: bool,
    /// Whether a window of attention, where a config has one, is that of every layer, not of the late ones.
    pub(crate) windows_every_layer: bool,
    /// Whether blocks may have a delta-net for attention.
    pub(crate) is_hybrid: bool,
    /// Whether a layer's experts are published in two tensors for all, not three for each.
    pub(crate) has_fused_experts: bool,
    /// Reads what else it computes, for so many layers.
    pub(crate) design: fn(&Keys, usize) -> Result<Design, Error>,
}

/// Whole heads turn, and every layer is attention; a family changes what it does otherwise.
const PLAIN: Family = Family {
    model_types: &[],
    architecture: "",
    default_head_dim: None,
    default_rope_theta: None,
    default_partial_rotary_factor: 1.0,
    has_nested_rope: false,
    has_axes: false,
    windows_every_layer: false,
    is_hybrid: false,
    has_fused_experts: false,
    design: |_, num_layers| Ok(Design::plain(num_layers)),
};

/// As [`PLAIN`], with delta-nets and wide heads of which a quarter turns.
const HYBRID: Family =
    Family { default_head_dim: Some(256), default_partial_rotary_factor: 0.25, is_hybrid: true, ..PLAIN };

/// The family that a file names.
pub(crate) fn find(model_type: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.model_types.contains(&model_type))
}

/// All names, for an error.
pub(crate) fn names() -> String {
    FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>().join(", ")
}

/// The design of a hybrid: three gated delta-nets to one gated attention, and zero-centred norms.
fn hybrid(keys: &Keys, num_layers: usize, has_interleaved_projections: bool) -> Result<Design, Error> {
    keys.only("attn_output_gate", &true.into())?;
    let mut design = Design {
        has_head_norms: true,
        has_output_gate: true,
        has_zero_centred_norms: true,
        delta_net: Some(DeltaNetShape {
            num_key_heads: keys.look_required("linear_num_key_heads")?,
            num_value_heads: keys.look_required("linear_num_value_heads")?,
            key_head_dim: keys.look_required("linear_key_head_dim")?,
            value_head_dim: keys.look_required("linear_value_head_dim")?,
            conv_kernel_dim: keys.look_required("linear_conv_kernel_dim")?,
            has_interleaved_projections,
        }),
        ..Design::plain(num_layers)
    };
    let kinds: Option<Vec<String>> = keys.look("layer_types")?;
    let interval: usize = keys.look("full_attention_interval")?.unwrap_or(4);
    if interval == 0 {
        return Err(invalid("full_attention_interval", interval, "at least 1"));
    }
    for (index, layer) in design.layers.iter_mut().enumerate() {
        let is_linear = match &kinds {
            Some(kinds) => kinds.get(index).is_some_and(|kind| kind == "linear_attention"),
            None => (index + 1) % interval != 0,
        };
        layer.mixer = if is_linear { Mixer::DeltaNet } else { Mixer::Attention };
    }
    Ok(design)
}

/// Puts experts into a design's layers: all but those that `mlp_only_layers` and `decoder_sparse_step` leave dense.
fn with_experts(design: Design, keys: &Keys, norm_topk_prob: bool, has_shared: bool) -> Result<Design, Error> {
    let dense: Vec<usize> = keys.look("mlp_only_layers")?.unwrap_or_default();
    let step: usize = keys.look("decoder_sparse_step")?.unwrap_or(1);
    if step == 0 {
        return Err(invalid("decoder_sparse_step", step, "at least 1"));
    }
    let mut design = Design { experts: Some(experts(keys, norm_topk_prob, has_shared)?), ..design };
    for (index, layer) in design.layers.iter_mut().enumerate() {
        if !dense.contains(&index) && (index + 1) % step == 0 {
            layer.feed_forward = FeedForwardKind::Experts;
        }
    }
    Ok(design)
}

fn experts(keys: &Keys, norm_topk_prob: bool, has_shared: bool) -> Result<ExpertShape, Error> {
    // `transformers` writes the number of Qwen3's experts under another name than the hub has it.
    let num_experts = match (keys.look::<usize>("num_experts")?, keys.look::<usize>("num_local_experts")?) {
        (Some(here), Some(there)) if here != there => {
            return Err(invalid("num_local_experts", there, &format!("{here}, as `num_experts`")));
        }
        (here, there) => here.or(there).ok_or_else(|| Error::MissingKey { key: "num_experts".to_owned() })?,
    };
    Ok(ExpertShape {
        num_experts,
        num_experts_per_tok: keys.look_required("num_experts_per_tok")?,
        moe_intermediate_size: keys.look_required("moe_intermediate_size")?,
        shared_expert_intermediate_size: match has_shared {
            true => Some(keys.look_required("shared_expert_intermediate_size")?),
            false => None,
        },
        norm_topk_prob,
    })
}
