//! `evaluate horizon`: scripts played inside the model on its own predictions, beside what really came of them: in the
//! recording, or now, in a real bash.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Serialize;
use worldloom_record::terminal::Sandbox;
use worldloom_schema::{Interval, TableReader, Trajectory};
use worldloom_world::engine::Engine;
use worldloom_world::episode::Play;
use worldloom_world::horizon::{self, Horizon, Played, Predicted};

use super::simulate::agent::{Agent, agent_args};
use super::world::{asked, model_args, start_engine};
use crate::config::UserError;
use crate::progress::Progress;

const AFTER: &str = "\
With --live the scripts come from the policy of `record terminal` (--seed), or from an agent that plays inside the model
(--agent URL --agent-model NAME); their commands are then run in a real bash in a private folder of /tmp. Those of an
agent may be anything: they are run where this program is root, as an account without rights, or with --as-me.";
/// Most real shells at once; two scripts at work never want the same lab.
const MAX_LABS: usize = 32;

/// The command line.
pub(crate) fn command() -> Command {
    let path = |id: &'static str, name: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name(name).value_parser(value_parser!(PathBuf)).help(help)
    };
    let number = |id: &'static str, value: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").default_value(value).value_parser(value_parser!(usize)).help(help)
    };
    let flag = |id: &'static str, help: &'static str| Arg::new(id).long(id).action(ArgAction::SetTrue).help(help);
    let command = Command::new("horizon")
        .about(
            "Play recorded scripts inside the model on its own predictions, and compare with what really came of them",
        )
        .after_help(AFTER)
        .arg(
            path("pool", "FILE", "Parquet file of trajectories, such as the eval pool of `curate`")
                .required_unless_present("live"),
        )
        .arg(flag("live", "Play new scripts, and run them in a real bash afterwards").conflicts_with("pool"))
        .arg(flag("as-me", "Run an agent's commands with my own rights").requires("agent"))
        .arg(path("out", "FILE", "Write the figures of every episode as JSON"))
        .arg(number("episodes", "200", "Episodes at most, evenly spread over the pool; with --live as many"))
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
    model_args(agent_args(command), true)
}

/// Plays and prints.
pub(super) fn evaluate_horizon(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    if matches.get_flag("live") {
        return evaluate_live(matches);
    }
    if matches.contains_id("agent") {
        return Err(UserError::new("--agent needs --live: a recorded script has no agent").into());
    }
    let pool = matches.get_one::<PathBuf>("pool").cloned().unwrap_or_default();
    let all: Vec<Trajectory> = TableReader::<Trajectory>::open(&pool)?.collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Err(UserError::new(format!("`{}` holds no trajectories", pool.display())).into());
    }
    let count = number("episodes").clamp(1, all.len());
    let chosen: Vec<Trajectory> = (0..count).map(|at| all[at * all.len() / count].clone()).collect();
    let threads = number("max-active").max(1);
    let engine = start_engine(matches, threads)?;
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
    let progress = Progress::new("horizon");
    let hear = |done: u64, total: u64| progress.update(done, total);
    let found = horizon::play(&engine, &how(matches), &chosen, seed, number("resamples"), threads, &hear)?;
    drop(progress);
    if let Some(out) = matches.get_one::<PathBuf>("out") {
        fs_err::write(out, format!("{:#}\n", serde_json::to_value(&found)?))?;
    }
    print(&found);
    Ok(())
}

fn how(matches: &ArgMatches) -> Play {
    Play {
        asked: asked(matches),
        max_new_tokens: matches.get_one("max-new-tokens").copied().unwrap_or_default(),
        temperature: matches.get_one("temperature").copied().unwrap_or_default(),
        attempts: 1,
    }
}

/// A step inside the model and for real.
#[derive(Debug, Serialize)]
struct LiveStep {
    #[serde(flatten)]
    predicted: Predicted,
    /// What bash printed; none once a command had to be killed.
    real: Option<String>,
}

/// Plays new scripts inside the model, runs them in a real bash, and prints how far the two agree.
fn evaluate_live(matches: &ArgMatches) -> Result<()> {
    let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    if matches.contains_id("agent") && !Sandbox::is_apart() && !matches.get_flag("as-me") {
        let error = UserError::new("an agent's commands would run with your own rights");
        return Err(error.hint("start as root, in a container: they run as `nobody` then; or add --as-me").into());
    }
    let threads = number("max-active").clamp(1, MAX_LABS);
    let engine = start_engine(matches, threads)?;
    let seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
    let progress = Progress::new("horizon");
    let hear = |done: u64, total: u64| progress.update(done, total);
    let one = |place: usize| live_one(matches, &engine, seed, place as u64);
    let (played, steps): (Vec<Played>, Vec<Vec<LiveStep>>) =
        horizon::play_each(number("episodes"), threads, &hear, &one)?.into_iter().unzip();
    drop(progress);
    let found = horizon::summary(played, seed, number("resamples"));
    if let Some(out) = matches.get_one::<PathBuf>("out") {
        let mut written = serde_json::to_value(&found)?;
        written["scripts"] = serde_json::to_value(&steps)?;
        fs_err::write(out, format!("{written:#}\n"))?;
    }
    print(&found);
    Ok(())
}

fn live_one(matches: &ArgMatches, engine: &Engine, seed: u64, number: u64) -> Result<(Played, Vec<LiveStep>)> {
    let (recorded, sandbox) = Sandbox::with_episode(seed, number)?;
    // As pools have it, so that the model is told of the environment as in training.
    let (trajectories, _) = worldloom_ingest::read_bytes("live.jsonl", serde_json::to_vec(&recorded)?, None)?;
    let trajectory = trajectories.into_iter().next().context("a recorded episode is a trajectory")?;
    let scenario = horizon::scenario_of(&trajectory, seed.wrapping_add(number));
    let how = how(matches);
    let steps = if matches.contains_id("agent") {
        let mut agent = Agent::new(matches, &scenario)?;
        let mut left = matches.get_one::<u64>("turns").copied().unwrap_or_default();
        horizon::play_inside(engine, &how, scenario, |last| {
            if let Some(Predicted { observation, .. }) = last {
                agent.see(observation.as_deref());
            }
            if left == 0 {
                return Ok(None);
            }
            left -= 1;
            agent.act().map(|action| action.map(command_of))
        })?
    } else {
        let mut actions = trajectory.turns.iter().map(|turn| command_of(turn.action.clone()));
        horizon::play_inside(engine, &how, scenario, |_| anyhow::Ok(actions.next()))?
    };
    let truths = run_for_real(sandbox, &steps);
    let played = horizon::compare(&recorded.id, &steps, truths.iter().map(String::as_str));
    let mut truths = truths.into_iter();
    Ok((played, steps.into_iter().map(|predicted| LiveStep { predicted, real: truths.next() }).collect()))
}

/// What a real bash prints for the steps' actions, up to the first that had to be killed.
fn run_for_real(mut sandbox: Sandbox, steps: &[Predicted]) -> Vec<String> {
    let mut truths = Vec::new();
    for step in steps {
        let printed = sandbox.run(&step.action);
        truths.push(printed.text);
        if printed.exit_code.is_none() {
            break;
        }
    }
    truths
}

/// The command line of a call of `bash`, as ingest reads it; anything else is one itself.
fn command_of(action: String) -> String {
    let call: Option<serde_json::Value> = serde_json::from_str(&action).ok();
    let command = call.as_ref().and_then(|call| call["arguments"]["command"].as_str());
    command.map_or(action.clone(), String::from)
}

fn print(found: &Horizon) {
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
}
