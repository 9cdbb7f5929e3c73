//! Trajectories as documents, in the benchmark's row form (recipe.md §3.1): actions are user turns, observations
//! assistant turns. The agent's own reasoning is never written, a trace only as the target of its own turn.

use worldloom_schema::{ActionKind, ObservationKind, Trajectory, Turn};

use crate::document::{ContextReason, Control, Document, Reason, Role, TrainReason};
use crate::error::{Error, Refusal, Result};
use crate::stage::Stage;
use crate::template::Templates;

/// Stands before a plain observation.
pub const OBSERVATION_MARKER: &str = "**Environment Observation:**\n";

/// How a prompt is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptStyle {
    /// Thinking and tags are expected: a template of RL or SFT, the tag instruction, the opening of the answer.
    Tagged {
        /// The template.
        version: u8,
    },
    /// A plain observation is expected: a template of CPT, the opening of the answer and the marker.
    Plain {
        /// The template.
        version: u8,
    },
}

/// A whole trajectory; marker, observation and stop of the turns with `keep` are trained.
pub fn cpt_document(templates: &Templates, trajectory: &Trajectory, version: u8) -> Result<Document> {
    Stage::Cpt.check_version(version)?;
    let mut document = opening(templates, trajectory, version)?;
    for turn in &trajectory.turns {
        document.start_turn();
        document.message(Role::User, &user_turn(turn), ContextReason::Action);
        let trained = turn.keep == Some(true) && turn.observation_kind != ObservationKind::Image;
        plain_answer(&mut document, turn, (!trained).then_some(ContextReason::Masked));
    }
    if document.has_target() { Ok(document) } else { Err(refused(trajectory, 0, Refusal::NoTarget)) }
}

/// The turns up to `target`, whose thinking, tags, observation and stop are trained.
pub fn sft_document(templates: &Templates, trajectory: &Trajectory, target: usize, version: u8) -> Result<Document> {
    Stage::Sft.check_version(version)?;
    let turn = turn_at(trajectory, target)?;
    check_taggable(trajectory, target)?;
    let trace = turn.trace.as_deref().unwrap_or_default().trim();
    if trace.is_empty() {
        return Err(refused(trajectory, target, Refusal::NoTrace));
    }
    if has_tag(trace) {
        return Err(refused(trajectory, target, Refusal::TraceHasTag));
    }
    let mut document = up_to(templates, trajectory, target, version, true)?;
    tagged_answer(&mut document, trace, &turn.observation);
    Ok(document)
}

/// The turns before `target` and its action; the answer is open. All of it is context.
pub fn prompt_document(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    style: PromptStyle,
) -> Result<Document> {
    turn_at(trajectory, target)?;
    match style {
        PromptStyle::Tagged { version } => {
            if Stage::of_version(version) == Stage::Cpt {
                Stage::Rl.check_version(version)?;
            }
            let mut document = up_to(templates, trajectory, target, version, true)?;
            document.open_answer();
            Ok(document)
        }
        PromptStyle::Plain { version } => {
            Stage::Cpt.check_version(version)?;
            let mut document = up_to(templates, trajectory, target, version, false)?;
            document.open_answer();
            document.text(OBSERVATION_MARKER, Reason::Context(ContextReason::Opening));
            Ok(document)
        }
    }
}

/// Refuses a target whose prediction could not be read back from its tags, and an image.
pub(crate) fn check_taggable(trajectory: &Trajectory, target: usize) -> Result<()> {
    let turn = turn_at(trajectory, target)?;
    if turn.observation_kind == ObservationKind::Image {
        return Err(refused(trajectory, target, Refusal::Image));
    }
    if has_tag(&turn.observation) {
        return Err(refused(trajectory, target, Refusal::ObservationHasTag));
    }
    Ok(())
}

fn opening(templates: &Templates, trajectory: &Trajectory, version: u8) -> Result<Document> {
    let mut document = Document::default();
    let prompt = templates.system_prompt(version, trajectory.domain, &trajectory.system)?;
    document.message(Role::System, &prompt, ContextReason::Prompt);
    Ok(document)
}

