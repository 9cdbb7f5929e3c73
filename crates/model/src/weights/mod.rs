//! Checkpoints under the published key names: a folder with `config.json` and safetensors, one file or several.
//!
//! A *parameter* is the decoder's, a *tensor* is a file's; [`plan`] says which part of which tensor a parameter is.
//! Files are mapped, and one parameter is in work at a time, in and out.

mod checkpoint;
mod export;
mod gguf;
mod load;
mod numbers;
mod plan;
mod save;
mod summary;
mod write;

pub(crate) use checkpoint::Checkpoint;
pub use export::export;
pub use gguf::{Gguf, GgufValue, import_gguf};
pub(crate) use load::Parameters;
pub use load::{load, load_in};
pub use numbers::SaveDType;
pub use save::{SaveOptions, ShowParameters, save, save_parameters, save_with};
pub use summary::{ModelSummary, PartSummary, PassedOver, summarise};
pub(crate) use write::{Files, Placed};

pub(crate) const CONFIG: &str = "config.json";
pub(crate) const WEIGHTS: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const HEAD: &str = "lm_head.weight";
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
