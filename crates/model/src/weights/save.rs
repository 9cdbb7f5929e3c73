//! Weights out: `model.safetensors` and `config.json`, as `transformers` writes them.

use super::{CONFIG, WEIGHTS};
use crate::{Decoder, Error, ModelConfig};
use safetensors::{Dtype, View};
use serde_json::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveDType {
    /// Single precision: exact.
    F32,
    /// Rounded to bfloat16, to nearest, ties to even.
    BF16,
}

impl SaveDType {
    fn name(self) -> &'static str {
        match self {
            SaveDType::F32 => "float32",
            SaveDType::BF16 => "bfloat16",
        }
    }
}

/// Writes a checkpoint into `dir`, which is made if need be; a tied head is not written twice.
///
/// The caller makes the folder appear at once if it must (a temporary folder, renamed).
pub fn save(decoder: &Decoder, config: &ModelConfig, dir: &Path, dtype: SaveDType) -> Result<(), Error> {
    fs_err::create_dir_all(dir)?;
    let mut tensors = Vec::new();
    decoder.for_each_parameter(&mut |name, shape, values| {
        tensors.push((name.to_owned(), Stored::new(shape, values, dtype)));
    });
    let path = dir.join(WEIGHTS);
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(tensors, Some(metadata))
        .map_err(|source| Error::Weights { path: path.clone(), source })?;
    fs_err::write(&path, bytes)?;
    let mut config = config.clone();
    config.other.shift_remove("dtype");
    config.other.insert("torch_dtype".to_owned(), json!(dtype.name()));
    fs_err::write(dir.join(CONFIG), config.to_json())?;
    Ok(())
}

/// One tensor's bytes as they go to the file.
struct Stored {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Stored {
    fn new(shape: &[usize], values: &[f32], dtype: SaveDType) -> Stored {
        let (dtype, bytes) = match dtype {
            SaveDType::F32 => (Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            SaveDType::BF16 => {
                (Dtype::BF16, values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect())
            }
        };
        Stored { dtype, shape: shape.to_vec(), bytes }
    }
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
