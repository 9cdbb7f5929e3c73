//! A checkpoint as an engine: the arguments that `simulate`, `serve` and `evaluate bench` share.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use worldloom_world::engine::{Engine, EngineConfig};
use worldloom_world::{Asked, ChatForm, FormSettings, Limits, Precision, WorldModel};

use crate::config::UserError;
use crate::device::cpu;

/// Adds the arguments.
pub(crate) fn model_args(command: Command, model_is_required: bool) -> Command {
    let number = |id: &'static str, value: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").default_value(value).value_parser(value_parser!(usize)).help(help)
    };
    let path = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("DIR").value_parser(value_parser!(PathBuf)).help(help)
    };
    command
        .arg(path("model", "Checkpoint folder, or the artifact of a training").required(model_is_required))
        .arg(
            Arg::new("plain")
                .long("plain")
                .action(ArgAction::SetTrue)
                .help("The checkpoint answers without thinking and tags, as after CPT"),
        )
        .arg(
            Arg::new("family")
                .long("family")
                .value_name("NAME")
                .help("Bundled templates; default: those that the model was trained with"),
        )
        .arg(path("templates", "Folder of templates, in place of a bundled family").conflicts_with("family"))
        .arg(
            Arg::new("chat")
                .long("chat")
                .value_name("FORMAT")
                .value_parser(|name: &str| name.parse::<ChatForm>())
                .help("Chat format, such as chatml or qwen3; default: the one that the model was trained in"),
        )
        .arg(
            Arg::new("precision")
                .long("precision")
                .value_name("TYPE")
                .default_value("f32")
                .value_parser(["f32", "bf16"])
                .help("What the matrices are held in; bf16 takes half the memory and rounds what has more bits"),
        )
        .arg(number("max-active", "64", "Completions that advance together: speed and memory"))
        .arg(number("max-cache-tokens", "131072", "Positions in all caches together: memory"))
        .arg(number("prefix-tokens", "65536", "Positions of computed prompts that are kept for later ones"))
}

/// How the checkpoint is asked.
pub(crate) fn asked(matches: &ArgMatches) -> Asked {
    if matches.get_flag("plain") { Asked::Plain } else { Asked::Tagged }
}

/// Loads the checkpoint and starts its engine.
pub(crate) fn start_engine(matches: &ArgMatches, max_waiting: usize) -> Result<Engine> {
    let folder = matches.get_one::<PathBuf>("model").ok_or_else(|| UserError::new("--model DIR is missing"))?;
    let folder = crate::steps::model_folder(folder);
    if !folder.join("config.json").exists() {
        let error = UserError::new(format!("`{}` holds no config.json", folder.display()));
        return Err(error.hint("give the folder of an export, or of a `train` step").into());
    }
    let form = FormSettings {
        chat: matches.get_one("chat").copied(),
        family: matches.get_one("family").cloned(),
        templates: matches.get_one("templates").cloned(),
    };
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    let limits = Limits { max_active_sequences: number("max-active"), max_cache_tokens: number("max-cache-tokens") };
    if limits.max_active_sequences == 0 {
        return Err(UserError::new("--max-active 0, expected at least 1").into());
    }
    let precision = match matches.get_one::<String>("precision").map(String::as_str) {
        Some("bf16") => Precision::BF16,
        _ => Precision::F32,
    };
    let model = WorldModel::load(&folder, &form, precision, &cpu()).context("load the model")?;
    let model = model.with_limits(limits);
    let config = EngineConfig { max_waiting, prefix_tokens: number("prefix-tokens") };
    Engine::start(Arc::new(model), config).context("start the engine")
}
