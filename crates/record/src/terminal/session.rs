//! One episode in a lab: choose, note, run, remember; afterwards tell the classes of the turns apart.

use std::path::Path;
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::axis::Script;
use super::condition::{Condition, FURNISHING};
use super::episode::{self, Episode, TurnClass, TurnMetadata};
use super::groups::{self, Group};
use super::lab::Lab;
use super::note::{self, Memory};
use super::policy::Step;
use super::shell::{End, Output, Place, Shell};
use super::slots;
use super::words;
use super::world::Snapshot;
use crate::Error;

const MIN_TURNS: usize = 4;
const MAX_TURNS: usize = 12;
/// User of the blank shell that tells whether an output is fixed by the command line alone.
const BLANK_USER: &str = "blank";
/// Name of the source; a recording for an axis adds its name.
const SOURCE: &str = "worldloom-terminal";
const CONTROL_TASK: &str = "Work with the files that are there, make new ones, and see what the system allows.";
/// Divides the fields of what the shell tells about itself.
const FIELD: char = '\u{1f}';

/// A turn as it happened.
struct Happened {
    step: Step,
    note: String,
    output: Output,
}

/// Records one episode of `group` in `lab`, as its script wants it.
pub(crate) fn record_episode(
    lab: &Lab,
    id: String,
    group: &Group,
    script: &Script,
    limit: Duration,
    random: &mut ChaCha8Rng,
) -> Result<Episode, Error> {
    let users: Vec<&str> = words::USERS.split_whitespace().collect();
    let user = *users.choose(random).unwrap_or(&"ada");
    let task = groups::task(group, random);
    let num_turns = random.random_range(MIN_TURNS..=MAX_TURNS);
    let num_turns = script.num_turns().unwrap_or(num_turns);
    let home = lab.fresh_home(user)?.display().to_string();
    let (start, happened) = run_turns(lab, user, group, script, num_turns, limit, random)?;
    let mut blank = Blank { lab, shell: None };
    let mut messages = episode::opening(system_text(&home), &task);
    for (index, Happened { step, note, output }) in happened.into_iter().enumerate() {
        let class = blank.classify(&step.command, &output, limit, random)?;
        let exit_code = match output.end {
            End::Status(status) => Some(status),
            _ => None,
        };
        let observation = observation(output, limit);
        let (axis, axis_distance) = script.shown(index, class, &observation);
        let metadata = TurnMetadata { note, class, family: step.family.to_owned(), exit_code, axis, axis_distance };
        messages.extend(episode::turn(index, &step.command, observation, metadata));
    }
    let condition = script.condition();
    Ok(Episode {
        id,
        source: script.axis().map_or(SOURCE.to_owned(), |axis| format!("{SOURCE}-{}", axis.name())),
        license: "CC0-1.0".to_owned(),
        domain: "terminal".to_owned(),
        task_group: condition.map_or(group.name.clone(), |condition| format!("control+{}", condition.name)),
        task: condition.map_or(task, |_| CONTROL_TASK.to_owned()),
        initial_state: initial_state(&home, user, &start.world),
        simulation_instruction: condition.map(|condition| condition.instruction.to_owned()),
        preparation: start.preparation,
        tools: episode::tools(),
        messages,
    })
}

/// What a person sees of an output: a killed command says so in a last line.
pub(crate) fn observation(output: Output, limit: Duration) -> String {
    let reason = match output.end {
        End::Status(_) => return output.text,
        End::TimedOut => format!("[killed: no prompt after {} s]", limit.as_secs_f64()),
        End::TooLong => "[killed: too much output]".to_owned(),
        End::Exited => "[the shell ended]".to_owned(),
    };
    let line_end = if output.text.is_empty() || output.text.ends_with('\n') { "" } else { "\n" };
    format!("{}{line_end}{reason}\n", output.text)
}

/// Starts the shell of an episode in the lab's home `user`.
pub(crate) fn start_shell(lab: &Lab, user: &str, secret: u64) -> Result<Shell, Error> {
    let home = lab.slot().join(user);
    Shell::start(&Place { slot: lab.slot(), home: &home, user, owner: lab.owner() }, secret)
}

/// What held before the first turn.
#[derive(Default)]
struct Start {
    world: Snapshot,
    preparation: Option<String>,
}

fn run_turns(
    lab: &Lab,
    user: &str,
    group: &Group,
    script: &Script,
    num_turns: usize,
    limit: Duration,
    random: &mut ChaCha8Rng,
) -> Result<(Start, Vec<Happened>), Error> {
    let home = lab.slot().join(user);
    let mut shell = start_shell(lab, user, random.random())?;
    let mut memory = Memory { home: home.display().to_string(), umask: "022".to_owned(), ..Memory::default() };
    let start = match script.condition() {
        Some(condition) => prepare(condition, &home, &mut shell, &memory, limit, random)?,
        None => Start::default(),
    };
    let (mut world, mut used, mut happened) = (start.world.clone(), Vec::new(), Vec::new());
    while happened.len() < num_turns {
        world = Snapshot::take(&home, &shell.working_directory()?, &world);
        let step = script.step(happened.len(), &world, &mut memory, group, &used, random);
        let note = note::note(&world, &memory, &step.needs);
        let output = shell.run(&step.command, limit);
        let end = output.end;
        used.push(step.command.clone());
        remember(&mut memory, &step, end);
        happened.push(Happened { step, note, output });
        let End::Status(status) = end else { break };
        memory.status = status;
        if !recall(&mut shell, &mut memory, limit) {
            break;
        }
    }
    Ok((start, happened))
}

