//! Predictors that know nothing: what a trained model has to beat.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::Value;
use worldloom_schema::{ActionKind, TableReader, Trajectory, Turn};

use crate::error::Result;

/// Longer observations hardly repeat and are not counted.
const LONGEST_COUNTED: usize = 1000;

/// A trivial rule.
pub(super) enum Baseline {
    /// What the environment answered last; nothing on the first turn.
    RepeatLast,
    /// What training saw most often after the same command word.
    MostFrequent(FrequentObservations),
    /// Nothing.
    Empty,
    /// The words after the command word.
    EchoArguments,
}

impl Baseline {
    /// All four; the frequencies are those of a training pool.
    pub(super) fn all(training_pool: &Path) -> Result<[Self; 4]> {
        let mut frequent = FrequentObservations::default();
        for trajectory in TableReader::<Trajectory>::open(training_pool)? {
            trajectory?.turns.iter().for_each(|turn| frequent.count(turn));
        }
        frequent.settle();
        Ok([Baseline::RepeatLast, Baseline::MostFrequent(frequent), Baseline::Empty, Baseline::EchoArguments])
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Baseline::RepeatLast => "repeat last",
            Baseline::MostFrequent(_) => "most frequent",
            Baseline::Empty => "empty",
            Baseline::EchoArguments => "echo arguments",
        }
    }

    pub(super) fn describe(&self) -> &'static str {
        match self {
            Baseline::RepeatLast => "the last observation again",
            Baseline::MostFrequent(_) => "the command word's most frequent observation in training",
            Baseline::Empty => "nothing",
            Baseline::EchoArguments => "the words after the command word",
        }
    }

    /// The prediction for a turn after its history.
    pub(super) fn predict(&self, history: &[Turn], turn: &Turn) -> String {
        match self {
            Baseline::RepeatLast => history.last().map(|last| last.observation.clone()).unwrap_or_default(),
            Baseline::MostFrequent(frequent) => frequent.of(turn).to_string(),
            Baseline::Empty => String::new(),
            Baseline::EchoArguments => arguments(turn),
        }
    }
}

/// The most frequent observation for each command word, and over all of them for unknown words.
#[derive(Default)]
pub(super) struct FrequentObservations {
    counts: HashMap<String, HashMap<String, u64>>,
    overall: HashMap<String, u64>,
    most: BTreeMap<String, String>,
    most_overall: String,
}

impl FrequentObservations {
    fn count(&mut self, turn: &Turn) {
        if turn.observation.len() > LONGEST_COUNTED {
            return;
        }
        let by_word = self.counts.entry(command_word(turn)).or_default();
        *by_word.entry(turn.observation.clone()).or_default() += 1;
        *self.overall.entry(turn.observation.clone()).or_default() += 1;
    }

    /// Keeps the most frequent; of several, the first in the order of texts.
    fn settle(&mut self) {
        let most = |counts: HashMap<String, u64>| {
            let first = counts.into_iter().min_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
            first.map(|(text, _)| text).unwrap_or_default()
        };
        self.most_overall = most(std::mem::take(&mut self.overall));
        self.most = std::mem::take(&mut self.counts).into_iter().map(|(word, counts)| (word, most(counts))).collect();
    }

    fn of(&self, turn: &Turn) -> &str {
        self.most.get(&command_word(turn)).unwrap_or(&self.most_overall)
    }
}

/// The first word of a command, the name of a tool.
fn command_word(turn: &Turn) -> String {
    if let Some(call) = tool_call(turn) {
        return call.get("name").and_then(Value::as_str).unwrap_or_default().into();
    }
    turn.action.split_whitespace().next().unwrap_or_default().into()
}

/// What stands after the command word, without quotes; of a tool call, its argument values.
fn arguments(turn: &Turn) -> String {
    if let Some(call) = tool_call(turn) {
        let values = call.get("arguments").and_then(Value::as_object).into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
        return values.map(|(_, value)| text(value)).collect::<Vec<_>>().join(" ");
    }
    let action = turn.action.trim_start();
    let rest = action.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
    rest.trim().chars().filter(|character| !matches!(character, '"' | '\'')).collect()
}

fn tool_call(turn: &Turn) -> Option<Value> {
    if turn.action_kind == ActionKind::ToolCall { serde_json::from_str(&turn.action).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use worldloom_schema::ObservationKind;

    use super::*;

    fn turn(action: &str, observation: &str) -> Turn {
        Turn {
            index: 0,
            action: action.into(),
            action_kind: if action.starts_with('{') { ActionKind::ToolCall } else { ActionKind::Command },
            observation: observation.into(),
            observation_kind: ObservationKind::Text,
            reasoning: None,
            pre_state: None,
            trace: None,
            is_error: None,
            truncated: false,
            flags: Vec::new(),
            keep_class: None,
            keep: None,
        }
    }

    #[test]
    fn the_most_frequent_observation_is_that_of_the_command_word() {
        let mut frequent = FrequentObservations::default();
        let seen = [("ls -l", "b"), ("ls", "a"), ("ls a", "b"), ("cat x", "fig"), ("cat y", "date"), ("rm x", "")];
        seen.iter()
            .chain(&[("rm y", ""), ("mv a b", "")])
            .for_each(|(action, text)| frequent.count(&turn(action, text)));
        frequent.settle();
        assert_eq!(frequent.of(&turn("ls -a", "?")), "b");
        assert_eq!(frequent.of(&turn("cat z", "?")), "date", "of two with the same count, the first in order");
        assert_eq!(frequent.of(&turn("unknown", "?")), "", "unknown words take the most frequent of all");
    }

    #[test]
    fn long_observations_are_not_counted() {
        let mut frequent = FrequentObservations::default();
        frequent.count(&turn("ls", &"x".repeat(LONGEST_COUNTED + 1)));
        frequent.settle();
        assert_eq!(frequent.of(&turn("ls", "?")), "");
    }

    #[test]
    fn echo_gives_the_arguments_without_quotes() {
        let cases = [
            ("echo 'two words' \"x\"", "two words x"),
            ("pwd", ""),
            ("  cat   a.txt ", "a.txt"),
            ("{\"name\": \"search\", \"arguments\": {\"query\": \"figs\", \"n\": 3}}", "figs 3"),
        ];
        for (action, expected) in cases {
            assert_eq!(Baseline::EchoArguments.predict(&[], &turn(action, "?")), expected, "{action}");
        }
    }

    #[test]
    fn repeat_last_starts_empty() {
        let history = [turn("ls", "a.txt"), turn("pwd", "/home")];
        assert_eq!(Baseline::RepeatLast.predict(&[], &turn("ls", "?")), "");
        assert_eq!(Baseline::RepeatLast.predict(&history, &turn("ls", "?")), "/home");
        assert_eq!(Baseline::Empty.predict(&history, &turn("ls", "?")), "");
    }
}
