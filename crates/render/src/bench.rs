//! A turn as a row of the benchmark: the same texts that prompts are made of, as messages.

use worldloom_schema::{ObservationKind, Trajectory};

use crate::error::Result;
use crate::layout::{OBSERVATION_MARKER, user_turn};
use crate::renderer::RL_VERSION;
use crate::template::Templates;

/// The texts of a row. As messages, they are the prompt that
/// [`render_prompt`](crate::Renderer::render_prompt) gives for the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchTurn {
    /// The system prompt, by the template of RL.
    pub system: String,
    /// The actions up to the turn; the last with the instruction for thinking and tags.
    pub prompts: Vec<String>,
    /// What the environment really answered, the turn's own answer last.
    pub responses: Vec<String>,
    /// The last action without the instruction.
    pub current_prompt: String,
}

/// The row of a turn, counted from 0; none for turns that are not there and for images.
pub fn bench_turn(templates: &Templates, trajectory: &Trajectory, turn: usize) -> Result<Option<BenchTurn>> {
    let Some(target) = trajectory.turns.get(turn) else { return Ok(None) };
    if target.observation_kind == ObservationKind::Image {
        return Ok(None);
    }
    let system = templates.system_prompt(RL_VERSION, trajectory.domain, &trajectory.system)?;
    let shown = &trajectory.turns[..=turn];
    let mut prompts: Vec<String> = shown.iter().map(user_turn).collect();
    let current_prompt = prompts.last().cloned().unwrap_or_default();
    if let Some(last) = prompts.last_mut() {
        last.push_str("\n\n");
        last.push_str(templates.tag_instruction());
    }
    let responses = shown.iter().map(|turn| format!("{OBSERVATION_MARKER}{}", turn.observation)).collect();
    Ok(Some(BenchTurn { system, prompts, responses, current_prompt }))
}
