//! Weights out: safetensors and `config.json`, as `transformers` writes them; numbers go straight to their place.

use super::CONFIG;
use super::checkpoint::Checkpoint;
use super::load::is_other_part;
use super::numbers::SaveDType;
use super::plan::{Plan, Spelling};
use super::write::{Files, Placed};
use crate::parameters::ReadParameter;
use crate::{Decoder, Error, ModelConfig, ParameterShape};
use serde_json::json;
use std::path::{Path, PathBuf};

/// How a checkpoint is written.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// How numbers are stored.
    pub dtype: SaveDType,
    /// Tensors fill a file up to this many bytes; one larger than that has a file of its own. What fits in one is one
    /// file without an index.
    pub max_shard_bytes: u64,
    /// A checkpoint whose tensors beside the text decoder (vision, multi-token heads) are copied, byte for byte.
    pub other_parts: Option<PathBuf>,
}

impl SaveOptions {
    /// Files of up to 5 GB, as are usual, and nothing but the decoder.
    pub fn new(dtype: SaveDType) -> SaveOptions {
        SaveOptions { dtype, max_shard_bytes: 5_000_000_000, other_parts: None }
    }
}

/// Writes a checkpoint into `dir`, which is made if need be; a tied head is not written twice.
///
/// The caller makes the folder appear at once if it must (a temporary folder, renamed).
pub fn save(decoder: &Decoder, config: &ModelConfig, dir: &Path, dtype: SaveDType) -> Result<(), Error> {
    save_with(decoder, config, dir, &SaveOptions::new(dtype))
}

/// As [`save`], in files of another size or with the parts that are no text decoder.
pub fn save_with(decoder: &Decoder, config: &ModelConfig, dir: &Path, options: &SaveOptions) -> Result<(), Error> {
    decoder.check_dtypes()?;
    save_parameters(&|read| decoder.for_each_parameter(read), config, dir, options)
}

/// Shows all parameters of a decoder, in its order and in published names; the same every time it is called.
pub type ShowParameters<'a> = &'a dyn Fn(ReadParameter<'_>);

/// As [`save_with`], of parameters that are shown by something else than a decoder.
pub fn save_parameters(
    show: ShowParameters<'_>,
    config: &ModelConfig,
    dir: &Path,
    options: &SaveOptions,
) -> Result<(), Error> {
    let mut parameters = Vec::new();
    show(&mut |name, shape, _| {
        parameters.push(ParameterShape { name: name.to_owned(), shape: shape.to_vec() });
    });
    save_shown(&parameters, show, config, dir, options)
}

/// As [`save_parameters`], of parameters whose shapes are known, so that they are shown once.
pub(super) fn save_shown(
    parameters: &[ParameterShape],
    show: ShowParameters<'_>,
    config: &ModelConfig,
    dir: &Path,
    options: &SaveOptions,
) -> Result<(), Error> {
    fs_err::create_dir_all(dir)?;
    let others = options.other_parts.as_deref().map(Checkpoint::open).transpose()?;
    let config = with_its_surroundings(config, options)?;
    let is_fused = config.has_fused_experts();
    let plan = Plan::new(parameters, &Spelling { is_text_part: config.outer.is_some(), is_fused: &|_| is_fused });
    let mut tensors: Vec<Placed<'_>> =
        plan.tensors.iter().map(|(name, shape)| Placed::numbers(name, shape, options.dtype)).collect();
    for (name, stored) in others.iter().flat_map(|others| &others.tensors).filter(|(name, _)| is_other_part(name)) {
        let bytes = others.as_ref().map_or(0, |others| others.bytes(stored).len());
        tensors.push(Placed { name, dtype: stored.dtype, shape: &stored.shape, bytes });
    }
    let mut files = Files::create(dir, &tensors, options.max_shard_bytes)?;
    write_parameters(show, &plan, options.dtype, &mut files)?;
    if let Some(others) = &others {
        for (name, stored) in others.tensors.iter().filter(|(name, _)| is_other_part(name)) {
            files.write(name, 0, others.bytes(stored))?;
            others.release(stored);
        }
    }
    write_config(&config, dir, options.dtype)
}

/// A text decoder alone is a model of its own; with the other parts it is again what they came from.
fn with_its_surroundings(config: &ModelConfig, options: &SaveOptions) -> Result<ModelConfig, Error> {
    let outer = match &options.other_parts {
        Some(dir) => ModelConfig::from_file(&dir.join(CONFIG))?.outer,
        None => None,
    };
    Ok(ModelConfig { outer, ..config.clone() })
}

/// Writes `config.json` with the type of the numbers in it, around a text model too.
pub(super) fn write_config(config: &ModelConfig, dir: &Path, dtype: SaveDType) -> Result<(), Error> {
    let mut config = config.clone();
    for keys in [Some(&mut config.other), config.outer.as_mut()].into_iter().flatten() {
        keys.shift_remove("dtype");
        keys.insert("torch_dtype".to_owned(), json!(dtype.name()));
    }
    Ok(fs_err::write(dir.join(CONFIG), config.to_json())?)
}

/// Puts every parameter into its tensors.
fn write_parameters(show: ShowParameters<'_>, plan: &Plan, dtype: SaveDType, files: &mut Files) -> Result<(), Error> {
    let mut result = Ok(());
    show(&mut |name, _, values| {
        let mut rest = values;
        for piece in plan.pieces(name) {
            let (values, after) = rest.split_at(piece.range.len());
            rest = after;
            if result.is_ok() {
                result = files.write_numbers(&piece.tensor, piece.range.start, values, dtype);
            }
        }
    });
    result
}
