//! The prompt form: in which chat format, with which templates and with or without thinking a model is asked. It is that
//! of the rows it was trained on, so `render` writes it beside rows and prompts, and training beside the model's
//! tokenizer, whole: the texts of the templates, not their name. Whoever asks a model reads it there.
//!
//! A model without the record (a published one) is asked as its own chat template says.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use worldloom_schema::Artifact;

use crate::chat::{ChatForm, ChatTemplate};
use crate::config::RenderConfig;
use crate::document::Role;
use crate::error::{Error, Refusal, Result};
use crate::family::Family;
use crate::layout::{OBSERVATION_MARKER, Thinking};
use crate::renderer::Renderer;
use crate::stage::Stage;
use crate::template::Templates;
use crate::tokenizer::Tokenizer;

/// Name of the record beside rows, prompts and models.
pub const FORM_FILE: &str = "prompt_form.json";
const FORM_VERSION: u32 = 1;

/// How a model is asked.
#[derive(Debug, Clone)]
pub struct PromptForm {
    /// The chat format.
    pub chat: ChatForm,
    /// Hash of the model's own chat template, where that is the format.
    pub chat_template: Option<String>,
    /// What targets do about thinking; none where nothing was trained that could think.
    pub thinking: Option<Thinking>,
    /// The system prompts and the words that ask for tags.
    pub templates: Templates,
}

/// What a user says about how a model is asked. What is not said, the model says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormSettings {
    /// The chat format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<ChatForm>,
    /// The bundled family of templates. Either this or `templates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// A folder of templates of the user's. Either this or `family`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
}

impl FormSettings {
    fn load_templates(&self) -> Result<Option<Templates>> {
        match (&self.family, &self.templates) {
            (Some(family), None) => Templates::bundled(family).map(Some),
            (None, Some(folder)) => Templates::from_folder(folder).map(Some),
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                let detail = "given together with `templates`; give one of them".into();
                Err(Error::Config { field: "family", detail })
            }
        }
    }
}

/// The record as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    version: u32,
    chat: ChatForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chat_template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
    family: String,
    templates: Family,
}

impl PromptForm {
    /// The form of what a renderer makes for a stage.
    pub fn of(renderer: &Renderer, stage: Stage) -> Self {
        Self {
            chat: renderer.chat(),
            chat_template: renderer.own().map(|template| template.hash().to_string()),
            thinking: (stage != Stage::Cpt).then_some(renderer.thinking()),
            templates: renderer.templates().clone(),
        }
    }

    /// The form of a folder that `render` wrote. A folder of before there was a record says it in its config.
    pub fn of_rendered(folder: &Path) -> Result<Self> {
        if let Some(form) = Self::read(folder)? {
            return Ok(form);
        }
        let manifest = Artifact::open_any(folder)?.manifest;
        let bad = |detail: String| Error::Form { path: folder.into(), detail };
        let config: RenderConfig = serde_json::from_value(manifest.config)
            .map_err(|error| bad(format!("no {FORM_FILE}, and no config of `render`: {error}")))?;
        let tokenizer = manifest.inputs.get("tokenizer").map(|input| input.path.clone()).unwrap_or_default();
        let chat_template = match config.chat {
            ChatForm::Own => Some(ChatTemplate::beside(&tokenizer)?.hash().to_string()),
            _ => None,
        };
        let thinking = (config.stage != Stage::Cpt).then_some(config.thinking);
        Ok(Self { chat: config.chat, chat_template, thinking, templates: config.load_templates()? })
    }

    /// The one form of several folders that `render` wrote; none for none. Two chat formats or two families are refused:
    /// a model has one form. Thinking may differ, as targets do.
    pub fn of_all_rendered(folders: &[&Path]) -> Result<Option<Self>> {
        let mut all: Option<(Self, &Path)> = None;
        for &folder in folders {
            let form = Self::of_rendered(folder)?;
            all = Some(match all {
                None => (form, folder),
                Some((first, path)) => match first.difference(&form) {
                    None => (first.joined(&form), path),
                    Some(detail) => {
                        let detail = format!("{detail}, and `{}` otherwise: a model has one form", path.display());
                        return Err(Error::Form { path: folder.into(), detail });
                    }
                },
            });
        }
        Ok(all.map(|(form, _)| form))
    }

    /// How the model of a folder is asked: by the settings; what they leave open, by its record; without one, by its own
    /// chat template and the family `compact`.
    pub fn of_model(folder: &Path, settings: &FormSettings) -> Result<Self> {
        let record = Self::read(folder)?;
        let set = settings.load_templates()?;
        if let Some(record) = &record {
            record.tell_departures(folder, settings.chat, set.as_ref());
        }
        let (chat, chat_template) = match (settings.chat, &record) {
            (Some(chat), _) => (chat, None),
            (None, Some(record)) => (record.chat, record.chat_template.clone()),
            (None, None) => {
                let found = ChatForm::of_folder(folder)?;
                (found.ok_or_else(|| Error::NoChat { path: folder.into() })?, None)
            }
        };
        let templates = match (set, &record) {
            (Some(templates), _) => templates,
            (None, Some(record)) => record.templates.clone(),
            (None, None) => Templates::compact()?,
        };
        let form = Self { chat, chat_template, thinking: record.and_then(|record| record.thinking), templates };
        form.check_chat_template(folder)?;
        Ok(form)
    }

