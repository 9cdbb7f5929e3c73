//! How bash and the GNU tools word their errors.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::text::pattern;

/// The fixed messages: those of the system, of bash, and of the tools.
pub(crate) const PHRASES: [&str; 54] = [
    "No such file or directory",
    "No such process",
    "No such device",
    "Permission denied",
    "Operation not permitted",
    "Is a directory",
    "Not a directory",
    "Directory not empty",
    "File exists",
    "Invalid argument",
    "Invalid cross-device link",
    "Text file busy",
    "Read-only file system",
    "No space left on device",
    "Too many levels of symbolic links",
    "File name too long",
    "Argument list too long",
    "Bad file descriptor",
    "Broken pipe",
    "Exec format error",
    "Inappropriate ioctl for device",
    "command not found",
    "cannot execute: required file not found",
    "cannot execute binary file",
    "unbound variable",
    "ambiguous redirect",
    "cannot overwrite existing file",
    "numeric argument required",
    "too many arguments",
    "not a valid identifier",
    "readonly variable",
    "bad substitution",
    "integer expected",
    "integer expression expected",
    "unary operator expected",
    "binary operator expected",
    "restricted",
    "no job control",
    "no such job",
    "invalid option",
    "invalid number",
    "not found",
    "not a regular file",
    "is a directory",
    "missing operand",
    "missing file operand",
    "missing destination file operand",
    "unrecognized option",
    "omitting directory",
    "are the same file",
    "invalid mode",
    "extra operand",
    "No match",
    "value too great for base",
];

/// Messages that do not end with a phrase, after the program's name (and `line 1:`, `-c:`, a builtin's name).
const OWN_FORMS: &str = concat!(
    r"(?:^|: )(?:",
    r"syntax error.*|unexpected EOF while looking for matching .*|unexpected argument .*|conditional binary operator.*",
    r"|[`'].*'|\S* ?usage: .*|option requires an argument.*|can only be .*|can only `return'.*|only meaningful in .*",
    r"|parameter (?:null or )?not set|directory stack empty|octal number out of range|missing [`'].*'",
    r"|invalid (?:signal specification|symbolic mode operator|option name|shell option name|option -- '.*')",
    r"|arguments must be .*|pid \d+ is not a child of this shell|\(\d+\) - No such process",
    r"|missing (?:operand|destination file operand|argument) after .*|unrecognized option '.*'|extra operand .*",
    r"|(?:-r not specified; )?omitting directory '.*'|'.*' and '.*' are the same file",
    r"|invalid (?:mode|number of (?:lines|bytes)|field (?:value|range)|line number|number at field start|suffix)\b.*",
    r"|[Ii]nvalid (?:argument|number|date|time interval|floating point argument|byte|character|range|regular)\b.*",
    r"|cannot move .* to a subdirectory of itself, .*|cannot copy a directory, .*, into itself, .*|cannot overwrite .*",
    r"|will not overwrite just-created .*|target .* is not a directory|-e expression #\d+, char \d+: .*",
    r"|Unmatched .*|Trailing backslash|Invalid regular expression|you must specify .*|the delimiter must be .*",
    r"|unknown predicate .*|Unknown argument to .*|missing argument to .*|paths must precede expression.*",
    r"|missing .* near end of file|Try '.*' for more information\.|binary file matches|EOF on .*|.*is not in sorted order.*",
    r"|non-(?:integer|numeric) argument|division by zero|when .*, .*|string1 .*|refusing to remove .*",
    r"|it is dangerous .*|use --no-preserve-root .*|unknown suffix .*|Error is not recoverable.*|hard link not allowed .*",
    r"|(?:couldn't|can't) .*|input file .* is output file|unmatched .*|unterminated .*|unknown command: .*",
    r")$"
);

/// A line that reports an error, in whatever form.
pub(crate) fn is_error_line(line: &str) -> bool {
    named_error(line).is_some() || is_advice(line) || is_invented_error(line)
}

