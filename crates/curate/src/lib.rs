//! Trajectories to disjoint pools as DataFusion plans.
//!
//! Words: a *rule* drops a trajectory or removes a turn, and is counted. The *turn mask* classes turns by how much of
//! the observation the action already says, and draws which of them CPT trains (recipe.md §1.5). A *group* is the set of
//! trajectories of one task group; it is in one *pool*. A *target* is a turn that SFT or RL predicts.
//!
//! The relational part (rules, duplicates, classes, draws, targets) is the list of plans in `plans.rs`; it never holds
//! more than facts about turns. `apply.rs` carries the decisions back to the trajectories.

mod apply;
mod config;
mod engine;
mod error;
mod functions;
mod groups;
mod mask;
mod measures;
mod plans;
mod proof;
mod report;
mod run;

pub use config::{CurateConfig, PoolShares, TurnsPerTrajectory};
pub use error::{Error, Result};
pub use mask::{Comparison, MaskRule, Measure, Test, TurnMask};
pub use measures::{Measures, measure};
pub use report::{KeepCounts, PoolReport, Report, SharedBetween};
pub use run::{pool_file, run, run_with_threads};
