//! Weights out of a GGUF file: `config.json` and safetensors under the published names.
//!
//! A GGUF (versions 2 and 3) is metadata by key, a table of tensors, and their numbers in *blocks*: 32 small integers
//! that share a scale, or plain floats. What the decoder needs is read; the tokenizer in the metadata is the caller's.

mod blocks;
mod families;
mod file;

pub use file::{Gguf, GgufValue};

use super::SaveDType;
use super::save::write_config;
use super::write::{Files, Placed};
use crate::{Error, ModelConfig, parameter_shapes};
use burn::tensor::Device;
use std::collections::BTreeSet;
use std::path::Path;

/// Writes a checkpoint of the numbers in `gguf` into `dir`; answers its config.
///
/// One tensor is in memory at a time. Every tensor of the decoder must be in the file, and no other.
pub fn import_gguf(gguf: &Gguf, dir: &Path, dtype: SaveDType, device: &Device) -> Result<ModelConfig, Error> {
    let family = families::family_of(gguf)?;
    let config = ModelConfig::from_json(&family.config(gguf)?.to_string())?;
    let parameters = parameter_shapes(&config, device);
    let names: Vec<String> = parameters.iter().map(|parameter| families::gguf_name(&parameter.name)).collect();
    let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let unknown: Vec<String> = gguf.tensor_names().filter(|name| !known.contains(name)).map(str::to_owned).collect();
    if !unknown.is_empty() {
        return Err(Error::UnexpectedTensors { folder: gguf.path().to_owned(), tensors: unknown });
    }
    for (parameter, name) in parameters.iter().zip(&names) {
        gguf.check(name, &parameter.shape)?;
    }
    fs_err::create_dir_all(dir)?;
    let placed: Vec<Placed<'_>> =
        parameters.iter().map(|parameter| Placed::numbers(&parameter.name, &parameter.shape, dtype)).collect();
    let mut files = Files::create(dir, &placed, super::SaveOptions::new(dtype).max_shard_bytes)?;
    for (parameter, name) in parameters.iter().zip(&names) {
        let mut values = gguf.numbers(name)?;
        if let Some(heads) = family.interleaved_heads(&parameter.name, &config) {
            values = families::into_halves(&values, heads, parameter.shape.iter().skip(1).product());
        }
        files.write_numbers(&parameter.name, 0, &values, dtype)?;
    }
    write_config(&config, dir, dtype)?;
    Ok(config)
}
