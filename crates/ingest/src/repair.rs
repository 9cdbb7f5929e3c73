//! Text that is almost Unicode: invalid UTF-8 and lone surrogate escapes become U+FFFD, counted.

use crate::refusal::{Counts, count};

/// Bytes of a row as text that a JSON parser takes.
pub(crate) fn to_text(bytes: Vec<u8>, counts: &mut Counts) -> String {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        let bytes = error.into_bytes();
        let places = bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
        count(counts, "repaired_invalid_utf8", places as u64);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let (text, places) = lone_surrogates(text);
    count(counts, "repaired_lone_surrogates", places);
    text
}

/// Replaces `\ud800`..`\udfff` escapes that are no pair; `\ud83d\udc4d` stays and `\\ud83d` is no escape.
fn lone_surrogates(text: String) -> (String, u64) {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return (text, 0);
    }
    let bytes = text.as_bytes();
    let mut repaired = String::with_capacity(text.len());
    let (mut copied, mut at, mut places) = (0, 0, 0);
    while let Some(step) = text[at..].find('\\') {
        at += step;
        let Some(high) = surrogate(bytes, at) else {
            at = next_char(&text, at + 1);
            continue;
        };
        if high < 0xdc00 && surrogate(bytes, at + 6).is_some_and(|low| low >= 0xdc00) {
            at += 12;
            continue;
        }
        repaired.push_str(&text[copied..at]);
        repaired.push_str("\\ufffd");
        places += 1;
        at += 6;
        copied = at;
    }
    repaired.push_str(&text[copied..]);
    (repaired, places)
}

/// The start of the character after the one at `at`.
fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(0, char::len_utf8)
}

/// The code unit of a surrogate escape that starts at `at`.
fn surrogate(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (0xd800..0xe000).contains(&unit).then_some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str, name: &'static str, places: u64) {
        let mut counts = Counts::new();
        assert_eq!(to_text(bytes.to_vec(), &mut counts), expected);
        assert_eq!(counts.get(name).copied().unwrap_or(0), places, "{expected}");
    }

    #[test]
    fn a_pair_stays_and_a_lone_surrogate_is_replaced_and_counted() {
        let name = "repaired_lone_surrogates";
        check(br#""\ud83d\udc4d""#, r#""\ud83d\udc4d""#, name, 0);
        check(br#""\ud83d""#, r#""\ufffd""#, name, 1);
        check(br#""\udbc0x\uDC4D\uD83D""#, r#""\ufffdx\ufffd\ufffd""#, name, 3);
        check(br#""\ud83d\ud83d\udc4d""#, r#""\ufffd\ud83d\udc4d""#, name, 1);
    }

    #[test]
    fn an_escaped_backslash_before_u_is_no_escape() {
        check(br#""C:\\ud83d""#, r#""C:\\ud83d""#, "repaired_lone_surrogates", 0);
        check("\"\\é\\ud83d\"".as_bytes(), "\"\\é\\ufffd\"", "repaired_lone_surrogates", 1);
    }

    #[test]
    fn invalid_bytes_are_replaced_and_counted() {
        check(b"\"a\xff\xfeb\"", "\"a\u{fffd}\u{fffd}b\"", "repaired_invalid_utf8", 2);
        check("\"é\"".as_bytes(), "\"é\"", "repaired_invalid_utf8", 0);
    }
}
