//! Fills the slots of a form. The table of slots stands in `forms`.

mod files;
mod marks;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::content::{self, random_word};
use super::note::{Memory, Need};
use super::words;
use super::world::{Entry, Snapshot, name};

/// Longest file that text commands work on: observations and notes stay short.
const MAX_TEXT_BYTES: usize = 160;
const MAX_TEXT_LINES: usize = 10;

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
    filler.drop_told_twice();
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
            "up" | "b" | "x" | "xc" | "nx" | "c1" => self.name_slot(slot),
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

    /// A tree of the working directory tells its listing too.
    fn drop_told_twice(&mut self) {
        let cwd = &self.world.cwd;
        let tells_all = |need: &Need| matches!(need, Need::Tree { path, .. } if path == cwd);
        if self.filled.needs.iter().any(tells_all) {
            self.filled.needs.retain(|need| !matches!(need, Need::Listing { path, .. } if path == cwd));
        }
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
            "bad" => {
                let command = pick_word(words::UNKNOWN_COMMANDS, self.random)?.to_owned();
                self.missing(command, true)
            }
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
            "uf" => {
                let name = self.free_function_name()?;
                self.filled.needs.push(Need::Function(name.clone()));
                Some(name)
            }
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
}

fn extension(path: &str) -> Option<&str> {
    name(path).rsplit_once('.').map(|(_, extension)| extension)
}

fn pick_word<'a>(words: &'a str, random: &mut ChaCha8Rng) -> Option<&'a str> {
    words.split_whitespace().collect::<Vec<&str>>().choose(random).copied()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::condition::CONDITIONS;
    use super::super::forms::{FAMILIES, SETUP};
    use super::super::policy;
    use super::super::world::Kind;
    use super::*;

    /// A world that has something for every slot.
    fn rich_world() -> (Snapshot, Memory) {
        let file = |text: &str| Kind::File(text.to_owned());
        let entries = [
            ("work", Kind::Folder, 0o755),
            ("other", Kind::Folder, 0o755),
            ("work/a.txt", file("fig\nplum\nfig\n"), 0o644),
            ("work/b.csv", file("fig,3,red\nkiwi,5,blue\n"), 0o644),
            ("work/c.cfg", file("fig=3\n"), 0o644),
            ("work/d.dat", file("fig 3\nplum 4\n"), 0o644),
            ("other/e.num", file("3\n5\n"), 0o644),
            ("other/f.md", file("fig\n"), 0o000),
            ("other/g.md", file("fig\n"), 0o444),
            ("work/link", Kind::Link("a.txt".to_owned()), 0o777),
            ("other/full", Kind::Folder, 0o755),
            ("other/full/h.log", file("fig 2\n"), 0o644),
            ("other/empty", Kind::Folder, 0o755),
            ("other/locked", Kind::Folder, 0o555),
            ("other/closed", Kind::Folder, 0o000),
        ];
        let world = Snapshot::of("work", entries);
        let mut memory = Memory { home: "/tmp/lab-00/ada".to_owned(), ..Memory::default() };
        memory.old_folder = "/tmp/lab-00/ada/other".to_owned();
        for (name, value) in [("a", "fig"), ("b", "plum"), ("c", "12"), ("e", "40")] {
            memory.variables.insert(name.to_owned(), Some(value.to_owned()));
        }
        for (name, kind) in [("greet", "fd"), ("twice", "fdn"), ("show", "fdf")] {
            memory.functions.insert(name.to_owned(), content::function_bodies(kind)[0].to_owned());
        }
        (world, memory)
    }

    #[test]
    fn every_form_of_the_grammar_can_be_filled_and_leaves_no_slot() {
        let (mut world, memory) = rich_world();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let tables = FAMILIES.iter().flat_map(|family| [family.works, family.fails]).chain([SETUP.works]);
        let tables = tables.chain(CONDITIONS.iter().map(|condition| condition.forms));
        for (_, form) in tables.flat_map(policy::parse) {
            // Marks that tell of all files want a folder with few files; the others want folders too.
            let tells_all = ["@allc", "@allb", "@lss", "@treec"].iter().any(|mark| form.contains(mark));
            world.cwd = if tells_all { "other/full" } else { "work" }.to_owned();
            let filled = (0..400).find_map(|_| fill(form, &world, &memory, &mut random));
            let filled = filled.unwrap_or_else(|| panic!("nothing fills {form}"));
            assert!(!filled.command.replace("[@]", "").contains('@'), "{form}: {}", filled.command);
        }
    }

    #[test]
    fn a_repeated_slot_is_the_same_word_and_different_slots_are_different_files() {
        let (world, memory) = rich_world();
        let mut random = ChaCha8Rng::seed_from_u64(2);
        for _ in 0..50 {
            let filled = fill("diff @f @g; cat @f", &world, &memory, &mut random).unwrap();
            let words: Vec<&str> = filled.command.split([' ', ';']).collect();
            assert_ne!(words[1], words[2]);
            assert_eq!(words[1], words[5]);
        }
    }
}
