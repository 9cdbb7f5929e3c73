//! `inspect data|stats|shard`: looks into trajectory files and token rows, in the terminal, as JSON or as a page.

mod browse;
mod draw;
mod scan;
mod shard;
mod text;
mod view;

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::ArgMatches;
use worldloom_report::data::{DataSet, Filter, PageOptions, Stats, page};
use worldloom_schema::{Domain, Pool};

use crate::config::UserError;

pub(super) fn inspect(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("data", matches)) => data(matches),
        Some(("stats", matches)) => stats(matches),
        Some(("shard", matches)) => shard::shard(matches),
        _ => Ok(()),
    }
}

fn data(matches: &ArgMatches) -> Result<()> {
    let (set, filter) = (open(matches)?, filter(matches)?);
    let limit = matches.get_one::<u64>("limit").copied();
    if let Some(path) = matches.get_one::<PathBuf>("html") {
        let title = format!("Trajectories of {}", source(matches).display());
        let html = page(&set, &filter, &PageOptions { title, limit: limit.unwrap_or(100) })?;
        fs_err::write(path, html)?;
        eprintln!("written to {}", path.display());
        return Ok(());
    }
    if matches.get_flag("json") {
        return print_lines(&set, &filter, limit.unwrap_or(u64::MAX));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let error = UserError::new("`inspect data` shows its view on a terminal, and there is no terminal here");
        return Err(error.hint("--json prints trajectories as lines, --html FILE writes a page").into());
    }
    browse::browse(&set, filter)
}

/// One trajectory a line. A reader that goes away ends it quietly.
fn print_lines(set: &DataSet, filter: &Filter, limit: u64) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut printed, mut failed) = (0, None);
    if limit == 0 {
        return Ok(());
    }
    set.visit(filter, |_, trajectory| {
        let line = serde_json::to_string(&trajectory).map_err(std::io::Error::other);
        if let Err(error) = line.and_then(|line| writeln!(out, "{line}")) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        printed += 1;
        if printed < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let result = failed.map_or(Ok(()), Err).and_then(|()| out.flush());
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("write trajectories"),
    }
}

fn stats(matches: &ArgMatches) -> Result<()> {
    let (set, filter) = (open(matches)?, filter(matches)?);
    let mut stats = Stats::default();
    set.visit(&filter, |_, trajectory| {
        stats.add(&trajectory);
        ControlFlow::Continue(())
    })?;
    match matches.get_flag("json") {
        true => println!("{}", serde_json::to_string_pretty(&stats)?),
        false => print!("{}", stats.table()),
    }
    Ok(())
}

fn source(matches: &ArgMatches) -> PathBuf {
    matches.get_one::<PathBuf>("PATH").cloned().unwrap_or_default()
}

fn open(matches: &ArgMatches) -> Result<DataSet> {
    let path = source(matches);
    let hint = "a trajectories.parquet of `ingest`, a pool of `curate`, or a folder of them";
    DataSet::open(&path).map_err(|error| UserError::new(error.to_string()).hint(hint).into())
}

fn filter(matches: &ArgMatches) -> Result<Filter> {
    let given = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<String>>();
    let mut filter = Filter { sources: given("source"), ..Filter::default() };
    for name in given("domain") {
        filter.domains.push(Domain::from_str(&name).map_err(UserError::new)?);
    }
    for name in given("pool") {
        let pool = Pool::ALL.into_iter().find(|pool| pool.as_str() == name);
        let unknown = || UserError::new(format!("unknown pool `{name}`; known: cpt, sft, rl, eval"));
        filter.pools.push(pool.ok_or_else(unknown)?);
    }
    filter.text = given("text").concat();
    Ok(filter)
}
