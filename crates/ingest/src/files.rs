//! Files and folders of the input: where they lie, what they are called, how they are unpacked.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::feed::WHOLE_FILE_BYTES;
use crate::refusal::Refusal;
use crate::remote::RemoteFile;
use crate::source::Source;

/// Endings looked for in folders; a file given by name is read whatever its ending.
pub(crate) const ENDINGS: [&str; 16] = [
    ".json",
    ".jsonl",
    ".ndjson",
    ".traj",
    ".cast",
    ".eval",
    ".har",
    ".xml",
    ".txt",
    ".log",
    ".yaml",
    ".yml",
    ".parquet",
    ".arrow",
    ".csv",
    ".tfrecord",
];
/// Packed forms, recognised by their first bytes; the endings only matter in folders.
const PACKED: [&str; 4] = [".gz", ".gzip", ".zst", ".zstd"];
const BUFFER_BYTES: usize = 1 << 20;

/// Where a file's bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    Path(PathBuf),
    Memory(bytes::Bytes),
    Remote(Box<RemoteFile>),
}

/// One file to read.
#[derive(Debug)]
pub(crate) struct InputFile {
    /// Where it lies.
    pub(crate) place: Place,
    /// Its path relative to the input it was found under, with `/` on every system; inside an archive, after its name.
    pub(crate) name: String,
    /// Name of the source for rows that do not say: the folder it lies in, or its own name without endings.
    pub(crate) source: String,
    /// Size on disk.
    pub(crate) bytes: u64,
    /// What changes when its content does.
    pub(crate) version: String,
}

/// A folder whose files make one episode.
pub(crate) struct InputFolder<'s> {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// Its path relative to the input it was found under, with `/` on every system.
    pub(crate) name: String,
    /// Name of the source for episodes that do not say.
    pub(crate) source: String,
    /// The files in it that belong to the episode, relative to it, sorted.
    pub(crate) entries: Vec<String>,
    /// Their size on disk.
    pub(crate) bytes: u64,
    /// The format.
    pub(crate) kind: &'s dyn Source,
}

/// What is read as one.
pub(crate) enum Entry<'s> {
    File(InputFile),
    Folder(InputFolder<'s>),
    /// An archive that could not be unpacked.
    Refused {
        name: String,
        source: String,
        refusal: Refusal,
    },
}

impl Entry<'_> {
    pub(crate) fn name(&self) -> &str {
        match self {
            Entry::File(file) => &file.name,
            Entry::Folder(folder) => &folder.name,
            Entry::Refused { name, .. } => name,
        }
    }

    /// Size on disk.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Entry::File(file) => file.bytes,
            Entry::Folder(folder) => folder.bytes,
            Entry::Refused { .. } => 0,
        }
    }

    /// What tells it from another entry and from itself changed.
    pub(crate) fn identity(&self) -> String {
        match self {
            Entry::File(file) => format!("file {} {} {}", file.name, file.bytes, file.version),
            Entry::Folder(folder) => format!("folder {} {} {}", folder.name, folder.bytes, folder.entries.join(" ")),
            Entry::Refused { name, refusal, .. } => format!("refused {name} {}", refusal.rule),
        }
    }
}

/// The bytes of an entry of a folder, unpacked.
pub(crate) fn read_entry(folder: &InputFolder<'_>, entry: &str) -> std::result::Result<Vec<u8>, Refusal> {
    let bytes = read_head(&folder.path.join(entry), &folder.entries, entry, WHOLE_FILE_BYTES + 1)?;
    if bytes.len() as u64 > WHOLE_FILE_BYTES {
        return Err(Refusal::new("file_too_large", format!("`{entry}`: more than {WHOLE_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// The first bytes of a file that is one of `entries`, unpacked; all of them, if there are no more than `most`.
pub(crate) fn read_head(
    path: &Path,
    entries: &[String],
    entry: &str,
    most: u64,
) -> std::result::Result<Vec<u8>, Refusal> {
    if !entries.iter().any(|name| name == entry) {
        return Err(Refusal::new("missing_file", format!("no `{entry}` in the folder")));
    }
    let read = || -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        unpack(fs_err::File::open(path)?)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| Refusal::new("unreadable", format!("`{entry}`: {error}")))
}

/// A file on disk; without a `source`, its own name says it.
pub(crate) fn input_file(path: PathBuf, name: String, source: Option<String>) -> Result<InputFile> {
    let metadata = fs_err::metadata(&path)?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let source = source.unwrap_or_else(|| stem(&name).to_string());
    let version = modified.map_or(0, |time| time.as_nanos()).to_string();
    Ok(InputFile { place: Place::Path(path), name, source, bytes: metadata.len(), version })
}

/// Whether a file in a folder is looked at: one with a known ending that is not hidden.
pub(crate) fn wanted(name: &str, endings: &[&str]) -> bool {
    let hidden = name.rsplit('/').next().is_some_and(|last| last.starts_with('.'));
    let unpacked = unpacked_name(name);
    !hidden && (crate::archive::is_archive_name(name) || endings.iter().any(|ending| unpacked.ends_with(ending)))
}

/// The name without the ending of a packed form, in lower case.
pub(crate) fn unpacked_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let bare = PACKED.iter().find_map(|ending| lower.strip_suffix(ending)).map(str::to_string);
    bare.unwrap_or(lower)
}

/// The name without its endings.
pub(crate) fn stem(name: &str) -> &str {
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
    let bytes = read_bytes.clone();
    Ok(match &file.place {
        Place::Path(path) => unpack(Counted { inner: fs_err::File::open(path)?, bytes })?,
        Place::Memory(content) => unpack(std::io::Cursor::new(content.clone()))?,
        Place::Remote(object) => unpack(Counted { inner: object.open()?, bytes })?,
    })
}

/// The bytes of a file that may be packed.
pub(crate) fn unpack(inner: impl Read + Send + 'static) -> std::io::Result<Box<dyn BufRead + Send>> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, inner);
    let start = reader.fill_buf()?;
    Ok(if is_gzip(start) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, flate2::bufread::MultiGzDecoder::new(reader)))
    } else if is_zstd(start) {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, zstd::Decoder::with_buffer(reader)?))
    } else {
        Box::new(reader)
    })
}

fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

fn is_zstd(start: &[u8]) -> bool {
    start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}

/// Whether the first bytes are those of a packed file.
pub(crate) fn is_packed_content(start: &[u8]) -> bool {
    is_gzip(start) || is_zstd(start)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_entry_the_first_bytes_are_read_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let text = "0123456789".repeat(300_000);
        fs_err::write(folder.path().join("a.jsonl"), &text).unwrap();
        fs_err::write(folder.path().join("b.jsonl.zst"), zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
        for name in ["a.jsonl", "b.jsonl.zst"] {
            let read = |most| read_head(&folder.path().join(name), &[name.into()], name, most).unwrap();
            assert_eq!(read(15), b"012345678901234");
            assert_eq!(read(u64::MAX), text.as_bytes());
            assert!(read(1 << 20).capacity() < 3 << 20, "memory is that of the bytes asked for");
        }
        let missing = read_head(&folder.path().join("c"), &["a.jsonl".into()], "c", 1).unwrap_err();
        assert_eq!(missing.rule, "missing_file");
    }
}
