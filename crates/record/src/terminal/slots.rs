//! Fills the slots of a form. The table of slots stands in `forms`.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::content::{self, random_word};
use super::note::{Memory, Need};
use super::words;
use super::world::{Entry, Kind, Snapshot, is_below, join, name, parent};

/// Longest file that text commands work on: observations and notes stay short.
const MAX_TEXT_BYTES: usize = 160;
const MAX_TEXT_LINES: usize = 10;
/// Most files whose contents one note tells.
const MAX_FILES_TOLD: usize = 4;

/// A form with its slots filled.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    pub(crate) command: String,
    pub(crate) needs: Vec<Need>,
    pub(crate) new_variables: Vec<String>,
    pub(crate) new_function: Option<(String, String)>,
    bound: Vec<(String, String)>,
    paths: Vec<String>,
    new_names: Vec<String>,
    text: String,
    value: String,
    /// Extension of the file named last, or that fits the content written last.
    extension: Option<String>,
    is_written: bool,
}

/// Fills `form`, or answers `None` where the world has nothing that fits.
pub(crate) fn fill(form: &str, world: &Snapshot, memory: &Memory, random: &mut ChaCha8Rng) -> Option<Filled> {
    let mut filler = Filler { world, memory, random, filled: Filled::default() };
    filler.find_text_first(form)?;
    let mut rest = form;
    while let Some(at) = rest.find('@') {
        filler.filled.command.push_str(&rest[..at]);
        let (slot, after) = split_slot(&rest[at + 1..]);
        if slot.is_empty() {
            filler.filled.command.push('@');
        } else {
            let text = filler.slot(slot)?;
            filler.filled.command.push_str(&text);
        }
        rest = after;
    }
    filler.filled.command.push_str(rest);
    Some(filler.filled)
}

/// The names of the slots of a form, in order.
pub(crate) fn slot_names(form: &str) -> impl Iterator<Item = &str> {
    form.match_indices('@').map(|(at, _)| split_slot(&form[at + 1..]).0).filter(|slot| !slot.is_empty())
}

/// The name of the slot that `text` begins with (empty if none), and what follows it.
pub(crate) fn split_slot(text: &str) -> (&str, &str) {
    if let Some((slot, after)) = text.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return (slot, after);
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
    text.split_at(end)
}

/// Whether an entry is a file that text commands can work on.
pub(crate) fn is_workable(entry: &Entry) -> bool {
    let fits = |text: &str| (1..=MAX_TEXT_BYTES).contains(&text.len()) && text.lines().count() <= MAX_TEXT_LINES;
    entry.allows(6) && entry.text().is_some_and(fits)
}

struct Filler<'a> {
    world: &'a Snapshot,
    memory: &'a Memory,
    random: &'a mut ChaCha8Rng,
    filled: Filled,
}

