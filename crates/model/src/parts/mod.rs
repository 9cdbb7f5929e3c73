//! What a block is made of, each part named after what it computes. Field names are the published key names.

mod attention;
mod linear;
mod mlp;
mod norm;
pub(crate) mod rope;
mod source;

pub use attention::Attention;
pub use linear::Linear;
pub use mlp::Mlp;
pub use norm::Norm;
pub(crate) use source::{Source, Values};
