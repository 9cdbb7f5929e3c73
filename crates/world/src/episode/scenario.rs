//! What a simulated environment is, and what stays hidden in it.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worldloom_schema::Domain;

use super::perturbation::{Perturbation, When};
use crate::error::{Error, Result};

/// A simulated environment before its first turn.
///
/// ```json
/// {"domain": "terminal", "initial_state": "cwd: ~ | a.txt: \"fig\"", "seed": 7, "max_turns": 20,
///  "control": ["the disk is full"], "perturbations": [{"kind": "timeout", "turn": 2}]}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Kind of environment.
    pub domain: Domain,
    /// What the agent is to do, where the environment knows it.
    #[serde(default)]
    pub task: String,
    /// The tools, as a JSON list or as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Value>,
    /// The state before the first action; an agent sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_state: Option<String>,
    /// What is true in the environment and an agent has to find out: records, permissions, what is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_state: Option<String>,
    /// Example exchanges.
    #[serde(default)]
    pub demonstrations: Vec<String>,
    /// What the simulation should do, beyond being faithful.
    #[serde(default)]
    pub control: Vec<String>,
    /// Trouble on purpose.
    #[serde(default)]
    pub perturbations: Vec<When>,
    /// What the agent should find out. An observation that holds it too early is flagged `leak:answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Before this turn, from 0, the answer must not stand in an observation unless the action names it. Default: 1.
    #[serde(default = "default_answer_from")]
    pub answer_from: u64,
    /// Turns until the episode is over. Default: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Seed of sampling and perturbations.
    #[serde(default)]
    pub seed: u64,
}

fn default_answer_from() -> u64 {
    1
}

impl Scenario {
    /// An environment of which nothing is known but its domain.
    pub fn of(domain: Domain) -> Self {
        Self {
            domain,
            task: String::new(),
            tools: None,
            initial_state: None,
            hidden_state: None,
            demonstrations: Vec::new(),
            control: Vec::new(),
            perturbations: Vec::new(),
            answer: None,
            answer_from: default_answer_from(),
            max_turns: None,
            seed: 0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.max_turns == Some(0) {
            return Err(Error::episode("max_turns", "0, expected at least 1"));
        }
        for When { kind, turn, share } in &self.perturbations {
            let detail = match (turn, share) {
                (Some(_), None) => continue,
                (None, Some(share)) if (0.0..=1.0).contains(share) => continue,
                (None, Some(share)) => format!("{} has a share of {share}, expected 0 to 1", kind.as_str()),
                _ => format!("{} needs either a `turn` or a `share`", kind.as_str()),
            };
            return Err(Error::episode("perturbations", detail));
        }
        match &self.answer {
            Some(answer) if normal(answer).is_empty() => Err(Error::episode("answer", "it is empty")),
            _ => Ok(()),
        }
    }

    /// The first perturbation that strikes on a turn.
    pub(super) fn perturbation_at(&self, number: u64) -> Option<Perturbation> {
        let strikes = |(place, when): (usize, &When)| match (when.turn, when.share) {
            (Some(turn), _) => turn == number,
            (None, Some(share)) => {
                let mut random = ChaCha8Rng::seed_from_u64(self.seed);
                random.set_stream(place as u64 + 1);
                random.set_word_pos(u128::from(number) * 16);
                random.random::<f64>() < share
            }
            (None, None) => false,
        };
        let found = self.perturbations.iter().enumerate().find(|&(place, when)| strikes((place, when)));
        found.map(|(_, when)| when.kind)
    }

    /// All that the simulation is told, `more` last.
    pub(super) fn instruction<'a>(&'a self, more: impl Iterator<Item = &'a str>) -> Option<String> {
        let hidden = self.hidden_state.as_deref().map(str::trim).filter(|hidden| !hidden.is_empty());
        let hidden =
            hidden.map(|hidden| format!("True in this environment, to be found out only by actions: {hidden}"));
        let answer = self.answer.as_deref().map(|answer| {
            format!(
                "The agent looks for: {}. Never give it away; it shows only where an action really finds it.",
                answer.trim()
            )
        });
        let control = self.control.iter().map(String::as_str).chain(more).map(String::from);
        let parts: Vec<String> = hidden.into_iter().chain(answer).chain(control).collect();
        (!parts.is_empty()).then(|| parts.join("\n"))
    }

    /// Whether an observation gives the answer away: too early, and not in reply to an action that names it.
    pub(super) fn leaks(&self, number: u64, action: &str, observation: &str) -> bool {
        let Some(answer) = self.answer.as_deref().map(normal) else { return false };
        number < self.answer_from && normal(observation).contains(&answer) && !normal(action).contains(&answer)
    }
}

/// Small letters, and single spaces for everything that is no letter or number.
fn normal(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Tools as a trajectory holds them.
pub(super) fn tools_text(tools: &Value) -> String {
    tools.as_str().map_or_else(|| tools.to_string(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_perturbation_strikes_on_its_turn_or_on_its_share_of_the_turns() {
        let on_turn = scenario(r#"{"domain": "mcp", "perturbations": [{"kind": "timeout", "turn": 2}]}"#);
        let struck: Vec<u64> = (0..9).filter(|&turn| on_turn.perturbation_at(turn).is_some()).collect();
        assert_eq!(struck, [2]);
        let text = r#"{"domain": "mcp", "seed": 5, "perturbations": [{"kind": "error", "share": 0.25}]}"#;
        let struck = (0..4000).filter(|&turn| scenario(text).perturbation_at(turn).is_some()).count();
        assert!((900..1100).contains(&struck), "{struck}");
        let again = (0..4000).filter(|&turn| scenario(text).perturbation_at(turn).is_some()).count();
        assert_eq!(struck, again, "the seed decides");
    }

    #[test]
    fn an_answer_leaks_where_it_stands_too_early_and_was_not_asked_for() {
        let of = scenario(r#"{"domain": "search", "answer": "Ada  Lovelace", "answer_from": 2}"#);
        assert!(of.leaks(0, "who", "It was ada-lovelace."));
        assert!(!of.leaks(2, "who", "It was Ada Lovelace."), "from that turn on it may");
        assert!(!of.leaks(0, "was it Ada Lovelace?", "Ada Lovelace it was"));
        assert!(!of.leaks(0, "who", "Ada"));
        assert!(!Scenario::of(Domain::Search).leaks(0, "who", "anything"));
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        for (text, word) in [
            (r#"{"domain": "mcp", "max_turns": 0}"#, "max_turns"),
            (r#"{"domain": "mcp", "perturbations": [{"kind": "error"}]}"#, "either"),
            (r#"{"domain": "mcp", "perturbations": [{"kind": "error", "share": 2.0}]}"#, "0 to 1"),
            (r#"{"domain": "mcp", "answer": " . "}"#, "answer"),
        ] {
            let error = scenario(text).check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(serde_json::from_str::<Scenario>(r#"{"domain": "mcp", "colour": 1}"#).is_err());
    }

    #[test]
    fn hidden_state_answer_and_control_are_told_in_this_order() {
        let of = scenario(r#"{"domain": "mcp", "hidden_state": "h", "answer": "a", "control": ["c"]}"#);
        let told = of.instruction(["now"].into_iter()).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].ends_with("actions: h") && lines[1].contains("a") && lines[2..] == ["c", "now"], "{told}");
        assert_eq!(Scenario::of(Domain::Mcp).instruction(std::iter::empty()), None);
    }
}
