//! Binary content in text: a base64 blob becomes its length and hash, so that it is marked and can be told from others.

use std::sync::LazyLock;

/// Shorter ones stay.
const MIN_CHARS: usize = 256;
/// How the base64 of common files begins: PNG, JPEG, GIF, WebP, PDF, ZIP, gzip.
const STARTS: [&str; 7] = ["iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi0", "UEsDB", "H4sI"];

static MARKS: LazyLock<Vec<&'static str>> = LazyLock::new(|| [";base64,"].into_iter().chain(STARTS).collect());

/// Replaces base64 blobs: those of `data:` addresses and those that begin like a known kind of file.
pub(crate) fn shorten(text: &mut String) {
    if text.len() < MIN_CHARS || !MARKS.iter().any(|mark| text.contains(mark)) {
        return;
    }
    let mut shortened = String::new();
    let mut rest = text.as_str();
    while let Some(start) = next_blob(rest) {
        let blob = &rest[start..start + run(&rest[start..])];
        shortened.push_str(&rest[..start]);
        if blob.len() < MIN_CHARS {
            shortened.push_str(blob);
        } else {
            let hash = blake3::hash(blob.as_bytes()).to_hex();
            shortened.push_str(&format!("[base64 {} characters, blake3 {}]", blob.len(), &hash[..16]));
        }
        rest = &rest[start + blob.len()..];
    }
    shortened.push_str(rest);
    *text = shortened;
}

/// Where the next run of base64 starts that a mark stands before or at.
fn next_blob(text: &str) -> Option<usize> {
    let address = text.find(";base64,").map(|at| at + ";base64,".len());
    let is_start = |at: &usize| !text[..*at].ends_with(is_base64);
    let file = STARTS.iter().filter_map(|start| text.match_indices(start).map(|(at, _)| at).find(is_start)).min();
    [address, file].into_iter().flatten().min().filter(|start| *start < text.len())
}

fn is_base64(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=' | '-' | '_')
}

/// Length of the run of base64 at the start of a text, at least one character.
fn run(text: &str) -> usize {
    let end = text.find(|letter| !is_base64(letter)).unwrap_or(text.len());
    end.max(text.chars().next().map_or(0, char::len_utf8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(text: &str) -> String {
        let mut text = text.to_string();
        shorten(&mut text);
        text
    }

    #[test]
    fn blobs_become_length_and_hash_and_all_else_stays() {
        let blob = format!("iVBORw0KGgo{}", "Ab9+".repeat(100));
        let mark = format!("[base64 411 characters, blake3 {}]", &blake3::hash(blob.as_bytes()).to_hex()[..16]);
        assert_eq!(
            shortened(&format!("a data:image/png;base64,{blob}\" é")),
            format!("a data:image/png;base64,{mark}\" é")
        );
        assert_eq!(shortened(&format!("{{\"data\": \"{blob}\"}} {blob}")), format!("{{\"data\": \"{mark}\"}} {mark}"));
        let long = "x".repeat(10_000);
        assert_eq!(shortened(&long), long, "a long run is no blob by itself");
        let short = format!("data:text/plain;base64,SGVsbG8= /9j/ {}", "word ".repeat(100));
        assert_eq!(shortened(&short), short);
        assert_eq!(shortened(&format!("{};base64,", " ".repeat(300))).len(), 308);
    }
}
