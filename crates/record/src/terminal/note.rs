//! The state note: what must be known of the world before a command to tell what it will print.
//!
//! A form of the grammar names what it [`Need`]s; the note looks those things up in the snapshot taken before the
//! command. Example: `cwd: ~/src | ls: a.txt lib/ | a.txt: "apple","fig" | lib/: empty | $? 1`.

use std::collections::BTreeMap;

use super::world::{Entry, Kind, Snapshot, join};

/// Longest note, in characters.
pub(crate) const MAX_NOTE_CHARS: usize = 250;

/// One thing that a command depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Need {
    /// What stands at `path`, written `shown` in the command.
    Path {
        path: String,
        shown: String,
        content: bool,
        bytes: bool,
        mode: bool,
    },
    /// The names in a folder.
    Listing {
        path: String,
        mode: bool,
        bytes: bool,
    },
    /// Every path below a folder.
    Tree {
        path: String,
        mode: bool,
        bytes: bool,
    },
    /// A word that names nothing.
    Missing(String),
    /// The full path of the home directory.
    Home,
    /// The exit status of the command before.
    Status,
    Umask,
    /// The folder that `cd -` goes to.
    OldFolder,
    Variable(String),
    Function(String),
}

/// What bash remembers beside the file system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// The full path of the home directory.
    pub(crate) home: String,
    pub(crate) status: i32,
    pub(crate) umask: String,
    /// `OLDPWD`, empty when unset.
    pub(crate) old_folder: String,
    /// Variables ever named, with the value where they have one.
    pub(crate) variables: BTreeMap<String, Option<String>>,
    /// Functions and their bodies.
    pub(crate) functions: BTreeMap<String, String>,
}

