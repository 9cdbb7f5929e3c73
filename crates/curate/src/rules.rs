//! The rules by name: which turns are removed, which trajectories are dropped, and in which order they are asked.
//!
//! A trajectory is dropped by the first rule that it breaks, so that the counts of all rules sum to what is gone. Those
//! that the recipe asks for (recipe.md §1.3) are on unless their list of domains is empty: undeclared tools, failures of
//! the environment, retry cycles, turns without a change. The others are off until the config says what they need.

use regex::Regex;
use serde::{Deserialize, Serialize};
use worldloom_schema::Domain;

use crate::error::{Error, Result};

/// Rules that drop a trajectory, in the order in which they are asked. Own patterns of the config stand after
/// `environment_failure`.
pub const TRAJECTORY_RULES: [&str; 14] = [
    "exact_duplicate",
    "licence",
    "evaluation_group",
    "evaluation_overlap",
    "language",
    "undeclared_tool",
    "environment_failure",
    "long_trajectory",
    "image_only",
    "few_turns",
    "near_duplicate",
    "pool_overlap",
    "mixture",
    "no_pool",
];

/// Rules that remove a turn, in the order in which they are asked. Own patterns of the config stand after `no_change`.
pub const TURN_RULES: [&str; 8] = [
    "empty_action",
    "image_only",
    "harness_text",
    "retry_cycle",
    "no_change",
    "long_action",
    "long_observation",
    "beyond_max_turns",
];

/// What the rules need to know.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// `undeclared_tool`: trajectories that call a tool their action space does not have.
    pub undeclared_tools: UndeclaredTools,
    /// `environment_failure`: trajectories in which the environment itself failed.
    pub environment_failures: EnvironmentFailures,
    /// `retry_cycle`: turns whose action could not be understood.
    pub retry_cycles: RetryCycles,
    /// `no_change`: turns after which the screen is as it was.
    pub no_change: NoChange,
    /// `licence`: trajectories under another licence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licences: Option<Licences>,
    /// `language`: trajectories in another language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub languages: Option<Languages>,
    /// Rules of your own, each under its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<OwnPattern>,
}

/// Of `undeclared_tool`. An action space that cannot be read declares nothing and drops nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UndeclaredTools {
    /// Where it is asked.
    pub domains: Vec<Domain>,
}

impl Default for UndeclaredTools {
    fn default() -> Self {
        Self { domains: vec![Domain::Mcp, Domain::Swe] }
    }
}

/// Of `environment_failure`: an observation that a pattern finds, or a tree that is empty (its state was lost).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentFailures {
    /// Where it is asked.
    pub domains: Vec<Domain>,
    /// Regular expressions over observations.
    #[serde(default = "failure_patterns")]
    pub patterns: Vec<String>,
}

impl Default for EnvironmentFailures {
    fn default() -> Self {
        Self { domains: gui(), patterns: failure_patterns() }
    }
}

fn gui() -> Vec<Domain> {
    vec![Domain::Android, Domain::Web, Domain::Os]
}

fn failure_patterns() -> Vec<String> {
    [
        r"(?i)\bcaptcha\b",
        r"(?i)\bverify (?:that )?you are (?:a )?human\b",
        r"(?i)\bHTTP(?: status| error)+ [45]\d\d\b",
        r"(?i)\b(?:403 forbidden|404 not found|429 too many requests|500 internal server error|502 bad gateway)\b",
        r"(?i)\b(?:503 service (?:temporarily )?unavailable|504 gateway time-?out)\b",
        r"\bERR_(?:NAME_NOT_RESOLVED|CONNECTION_[A-Z_]+|TIMED_OUT|INTERNET_DISCONNECTED|TUNNEL_[A-Z_]+)\b",
        r"(?i)\bthis site can.t be reached\b",
    ]
    .map(String::from)
    .into()
}

/// Of `retry_cycle`: the harness answers that it could not read the action. The turn is removed; the state that was
/// shown before it goes on to the next turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryCycles {
    /// Where it is asked.
    pub domains: Vec<Domain>,
    /// Regular expressions over the first 1,000 characters of an observation.
    #[serde(default = "refusal_patterns")]
    pub patterns: Vec<String>,
}

impl Default for RetryCycles {
    fn default() -> Self {
        Self { domains: Domain::ALL.into(), patterns: refusal_patterns() }
    }
}

fn refusal_patterns() -> Vec<String> {
    [
        r"(?i)^\W*(?:error\W+)?(?:invalid|malformed|unparsable|unparseable) (?:action|tool call|function call|output format|response format)\b",
        r"(?i)\byour (?:last |previous )?(?:output|response|action|message|tool call) (?:was|is) not (?:properly |correctly )?(?:formatted|valid|parsable|parseable)\b",
        r"(?i)\b(?:failed|unable) to parse (?:the |your )?(?:action|tool call|function call|response|output)\b",
        r"(?i)\b(?:action|tool call|response|output) (?:could not|cannot|can't|couldn't) be parsed\b",
    ]
    .map(String::from)
    .into()
}

