//! What the turn mask looks at (recipe.md §1.5): words and lengths of an action and its observation.

use std::collections::HashSet;

/// The measures of one turn. Word sets are of `\w+` in lower case, `Wa` of the action and `Wo` of the observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// `|Wa ∩ Wo| / |Wa|`, how much of the action comes back; 0 for an action without words.
    pub overlap: f64,
    /// `|Wo \ Wa| / |Wo|`, how much of the observation is new; 0 for an observation without words.
    pub novelty: f64,
    /// Characters of the observation per character of the action; infinite where only the action is empty, 0 where
    /// both are.
    pub ratio: f64,
    /// `|Wo|`.
    pub words: f64,
    /// Characters of the observation.
    pub chars: u64,
}

/// Measures a turn.
pub fn measure(action: &str, observation: &str) -> Measures {
    let (of_action, of_observation) = (words(action), words(observation));
    let shared = of_observation.intersection(&of_action).count();
    let chars = observation.chars().count() as u64;
    Measures {
        overlap: share(shared, of_action.len()),
        novelty: share(of_observation.len() - shared, of_observation.len()),
        ratio: match action.chars().count() {
            0 if chars == 0 => 0.0,
            length => chars as f64 / length as f64,
        },
        words: of_observation.len() as f64,
        chars,
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn words(text: &str) -> HashSet<String> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(|letter| !is_word(letter)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(action: &str, observation: &str, overlap: f64, novelty: f64, ratio: f64) {
        let measures = measure(action, observation);
        assert_eq!((measures.overlap, measures.novelty, measures.ratio), (overlap, novelty, ratio), "{action}");
    }

    #[test]
    fn words_are_lower_case_sets_and_lengths_are_characters() {
        check("echo Fig fig plum", "FIG plum\n", 2.0 / 3.0, 0.0, 9.0 / 17.0);
        check("ls", "a.txt b.txt", 0.0, 1.0, 5.5);
        check("é", "ÉÉ é", 1.0, 0.5, 4.0);
        check("a_b-c", "a_b c d", 1.0, 1.0 / 3.0, 7.0 / 5.0);
    }

    #[test]
    fn sides_without_words_measure_zero() {
        check("", "", 0.0, 0.0, 0.0);
        check("", "a", 0.0, 1.0, f64::INFINITY);
        check("ls", "", 0.0, 0.0, 0.0);
        check("!!", "a", 0.0, 1.0, 0.5);
        check("ls", "--", 0.0, 0.0, 1.0);
    }
}
