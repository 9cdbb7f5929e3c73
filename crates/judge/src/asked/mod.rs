//! Judges that are models: they are asked in words, and answer with a JSON object between tags.
//!
//! [`JudgePrompts`] says what they are shown (never the thinking of a completion), a [`Respondent`] carries questions to
//! a model and its answers back ([`EndpointRespondent`] over HTTP; `world` has one for a checkpoint in process), and
//! [`ModelJudge`] reads the answers by the strict policy ([`read_scores`]) and asks again where there is nothing to
//! read. [`compare`] asks which of two predictions is nearer to the truth; [`pick_real`] and [`could_be_real`] ask without
//! showing which text is the truth.

mod blind;
mod http;
mod judge;
mod pairs;
mod prompts;
mod reading;

pub use blind::{Picked, could_be_real, pick_real};
pub use http::EndpointRespondent;
pub use judge::{ModelJudge, Respondent, Said};
pub use pairs::{Pair, compare};
pub use prompts::{JudgePrompts, Shown};
pub use reading::{Reading, read_scores};
