//! What can be typed. Step commands are made from the step list, so they cannot drift from it.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};
use worldloom_record::terminal::Axis;

use crate::device::Place;
use crate::steps::{STEPS, Step};

const AFTER: &str = "\
The main job, raw logs in and an exported world model out:
  worldloom run pipelines/quickstart.toml

Exit codes: 0 done; 1 failed; 2 wrong arguments or config; 130 stopped by Ctrl-C, 143 by SIGTERM, work saved.";

/// The whole command line.
pub(crate) fn command() -> Command {
    let mut command = Command::new("worldloom")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Trains language world models from raw agent trajectories")
        .after_help(AFTER)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .arg(
            Arg::new("verbose")
                .short('v')
                .long("verbose")
                .global(true)
                .action(ArgAction::Count)
                .help("Log more (-vv: all)"),
        )
        .arg(
            Arg::new("device")
                .long("device")
                .value_name("PLACE")
                .global(true)
                .value_parser(|text: &str| text.parse::<Place>())
                .help("Where trainings compute: cpu (the default), wgpu, wgpu:1, vulkan, metal, cuda, cuda:1"),
        )
        .subcommand(run())
        .subcommand(plan())
        .subcommand(record())
        .subcommand(inspect())
        .subcommand(crate::commands::simulate::command())
        .subcommand(crate::commands::serve::command())
        .subcommand(crate::commands::bench::rows_command())
        .subcommand(crate::commands::doctor::command())
        .subcommand(Command::new("formats").about("List the log formats that `ingest` reads"));
    for (name, about) in crate::cluster::COMMANDS {
        command = command.subcommand(cluster_part(name, about));
    }
    for step in STEPS {
        command = add_step(command, *step);
    }
    command.mut_subcommand("evaluate", |evaluate| {
        evaluate.subcommand(crate::commands::bench::command()).subcommand(crate::commands::horizon::command())
    })
}

/// A part of a cluster; its options are those of the program that is called for it.
fn cluster_part(name: &'static str, about: &'static str) -> Command {
    let options = Arg::new("options").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
    Command::new(name).about(about).disable_help_flag(true).arg(options.help("See --help").value_name("OPTION"))
}

fn pipeline_args(command: Command) -> Command {
    command
        .arg(path("PIPELINE", "Pipeline file").required(true))
        .arg(path("runs", "Folder for artifacts").long("runs").value_name("DIR").default_value("runs"))
        .arg(set("Override a key of a step: --set cpt.steps=10"))
        .arg(Arg::new("until").long("until").value_name("STEP").help("Only this step and what it is made from"))
}

fn run() -> Command {
    pipeline_args(Command::new("run").about("Run a pipeline: steps that are done are skipped, a killed one goes on"))
}

fn plan() -> Command {
    pipeline_args(Command::new("plan").about("Print what `run` would do, and why"))
}

fn record() -> Command {
    let terminal = Command::new("terminal")
        .about("Record seeded episodes in a real bash, as JSON lines of chat messages with tool calls")
        .arg(
            Arg::new("episodes")
                .long("episodes")
                .value_name("N")
                .required(true)
                .value_parser(value_parser!(u64))
                .help("Number of episodes"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("S")
                .required(true)
                .value_parser(value_parser!(u64))
                .help("Seed of the policy"),
        )
        .arg(
            Arg::new("axis")
                .long("axis")
                .value_name("AXIS")
                .value_parser(Axis::ALL.map(Axis::name))
                .help("Record for a rule axis: an imposed condition, errors, or facts read back turns later"),
        )
        .arg(path("out", "File to write: .jsonl or .jsonl.zst").long("out").value_name("FILE").required(true));
    Command::new("record")
        .about("Drive a real environment and write what it answered as raw logs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(terminal)
}

fn inspect() -> Command {
    let of = |name: &'static str, about: &'static str| {
        Command::new(name)
            .about(about)
            .arg(path("PATH", "A trajectory file, a pool, or a folder of them").required(true))
            .arg(each("domain", "DOMAIN", "Only this domain; may be given more than once"))
            .arg(each("source", "SOURCE", "Only this source; may be given more than once"))
            .arg(each("pool", "POOL", "Only this pool; may be given more than once"))
            .arg(Arg::new("text").long("text").value_name("TEXT").help("Only where this stands, in any case"))
    };
    let json = |help: &'static str| Arg::new("json").long("json").action(ArgAction::SetTrue).help(help);
    let limit = Arg::new("limit").long("limit").value_name("N").value_parser(value_parser!(u64));
    let data = of("data", "Look at trajectories: a list, their turns, filters")
        .arg(json("Print them, one JSON object a line"))
        .arg(path("html", "Write a page of them").long("html").value_name("FILE").conflicts_with("json"))
        .arg(limit.help("Show at most this many: of a page 100 evenly spread, of --json all, unless given"));
    let stats = of("stats", "Count trajectories by domain and source: turns, lengths, classes, errors, repetitions");
    Command::new("inspect")
        .about("Look into data and models")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(data)
        .subcommand(stats.arg(json("Print the figures as JSON")))
        .subcommand(inspect_shard())
        .subcommand(inspect_model())
}

fn inspect_shard() -> Command {
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64)).help(help)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("shard")
        .about("Show which tokens are trained, with what weight, and how long rows and documents are")
        .arg(path("PATH", "Folder that `render` wrote for cpt or sft").required(true))
        .arg(path("tokenizer", "Folder of the tokenizer, if not the recorded one").long("tokenizer").value_name("DIR"))
        .arg(number("row", "Show this row, counted from 0"))
        .arg(number("rows", "Show this many rows, evenly spread; one unless given").conflicts_with("row"))
        .arg(flag("trained", "Print only the trained stretches, one JSON object a line"))
        .arg(flag("reasons", "Show rows as stretches, each with why it has its weight"))
        .arg(flag("json", "Print the figures as JSON").conflicts_with("trained"))
        .arg(path("html", "Write a page").long("html").value_name("FILE").conflicts_with_all(["trained", "json"]))
}

