//! `record`: drives a real environment.

use std::path::PathBuf;

use anyhow::Result;
use clap::ArgMatches;
use worldloom_record::terminal::{Axis, RecordConfig, record as record_terminal};

use crate::progress::Progress;

pub(super) fn record(matches: &ArgMatches) -> Result<()> {
    let Some(("terminal", matches)) = matches.subcommand() else { return Ok(()) };
    let value = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default();
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    let named = matches.get_one::<String>("axis");
    let axis = Axis::ALL.into_iter().find(|axis| named.is_some_and(|name| name == axis.name()));
    let config = RecordConfig { axis, ..RecordConfig::new(value("episodes"), value("seed"), out) };
    let progress = Progress::new("record");
    let summary = record_terminal(&config, &|done, total| progress.update(done, total))?;
    drop(progress);
    println!("{:12} {}\n{:12} {}", "episodes", summary.episodes, "turns", summary.turns);
    for (class, turns) in &summary.classes {
        println!("{:12} {turns} ({:.1} %)", class, 100.0 * *turns as f64 / summary.turns.max(1) as f64);
    }
    println!("{:12} {}", "written to", config.out.display());
    Ok(())
}
