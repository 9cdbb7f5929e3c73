//! Kernels of the generation engine: products with packed weights, attention over a cache, and what lies between.
//!
//! Every result belongs to one *row* (one token of one sequence) and is the same bits whatever other rows stand beside
//! it and whatever the number of threads: each output is one chain of fused multiply-adds in ascending order of the
//! summed index, and tiles only decide which chains advance together. Training uses other kernels; these have no
//! gradients.

mod attention;
mod pointwise;
mod product;
mod recurrent;

pub use attention::{CacheShape, KeyValueCache, View, attend};
pub use pointwise::{exponentials, norm_heads, rms_norm, rotary_angles, rotate_heads, swiglu};
pub use product::{PackedMatrix, Store};
pub use recurrent::{convolve_token, delta_token, scale_to_unit, sigmoid};