/// What is wrong with an error line's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// As bash and the GNU tools print it.
    Genuine,
    /// A known message, but in another program's or system's form.
    Foreign,
    /// Nothing here prints such a message.
    Invented,
}

/// The form of an error line, where the programs that run have these names; `None` where the line is no error. With
/// `${name:?message}` among them bash may say anything.
pub(crate) fn error_form(line: &str, programs: &BTreeSet<&str>) -> Option<ErrorForm> {
    if is_advice(line) {
        return Some(ErrorForm::Genuine);
    }
    let Some((program, message)) = named_error(line) else {
        return is_invented_error(line).then_some(ErrorForm::Invented);
    };
    let runs = program == "bash" || programs.contains(program);
    Some(match (runs, is_known_message(message)) {
        (true, true) if follows_template(program, message) => ErrorForm::Genuine,
        (_, true) => ErrorForm::Foreign,
        (true, false) if programs.iter().any(|word| word.contains(":?")) => ErrorForm::Genuine,
        (_, false) => ErrorForm::Invented,
    })
}

/// Words before a colon that name no program.
const EXCLAMATIONS: [&str; 6] = ["error", "fatal", "failure", "warning", "oops", "exception"];

/// Program and message of a line such as `cat: a.txt: No such file or directory`. Whatever bash says of itself is an
/// error; of another program only a message that is known, since `date: Monday` may stand in any file.
pub(crate) fn named_error(line: &str) -> Option<(&str, &str)> {
    static NAMED: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([\w./+\[\]-]+): (.*)$"));
    let parts = NAMED.captures(line)?;
    let (program, message) = (parts.get(1)?.as_str(), parts.get(2)?.as_str());
    let is_exclamation = EXCLAMATIONS.contains(&program.to_lowercase().as_str());
    (program == "bash" || !is_exclamation && is_known_message(message)).then_some((program, message))
}

/// What follows some errors.
fn is_advice(line: &str) -> bool {
    static ADVICE: LazyLock<Regex> = LazyLock::new(|| {
        pattern(r"^(Try '\S+ --help' for more information\.|Usage: \S+ .*|Two strings must be given when .*)$")
    });
    ADVICE.is_match(line)
}

fn is_known_message(message: &str) -> bool {
    static OWN: LazyLock<Regex> = LazyLock::new(|| pattern(OWN_FORMS));
    let message_end = message.strip_suffix(')').unwrap_or(message);
    PHRASES.iter().any(|phrase| message_end.ends_with(phrase))
        || message.ends_with("\")") && message.contains("(error token is \"")
        || OWN.is_match(message)
}

/// How a program names the object of a message that ends with a phrase: `cannot remove 'a'` for rm.
const TEMPLATES: [(&str, &str); 12] = [
    ("cat wc grep cut paste comm diff cmp uniq nl fold md5sum cksum join tee od awk shuf", r"^(['‘].*['’]|\S+)$"),
    ("ls", r"^((cannot (access|open directory|read symbolic link)|reading directory) ['‘].*['’])$"),
    ("rm", r"^cannot remove ['‘].*['’]$"),
    ("rmdir", r"^failed to remove (directory )?['‘].*['’]$"),
    ("mkdir", r"^cannot create directory ['‘].*['’]$"),
    ("touch", r"^(cannot touch|setting times of) ['‘].*['’]$"),
    ("cp mv ln", r"^((cannot|failed to) .*['’]( => ['‘].*['’])?|target ['‘].*['’]|['‘].*['’])$"),
    (
        "head tail tac split",
        r"^((cannot|failed to) open ['‘].*['’] for reading|error reading ['‘].*['’]|\S+: read error)$",
    ),
    ("sort", r"^(cannot read|open failed|read failed|cannot open|stat failed): .*$"),
    ("chmod chown chgrp", r"^(cannot (access|read directory)|changing (permissions|ownership|group) of) ['‘].*['’]$"),
    ("sed", r"^((can't|couldn't|cannot) .*|read error on .*)$"),
    ("du stat", r"^cannot (access|statx?|read directory) ['‘].*['’]$"),
];

