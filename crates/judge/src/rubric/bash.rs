//! How bash and the GNU tools word their errors.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use crate::text::pattern;

/// The fixed messages: those of the system, of bash, and of the tools.
pub(crate) const PHRASES: [&str; 52] = [
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

/// Messages that end otherwise than with a phrase, after the program's name.
const OWN_FORMS: &str = concat!(
    r"^(?:line \d+: )?(?:",
    r"syntax error(?: near unexpected token [`'].*'|: unexpected end of file.*|: operand expected.*|: invalid .*|",
    r" in expression.*|: .*\(error token is .*\))",
    r"|unexpected EOF while looking for matching [`'].*'",
    r"|[`'].*'",
    r"|.*: (?:division by 0|syntax error.*|value too great for base|arithmetic syntax error.*|exponent less than 0)",
    r" \(error token is .*\)",
    r"|.*: syntax error.*",
    r"|.*: (?:usage|option requires an argument)\b.*",
    r"|(?:missing operand|missing file operand|missing destination file operand after .*)",
    r"|(?:missing operand after|extra operand) .*",
    r"|(?:invalid option|option requires an argument) -- '.*'",
    r"|(?:unrecognized option|option) '.*'.*",
    r"|(?:-r not specified; )?omitting directory '.*'",
    r"|'.*' and '.*' are the same file",
    r"|(?:invalid mode|invalid number of (?:lines|bytes)|invalid field value|invalid line number): .*",
    r"|cannot (?:move|copy) .* to a subdirectory of itself, .*",
    r"|target .* is not a directory",
    r"|-e expression #\d+, char \d+: .*",
    r"|.*: [Ii]nvalid (?:option|regular expression|range end|preceding regular expression).*",
    r"|(?:Unmatched|Invalid|Trailing) .*",
    r"|(?:binary file matches|.*: binary file matches)",
    r"|warning: .*|you must specify .*|the delimiter must be .*|only one type of list may be specified",
    r"|when .*, .*|invalid .*|missing .*|paths must precede expression.*|unknown .*|can't .*",
    r")$"
);

/// A line that reports an error, in whatever form.
pub(crate) fn is_error_line(line: &str) -> bool {
    genuine(line).is_some() || is_invented_error(line)
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

/// The form of an error line, printed for a command line with these words; `None` where the line is no error.
pub(crate) fn error_form(line: &str, command_words: &BTreeSet<&str>) -> Option<ErrorForm> {
    let Some((program, message)) = genuine(line) else {
        return is_invented_error(line).then_some(ErrorForm::Invented);
    };
    let name = program.rsplit('/').next().unwrap_or(program);
    let from_bash = name == "bash" || command_words.contains("sh") && name == "sh";
    let printed_here = from_bash || command_words.contains(program);
    if printed_here && follows_template(name, message) { Some(ErrorForm::Genuine) } else { Some(ErrorForm::Foreign) }
}

/// Program and message of a line such as `cat: a.txt: No such file or directory`.
fn genuine(line: &str) -> Option<(&str, &str)> {
    static PROGRAM: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([\w./+\[\]-]+): (.+)$"));
    static OWN: LazyLock<Regex> = LazyLock::new(|| pattern(OWN_FORMS));
    let parts = PROGRAM.captures(line)?;
    let (program, message) = (parts.get(1)?.as_str(), parts.get(2)?.as_str());
    let known = PHRASES.iter().any(|phrase| message.ends_with(phrase)) || KNOWN_INSIDE.is_match(message);
    (known || is_program(program) && OWN.is_match(message)).then_some((program, message))
}

static KNOWN_INSIDE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:line \d+: )?(?:syntax error|unexpected EOF) |\(error token is |: numeric argument required")
});

fn is_program(name: &str) -> bool {
    name.ends_with("bash") || TEMPLATES.iter().any(|(programs, _)| programs.split(' ').any(|program| program == name))
}

/// The object of a message that ends with a phrase, by program: `cannot remove 'a'` for rm.
const TEMPLATES: [(&str, &str); 14] = [
    (
        "cat wc grep egrep fgrep cut paste tac comm diff cmp file nl uniq fold rev md5sum sha1sum sha256sum cksum join tee od xxd strings column awk expand fmt split shuf base64 tr seq expr date env basename dirname test [ xargs printf gzip gunzip tar",
        r"^[^'‘].*$",
    ),
    ("ls", r"^(cannot (access|open directory|read symbolic link)|reading directory) ['‘].*['’]$"),
    ("rm", r"^cannot remove ['‘].*['’]$"),
    ("rmdir", r"^failed to remove (directory )?['‘].*['’]$"),
    ("mkdir", r"^cannot create directory ['‘].*['’]$"),
    ("touch", r"^(cannot touch|setting times of) ['‘].*['’]$"),
    ("cp mv ln install", r"^((cannot|failed to) .*|target ['‘].*['’]|['‘].*['’])$"),
    ("head tail", r"^(cannot open ['‘].*['’] for reading|error reading ['‘].*['’])$"),
    ("sort", r"^(cannot read|open failed|read failed|cannot open|stat failed): .*$"),
    ("chmod chown chgrp", r"^(cannot (access|read directory)|changing (permissions|ownership|group) of) ['‘].*['’]$"),
    ("sed", r"^(can't read .*|couldn't .*|read error on .*|cannot .*)$"),
    ("find", r"^(['‘].*['’]|.*)$"),
    ("du stat", r"^cannot (access|statx?|read directory) ['‘].*['’]$"),
    ("readlink realpath mktemp truncate", r"^.*$"),
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
            r"|\b(access|permission) (is )?denied\b|\bno such (file|directory|command|variable)\b",
            r"|\b(could not|couldn't|unable to|failed to) (find|open|read|remove|create|locate|access|delete|write)\b",
        ))
    });
    INVENTED.is_match(line)
}
