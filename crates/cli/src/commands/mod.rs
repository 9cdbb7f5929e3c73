//! From parsed arguments to work, and from errors to exit codes.

pub(crate) mod bench;
pub(crate) mod doctor;
mod explain;
mod forecast;
pub(crate) mod horizon;
mod inspect;
mod model;
mod parity;
mod pipelines;
mod play;
mod record;
mod report;
pub(crate) mod serve;
pub(crate) mod simulate;
mod step;
pub(crate) mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::ArgMatches;
use tracing_subscriber::filter::LevelFilter;

use crate::args::command;
use crate::config::UserError;
use crate::device::Place;
use crate::job::{Job, Teller};
use crate::signals::Signals;
use crate::steps::find_step;

/// Parses, runs, reports; the only place that decides an exit code.
pub(crate) fn main() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // clap prints help to stdout and mistakes to stderr.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let job = match Job::open(&matches) {
        Ok(job) => job,
        Err(error) => {
            print_error(&error, &Teller::Program);
            return ExitCode::from(2);
        }
    };
    start_log(matches.get_count("verbose"), &job);
    let signals = Signals::catch();
    // A panic in one of several processes must not leave the others waiting.
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&matches, &job, &signals.stop)));
    let code = match &outcome {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => {
            let teller = job.teller(error);
            if teller == Teller::Another {
                // It ends this process too, when its words are out.
                return ExitCode::FAILURE;
            }
            print_error(error, &teller);
            let is_user_error = error.chain().any(|cause| cause.is::<UserError>());
            signals.exit_code().unwrap_or(if is_user_error { 2 } else { 1 })
        }
        Err(_) => PANICKED,
    };
    job.end_all(code);
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(_) => ExitCode::from(code),
    }
}

/// What `--device` is for.
const ON_DEVICES: [&str; 4] = ["run", "plan", "train", "doctor"];

/// The exit code of a program of Rust that panicked.
const PANICKED: u8 = 101;

fn run(matches: &ArgMatches, job: &Job, stop: &Arc<AtomicBool>) -> Result<()> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(()) };
    if let Some(place) = matches.get_one::<Place>("device").filter(|place| !place.is_cpu())
        && !ON_DEVICES.contains(&name)
    {
        let error = UserError::new(format!("--device {place}: `{name}` computes on the CPU"));
        return Err(error.hint("leave it out; `train cpt`, `train sft`, `train rl` and `run` take it").into());
    }
    match name {
        "run" => pipelines::run_pipeline(matches, stop),
        "plan" => pipelines::print_plan(matches),
        "record" => record::record(matches),
        "report" if matches.get_one::<PathBuf>("RUN").is_some() => report::report_run(matches),
        "inspect" => match matches.subcommand() {
            Some(("model", matches)) => model::inspect_model(matches),
            _ => inspect::inspect(matches),
        },
        "bench-rows" => bench::write_bench_rows(matches),
        "evaluate" if matches.subcommand_name() != Some("pool") => match matches.subcommand() {
            Some(("bench", matches)) => bench::evaluate_bench(matches, stop),
            Some((_, matches)) => horizon::evaluate_horizon(matches),
            None => Ok(()),
        },
        "serve" => serve::serve(matches, stop),
        "simulate" => simulate::simulate(matches, stop),
        "doctor" => doctor::doctor(matches),
        "formats" => {
            print_formats();
            Ok(())
        }
        "worker" | "scheduler" => crate::cluster::become_part(name, matches),
        name => match find_step(name) {
            Ok(found) => step::run_command(found, matches, job, stop),
            Err(_) => {
                let (inner, matches) = matches.subcommand().unwrap_or((name, matches));
                step::run_command(find_step(&format!("{name} {inner}"))?, matches, job, stop)
            }
        },
    }
}

fn print_formats() {
    for format in worldloom_ingest::formats() {
        println!("{:16} {}", format.name, format.description);
        format.example.lines().for_each(|line| println!("{:16} e.g. {line}", ""));
    }
}

fn start_log(verbosity: u8, job: &Job) {
    let level = match verbosity {
        _ if !job.is_first() => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false).init();
}

/// Hints about how models are asked, from wherever they are asked.
fn asked_hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    use worldloom_world::Error::Render;
    let error = match cause.downcast_ref::<worldloom_world::Error>() {
        Some(Render(error)) => Some(error),
        _ => cause.downcast_ref::<worldloom_render::Error>(),
    };
    error?.hint().map(String::from)
}

/// One `error:` line with its causes, and a `hint:` where there is one.
fn print_error(error: &anyhow::Error, teller: &Teller) {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // A transparent wrapper repeats its source.
        if parts.last().is_none_or(|last| !last.ends_with(&text)) {
            parts.push(text);
        }
    }
    if let Teller::Rank(rank) = teller {
        parts.insert(0, format!("rank {rank}"));
    }
    eprintln!("error: {}", parts.join(": "));
    let hint = error.chain().find_map(|cause| {
        let ours = cause.downcast_ref::<UserError>().and_then(|error| error.hint.clone());
        let ingest = || cause.downcast_ref::<worldloom_ingest::Error>()?.hint();
        let curate = || cause.downcast_ref::<worldloom_curate::Error>()?.hint();
        ours.or_else(ingest).or_else(curate).or_else(|| asked_hint(cause))
    });
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
}
