//! The grammar: for each command family, the forms a command can take.
//!
//! A form is a command line with slots, filled from left to right by `policy` from what really exists:
//!
//! | slot | filled with |
//! |---|---|
//! | `@f @g @h` | different text files that can be read and written; `@c` a csv, `@cfg`, `@dat`, `@num` by kind |
//! | `@fh` | such a file directly in the working directory; `@b` its bare name |
//! | `@e @e2` | files, whatever they hold; `@fa` any file, its mode noted; `@fx` unreadable; `@fl` not writable |
//! | `@d @d2` | folders; `@de` empty, `@df` not empty, `@dr` removable, `@dl` not writable, `@dx` not passable |
//! | `@nf @nf2 @nd @nd2` | names not yet taken, of a file or a folder; `@m @md` the same, but left missing |
//! | `@w.. @w4` | words; `@t` a word in `@f`, `@tu` in capitals, `@a` a word not in it; `@ch` a letter in it, `@ch2` any |
//! | `@n @n2 @n3 @s @k` | numbers: 1–99, 2–4, a line of `@f` |
//! | `@x @xc` | an extension in use here (`@xc` with the contents noted); `@nx` one not in use; `@c1` a first letter |
//! | `@v @u @i @j` | variables that hold a word or a number; `@nv @ni` new ones; `@uv` unset; `@vw` a value to compare |
//! | `@fd` | a function's definition and `@fn` its name; `@ft @fi @ff` known functions of a word, a number, a file |
//! | `@l` | a symbolic link; `@up` the folder above; `@bad` an unknown command; `@o @so @um` modes |
//! | `@body @pair @row` | arguments of printf for the content of the file that follows, several lines or one |
//!
//! Zero-width marks add to the state note: `@ls @lsm @lss @lsup @lshome @tree @treem @trees @home @st @umask @old`,
//! and `@size @mode` widen what the note says of the files before them. `@{f}` is `@f` where a letter follows.

/// A command family.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// What a person would call it, for the task's sentence.
    pub(crate) phrase: &'static str,
    /// Forms that should work, one a line, each with its weight in front.
    pub(crate) works: &'static str,
    /// Forms that should fail.
    pub(crate) fails: &'static str,
}

/// Lines that make the first files, or new ones when too few are left.
pub(crate) const SETUP: Family =
    Family { name: "setup", phrase: "set up files", works: include_str!("../../grammar/setup.txt"), fails: "" };

macro_rules! families {
    ($($name:literal $phrase:literal),* $(,)?) => {
        /// Every family, in the order that `groups` combines them.
        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            phrase: $phrase,
            works: include_str!(concat!("../../grammar/", $name, ".txt")),
            fails: include_str!(concat!("../../grammar/", $name, ".err.txt")),
        }),*];
    };
}

families! {
    "list" "list what is there",
    "arith" "do arithmetic",
    "read" "read files",
    "move" "move and rename",
    "search" "search text",
    "loop" "loop over things",
    "create" "create files and folders",
    "sort" "sort lines",
    "variable" "use variables",
    "perm" "look at permissions",
    "count" "count lines, words and bytes",
    "glob" "match names with patterns",
    "navigate" "move between folders",
    "text" "cut and translate text",
    "copy" "copy files",
    "status" "check exit codes",
    "pipe" "build pipes",
    "find" "find files",
    "function" "define and call functions",
    "redirect" "redirect output",
    "edit" "edit with sed",
    "remove" "remove things",
    "compare" "compare files",
    "link" "make links",
}
