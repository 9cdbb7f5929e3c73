//! The trained model as an environment, text in and text out.
//!
//! Here token ids meet text again: a [`WorldModel`] renders a turn as a prompt, lets the model complete it and reads the
//! prediction out of the completion. An [`Engine`](engine::Engine) keeps it at work for many askers at once, and an
//! [`Episode`](episode::Episode) is played against it turn by turn. [`GeneratorSampler`] and [`JudgeScorer`] are what RL samples and scores with, and
//! [`evaluate`] measures checkpoints and trivial rules on the same turns, [`calibrate`] the judges. A [`Teacher`] writes what pools lack:
//! [`traces`] of thinking, and instructions ([`instruct`]).

pub mod calibrate;
pub mod engine;
pub mod episode;
pub mod evaluate;
pub mod horizon;
pub mod instruct;
pub mod traces;

mod chat;
mod error;
mod judges;
mod model;
mod prompts;
mod reference;
mod remote;
mod sampler;
mod scorer;
mod stream;
mod teacher;

pub use chat::refusal_text;
pub use error::{Error, Result};
pub use judges::{Asking, JudgeConfig, JudgePlace, Opened, open_endpoint, open_endpoint_without_cache};
pub use model::{Answer, Asked, Decoding, Fault, Question, WorldModel};
pub use prompts::{PromptConfig, PromptReport, add_truths, select_prompts};
pub use reference::Reference;
pub use remote::{ReloadConfig, RemoteConfig, RemoteSampler};
pub use sampler::{GeneratorSampler, rl_prompts};
pub use scorer::{JudgeScorer, ScorerConfig, SecondConfig};
pub use stream::{TextStream, ThinkingSplitter};
pub use teacher::{Reply, Teacher, TeacherConfig};
pub use worldloom_model::Precision;
pub use worldloom_model::generate::{Error as GenerateError, Generator, Limits, Request, Sampling};
pub use worldloom_render::{ChatForm, FormSettings, Role};
