//! Files of weights being written: headers first, then numbers in any order, each straight to its place.

use super::{INDEX, SaveDType, WEIGHTS};
use crate::Error;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// Numbers converted at a time.
const CHUNK: usize = 1 << 18;

/// A tensor that will be written.
pub(crate) struct Placed<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: usize,
}

/// Open files with their headers written, and where each tensor starts in which.
pub(crate) struct Files {
    files: Vec<fs_err::File>,
    starts: BTreeMap<String, (usize, u64)>,
}

impl<'a> Placed<'a> {
    /// A tensor of numbers.
    pub(crate) fn numbers(name: &'a str, shape: &'a [usize], dtype: SaveDType) -> Placed<'a> {
        Placed { name, dtype: dtype.stored(), shape, bytes: shape.iter().product::<usize>() * dtype.size() }
    }
}

impl Files {
    pub(crate) fn create(dir: &Path, tensors: &[Placed<'_>], max_shard_bytes: u64) -> Result<Files, Error> {
        let shards = into_shards(tensors, max_shard_bytes);
        remove_another_layout(dir, shards.len())?;
        let mut created = Files { files: Vec::new(), starts: BTreeMap::new() };
        let mut weight_map = serde_json::Map::new();
        for (number, shard) in shards.iter().enumerate() {
            let name = match shards.len() {
                1 => WEIGHTS.to_owned(),
                all => format!("model-{:05}-of-{all:05}.safetensors", number + 1),
            };
            created.add(&dir.join(&name), shard)?;
            weight_map.extend(shard.iter().map(|tensor| (tensor.name.to_owned(), json!(name))));
        }
        if shards.len() > 1 {
            weight_map.sort_keys();
            let total: usize = tensors.iter().map(|tensor| tensor.bytes).sum();
            let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
            fs_err::write(dir.join(INDEX), format!("{index:#}\n"))?;
        }
        Ok(created)
    }

    /// One file of this name.
    pub(crate) fn create_one(path: &Path, tensors: &[Placed<'_>]) -> Result<Files, Error> {
        let mut created = Files { files: Vec::new(), starts: BTreeMap::new() };
        created.add(path, &tensors.iter().collect::<Vec<_>>())?;
        Ok(created)
    }

    fn add(&mut self, path: &Path, tensors: &[&Placed<'_>]) -> Result<(), Error> {
        // Wide numbers first, so that all of them are aligned.
        let mut ordered: Vec<&&Placed<'_>> = tensors.iter().collect();
        ordered.sort_by_key(|tensor| std::cmp::Reverse(tensor.dtype.bitsize()));
        let (mut infos, mut offset) = (Vec::new(), 0);
        for tensor in &ordered {
            let data_offsets = (offset, offset + tensor.bytes);
            infos.push((
                tensor.name.to_owned(),
                TensorInfo { dtype: tensor.dtype, shape: tensor.shape.to_vec(), data_offsets },
            ));
            offset += tensor.bytes;
        }
        let wrong = |source| Error::Weights { path: path.to_owned(), source };
        let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        let header = Metadata::new(Some(format), infos).map_err(wrong)?;
        let mut header = serde_json::to_string(&header).map_err(|error| wrong(error.into()))?.into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = fs_err::File::create(path)?;
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut start = 8 + header.len() as u64;
        for tensor in ordered {
            self.starts.insert(tensor.name.to_owned(), (self.files.len(), start));
            start += tensor.bytes as u64;
        }
        file.set_len(start)?;
        self.files.push(file);
        Ok(())
    }

    /// Writes numbers of a tensor that is stored as `dtype`, from the number `start` on.
    pub(crate) fn write_numbers(
        &mut self,
        tensor: &str,
        start: usize,
        values: &[f32],
        dtype: SaveDType,
    ) -> Result<(), Error> {
        let mut bytes = Vec::with_capacity(values.len().min(CHUNK) * dtype.size());
        for (chunk, values) in values.chunks(CHUNK).enumerate() {
            bytes.clear();
            let lost = |value| Error::TooLarge { tensor: tensor.to_owned(), value, dtype: dtype.name() };
            dtype.extend(&mut bytes, values).map_err(lost)?;
            self.write(tensor, (start + chunk * CHUNK) * dtype.size(), &bytes)?;
        }
        Ok(())
    }

    /// Writes bytes of a tensor from an offset on.
    pub(crate) fn write(&mut self, tensor: &str, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let (file, start) = self.starts[tensor];
        let file = &mut self.files[file];
        file.seek(SeekFrom::Start(start + offset as u64))?;
        Ok(file.write_all(bytes)?)
    }
}

/// Tensors in their order, as many to a file as fit.
fn into_shards<'a, 'b>(tensors: &'a [Placed<'b>], max_shard_bytes: u64) -> Vec<Vec<&'a Placed<'b>>> {
    let mut shards: Vec<Vec<&Placed<'_>>> = vec![Vec::new()];
    let mut filled = 0;
    for tensor in tensors {
        if filled > 0 && filled + tensor.bytes as u64 > max_shard_bytes {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += tensor.bytes as u64;
        shards.last_mut().expect("there is a first one").push(tensor);
    }
    shards
}

/// A folder written again, in another number of files, must not keep the earlier ones.
fn remove_another_layout(dir: &Path, shards: usize) -> Result<(), Error> {
    let stale = if shards == 1 { INDEX } else { WEIGHTS };
    let stale = dir.join(stale);
    if stale.is_file() { Ok(fs_err::remove_file(stale)?) } else { Ok(()) }
}