/// Writes the note for a command that has these needs.
pub(crate) fn note(world: &Snapshot, memory: &Memory, needs: &[Need]) -> String {
    let mut parts = vec![format!("cwd: {}", under_home(&world.cwd))];
    for need in needs {
        let part = describe(world, memory, need);
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    shorten(&parts.join(" | "), MAX_NOTE_CHARS)
}

/// What stands in the home, with contents: `is empty`, or `holds a.txt: "fig", lib/b.txt: "kiwi"`.
pub(crate) fn holdings(world: &Snapshot) -> String {
    let told = world.iter().filter_map(|(path, entry)| match &entry.kind {
        Kind::File(text) => Some(format!("{path}: {}", quoted(text))),
        Kind::Folder if world.below(path).next().is_none() => Some(format!("{path}/: empty")),
        _ => None,
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "is empty".to_owned() } else { format!("holds {}", told.join(", ")) }
}

fn describe(world: &Snapshot, memory: &Memory, need: &Need) -> String {
    match need {
        Need::Path { path, shown, content, bytes, mode } => match world.get(path) {
            Some(entry) => describe_entry(world, path, shown, entry, [*content, *bytes, *mode]),
            None => format!("{shown}: missing"),
        },
        Need::Listing { path, mode, bytes } => {
            let label = if *path == world.cwd { "ls".to_owned() } else { format!("{}/", world.shown(path)) };
            format!("{label}: {}", names(world.children(path), *mode, *bytes))
        }
        Need::Tree { path, mode, bytes } => {
            let prefix = if path.is_empty() { 0 } else { path.len() + 1 };
            let entries = world.below(path).map(|(below, entry)| (&below[prefix..], entry));
            format!("tree {}: {}", world.shown(path), names(entries, *mode, *bytes))
        }
        Need::Missing(shown) => format!("{shown}: missing"),
        Need::Home => format!("~: {}", memory.home),
        Need::Status => format!("$? {}", memory.status),
        Need::Umask => format!("umask {}", memory.umask),
        Need::OldFolder if memory.old_folder.is_empty() => "old: unset".to_owned(),
        Need::OldFolder => format!("old: {}", memory.old_folder.replacen(&memory.home, "~", 1)),
        Need::Variable(name) => match memory.variables.get(name) {
            Some(Some(value)) => format!("${name}: {}", quoted(value)),
            _ => format!("${name}: unset"),
        },
        Need::Function(name) => match memory.functions.get(name) {
            Some(body) => format!("{name}(): {body}"),
            None => format!("{name}(): unset"),
        },
    }
}

fn describe_entry(world: &Snapshot, path: &str, shown: &str, entry: &Entry, wanted: [bool; 3]) -> String {
    let [content, bytes, mode] = wanted;
    let mut facts = Vec::new();
    if mode {
        facts.push(format!("mode {:03o}", entry.mode));
    }
    match &entry.kind {
        Kind::File(text) => {
            if bytes {
                facts.push(format!("{} B", entry.bytes));
            }
            if entry.links > 1 {
                facts.push(format!("{} links", entry.links));
            }
            if content {
                facts.push(quoted(text));
            }
            if facts.is_empty() {
                facts.push("file".to_owned());
            }
        }
        Kind::Folder if mode => facts.push("folder".to_owned()),
        Kind::Folder => return format!("{shown}/: {}", names(world.children(path), false, false)),
        Kind::Link(target) => {
            facts.push(format!("-> {target}"));
            let text = world.get(&join(super::world::parent(path), target)).and_then(Entry::text);
            facts.extend(text.map(quoted).filter(|_| content));
        }
        Kind::Other => facts.push("other".to_owned()),
    }
    format!("{shown}: {}", facts.join(", "))
}

/// Names in order, with a mark for the kind, as `ls -F` would (hidden names included).
fn names<'a>(entries: impl Iterator<Item = (&'a str, &'a Entry)>, mode: bool, bytes: bool) -> String {
    let described = entries.map(|(name, entry)| {
        let mark = match entry.kind {
            Kind::Folder => "/",
            Kind::Link(_) => "@",
            _ => "",
        };
        let mode = if mode { format!(" {:03o}", entry.mode) } else { String::new() };
        let bytes = if bytes && entry.text().is_some() { format!(" {}B", entry.bytes) } else { String::new() };
        format!("{name}{mark}{mode}{bytes}")
    });
    let described: Vec<String> = described.collect();
    let between = if mode || bytes { ", " } else { " " };
    if described.is_empty() { "empty".to_owned() } else { described.join(between) }
}

/// The lines of `text`, quoted: `"apple","fig"`.
fn quoted(text: &str) -> String {
    if text.is_empty() {
        return "empty".to_owned();
    }
    let lines: Vec<String> = text.lines().map(|line| format!("\"{line}\"")).collect();
    lines.join(",")
}

fn under_home(path: &str) -> String {
    if path.is_empty() { "~".to_owned() } else { format!("~/{path}") }
}

fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn world() -> Snapshot {
        let file = |text: &str| Kind::File(text.to_owned());
        let entries = [
            ("src", Kind::Folder, 0o755),
            ("src/a.txt", file("apple\nfig\n"), 0o644),
            ("src/lib", Kind::Folder, 0o700),
            ("src/to", Kind::Link("a.txt".to_owned()), 0o777),
        ];
        Snapshot::of("src", entries)
    }

    fn path(path: &str, shown: &str) -> Need {
        Need::Path { path: path.to_owned(), shown: shown.to_owned(), content: true, bytes: false, mode: false }
    }

    #[test]
    fn a_note_tells_the_working_directory_and_what_is_needed_once() {
        let memory = Memory { status: 1, umask: "022".to_owned(), home: "/lab".to_owned(), ..Memory::default() };
        let listing = Need::Listing { path: "src".to_owned(), mode: true, bytes: false };
        let needs = [
            listing.clone(),
            listing,
            path("src/a.txt", "a.txt"),
            path("src/lib", "lib"),
            path("src/to", "to"),
            path("src/no", "no"),
            Need::Variable("x".to_owned()),
            Need::Status,
            Need::OldFolder,
        ];
        let expected = expect![[
            r#"cwd: ~/src | ls: a.txt 644, lib/ 700, to@ 777 | a.txt: "apple","fig" | lib/: empty | to: -> a.txt, "apple","fig" | no: missing | $x: unset | $? 1 | old: unset"#
        ]];
        expected.assert_eq(&note(&world(), &memory, &needs));
    }

    #[test]
    fn a_long_note_is_cut_at_the_limit() {
        let needs: Vec<Need> = (0..100).map(|number| Need::Missing(format!("word{number}"))).collect();
        let note = note(&world(), &Memory::default(), &needs);
        assert_eq!(note.chars().count(), MAX_NOTE_CHARS);
        assert!(note.ends_with("..."));
    }
}