impl Filler<'_> {
    fn slot(&mut self, slot: &str) -> Option<String> {
        let fixed = !matches!(slot, "body" | "pair" | "row" | "nl");
        if let Some((_, text)) = self.filled.bound.iter().find(|(bound, _)| fixed && bound == slot) {
            return Some(text.clone());
        }
        let text = match slot {
            "f" | "g" | "h" | "fh" | "c" | "cfg" | "dat" | "num" => self.text_file(slot),
            "e" | "e2" | "fa" | "fx" | "fl" | "l" => self.any_file(slot),
            "d" | "d2" | "de" | "df" | "dr" | "dl" | "dx" => self.folder(slot),
            "nf" | "nf2" | "m" => self.new_file(slot == "m"),
            "nd" | "nd2" | "md" => self.new_folder(slot == "md"),
            "up" | "b" | "x" | "xc" | "nx" | "c1" => self.from_names(slot),
            "w" | "w2" | "w3" | "w4" | "t" | "tu" | "a" | "ch" | "ch2" | "bad" => self.word(slot),
            "n" | "n2" | "n3" | "s" | "k" | "o" | "so" | "um" => self.number(slot),
            "v" | "u" | "i" | "j" | "nv" | "ni" | "uv" | "vw" | "chv" => self.variable(slot),
            "fd" | "fdn" | "fdf" | "fn" | "ft" | "fi" | "ff" | "uf" => self.function(slot),
            "body" | "pair" | "row" | "nl" => Some(self.content(slot)),
            mark => self.mark(mark),
        }?;
        self.filled.bound.push((slot.to_owned(), text.clone()));
        Some(text)
    }

    /// Picks the file first where a word or a line of it comes before its name, as in `grep @t @f`.
    fn find_text_first(&mut self, form: &str) -> Option<()> {
        if slot_names(form).any(|slot| matches!(slot, "t" | "tu" | "a" | "ch" | "k")) {
            let mut files = slot_names(form).filter(|slot| matches!(*slot, "f" | "fh" | "c" | "cfg" | "dat" | "num"));
            match files.next() {
                Some(file) => _ = self.slot(file)?,
                None => self.filled.text = self.any_text()?,
            }
        }
        Some(())
    }

    /// The text of some file, for a form that names none (`grep -r`).
    fn any_text(&mut self) -> Option<String> {
        let files: Vec<&Entry> = self.world.iter().map(|(_, entry)| entry).filter(|entry| is_workable(entry)).collect();
        files.choose(self.random)?.text().map(str::to_owned)
    }

    /// Picks a path for which `fits` holds, preferring what is near the working directory.
    fn pick(&mut self, fits: impl Fn(&str, &Entry) -> bool) -> Option<String> {
        let world = self.world;
        let paths = world.iter().filter(|(path, entry)| {
            fits(path, entry) && world.is_reachable(path) && !self.filled.paths.iter().any(|taken| taken == path)
        });
        let weight = |path: &str| match parent(path) {
            folder if folder == world.cwd => 6,
            folder if is_below(folder, &world.cwd) => 3,
            _ => 1,
        };
        let weighted: Vec<(usize, &str)> = paths.map(|(path, _)| (weight(path), path)).collect();
        let path = weighted.choose_weighted(self.random, |(weight, _)| *weight).ok()?.1.to_owned();
        self.filled.paths.push(path.clone());
        Some(path)
    }

    fn text_file(&mut self, slot: &str) -> Option<String> {
        let cwd = self.world.cwd.clone();
        let path = self.pick(|path, entry| {
            let text = entry.text().unwrap_or_default();
            is_workable(entry)
                && name(path).matches('.').count() < 2
                && match slot {
                    "c" => content::is_csv(text),
                    "cfg" => content::is_settings(text),
                    "dat" => content::is_pairs(text),
                    "num" => content::is_numbers(text),
                    "fh" => parent(path) == cwd,
                    _ => true,
                }
        })?;
        self.filled.text = self.world.get(&path)?.text()?.to_owned();
        self.filled.extension = extension(&path).map(str::to_owned);
        Some(self.need_path(path, true, false))
    }

    fn any_file(&mut self, slot: &str) -> Option<String> {
        let cwd = self.world.cwd.clone();
        let path = self.pick(|path, entry| match slot {
            "l" => matches!(entry.kind, Kind::Link(_)) && parent(path) == cwd,
            "fx" => entry.text().is_some() && !entry.allows(4),
            "fl" => entry.text().is_some() && entry.allows(4) && !entry.allows(2),
            _ => entry.text().is_some(),
        })?;
        self.filled.extension = extension(&path).map(str::to_owned);
        let (content, mode) = (slot == "l", matches!(slot, "fa" | "fx" | "fl"));
        Some(self.need_path(path, content, mode))
    }

    fn folder(&mut self, slot: &str) -> Option<String> {
        let world = self.world;
        let source = self.filled.paths.last().map(|path| parent(path).to_owned());
        let path = self.pick(|path, entry| {
            let is_ours = path == world.cwd || is_below(&world.cwd, path);
            let is_empty = world.children(path).next().is_none();
            let fits = match slot {
                "dl" => entry.allows(5) && !entry.allows(2),
                "dx" => !entry.allows(5),
                "de" => entry.allows(7) && is_empty,
                "df" => entry.allows(7) && !is_empty,
                _ => entry.allows(7) && source.as_deref() != Some(path),
            };
            entry.is_folder() && !is_ours && fits
        })?;
        let mode = matches!(slot, "dl" | "dx");
        Some(self.need_path(path, true, mode))
    }

    fn need_path(&mut self, path: String, content: bool, mode: bool) -> String {
        let shown = self.world.shown(&path);
        self.filled.needs.push(Need::Path { path, shown: shown.clone(), content, bytes: false, mode });
        shown
    }

    fn new_file(&mut self, stays_missing: bool) -> Option<String> {
        let keeps = self.filled.is_written || self.random.random_bool(0.8);
        let extension = match &self.filled.extension {
            Some(extension) if keeps => extension.clone(),
            _ => content::random_extension(self.random).to_owned(),
        };
        let stem = self.new_name()?;
        self.filled.is_written = false;
        self.missing(format!("{stem}.{extension}"), stays_missing)
    }

    fn new_folder(&mut self, stays_missing: bool) -> Option<String> {
        let name = self.new_name()?;
        self.missing(name, stays_missing)
    }

    fn missing(&mut self, name: String, stays_missing: bool) -> Option<String> {
        if stays_missing {
            self.filled.needs.push(Need::Missing(name.clone()));
        }
        Some(name)
    }

    /// A word that no name in the lab begins with.
    fn new_name(&mut self) -> Option<String> {
        let word = random_word(self.random).to_owned();
        let is_taken = self.world.iter().any(|(path, _)| name(path).split('.').next() == Some(&word));
        if is_taken || self.filled.new_names.contains(&word) {
            return None;
        }
        self.filled.new_names.push(word.clone());
        Some(word)
    }

    fn from_names(&mut self, slot: &str) -> Option<String> {
        let cwd = self.world.cwd.clone();
        match slot {
            "up" if cwd.is_empty() => None,
            "up" => Some("..".to_owned()),
            "b" => self.pick(|_, entry| entry.text().is_some()).map(|path| name(&path).to_owned()),
            "c1" => {
                let names: Vec<&str> = self.world.children(&cwd).map(|(name, _)| name).collect();
                Some(names.choose(self.random)?.chars().next()?.to_string())
            }
            _ => self.extension(slot, &cwd),
        }
    }

    fn extension(&mut self, slot: &str, cwd: &str) -> Option<String> {
        let told = slot == "xc";
        self.filled.needs.push(Need::Listing { path: cwd.to_owned(), mode: false, bytes: false });
        let fits = |entry: &Entry| entry.text().is_some() && (!told || is_workable(entry));
        let used = self.world.children(cwd).filter_map(|(name, entry)| Some((extension(name)?, name, entry)));
        let used: Vec<(&str, &str, &Entry)> = used.collect();
        if slot == "nx" {
            let extension = content::random_extension(self.random);
            return used.iter().all(|(other, ..)| *other != extension).then(|| extension.to_owned());
        }
        let (chosen, ..) = *used.choose(self.random)?;
        let matching: Vec<_> = used.iter().filter(|(extension, ..)| *extension == chosen).collect();
        if !matching.iter().all(|(_, _, entry)| fits(entry)) || (told && matching.len() > MAX_FILES_TOLD) {
            return None;
        }
        if told {
            for (_, name, _) in matching {
                self.need_path(join(cwd, name), true, false);
            }
        }
        Some(chosen.to_owned())
    }

    fn word(&mut self, slot: &str) -> Option<String> {
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<Vec<char>>();
        match slot {
            "t" | "tu" => {
                let tokens = self.filled.text.split(|letter: char| !letter.is_ascii_alphabetic());
                let tokens: Vec<&str> = tokens.filter(|token| token.len() > 1).collect();
                let token = tokens.choose(self.random)?;
                Some(if slot == "tu" { token.to_uppercase() } else { (*token).to_owned() })
            }
            "a" => {
                let word = random_word(self.random);
                (!self.filled.text.contains(word)).then(|| word.to_owned())
            }
            "ch" => Some(letters(&self.filled.text).choose(self.random)?.to_string()),
            "ch2" => Some(letters("abcdefghijklmnopqrstuvwxyz").choose(self.random)?.to_string()),
            "bad" => Some(pick_word(words::UNKNOWN_COMMANDS, self.random)?.to_owned()),
            _ => Some(random_word(self.random).to_owned()),
        }
    }

    fn number(&mut self, slot: &str) -> Option<String> {
        let lines = self.filled.text.lines().count().max(1);
        Some(match slot {
            "s" => self.random.random_range(2..=4).to_string(),
            "k" => self.random.random_range(1..=lines).to_string(),
            "o" => pick_word("600 644 640 700 755 444 400 000 664 666 500 750", self.random)?.to_owned(),
            "so" => pick_word("u+x g+w o-r a-w +x go-r u-w a+r g-r o+w u=rw", self.random)?.to_owned(),
            "um" => pick_word("077 027 002 022 037 007", self.random)?.to_owned(),
            _ => self.random.random_range(1..=99).to_string(),
        })
    }

    fn variable(&mut self, slot: &str) -> Option<String> {
        let is_number = |value: &str| value.parse::<i64>().is_ok_and(|number| number.abs() < 100_000);
        match slot {
            "nv" | "ni" => {
                let name = pick_word(words::VARIABLES, self.random)?.to_owned();
                if self.memory.variables.contains_key(&name) {
                    return None;
                }
                self.filled.new_variables.push(name.clone());
                return Some(name);
            }
            "vw" if self.random.random_bool(0.5) => return Some(self.filled.value.clone()),
            "vw" => return Some(random_word(self.random).to_owned()),
            "chv" => {
                let letters: Vec<char> = self.filled.value.chars().filter(char::is_ascii_alphanumeric).collect();
                return Some(letters.choose(self.random)?.to_string());
            }
            _ => {}
        }
        let fits = |value: Option<&str>| match (slot, value) {
            ("uv", value) => value.is_none(),
            ("i" | "j", Some(value)) => is_number(value),
            (_, Some(value)) => !value.is_empty() && value.len() <= 60 && !value.contains('\n') && !is_number(value),
            _ => false,
        };
        let known = self.memory.variables.iter().filter(|(_, value)| fits(value.as_deref())).map(|(name, _)| name);
        let known: Vec<&String> =
            known.filter(|name| !self.filled.bound.iter().any(|(_, text)| text == *name)).collect();
        let name = match known.choose(self.random) {
            Some(name) => (*name).clone(),
            None if slot == "uv" => pick_word(words::VARIABLES, self.random)?.to_owned(),
            None => return None,
        };
        self.filled.value = self.memory.variables.get(&name).cloned().flatten().unwrap_or_default();
        self.filled.needs.push(Need::Variable(name.clone()));
        Some(name)
    }

    fn function(&mut self, slot: &str) -> Option<String> {
        match slot {
            "fd" | "fdn" | "fdf" => {
                let name = self.free_function_name()?;
                let body = *content::function_bodies(slot).choose(self.random)?;
                self.filled.new_function = Some((name.clone(), body.to_owned()));
                Some(format!("{name}() {{ {body}; }}"))
            }
            "fn" => Some(self.filled.new_function.as_ref()?.0.clone()),
            "uf" => self.free_function_name(),
            _ => {
                let bodies = content::function_bodies(match slot {
                    "ft" => "fd",
                    "fi" => "fdn",
                    _ => "fdf",
                });
                let known = self.memory.functions.iter().filter(|(_, body)| bodies.contains(&body.as_str()));
                let known: Vec<&String> = known.map(|(name, _)| name).collect();
                let name = (*known.choose(self.random)?).clone();
                self.filled.needs.push(Need::Function(name.clone()));
                Some(name)
            }
        }
    }

    fn free_function_name(&mut self) -> Option<String> {
        let name = pick_word(words::FUNCTIONS, self.random)?;
        (!self.memory.functions.contains_key(name)).then(|| name.to_owned())
    }

    /// The content of a file that is being written; the file's name, which follows, gets the fitting extension.
    fn content(&mut self, slot: &str) -> String {
        let named = self.filled.bound.iter().rev().find(|(bound, _)| bound.starts_with("nf"));
        let extension = match named.and_then(|(_, name)| extension(name)) {
            Some(extension) if slot == "row" => extension.to_owned(),
            _ => content::random_extension(self.random).to_owned(),
        };
        match slot {
            "nl" => return "\n".to_owned(),
            "row" => return content::row(&extension, self.random),
            _ => {}
        }
        let arguments = content::printf_arguments(&extension, slot == "pair", self.random);
        (self.filled.extension, self.filled.is_written) = (Some(extension), true);
        arguments
    }

    /// A mark: it writes nothing into the command and widens the note.
    fn mark(&mut self, mark: &str) -> Option<String> {
        let cwd = self.world.cwd.clone();
        let listing = |path: &str, mode, bytes| Need::Listing { path: path.to_owned(), mode, bytes };
        let tree = |path: &str, mode, bytes| Need::Tree { path: path.to_owned(), mode, bytes };
        let need = match mark {
            "ls" => listing(&cwd, false, false),
            "lsm" => listing(&cwd, true, false),
            "lss" => listing(&cwd, false, true),
            "lsup" => listing(parent(&cwd), false, false),
            "lshome" => listing("", false, false),
            "tree" => tree(&cwd, false, false),
            "treem" => tree(&cwd, true, false),
            "trees" => tree(&cwd, false, true),
            "treehome" => tree("", false, false),
            "home" => Need::Home,
            "st" => Need::Status,
            "umask" => Need::Umask,
            "old" if self.memory.old_folder.is_empty() => return None,
            "old" => Need::OldFolder,
            "size" | "mode" => return self.widen(mark == "size"),
            "allc" | "allb" if self.world.children(&cwd).any(|(_, entry)| entry.is_folder()) => return None,
            "allc" | "allb" => return self.tell_files(self.world.children(&cwd), &cwd, mark == "allc"),
            "treec" => return self.tell_files(self.world.below(&cwd), "", true),
            _ => panic!("the grammar has no slot @{mark}"),
        };
        self.filled.needs.push(need);
        Some(String::new())
    }

    fn widen(&mut self, size: bool) -> Option<String> {
        for need in &mut self.filled.needs {
            if let Need::Path { bytes, mode, .. } = need {
                *(if size { bytes } else { mode }) = true;
            }
        }
        Some(String::new())
    }

    /// Tells of every file in `entries`, whose names are relative to `folder`; `None` where there are too many.
    fn tell_files<'e>(
        &mut self,
        entries: impl Iterator<Item = (&'e str, &'e Entry)>,
        folder: &str,
        content: bool,
    ) -> Option<String> {
        let files: Vec<(&str, &Entry)> = entries.filter(|(_, entry)| !entry.is_folder()).collect();
        if files.len() > MAX_FILES_TOLD || !files.iter().all(|(_, entry)| entry.allows(4)) {
            return None;
        }
        for (name, _) in files {
            let path = join(folder, name);
            let shown = self.world.shown(&path);
            self.filled.needs.push(Need::Path { path, shown, content, bytes: !content, mode: false });
        }
        Some(String::new())
    }
}

fn extension(path: &str) -> Option<&str> {
    name(path).rsplit_once('.').map(|(_, extension)| extension)
}

fn pick_word<'a>(words: &'a str, random: &mut ChaCha8Rng) -> Option<&'a str> {
    words.split_whitespace().collect::<Vec<&str>>().choose(random).copied()
}
