//! What files and functions hold: the kinds of short text that go with each extension.

use std::sync::LazyLock;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::words;

static WORDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| words::WORDS.split_whitespace().collect());

/// Extensions, the common ones more than once.
const EXTENSIONS: [&str; 12] = ["txt", "txt", "txt", "txt", "csv", "csv", "dat", "dat", "cfg", "num", "md", "log"];

/// Any word of the list.
pub(crate) fn random_word(random: &mut ChaCha8Rng) -> &'static str {
    WORDS[random.random_range(0..WORDS.len())]
}

pub(crate) fn random_extension(random: &mut ChaCha8Rng) -> &'static str {
    EXTENSIONS[random.random_range(0..EXTENSIONS.len())]
}

/// One line of a file with this extension.
pub(crate) fn row(extension: &str, random: &mut ChaCha8Rng) -> String {
    let (first, second, number) = (random_word(random), random_word(random), random.random_range(1..=99));
    match extension {
        "csv" => format!("{first},{number},{second}"),
        "cfg" if number % 2 == 0 => format!("{first}={second}"),
        "cfg" => format!("{first}={number}"),
        "dat" | "log" => format!("{first} {number}"),
        "num" => number.to_string(),
        _ if number <= 30 => format!("{first} {second}"),
        _ => first.to_owned(),
    }
}

/// What follows `printf` to write a few such lines; some repeat, so that `uniq` has work.
pub(crate) fn printf_arguments(extension: &str, is_short: bool, random: &mut ChaCha8Rng) -> String {
    let num_rows = if is_short { 2 } else { random.random_range(2..=5) };
    let mut rows: Vec<String> = Vec::new();
    for _ in 0..num_rows {
        let repeated = rows.choose(random).filter(|_| !rows.is_empty()).cloned();
        match repeated {
            Some(row) if random.random_bool(0.12) => rows.push(row),
            _ => rows.push(row(extension, random)),
        }
    }
    let is_plain = rows.iter().all(|row| row.chars().all(|letter| letter.is_ascii_alphanumeric()));
    if is_plain && random.random_bool(0.6) {
        return format!("'%s\\n' {}", rows.join(" "));
    }
    let lines: String = rows.iter().map(|row| format!("{row}\\n")).collect();
    format!("'{lines}'")
}

/// The bodies a function can have: `fd` takes words, `fdn` a number, `fdf` a file.
pub(crate) fn function_bodies(kind: &str) -> &'static [&'static str] {
    match kind {
        "fd" => &[
            "echo \"hello $1\"",
            "echo \"$1 $1\"",
            "echo \"$1-$1\"",
            "echo \"[$1]\"",
            "echo \"$1 has ${#1}\"",
            "echo \"$1\" | rev",
            "echo \"${1^^}\"",
            "echo \"$1 in $USER\"",
        ],
        "fdn" => &["echo $(($1 * 2))", "echo $(($1 + 7))", "echo $(($1 % 5))", "echo $(($1 - 3))", "echo $(($1 * $1))"],
        _ => &[
            "wc -l < \"$1\"",
            "head -n 1 \"$1\"",
            "tail -n 1 \"$1\"",
            "sort \"$1\"",
            "tr a-z A-Z < \"$1\"",
            "tac \"$1\"",
        ],
    }
}

pub(crate) fn is_csv(text: &str) -> bool {
    every_row(text, |row| row.split(',').count() == 3)
}

pub(crate) fn is_settings(text: &str) -> bool {
    every_row(text, |row| row.split('=').count() == 2)
}

pub(crate) fn is_pairs(text: &str) -> bool {
    let is_pair = |row: &str| row.split_once(' ').is_some_and(|(_, number)| number.parse::<i64>().is_ok());
    every_row(text, is_pair)
}

pub(crate) fn is_numbers(text: &str) -> bool {
    every_row(text, |row| row.parse::<i64>().is_ok())
}

fn every_row(text: &str, fits: impl Fn(&str) -> bool) -> bool {
    !text.is_empty() && text.lines().all(fits)
}
