//! Which files an ingest reads, and in which order: inputs as given, folders walked and sorted, archives unpacked,
//! addresses listed, folders that are one episode found.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::archive;
use crate::error::{Error, Result};
use crate::files::{self, Entry, InputFile, InputFolder, Place};
use crate::piece::{FilePiece, FolderPiece, Piece, Shape};
use crate::refusal::{Counts, Refusal, count};
use crate::remote::{self, Access};
use crate::source::{self, Source};

/// First bytes of a file that say whether it is an archive.
const HEAD_BYTES: u64 = 64 << 10;
/// First bytes of a file that a source for folders is shown, so that a large log beside others is not read for its first line.
const DETECTION_BYTES: u64 = 16 << 20;

/// What there is to read, and how many files were passed over.
pub(crate) struct Listing<'s> {
    pub(crate) entries: Vec<Entry<'s>>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
    pub(crate) counts: Counts,
    /// Folders with unpacked archives; they go when the listing goes.
    unpacked: Vec<tempfile::TempDir>,
}

impl<'s> Listing<'s> {
    /// The entries, and the unpacked archives some of them lie in.
    pub(crate) fn into_entries(self) -> (Vec<Entry<'s>>, Vec<tempfile::TempDir>) {
        (self.entries, self.unpacked)
    }

    fn push(&mut self, entry: Entry<'s>) {
        self.files += if let Entry::Folder(folder) = &entry { folder.entries.len() as u64 } else { 1 };
        self.bytes += entry.bytes();
        self.entries.push(entry);
    }
}

/// How to look for files.
#[derive(Clone, Copy)]
pub(crate) struct Search<'s, 'a> {
    /// The one format to read all with; only that one is then looked for among folders.
    pub(crate) forced: Option<&'s dyn Source>,
    /// The formats that are looked for.
    pub(crate) formats: &'s [&'s dyn Source],
    /// How addresses are reached.
    pub(crate) access: &'a Access,
    /// Where archives may be unpacked.
    pub(crate) scratch: &'a Path,
    /// Whether texts are looked for rather than logs.
    pub(crate) endings: &'a [&'a str],
}

/// How deep archives may lie in archives.
const MAX_DEPTH: u32 = 3;

/// Lists the files of all inputs: inputs in the order given, folders sorted by name, each file once. Archives are
/// unpacked.
pub(crate) fn list<'s>(inputs: &[PathBuf], search: Search<'s, '_>) -> Result<Listing<'s>> {
    let mut listing =
        Listing { entries: Vec::new(), files: 0, bytes: 0, skipped: 0, counts: Counts::new(), unpacked: Vec::new() };
    let mut seen = BTreeSet::new();
    for input in inputs {
        if let Some(address) = remote::address(input) {
            list_remote(address, search, &mut listing)?;
            continue;
        }
        if !input.exists() {
            return Err(Error::MissingInput { path: input.clone() });
        }
        if input.is_dir() {
            let top = input.file_name().map(|name| name.to_string_lossy().into_owned());
            let folder = Folder { path: input, prefix: "", source: top.as_deref(), version: None, depth: 0 };
            list_folder(folder, search, &mut seen, &mut listing)?;
        } else if seen.insert(fs_err::canonicalize(input)?) {
            let name = input.file_name().unwrap_or(input.as_os_str()).to_string_lossy().into_owned();
            let file = files::input_file(input.clone(), name, None)?;
            push_file(file, search, 0, &mut seen, &mut listing)?;
        }
    }
    if listing.entries.is_empty() {
        return Err(Error::NoFiles { inputs: files::names(inputs), skipped: listing.skipped });
    }
    Ok(listing)
}

/// Objects below an address. Archives, and files that must be read from both ends, are fetched first.
fn list_remote<'s>(address: &str, search: Search<'s, '_>, listing: &mut Listing<'s>) -> Result<()> {
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    let objects = search.access.list(address)?;
    let is_one = objects.len() == 1;
    for object in objects {
        if !is_one && !files::wanted(&object.name, search.endings) {
            listing.skipped += 1;
            continue;
        }
        let name = object.name.clone();
        let source = match name.split_once('/') {
            Some((first, _)) => first.to_string(),
            None => host.trim_end_matches('/').rsplit('/').nth(usize::from(is_one)).unwrap_or(host).to_string(),
        };
        let (bytes, version) = (object.bytes, object.version.clone());
        let must_fetch = archive::is_archive_name(&name) || name.ends_with(".parquet");
        let place = match must_fetch {
            false => Place::Remote(Box::new(object)),
            true => {
                let folder = scratch_folder(search.scratch)?;
                let path = folder.path().join("object");
                std::io::copy(&mut object.open()?, &mut fs_err::File::create(&path)?)?;
                listing.unpacked.push(folder);
                Place::Path(path)
            }
        };
        let file = InputFile { place, name, source, bytes, version };
        push_file(file, search, 0, &mut BTreeSet::new(), listing)?;
    }
    Ok(())
}

fn scratch_folder(scratch: &Path) -> Result<tempfile::TempDir> {
    fs_err::create_dir_all(scratch)?;
    Ok(tempfile::Builder::new().prefix(SCRATCH_PREFIX).tempdir_in(scratch)?)
}

/// How the names of folders with unpacked archives begin.
pub(crate) const SCRATCH_PREFIX: &str = ".unpacked-";