    /// What a setting changes is done, and told.
    fn tell_departures(&self, folder: &Path, chat: Option<ChatForm>, templates: Option<&Templates>) {
        let model = folder.display();
        if let Some(chat) = chat.filter(|&chat| chat != self.chat) {
            tracing::warn!(%model, "trained in the chat format `{}`, asked in `{}`", self.chat.as_str(), chat.as_str());
        }
        if let Some(set) = templates.filter(|set| !set.is_same(&self.templates)) {
            let (trained, asked) = (self.templates.family(), set.family());
            tracing::warn!(%model, "trained with the templates `{trained}`, asked with other texts, `{asked}`");
        }
    }

    /// Refuses a model whose own chat template is not the one that the record speaks of.
    pub fn check_chat_template(&self, model: &Path) -> Result<()> {
        let Some(recorded) = self.chat_template.as_ref().filter(|_| self.chat == ChatForm::Own) else { return Ok(()) };
        let found = ChatTemplate::beside(model)?;
        if found.hash() == recorded {
            return Ok(());
        }
        let detail = format!(
            "the chat template `{}` has the hash {}, and rows were rendered with {recorded}; \
            put that template back, or render with this one",
            found.path().display(),
            found.hash()
        );
        Err(Error::Form { path: model.into(), detail })
    }

    /// Reads the record of a folder, where there is one.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(FORM_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let bad = |detail: String| Error::Form { path: path.clone(), detail };
        let record: Record = serde_json::from_slice(&fs_err::read(&path)?).map_err(|error| bad(error.to_string()))?;
        if record.version != FORM_VERSION {
            return Err(bad(format!("version {}, expected {FORM_VERSION}", record.version)));
        }
        let Record { chat, chat_template, thinking, family, templates, .. } = record;
        Ok(Some(Self { chat, chat_template, thinking, templates: Templates::new(&family, templates)? }))
    }

    /// Writes the record into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let record = Record {
            version: FORM_VERSION,
            chat: self.chat,
            chat_template: self.chat_template.clone(),
            thinking: self.thinking,
            family: self.templates.name(),
            templates: self.templates.content().clone(),
        };
        crate::report::write_json(&folder.join(FORM_FILE), &record)
    }

    /// The renderer of this form, with the tokenizer (and the chat template) of a model.
    pub fn renderer(&self, tokenizer: Tokenizer) -> Result<Renderer> {
        let renderer = Renderer::with_chat(tokenizer, self.templates.clone(), self.chat)?;
        Ok(renderer.with_thinking(self.thinking.unwrap_or_default()))
    }

    /// Whether the model is asked to think before it answers in tags.
    pub fn thinks(&self) -> bool {
        self.thinking.unwrap_or_default() != Thinking::Off
    }

    /// In what the other differs by its record, if it does.
    fn difference(&self, other: &Self) -> Option<String> {
        if self.chat != other.chat {
            return Some(format!("rendered in the chat format `{}`", other.chat.as_str()));
        }
        if self.chat_template != other.chat_template {
            return Some("rendered with another chat template".into());
        }
        let is_same = self.templates.is_same(&other.templates);
        (!is_same).then(|| format!("rendered with the templates `{}`", other.templates.name()))
    }

    fn joined(self, other: &Self) -> Self {
        let thinking = match (self.thinking, other.thinking) {
            (Some(one), Some(two)) if one != two => Some(Thinking::Mixed),
            (one, two) => one.or(two),
        };
        Self { thinking, ..self }
    }

    /// The form of RL's prompts. Refused where a model was trained with another: chat formats are compared by what they
    /// write, for several of them write the same prompts. Of a model without a record only its chat template is known.
    pub fn of_prompts(prompts: &Path, model: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        let form = Self::of_rendered(prompts)?;
        form.check_chat_template(model)?;
        let refuse = |detail: String| Err(Error::OtherPrompts { path: prompts.into(), detail });
        let (chat, record) = match Self::read(model)? {
            Some(record) => (Some(record.chat), Some(record)),
            None => (ChatForm::of_folder(model)?, None),
        };
        if let Some(record) = &record {
            if record.thinking.is_some() && record.thinks() != form.thinks() {
                let word = |form: &Self| if form.thinks() { "with thinking" } else { "without thinking" };
                return refuse(format!("asks {}, the model was trained {}", word(&form), word(record)));
            }
            if !record.templates.is_same(&form.templates) {
                let (found, expected) = (form.templates.name(), record.templates.name());
                return refuse(format!("templates `{found}`, the model was trained with other texts, `{expected}`"));
            }
        }
        if let Some(chat) = chat {
            let models = Self { chat, ..form.clone() };
            if models.probe(tokenizer)? != form.probe(tokenizer)? {
                let (found, expected) = (form.chat.as_str(), chat.as_str());
                return refuse(format!("chat format `{found}`, the model's is `{expected}`"));
            }
        }
        Ok(form)
    }

    /// A conversation with everything that a prompt may have, as tokens.
    fn probe(&self, tokenizer: &Tokenizer) -> Result<std::result::Result<Vec<u32>, Refusal>> {
        let answer = format!("{OBSERVATION_MARKER}a.txt");
        let last = format!("pwd\n\n{}", self.templates.tag_instruction());
        let messages =
            [(Role::System, "A terminal."), (Role::User, "ls"), (Role::Assistant, &answer), (Role::User, &last)];
        self.renderer(tokenizer.clone())?.render_messages(&messages, false)
    }
}
