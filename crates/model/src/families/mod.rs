//! The families of decoders that are read. A family is one file and one line in [`FAMILIES`].

mod llama;
mod qwen2;
mod qwen3;

use crate::config::Keys;
use crate::{Design, Error};

/// Every family that is read.
const FAMILIES: [&Family; 3] = [&llama::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY];

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
    /// Whether blocks may have a delta-net for attention.
    pub(crate) is_hybrid: bool,
    /// Reads what else it computes, for so many layers.
    pub(crate) design: fn(&Keys, usize) -> Result<Design, Error>,
}

/// The family that a file names.
pub(crate) fn find(model_type: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.model_types.contains(&model_type))
}

/// All names, for an error.
pub(crate) fn names() -> String {
    FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>().join(", ")
}
