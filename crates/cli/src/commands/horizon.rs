//! `evaluate horizon`: scripts played inside the model on its own predictions, beside what really came of them.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use worldloom_schema::{Interval, TableReader, Trajectory};
use worldloom_world::episode::Play;
use worldloom_world::horizon;

use super::world::{asked, model_args, start_engine};
use crate::config::UserError;
use crate::progress::Progress;

/// The command line.
pub(crate) fn command() -> Command {
    let path = |id: &'static str, name: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name(name).value_parser(value_parser!(PathBuf)).help(help)
    };
    let number = |id: &'static str, value: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").default_value(value).value_parser(value_parser!(usize)).help(help)
    };
    let command = Command::new("horizon")
        .about(
            "Play recorded scripts inside the model on its own predictions, and compare with what really came of them",
        )
        .arg(path("pool", "FILE", "Parquet file of trajectories, such as the eval pool of `curate`").required(true))
        .arg(path("out", "FILE", "Write the figures of every episode as JSON"))
        .arg(number("episodes", "200", "Episodes at most, evenly spread over the pool"))
        .arg(number("max-new-tokens", "512", "Longest completion"))
        .arg(number("resamples", "1000", "Bootstrap resamples"))
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("S")
                .default_value("7")
                .value_parser(value_parser!(u64))
                .help("Seed"),
        )
        .arg(
            Arg::new("temperature")
                .long("temperature")
                .value_name("T")
                .default_value("0")
                .value_parser(value_parser!(f32))
                .help("0 takes the most probable token"),
        );
    model_args(command, true)
}

/// Plays and prints.
pub(super) fn evaluate_horizon(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    let pool = matches.get_one::<PathBuf>("pool").cloned().unwrap_or_default();
    let all: Vec<Trajectory> = TableReader::<Trajectory>::open(&pool)?.collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(UserError::new(format!("`{}` holds no trajectories", pool.display())).into());
    }
    let count = number("episodes").clamp(1, all.len());
    let chosen: Vec<Trajectory> = (0..count).map(|at| all[at * all.len() / count].clone()).collect();
    let threads = number("max-active").max(1);
    let engine = start_engine(matches, threads)?;
    let how = Play {
        asked: asked(matches),
        max_new_tokens: number("max-new-tokens"),
        temperature: matches.get_one("temperature").copied().unwrap_or_default(),
        attempts: 1,
    };
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
    let progress = Progress::new("horizon");
    let hear = |done: u64, total: u64| progress.update(done, total);
    let found = horizon::play(&engine, &how, &chosen, seed, number("resamples"), threads, &hear)?;
    drop(progress);
    if let Some(out) = matches.get_one::<PathBuf>("out") {
        fs_err::write(out, format!("{:#}\n", serde_json::to_value(&found)?))?;
    }
    let percent = |interval: &Interval| {
        let [mean, low, high] = [interval.mean, interval.low, interval.high].map(|value| 100.0 * value);
        format!("{mean:.1} % ({low:.1}–{high:.1})")
    };
    let until = &found.steps_until_divergence;
    println!("{} episodes, {} steps, {} without a usable prediction", found.episodes, found.steps, found.faults);
    println!("{:24} {}", "steps that agree", percent(&found.agreement));
    println!("{:24} {:.2} ({:.2}–{:.2})", "steps until divergence", until.mean, until.low, until.high);
    println!("{:24} {}", "episodes that agree", percent(&found.whole));
    for (step, (share, episodes)) in found.by_step.iter().enumerate() {
        println!("  step {:3} {:16.1} % of {episodes}", step + 1, 100.0 * share);
    }
    Ok(())
}
