//! Comparing texts: what counts as the same, and how much of one is in the other.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Equal byte for byte.
pub fn exact_match(truth: &str, prediction: &str) -> bool {
    truth == prediction
}

/// Equal after [`normalise`] and [`mask_volatile`].
pub fn normalised_match(truth: &str, prediction: &str) -> bool {
    comparable(truth) == comparable(prediction)
}

/// Share of lines in common, as multisets: order does not matter, repetition does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LineF1 {
    /// Share of the prediction's lines that are in the truth.
    pub precision: f64,
    /// Share of the truth's lines that are in the prediction.
    pub recall: f64,
    /// Harmonic mean of the two.
    pub f1: f64,
}

/// Precision, recall and F1 over lines after [`normalise`] and [`mask_volatile`]. Two empty texts agree fully (1), an
/// empty and another one not at all (0).
pub fn line_f1(truth: &str, prediction: &str) -> LineF1 {
    let (truth, prediction) = (comparable(truth), comparable(prediction));
    let mut open: HashMap<&str, usize> = HashMap::new();
    lines(&truth).for_each(|line| *open.entry(line).or_default() += 1);
    let (num_truth, num_prediction) = (lines(&truth).count(), lines(&prediction).count());
    if num_truth == 0 || num_prediction == 0 {
        let agreement = if num_truth == num_prediction { 1.0 } else { 0.0 };
        return LineF1 { precision: agreement, recall: agreement, f1: agreement };
    }
    let common = lines(&prediction).filter(|line| take_one(&mut open, line)).count() as f64;
    LineF1 {
        precision: common / num_prediction as f64,
        recall: common / num_truth as f64,
        f1: 2.0 * common / (num_truth + num_prediction) as f64,
    }
}

/// Line ends as `\n`, no spaces or tabs at the end of a line, no line breaks at the end of the text.
pub fn normalise(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.split('\n').map(|line| line.trim_end_matches([' ', '\t', '\r'])).collect();
    lines.join("\n").trim_end_matches('\n').to_string()
}

/// Puts a placeholder where a text holds what nobody can foresee. Masked are
/// - times: in `ls -l` lines, as `date` prints them, with fraction and zone as `stat` and `ls --full-time` do, and a
///   line that is nothing but date and time;
/// - inode numbers: before the mode in `ls -li`, after `Inode:`, six digits or more before one name in `ls -i`;
/// - temporary names of `mktemp` and Python (`tmp.Xy12…`, `/tmp/tmpab12…`);
/// - process numbers: of a job that starts or dies, in `ps` lines, after the word `pid`;
/// - durations: those of `time`, and seconds or milliseconds with decimals.
///
/// Not masked is what looks alike and follows from the state: a bare date, a time in a log file, an epoch number. A
/// text cannot fake a placeholder: its own `⟦` are doubled.
///
/// ```
/// use worldloom_judge::mask_volatile;
/// assert_eq!(mask_volatile("-rw-r--r-- 1 u u 4 Nov 29 17:25 a"), "-rw-r--r-- 1 u u 4 ⟦time⟧ a");
/// ```
pub fn mask_volatile(text: &str) -> String {
    let mut masked = text.replace('⟦', "⟦⟦");
    for (pattern, replacement) in MASKS.iter() {
        masked = pattern.replace_all(&masked, *replacement).into_owned();
    }
    TEMPORARY.replace_all(&masked, mask_random_name).into_owned()
}

/// The form in which texts are compared.
pub(crate) fn comparable(text: &str) -> String {
    mask_volatile(&normalise(text))
}

/// Lines of a normalised text; an empty text has none.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').filter(move |_| !text.is_empty())
}

/// Compiles a pattern written in this crate.
pub(crate) fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("patterns of this crate are constants and each is used by a test")
}

