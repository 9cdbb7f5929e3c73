//! Slots for files, folders and names.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::super::content::{self, random_word};
use super::super::note::Need;
use super::super::world::{Entry, Kind, is_below, join, name, parent};
use super::{Filler, extension, is_workable};

/// Most files whose contents one note tells.
pub(super) const MAX_FILES_TOLD: usize = 4;

impl Filler<'_> {
    /// Picks a path for which `fits` holds, preferring what is near the working directory.
    pub(super) fn pick(&mut self, fits: impl Fn(&str, &Entry) -> bool) -> Option<String> {
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

    pub(super) fn text_file(&mut self, slot: &str) -> Option<String> {
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

    pub(super) fn any_file(&mut self, slot: &str) -> Option<String> {
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

    pub(super) fn folder(&mut self, slot: &str) -> Option<String> {
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

    pub(super) fn need_path(&mut self, path: String, content: bool, mode: bool) -> String {
        let shown = self.world.shown(&path);
        self.filled.needs.push(Need::Path { path, shown: shown.clone(), content, bytes: false, mode });
        shown
    }

    pub(super) fn new_file(&mut self, stays_missing: bool) -> Option<String> {
        let keeps = self.filled.is_written || self.random.random_bool(0.8);
        let extension = match &self.filled.extension {
            Some(extension) if keeps => extension.clone(),
            _ => content::random_extension(self.random).to_owned(),
        };
        let stem = self.new_name()?;
        self.filled.is_written = false;
        self.missing(format!("{stem}.{extension}"), stays_missing)
    }

    pub(super) fn new_folder(&mut self, stays_missing: bool) -> Option<String> {
        let name = self.new_name()?;
        self.missing(name, stays_missing)
    }

    pub(super) fn missing(&mut self, name: String, stays_missing: bool) -> Option<String> {
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

    pub(super) fn name_slot(&mut self, slot: &str) -> Option<String> {
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
}
