//! What a value looks like: a number, a time, an address. A made-up value of the right look is realistic, one of another
//! look is not.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::pattern;

/// The look of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    Empty,
    Number,
    Negative,
    Truth,
    Time,
    Address,
    Mail,
    /// Letters and digits in one word.
    Id,
    Words,
}

impl Look {
    pub(super) fn of(value: &str) -> Look {
        static TIME: LazyLock<Regex> = LazyLock::new(|| {
            pattern(concat!(
                r"^\W*(?:\d{4}-\d{2}-\d{2}\b|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\d{1,2}:\d{2}\b|⟦time⟧",
                r"|(?:\d{1,2} )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d{1,4}\b)",
            ))
        });
        static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-z]+://\S+$"));
        static MAIL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[^@\s]+@[^@\s]+\.[a-z]+$"));
        static ID: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\w-]{4,}$"));
        let value = value.trim().trim_matches('"');
        match value {
            "" | "null" | "None" | "[]" | "{}" => Look::Empty,
            "true" | "false" => Look::Truth,
            _ if value.parse::<f64>().is_ok_and(f64::is_sign_negative) => Look::Negative,
            _ if value.parse::<f64>().is_ok() => Look::Number,
            _ if TIME.is_match(value) => Look::Time,
            _ if ADDRESS.is_match(value) => Look::Address,
            _ if MAIL.is_match(value) => Look::Mail,
            _ if ID.is_match(value) && mixes(value) => Look::Id,
            _ => Look::Words,
        }
    }
}

fn mixes(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_digit()) && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Something that stands for a value and is none: `…`, `<name>`, `lorem ipsum`, `[omitted]`.
pub(super) fn is_filler(value: &str) -> bool {
    static FILLER: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r"(?i)^\W*(?:\.\.\.|…)\W*$|^<[a-z][a-z _-]*>$|\blorem ipsum\b|^(?:tbd|todo|xxx+|placeholder|your[_ ]\w+)$",
            r"|[\[(<](?:omitted|truncated|redacted|etc\.?|more (?:items|results|lines|output)|rest of .*|remaining .*)[\])>]",
        ))
    });
    FILLER.is_match(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_by_their_look() {
        for (value, look) in [
            ("7", Look::Number),
            ("-2.5", Look::Negative),
            ("2024-05-20", Look::Time),
            ("06:00:00", Look::Time),
            ("May 20, 2024", Look::Time),
            ("https://fig.org/a", Look::Address),
            ("ada@example.com", Look::Mail),
            ("HAT069", Look::Id),
            ("550e8400-e29b-41d4-a716-446655440000", Look::Id),
            ("true", Look::Truth),
            ("null", Look::Empty),
            ("a fig", Look::Words),
            ("fig", Look::Words),
        ] {
            assert_eq!(Look::of(value), look, "{value}");
        }
    }

    #[test]
    fn fillers_are_no_values() {
        for value in ["...", "<name>", "Lorem ipsum dolor", "[truncated]", "your_api_key", "(more results)"] {
            assert!(is_filler(value), "{value}");
        }
        for value in ["a...b", "fig", "<b>fig</b>", "wait…", "[1] link"] {
            assert!(!is_filler(value), "{value}");
        }
    }
}
