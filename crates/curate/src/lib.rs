//! Trajectories to disjoint pools as DataFusion plans.
//!
//! Words: a *rule* drops a trajectory or removes a turn, and is counted. The *turn mask* classes turns by how much of
//! the observation the action already says, and draws which of them CPT trains (recipe.md §1.5). A *group* is the set of
//! trajectories of one task group; it is in one *pool*. A *target* is a turn that SFT or RL predicts. A *cluster* is a set
//! of near duplicates, of which one is kept. *Decontamination* drops training trajectories that share too much with
//! evaluation.
//!
//! The relational part (rules, duplicates, classes, draws, targets) is the list of plans in `plans/`; it never holds more
//! than facts about turns. `client.rs` decides between plans what is no relation: clusters, pools, quotas. `apply.rs`
//! carries the decisions back to the trajectories and masks secrets.

mod apply;
mod changes;
mod client;
mod client_table;
mod clusters;
mod config;
mod documents;
mod engine;
mod error;
mod evaluation_sets;
mod functions;
mod groups;
mod inputs;
mod job;
mod language;
mod mask;
mod measures;
mod minhash;
mod mixture;
mod overlap;
mod plans;
mod proof;
mod report;
mod rules;
mod run;
mod run_list;
mod secrets;
mod settings;
mod tools;
mod words;

pub use clusters::{Clusters, Member, Placed, Placement, UnionFind};
pub use config::{CurateConfig, PoolShares, TurnsPerTrajectory};
pub use documents::{DocumentReport, Documents};
pub use engine::{Cluster, Resources};
pub use error::{Error, Result};
pub use functions::register;
pub use job::{Answer, Job};
pub use mask::{Comparison, MaskRule, Measure, Test, TurnMask};
pub use measures::{Measures, measure};
pub use minhash::{MinHash, band_keys, rows_per_band, similarity};
pub use report::{FlowStep, KeepCounts, Lengths, PartReport, PoolReport, Report, SharedBetween};
pub use rules::{
    EnvironmentFailures, Field, Languages, Licences, NoChange, OwnPattern, Removes, RetryCycles, Rules,
    TRAJECTORY_RULES, TURN_RULES, UndeclaredTools,
};
pub use run::{pool_file, run};
pub use secrets::{Masker, SecretCounts, SecretKind, Secrets};
pub use settings::{Decontaminate, Limits, Mixture, MixtureKey, NearDuplicates};
