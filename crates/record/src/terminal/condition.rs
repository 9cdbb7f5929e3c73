//! Conditions of the axis *control*: what is really so in the shell, and the instruction that says it.

use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;

use super::policy::{self, Situation, Step};

/// Makes files and a folder before the condition holds.
pub(crate) const FURNISHING: &str = "mkdir @nd; printf @body > @nf; printf @body > @nf2; printf @body > @nd/@w.txt";

/// One condition.
#[derive(Debug)]
pub(crate) struct Condition {
    /// Its name, which its turns have as family.
    pub(crate) name: &'static str,
    /// The commands that impose it.
    pub(crate) impose: &'static str,
    /// What the simulation is told.
    pub(crate) instruction: &'static str,
    /// Stands in an observation that shows it.
    pub(crate) sign: &'static str,
    /// Command lines that show it, and some that go on as ever: weights and forms of the grammar.
    pub(crate) forms: &'static str,
}

impl Condition {
    /// The next command under it.
    pub(crate) fn step(&self, situation: Situation<'_>, random: &mut ChaCha8Rng) -> Step {
        let at = CONDITIONS.iter().position(|condition| condition.name == self.name);
        let forms = &FORMS[at.expect("conditions are those of the list")];
        policy::next_of(self.name, forms, situation, random)
    }
}

/// The forms of each condition, parsed.
static FORMS: LazyLock<Vec<Vec<(f64, &'static str)>>> =
    LazyLock::new(|| CONDITIONS.iter().map(|condition| policy::parse(condition.forms)).collect());

/// All of them; episodes go round the list.
pub(crate) const CONDITIONS: [Condition; 5] = [
    Condition {
        name: "full_disk",
        // A write past the limit is a signal that would end the shell; ignored, it is an error of the write.
        impose: "trap '' XFSZ; ulimit -f 0",
        instruction: "The disk takes no more content: files can still be made, emptied, renamed and removed, but every \
                      write of content into a file fails, and the reason given is 'File too large'.",
        sign: "File too large",
        forms: include_str!("../../grammar/full_disk.control.txt"),
    },
    Condition {
        name: "read_only",
        impose: "chmod 555 ~ ~/*/",
        instruction: "The folders are read-only: nothing can be created, renamed or removed in them, and each attempt \
                      fails with 'Permission denied'. Files that exist can be read and written as before.",
        sign: "Permission denied",
        forms: include_str!("../../grammar/read_only.control.txt"),
    },
    Condition {
        name: "no_programs",
        impose: "PATH=/nowhere",
        instruction: "No program is installed. What bash has built in works; any other command ends with 'command not \
                      found' and exit status 127.",
        sign: "command not found",
        forms: include_str!("../../grammar/no_programs.control.txt"),
    },
    Condition {
        name: "no_overwrite",
        impose: "set -C",
        instruction: "Redirecting with '>' onto a file that exists is refused with 'cannot overwrite existing file', and \
                      the file stays as it is. New files and '>>' work as usual.",
        sign: "cannot overwrite existing file",
        forms: include_str!("../../grammar/no_overwrite.control.txt"),
    },
    Condition {
        name: "strict_names",
        impose: "set -u",
        instruction: "Naming a variable that was never set is an error: the command line ends there, with 'unbound \
                      variable' and exit status 1, unless a default is given in the expansion.",
        sign: "unbound variable",
        forms: include_str!("../../grammar/strict_names.control.txt"),
    },
];
