//! A conversation as a prompt, written as the models were trained to read it.

use worldloom_render::{ContextReason, Control, Document, OBSERVATION_MARKER, Reason, Rendered, Role};

use crate::error::Result;
use crate::model::{Asked, WorldModel};

impl WorldModel {
    /// The prompt of a conversation, its answer open; `None` where text of it would form a control token.
    ///
    /// What training wrote in a special way is recognised: the instruction for tags at the end of the last message has
    /// its tags as tags, and an observation is encoded apart from its marker. So a conversation that spells out a turn
    /// gives the very tokens of [`render_prompt`](worldloom_render::Renderer::render_prompt).
    pub fn chat_prompt(&self, messages: &[(Role, &str)], asked: Asked) -> Result<Option<Vec<u32>>> {
        let document = chat_document(messages, asked, self.renderer().templates().tag_instruction());
        Ok(self.renderer().encode(&document)?.map(|Rendered { tokens, .. }| tokens))
    }
}

fn chat_document(messages: &[(Role, &str)], asked: Asked, tag_instruction: &str) -> Document {
    let mut document = Document::default();
    let reason = Reason::Context(ContextReason::Action);
    for &(role, text) in messages {
        match role {
            Role::System => document.message(role, text, ContextReason::Prompt),
            Role::User => match text.strip_suffix(tag_instruction) {
                Some(before) => {
                    document.open_message(role, before.strip_suffix("\n\n").unwrap_or(before), ContextReason::Action);
                    document.words("\n\n", reason);
                    document.words(tag_instruction, reason);
                    document.close(reason);
                }
                None => document.message(role, text, ContextReason::Action),
            },
            Role::Tool => document.message(role, text, ContextReason::Action),
            Role::Assistant => {
                let history = Reason::Context(ContextReason::History);
                document.open_answer();
                let observation = text.strip_prefix(OBSERVATION_MARKER);
                if observation.is_some() {
                    document.text(OBSERVATION_MARKER, history);
                }
                document.text(observation.unwrap_or(text), history);
                document.control(Control::TurnEnd, history);
                document.text("\n", Reason::Context(ContextReason::Separator));
            }
        }
    }
    document.open_answer();
    if asked == Asked::Plain {
        document.text(OBSERVATION_MARKER, Reason::Context(ContextReason::Opening));
    }
    document
}
