//! Where rows come from, with a key that changes when they do.

use std::path::{Path, PathBuf};

use worldloom_model::{ModelConfig, visible_keys};
use worldloom_schema::{Artifact, MANIFEST, Row, ShardSet, hash_file};

use crate::error::{Error, Result};

/// Rows addressed by number.
pub trait Rows {
    /// Number of rows.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row with this number.
    fn row(&self, index: usize) -> Result<Row>;
}

impl Rows for ShardSet {
    fn len(&self) -> usize {
        ShardSet::len(self)
    }

    fn row(&self, index: usize) -> Result<Row> {
        Ok(ShardSet::row(self, index)?)
    }
}

impl Rows for Vec<Row> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn row(&self, index: usize) -> Result<Row> {
        Ok(self[index].clone())
    }
}

/// Rows with their origin.
pub struct Data {
    /// The rows.
    pub rows: Box<dyn Rows>,
    /// Hash of their content.
    pub key: String,
    /// The folder they come from; empty where there is none.
    pub path: PathBuf,
}

impl Data {
    /// The shards of a folder. The hashes of a manifest are taken for true if the sizes agree.
    pub fn open(folder: &Path) -> Result<Self> {
        let rows = Box::new(ShardSet::open(folder)?);
        Ok(Self { rows, key: key_of_shards(folder)?, path: folder.into() })
    }

    /// Rows in memory.
    pub fn from_rows(rows: Vec<Row>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for row in &rows {
            hasher.update(&(row.tokens.len() as u64).to_le_bytes());
            for list in [&row.tokens, &row.positions, &row.segments] {
                hasher.update(bytemuck::cast_slice(list));
            }
            hasher.update(bytemuck::cast_slice(&row.weights));
            hasher.update(bytemuck::cast_slice(&row.continues));
        }
        Self { rows: Box::new(rows), key: hasher.finalize().to_hex()[..32].into(), path: PathBuf::new() }
    }
}

fn key_of_shards(folder: &Path) -> Result<String> {
    let mut entries = Vec::new();
    let is_shard = |name: &str| name.ends_with(".shard");
    if folder.join(MANIFEST).exists() {
        let artifact = Artifact::open_any(folder)?;
        artifact.verify(false)?;
        let shards = artifact.manifest.files.into_iter().filter(|(name, _)| is_shard(name));
        entries.extend(shards.map(|(name, entry)| (name, entry.blake3)));
    } else {
        for entry in fs_err::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if is_shard(&name) {
                entries.push((name, hash_file(&path)?));
            }
        }
    }
    entries.sort();
    let text: String = entries.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect();
    Ok(blake3::hash(text.as_bytes()).to_hex()[..32].into())
}

/// What a scan of the data found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Numbers of the rows that have targets.
    pub(crate) trained: Vec<usize>,
    /// Rows without a target.
    pub(crate) untrained: usize,
}

/// Looks at every row once and refuses what would fail inside the decoder.
pub(crate) fn scan(rows: &dyn Rows, model: &ModelConfig) -> Result<Scan> {
    let (vocab_size, max_positions) = (model.vocab_size, model.max_position_embeddings);
    let mut scan = Scan::default();
    for number in 0..rows.len() {
        let row = rows.row(number)?;
        let wrong = |detail: String| Err(Error::Row { row: number, detail });
        row.check().map_err(|detail| Error::Row { row: number, detail })?;
        if let Some(token) = row.tokens.iter().find(|&&token| token as usize >= vocab_size) {
            return wrong(format!("token id {token}, but the model's vocabulary has {vocab_size}"));
        }
        if let Some(position) = row.positions.iter().find(|&&position| position as usize >= max_positions) {
            return wrong(format!("position {position}, but the model has {max_positions}"));
        }
        if let Err(detail) = visible_keys(&row.segments, &row.continues) {
            return wrong(detail);
        }
        match row.weights.iter().any(|&weight| weight > 0.0) {
            true => scan.trained.push(number),
            false => scan.untrained += 1,
        }
    }
    if scan.trained.is_empty() {
        return Err(Error::NoTargets { rows: rows.len() });
    }
    Ok(scan)
}
