//! A conversation as a prompt, written as the models were trained to read it.

use worldloom_render::Role;

use crate::error::Result;
use crate::model::{Asked, WorldModel};

impl WorldModel {
    /// The prompt of a conversation, its answer open; `None` where text of it would form a control token. See
    /// [`render_messages`](worldloom_render::Renderer::render_messages).
    pub fn chat_prompt(&self, messages: &[(Role, &str)], asked: Asked) -> Result<Option<Vec<u32>>> {
        Ok(self.renderer().render_messages(messages, asked == Asked::Plain)?)
    }
}
