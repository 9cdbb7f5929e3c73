//! Trajectories as documents, in the benchmark's row form (recipe.md §3.1): actions are user turns, observations
//! assistant turns. The agent's own reasoning is never written, a trace only as the target of its own turn.

use worldloom_schema::{ActionKind, Domain, ObservationKind, Trajectory, Turn};

use crate::chat::ChatForm;
use crate::document::{ContextReason, Control, Document, Piece, Reason, Role, TrainReason};
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
    /// The same, and no thinking: the opening says so where the chat format can say it.
    TaggedWithoutThinking {
        /// The template.
        version: u8,
    },
    /// A plain observation is expected: a template of CPT, the opening of the answer and the marker.
    Plain {
        /// The template.
        version: u8,
    },
}

/// What is said in one message of a document, before a chat format writes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) role: Role,
    /// The content.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) thought: Thought,
    /// Whether a turn (action and observation) starts here.
    pub(crate) starts_turn: bool,
    /// Why the stop token is trained or not.
    pub(crate) stop: Reason,
}

/// The thinking of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Thought {
    /// None is written: history, and answers that do not think in this stage.
    None,
    /// The target answers without thinking: its prompt says so where the format can say it.
    Empty,
    /// The target thinks this.
    Trace(String),
}

/// How a document ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the last message.
    Closed,
    /// With the opening of an answer.
    Open {
        /// Whether it thinks; none: nothing is said about it.
        thinking: Option<bool>,
        /// What the caller begins the answer with.
        marker: Option<&'static str>,
    },
}

/// A whole trajectory; marker, observation and stop of the turns with `keep` are trained.
pub fn cpt_document(templates: &Templates, trajectory: &Trajectory, version: u8) -> Result<Document> {
    Ok(native(ChatForm::Chatml, &cpt_said(templates, trajectory, version)?, Ending::Closed))
}

/// The turns up to `target`, whose thinking, tags, observation and stop are trained.
pub fn sft_document(templates: &Templates, trajectory: &Trajectory, target: usize, version: u8) -> Result<Document> {
    let said = sft_said(templates, trajectory, target, version, Thinking::Trace)?;
    Ok(native(ChatForm::Chatml, &said, Ending::Closed))
}

/// The turns before `target` and its action; the answer is open. All of it is context.
pub fn prompt_document(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    style: PromptStyle,
) -> Result<Document> {
    let (said, ending) = prompt_said(templates, trajectory, target, style)?;
    Ok(native(ChatForm::Chatml, &said, ending))
}

pub(crate) fn cpt_said(templates: &Templates, trajectory: &Trajectory, version: u8) -> Result<Vec<Said>> {
    Stage::Cpt.check_version(version)?;
    let mut said = vec![opening(templates, trajectory, version)?];
    for turn in &trajectory.turns {
        said.push(asked(trajectory, turn));
        let trained = turn.keep == Some(true) && turn.observation_kind != ObservationKind::Image;
        said.push(plain_answer(turn, (!trained).then_some(ContextReason::Masked)));
    }
    let has_target = said.iter().any(|said| said.stop.is_trained());
    if has_target { Ok(said) } else { Err(refused(trajectory, 0, Refusal::NoTarget)) }
}

/// What SFT does about thinking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Every target thinks: a turn without a trace is refused.
    #[default]
    Trace,
    /// A target thinks where there is a trace, and answers at once where there is none.
    Mixed,
    /// No target thinks; traces are left out.
    Off,
}

pub(crate) fn sft_said(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    version: u8,
    thinking: Thinking,
) -> Result<Vec<Said>> {
    Stage::Sft.check_version(version)?;
    let turn = turn_at(trajectory, target)?;
    check_taggable(trajectory, target)?;
    let trace = turn.trace.as_deref().unwrap_or_default().trim();
    let thought = match (trace.is_empty(), thinking) {
        (true, Thinking::Trace) => return Err(refused(trajectory, target, Refusal::NoTrace)),
        (true, Thinking::Mixed) | (_, Thinking::Off) => Thought::Empty,
        (false, _) if has_tag(trace) => return Err(refused(trajectory, target, Refusal::TraceHasTag)),
        (false, _) => Thought::Trace(trace.into()),
    };
    let mut said = up_to(templates, trajectory, target, version, true)?;
    said.push(tagged_answer(thought, &turn.observation));
    Ok(said)
}

