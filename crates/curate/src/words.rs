//! Texts as words and runs of words, each a number, so that texts are compared without being kept.
//!
//! A *word* is a run of letters, digits and `_` in lower case; where a script puts no spaces between words (Chinese,
//! Japanese, Thai and their kin) each letter is one. A *run* is a number of words in a row, an n-gram.

const START: u64 = 0xcbf2_9ce4_8422_2325;
const STEP: u64 = 0x0000_0100_0000_01b3;
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whether a letter belongs to a word.
pub(crate) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Adds the words of a text as numbers.
pub(crate) fn add_words(text: &str, words: &mut Vec<u64>) {
    let mut word = START;
    let close = |word: &mut u64, words: &mut Vec<u64>| {
        if *word != START {
            words.push(mix(*word));
        }
        *word = START;
    };
    for letter in text.chars() {
        if letter.is_ascii() {
            match letter.is_ascii_alphanumeric() || letter == '_' {
                true => word = next(word, letter.to_ascii_lowercase()),
                false => close(&mut word, words),
            }
            continue;
        }
        if !letter.is_alphanumeric() || stands_alone(letter) {
            close(&mut word, words);
        }
        if letter.is_alphanumeric() {
            word = letter.to_lowercase().fold(word, next);
        }
        if stands_alone(letter) {
            close(&mut word, words);
        }
    }
    close(&mut word, words);
}

fn next(word: u64, letter: char) -> u64 {
    (word ^ u64::from(u32::from(letter))).wrapping_mul(STEP)
}

/// Scripts without spaces between words.
fn stands_alone(letter: char) -> bool {
    matches!(u32::from(letter),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff
        | 0xf900..=0xfaff | 0x20000..=0x323af)
}

/// The finaliser of splitmix64: near numbers become far ones.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A name as a number that no run has but by chance.
pub(crate) fn of_name(name: &str) -> u64 {
    !mix(name.chars().fold(START, next))
}

/// The runs of so many words, in order; fewer words than that are one run, no words none.
pub(crate) fn runs(words: &[u64], length: usize) -> impl Iterator<Item = u64> {
    let length = length.clamp(1, words.len().max(1));
    let highest = (1..length).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut rolling = words.iter().take(length - 1).fold(0u64, |sum, word| sum.wrapping_mul(BASE).wrapping_add(*word));
    words.iter().skip(length - 1).enumerate().map(move |(start, word)| {
        let sum = rolling.wrapping_mul(BASE).wrapping_add(*word);
        rolling = sum.wrapping_sub(words[start].wrapping_mul(highest));
        mix(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<u64> {
        let mut words = Vec::new();
        add_words(text, &mut words);
        words
    }

    #[test]
    fn words_are_the_same_in_any_case_and_between_any_signs() {
        assert_eq!(words("Fig, plum_2 — ÉTÉ"), words("fig\tplum_2\nété"));
        assert_eq!(words("a b").len(), 2);
        assert_ne!(words("ab"), words("a b"));
        assert!(words(" -- \n").is_empty());
    }

    #[test]
    fn letters_of_scripts_without_spaces_are_words() {
        assert_eq!(words("打开文件 plum").len(), 5);
        assert_eq!(words("x打y"), [words("x"), words("打"), words("y")].concat());
    }

    #[test]
    fn a_run_depends_on_its_words_and_their_order_only() {
        let all = words("a b c d a b c e");
        let found: Vec<u64> = runs(&all, 3).collect();
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], found[4], "a b c");
        assert_ne!(found[0], runs(&words("c b a"), 3).next().unwrap());
        for (start, run) in found.iter().enumerate() {
            assert_eq!(*run, runs(&all[start..start + 3], 3).next().unwrap(), "the run does not see what was before");
        }
    }

    #[test]
    fn a_text_shorter_than_a_run_is_one_run() {
        assert_eq!(runs(&words("a b"), 13).count(), 1);
        assert_eq!(runs(&words("a b"), 13).next(), runs(&words("a b"), 2).next());
        assert_eq!(runs(&[], 13).count(), 0);
    }
}
