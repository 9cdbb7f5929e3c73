//! Consistency: agreement with the working directory, files and values of earlier turns.
//!
//! Every word of the prediction that names something must have occurred: in the history, the action, the initial state
//! or the truth. A number may be new, being computed, and a path may be a new arrangement of known names; both count
//! half. In a listing, a name that is known but not there is stale and counts half. On top come contradictions: an
//! error where there is none or none where there is one, another reason for failing, another working directory.
//!
//! That is a shell's measure, where little is printed that was not known. Elsewhere what is new may be anything, and is
//! factuality's matter: of text, only the names that earlier turns made known count, as F1 between those of the truth
//! and those of the prediction.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use worldloom_schema::Domain;

use super::bash::is_error_line;
use super::words::{Prepared, bare, is_markup, is_phrase};
use super::{JudgeContext, Score};
use crate::text::{comparable, pattern};

/// Words of messages and sentences; they name nothing.
const UNNAMED: &str = "a an the and or of to in on at for with is are was be not no such file files directory line total \
    cannot failed open access remove create touch stat reading command found error near unexpected \
    token try more information bash usage delete find read write";

pub(crate) fn score(context: &JudgeContext<'_>, truth: &Prepared, prediction: &Prepared) -> Score {
    let score = match context.domain {
        Domain::Terminal => Score::graded(1.0 - unfounded_share(context, truth, prediction), [1.0, 0.88, 0.5, 0.25]),
        _ => Score::graded(Known::of(context).agreement(truth, prediction), [0.95, 0.8, 0.5, 0.25]),
    };
    score.min(contradiction_limit(context.domain, truth, prediction))
}

/// Share of the prediction's names that have no ground.
fn unfounded_share(context: &JudgeContext<'_>, truth: &Prepared, prediction: &Prepared) -> f64 {
    let in_truth = names(&truth.joined);
    let known_texts: Vec<String> = known_texts(context).map(comparable).collect();
    let known: HashSet<&str> =
        known_texts.iter().flat_map(|text| names(text)).chain(in_truth.iter().copied()).collect();
    let lists = is_listing(context.action);
    let claims = prediction.words().filter(|word| !is_markup(word) && !is_mode(word));
    let claims = claims.flat_map(|word| word.split(['=', ':', ',', '"'])).map(bare);
    let claims: Vec<&str> = claims.filter(|word| names_something(word)).collect();
    let unfounded = claims.iter().map(|claim| match known.contains(claim) {
        _ if in_truth.contains(claim) => 0.0,
        true if lists => 0.5,
        true => 0.0,
        false if is_number(claim) || is_arrangement(claim, &known) => 0.5,
        false => 1.0,
    });
    unfounded.sum::<f64>() / claims.len().max(1) as f64
}

/// What earlier turns and the action made known.
pub(super) struct Known {
    earlier: Names,
    action: Names,
}

/// What a text names: its words and their parts, its lines, and what stands in quotes.
struct Names {
    words: HashSet<String>,
    phrases: HashSet<String>,
}

impl Names {
    fn of(text: &str) -> Self {
        let words = names(text).into_iter().map(String::from).collect();
        let phrases = text.lines().chain(quoted(text)).map(|phrase| phrase.trim().to_string()).collect();
        Names { words, phrases }
    }

    fn hold(&self, value: &str) -> bool {
        self.words.contains(value) || self.phrases.contains(value)
    }
}

/// Texts in quotes.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    static QUOTED: LazyLock<Regex> = LazyLock::new(|| pattern(r#""([^"\n]{2,})"|'([^'\n]{2,})'"#));
    QUOTED.captures_iter(text).filter_map(|found| found.get(1).or_else(|| found.get(2))).map(|text| text.as_str())
}

impl Known {
    pub(super) fn of(context: &JudgeContext<'_>) -> Self {
        let earlier = known_texts(context).map(comparable).collect::<Vec<_>>().join("\n");
        Known { earlier: Names::of(&earlier), action: Names::of(&comparable(context.action)) }
    }