/// Adds a file, or what is in it if it is an archive.
fn push_file<'s>(
    file: InputFile,
    search: Search<'s, '_>,
    depth: u32,
    seen: &mut BTreeSet<PathBuf>,
    listing: &mut Listing<'s>,
) -> Result<()> {
    let Place::Path(path) = &file.place else {
        listing.push(Entry::File(file));
        return Ok(());
    };
    let Some(kind) = archive_kind(path, &file, search)? else {
        listing.push(Entry::File(file));
        return Ok(());
    };
    let folder = scratch_folder(search.scratch)?;
    let unpacked = match kind {
        _ if depth >= MAX_DEPTH => {
            Err(Refusal::new("archive_depth", format!("archives in archives, more than {MAX_DEPTH} deep")))
        }
        archive::Kind::Zip => archive::unpack_zip(fs_err::File::open(path)?, file.bytes, folder.path()),
        archive::Kind::Tar => archive::unpack_tar(files::unpack(fs_err::File::open(path)?)?, file.bytes, folder.path()),
    };
    match unpacked {
        Err(refusal) => listing.push(Entry::Refused { name: file.name, source: file.source, refusal }),
        Ok(unpacked) => {
            count(&mut listing.counts, "archives", 1);
            count(&mut listing.counts, "archive_links_skipped", unpacked.links_skipped);
            let root = folder.path().to_path_buf();
            listing.unpacked.push(folder);
            let inside = Folder {
                path: &root,
                prefix: &format!("{}/", file.name),
                source: Some(&file.source),
                version: Some(&file.version),
                depth: depth + 1,
            };
            list_folder(inside, search, seen, listing)?;
        }
    }
    Ok(())
}

/// Whether a file is an archive that no format reads as it is.
fn archive_kind(path: &Path, file: &InputFile, search: Search<'_, '_>) -> Result<Option<archive::Kind>> {
    let mut packed = Vec::new();
    fs_err::File::open(path)?.take(HEAD_BYTES).read_to_end(&mut packed)?;
    let mut head = Vec::new();
    if files::is_packed_content(&packed) {
        // A damaged file is refused where it is read.
        let _ = files::unpack(fs_err::File::open(path)?).and_then(|reader| reader.take(512).read_to_end(&mut head));
    } else {
        head.clone_from(&packed);
    }
    let kind = archive::kind(&packed, &head);
    let name = files::unpacked_name(&file.name);
    let piece = FilePiece { name: &name, bytes: &packed, rows: &[], first_row: None };
    let is_read_whole = |source: &dyn Source| source.shape() == Shape::File && source.detects(&Piece::File(&piece));
    let known = match search.forced {
        Some(source) => is_read_whole(source),
        None => source::detect_file(search.formats, &piece).is_some(),
    };
    Ok(kind.filter(|_| !known))
}

/// A folder to list.
struct Folder<'a> {
    path: &'a Path,
    /// Stands before the names of its files: empty, or the archive it was unpacked from.
    prefix: &'a str,
    /// The source of the files that lie in no folder below it, and of all where there is a prefix.
    source: Option<&'a str>,
    /// That of the archive.
    version: Option<&'a str>,
    depth: u32,
}

fn list_folder<'s>(
    folder: Folder<'_>,
    search: Search<'s, '_>,
    seen: &mut BTreeSet<PathBuf>,
    listing: &mut Listing<'s>,
) -> Result<()> {
    let Folder { path: folder, prefix, source: top, version, depth } = folder;
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
    let source = |name: &str| match name.split_once('/') {
        Some((first, _)) if prefix.is_empty() => first.to_string(),
        _ => top.map_or_else(|| files::stem(name).to_string(), str::to_string),
    };
    let (claimed, mut entries) = claim_folders(folder, &found, search)?;
    for entry in &mut entries {
        let inside = if entry.name.is_empty() { String::new() } else { format!("{}/", entry.name) };
        entry.source = source(&inside);
        entry.name = format!("{prefix}{}", entry.name);
    }
    let mut entries: Vec<Entry<'s>> = entries.into_iter().map(Entry::Folder).collect();
    for name in found {
        if claimed.contains(&name) {
            continue;
        }
        if !files::wanted(&name, search.endings) {
            listing.skipped += 1;
            continue;
        }
        let source = source(&name);
        let mut file = files::input_file(folder.join(&name), format!("{prefix}{name}"), Some(source))?;
        file.version = version.map_or(file.version, str::to_string);
        entries.push(Entry::File(file));
    }
    entries.sort_by(|one, other| one.name().cmp(other.name()));
    for entry in entries {
        match entry {
            Entry::File(file) => push_file(file, search, depth, seen, listing)?,
            entry => listing.push(entry),
        }
    }
    Ok(())
}

/// The folders below `root` (and itself) that a format knows as one episode, outermost first, with the names of the
/// files they take.
fn claim_folders<'s>(
    root: &Path,
    names: &[String],
    search: Search<'s, '_>,
) -> Result<(BTreeSet<String>, Vec<InputFolder<'s>>)> {
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
        let reader = |entry: &str| files::read_head(&path.join(entry), &inside, entry, DETECTION_BYTES);
        let piece = FolderPiece { name: &folder, entries: &inside, reader: &reader };
        let kind = match search.forced {
            Some(source) if source.shape() == Shape::Folder => {
                Some(source).filter(|source| source.detects(&Piece::Folder(&piece)))
            }
            Some(_) => None,
            None => source::detect_folder(search.formats, &piece),
        };
        let Some(kind) = kind else { continue };
        let taken: Vec<String> = inside.iter().filter(|entry| kind.takes(entry)).cloned().collect();
        claimed.extend(taken.iter().map(|entry| format!("{prefix}{entry}")));
        let sizes = taken.iter().map(|entry| Ok(fs_err::metadata(path.join(entry))?.len()));
        let bytes = sizes.sum::<Result<u64>>()?;
        entries.push(InputFolder { path, name: folder, source: String::new(), entries: taken, bytes, kind });
    }
    Ok((claimed, entries))
}
