//! `run` and `plan`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ArgMatches;

use super::forecast::forecast;
use crate::config::{UserError, nearest};
use crate::pipeline::{Missing, Pipeline, Planned, Reason, plan, run};
use crate::progress::duration;
use crate::steps::place_of;

pub(super) fn run_pipeline(matches: &ArgMatches, stop: &AtomicBool) -> Result<()> {
    let started = Instant::now();
    let (pipeline, planned) = planned(matches, Missing::Refused)?;
    for step in planned.iter().filter(|step| step.reason.is_some()) {
        place_of(&step.config)?.find().with_context(|| format!("step `{}`", step.name))?;
    }
    eprintln!("{}: {} steps{}", pipeline.name, planned.len(), describe(&pipeline));
    let made = run(&planned, stop)?;
    let seconds = duration(started.elapsed().as_secs_f64());
    eprintln!("{}: {} steps run, {} done before, in {seconds}", pipeline.name, made.ran, made.skipped);
    for step in planned.iter().filter(|step| step.step.artifact() == "evaluation") {
        print!("\n{}", worldloom_report::table(&worldloom_schema::Evaluation::read(&step.folder)?));
    }
    for step in planned.iter().filter(|step| matches!(step.step.artifact(), "report" | "export")) {
        println!("{}: {}", step.name, step.folder.display());
    }
    Ok(())
}

pub(super) fn print_plan(matches: &ArgMatches) -> Result<()> {
    let (pipeline, planned) = planned(matches, Missing::Shown)?;
    println!("{}{}", pipeline.name, describe(&pipeline));
    let file = matches.get_one::<PathBuf>("PIPELINE").cloned().unwrap_or_default();
    let width = planned.iter().map(|step| step.name.len()).max().unwrap_or(0);
    let mut runs = 0;
    for step in &planned {
        runs += usize::from(step.reason.is_some());
        let what = match &step.reason {
            None => "done".to_string(),
            Some(reason @ Reason::Waits(_)) => reason.to_string(),
            Some(reason) => format!("runs: {reason}"),
        };
        println!("  {:width$}  {:14}  {what}  ({})", step.name, step.step.name(), step.folder.display());
        for line in forecast(step, &planned, file.parent().unwrap_or(Path::new(".")))? {
            println!("  {:width$}  {:14}  {line}", "", "");
        }
    }
    println!("{runs} of {} steps would run", planned.len());
    Ok(())
}

fn planned(matches: &ArgMatches, missing: Missing) -> Result<(Pipeline, Vec<Planned>)> {
    let file = matches.get_one::<PathBuf>("PIPELINE").map(PathBuf::as_path).unwrap_or(Path::new(""));
    let runs = matches.get_one::<PathBuf>("runs").map(PathBuf::as_path).unwrap_or(Path::new("runs"));
    let settings: Vec<String> = matches.get_many("set").unwrap_or_default().cloned().collect();
    let pipeline = Pipeline::read(file, &settings)?;
    if pipeline.step.is_empty() {
        return Err(UserError::new(format!("`{}` has no steps", file.display())).into());
    }
    let mut planned = plan(&pipeline, file, runs, missing, matches.get_one("device").copied())?;
    if let Some(step) = matches.get_one::<String>("until") {
        keep_until(&mut planned, step)?;
    }
    Ok((pipeline, planned))
}

/// Leaves out what the last step is not made from.
fn keep_until(planned: &mut Vec<Planned>, last: &str) -> Result<()> {
    let Some(at) = planned.iter().position(|step| step.name == last) else {
        let names: Vec<&str> = planned.iter().map(|step| step.name.as_str()).collect();
        let error = UserError::new(format!("--until: no step `{last}` in the pipeline"));
        return Err(match nearest(last, names.iter().copied()) {
            Some(name) => error.hint(format!("did you mean `{name}`?")),
            None => error.hint(format!("steps are: {}", names.join(", "))),
        }
        .into());
    };
    planned.truncate(at + 1);
    // A step comes after its inputs.
    let mut needed = BTreeSet::from([planned[at].folder.clone()]);
    for step in planned.iter().rev() {
        if needed.contains(&step.folder) {
            needed.extend(step.inputs.values().map(|input| input.path.clone()));
        }
    }
    planned.retain(|step| needed.contains(&step.folder));
    Ok(())
}

fn describe(pipeline: &Pipeline) -> String {
    if pipeline.description.is_empty() { String::new() } else { format!(": {}", pipeline.description) }
}