fn follows_template(program: &str, message: &str) -> bool {
    static COMPILED: LazyLock<Vec<Regex>> =
        LazyLock::new(|| TEMPLATES.iter().map(|(_, template)| pattern(template)).collect());
    let template = TEMPLATES.iter().position(|(programs, _)| programs.split(' ').any(|name| name == program));
    let object = PHRASES.iter().find_map(|phrase| message.strip_suffix(phrase)?.strip_suffix(": "));
    match (template, object) {
        (Some(template), Some(object)) => COMPILED[template].is_match(object),
        _ => true,
    }
}

/// Words that people and models use for errors, and no tool here does.
fn is_invented_error(line: &str) -> bool {
    static INVENTED: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r"(?i)^\W*(error|fatal|failure|failed|oops|sorry|exception|traceback)\b",
            r"|\b(file|directory|folder|path|command|variable)\b.{0,40}",
            r"\b(not found|could not be found|(does|do) not exist|doesn't exist|not recognized|unknown)\b",
            r"|\bis not recognized as\b|\b(access|permission) (is )?denied\b|\bno such (file|directory|command|variable)\b",
            r"|\b(could not|couldn't|unable to|failed to) (find|open|read|remove|create|locate|access|delete|write)\b",
        ))
    });
    INVENTED.is_match(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(command: &str, line: &str) -> Option<ErrorForm> {
        let programs = command.split([' ', ';', '|', '(', '{', '$', '&']).collect();
        error_form(line, &programs)
    }

    /// Printed by bash 5 and coreutils 9 for these commands, as an unprivileged user; see the file's first line.
    const PRINTED: &str = include_str!("../../tests/bash_errors.tsv");

    #[test]
    fn what_bash_really_printed_is_genuine() {
        let mut checked = 0;
        for (command, line) in PRINTED.lines().skip(1).filter_map(|row| row.split_once('\t')) {
            assert_eq!(form(command, line), Some(ErrorForm::Genuine), "`{command}` printed `{line}`");
            let interactive = line.replacen("bash: line 1: ", "bash: ", 1);
            assert_eq!(form(command, &interactive), Some(ErrorForm::Genuine), "`{command}` printed `{interactive}`");
            checked += 1;
        }
        assert!(checked > 150, "{checked} lines");
    }

    #[test]
    fn forms_of_other_programs_and_systems_are_foreign() {
        for (command, line) in [
            ("ls a", "ls: a: No such file or directory"),
            ("rm a", "rm: a: No such file or directory"),
            ("cat a", "cat: cannot open 'a': No such file or directory"),
            ("cat a", "ls: cannot access 'a': No such file or directory"),
            ("foo", "zsh: command not found"),
            ("head a", "head: a: No such file or directory"),
            ("mkdir a", "mkdir: a: File exists"),
            ("sort a", "sort: a: No such file or directory"),
        ] {
            assert_eq!(form(command, line), Some(ErrorForm::Foreign), "{line}");
        }
    }

    #[test]
    fn what_nothing_prints_is_invented() {
        for line in [
            "Error: file not found",
            "ERROR - a.txt missing",
            "The file a.txt does not exist",
            "cat: file could not be found",
            "Access denied",
            "bash: a.txt does not exist here",
            "Unable to open a.txt",
            "'foo' is not recognized as an internal or external command",
        ] {
            assert_eq!(form("cat a.txt", line), Some(ErrorForm::Invented), "{line}");
        }
    }

    #[test]
    fn a_message_of_the_user_is_genuine_where_the_command_holds_one() {
        assert_eq!(form("echo ${rank:?star}", "bash: rank: star"), Some(ErrorForm::Genuine));
        assert_eq!(form("echo $rank", "bash: rank: star"), Some(ErrorForm::Invented));
    }

    #[test]
    fn ordinary_output_is_no_error() {
        for line in ["fig", "date: Monday", "-rw-r--r-- 1 u u 4 Nov 29 17:25 a", "a.txt:3", "name: ada", "", "key=1"] {
            assert_eq!(form("cat a.txt", line), None, "{line}");
        }
    }
}
