//! AgentWorldBench: rows in, the published evaluator's numbers out.
//!
//! Everything here is `compat`: what the published script does with messages, predictions, replies and scores, its odd
//! cases included, held by goldens that were made with it (`tests/golden/bench`). RL does not judge like this: see
//! [`extract`](crate::extract()) and [`Scores`](crate::Scores) for the strict way.
//!
//! A *row* is one turn to predict ([`BenchRow`]). Asked for messages it gives what the script would send; a completion
//! becomes a prediction ([`extract_prediction`]) and a question to the judge ([`JudgePrompts`]); the judge's reply
//! becomes five scores ([`read_reply`]), and judged rows a table ([`aggregate`]).

mod aggregate;
mod files;
mod json;
mod prediction;
mod prompts;
mod python;
mod ratio;
mod reply;
mod row;
mod run;

pub use aggregate::{BenchScores, Bootstrap, COLUMNS, DomainScores, aggregate, to_text};
pub use files::{FileFault, ROWS_SUFFIX, read_rows, write_rows};
pub use json::{Failure, parse};
pub use prediction::{DOMAINS, MARKER, NO_OUTPUT, extract_prediction, without_marker};
pub use prompts::{JudgePrompts, PromptFault};
pub use python::Value;
pub use reply::{Evaluation, ReplyFault, read_reply};
pub use row::{BenchRow, JudgeParts, JudgeRequest, Message, RowFault};
pub use run::{Counts, Progress, completion_of, infer_rows, judge_rows, judge_rows_builtin, refuse, set_completion};
