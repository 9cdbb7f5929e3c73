//! Near duplicates: what is found, what is kept, and that nothing else goes.

use crate::common::{Output, curate, only_cpt, trajectory, turn};
use worldloom_curate::{CurateConfig, NearDuplicates};
use worldloom_schema::Trajectory;

/// A text of so many words that no other number has.
fn prose(number: usize, words: usize) -> String {
    let word = |at: usize| format!("w{}", (number * 7919 + at * 104_729) % 1_000_003);
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}

fn one(group: &str, state: &str, text: &str) -> Trajectory {
    trajectory(group, state, vec![turn("read the file", text), turn("next", "done")])
}

fn near(threshold: f64) -> CurateConfig {
    let near = NearDuplicates { threshold, shingle_words: 3, places: 128 };
    CurateConfig { near_duplicates: Some(near), max_observation_chars: 10_000, ..only_cpt() }
}

fn check(config: &CurateConfig, all: &[Trajectory], left: &[&str]) -> Output {
    let output = curate(config, all).unwrap();
    assert_eq!(output.states(), left);
    assert_eq!(output.dropped("near_duplicate") as usize, all.len() - left.len());
    output
}

#[test]
fn of_near_duplicates_the_longest_is_kept_over_all_groups() {
    let text = prose(1, 200);
    let all = [
        one("a", "plain", &text),
        one("b", "changed", &text.replacen("w", "v", 1)),
        one("c", "longer", &format!("{text} and some more words")),
        one("a", "apart", &prose(2, 200)),
    ];
    check(&near(0.8), &all, &["apart", "longer"]);
    let off = CurateConfig { near_duplicates: None, ..near(0.8) };
    assert_eq!(curate(&off, &all).unwrap().all().count(), 4, "off unless asked for");
}

#[test]
fn more_turns_count_before_more_characters() {
    let text = prose(3, 100);
    let mut turns = one("a", "turns", &text).turns;
    turns.push(turn("x", "y"));
    let all = [one("a", "chars", &format!("{text} one two three four")), trajectory("a", "turns", turns)];
    check(&near(0.7), &all, &["turns"]);
}

#[test]
fn the_threshold_decides() {
    // 150 of 200 words are shared: about 148 of 252 shingles, a similarity of 0.59.
    let (head, tails) = (prose(4, 150), [prose(5, 50), prose(6, 50)]);
    let all = [one("a", "x", &format!("{head} {}", tails[0])), one("a", "y", &format!("{head} {}", tails[1]))];
    assert_eq!(curate(&near(0.8), &all).unwrap().dropped("near_duplicate"), 0);
    assert_eq!(curate(&near(0.4), &all).unwrap().dropped("near_duplicate"), 1);
}

#[test]
fn chains_are_one_cluster() {
    // Each shares most words with the next; the ends share little.
    let words: Vec<String> = (0..260).map(|at| format!("q{at}")).collect();
    let part = |start: usize| words[start..start + 160].join(" ");
    let all: Vec<Trajectory> = (0..10).map(|at| one("a", &format!("{at}"), &part(at * 10))).collect();
    let output = curate(&near(0.7), &all).unwrap();
    assert_eq!(output.all().count(), 1);
    assert_eq!(output.dropped("near_duplicate"), 9);
}

#[test]
fn a_large_bucket_is_one_cluster_and_what_differs_stays() {
    let text = prose(7, 120);
    let mut all: Vec<Trajectory> =
        (0..300).map(|at| one("a", &format!("same {at}"), &format!("{text} {at}"))).collect();
    all.extend((0..300).map(|at| one("b", &format!("other {at}"), &prose(1000 + at, 120))));
    let output = curate(&near(0.8), &all).unwrap();
    assert_eq!(output.dropped("near_duplicate"), 299);
    assert_eq!(output.states().iter().filter(|state| state.starts_with("other")).count(), 300);
}

#[test]
fn only_what_the_other_rules_leave_is_compared() {
    let text = prose(8, 100);
    let long = one("a", "long", &format!("{text} a b c d e f g h"));
    // The short one has 21 characters besides the text, the long one 37.
    let limit = 30 + text.chars().count() as u64;
    let config = CurateConfig { max_trajectory_chars: Some(limit), ..near(0.8) };
    let output = curate(&config, &[long, one("a", "short", &text)]).unwrap();
    assert_eq!(output.states(), ["short"]);
    assert_eq!((output.dropped("long_trajectory"), output.dropped("near_duplicate")), (1, 0));
}
