//! The one error type of the crate, and the reasons for which one document cannot be used.

use std::path::PathBuf;

use crate::stage::Stage;

/// Why one document is not made. Such documents are counted by reason; they do not stop a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No token of it would be trained.
    NoTarget,
    /// No turn of the trajectory is selected.
    NoSelectedTurn,
    /// The target turn has no thinking trace.
    NoTrace,
    /// The observation holds one of the tags that the extraction looks for.
    ObservationHasTag,
    /// The trace holds one of the tags that the extraction looks for.
    TraceHasTag,
    /// The observation is an image: there is no text to predict.
    Image,
    /// Longer than the row or the prompt may be.
    TooLong,
    /// The tokenizer would form a control token from plain text.
    ControlFormed,
    /// The model's own chat template writes something else than its pieces: it changes what is said.
    TemplateRewrites,
}

impl Refusal {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::NoTarget => "no_target",
            Refusal::NoSelectedTurn => "no_selected_turn",
            Refusal::NoTrace => "no_trace",
            Refusal::ObservationHasTag => "observation_has_tag",
            Refusal::TraceHasTag => "trace_has_tag",
            Refusal::Image => "image",
            Refusal::TooLong => "too_long",
            Refusal::ControlFormed => "control_formed",
            Refusal::TemplateRewrites => "template_rewrites",
        }
    }

    /// Whether it means that there was nothing that could be trained on.
    pub fn is_empty_target(self) -> bool {
        matches!(self, Refusal::NoTarget | Refusal::NoSelectedTurn | Refusal::NoTrace | Refusal::TemplateRewrites)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What can go wrong while rendering.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A table or shard of ours cannot be read or written.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// The tokenizer file is not one that the `tokenizers` library reads.
    #[error("read tokenizer `{path}`: {detail}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What the library said.
        detail: String,
    },
    /// The tokenizer has no ChatML turn markers.
    #[error("tokenizer `{path}` has no token `{token}`: the chat form needs it as one id")]
    NoControl {
        /// The file.
        path: PathBuf,
        /// The missing token.
        token: &'static str,
    },
    /// The vocabulary has nothing that ends a text.
    #[error(
        "tokenizer `{path}` has no token that ends a text: no `<|endoftext|>`, no `eos_token` in tokenizer_config.json"
    )]
    NoTextEnd {
        /// The file.
        path: PathBuf,
    },
    /// A chat template cannot be read or run, or hides where its pieces stand.
    #[error("chat template `{path}`: {detail}")]
    ChatTemplate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The record of how a model is asked cannot be read, or contradicts another.
    #[error("prompt form of `{path}`: {detail}")]
    Form {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A model folder says nothing about its chat format.
    #[error(
        "`{path}` does not say in which chat format the model is asked: neither prompt_form.json nor a chat template"
    )]
    NoChat {
        /// The folder.
        path: PathBuf,
    },
    /// Prompts in another form than the model was trained with.
    #[error("prompts `{path}`: {detail}")]
    OtherPrompts {
        /// The folder with the prompts.
        path: PathBuf,
        /// Found and expected.
        detail: String,
    },
    /// A message of a conversation is not what it should be.
    #[error("message {message} (from 0): `{field}`: {detail}")]
    Message {
        /// Its position.
        message: usize,
        /// The field.
        field: &'static str,
        /// Found and expected.
        detail: String,
    },
    /// Encoding, decoding or training failed inside the library.
    #[error("tokenizer: {0}")]
    Encode(String),
    /// A template family or version that does not exist.
    #[error("no template v{version} in family `{family}`; known: {known}")]
    NoTemplate {
        /// The family or folder.
        family: String,
        /// The version asked for.
        version: u8,
        /// The versions there are.
        known: String,
    },
    /// A template does not parse or does not render.
    #[error("template v{version} of family `{family}`: {detail}")]
    Template {
        /// The family or folder.
        family: String,
        /// The version.
        version: u8,
        /// What the template engine said.
        detail: String,
    },
    /// Two versions say the same, so that a stage would see another's template.
    #[error("templates v{first} and v{second} of family `{family}` are the same; no two stages share a template")]
    SameTemplate {
        /// The family or folder.
        family: String,
        /// The one.
        first: u8,
        /// The other.
        second: u8,
    },
    /// The file with the domain blocks cannot be used.
    #[error("domain blocks `{path}`: {detail}")]
    Domains {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A stage asks for the template of another stage.
    #[error("template v{version} belongs to {owner}, not to {stage}: v0 is for rl, v1 for cpt, v2 and higher for sft")]
    StageVersion {
        /// The version asked for.
        version: u8,
        /// The stage that asked.
        stage: Stage,
        /// The stage it belongs to.
        owner: Stage,
    },
    /// A config value does not fit the others.
    #[error("render config: `{field}`: {detail}")]
    Config {
        /// The key.
        field: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// A turn that the trajectory does not have.
    #[error("trajectory {trajectory_id} has {turns} turns, turn {turn} (from 0) was asked for")]
    NoTurn {
        /// The trajectory.
        trajectory_id: String,
        /// How many turns it has.
        turns: usize,
        /// The turn asked for.
        turn: usize,
    },
    /// One document cannot be made.
    #[error("trajectory {trajectory_id}, turn {turn}: {refusal}")]
    Refused {
        /// The trajectory.
        trajectory_id: String,
        /// The target turn, from 0; 0 for whole trajectories.
        turn: usize,
        /// Why.
        refusal: Refusal,
    },
    /// Too many documents have nothing to train on.
    #[error(
        "`{path}`: {empty} of {documents} documents have nothing to train on ({reasons}), more than `max_empty_share` {limit} allows"
    )]
    TooManyEmpty {
        /// The pool file.
        path: PathBuf,
        /// Documents without a target.
        empty: u64,
        /// All documents.
        documents: u64,
        /// Counts by reason.
        reasons: String,
        /// The share allowed.
        limit: f64,
    },
    /// Too many documents are in no row or prompt.
    #[error(
        "`{path}`: {lost} of {documents} documents are left out ({reasons}), more than `max_lost_share` {limit} allows"
    )]
    TooManyLost {
        /// The pool file.
        path: PathBuf,
        /// Documents left out.
        lost: u64,
        /// All documents.
        documents: u64,
        /// Counts by reason.
        reasons: String,
        /// The share allowed.
        limit: f64,
    },
    /// Nothing is left.
    #[error("`{path}`: no row can be made of its {documents} documents ({reasons})")]
    NothingLeft {
        /// The pool file.
        path: PathBuf,
        /// All documents.
        documents: u64,
        /// Counts by reason.
        reasons: String,
    },
}

impl Error {
    /// What to do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NoChat { .. } => Some("say it with --chat or `chat`, such as chatml"),
            Error::NoTextEnd { .. } => Some("name it as `eos_token` in the tokenizer_config.json beside the tokenizer"),
            Error::OtherPrompts { .. } => Some("render the prompts as the rows that the model was trained on"),
            Error::TooManyLost { .. } => {
                Some("longer rows or prompts, or `long = \"cut_turns\"`, keep more; `max_lost_share` allows it")
            }
            _ => None,
        }
    }
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;
