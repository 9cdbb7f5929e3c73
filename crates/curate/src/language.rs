//! The language people write in a trajectory, as far as it can be told.

use whatlang::detect;

/// Letters looked at: more do not make the guess surer.
const MOST_LETTERS: usize = 4000;

/// The ISO 639-3 code of the texts taken together, or nothing where there are too few letters or the guess is unsure.
/// Words with digits or signs inside (paths, names in code) are left out.
pub(crate) fn guess<'t>(texts: impl Iterator<Item = &'t str>, min_confidence: f64, min_letters: u64) -> &'static str {
    let mut sample = String::new();
    let mut letters = 0;
    let words =
        texts.flat_map(str::split_whitespace).map(|word| word.trim_matches(|sign: char| sign.is_ascii_punctuation()));
    for word in words.filter(|word| word.chars().all(char::is_alphabetic)) {
        sample.push_str(word);
        sample.push(' ');
        letters += word.chars().count();
        if letters >= MOST_LETTERS {
            break;
        }
    }
    if (letters as u64) < min_letters {
        return "";
    }
    match detect(&sample) {
        Some(info) if info.confidence() >= min_confidence => info.lang().code(),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_told_apart_and_commands_are_not_guessed() {
        let german =
            "Die Datei wurde nicht gefunden, bitte prüfen Sie den Pfad und versuchen Sie es später noch einmal.";
        let english = "The file could not be found, please check the path and try again when the disk is mounted.";
        assert_eq!(guess([german].into_iter(), 0.8, 40), "deu");
        assert_eq!(guess([english, "more words follow here"].into_iter(), 0.8, 40), "eng");
        assert_eq!(guess(["ls -la /tmp/a1 && cat x_y.txt"].into_iter(), 0.8, 40), "");
        assert_eq!(guess([english].into_iter(), 0.8, 400), "");
    }
}
