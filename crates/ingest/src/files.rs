//! Which files an ingest reads, in which order, and how they are unpacked.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Endings looked for in folders; a file given by name is read whatever its ending.
pub(crate) const ENDINGS: [&str; 3] = [".json", ".jsonl", ".ndjson"];
/// Packed forms, recognised by their first bytes; the endings only matter in folders.
const PACKED: [&str; 4] = [".gz", ".gzip", ".zst", ".zstd"];
const BUFFER_BYTES: usize = 1 << 20;

/// One file to read.
#[derive(Debug)]
pub(crate) struct InputFile {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its path relative to the input it was found under, with `/` on every system.
    pub(crate) name: String,
    /// Name of the source for rows that do not say: the folder it lies in, or its own name without endings.
    pub(crate) source: String,
    /// Size on disk.
    pub(crate) bytes: u64,
}

/// The files, and how many others were passed over.
pub(crate) struct Listing {
    pub(crate) files: Vec<InputFile>,
    pub(crate) skipped: u64,
}

/// Lists the files of all inputs: inputs in the order given, folders sorted by name, each file once.
pub(crate) fn list(inputs: &[PathBuf]) -> Result<Listing> {
    let mut listing = Listing { files: Vec::new(), skipped: 0 };
    let mut seen = BTreeSet::new();
    for input in inputs {
        if !input.exists() {
            return Err(Error::MissingInput { path: input.clone() });
        }
        if input.is_dir() {
            list_folder(input, &mut seen, &mut listing)?;
        } else if seen.insert(fs_err::canonicalize(input)?) {
            let name = input.file_name().unwrap_or(input.as_os_str()).to_string_lossy().into_owned();
            listing.files.push(input_file(input.clone(), name, None)?);
        }
    }
    if listing.files.is_empty() {
        return Err(Error::NoFiles { inputs: names(inputs), skipped: listing.skipped });
    }
    Ok(listing)
}

fn list_folder(folder: &Path, seen: &mut BTreeSet<PathBuf>, listing: &mut Listing) -> Result<()> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(folder).follow_links(true) {
        let entry = entry.map_err(|error| Error::Walk { path: folder.into(), detail: error.to_string() })?;
        if !entry.file_type().is_file() {
            continue;
        }
        let parts = entry.path().strip_prefix(folder).unwrap_or(entry.path()).components();
        let name = parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
        if wanted(&name) { found.push((name, entry.into_path())) } else { listing.skipped += 1 }
    }
    found.sort();
    for (name, path) in found {
        if seen.insert(fs_err::canonicalize(&path)?) {
            listing.files.push(input_file(path, name, Some(folder))?);
        }
    }
    Ok(())
}

fn input_file(path: PathBuf, name: String, folder: Option<&Path>) -> Result<InputFile> {
    let bytes = fs_err::metadata(&path)?.len();
    let parent = match name.split_once('/') {
        Some((first, _)) => Some(first.to_string()),
        None => folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())),
    };
    let source = parent.unwrap_or_else(|| stem(&name).to_string());
    Ok(InputFile { path, name, source, bytes })
}

fn wanted(name: &str) -> bool {
    let hidden = name.rsplit('/').next().is_some_and(|last| last.starts_with('.'));
    !hidden && ENDINGS.iter().any(|ending| unpacked_name(name).ends_with(ending))
}

/// The name without the ending of a packed form, in lower case.
pub(crate) fn unpacked_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let bare = PACKED.iter().find_map(|ending| lower.strip_suffix(ending)).map(str::to_string);
    bare.unwrap_or(lower)
}

fn stem(name: &str) -> &str {
    name.split('.').find(|part| !part.is_empty()).unwrap_or(name)
}

/// The inputs as they are named in errors.
pub(crate) fn names(inputs: &[PathBuf]) -> String {
    if inputs.is_empty() {
        return "an empty list of inputs".into();
    }
    inputs.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

/// Opens a file, unpacked by its first bytes; `read_bytes` counts what was taken from the disk.
pub(crate) fn open(file: &InputFile, read_bytes: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>> {
    let counted = Counted { inner: fs_err::File::open(&file.path)?, bytes: read_bytes.clone() };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, counted);
    let start = reader.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(reader)))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, zstd::Decoder::with_buffer(reader)?))
    } else {
        Box::new(reader)
    })
}

struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
