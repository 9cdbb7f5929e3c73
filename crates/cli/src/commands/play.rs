//! How an environment is played: the arguments that `simulate` and `serve` share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use worldloom_schema::Domain;
use worldloom_world::episode::{Play, Scenario};

use super::world::asked;
use crate::config::UserError;

/// Adds the arguments.
pub(crate) fn play_args(command: Command) -> Command {
    let text =
        |id: &'static str, name: &'static str, help: &'static str| Arg::new(id).long(id).value_name(name).help(help);
    command
        .arg(
            text("domain", "DOMAIN", "Domain of an environment: mcp, search, terminal, swe, android, web or os")
                .default_value("terminal"),
        )
        .arg(
            text("scenario", "FILE", "JSON file with the whole scenario: state, tools, hidden state, control, trouble")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("domain"),
        )
        .arg(
            text("temperature", "T", "Temperature of environments; 0 takes the most probable token")
                .default_value("0")
                .value_parser(value_parser!(f32)),
        )
        .arg(
            text("max-new-tokens", "N", "Longest completion of a step, thinking included")
                .default_value("512")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            text("attempts", "N", "Completions drawn until one holds a prediction")
                .default_value("3")
                .value_parser(value_parser!(u32)),
        )
}

/// How the model is asked for a step.
pub(crate) fn play(matches: &ArgMatches) -> Play {
    Play {
        asked: asked(matches),
        max_new_tokens: matches.get_one("max-new-tokens").copied().unwrap_or_default(),
        temperature: matches.get_one("temperature").copied().unwrap_or_default(),
        attempts: matches.get_one("attempts").copied().unwrap_or_default(),
    }
}

/// The scenario of the file, or an empty one of the domain.
pub(crate) fn scenario(matches: &ArgMatches) -> Result<Scenario> {
    if let Some(path) = matches.get_one::<PathBuf>("scenario") {
        return read_scenario(path);
    }
    let domain = matches.get_one::<String>("domain").map_or("terminal", String::as_str);
    Ok(Scenario::of(domain.parse::<Domain>().map_err(|error| UserError::new(format!("--domain: {error}")))?))
}

fn read_scenario(path: &Path) -> Result<Scenario> {
    let text = fs_err::read_to_string(path).map_err(|error| UserError::new(error.to_string()))?;
    let read = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&text));
    Ok(read.map_err(|error| UserError::new(format!("`{}`: `{}`: {}", path.display(), error.path(), error.inner())))?)
}
