//! Prompt v1: what RL starts from, one turn of one trajectory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;
use crate::trajectory::Domain;

/// Name of the prompt file inside an artifact.
pub const PROMPT_FILE: &str = "prompts.parquet";

/// A turn as the scorer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromptTurn {
    /// The action as text.
    pub action: String,
    /// What the environment answered.
    pub observation: String,
}

/// One prompt: its tokens for the model, and its text for the scorer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prompt {
    /// `trajectory_id` and turn, `…#3`.
    pub prompt_id: String,
    /// The trajectory it comes from.
    pub trajectory_id: String,
    /// The turn that is predicted, from 0.
    pub turn: u32,
    /// Kind of environment.
    pub domain: Domain,
    /// Group of tasks.
    pub task_group: String,
    /// The rendered prompt up to and including the opening of the assistant's turn.
    pub tokens: Vec<u32>,
    /// State before the first action, where known.
    pub initial_state: Option<String>,
    /// Earlier turns.
    pub history: Vec<PromptTurn>,
    /// The action to answer.
    pub action: String,
    /// What the environment really answered.
    pub observation: String,
    /// Flags of the turn.
    pub flags: Vec<String>,
}

impl Table for Prompt {
    const NAME: &'static str = "prompt";
    const VERSION: u32 = 1;
}
