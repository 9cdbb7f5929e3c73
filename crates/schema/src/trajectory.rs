//! Trajectory v1: one environment trajectory, the agent's reasoning kept apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Version of the trajectory format, in the Parquet metadata and in manifests.
pub const TRAJECTORY_VERSION: u32 = 1;
/// Name of the trajectory file inside an artifact.
pub const TRAJECTORY_FILE: &str = "trajectories.parquet";

/// The seven kinds of environment of the recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// Tools behind an MCP server or function calls.
    Mcp,
    /// Web search and page reading.
    Search,
    /// A shell in a terminal.
    Terminal,
    /// A code repository with tools.
    Swe,
    /// A phone, as a view hierarchy.
    Android,
    /// A web page, as an accessibility tree.
    Web,
    /// A desktop, as an accessibility tree.
    Os,
}

impl Domain {
    /// All seven, in the order of the recipe's tables.
    pub const ALL: [Domain; 7] =
        [Domain::Mcp, Domain::Search, Domain::Terminal, Domain::Swe, Domain::Android, Domain::Web, Domain::Os];

    /// The name as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Domain::Mcp => "mcp",
            Domain::Search => "search",
            Domain::Terminal => "terminal",
            Domain::Swe => "swe",
            Domain::Android => "android",
            Domain::Web => "web",
            Domain::Os => "os",
        }
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Domain::ALL.iter().find(|domain| domain.as_str() == text).copied();
        known.ok_or_else(|| format!("unknown domain `{text}`; known: mcp, search, terminal, swe, android, web, os"))
    }
}

/// How an action is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// A shell command line.
    Command,
    /// A tool call: JSON with `name` and `arguments`.
    ToolCall,
    /// Keystrokes sent to a terminal.
    Keystrokes,
    /// Program text, such as pyautogui.
    Code,
    /// Anything else, as it came.
    Text,
}

/// What an observation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObservationKind {
    /// Plain text, lines.
    Text,
    /// A JSON document.
    Json,
    /// An accessibility tree or view hierarchy.
    Tree,
    /// A unified diff.
    Diff,
    /// An image only: the text is empty.
    Image,
}

/// The static part of a trajectory: what the world model is told before the first turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct System {
    /// What the agent was asked to do, or what the environment is.
    pub task_description: String,
    /// Tools or actions available, as the JSON text they came as.
    pub action_space: Option<String>,
    /// The state before the first action.
    pub initial_state: Option<String>,
    /// Example exchanges.
    pub demonstrations: Vec<String>,
    /// What the simulation should do, beyond being faithful.
    pub simulation_instruction: Option<String>,
}

/// The keep classes of the recipe's turn mask (recipe.md §1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepClass {
    /// The observation repeats the action.
    Echo,
    /// Mostly words already in the action.
    Boilerplate,
    /// A shorter rearrangement of the action.
    Transform,
    /// Mostly new words, longer than the action.
    Retrieval,
    /// The action's words and as many new ones.
    Expansion,
    /// A short answer with new words.
    Action,
    /// None of the above.
    Other,
}

/// One action and what the environment answered.
///
/// ```text
/// { index: 2, action: "cat notes.txt", action_kind: command, observation: "fig\nplum", observation_kind: text,
///   trace: "cwd: ~ | notes.txt: \"fig\",\"plum\"", flags: ["class:state", "family:read"], keep: true }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// Position in the trajectory, from 0.
    pub index: u32,
    /// The action as text.
    pub action: String,
    /// How the action is written.
    pub action_kind: ActionKind,
    /// What the environment answered, unchanged.
    pub observation: String,
    /// What the observation is.
    pub observation_kind: ObservationKind,
    /// The agent's own thoughts before the action. Never rendered as an input.
    pub reasoning: Option<String>,
    /// The state shown before the action, where the environment shows one.
    pub pre_state: Option<String>,
    /// A thinking trace for predicting this observation (SFT target). Never rendered as an input.
    pub trace: Option<String>,
    /// Whether the environment reported an error.
    pub is_error: Option<bool>,
    /// Whether the observation was cut by a tool.
    pub truncated: bool,
    /// Facts as `name:value`, such as `class:state` or `family:list`.
    pub flags: Vec<String>,
    /// Class of the turn mask; set by curate.
    pub keep_class: Option<KeepClass>,
    /// Whether CPT trains this observation; set by curate's seeded draw.
    pub keep: Option<bool>,
}

impl Turn {
    /// The value of the flag `name:value`, if the turn has it.
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.flags.iter().find_map(|flag| flag.strip_prefix(name)?.strip_prefix(':'))
    }
}

/// How the episode ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Reward as recorded.
    pub reward: Option<f64>,
    /// Success as recorded.
    pub success: Option<bool>,
}

/// The four disjoint purposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pool {
    /// Continued pretraining.
    Cpt,
    /// Supervised fine-tuning.
    Sft,
    /// Reinforcement learning.
    Rl,
    /// Evaluation, never trained on.
    Eval,
}

impl Pool {
    /// All four, in order.
    pub const ALL: [Pool; 4] = [Pool::Cpt, Pool::Sft, Pool::Rl, Pool::Eval];

    /// The name as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Pool::Cpt => "cpt",
            Pool::Sft => "sft",
            Pool::Rl => "rl",
            Pool::Eval => "eval",
        }
    }
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One episode, ready for curate and render.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trajectory {
    /// Hash of the content ([`trajectory_id`]).
    pub trajectory_id: String,
    /// Name of the source.
    pub source: String,
    /// File it came from, relative to the path given to ingest.
    pub source_path: String,
    /// Row in that file, from 0.
    pub source_row: u64,
    /// Format as detected.
    pub format: String,
    /// Kind of environment.
    pub domain: Domain,
    /// What may not be split between training and evaluation.
    pub task_group: String,
    /// Licence of the source, as an SPDX name.
    pub licence: Option<String>,
    /// The static part.
    pub system: System,
    /// The episode.
    pub turns: Vec<Turn>,
    /// How it ended.
    pub outcome: Outcome,
    /// The pool; set by curate.
    pub pool: Option<Pool>,
}

impl Table for Trajectory {
    const NAME: &'static str = "trajectory";
    const VERSION: u32 = TRAJECTORY_VERSION;
}

/// Content hash of a trajectory: system context, actions and observations; not where it came from.
pub fn trajectory_id(system: &System, turns: &[Turn]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(&system.task_description);
    add(system.action_space.as_deref().unwrap_or_default());
    add(system.initial_state.as_deref().unwrap_or_default());
    add(system.simulation_instruction.as_deref().unwrap_or_default());
    system.demonstrations.iter().for_each(|demonstration| add(demonstration));
    for turn in turns {
        add(&turn.action);
        add(&turn.observation);
    }
    hasher.finalize().to_hex()[..32].to_string()
}
