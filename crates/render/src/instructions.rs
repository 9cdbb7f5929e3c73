//! Simulation instructions derived from what happened, by rules: so that a model learns to do as it is told.
//!
//! Search: what is looked for, the answer, and that it must not be given away. Elsewhere: what the output of a turn is
//! like (that it fails and how, that there is none, how long it is, a line or a field of it). Never more than half of
//! an observation is told.

use rand::Rng;
use serde_json::Value;
use worldloom_schema::{Domain, ObservationKind, Trajectory, Turn};

/// Turns of a trajectory that an instruction speaks of.
const MAX_TURNS: usize = 3;
/// Longest quotation, in characters.
const MAX_QUOTE: usize = 160;

/// An instruction for these turns (from 0), or none where the rules find nothing to say.
pub(crate) fn instruction(trajectory: &Trajectory, turns: &[usize], random: &mut impl Rng) -> Option<String> {
    if trajectory.domain == Domain::Search {
        return search(trajectory);
    }
    let mut chosen: Vec<usize> = turns.to_vec();
    while chosen.len() > MAX_TURNS {
        chosen.remove(random.random_range(0..chosen.len() as u64) as usize);
    }
    let said = chosen.into_iter().filter_map(|at| {
        let turn = trajectory.turns.get(at)?;
        let before = at.checked_sub(1).map(|before| trajectory.turns[before].observation.as_str());
        Some(format!("Turn {}: {}", turn.index + 1, of_turn(turn, before.unwrap_or_default(), random)?))
    });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("\n"))
}

/// Query, answer and the rule against leaks.
fn search(trajectory: &Trajectory) -> Option<String> {
    let query = one_line(&trajectory.system.task_description);
    let answer = trajectory.turns.iter().rev().find_map(|turn| answer_in(&turn.action))?;
    if query.is_empty() {
        return None;
    }
    let query: String = query.chars().take(4 * MAX_QUOTE).collect();
    Some(format!(
        "The agent looks for: {query}\nThe answer that its search leads to: {answer}\nKeep results in agreement with this \
         answer, and do not give it away: it appears only where a result or page on the matter would have it."
    ))
}

/// The argument of `finish[…]`, or the text in answer tags.
fn answer_in(action: &str) -> Option<String> {
    let lower = action.to_ascii_lowercase();
    let between = |open: &str, close: &str| {
        let start = lower.rfind(open)? + open.len();
        let end = start + lower[start..].find(close)?;
        Some(one_line(&action[start..end]))
    };
    let answer = between("finish[", "]").or_else(|| between("<answer>", "</answer>"))?;
    (!answer.is_empty() && answer.chars().count() <= MAX_QUOTE).then_some(answer)
}

/// One thing about the output of a turn.
fn of_turn(turn: &Turn, before: &str, random: &mut impl Rng) -> Option<String> {
    let observation = turn.observation.trim();
    if turn.observation_kind == ObservationKind::Image {
        return None;
    }
    if observation.is_empty() {
        return Some("the action prints nothing.".into());
    }
    let mut said = Vec::new();
    if turn.is_error == Some(true) {
        said.push("the action fails, and the answer is the error.".to_string());
    }
    match turn.observation_kind {
        ObservationKind::Json => said.extend(of_json(observation)),
        ObservationKind::Tree => said.extend(of_tree(observation, before)),
        _ => said.extend(of_lines(observation)),
    }
    (!said.is_empty()).then(|| said.swap_remove(random.random_range(0..said.len() as u64) as usize))
}

fn of_lines(observation: &str) -> Vec<String> {
    let lines: Vec<&str> = observation.lines().collect();
    let mut said = match lines.len() {
        1 => vec!["the output is one line.".to_string()],
        many => vec![format!("the output has {many} lines.")],
    };
    let quotable = |line: &&&str| is_small_part(line.trim(), observation);
    if let Some(first) = lines.first().filter(quotable) {
        said.push(format!("the output begins with the line `{}`.", first.trim()));
    }
    if let Some(last) = lines.last().filter(quotable).filter(|_| lines.len() > 1) {
        said.push(format!("the output ends with the line `{}`.", last.trim()));
    }
    said
}

fn of_json(observation: &str) -> Vec<String> {
    match serde_json::from_str(observation) {
        Ok(Value::Array(items)) => vec![format!("the response is a list of {} entries.", items.len())],
        Ok(Value::Object(map)) => {
            let fields: Vec<&str> = map.keys().map(String::as_str).collect();
            let small = map.iter().find(|(name, value)| {
                (value.is_number() || value.is_boolean() || value.is_string())
                    && is_small_part(&format!("{name}{value}"), observation)
            });
            let mut said = Vec::new();
            let names = fields.join(", ");
            if is_small_part(&names, observation) {
                said.push(format!("the response is an object with the fields {names}."));
            }
            said.extend(small.map(|(name, value)| format!("in the response, `{name}` is {value}.")));
            said
        }
        _ => of_lines(observation),
    }
}

