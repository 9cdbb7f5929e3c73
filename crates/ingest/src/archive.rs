//! Archives: zip, tar, packed tar. They are unpacked into a folder that goes away with the run, then read like any
//! folder.
//!
//! An archive that names a path outside itself, or unpacks to far more than its own size, is refused whole and leaves
//! nothing behind. Links and devices are passed over and counted.

use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};

use crate::refusal::Refusal;

/// An archive may unpack to this many times its size,
const MAX_RATIO: u64 = 200;
/// or to this much, whichever is more.
const MIN_LIMIT_BYTES: u64 = 256 << 20;
/// Files in an archive.
const MAX_ENTRIES: u64 = 1_000_000;

/// The kinds we unpack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Zip,
    Tar,
}

/// Whether the name of a file in a folder ends like an archive.
pub(crate) fn is_archive_name(name: &str) -> bool {
    let name = name.to_lowercase();
    [".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|ending| name.ends_with(ending))
}

/// The kind by the first bytes: of the file for zip, of what it unpacks to for tar.
pub(crate) fn kind(packed: &[u8], unpacked: &[u8]) -> Option<Kind> {
    match () {
        () if packed.starts_with(b"PK\x03\x04") || packed.starts_with(b"PK\x05\x06") => Some(Kind::Zip),
        () if unpacked.get(257..262) == Some(b"ustar") => Some(Kind::Tar),
        () => None,
    }
}

/// What unpacking did besides.
#[derive(Default)]
pub(crate) struct Unpacked {
    pub(crate) links_skipped: u64,
}

/// Unpacks a zip file into `target`.
pub(crate) fn unpack_zip(file: fs_err::File, bytes: u64, target: &Path) -> Result<Unpacked, Refusal> {
    let wrong = |error: zip::result::ZipError| Refusal::new("archive", format!("not a readable zip: {error}"));
    let mut zip = zip::ZipArchive::new(file).map_err(wrong)?;
    let mut budget = Budget::of(bytes);
    let mut unpacked = Unpacked::default();
    for at in 0..zip.len() {
        let mut entry = zip.by_index(at).map_err(wrong)?;
        let path = safe(Path::new(entry.name().map_err(wrong)?.as_ref()))?;
        if entry.is_dir() {
            continue;
        }
        if entry.is_symlink() {
            unpacked.links_skipped += 1;
            continue;
        }
        budget.write(&mut entry, &target.join(path))?;
    }
    Ok(unpacked)
}

/// Unpacks a tar stream into `target`.
pub(crate) fn unpack_tar(reader: impl Read, bytes: u64, target: &Path) -> Result<Unpacked, Refusal> {
    let wrong = |error: std::io::Error| Refusal::new("archive", format!("not a readable tar: {error}"));
    let mut budget = Budget::of(bytes);
    let mut unpacked = Unpacked::default();
    let mut tar = tar::Archive::new(reader);
    for entry in tar.entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let path = entry.path().map_err(wrong)?.into_owned();
        match entry.header().entry_type() {
            kind if kind.is_file() || kind == tar::EntryType::Continuous || kind.is_gnu_sparse() => {
                budget.write(&mut entry, &target.join(safe(&path)?))?;
            }
            kind if kind.is_dir() => {
                safe(&path)?;
            }
            kind if kind.is_pax_global_extensions() => {}
            _ => unpacked.links_skipped += 1,
        }
    }
    Ok(unpacked)
}

/// The path of an entry, if it stays inside the archive.
fn safe(path: &Path) -> Result<PathBuf, Refusal> {
    let outside = || Refusal::new("archive_path", format!("`{}` leads out of the archive", path.display()));
    let mut kept = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) if !part.to_string_lossy().contains(['\\', '\0']) => kept.push(part),
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    if kept.as_os_str().is_empty() && path.components().count() > 1 {
        return Err(outside());
    }
    Ok(kept)
}

/// How much may still be written.
struct Budget {
    bytes: u64,
    entries: u64,
    limit: u64,
}

impl Budget {
    fn of(archive_bytes: u64) -> Self {
        let limit = archive_bytes.saturating_mul(MAX_RATIO).max(MIN_LIMIT_BYTES);
        Self { bytes: limit, entries: MAX_ENTRIES, limit }
    }

    fn write(&mut self, reader: &mut impl Read, path: &Path) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| Refusal::new("archive", error.to_string());
        self.entries = self
            .entries
            .checked_sub(1)
            .ok_or_else(|| Refusal::new("archive_bomb", format!("more than {MAX_ENTRIES} files")))?;
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent).map_err(failed)?;
        }
        let mut file = fs_err::File::create(path).map_err(failed)?;
        let mut limited = reader.take(self.bytes + 1);
        let written = std::io::copy(&mut limited, &mut file).map_err(failed)?;
        file.flush().map_err(failed)?;
        self.bytes = self
            .bytes
            .checked_sub(written)
            .ok_or_else(|| Refusal::new("archive_bomb", format!("unpacks to more than {} bytes", self.limit)))?;
        Ok(())
    }
}
