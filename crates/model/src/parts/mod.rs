//! What a block is made of, each part named after what it computes. Field names are the published key names.

mod adapter;
mod attention;
pub(crate) mod delta_net;
mod linear;
mod mlp;
pub(crate) mod moe;
mod norm;
pub(crate) mod rope;
mod source;

pub use adapter::{Adapter, ExpertAdapter};
pub(crate) use adapter::{Dropout, DropoutSeed};
pub use attention::Attention;
pub use delta_net::{Convolution, GatedDeltaNet};
pub use linear::Linear;
pub use mlp::Mlp;
pub use moe::{Experts, Moe, Routing};
pub use norm::Norm;
pub(crate) use source::Source;
