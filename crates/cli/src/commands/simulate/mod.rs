//! `simulate`: an environment played from the terminal, action by action. Observations go to stdout, the rest to stderr.

pub(crate) mod agent;

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use worldloom_schema::{Domain, write_table};
use worldloom_world::engine::Engine;
use worldloom_world::episode::{Episode, Play, Step};

use super::play::{play, play_args, scenario};
use super::world::{model_args, start_engine};
use crate::config::{UserError, nearest};
use crate::signals::listen;
use agent::{Agent, agent_args};

const HELP: &str = "\
Type an action and read what the environment answers. Lines that start with `:` are for the simulation:
  :control TEXT   tell the simulation something that holds from now on, such as :control \"the disk is full\"
  :control        take all of that back
  :undo           take the last turn back
  :thinking       show what the model thinks, or stop showing it
  :history        show the turns so far
  :multi          an action of several lines follows, up to a line with a single dot
  :save FILE      write the episode as a trajectory: .parquet, or .jsonl
  :quit           end (so does the end of the input)";

const COMMANDS: [&str; 9] =
    [":control", ":undo", ":thinking", ":history", ":multi", ":save", ":quit", ":help", ":state"];

/// The command line.
pub(crate) fn command() -> Command {
    let text =
        |id: &'static str, name: &'static str, help: &'static str| Arg::new(id).long(id).value_name(name).help(help);
    let command = Command::new("simulate")
        .about("Play in a simulated environment from the terminal")
        .after_help(HELP)
        .arg(
            text("state", "TEXT", "State before the first action, as the model was trained to read it")
                .conflicts_with("scenario"),
        )
        .arg(
            text("control", "TEXT", "Tell the simulation something; may be given more than once")
                .action(ArgAction::Append),
        )
        .arg(text("seed", "S", "Seed of sampling").default_value("0").value_parser(value_parser!(u64)))
        .arg(Arg::new("thinking").long("thinking").action(ArgAction::SetTrue).help("Show what the model thinks"))
        .arg(
            text("save", "FILE", "Write the episode at the end: .parquet, or .jsonl")
                .value_parser(value_parser!(PathBuf)),
        );
    model_args(play_args(agent_args(command)), true)
}

/// Plays until the input ends.
pub(super) fn simulate(matches: &ArgMatches, stop: &AtomicBool) -> Result<()> {
    let _listening = listen();
    let mut session = Session::start(matches)?;
    let played = match matches.contains_id("agent") {
        true => session.let_agent_play(matches, stop),
        false => session.read_lines(stop),
    };
    // What was played is saved, however it ended.
    match (played, matches.get_one::<PathBuf>("save")) {
        (played, None) => played,
        (Ok(()), Some(path)) => session.save(path),
        (Err(error), Some(path)) => {
            if !session.episode.turns().is_empty()
                && let Err(unsaved) = session.save(path)
            {
                eprintln!("the episode is not saved: {unsaved:#}");
            }
            Err(error)
        }
    }
}

struct Session {
    engine: Engine,
    play: Play,
    episode: Episode,
    shows_thinking: bool,
    is_interactive: bool,
}

impl Session {
    fn start(matches: &ArgMatches) -> Result<Self> {
        let mut scenario = scenario(matches)?;
        if let Some(state) = matches.get_one::<String>("state") {
            scenario.initial_state = Some(state.clone());
        }
        if matches.value_source("seed") == Some(clap::parser::ValueSource::CommandLine)
            || matches.get_one::<PathBuf>("scenario").is_none()
        {
            scenario.seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
        }
        scenario.control.extend(matches.get_many::<String>("control").unwrap_or_default().cloned());
        let episode = Episode::start(scenario)?;
        let engine = start_engine(matches, 64)?;
        Ok(Self {
            engine,
            play: play(matches),
            episode,
            shows_thinking: matches.get_flag("thinking"),
            is_interactive: false,
        })
    }

