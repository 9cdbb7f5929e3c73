//! What exists in the lab: a snapshot of the real file system, taken before each command.
//!
//! Paths are relative to the home directory, parts joined by `/`; the home itself is the empty path. Everything is
//! kept in the order of the names, so that choices made from a snapshot do not depend on the file system.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Longest file content that is kept.
const MAX_CONTENT_BYTES: usize = 4096;

/// One thing in the lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    /// Names that the same file has.
    pub(crate) links: u64,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A plain file and its text.
    File(String),
    Folder,
    /// A symbolic link and what it holds.
    Link(String),
    Other,
}

/// The lab at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    entries: BTreeMap<String, Entry>,
    /// Working directory.
    pub(crate) cwd: String,
}

impl Snapshot {
    /// Looks at `home`. What cannot be read now (its mode forbids it) is taken from `previous`: nobody else can have
    /// changed it.
    pub(crate) fn take(home: &Path, cwd: &Path, previous: &Snapshot) -> Snapshot {
        let cwd = cwd.strip_prefix(home).unwrap_or(Path::new("")).to_string_lossy().into_owned();
        let mut snapshot = Snapshot { entries: BTreeMap::new(), cwd };
        snapshot.look(home, "", previous);
        snapshot
    }

    fn look(&mut self, folder: &Path, path: &str, previous: &Snapshot) {
        let Ok(children) = fs_err::read_dir(folder) else {
            let remembered = previous.entries.iter().filter(|(child, _)| is_below(child, path));
            self.entries.extend(remembered.map(|(child, entry)| (child.clone(), entry.clone())));
            return;
        };
        for child in children.flatten() {
            let child_path = join(path, &child.file_name().to_string_lossy());
            let Some(entry) = look_at(&child.path(), previous.entries.get(&child_path)) else { continue };
            let is_folder = entry.kind == Kind::Folder;
            self.entries.insert(child_path.clone(), entry);
            if is_folder {
                self.look(&child.path(), &child_path, previous);
            }
        }
    }

    /// The same world but for one path.
    pub(crate) fn without(&self, path: &str) -> Snapshot {
        let mut other = self.clone();
        other.entries.remove(path);
        other
    }

    /// A world with these entries, for tests.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(cwd: &str, entries: [(&str, Kind, u32); N]) -> Snapshot {
        let entry = |(path, kind, mode): (&str, _, _)| (path.to_owned(), Entry { kind, mode, bytes: 10, links: 1 });
        Snapshot { cwd: cwd.to_owned(), entries: entries.map(entry).into() }
    }

    /// What stands at `path`, if anything.
    pub(crate) fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Every path with its entry, in the order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Names and entries directly in `folder`.
    pub(crate) fn children<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.iter().filter(move |(path, _)| parent(path) == folder).map(|(path, entry)| (name(path), entry))
    }

    /// Everything below `folder`, at any depth.
    pub(crate) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        self.iter().filter(move |(path, _)| is_below(path, folder))
    }

    /// Whether the folders above `path` let their owner pass.
    pub(crate) fn is_reachable(&self, path: &str) -> bool {
        let mut folder = path;
        while !folder.is_empty() {
            folder = parent(folder);
            if self.get(folder).is_some_and(|entry| entry.mode & 0o500 != 0o500) {
                return false;
            }
        }
        true
    }

    /// How a person in the working directory would write `path`.
    pub(crate) fn shown(&self, path: &str) -> String {
        if path == self.cwd {
            return ".".to_owned();
        }
        let (mut base, mut up) = (self.cwd.as_str(), String::new());
        while !base.is_empty() && !is_below(path, base) {
            if path == base {
                return up + ".";
            }
            up.push_str("../");
            base = parent(base);
        }
        match path.strip_prefix(base) {
            Some(rest) if !rest.is_empty() => up + rest.trim_start_matches('/'),
            _ => up.trim_end_matches('/').to_owned(),
        }
    }
}

impl Entry {
    /// The text of a plain file.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::File(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_folder(&self) -> bool {
        self.kind == Kind::Folder
    }

    /// Whether the owner's bits include `bits` (4 read, 2 write, 1 pass).
    pub(crate) fn allows(&self, bits: u32) -> bool {
        (self.mode >> 6) & bits == bits
    }
}

fn look_at(path: &Path, previous: Option<&Entry>) -> Option<Entry> {
    let metadata = fs_err::symlink_metadata(path).ok()?;
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => Kind::Folder,
        kind if kind.is_symlink() => Kind::Link(fs_err::read_link(path).ok()?.to_string_lossy().into_owned()),
        kind if kind.is_fifo() || kind.is_socket() || !kind.is_file() => Kind::Other,
        _ => match fs_err::read(path) {
            Ok(bytes) => Kind::File(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_CONTENT_BYTES)]).into_owned()),
            Err(_) => Kind::File(previous.and_then(Entry::text).unwrap_or_default().to_owned()),
        },
    };
    Some(Entry { kind, mode: metadata.mode() & 0o7777, bytes: metadata.len(), links: metadata.nlink() })
}

/// `path` without its last part.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The last part of `path`.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// `name` in `folder`.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Whether `path` lies somewhere below `folder`.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => folder.is_empty() && !rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_path_is_shown_as_a_person_in_the_working_directory_would_write_it() {
        let shown = |cwd: &str, path: &str| Snapshot { cwd: cwd.to_owned(), ..Default::default() }.shown(path);
        assert_eq!(shown("", "a/b"), "a/b");
        assert_eq!(shown("a", "a/b"), "b");
        assert_eq!(shown("a", "b"), "../b");
        assert_eq!(shown("a/c", "a/b/d"), "../b/d");
        assert_eq!(shown("a/c", "a"), "../.");
        assert_eq!(shown("a/c", ""), "../..");
        assert_eq!(shown("ab", "a"), "../a");
    }

    #[test]
    fn a_snapshot_holds_kinds_modes_and_contents_in_order() {
        let home = tempfile::tempdir().unwrap();
        fs_err::create_dir(home.path().join("b")).unwrap();
        fs_err::write(home.path().join("b/c.txt"), "fig\n").unwrap();
        fs_err::write(home.path().join("a.txt"), "").unwrap();
        fs_err::set_permissions(home.path().join("a.txt"), PermissionsExt::from_mode(0o600)).unwrap();
        fs_err::os::unix::fs::symlink("a.txt", home.path().join("l")).unwrap();
        let world = Snapshot::take(home.path(), &home.path().join("b"), &Snapshot::default());
        let paths: Vec<&str> = world.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a.txt", "b", "b/c.txt", "l"]);
        assert_eq!((world.cwd.as_str(), world.shown("a.txt").as_str()), ("b", "../a.txt"));
        assert_eq!(world.get("a.txt").unwrap().mode, 0o600);
        assert_eq!(world.get("b/c.txt").unwrap().text(), Some("fig\n"));
        assert_eq!(world.get("l").unwrap().kind, Kind::Link("a.txt".to_owned()));
    }
}
