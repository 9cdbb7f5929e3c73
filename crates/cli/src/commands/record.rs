//! `record`: drives a real environment.

use std::path::PathBuf;

use anyhow::Result;
use clap::ArgMatches;
use worldloom_record::terminal::{RecordConfig, record as record_terminal};

use crate::progress::Progress;

pub(super) fn record(matches: &ArgMatches) -> Result<()> {
    let Some(("terminal", matches)) = matches.subcommand() else { return Ok(()) };
    let config = RecordConfig {
        episodes: matches.get_one("episodes").copied().unwrap_or_default(),
        seed: matches.get_one("seed").copied().unwrap_or_default(),
        out: matches.get_one::<PathBuf>("out").cloned().unwrap_or_default(),
    };
    let progress = Progress::new("record");
    let summary = record_terminal(&config, &|done, total| progress.update(done, total))?;
    drop(progress);
    println!("{summary}");
    Ok(())
}
