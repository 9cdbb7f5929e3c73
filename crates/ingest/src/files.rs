//! Which files an ingest reads, in which order, and how they are unpacked.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::feed::WHOLE_FILE_BYTES;
use crate::piece::{FolderPiece, Piece, Shape};
use crate::refusal::Refusal;
use crate::source::{self, Source};

/// Endings looked for in folders; a file given by name is read whatever its ending.
pub(crate) const ENDINGS: [&str; 10] =
    [".json", ".jsonl", ".ndjson", ".traj", ".cast", ".eval", ".xml", ".txt", ".log", ".yaml"];
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

/// A folder whose files make one episode.
pub(crate) struct InputFolder {
    /// Where it lies.
    path: PathBuf,
    /// Its path relative to the input it was found under, with `/` on every system.
    pub(crate) name: String,
    /// Name of the source for episodes that do not say.
    pub(crate) source: String,
    /// The files in it that belong to the episode, relative to it, sorted.
    pub(crate) entries: Vec<String>,
    /// Their size on disk.
    pub(crate) bytes: u64,
    /// The format.
    pub(crate) kind: &'static dyn Source,
}

/// What is read as one.
pub(crate) enum Entry {
    File(InputFile),
    Folder(InputFolder),
}

/// What there is to read, and how many files were passed over.
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
}

impl Listing {
    fn push(&mut self, entry: Entry) {
        let (files, bytes) = match &entry {
            Entry::File(file) => (1, file.bytes),
            Entry::Folder(folder) => (folder.entries.len() as u64, folder.bytes),
        };
        self.files += files;
        self.bytes += bytes;
        self.entries.push(entry);
    }
}

/// Lists the files of all inputs: inputs in the order given, folders sorted by name, each file once. With a forced
/// format, only that one is looked for among folders.
pub(crate) fn list(inputs: &[PathBuf], forced: Option<&'static dyn Source>) -> Result<Listing> {
    let mut listing = Listing { entries: Vec::new(), files: 0, bytes: 0, skipped: 0 };
    let mut seen = BTreeSet::new();
    for input in inputs {
        if !input.exists() {
            return Err(Error::MissingInput { path: input.clone() });
        }
        if input.is_dir() {
            list_folder(input, forced, &mut seen, &mut listing)?;
        } else if seen.insert(fs_err::canonicalize(input)?) {
            let name = input.file_name().unwrap_or(input.as_os_str()).to_string_lossy().into_owned();
            listing.push(Entry::File(input_file(input.clone(), name, None)?));
        }
    }
    if listing.entries.is_empty() {
        return Err(Error::NoFiles { inputs: names(inputs), skipped: listing.skipped });
    }
    Ok(listing)
}

fn list_folder(
    folder: &Path,
    forced: Option<&'static dyn Source>,
    seen: &mut BTreeSet<PathBuf>,
    listing: &mut Listing,
) -> Result<()> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(folder).follow_links(true) {
        let entry = entry.map_err(|error| Error::Walk { path: folder.into(), detail: error.to_string() })?;
        if !entry.file_type().is_file() {
            continue;
        }
        let parts = entry.path().strip_prefix(folder).unwrap_or(entry.path()).components();
        let name = parts.map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/");
        if seen.insert(fs_err::canonicalize(entry.path())?) {
            found.push(name);
        }
    }
    found.sort();
    let (claimed, mut entries) = claim_folders(folder, &found, forced)?;
    for name in found {
        if claimed.contains(&name) {
            continue;
        }
        if wanted(&name) {
            entries.push(Entry::File(input_file(folder.join(&name), name, Some(folder))?));
        } else {
            listing.skipped += 1;
        }
    }
    entries.sort_by(|one, other| entry_name(one).cmp(entry_name(other)));
    entries.into_iter().for_each(|entry| listing.push(entry));
    Ok(())
}

fn entry_name(entry: &Entry) -> &str {
    match entry {
        Entry::File(file) => &file.name,
        Entry::Folder(folder) => &folder.name,
    }
}