pub(crate) fn prompt_said(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    style: PromptStyle,
) -> Result<(Vec<Said>, Ending)> {
    turn_at(trajectory, target)?;
    match style {
        PromptStyle::Tagged { version } | PromptStyle::TaggedWithoutThinking { version } => {
            if Stage::of_version(version) == Stage::Cpt {
                Stage::Rl.check_version(version)?;
            }
            let said = up_to(templates, trajectory, target, version, true)?;
            let thinking = Some(matches!(style, PromptStyle::Tagged { .. }));
            Ok((said, Ending::Open { thinking, marker: None }))
        }
        PromptStyle::Plain { version } => {
            Stage::Cpt.check_version(version)?;
            let said = up_to(templates, trajectory, target, version, false)?;
            Ok((said, Ending::Open { thinking: None, marker: Some(OBSERVATION_MARKER) }))
        }
    }
}

/// Refuses a target whose prediction could not be read back from its tags, and an image.
pub fn check_taggable(trajectory: &Trajectory, target: usize) -> Result<()> {
    let turn = turn_at(trajectory, target)?;
    if turn.observation_kind == ObservationKind::Image {
        return Err(refused(trajectory, target, Refusal::Image));
    }
    if has_tag(&turn.observation) {
        return Err(refused(trajectory, target, Refusal::ObservationHasTag));
    }
    Ok(())
}

/// What is said, in a native chat format.
pub(crate) fn native(form: ChatForm, said: &[Said], ending: Ending) -> Document {
    let mut document = Document::default();
    for said in said {
        if said.starts_turn {
            document.start_turn();
        }
        match said.role {
            Role::Assistant => answer(&mut document, form, said),
            role => {
                document.control(Control::TurnStart, said.stop);
                document.text(format!("{}\n", role.as_str()), said.stop);
                document.continue_pieces(&said.pieces);
                document.close(said.stop);
            }
        }
    }
    if let Ending::Open { thinking, marker } = ending {
        document.open_answer();
        // A plain answer is written as history is: nothing is said about thinking.
        if thinking.is_some() {
            document.opening_of(form, thinking);
        }
        document.text(marker.unwrap_or_default(), Reason::Context(ContextReason::Opening));
    }
    document
}

/// Opening, thinking, content and stop. Encoded apart: a plain prompt ends after the marker.
fn answer(document: &mut Document, form: ChatForm, said: &Said) {
    let format = Reason::Trained(TrainReason::Format);
    let thinking = Reason::Trained(TrainReason::Thinking);
    document.open_answer();
    match &said.thought {
        Thought::None => {}
        Thought::Empty => document.opening_of(form, Some(false)),
        Thought::Trace(trace) if form.opens_thinking() => {
            document.opening_of(form, Some(true));
            document.text(format!("{trace}\n"), thinking);
            document.control(Control::ThinkClose, format);
            document.text(form.after_thinking(), format);
        }
        Thought::Trace(trace) => {
            document.control(Control::ThinkOpen, format);
            document.text(format!("\n{trace}\n"), thinking);
            document.control(Control::ThinkClose, format);
            document.text(form.after_thinking(), format);
        }
    }
    if form.trims() && said.thought == Thought::None {
        document.pieces.extend(trimmed_end(&said.pieces));
    } else {
        document.pieces.extend(said.pieces.iter().cloned());
    }
    document.close(said.stop);
}

