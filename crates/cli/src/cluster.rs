//! The parts of a cluster, which are a program of their own, `worldloom-cluster`: its gRPC stack and the engine's other
//! features are built only by those who want them (`cluster/`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use clap::ArgMatches;
use worldloom_curate::{Answer, Job, Report};

use crate::config::UserError;

const PROGRAM: &str = "worldloom-cluster";

/// Commands that are its own.
pub(crate) const COMMANDS: [(&str, &str); 2] = [
    ("worker", "Do tasks of `curate --cluster` for a scheduler (Ballista executor)"),
    ("scheduler", "Hand out tasks of `curate --cluster` to workers (Ballista scheduler)"),
];

/// Runs a curation whose plans a cluster runs; its files are written into `job.out`.
pub(crate) fn curate(job: &Job, progress: &dyn Fn(u64, u64)) -> Result<Report> {
    let mut program = command()?.arg("curate").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context(PROGRAM)?;
    if let Some(mut input) = program.stdin.take() {
        input.write_all(serde_json::to_string(job)?.as_bytes()).context(PROGRAM)?;
    }
    let mut last = None;
    for line in program.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.context(PROGRAM)?;
        match serde_json::from_str(&line).with_context(|| format!("{PROGRAM} said `{line}`"))? {
            Answer::Progress { done, total } => progress(done, total),
            answer => last = Some(answer),
        }
    }
    let status = program.wait().context(PROGRAM)?;
    match last {
        Some(Answer::Done) => {
            let text = fs_err::read_to_string(job.out.join("report.json"))?;
            serde_json::from_str(&text).context("read the report")
        }
        Some(Answer::Failed { error, hint: Some(hint) }) => Err(UserError::new(error).hint(hint).into()),
        Some(Answer::Failed { error, .. }) => Err(anyhow!(error)),
        _ => bail!("{PROGRAM} ended before the curation did: {status}"),
    }
}

/// Becomes a part of a cluster, until it ends.
pub(crate) fn become_part(name: &str, matches: &ArgMatches) -> Result<()> {
    let verbose = (0..matches.get_count("verbose")).map(|_| "-v");
    let options = matches.get_many::<String>("options").unwrap_or_default();
    Err(command()?.arg(name).args(verbose).args(options).exec()).context(PROGRAM)
}

/// The program beside this one, else one on the search path.
fn command() -> Result<Command> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(PROGRAM));
    let searched = std::env::var_os("PATH").unwrap_or_default();
    let all = beside.into_iter().chain(std::env::split_paths(&searched).map(|folder| folder.join(PROGRAM)));
    match all.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(Command::new(path)),
        None => {
            let error = UserError::new(format!("`{PROGRAM}` is neither beside this program nor on the search path"));
            Err(error.hint("build it with `cargo install --path cluster`").into())
        }
    }
}