fn take_one(open: &mut HashMap<&str, usize>, line: &str) -> bool {
    match open.get_mut(line) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

static MASKS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    const MONTH: &str = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
    const DAY: &str = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
    const CLOCK: &str = r"\d{1,2}:\d{2}:\d{2}(?: [AP]M)?";
    const ZONE: &str = r"(?:[A-Z]{3,5}|[+-]\d{2}(?::?\d{2})?)";
    const ISO: &str = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}";
    let masks: [(String, &'static str); 15] = [
        (format!(r"{ISO}\.\d{{3,9}}(?: ?{ZONE}|Z)?"), "⟦time⟧"),
        (format!(r"(?m)^{ISO}(?: ?{ZONE}|Z)?$"), "⟦time⟧"),
        (format!(r"\b{DAY} {MONTH} +\d{{1,2}} {CLOCK}(?: {ZONE})?(?: \d{{4}})?\b"), "⟦time⟧"),
        (format!(r"\b{DAY},? \d{{1,2}} {MONTH} \d{{4}} {CLOCK}(?: {ZONE})?"), "⟦time⟧"),
        (
            format!(
                r"(?m)^((?:\s*\d+ +)?[-dlcbps][-rwxsStT]{{6,12}}[.+@]? .*?\d )({MONTH} +\d{{1,2}} +[\d:]{{4,5}})( )"
            ),
            "${1}⟦time⟧${3}",
        ),
        (r"(?m)^\s*\d+ +([-dlcbps][-rwxsStT]{9})".into(), "⟦inode⟧ ${1}"),
        (r"\bInode: \d+".into(), "Inode: ⟦inode⟧"),
        (r"(?m)^ *\d{6,} (\S+)$".into(), "⟦inode⟧ ${1}"),
        (r"(?m)^\[(\d+)\] \d+$".into(), "[${1}] ⟦pid⟧"),
        (r"(line \d+: +)\d+( +(?:Killed|Terminated|Aborted|Segmentation fault|Hangup))".into(), "${1}⟦pid⟧${2}"),
        (r"(?m)^ *\d+ (pts/\d+|tty\d*|\?) +\d+:\d{2}:\d{2} ".into(), "⟦pid⟧ ${1} ⟦duration⟧ "),
        (r"\b([Pp][Ii][Dd][ :=]+)\d+".into(), "${1}⟦pid⟧"),
        (r"(?m)^(real|user|sys)(\s+)\d+m\d+[.,]\d+s$".into(), "${1}${2}⟦duration⟧"),
        (r"\b(in|took|after|elapsed:?) \d+ ?(s|ms|seconds)\b".into(), "${1} ⟦duration⟧"),
        (r"\b\d+\.\d+ ?(?:s|ms|us|µs|secs?|seconds)\b".into(), "⟦duration⟧"),
    ];
    masks.into_iter().map(|(source, replacement)| (pattern(&source), replacement)).collect()
});

static TEMPORARY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\btmp\.([A-Za-z0-9]{6,12})\b|/tmp/tmp([a-z0-9_]{6,10})\b"));

