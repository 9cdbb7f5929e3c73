//! The files of a checkpoint, mapped: which tensor lies where.

use super::{INDEX, WEIGHTS, numbers};
use crate::Error;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// All tensors of a folder: of `model.safetensors`, or of the shards that an index names.
pub(crate) struct Checkpoint {
    pub(crate) folder: PathBuf,
    shards: Vec<Shard>,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

/// A mapped file of weights.
struct Shard {
    path: PathBuf,
    bytes: Mmap,
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    shard: usize,
    /// Where its bytes lie in the shard.
    bytes: Range<usize>,
}

impl Checkpoint {
    /// Reads the headers; no number is touched.
    pub(crate) fn open(folder: &Path) -> Result<Checkpoint, Error> {
        let (single, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        let mut checkpoint = Checkpoint { folder: folder.to_owned(), shards: Vec::new(), tensors: BTreeMap::new() };
        match (single.is_file(), index.is_file()) {
            (true, true) => return Err(Error::TwoCheckpoints { folder: folder.to_owned() }),
            (false, false) => return Err(Error::NoWeights { folder: folder.to_owned() }),
            (true, false) => checkpoint.add(single)?,
            (false, true) => {
                let placed = read_index(&index)?;
                let files: BTreeSet<&String> = placed.values().collect();
                files.into_iter().try_for_each(|file| checkpoint.add(folder.join(file)))?;
                checkpoint.check_index(&placed)?;
            }
        }
        Ok(checkpoint)
    }

    /// The tensors of one file.
    pub(crate) fn of_file(path: &Path) -> Result<Checkpoint, Error> {
        let folder = path.parent().unwrap_or(path).to_owned();
        let mut checkpoint = Checkpoint { folder, shards: Vec::new(), tensors: BTreeMap::new() };
        checkpoint.add(path.to_owned())?;
        Ok(checkpoint)
    }

    /// Bytes of each file.
    pub(crate) fn file_bytes(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.bytes.len() as u64).collect()
    }

    pub(crate) fn path(&self, stored: &Stored) -> &Path {
        &self.shards[stored.shard].path
    }

    pub(crate) fn bytes(&self, stored: &Stored) -> &[u8] {
        &self.shards[stored.shard].bytes[stored.bytes.clone()]
    }

    /// Appends some numbers of a tensor in single precision, and lets go of the pages that held them.
    pub(crate) fn read(&self, stored: &Stored, range: Range<usize>, out: &mut Vec<f32>) {
        let width = numbers::size_of(stored.dtype);
        let bytes = range.start * width..range.end * width;
        numbers::extend(out, stored.dtype, &self.bytes(stored)[bytes.clone()]);
        let start = stored.bytes.start;
        self.shards[stored.shard].release(start + bytes.start..start + bytes.end);
    }

    /// Lets go of the pages of a whole tensor.
    pub(crate) fn release(&self, stored: &Stored) {
        self.shards[stored.shard].release(stored.bytes.clone());
    }

    /// Takes the tensors of a file.
    fn add(&mut self, path: PathBuf) -> Result<(), Error> {
        let shard = Shard::map(path)?;
        let damaged = |source| Error::Weights { path: shard.path.clone(), source };
        let file = SafeTensors::deserialize(&shard.bytes).map_err(damaged)?;
        let start_of = |data: &[u8]| data.as_ptr().addr() - shard.bytes.as_ptr().addr();
        for (name, view) in file.iter() {
            let start = start_of(view.data());
            let bytes = start..start + view.data().len();
            let shape = view.shape().to_vec();
            let stored = Stored { dtype: view.dtype(), shape, shard: self.shards.len(), bytes };
            if let Some(other) = self.tensors.insert(name.to_owned(), stored) {
                let paths = [self.path(&other).to_owned(), shard.path.clone()];
                return Err(Error::InTwoShards { tensor: name.to_owned(), paths });
            }
        }
        self.shards.push(shard);
        Ok(())
    }

    /// Every tensor is where the index puts it, and the index names every tensor.
    fn check_index(&self, placed: &BTreeMap<String, String>) -> Result<(), Error> {
        for (tensor, file) in placed {
            let path = self.folder.join(file);
            if self.tensors.get(tensor).is_none_or(|stored| self.path(stored) != path) {
                return Err(Error::NotInShard { path, tensor: tensor.clone() });
            }
        }
        match self.tensors.iter().find(|(tensor, _)| !placed.contains_key(*tensor)) {
            None => Ok(()),
            Some((tensor, stored)) => {
                Err(Error::NotInIndex { path: self.path(stored).to_owned(), tensor: tensor.clone() })
            }
        }
    }
}

impl Shard {
    #[expect(unsafe_code, reason = "the one memory map of this crate")]
    fn map(path: PathBuf) -> Result<Shard, Error> {
        let file = fs_err::File::open(&path)?;
        // SAFETY: the map is read only, and checkpoints are written to a temporary folder and renamed, never changed
        // in place; a file that another program cuts while we read it ends this process, as for any mapped reader.
        let bytes = unsafe { Mmap::map(file.file()) }?;
        Ok(Shard { path, bytes })
    }

    /// Pages that were read count as ours until they are given back; another read gets them from the file again.
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "the advice may lose changes, and a read-only map has none")]
    fn release(&self, bytes: Range<usize>) {
        // SAFETY: the pages are a file's, mapped to be read only: they come back with the same bytes.
        let released =
            unsafe { self.bytes.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
        // Refused advice costs memory and nothing else.
        drop(released);
    }

    #[cfg(not(unix))]
    fn release(&self, _: Range<usize>) {}
}

/// The file of each tensor, by the index's `weight_map`.
fn read_index(path: &Path) -> Result<BTreeMap<String, String>, Error> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let wrong = |reason: String| Error::Index { path: path.to_owned(), reason };
    let text = fs_err::read_to_string(path)?;
    let index: Index = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    for (tensor, file) in &index.weight_map {
        if Path::new(file).file_name() != Some(file.as_ref()) {
            return Err(wrong(format!("tensor `{tensor}` is put in `{file}`, which is not a plain file name")));
        }
    }
    if index.weight_map.is_empty() { Err(wrong("`weight_map` is empty".to_owned())) } else { Ok(index.weight_map) }
}