/// System prompt, the turns before `target` as history, and the action of `target`.
fn up_to(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    version: u8,
    asks_for_tags: bool,
) -> Result<Document> {
    let mut document = opening(templates, trajectory, version)?;
    for turn in &trajectory.turns[..target] {
        document.start_turn();
        document.message(Role::User, &user_turn(turn), ContextReason::Action);
        plain_answer(&mut document, turn, Some(ContextReason::History));
    }
    document.start_turn();
    let action = user_turn(&trajectory.turns[target]);
    document.open_message(Role::User, &action, ContextReason::Action);
    if asks_for_tags {
        let reason = Reason::Context(ContextReason::Action);
        document.words("\n\n", reason);
        document.words(templates.tag_instruction(), reason);
    }
    document.close(Reason::Context(ContextReason::Action));
    Ok(document)
}

/// Marker and observation. Encoded apart: a plain prompt ends after the marker.
fn plain_answer(document: &mut Document, turn: &Turn, context: Option<ContextReason>) {
    let reason = |trained| context.map_or(Reason::Trained(trained), Reason::Context);
    document.open_answer();
    document.text(OBSERVATION_MARKER, reason(TrainReason::Marker));
    document.text(turn.observation.as_str(), reason(TrainReason::Observation));
    document.close(reason(TrainReason::Stop));
}

/// Thinking and the tagged observation, without the marker.
fn tagged_answer(document: &mut Document, trace: &str, observation: &str) {
    let format = Reason::Trained(TrainReason::Format);
    document.open_answer();
    document.control(Control::ThinkOpen, format);
    document.text(format!("\n{trace}\n"), Reason::Trained(TrainReason::Thinking));
    document.control(Control::ThinkClose, format);
    document.text("\n", format);
    document.control(Control::ObservationOpen, format);
    document.text(format!("\n{observation}\n"), Reason::Trained(TrainReason::Observation));
    document.control(Control::ObservationClose, format);
    document.close(Reason::Trained(TrainReason::Stop));
}

/// `### Turn N`, the state where one is shown, and the action in a fence.
fn user_turn(turn: &Turn) -> String {
    let mut text = format!("### Turn {}\n\n", u64::from(turn.index) + 1);
    if let Some(state) = turn.pre_state.as_deref().filter(|state| !state.trim().is_empty()) {
        text.push_str(&format!("**Current State:**\n{state}\n\n"));
    }
    let fence = fence_for(&turn.action);
    text.push_str(&format!("**Action:**\n{fence}{}\n{}\n{fence}", language(turn), turn.action));
    text
}

/// One backtick more than the longest run in the text, and at least three.
fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.saturating_add(1).max(3))
}

fn language(turn: &Turn) -> &'static str {
    match turn.action_kind {
        ActionKind::Command => "bash",
        ActionKind::ToolCall => "json",
        ActionKind::Code => "python",
        ActionKind::Keystrokes if turn.action.trim_start().starts_with(['[', '{']) => "json",
        ActionKind::Keystrokes | ActionKind::Text => "text",
    }
}

/// Whether the extraction of a prediction would stumble over this text; it does not look at upper and lower case.
fn has_tag(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    Control::TAGS.iter().any(|tag| lower.contains(tag.as_str()))
}

fn turn_at(trajectory: &Trajectory, target: usize) -> Result<&Turn> {
    trajectory.turns.get(target).ok_or_else(|| Error::NoTurn {
        trajectory_id: trajectory.trajectory_id.clone(),
        turns: trajectory.turns.len(),
        turn: target,
    })
}

pub(crate) fn refused(trajectory: &Trajectory, turn: usize, refusal: Refusal) -> Error {
    Error::Refused { trajectory_id: trajectory.trajectory_id.clone(), turn, refusal }
}

#[cfg(test)]
mod tests {
    use super::fence_for;

    #[test]
    fn a_fence_is_longer_than_any_in_the_action() {
        let check = |text: &str, expected: usize| assert_eq!(fence_for(text).len(), expected, "{text}");
        check("ls", 3);
        check("echo `date`", 3);
        check("```", 4);
        check("a ````` b ``` c", 6);
        check("``", 3);
    }
}