fn each(id: &'static str, name: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name(name).action(ArgAction::Append).help(help)
}

fn inspect_model() -> Command {
    let number = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").default_value(value).value_parser(value_parser!(u64)).help(help)
    };
    Command::new("model")
        .about("Show what a model folder holds and what it takes in memory")
        .arg(path("DIR", "Folder with `config.json`, or the artifact of a training").required(true))
        .arg(number("context", "4096", "Tokens of the sequence that memory is counted for"))
        .arg(number("rank", "16", "Rank of the adapters that memory is counted for"))
        .arg(
            Arg::new("targets")
                .long("targets")
                .value_name("REGEX")
                .default_value("proj")
                .help("Projections with an adapter, found in their paths"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON"))
}

/// `train cpt` becomes the subcommand `cpt` of `train`.
fn add_step(command: Command, step: &'static dyn Step) -> Command {
    match step.name().split_once(' ') {
        None => command.subcommand(step_command(step.name(), step)),
        Some((group, name)) => {
            let inner = step_command(name, step);
            if command.find_subcommand(group).is_some() {
                command.mut_subcommand(group, |group| group.subcommand(inner))
            } else {
                let group = Command::new(group).about(group_about(group)).subcommand_required(true);
                command.subcommand(group.arg_required_else_help(true).subcommand(inner))
            }
        }
    }
}

fn group_about(group: &str) -> &'static str {
    match group {
        "tokenizer" => "Make tokenizers",
        "model" => "Make models",
        "import" => "Read models that other programs wrote",
        "verifier" => "Make verifiers of predictions",
        "train" => "Train a stage: cpt, sft or rl",
        "evaluate" => "Measure predictions",
        "judge" => "Measure judges",
        _ => "",
    }
}

fn step_command(name: &'static str, step: &'static dyn Step) -> Command {
    let mut command = Command::new(name)
        .about(step.about())
        .arg(path("config", "TOML config of this step").long("config").value_name("FILE"))
        .arg(set("Override a config key: --set seed=7"))
        .arg(path("out", "Folder of the artifact").long("out").value_name("DIR").required_unless_present_any(
            match step.name() {
                "ingest" => vec!["dry-run", "explain"],
                "report" => vec!["dry-run", "RUN"],
                _ => vec!["dry-run"],
            },
        ))
        .arg(Arg::new("dry-run").long("dry-run").action(ArgAction::SetTrue).help("Print the resolved config and stop"));
    if matches!(step.name(), "ingest" | "corpus") {
        command = ingest_args(command, step.name() == "ingest");
    }
    if step.name() == "curate" {
        let help = "Scheduler of a Ballista cluster that runs the plans, with `worldloom worker` on its machines";
        command = command.arg(Arg::new("cluster").long("cluster").value_name("ballista://HOST:PORT").help(help));
    }
    if step.name() == "report" {
        let help = "Folder of a training, or of a pipeline's runs: writes its report.html, and needs nothing else";
        command = command.arg(path("RUN", help));
    }
    for role in step.roles() {
        let arg = path(role.name, role.help);
        command = command.arg(match role.positional {
            true => arg.value_name("FILE").required_unless_present("dry-run"),
            false => arg.long(role.name).value_name("DIR"),
        });
    }
    command
}

/// The config of an ingest as arguments, for those who have no file for it.
fn ingest_args(command: Command, is_logs: bool) -> Command {
    let text = |id: &'static str, help: &'static str| Arg::new(id).long(id).help(help);
    let share = text("max-reject-share", "Share of rows that may be rejected, 0 to 1")
        .value_name("SHARE")
        .value_parser(value_parser!(f64));
    let strict = text("strict", "Stop at the first rejected row").action(ArgAction::SetTrue);
    let field = text("text-field", "With --as corpus: the field or column that holds the text").value_name("NAME");
    let command = command
        .arg(
            path("PATH", "Files, folders, archives and addresses (s3:// gs:// az:// https://); in place of `inputs`")
                .num_args(1..),
        )
        .arg(share)
        .arg(strict)
        .arg(field);
    if !is_logs {
        return command;
    }
    command
        .arg(text("format", "Read all files as this format (see `worldloom formats`)").value_name("NAME"))
        .arg(path("map", "TOML file that describes a format of your own").long("map").value_name("FILE"))
        .arg(
            path("explain", "Show what is found in a file and how its first trajectory comes out")
                .long("explain")
                .value_name("FILE"),
        )
        .arg(
            text("as", "What to make: trajectories, or texts for continued pretraining")
                .value_name("KIND")
                .value_parser(["trajectories", "corpus"])
                .default_value("trajectories"),
        )
}

fn path(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).value_parser(value_parser!(PathBuf)).help(help)
}

fn set(help: &'static str) -> Arg {
    Arg::new("set").long("set").value_name("KEY=VALUE").action(ArgAction::Append).help(help)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
