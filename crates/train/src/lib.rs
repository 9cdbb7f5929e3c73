//! The stage loops on token ids: `cpt` and `sft` are [`supervised`], `rl` is [`rl`].
//!
//! Words: a *step* is one update of the weights for the supervised stages and one batch of rollouts for RL; steps count
//! from 1 in everything that is shown. A *micro-batch* is what goes through the decoder at once; splitting a step into
//! micro-batches changes nothing but rounding. A *run* is a folder that survives a kill: calling the same loop on the
//! same folder goes on from its last checkpoint and ends with the same bytes.
//!
//! Several processes may share a training: each is a *rank*, see [`Ranks`].
//!
//! The crate sees token ids, weights, layouts and rewards. It knows no text, tokenizer, template or judge.

pub mod rl;
pub mod supervised;

mod batch;
mod checkpoint;
mod data;
mod error;
mod events;
mod guard;
mod lanes;
mod learner;
mod memory;
mod metrics;
mod optimizer;
mod order;
mod parity;
mod plan;
mod ranks;
mod run;
mod schedule;
mod seeds;
mod validation;

pub use batch::Batch;
pub use checkpoint::{CheckpointConfig, LINEAGE};
pub use data::{Data, Labels, Lost, Part, Rows};
pub use error::{Error, Result};
pub use guard::GuardConfig;
pub use memory::Memory;
pub use metrics::{Clock, Control, Observer, RouterMetrics, Silent, StartInfo, StepClock, StepMetrics};
pub use optimizer::{MuonConfig, Optimizer, OptimizerConfig, ParameterGroup};
pub use order::Order;
pub use parity::{Parity, parity};
pub use plan::{Attribute, Curriculum};
pub use ranks::{Alone, Ranks, agree};
pub use run::{Job, Report, loaded_in};
pub use schedule::{Schedule, Shape};
pub use seeds::{Purpose, split_seed};
pub use validation::{Score, Validation};
