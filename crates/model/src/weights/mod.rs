//! Checkpoints under the published key names: a folder with `config.json` and safetensors, one file or several.

mod load;
mod save;

pub use load::load;
pub use save::{SaveDType, save};

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const HEAD: &str = "lm_head.weight";
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
