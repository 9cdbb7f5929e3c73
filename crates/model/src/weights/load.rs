//! Weights in: memory-mapped, one tensor at a time, strict about names, shapes and kinds.

use super::{CONFIG, EMBEDDING, HEAD, INDEX, WEIGHTS};
use crate::{Decoder, Error, ModelConfig};
use burn::tensor::Device;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Reads a checkpoint: `config.json`, and `model.safetensors` or the shards that an index names.
///
/// Numbers may be `F32`, `BF16` or `F16` and become single precision. Every tensor that the config asks for must be
/// there in its shape, and no other, except a head that repeats a tied embedding.
pub fn load(dir: &Path, device: &Device) -> Result<(Decoder, ModelConfig), Error> {
    let config = ModelConfig::from_file(&dir.join(CONFIG))?;
    let shards = open_shards(dir)?;
    let mut checkpoint = Checkpoint::open(dir, &shards)?;
    checkpoint.check_head(&config)?;
    let decoder = Decoder::from_values(&config, device, &mut |name, shape| checkpoint.take(name, shape))?;
    checkpoint.refuse_rest()?;
    Ok((decoder, config))
}

/// A mapped file of weights, and the tensors an index expects in it.
struct Shard {
    path: PathBuf,
    bytes: Mmap,
    expected: Option<BTreeSet<String>>,
}

fn open_shards(dir: &Path) -> Result<Vec<Shard>, Error> {
    let (single, index) = (dir.join(WEIGHTS), dir.join(INDEX));
    if index.is_file() {
        let mut shards = Vec::new();
        for (file, tensors) in read_index(&index)? {
            shards.push(Shard::map(dir.join(file), Some(tensors))?);
        }
        return Ok(shards);
    }
    if !single.is_file() {
        return Err(Error::NoWeights { folder: dir.to_owned() });
    }
    Ok(vec![Shard::map(single, None)?])
}

/// The tensors of each shard, by the index's `weight_map`.
fn read_index(path: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let wrong = |reason: String| Error::Index { path: path.to_owned(), reason };
    let text = fs_err::read_to_string(path)?;
    let index: Index = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in index.weight_map {
        if Path::new(&file).file_name() != Some(file.as_ref()) {
            return Err(wrong(format!("tensor `{tensor}` is put in `{file}`, which is not a plain file name")));
        }
        shards.entry(file).or_default().insert(tensor);
    }
    if shards.is_empty() { Err(wrong("`weight_map` is empty".to_owned())) } else { Ok(shards) }
}

impl Shard {
    #[expect(unsafe_code, reason = "the one memory map of this crate")]
    fn map(path: PathBuf, expected: Option<BTreeSet<String>>) -> Result<Shard, Error> {
        let file = fs_err::File::open(&path)?;
        // SAFETY: the map is read only, and checkpoints are written to a temporary folder and renamed, never changed
        // in place; a file that another program cuts while we read it ends this process, as for any mapped reader.
        let bytes = unsafe { Mmap::map(file.file()) }?;
        Ok(Shard { path, bytes, expected })
    }
}

/// The tensors of all shards that are not yet taken.
struct Checkpoint<'a> {
    dir: &'a Path,
    tensors: BTreeMap<String, (&'a Path, TensorView<'a>)>,
}

impl<'a> Checkpoint<'a> {
    fn open(dir: &'a Path, shards: &'a [Shard]) -> Result<Checkpoint<'a>, Error> {
        let mut tensors = BTreeMap::new();
        for shard in shards {
            let damaged = |source| Error::Weights { path: shard.path.clone(), source };
            let file = SafeTensors::deserialize(&shard.bytes).map_err(damaged)?;
            for (name, view) in file.tensors() {
                // A tensor that the index puts elsewhere, or nowhere, is not read from here.
                if shard.expected.as_ref().is_none_or(|expected| expected.contains(&name)) {
                    tensors.insert(name, (shard.path.as_path(), view));
                }
            }
            for name in shard.expected.iter().flatten() {
                if !tensors.contains_key(name) {
                    return Err(Error::NotInShard { path: shard.path.clone(), tensor: name.clone() });
                }
            }
        }
        Ok(Checkpoint { dir, tensors })
    }

    /// The head must be there if it is not tied; tied, it may be there once more, with the same bytes.
    fn check_head(&mut self, config: &ModelConfig) -> Result<(), Error> {
        if !config.tie_word_embeddings {
            let present = self.tensors.contains_key(HEAD);
            return if present { Ok(()) } else { Err(Error::HeadMissing { folder: self.dir.to_owned() }) };
        }
        if let (Some((_, head)), Some((_, embedding))) = (self.tensors.remove(HEAD), self.tensors.get(EMBEDDING))
            && (head.dtype() != embedding.dtype() || head.data() != embedding.data())
        {
            return Err(Error::TiedHeadDiffers { folder: self.dir.to_owned() });
        }
        Ok(())
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let missing = || Error::MissingTensor { folder: self.dir.to_owned(), tensor: name.to_owned() };
        let (path, view) = self.tensors.remove(name).ok_or_else(missing)?;
        if view.shape() != shape {
            return Err(Error::WrongShape {
                path: path.to_owned(),
                tensor: name.to_owned(),
                expected: shape.to_vec(),
                found: view.shape().to_vec(),
            });
        }
        single_precision(&view).ok_or_else(|| Error::WrongType {
            path: path.to_owned(),
            tensor: name.to_owned(),
            found: format!("{:?}", view.dtype()),
        })
    }

    fn refuse_rest(self) -> Result<(), Error> {
        if self.tensors.is_empty() {
            return Ok(());
        }
        Err(Error::UnexpectedTensors { folder: self.dir.to_owned(), tensors: self.tensors.into_keys().collect() })
    }
}

fn single_precision(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    let halves = || bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
    match view.dtype() {
        Dtype::F32 => Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()),
        Dtype::BF16 => Some(halves().map(|b| half::bf16::from_le_bytes(b).to_f32()).collect()),
        Dtype::F16 => Some(halves().map(|b| half::f16::from_le_bytes(b).to_f32()).collect()),
        _ => None,
    }
}