/// Pieces without the white space at their end, as some formats write what is said.
fn trimmed_end(pieces: &[Piece]) -> Vec<Piece> {
    let mut pieces = pieces.to_vec();
    while let Some(crate::document::Content::Text(text)) = pieces.last_mut().map(|piece| &mut piece.content) {
        text.truncate(text.trim_end().len());
        if !text.is_empty() {
            break;
        }
        pieces.pop();
    }
    pieces
}

fn opening(templates: &Templates, trajectory: &Trajectory, version: u8) -> Result<Said> {
    let prompt = templates.system_prompt(version, trajectory.domain, &trajectory.system)?;
    Ok(context(Role::System, &prompt, ContextReason::Prompt))
}

/// A message that is context.
pub(crate) fn context(role: Role, text: &str, reason: ContextReason) -> Said {
    let mut content = Document::default();
    content.text(text, Reason::Context(reason));
    Said {
        role,
        pieces: content.pieces,
        thought: Thought::None,
        starts_turn: role == Role::User,
        stop: Reason::Context(reason),
    }
}

fn asked(trajectory: &Trajectory, turn: &Turn) -> Said {
    context(Role::User, &user_turn(trajectory, turn), ContextReason::Action)
}

/// System prompt, the turns before `target` as history, and the action of `target`.
fn up_to(
    templates: &Templates,
    trajectory: &Trajectory,
    target: usize,
    version: u8,
    asks_for_tags: bool,
) -> Result<Vec<Said>> {
    let mut said = vec![opening(templates, trajectory, version)?];
    for turn in &trajectory.turns[..target] {
        said.push(asked(trajectory, turn));
        said.push(plain_answer(turn, Some(ContextReason::History)));
    }
    let mut last = asked(trajectory, &trajectory.turns[target]);
    if asks_for_tags {
        let mut content = Document { pieces: last.pieces, ..Document::default() };
        let reason = Reason::Context(ContextReason::Action);
        content.words("\n\n", reason);
        content.words(templates.tag_instruction(), reason);
        last.pieces = content.pieces;
    }
    said.push(last);
    Ok(said)
}

/// Marker and observation.
fn plain_answer(turn: &Turn, context: Option<ContextReason>) -> Said {
    let reason = |trained| context.map_or(Reason::Trained(trained), Reason::Context);
    let mut content = Document::default();
    content.text(OBSERVATION_MARKER, reason(TrainReason::Marker));
    content.text(turn.observation.as_str(), reason(TrainReason::Observation));
    Said {
        role: Role::Assistant,
        pieces: content.pieces,
        thought: Thought::None,
        starts_turn: false,
        stop: reason(TrainReason::Stop),
    }
}

/// The tagged observation, without the marker.
fn tagged_answer(thought: Thought, observation: &str) -> Said {
    let format = Reason::Trained(TrainReason::Format);
    let mut content = Document::default();
    content.control(Control::ObservationOpen, format);
    content.text(format!("\n{observation}\n"), Reason::Trained(TrainReason::Observation));
    content.control(Control::ObservationClose, format);
    Said {
        role: Role::Assistant,
        pieces: content.pieces,
        thought,
        starts_turn: false,
        stop: Reason::Trained(TrainReason::Stop),
    }
}

/// `### Turn N`, the task on a desktop's first turn, the state where one is shown, and the action in a fence.
pub(crate) fn user_turn(trajectory: &Trajectory, turn: &Turn) -> String {
    let mut text = format!("### Turn {}\n\n", u64::from(turn.index) + 1);
    let task = trajectory.system.task_description.trim();
    if trajectory.domain == Domain::Os && turn.index == 0 && !task.is_empty() {
        text.push_str(&format!("**Task Instruction:**\n{task}\n\n"));
    }
    if let Some(state) = turn.pre_state.as_deref().filter(|state| !state.trim().is_empty()) {
        let heading = if trajectory.domain == Domain::Android { "Current Phone State" } else { "Current State" };
        text.push_str(&format!("**{heading}:**\n{state}\n\n"));
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
