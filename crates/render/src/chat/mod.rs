//! Chat formats: how a conversation becomes the text that a model was trained on.
//!
//! Qwen's families and plain ChatML are written natively, piece by piece with reasons, equal token for token to their
//! published templates. Any other model brings its own Jinja template ([`ChatTemplate`]); its pieces are recovered from
//! what it writes, and a document is refused where they do not add up to the whole.

mod message;
mod native;
mod recover;
mod template;

use serde::{Deserialize, Serialize};

pub use message::{Conversation, Message, ToolCall};
pub(crate) use recover::{Recovered, recover};
pub use template::ChatTemplate;

/// A chat format by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatForm {
    /// Turn markers and roles, nothing else. A trace stands in think tags before the answer.
    #[default]
    Chatml,
    /// Qwen2.5: a greeting where there is no system message, no thinking.
    #[serde(rename = "qwen2_5")]
    Qwen2_5,
    /// Qwen3: thinking in the answers after the last question.
    Qwen3,
    /// Qwen3 Instruct 2507: no thinking.
    Qwen3Instruct,
    /// Qwen3.5 of 4B and more: the prompt opens the thinking unless told not to.
    #[serde(rename = "qwen3_5_think")]
    Qwen3_5Think,
    /// Qwen3.5 of 2B and less: the prompt closes an empty thinking unless told to think.
    #[serde(rename = "qwen3_5_nothink")]
    Qwen3_5NoThink,
    /// Qwen3.6: as Qwen3.5, arguments of tool calls in JSON.
    #[serde(rename = "qwen3_6")]
    Qwen3_6,
    /// The model's own Jinja template, beside its tokenizer.
    Own,
}

impl ChatForm {
    /// Those that are written natively.
    pub const NATIVE: [ChatForm; 7] = [
        ChatForm::Chatml,
        ChatForm::Qwen2_5,
        ChatForm::Qwen3,
        ChatForm::Qwen3Instruct,
        ChatForm::Qwen3_5Think,
        ChatForm::Qwen3_5NoThink,
        ChatForm::Qwen3_6,
    ];

    /// Whether it takes white space off both ends of what is said.
    pub(crate) fn trims(self) -> bool {
        matches!(self, ChatForm::Qwen3_5Think | ChatForm::Qwen3_5NoThink | ChatForm::Qwen3_6)
    }

    /// Whether it knows thinking.
    pub(crate) fn thinks(self) -> bool {
        self == ChatForm::Qwen3 || self.trims()
    }

    /// Whether an answer's opening, written by the caller, opens the thinking.
    pub(crate) fn opens_thinking(self) -> bool {
        self.trims()
    }

    /// What stands between the end of the thinking and the answer.
    pub(crate) fn after_thinking(self) -> &'static str {
        if self == ChatForm::Chatml { "\n" } else { "\n\n" }
    }
}