    /// Until the input ends, or says so.
    fn read_lines(&mut self, stop: &AtomicBool) -> Result<()> {
        let stdin = std::io::stdin();
        self.is_interactive = stdin.is_terminal();
        if self.is_interactive {
            eprintln!("{} environment; :help lists what else can be typed", self.episode.scenario().domain);
            if let Some(state) = &self.episode.scenario().initial_state {
                eprintln!("state: {state}");
            }
        }
        let mut lines = stdin.lock().lines();
        loop {
            self.prompt();
            let Some(line) = lines.next() else { return Ok(()) };
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let line = line.context("read the input")?;
            let mut rest = || lines.next().transpose();
            match self.line(&line, &mut rest) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // A mistake in a line ends a session only where nobody can type another.
                Err(error) if self.is_interactive => eprintln!("{error:#}"),
                Err(error) => return Err(error),
            }
        }
    }

    fn prompt(&self) {
        if self.is_interactive {
            let prompt = if self.episode.scenario().domain == Domain::Terminal { "$ " } else { "> " };
            eprint!("{prompt}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Does what a line says; false at the end.
    fn line(&mut self, line: &str, rest: &mut dyn FnMut() -> std::io::Result<Option<String>>) -> Result<bool> {
        let (word, argument) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let argument = unquoted(argument.trim());
        match word {
            "" => {}
            ":help" => eprintln!("{HELP}"),
            ":quit" => return Ok(false),
            ":undo" if self.episode.undo() => eprintln!("{} turns are left", self.episode.turns().len()),
            ":undo" => eprintln!("there is nothing to take back"),
            ":control" => {
                self.episode.control(argument);
                eprintln!("control: {}", list(self.episode.controls()));
            }
            ":state" => eprintln!("{}", serde_json::to_string_pretty(self.episode.scenario())?),
            ":thinking" => {
                self.shows_thinking = !self.shows_thinking;
                eprintln!("thinking is {}", if self.shows_thinking { "shown" } else { "not shown" });
            }
            ":history" => {
                for turn in self.episode.turns() {
                    eprintln!("{}. {}\n{}", turn.index + 1, turn.action, turn.observation);
                }
            }
            ":save" if argument.is_empty() => return Err(UserError::new(":save needs a file").into()),
            ":save" => self.save(Path::new(argument))?,
            ":multi" => {
                let mut action = Vec::new();
                while let Some(line) = rest()?.filter(|line| line != ".") {
                    action.push(line);
                }
                return self.act(&action.join("\n"));
            }
            word if word.starts_with(':') && word.len() > 1 && word[1..].chars().all(char::is_alphabetic) => {
                let error = UserError::new(format!("unknown `{word}`"));
                let near = nearest(word, COMMANDS.into_iter());
                return Err(error
                    .hint(near.map_or(":help lists them".into(), |near| format!("did you mean `{near}`?")))
                    .into());
            }
            _ => return self.act(line),
        }
        Ok(true)
    }

    /// Performs an action; false once the episode is over.
    fn act(&mut self, action: &str) -> Result<bool> {
        let step = self.episode.step(&self.engine, &self.play, action)?;
        self.show(&step)?;
        if step.is_done {
            eprintln!("the episode is over after {} turns", self.episode.turns().len());
        }
        Ok(!step.is_done)
    }

    fn show(&self, step: &Step) -> Result<()> {
        if let Some(thinking) = step.thinking.as_deref().filter(|_| self.shows_thinking) {
            eprintln!("{}", dim(thinking));
        }
        for flag in &step.flags {
            eprintln!("{}", dim(flag));
        }
        match &step.observation {
            Ok(observation) => {
                let mut out = std::io::stdout().lock();
                out.write_all(observation.as_bytes())?;
                if !observation.is_empty() && !observation.ends_with('\n') {
                    out.write_all(b"\n")?;
                }
                out.flush()?;
            }
            Err(fault) => {
                eprintln!("no prediction ({}); the turn is left out", fault.as_str());
                if self.shows_thinking {
                    eprintln!("{}", dim(&step.completion));
                }
            }
        }
        Ok(())
    }

    /// Until the agent is done, or its turns are.
    fn let_agent_play(&mut self, matches: &ArgMatches, stop: &AtomicBool) -> Result<()> {
        let turns = matches.get_one::<u64>("turns").copied().unwrap_or_default();
        let mut agent = Agent::new(matches, self.episode.scenario())?;
        for _ in 0..turns {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(action) = agent.act()? else { break };
            eprintln!("> {action}");
            let step = self.episode.step(&self.engine, &self.play, &action)?;
            self.show(&step)?;
            agent.see(step.observation.as_deref().ok());
            if step.is_done {
                break;
            }
        }
        eprintln!("{} turns were played", self.episode.turns().len());
        Ok(())
    }

    fn save(&self, path: &Path) -> Result<()> {
        let trajectory = self.episode.trajectory();
        if trajectory.turns.is_empty() {
            return Err(UserError::new("there are no turns to save").into());
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => fs_err::write(path, serde_json::to_string(&trajectory)? + "\n")?,
            Some("parquet") => _ = write_table(path, [trajectory])?,
            _ => {
                let error = UserError::new(format!("`{}`: expected .parquet or .jsonl", path.display()));
                return Err(error.into());
            }
        }
        eprintln!("{} turns written to {}", self.episode.turns().len(), path.display());
        Ok(())
    }
}

fn list(controls: &[String]) -> String {
    if controls.is_empty() { "none".into() } else { controls.join("; ") }
}

/// Without one pair of quotation marks around it.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn dim(text: &str) -> String {
    if std::io::stderr().is_terminal() { format!("\x1b[2m{text}\x1b[0m") } else { text.into() }
}
