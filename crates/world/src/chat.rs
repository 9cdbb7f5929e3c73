//! A conversation as a prompt, written as the models were trained to read it.

use worldloom_render::{Refusal, Role};

use crate::error::Result;
use crate::model::{Asked, WorldModel};

impl WorldModel {
    /// The prompt of a conversation, its answer open, or why it cannot be written. See
    /// [`render_messages`](worldloom_render::Renderer::render_messages).
    pub fn chat_prompt(
        &self,
        messages: &[(Role, &str)],
        asked: Asked,
    ) -> Result<std::result::Result<Vec<u32>, Refusal>> {
        Ok(self.renderer().render_messages(messages, asked == Asked::Plain)?)
    }
}

/// Why a conversation cannot be written, as a sentence without its end.
pub fn refusal_text(refusal: Refusal) -> String {
    match refusal {
        Refusal::ControlFormed => "text of the messages would form a control token in this vocabulary".into(),
        Refusal::TemplateRewrites => "the model's own chat template changes what the messages say".into(),
        other => format!("the messages cannot be written ({other})"),
    }
}
