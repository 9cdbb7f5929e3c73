//! Prompt v1: what RL starts from, one turn of one trajectory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;
use crate::trajectory::{Domain, Trajectory, Turn};

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
    /// Flags of the turn, and `truncated` where its observation was cut.
    pub flags: Vec<String>,
}

const TRUNCATED: &str = "truncated";

impl Prompt {
    /// The prompt of one turn (from 0), with the turns before it.
    ///
    /// # Panics
    ///
    /// If the trajectory has no such turn.
    pub fn of(trajectory: &Trajectory, turn: usize, tokens: Vec<u32>) -> Self {
        let target = &trajectory.turns[turn];
        let told = |turn: &Turn| PromptTurn { action: turn.action.clone(), observation: turn.observation.clone() };
        let cut = (target.truncated && !target.flags.iter().any(|flag| flag == TRUNCATED)).then(|| TRUNCATED.into());
        Self {
            prompt_id: format!("{}#{turn}", trajectory.trajectory_id),
            trajectory_id: trajectory.trajectory_id.clone(),
            turn: turn as u32,
            domain: trajectory.domain,
            task_group: trajectory.task_group.clone(),
            tokens,
            initial_state: trajectory.system.initial_state.clone(),
            history: trajectory.turns[..turn].iter().map(told).collect(),
            action: target.action.clone(),
            observation: target.observation.clone(),
            flags: target.flags.iter().cloned().chain(cut).collect(),
        }
    }
}

impl Table for Prompt {
    const NAME: &'static str = "prompt";
    const VERSION: u32 = 1;
}
