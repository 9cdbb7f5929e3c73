//! `bench-rows`: rows in the benchmark's format from any pool, so that a user has a benchmark of their own environments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;
use worldloom_judge::bench::ROWS_SUFFIX;
use worldloom_render::{Templates, bench_turn};
use worldloom_schema::{TableReader, Trajectory};

use crate::config::UserError;

/// The command line.
pub(crate) fn command() -> Command {
    let path = |id: &'static str, name: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name(name).value_parser(value_parser!(PathBuf)).help(help)
    };
    let number = |id: &'static str, value: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").default_value(value).value_parser(value_parser!(usize)).help(help)
    };
    Command::new("bench-rows")
        .about("Write rows in AgentWorldBench's format from a pool of your own, for `evaluate bench`")
        .arg(path("pool", "FILE", "Parquet file of trajectories, such as the eval pool of `curate`").required(true))
        .arg(path("out", "DIR", "Folder for DOMAIN_test.jsonl").required(true))
        .arg(number("turns", "5", "Turns of each trajectory: the first, the last and some between, evenly; 0: all"))
        .arg(number("limit", "0", "Rows of each domain at most, of evenly spread trajectories; 0: all"))
        .arg(Arg::new("family").long("family").value_name("NAME").default_value("compact").help("Bundled templates"))
        .arg(path("templates", "DIR", "Folder of templates, in place of a bundled family").conflicts_with("family"))
}

/// Writes the files.
pub(crate) fn write_bench_rows(matches: &ArgMatches) -> Result<()> {
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned().unwrap_or_default();
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    let templates = match matches.get_one::<PathBuf>("templates") {
        Some(folder) => Templates::from_folder(folder)?,
        None => Templates::bundled(matches.get_one::<String>("family").map_or("compact", String::as_str))?,
    };
    let (mut by_domain, mut left_out): (BTreeMap<&str, Vec<Vec<String>>>, u64) = Default::default();
    for trajectory in TableReader::<Trajectory>::open(&path("pool"))? {
        let trajectory = trajectory?;
        let mut rows = Vec::new();
        for turn in spread(trajectory.turns.len(), number("turns")) {
            match bench_turn(&templates, &trajectory, turn)? {
                Some(found) if trajectory.turns[turn].keep != Some(false) => {
                    let row = json!({
                        "task": trajectory.domain,
                        "id": trajectory.trajectory_id,
                        "prompt": found.prompts,
                        "response": found.responses,
                        "current_prompt": found.current_prompt,
                        "system_str": found.system,
                        "turn_idx": turn + 1,
                        "total_turns": trajectory.turns.len(),
                    });
                    rows.push(row.to_string());
                }
                _ => left_out += 1,
            }
        }
        by_domain.entry(trajectory.domain.as_str()).or_default().push(rows);
    }
    if by_domain.values().flatten().all(Vec::is_empty) {
        return Err(UserError::new(format!("`{}` gives no rows", path("pool").display())).into());
    }
    let out = path("out");
    fs_err::create_dir_all(&out)?;
    for (domain, trajectories) in by_domain {
        let file = out.join(format!("{domain}{ROWS_SUFFIX}"));
        let rows = limited(trajectories, number("limit"));
        let mut writer = BufWriter::new(fs_err::File::create(&file)?);
        rows.iter().try_for_each(|row| writeln!(writer, "{row}"))?;
        writer.flush()?;
        println!("{:24} {}", file.display(), rows.len());
    }
    println!("{:24} {left_out}", "turns left out");
    Ok(())
}

/// The first, the last and evenly spread turns between; all of them for 0.
fn spread(len: usize, most: usize) -> Vec<usize> {
    match (len, most) {
        (0, _) => Vec::new(),
        (_, 0) => (0..len).collect(),
        (_, 1) => vec![len - 1],
        _ if most >= len => (0..len).collect(),
        _ => (0..most).map(|at| at * (len - 1) / (most - 1)).collect::<BTreeSet<_>>().into_iter().collect(),
    }
}

/// Rows of evenly spread trajectories, whole trajectories first to last, up to `most`.
fn limited(trajectories: Vec<Vec<String>>, most: usize) -> Vec<String> {
    let total: usize = trajectories.iter().map(Vec::len).sum();
    if most == 0 || total <= most {
        return trajectories.into_iter().flatten().collect();
    }
    let wanted = (trajectories.len() * most).div_ceil(total).max(1);
    let chosen = spread(trajectories.len(), wanted);
    let rows = chosen.into_iter().flat_map(|at| trajectories[at].clone());
    rows.take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn turns_are_spread_from_the_first_to_the_last() {
        assert_eq!(spread(0, 5), [0; 0]);
        assert_eq!(spread(1, 5), [0]);
        assert_eq!(spread(4, 5), [0, 1, 2, 3]);
        assert_eq!(spread(9, 5), [0, 2, 4, 6, 8]);
        assert_eq!(spread(100, 3), [0, 49, 99]);
        assert_eq!(spread(9, 0), (0..9).collect::<Vec<_>>());
        assert_eq!(spread(9, 1), [8]);
    }
}
