//! A turn as a row of the benchmark: the same texts that prompts are made of, as messages; and messages as a prompt.

use worldloom_schema::{ObservationKind, Trajectory};

use crate::chat::{Recovered, recover};
use crate::document::{ContextReason, Document, Reason, Role};
use crate::error::{Refusal, Result};
use crate::layout::{Ending, OBSERVATION_MARKER, Said, Thinking, context, native, user_turn};
use crate::renderer::{RL_VERSION, Renderer};
use crate::template::Templates;

/// The texts of a row. As messages, they are the prompt that
/// [`render_prompt`](crate::Renderer::render_prompt) gives for the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchTurn {
    /// The system prompt.
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
    turn_texts(templates, RL_VERSION, trajectory, turn)
}

/// The same with the system prompt of another template version.
pub fn turn_texts(
    templates: &Templates,
    version: u8,
    trajectory: &Trajectory,
    turn: usize,
) -> Result<Option<BenchTurn>> {
    let Some(target) = trajectory.turns.get(turn) else { return Ok(None) };
    if target.observation_kind == ObservationKind::Image {
        return Ok(None);
    }
    let system = templates.system_prompt(version, trajectory.domain, &trajectory.system)?;
    let shown = &trajectory.turns[..=turn];
    let mut prompts: Vec<String> = shown.iter().map(|turn| user_turn(trajectory, turn)).collect();
    let current_prompt = prompts.last().cloned().unwrap_or_default();
    if let Some(last) = prompts.last_mut() {
        last.push_str("\n\n");
        last.push_str(templates.tag_instruction());
    }
    let responses = shown.iter().map(|turn| format!("{OBSERVATION_MARKER}{}", turn.observation)).collect();
    Ok(Some(BenchTurn { system, prompts, responses, current_prompt }))
}

impl Renderer {
    /// The prompt of a conversation in the chat format, its answer open: a plain observation after its marker, or thinking
    /// and tags. Refused where text would form a control token, or where the model's own template rewrites it.
    ///
    /// What training wrote in a special way is recognised: the instruction for tags at the end of a user's message has
    /// its tags as tags, and an observation is encoded apart from its marker. So a conversation that spells out a turn
    /// gives the very tokens of [`Renderer::render_prompt`].
    pub fn render_messages(
        &self,
        messages: &[(Role, &str)],
        is_plain: bool,
    ) -> Result<std::result::Result<Vec<u32>, Refusal>> {
        let said: Vec<Said> = messages.iter().map(|(role, text)| self.said(*role, text)).collect();
        let ending = match is_plain {
            true => Ending::Open { thinking: None, marker: Some(OBSERVATION_MARKER) },
            false => Ending::Open { thinking: Some(self.thinking() != Thinking::Off), marker: None },
        };
        let document = match self.own() {
            None => native(self.chat(), &said, ending),
            Some(template) => match recover(template, self.tokenizer(), &said, ending)? {
                Recovered::Document(document) => document,
                Recovered::Rewritten => return Ok(Err(Refusal::TemplateRewrites)),
            },
        };
        Ok(self.encode(&document)?.map(|rendered| rendered.tokens).ok_or(Refusal::ControlFormed))
    }

    fn said(&self, role: Role, text: &str) -> Said {
        let (reason, instruction) = (Reason::Context(ContextReason::Action), self.templates().tag_instruction());
        match role {
            Role::System => context(role, text, ContextReason::Prompt),
            Role::Tool => context(role, text, ContextReason::Action),
            Role::User => match text.strip_suffix(instruction).filter(|_| !instruction.is_empty()) {
                Some(before) => {
                    let said = context(role, before.strip_suffix("\n\n").unwrap_or(before), ContextReason::Action);
                    let mut content = Document { pieces: said.pieces, ..Document::default() };
                    content.words("\n\n", reason);
                    content.words(instruction, reason);
                    Said { pieces: content.pieces, ..said }
                }
                None => context(role, text, ContextReason::Action),
            },
            Role::Assistant => {
                let history = Reason::Context(ContextReason::History);
                let observation = text.strip_prefix(OBSERVATION_MARKER);
                let mut content = Document::default();
                content.text(observation.map_or("", |_| OBSERVATION_MARKER), history);
                content.text(observation.unwrap_or(text), history);
                Said { pieces: content.pieces, ..context(role, "", ContextReason::History) }
            }
        }
    }
}
