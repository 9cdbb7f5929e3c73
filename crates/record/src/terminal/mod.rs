//! The terminal: episodes at a real `bash`, recorded or replayed.
//!
//! A seeded policy picks commands from a grammar and looks at the real file system between them; bash answers. Words:
//! a *lab* is the private directory an episode runs in, a *family* a kind of command, a *group* a composition of
//! families, a *form* a command line with slots, a *note* the state that a command's output depends on, an *axis* an ability that a recording asks for.
//!
//! Needs `bash`, `setsid` and the usual tools of a Linux system, and `/proc`. The same seed gives the same commands,
//! and the same observations but for what [`mask_volatile`] masks.

mod axis;
mod condition;
mod content;
mod episode;
mod forms;
mod groups;
mod lab;
mod mask;
mod note;
mod output;
mod policy;
mod sandbox;
mod session;
mod shell;
mod slots;
mod summary;
mod words;
mod world;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use axis::Axis;
pub use episode::{Episode, FunctionCall, Message, ToolCall, Turn, TurnClass, TurnMetadata};
pub use mask::mask_volatile;
pub use sandbox::{Printed, Sandbox};
pub use summary::{GroupSummary, RecordSummary};

use crate::Error;
use axis::Script;
use groups::Group;
use lab::Lab;
use output::Output;

/// Most shells at once: two episodes in progress never want the same lab.
const MAX_JOBS: usize = 32;

/// What to record, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordConfig {
    /// How many episodes.
    pub episodes: u64,
    /// Decides every command.
    pub seed: u64,
    /// The rule axis to record for; none: episodes as in training.
    pub axis: Option<Axis>,
    /// The raw log to write: `.jsonl`, or `.jsonl.zst` to compress it.
    pub out: PathBuf,
    /// Shells at once; decides the speed only.
    pub jobs: usize,
    /// A command that takes longer is killed, and the episode ends.
    pub command_limit: Duration,
    /// The folder for the lab directories.
    pub lab_root: PathBuf,
}

impl RecordConfig {
    /// A recording with one shell per core, 10 s per command, and labs in `/tmp`.
    pub fn new(episodes: u64, seed: u64, out: impl Into<PathBuf>) -> RecordConfig {
        let jobs = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_JOBS);
        let (command_limit, lab_root) = (DEFAULT_COMMAND_LIMIT, PathBuf::from(DEFAULT_LAB_ROOT));
        RecordConfig { episodes, seed, axis: None, out: out.into(), jobs, command_limit, lab_root }
    }
}

const DEFAULT_COMMAND_LIMIT: Duration = Duration::from_secs(10);
const DEFAULT_LAB_ROOT: &str = "/tmp";

/// Records episodes in the order of their numbers; `progress` hears how many are done, and of how many.
pub fn record(config: &RecordConfig, progress: &dyn Fn(u64, u64)) -> Result<RecordSummary, Error> {
    if config.episodes == 0 {
        return Err(Error::NoEpisodes);
    }
    let mut output = Output::create(&config.out)?;
    let mut summary = RecordSummary::default();
    let groups = groups::shuffled(&mut generator(config.seed, 0));
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(MAX_JOBS);
        for _ in 0..config.jobs.clamp(1, MAX_JOBS) {
            let (sender, groups, next, stop) = (sender.clone(), &groups, &next, &stop);
            scope.spawn(move || record_some(config, groups, next, stop, &sender));
        }
        drop(sender);
        let written = write_in_order(receiver, &mut output, &mut summary, &|done| progress(done, config.episodes));
        stop.store(true, Ordering::Relaxed);
        written
    })?;
    output.finish()?;
    Ok(summary)
}

type Recorded = (u64, Result<Episode, Error>);

/// One worker: takes the next number until none is left.
fn record_some(
    config: &RecordConfig,
    groups: &[Group],
    next: &AtomicU64,
    stop: &AtomicBool,
    sender: &mpsc::SyncSender<Recorded>,
) {
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= config.episodes {
            return;
        }
        let group = &groups[(number % groups.len() as u64) as usize];
        let recorded = record_numbered(config, number, group);
        if sender.send((number, recorded)).is_err() {
            return;
        }
    }
}

fn record_numbered(config: &RecordConfig, number: u64, group: &Group) -> Result<Episode, Error> {
    let lab = Lab::claim(&config.lab_root, config.seed.wrapping_add(number))?;
    record_in(&lab, config.seed, number, group, config.axis, config.command_limit)
}

fn record_in(
    lab: &Lab,
    seed: u64,
    number: u64,
    group: &Group,
    axis: Option<Axis>,
    limit: Duration,
) -> Result<Episode, Error> {
    let named = axis.map_or(String::new(), |axis| format!("{}-", axis.name()));
    let id = format!("terminal-{named}{seed}-{number}");
    let random = &mut generator(seed, number + 1);
    let script = Script::draw(axis, number, random);
    session::record_episode(lab, id, group, &script, limit, random)
}

fn write_in_order(
    receiver: mpsc::Receiver<Recorded>,
    output: &mut Output,
    summary: &mut RecordSummary,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    let (mut waiting, mut done) = (BTreeMap::new(), 0);
    for (number, episode) in receiver {
        waiting.insert(number, episode?);
        while let Some(episode) = waiting.remove(&done) {
            summary.add(&episode)?;
            output.write(&episode)?;
            done += 1;
            progress(done);
        }
    }
    Ok(())
}

/// The generator of one purpose: each stream of a seed is independent of the others.
fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// One command of an episode, run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedTurn {
    /// The command line.
    pub command: String,
    /// What the episode holds.
    pub recorded: String,
    /// What bash printed now.
    pub printed: String,
    /// The exit status in the episode.
    pub recorded_exit_code: Option<i32>,
    /// The exit status now.
    pub exit_code: Option<i32>,
}

/// Runs the commands of an episode again, in a fresh lab in `/tmp` with 10 s per command.
pub fn replay(episode: &Episode) -> Result<Vec<ReplayedTurn>, Error> {
    replay_in(episode, Path::new(DEFAULT_LAB_ROOT), DEFAULT_COMMAND_LIMIT)
}

/// As [`replay`], in a lab below `lab_root` and with another limit. Ends early where a command is killed.
pub fn replay_in(episode: &Episode, lab_root: &Path, limit: Duration) -> Result<Vec<ReplayedTurn>, Error> {
    let malformed = |message, problem: &str| {
        let (id, problem) = (episode.id.clone(), problem.to_owned());
        Error::Malformed { id, message, problem }
    };
    let (number, user) = sandbox::home_in(&episode.initial_state)
        .ok_or_else(|| malformed(0, "`initial_state` does not begin with the home directory"))?;
    let mut sandbox = Sandbox::start(lab_root, number, user, limit)?;
    if let Some(preparation) = &episode.preparation {
        sandbox.run(preparation);
    }
    let mut replayed = Vec::new();
    for (index, turn) in episode.turns()?.into_iter().enumerate() {
        let command = turn.command().ok_or_else(|| malformed(2 + 2 * index, "the call has no `command`"))?;
        let Printed { text: printed, exit_code } = sandbox.run(&command);
        let (recorded, recorded_exit_code) = (turn.observation.to_owned(), turn.metadata.exit_code);
        replayed.push(ReplayedTurn { command, recorded, printed, recorded_exit_code, exit_code });
        if exit_code.is_none() {
            break;
        }
    }
    Ok(replayed)
}