/// Of `no_change`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoChange {
    /// Where it is asked.
    pub domains: Vec<Domain>,
    /// The largest share of lines that may differ, of the lines of both states.
    #[serde(default)]
    pub max_changed_share: f64,
}

impl Default for NoChange {
    fn default() -> Self {
        Self { domains: gui(), max_changed_share: 0.0 }
    }
}

/// Of `licence`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licences {
    /// Names that are kept, in any case.
    pub allow: Vec<String>,
    /// Whether a trajectory without a licence is kept.
    pub keep_unknown: bool,
}

/// Of `language`. Where the language cannot be told, the trajectory stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Languages {
    /// ISO 639-3 codes that are kept, such as `eng`, `cmn`.
    pub allow: Vec<String>,
    /// How sure the guess must be, 0 to 1.
    pub min_confidence: f64,
    /// Letters that a guess needs.
    pub min_letters: u64,
}

/// A rule of the config's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnPattern {
    /// The name under which it counts.
    pub name: String,
    /// A regular expression.
    pub pattern: String,
    /// What it is looked for in.
    pub field: Field,
    /// What goes.
    pub removes: Removes,
    /// Where it is asked; everywhere unless said otherwise.
    #[serde(default = "everywhere")]
    pub domains: Vec<Domain>,
}

fn everywhere() -> Vec<Domain> {
    Domain::ALL.into()
}

/// The text that an own pattern is looked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The action of a turn.
    Action,
    /// The observation of a turn.
    Observation,
}

/// What an own pattern removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removes {
    /// The turn.
    Turn,
    /// The trajectory.
    Trajectory,
}

impl Rules {
    /// Checks what the types cannot.
    pub(crate) fn check(&self) -> Result<()> {
        let lists = [
            ("rules.environment_failures.patterns", &self.environment_failures.patterns),
            ("rules.retry_cycles.patterns", &self.retry_cycles.patterns),
        ];
        for (field, patterns) in lists {
            patterns.iter().try_for_each(|pattern| check_pattern(field, pattern))?;
        }
        for own in &self.patterns {
            check_pattern(&format!("rules.patterns.{}", own.name), &own.pattern)?;
            let is_taken = TRAJECTORY_RULES.iter().chain(&TURN_RULES).any(|known| *known == own.name);
            if own.name.trim().is_empty() || is_taken {
                return Err(Error::config("rules.patterns.name", &own.name, "a name that no other rule has"));
            }
            if self.patterns.iter().filter(|other| other.name == own.name).count() > 1 {
                return Err(Error::config("rules.patterns.name", &own.name, "each name once"));
            }
        }
        let shares = [
            ("rules.no_change.max_changed_share", Some(self.no_change.max_changed_share)),
            ("rules.languages.min_confidence", self.languages.as_ref().map(|languages| languages.min_confidence)),
        ];
        for (field, share) in shares {
            if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
                return Err(Error::config(field, share, "0 to 1"));
            }
        }
        if let Some(code) = self.languages.iter().flat_map(|rule| &rule.allow).find(|code| !is_language(code)) {
            return Err(Error::config("rules.languages.allow", code, "ISO 639-3 codes such as `eng`"));
        }
        Ok(())
    }

    /// All rules of trajectories in their order, own patterns among them.
    pub(crate) fn trajectory_rules(&self) -> Vec<&str> {
        with_own(&TRAJECTORY_RULES, "environment_failure", self.own(Removes::Trajectory))
    }

    /// All rules of turns in their order, own patterns among them.
    pub(crate) fn turn_rules(&self) -> Vec<&str> {
        with_own(&TURN_RULES, "no_change", self.own(Removes::Turn))
    }

    fn own(&self, removes: Removes) -> impl Iterator<Item = &str> {
        self.patterns.iter().filter(move |own| own.removes == removes).map(|own| own.name.as_str())
    }
}

fn is_language(code: &str) -> bool {
    whatlang::Lang::from_code(code).is_some()
}

fn check_pattern(field: &str, pattern: &str) -> Result<()> {
    match Regex::new(pattern) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::config(field, pattern, &format!("a regular expression: {error}"))),
    }
}

fn with_own<'a>(known: &[&'a str], after: &str, own: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut rules = known.to_vec();
    let at = rules.iter().position(|rule| *rule == after).map_or(rules.len(), |at| at + 1);
    rules.splice(at..at, own);
    rules
}
