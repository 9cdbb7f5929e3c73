//! Trajectory files for a person to look at: which trajectories there are, one in full, and their figures.
//!
//! A *data set* is a trajectory file, a pool, or a folder of them. [`DataSet::visit`] streams what a [`Filter`] lets
//! through; [`Stats`] counts it by domain and source; [`page`] is a few of them as one HTML page.

mod filter;
mod page;
mod set;
mod stats;

pub use filter::Filter;
pub use page::{PageOptions, page};
pub use set::{DataSet, Place};
pub use stats::{GroupStats, Lengths, Stats};
