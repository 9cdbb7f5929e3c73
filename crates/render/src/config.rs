//! What the user decides about rendering.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::chat::ChatForm;
use crate::error::{Error, Result};
use crate::layout::Thinking;
use crate::stage::Stage;
use crate::template::Templates;

/// What happens to a document that is longer than a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Long {
    /// It is left out.
    Drop,
    /// The system context and whole turns that fit stay, the rest is left out: the first turns in cpt, the last ones, of
    /// which the target is the last, in sft and rl. Of a text, its beginning.
    CutTurns,
    /// It goes on in further rows, each begun with the system context; a turn too long for a row of its own is cut
    /// there and has no stop token as target.
    Window,
}

/// How one pool is rendered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderConfig {
    /// The stage, and with it the pool.
    pub stage: Stage,
    /// The bundled family of templates, such as `compact`. Either this or `templates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// A folder of templates of the user's: `v0.jinja`, `v1.jinja`, … Either this or `family`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
    /// The template versions that are drawn from, uniformly for each row; they must belong to the stage.
    pub versions: Vec<u8>,
    /// Seed of the template draw and of the order of rows.
    pub seed: u64,
    /// Tokens a row holds at most; cpt and sft only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_tokens: Option<usize>,
    /// What happens to longer documents. sft and rl cannot `window`; rl drops unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<Long>,
    /// Whether several documents share a row; cpt and sft only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<bool>,
    /// Prompts longer than this are left out; rl only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_tokens: Option<usize>,
    /// The chat format: `chatml` (the default), `qwen2_5`, `qwen3`, `qwen3_instruct`, `qwen3_5_think`, `qwen3_5_nothink`,
    /// `qwen3_6`, or `own`: the chat template beside the tokenizer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chat: ChatForm,
    /// What targets do about thinking: `trace` (the default: a turn without one is refused), `mixed`, `off`; sft and rl.
    #[serde(default, skip_serializing_if = "is_default")]
    pub thinking: Thinking,
    /// Share of trajectories, 0 to 1, that get a simulation instruction derived from what happened, by rules; those that
    /// bring one keep it. Default: 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub instruction_share: f64,
    /// Loss weight of the actions in cpt rows. Default: 0, as published: the recipe starts from a trained model. A model
    /// that starts from nothing learns the language of its environment sooner with some.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub action_weight: f32,
    /// Loss weight of the history's observations (marker, text and stop) in sft rows, as cpt trains them. Default: 0, as
    /// published. A small model forgets less of what cpt taught it with some; they are computed anyway.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub history_weight: f32,
    /// Whether the targets of one trajectory share one template and one copy of its history, from which they branch; sft
    /// only. The same losses from fewer tokens. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub share_history: bool,
    /// Share of documents without anything to train on, 0 to 1, above which the run refuses.
    pub max_empty_share: f64,
    /// Share of documents that are in no row or prompt for any reason (too long, an image, a tag in the observation), 0
    /// to 1, above which the run refuses. Default: 0.5.
    #[serde(default = "max_lost_share", skip_serializing_if = "is_max_lost_share")]
    pub max_lost_share: f64,
}

fn max_lost_share() -> f64 {
    0.5
}

fn is_max_lost_share(share: &f64) -> bool {
    *share == max_lost_share()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(weight: &f32) -> bool {
    *weight == 0.0
}

/// The values that rows need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSettings {
    pub(crate) row_tokens: usize,
    pub(crate) long: Long,
    pub(crate) pack: bool,
    pub(crate) share_history: bool,
    pub(crate) stage: Stage,
}

impl RenderConfig {
    /// Loads the templates and checks that the versions exist and belong to the stage.
    pub fn load_templates(&self) -> Result<Templates> {
        let templates = match (&self.family, &self.templates) {
            (Some(family), None) => Templates::bundled(family)?,
            (None, Some(folder)) => Templates::from_folder(folder)?,
            (Some(_), Some(_)) => return Err(config("family", "given together with `templates`; give one of them")),
            (None, None) => return Err(config("family", "missing, and no folder in `templates`; give one of them")),
        };
        if self.versions.is_empty() {
            return Err(config("versions", "empty; give at least one template version"));
        }
        for &version in &self.versions {
            self.stage.check_version(version)?;
            templates.check(version)?;
        }
        Ok(templates)
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<()> {
        for (field, share) in [("max_empty_share", self.max_empty_share), ("max_lost_share", self.max_lost_share)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(config(field, &format!("{share}, expected 0 to 1")));
            }
        }
        let context_weights =
            [("action_weight", self.action_weight, Stage::Cpt), ("history_weight", self.history_weight, Stage::Sft)];
        for (field, weight, stage) in context_weights {
            if !(0.0..=1.0).contains(&weight) {
                return Err(config(field, &format!("{weight}, expected 0 to 1")));
            }
            if weight > 0.0 && self.stage != stage {
                return Err(config(field, &format!("is for stage {stage}, not for {}", self.stage)));
            }
            if weight > 0.0 && self.chat == ChatForm::Own {
                return Err(config(field, "needs a native chat format, not `own`"));
            }
        }
        if !(0.0..=1.0).contains(&self.instruction_share) {
            return Err(config("instruction_share", &format!("{}, expected 0 to 1", self.instruction_share)));
        }
        if self.thinking != Thinking::Trace && self.stage == Stage::Cpt {
            return Err(config("thinking", "is for stages sft and rl: cpt does not think"));
        }
        if self.share_history && self.stage != Stage::Sft {
            return Err(config("share_history", &format!("is for stage sft, not for {}", self.stage)));
        }
        match self.stage {
            Stage::Rl => self.prompt_tokens().map(|_| ()),
            Stage::Cpt | Stage::Sft => self.row_settings().map(|_| ()),
        }
    }

    pub(crate) fn row_settings(&self) -> Result<RowSettings> {
        let needed = |field| config(field, &format!("missing; stage {} needs it", self.stage));
        if self.max_prompt_tokens.is_some() {
            return Err(config("max_prompt_tokens", &format!("is for stage rl, not for {}", self.stage)));
        }
        let row_tokens = self.row_tokens.ok_or_else(|| needed("row_tokens"))?;
        if row_tokens < 2 {
            return Err(config("row_tokens", &format!("{row_tokens}, expected 2 or more")));
        }
        let long = self.long.ok_or_else(|| needed("long"))?;
        if self.stage == Stage::Sft && long == Long::Window {
            return Err(config("long", "sft rows end in their target; expected `drop` or `cut_turns`"));
        }
        let pack = self.pack.ok_or_else(|| needed("pack"))?;
        Ok(RowSettings { row_tokens, long, pack, share_history: self.share_history, stage: self.stage })
    }

    pub(crate) fn prompt_tokens(&self) -> Result<usize> {
        for (field, is_given) in [("row_tokens", self.row_tokens.is_some()), ("pack", self.pack.is_some())] {
            if is_given {
                return Err(config(field, "is for stages cpt and sft; rl writes prompts, not rows"));
            }
        }
        if self.long == Some(Long::Window) {
            return Err(config("long", "a prompt ends in its action; expected `drop` or `cut_turns`"));
        }
        self.max_prompt_tokens.ok_or_else(|| config("max_prompt_tokens", "missing; stage rl needs it"))
    }
}

fn config(field: &'static str, detail: &str) -> Error {
    Error::Config { field, detail: detail.into() }
}
