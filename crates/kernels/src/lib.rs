//! CPU kernels of the decoder: safe functions on slices with fixed order of additions.
//!
//! Every function checks the sizes of its slices and spreads its work over the current rayon pool. Work is cut into
//! blocks of a fixed size and partial sums are added in order, so a result has the same bits for any number of
//! threads. Matrices lie row after row. Nothing here knows burn; `worldloom-model` puts the kernels into its graph.
#![expect(unsafe_code, reason = "the matrix product is called through pointers, and results start uninitialised")]

pub mod adamw;
pub mod attention;
pub mod convolution;
pub mod cross_entropy;
pub mod delta_rule;
pub mod embedding;
pub mod experts;
pub mod matmul;
pub mod muon;
pub mod norm;
pub mod precision;
pub mod rotary;
pub mod swiglu;

mod buffer;
mod math;
mod sight;

pub use adamw::{AdamWStep, adamw};
pub use math::{add_assign, scale, sum_of_squares};
pub use muon::{MuonStep, muon, muon_direction};

pub mod decode;