/// The folders below `root` (and itself) that a format knows as one episode, outermost first, with the names of the
/// files they take.
fn claim_folders(
    root: &Path,
    names: &[String],
    forced: Option<&'static dyn Source>,
) -> Result<(BTreeSet<String>, Vec<Entry>)> {
    let mut folders = BTreeSet::from([String::new()]);
    for name in names {
        folders.extend(name.match_indices('/').map(|(at, _)| name[..at].to_string()));
    }
    let (mut claimed, mut entries) = (BTreeSet::new(), Vec::new());
    for folder in folders {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let inside: Vec<String> = names
            .iter()
            .filter(|name| !claimed.contains(*name))
            .filter_map(|name| Some(name.strip_prefix(&prefix)?.to_string()))
            .collect();
        let path = if folder.is_empty() { root.to_path_buf() } else { root.join(&folder) };
        let reader = |entry: &str| read_packed(&path.join(entry), &inside, entry);
        let piece = FolderPiece { name: &folder, entries: &inside, reader: &reader };
        let kind = match forced {
            Some(source) if source.shape() == Shape::Folder => {
                Some(source).filter(|source| source.detects(&Piece::Folder(&piece)))
            }
            Some(_) => None,
            None => source::detect_folder(&piece),
        };
        let Some(kind) = kind else { continue };
        let taken: Vec<String> = inside.iter().filter(|entry| kind.takes(entry)).cloned().collect();
        claimed.extend(taken.iter().map(|entry| format!("{prefix}{entry}")));
        entries.push(Entry::Folder(input_folder(root, path, folder, taken, kind)?));
    }
    Ok((claimed, entries))
}

fn input_folder(
    root: &Path,
    path: PathBuf,
    name: String,
    entries: Vec<String>,
    kind: &'static dyn Source,
) -> Result<InputFolder> {
    let sizes = entries.iter().map(|entry| Ok(fs_err::metadata(path.join(entry))?.len()));
    let bytes = sizes.sum::<Result<u64>>()?;
    let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let first = name.split('/').next().filter(|first| !first.is_empty()).map(str::to_string);
    let source = first.or_else(|| last(root)).unwrap_or_else(|| kind.name().into());
    Ok(InputFolder { path, name, source, entries, bytes, kind })
}

/// The bytes of an entry of a folder, unpacked.
pub(crate) fn read_entry(folder: &InputFolder, entry: &str) -> std::result::Result<Vec<u8>, Refusal> {
    read_packed(&folder.path.join(entry), &folder.entries, entry)
}

fn read_packed(path: &Path, entries: &[String], entry: &str) -> std::result::Result<Vec<u8>, Refusal> {
    if !entries.iter().any(|name| name == entry) {
        return Err(Refusal::new("missing_file", format!("no `{entry}` in the folder")));
    }
    let read = || -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        unpack(fs_err::File::open(path)?)?.take(WHOLE_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| Refusal::new("unreadable", format!("`{entry}`: {error}")))?;
    if bytes.len() as u64 > WHOLE_FILE_BYTES {
        return Err(Refusal::new("file_too_large", format!("`{entry}`: more than {WHOLE_FILE_BYTES} bytes")));
    }
    Ok(bytes)
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

/// Whether the name ends like that of a packed file.
pub(crate) fn is_packed(name: &str) -> bool {
    PACKED.iter().any(|ending| name.to_lowercase().ends_with(ending))
}

/// Opens a file, unpacked by its first bytes; `read_bytes` counts what was taken from the disk.
pub(crate) fn open(file: &InputFile, read_bytes: &Arc<AtomicU64>) -> Result<Box<dyn BufRead + Send>> {
    Ok(unpack(Counted { inner: fs_err::File::open(&file.path)?, bytes: read_bytes.clone() })?)
}

fn unpack(inner: impl Read + Send + 'static) -> std::io::Result<Box<dyn BufRead + Send>> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, inner);
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
