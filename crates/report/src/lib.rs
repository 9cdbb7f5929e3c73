//! Run folders to tables, figures and one HTML page.
//!
//! [`run`] reads what the steps of a pipeline left behind (`evaluation.json`, `metrics.jsonl`, `report.json`) and writes
//! `report.html`, one file without a network address in it, and `report.json` with the figures of its tables.
//! [`table`] is the same stage table as text for a terminal. [`data`] shows trajectory files, [`shard`] token rows. Nothing here measures anything: the numbers come from
//! `world::evaluate` and the trainers.

mod chart;
mod curves;
pub mod data;
mod error;
mod figures;
mod html;
mod page;
mod run;
pub mod shard;
mod terminal;

pub use error::{Error, Result};
pub use run::{HTML_FILE, REPORT_FILE, Report, ReportConfig, ReportInput, run};
pub use terminal::table;
