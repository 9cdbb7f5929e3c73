//! Chat formats: how a conversation becomes the text that a model was trained on.
//!
//! Qwen's families and plain ChatML are written natively, piece by piece with reasons, equal token for token to their
//! published templates. Any other model brings its own Jinja template ([`ChatTemplate`]); its pieces are recovered from
//! what it writes, and a document is refused where they do not add up to the whole.

mod message;
mod native;
mod recover;
mod template;

use std::path::Path;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};
use serde::{Deserialize, Serialize};

pub use message::{Conversation, Message, ToolCall};
pub(crate) use recover::{Recovered, recover};
pub use template::{ChatTemplate, TEMPLATE_FILE};

use crate::error::Result;
use crate::training::CHAT_TEMPLATE;

/// Published templates that are written natively, by the hashes of their texts: as the models have them, and as trl
/// repaired them for training.
const PUBLISHED: [(&str, ChatForm); 13] = [
    ("fec583fa8a02141e", ChatForm::Qwen2_5),
    ("f12691e1be6efc2d", ChatForm::Qwen2_5),
    ("45fdf00a05e3daa5", ChatForm::Qwen3),
    ("72a1a5e64f5ff443", ChatForm::Qwen3),
    ("65728607cc6fb637", ChatForm::Qwen3),
    ("a3ad6cbfc9563934", ChatForm::Qwen3Instruct),
    ("0b6ead871ef3ec4b", ChatForm::Qwen3Instruct),
    ("d2213e034059f156", ChatForm::Qwen3_5Think),
    ("f20cfaf78210470d", ChatForm::Qwen3_5Think),
    ("4e9f4f38c8c86b4b", ChatForm::Qwen3_5NoThink),
    ("23cda7b49aa74c2c", ChatForm::Qwen3_5NoThink),
    ("7ccfac375b7121ad", ChatForm::Qwen3_6),
    ("0b900f9264c06b08", ChatForm::Qwen3_6),
];

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

    /// The format that the chat template in a folder writes: natively where we know the template. None where the folder
    /// has no chat template.
    pub fn of_folder(folder: &Path) -> Result<Option<Self>> {
        Ok(ChatTemplate::find(folder)?.map(|template| Self::of_template(&template)))
    }

    /// The format that a chat template writes.
    pub fn of_template(template: &ChatTemplate) -> Self {
        if template.hash() == template::hash_of(CHAT_TEMPLATE) {
            return ChatForm::Chatml;
        }
        let known = PUBLISHED.iter().find(|(hash, _)| *hash == template.hash());
        known.map_or(ChatForm::Own, |&(_, form)| form)
    }

    /// The name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            ChatForm::Chatml => "chatml",
            ChatForm::Qwen2_5 => "qwen2_5",
            ChatForm::Qwen3 => "qwen3",
            ChatForm::Qwen3Instruct => "qwen3_instruct",
            ChatForm::Qwen3_5Think => "qwen3_5_think",
            ChatForm::Qwen3_5NoThink => "qwen3_5_nothink",
            ChatForm::Qwen3_6 => "qwen3_6",
            ChatForm::Own => "own",
        }
    }

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

impl FromStr for ChatForm {
    type Err = NameError;

    fn from_str(name: &str) -> std::result::Result<Self, NameError> {
        let name: StrDeserializer<'_, NameError> = name.into_deserializer();
        Self::deserialize(name)
    }
}

#[cfg(test)]
mod tests {
    use super::ChatForm;

    #[test]
    fn a_name_in_settings_is_the_name_that_is_shown() {
        for form in ChatForm::NATIVE.into_iter().chain([ChatForm::Own]) {
            assert_eq!(form.as_str().parse::<ChatForm>(), Ok(form));
        }
        let error = "qwen4".parse::<ChatForm>().unwrap_err().to_string();
        assert!(error.contains("qwen4") && error.contains("qwen3_5_nothink"), "{error}");
    }
}
