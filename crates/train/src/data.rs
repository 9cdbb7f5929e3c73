//! Where rows come from, with a key that changes when they do.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use worldloom_model::{ModelConfig, visible_keys};
use worldloom_schema::{Artifact, InputRef, MANIFEST, Row, ShardSet, hash_file};

use crate::batch::predicting_length;
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

/// Rows of several artifacts, one after the other.
struct Joined {
    parts: Vec<Box<dyn Rows>>,
    /// First row number of each part, and the total at the end.
    starts: Vec<usize>,
}

impl Rows for Joined {
    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn row(&self, index: usize) -> Result<Row> {
        let part = self.starts.partition_point(|&start| start <= index).saturating_sub(1).min(self.parts.len() - 1);
        self.parts[part].row(index - self.starts[part])
    }
}

/// One artifact among the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What a mixture calls it; empty where it is alone.
    pub name: String,
    /// Where it lies; empty where there is no folder.
    pub path: PathBuf,
    /// Hash of its content.
    pub key: String,
    /// Numbers of its rows.
    pub rows: Range<usize>,
}

/// What the making of rows lost for being too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The folder that says so.
    pub path: PathBuf,
    /// Tokens that are in no row.
    pub tokens: u64,
    /// Tokens that were rendered.
    pub of: u64,
}

/// What tokens and sources mean to those who made them, for measuring. The trainer knows them as numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// Bytes of text behind each token id.
    pub token_bytes: Vec<u32>,
    /// Domain by source, as rows name their sources.
    pub domains: HashMap<String, String>,
}

/// Rows with their origin.
pub struct Data {
    /// The rows.
    pub rows: Box<dyn Rows>,
    /// What they were joined from, in order; one unless [`Data::mix`] made it.
    pub parts: Vec<Part>,
    /// Ids that end an answer; empty: not known, and not checked.
    pub stop_tokens: Vec<u32>,
    /// What the making of each part lost, where its manifest says so.
    pub lost: Vec<Lost>,
    /// Meanings, where they are known.
    pub labels: Option<Labels>,
}

impl Data {
    /// The shards of a folder. The hashes of a manifest are taken for true if the sizes agree.
    pub fn open(folder: &Path) -> Result<Self> {
        let rows = Box::new(ShardSet::open(folder)?);
        let lost = lost_of(folder)?.into_iter().collect();
        Ok(Self { lost, ..Self::of(rows, key_of_shards(folder)?, folder) })
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
        Self::of(Box::new(rows), hasher.finalize().to_hex()[..32].into(), Path::new(""))
    }

    fn of(rows: Box<dyn Rows>, key: String, path: &Path) -> Self {
        let part = Part { name: String::new(), path: path.into(), key, rows: 0..rows.len() };
        Self { rows, parts: vec![part], stop_tokens: Vec::new(), lost: Vec::new(), labels: None }
    }

    /// Several artifacts by name, to be mixed. Stop tokens and labels are the caller's to set.
    pub fn mix(named: Vec<(String, Data)>) -> Self {
        let (mut parts, mut lost, mut joined) = (Vec::new(), Vec::new(), Joined { parts: Vec::new(), starts: vec![0] });
        for (name, data) in named {
            let start = joined.len();
            let rows = start..start + data.rows.len();
            parts.extend(data.parts.into_iter().map(|part| Part { name: name.clone(), rows: rows.clone(), ..part }));
            lost.extend(data.lost);
            joined.starts.push(rows.end);
            joined.parts.push(data.rows);
        }
        Self { rows: Box::new(joined), parts, stop_tokens: Vec::new(), lost, labels: None }
    }

    /// The parts as inputs of a run; `role` names them.
    pub(crate) fn inputs(&self, role: &str) -> Vec<(String, InputRef)> {
        let name =
            |part: &Part| if part.name.is_empty() { role.to_string() } else { format!("{role} `{}`", part.name) };
        self.parts
            .iter()
            .map(|part| (name(part), InputRef { path: part.path.clone(), key: part.key.clone() }))
            .collect()
    }
}

/// What a render says of its own losses: tokens that came in and are in no row.
fn lost_of(folder: &Path) -> Result<Option<Lost>> {
    if !folder.join(MANIFEST).exists() {
        return Ok(None);
    }
    let counts = Artifact::open_any(folder)?.manifest.counts;
    let Some(&of) = counts.get("tokens_rendered") else { return Ok(None) };
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let tokens = (of + count("tokens_repeated")).saturating_sub(count("tokens") + count("tokens_shared"));
    Ok(Some(Lost { path: folder.into(), tokens, of }))
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

/// What is known of a row without reading it again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Facts {
    /// Its tokens.
    pub(crate) tokens: u32,
    /// Those with a weight above 0.
    pub(crate) trained: u32,
    /// Those that the decoder computes: up to the last target.
    pub(crate) computed: u32,
    /// Its documents.
    pub(crate) documents: u32,
    /// The sum of its weights.
    pub(crate) weight: f64,
}

/// What a scan of the data found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Scan {
    /// Numbers of the rows that have targets.
    pub(crate) trained: Vec<usize>,
    /// Rows without a target.
    pub(crate) untrained: usize,
    /// Of every row.
    pub(crate) facts: Vec<Facts>,
    /// Tokens that end an answer.
    pub(crate) stop_tokens: u64,
    /// Those of them that are targets.
    pub(crate) stop_targets: u64,
}

/// Looks at every row once and refuses what would fail inside the decoder.
pub(crate) fn scan(data: &Data, model: &ModelConfig) -> Result<Scan> {
    let mut scan = Scan::default();
    for number in 0..data.rows.len() {
        let row = data.rows.row(number)?;
        check_row(&row, model).map_err(|detail| Error::Row { row: number, detail })?;
        let facts = Facts {
            tokens: row.tokens.len() as u32,
            trained: row.weights.iter().filter(|&&weight| weight > 0.0).count() as u32,
            computed: predicting_length(&row) as u32,
            documents: row.continues.len() as u32,
            weight: row.total_weight(),
        };
        for (_, weight) in row.tokens.iter().zip(&row.weights).filter(|(token, _)| data.stop_tokens.contains(token)) {
            scan.stop_tokens += 1;
            scan.stop_targets += u64::from(*weight > 0.0);
        }
        match facts.trained > 0 {
            true => scan.trained.push(number),
            false => scan.untrained += 1,
        }
        scan.facts.push(facts);
    }
    if scan.trained.is_empty() {
        return Err(Error::NoTargets { rows: data.rows.len() });
    }
    Ok(scan)
}

fn check_row(row: &Row, model: &ModelConfig) -> std::result::Result<(), String> {
    let (vocab_size, max_positions) = (model.vocab_size, model.max_position_embeddings);
    row.check()?;
    if let Some(token) = row.tokens.iter().find(|&&token| token as usize >= vocab_size) {
        return Err(format!("token id {token}, but the model's vocabulary has {vocab_size}"));
    }
    if let Some(position) = row.positions.iter().find(|&&position| position as usize >= max_positions) {
        return Err(format!("position {position}, but the model has {max_positions}"));
    }
    visible_keys(&row.segments, &row.continues).map(|_| ())
}