/// Texts on the screen that were not there before.
fn of_tree(observation: &str, before: &str) -> Vec<String> {
    let quoted = observation.split(['"', '\'']).skip(1).step_by(2).map(str::trim);
    let new = quoted.filter(|text| text.chars().count() > 2 && !before.contains(*text) && !text.contains('\n'));
    let (mut texts, mut told): (Vec<&str>, usize) = (Vec::new(), 0);
    for text in new {
        let length = text.chars().count();
        let is_small = is_small_part(text, observation) && 2 * (told + length) <= observation.chars().count();
        if texts.len() < 3 && !texts.contains(&text) && is_small {
            texts.push(text);
            told += length;
        }
    }
    let mut said = Vec::new();
    if !before.trim().is_empty() && observation == before.trim() {
        said.push("the screen stays as it is.".to_string());
    }
    if !texts.is_empty() {
        let texts: Vec<String> = texts.iter().map(|text| format!("`{text}`")).collect();
        said.push(format!("the screen then shows {}.", texts.join(", ")));
    }
    said
}

/// Short, and at most half of the whole.
fn is_small_part(part: &str, whole: &str) -> bool {
    let length = part.chars().count();
    length > 0 && length <= MAX_QUOTE && 2 * length <= whole.chars().count()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use worldloom_schema::{ActionKind, ObservationKind, Turn};

    use super::{Value, answer_in, of_json, of_lines, of_tree, of_turn};

    fn turn(observation: &str, kind: ObservationKind) -> Turn {
        Turn {
            index: 0,
            action: "ls".into(),
            action_kind: ActionKind::Command,
            observation: observation.into(),
            observation_kind: kind,
            reasoning: None,
            pre_state: None,
            trace: None,
            is_error: Some(false),
            truncated: false,
            flags: Vec::new(),
            keep_class: None,
            keep: Some(true),
        }
    }

    #[test]
    fn what_is_said_is_true_of_the_observation() {
        assert_eq!(
            of_lines("a.txt\nb.txt\nc.txt")[..2],
            ["the output has 3 lines.", "the output begins with the line `a.txt`."]
        );
        assert_eq!(of_lines("denied"), ["the output is one line."], "the whole is not told");
        assert_eq!(of_json("[1, 2, 3]"), ["the response is a list of 3 entries."]);
        let object = of_json(r#"{"id": 7, "title": "a rather long title of a note"}"#);
        assert_eq!(object, ["the response is an object with the fields id, title.", "in the response, `id` is 7."]);
        let screen = of_tree("button 'Save' link 'Home' text 'A note was saved'", "link 'Home'");
        assert_eq!(screen, ["the screen then shows `Save`, `A note was saved`."]);
        assert_eq!(answer_in("Finish[Richard  Nixon]").as_deref(), Some("Richard Nixon"));
        assert_eq!(answer_in("search[x]"), None);
    }

    #[test]
    fn texts_of_a_screen_are_told_up_to_half_of_it() {
        let screen = "'aaaaaaaa' 'bbbbbbbb' 'cccccccc'";
        assert_eq!(of_tree(screen, ""), ["the screen then shows `aaaaaaaa`, `bbbbbbbb`."], "a third would be too much");
    }

    /// Characters of an observation that an instruction quotes: what stands in backticks and in the observation.
    fn told(said: &str, observation: &str) -> usize {
        let quoted = said.split('`').skip(1).step_by(2).filter(|text| observation.contains(*text));
        quoted.map(|text| text.chars().count()).sum()
    }

    proptest! {
        #[test]
        fn no_instruction_tells_more_than_half_of_an_observation(
            observation in any::<String>(), before in any::<String>(), seed in any::<u64>(),
            kind in prop::sample::select(vec![ObservationKind::Text, ObservationKind::Json, ObservationKind::Tree]),
        ) {
            let mut random = crate::seeds::stream(seed, "test", &[]);
            let observation = observation.trim().replace('`', "");
            if let Some(said) = of_turn(&turn(&observation, kind), &before, &mut random) {
                prop_assert!(2 * told(&said, &observation) <= observation.chars().count(), "{}", said);
            }
        }

        #[test]
        fn no_instruction_tells_more_than_half_of_a_screen_or_a_response(
            texts in prop::collection::vec("[a-z]{1,12}", 1..6), seed in any::<u64>(), is_json in any::<bool>(),
        ) {
            let mut random = crate::seeds::stream(seed, "test", &[]);
            let (observation, kind) = match is_json {
                true => {
                    let map: serde_json::Map<String, Value> =
                        texts.iter().map(|text| (text.clone(), Value::from(text.as_str()))).collect();
                    (Value::Object(map).to_string(), ObservationKind::Json)
                }
                false => (texts.iter().map(|text| format!("'{text}'")).collect(), ObservationKind::Tree),
            };
            if let Some(said) = of_turn(&turn(&observation, kind), "", &mut random) {
                let is_of_fields = said.contains("with the fields ");
                let names = said.split("with the fields ").nth(1).map_or(0, |names| names.len() - 1);
                prop_assert!(2 * told(&said, &observation) <= observation.chars().count(), "{}", said);
                prop_assert!(!is_of_fields || 2 * names <= observation.chars().count(), "{}", said);
            }
        }
    }
}