    /// Whether a value was named before. Short numbers stand everywhere: they count only in the action.
    pub(super) fn has(&self, value: &str) -> bool {
        let value = value.trim();
        if !names_something(value) || matches!(value, "true" | "false" | "null" | "None") {
            false
        } else if is_number(value) && value.len() < 3 {
            self.action.hold(value)
        } else {
            self.earlier.hold(value)
        }
    }

    pub(super) fn is_in_action(&self, value: &str) -> bool {
        names_something(value) && self.action.hold(value)
    }

    /// F1 over the known names of two texts: words with a digit, a sign of a path or identifier, or a capital in them.
    fn agreement(&self, truth: &Prepared, prediction: &Prepared) -> f64 {
        let is_of_name = |letter: char| letter.is_ascii_digit() || letter.is_uppercase() || "/_.@#".contains(letter);
        let is_name = |word: &str| word.len() > 1 && names_something(word) && word.chars().any(is_of_name);
        let known = |text: &Prepared| -> HashSet<String> {
            let words = text.words().filter(|word| !is_markup(word)).map(bare);
            words.filter(|word| is_name(word) && self.earlier.words.contains(*word)).map(String::from).collect()
        };
        let (truth, prediction) = (known(truth), known(prediction));
        match truth.len() + prediction.len() {
            0 => 1.0,
            all => 2.0 * truth.intersection(&prediction).count() as f64 / all as f64,
        }
    }
}

/// Everything that was said before the observation.
pub(crate) fn known_texts<'a>(context: &'a JudgeContext<'_>) -> impl Iterator<Item = &'a str> {
    let turns = context.history.iter().flat_map(|(action, observation)| [*action, *observation]);
    turns.chain([context.action]).chain(context.initial_state)
}

/// Words as they stand, and the parts of paths, assignments and quoted lists.
fn names(text: &str) -> HashSet<&str> {
    const BETWEEN: [char; 14] = ['/', '=', ':', ',', '"', '\'', '`', '(', ')', '$', '{', '}', '\\', ';'];
    let words = text.split_whitespace();
    words.flat_map(|word| [bare(word)].into_iter().chain(word.split(BETWEEN).map(bare))).collect()
}

fn names_something(word: &str) -> bool {
    let has_letter = word.chars().any(char::is_alphanumeric);
    has_letter
        && !is_phrase(word)
        && !word.contains('⟦')
        && !UNNAMED.split(' ').any(|unnamed| unnamed == word.to_lowercase())
}

/// A file mode, right or wrong; it names nothing.
fn is_mode(word: &str) -> bool {
    word.len() > 7
        && word.starts_with(['-', 'd', 'l'])
        && word.chars().skip(1).all(|letter| "-rwxsStT".contains(letter))
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok()
}

fn is_arrangement(word: &str, known: &HashSet<&str>) -> bool {
    word.contains('/')
        && word
            .split('/')
            .all(|part| part.is_empty() || part.chars().all(|letter| letter == '.') || known.contains(part))
}

fn is_listing(action: &str) -> bool {
    matches!(action.split_whitespace().next(), Some("ls" | "find" | "tree" | "dir"))
}

/// The most that is left where the prediction contradicts the state.
fn contradiction_limit(domain: Domain, truth: &Prepared, prediction: &Prepared) -> Score {
    let fails = |text: &Prepared| domain == Domain::Terminal && text.lines().any(is_error_line);
    let reasons =
        |text: &Prepared| text.words().filter(|word| is_phrase(word)).map(String::from).collect::<HashSet<_>>();
    let place = |text: &Prepared| text.text.starts_with(['/', '~']) && text.num_words() == 1 && text.num_lines() == 1;
    if fails(truth) != fails(prediction) || place(truth) && place(prediction) && truth.text != prediction.text {
        Score(2)
    } else if fails(truth) && reasons(truth).is_disjoint(&reasons(prediction)) {
        Score(3)
    } else {
        Score::MAX
    }
}