/// A random name has a digit or a capital in it; `tmp.backup` has not and stays.
fn mask_random_name(found: &Captures) -> String {
    let random = found.get(1).or_else(|| found.get(2)).map_or("", |part| part.as_str());
    let looks_random = random.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    match (looks_random, found[0].starts_with('/')) {
        (false, _) => found[0].to_string(),
        (true, true) => "/tmp/⟦name⟧".to_string(),
        (true, false) => "⟦name⟧".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_parts_are_masked() {
        for (text, masked) in [
            ("drwxr-xr-x 2 u u 4096 Nov  9 07:25 src", "drwxr-xr-x 2 u u 4096 ⟦time⟧ src"),
            ("-rw-r--r-- 1 u u 12 Jan 29  2024 b c", "-rw-r--r-- 1 u u 12 ⟦time⟧ b c"),
            ("131204 -rw-r--r-- 1 u u 4 Nov 29 17:25 a", "⟦inode⟧ -rw-r--r-- 1 u u 4 ⟦time⟧ a"),
            ("Sun Nov 29 17:25:16 UTC 2026", "⟦time⟧"),
            ("Sun Nov 29 05:25:16 PM UTC 2026", "⟦time⟧"),
            ("Sun, 29 Nov 2026 17:25:16 +0000", "⟦time⟧"),
            ("Modify: 2026-11-29 17:25:16.123456789 +0000", "Modify: ⟦time⟧"),
            ("2026-11-29T17:25:16Z", "⟦time⟧"),
            ("Device: 8,1\tInode: 42   Links: 1", "Device: 8,1\tInode: ⟦inode⟧   Links: 1"),
            ("1311204 notes.txt", "⟦inode⟧ notes.txt"),
            ("/tmp/tmp.aB3dE6gH9j", "/tmp/⟦name⟧"),
            ("/tmp/tmpx1_k2abc/out", "/tmp/⟦name⟧/out"),
            ("[1] 43210", "[1] ⟦pid⟧"),
            ("bash: line 1: 4321 Killed   sleep 5", "bash: line 1: ⟦pid⟧ Killed   sleep 5"),
            ("   4321 pts/0    00:00:00 bash", "⟦pid⟧ pts/0 ⟦duration⟧ bash"),
            ("server pid: 99", "server pid: ⟦pid⟧"),
            ("real\t0m0.004s", "real\t⟦duration⟧"),
            ("3 passed in 0.12s", "3 passed in ⟦duration⟧"),
            ("done, took 12 ms", "done, took ⟦duration⟧"),
        ] {
            assert_eq!(mask_volatile(text), masked, "{text:?}");
        }
    }

    #[test]
    fn what_follows_from_the_state_is_not_masked() {
        for text in [
            "2024-05-01",
            "2024-05-01 10:00:01 INFO start",
            "Jan 12 10:30 dentist",
            "1731204000",
            "12 notes.txt",
            "tmp.backup",
            "/tmp/notes.txt",
            "line 3 of 7",
            "version 1.5 seen",
            "[1] Done",
            "rapid 12",
        ] {
            assert_eq!(mask_volatile(text), text);
        }
    }

    #[test]
    fn a_placeholder_written_by_the_model_matches_nothing() {
        let truth = "Sun Nov 29 17:25:16 UTC 2026";
        assert!(normalised_match(truth, "Mon Jan  5 01:02:03 UTC 2026"));
        assert!(!normalised_match(truth, "⟦time⟧"));
        assert!(!normalised_match(truth, "⟦⟦time⟧"));
    }

    #[test]
    fn line_ends_and_trailing_blanks_do_not_count() {
        assert!(normalised_match("a\nb\n", "a  \r\nb\t\r\n\r\n"));
        assert!(!normalised_match("a\nb", "a\n\nb"));
        assert!(!normalised_match(" a", "a"));
        assert!(!exact_match("a", "a\n"));
        assert!(exact_match("a\n", "a\n"));
    }

    #[test]
    fn line_f1_counts_lines_as_a_multiset() {
        let share = |truth, prediction| {
            let score = line_f1(truth, prediction);
            (score.precision, score.recall, score.f1)
        };
        assert_eq!(share("", ""), (1.0, 1.0, 1.0));
        assert_eq!(share("", "\n\n"), (1.0, 1.0, 1.0));
        assert_eq!(share("a", ""), (0.0, 0.0, 0.0));
        assert_eq!(share("", "a"), (0.0, 0.0, 0.0));
        assert_eq!(share("a\nb\nc", "c\na\nb\n"), (1.0, 1.0, 1.0));
        assert_eq!(share("a\nb", "a"), (1.0, 0.5, 2.0 / 3.0));
        assert_eq!(share("a", "a\na\na\na"), (0.25, 1.0, 0.4));
        assert_eq!(share("a\n\nb", "a\nb"), (1.0, 2.0 / 3.0, 0.8));
    }

    proptest::proptest! {
        #[test]
        fn line_f1_is_symmetric_and_bounded(left in "([ab]{0,2}\n){0,5}", right in "([ab]{0,2}\n){0,5}") {
            let (forth, back) = (line_f1(&left, &right), line_f1(&right, &left));
            proptest::prop_assert_eq!(forth.f1, back.f1);
            proptest::prop_assert_eq!(forth.precision, back.recall);
            proptest::prop_assert!((0.0..=1.0).contains(&forth.f1));
            proptest::prop_assert!(forth.f1 >= forth.precision.min(forth.recall) - 1e-12);
            proptest::prop_assert!(forth.f1 <= forth.precision.max(forth.recall) + 1e-12);
        }

        #[test]
        fn normalising_is_idempotent_and_every_text_matches_itself(text in "[ -~\n]{0,60}") {
            let once = normalise(&text);
            proptest::prop_assert_eq!(normalise(&once), once.clone());
            proptest::prop_assert!(normalised_match(&text, &text));
            proptest::prop_assert_eq!(line_f1(&text, &text).f1, 1.0);
        }
    }
}
