//! `ingest --explain FILE`: what was detected, and how the first trajectory came out.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ArgMatches;
use worldloom_ingest::{Explanation, IngestConfig};
use worldloom_schema::Trajectory;

use crate::steps::store_access;

/// Turns that are shown.
const TURNS: usize = 3;
/// Characters of a text that are shown.
const CHARS: usize = 400;

pub(super) fn explain(file: &Path, matches: &ArgMatches) -> Result<()> {
    let config = IngestConfig {
        inputs: vec![file.into()],
        format: matches.get_one::<String>("format").cloned(),
        map: matches.get_one::<PathBuf>("map").cloned(),
        max_reject_share: 1.0,
        strict: false,
    };
    let scratch = std::env::temp_dir();
    print(&worldloom_ingest::explain(&config, &scratch, &store_access())?);
    Ok(())
}

fn print(explanation: &Explanation) {
    println!("{:12} {} ({} in the input)", "file", explanation.file, count(explanation.files, "file"));
    println!("{:12} {}", "format", explanation.format.as_deref().unwrap_or("unknown"));
    if !explanation.shape.is_empty() {
        println!("{:12} {}, {} read", "shape", explanation.shape, count(explanation.rows, "row"));
    }
    for (name, number) in &explanation.counts {
        println!("{:12} {name} {number}", "counted");
    }
    for reject in explanation.rejects.iter().take(TURNS) {
        println!("{:12} row {} by `{}`: {}", "rejected", reject.row, reject.rule, short(&reject.detail));
    }
    match &explanation.trajectory {
        Some(trajectory) => print_trajectory(trajectory),
        None => println!("{:12} none", "trajectory"),
    }
}

fn print_trajectory(trajectory: &Trajectory) {
    println!("{:12} {} with {}", "trajectory", trajectory.trajectory_id, count(trajectory.turns.len() as u64, "turn"));
    println!("{:12} {}", "domain", trajectory.domain);
    println!("{:12} {}", "task group", trajectory.task_group);
    println!("{:12} {}", "task", short(&trajectory.system.task_description));
    let optional = [("tools", &trajectory.system.action_space), ("first state", &trajectory.system.initial_state)];
    for (name, text) in optional.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
        println!("{name:12} {}", short(text));
    }
    for turn in trajectory.turns.iter().take(TURNS) {
        println!("\n[{}] action ({:?})\n{}", turn.index, turn.action_kind, short(&turn.action));
        println!("[{}] observation ({:?})\n{}", turn.index, turn.observation_kind, short(&turn.observation));
        if !turn.flags.is_empty() || turn.is_error.is_some() {
            println!("[{}] flags {} error {:?}", turn.index, turn.flags.join(" "), turn.is_error);
        }
    }
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The beginning of a text, with what was left away.
fn short(text: &str) -> String {
    let total = text.chars().count();
    if total <= CHARS {
        return text.into();
    }
    let start: String = text.chars().take(CHARS).collect();
    format!("{start} … ({} more characters)", total - CHARS)
}