/// Makes files to work on, then imposes the condition.
fn prepare(
    condition: &Condition,
    home: &Path,
    shell: &mut Shell,
    memory: &Memory,
    limit: Duration,
    random: &mut ChaCha8Rng,
) -> Result<Start, Error> {
    let mut tries = (0..100).filter_map(|_| slots::fill(FURNISHING, &Snapshot::default(), memory, random));
    let furnishing = tries.next().map_or("true".to_owned(), |filled| filled.command);
    let preparation = format!("{furnishing}; {}", condition.impose);
    let output = shell.run(&preparation, limit);
    if output.end != End::Status(0) || output.on_stderr {
        return Err(Error::Condition { name: condition.name, printed: output.text });
    }
    let world = Snapshot::take(home, &shell.working_directory()?, &Snapshot::default());
    Ok(Start { world, preparation: Some(preparation) })
}

/// Takes over the names that a command introduced.
fn remember(memory: &mut Memory, step: &Step, end: End) {
    for name in &step.new_variables {
        memory.variables.entry(name.clone()).or_default();
    }
    if let (Some((name, body)), End::Status(_)) = (&step.new_function, end) {
        memory.functions.insert(name.clone(), body.clone());
    }
    if let Some(rest) = step.command.strip_prefix("unset -f ") {
        let name = rest.split(';').next().unwrap_or_default();
        memory.functions.remove(name);
    }
}

/// Asks the shell for its umask, `OLDPWD` and the variables, and leaves `$?` as it was. False if it did not answer.
fn recall(shell: &mut Shell, memory: &mut Memory, limit: Duration) -> bool {
    let mut question = "umask; printf '%s\\037' \"${OLDPWD-}\"".to_owned();
    for name in memory.variables.keys() {
        question.push_str(&format!(" \"${{{name}+set}}\" \"${{{name}-}}\""));
    }
    if memory.status != 0 {
        question.push_str(&format!("; (exit {})", memory.status));
    }
    let answer = shell.run(&question, limit);
    let Some((umask, rest)) = answer.text.split_once('\n') else { return false };
    memory.umask = umask.strip_prefix('0').unwrap_or(umask).to_owned();
    let mut fields = rest.split(FIELD);
    memory.old_folder = fields.next().unwrap_or_default().to_owned();
    for value in memory.variables.values_mut() {
        let (is_set, text) = (fields.next() == Some("set"), fields.next().unwrap_or_default());
        *value = is_set.then(|| text.to_owned());
    }
    matches!(answer.end, End::Status(_))
}

/// A shell that has done nothing, in an empty home, and never does: commands run in subshells of it.
struct Blank<'a> {
    lab: &'a Lab,
    shell: Option<Shell>,
}

impl Blank<'_> {
    /// What `command` prints there.
    fn run(&mut self, command: &str, limit: Duration, random: &mut ChaCha8Rng) -> Result<String, Error> {
        let shell = match &mut self.shell {
            Some(shell) => {
                self.lab.empty_home(BLANK_USER)?;
                shell
            }
            None => {
                self.lab.fresh_home(BLANK_USER)?;
                self.shell.insert(start_shell(self.lab, BLANK_USER, random.random())?)
            }
        };
        let output = shell.run(&format!("(\n{command}\n)"), limit);
        if !matches!(output.end, End::Status(_)) {
            self.shell = None;
        }
        Ok(output.text)
    }

    fn classify(
        &mut self,
        command: &str,
        output: &Output,
        limit: Duration,
        random: &mut ChaCha8Rng,
    ) -> Result<TurnClass, Error> {
        if output.end != End::Status(0) || output.on_stderr {
            return Ok(TurnClass::Error);
        }
        if output.text.trim().is_empty() {
            return Ok(TurnClass::Empty);
        }
        let is_echo = self.run(command, limit, random)? == output.text;
        Ok(if is_echo { TurnClass::Echo } else { TurnClass::State })
    }
}

fn system_text(home: &str) -> String {
    format!("You work at a bash shell whose home directory is {home}. Each call runs one command line in that shell.")
}

fn initial_state(home: &str, user: &str, world: &Snapshot) -> String {
    let holds = note::holdings(world);
    format!("{home} {holds}; it is the home and working directory of user {user}. umask 022, LC_ALL=C, TZ=UTC.")
}
