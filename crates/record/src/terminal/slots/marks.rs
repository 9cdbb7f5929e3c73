//! Marks: they write nothing into the command and widen the note.

use super::super::note::Need;
use super::super::world::{Entry, join, parent};
use super::Filler;
use super::files::MAX_FILES_TOLD;

impl Filler<'_> {
    /// A mark: it writes nothing into the command and widens the note.
    pub(super) fn mark(&mut self, mark: &str) -> Option<String> {
        let cwd = self.world.cwd.clone();
        let listing = |path: &str, mode, bytes| Need::Listing { path: path.to_owned(), mode, bytes };
        let tree = |path: &str, mode, bytes| Need::Tree { path: path.to_owned(), mode, bytes };
        let need = match mark {
            "ls" => listing(&cwd, false, false),
            "lsm" => listing(&cwd, true, false),
            "lsup" if cwd.is_empty() => return None,
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
            "allc" | "allb" | "lss" if self.world.children(&cwd).any(|(_, entry)| entry.is_folder()) => return None,
            "lss" => listing(&cwd, false, true),
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
