//! SWE-agent's `.traj` files of versions 0 and 1, and EnIGMA's of capture-the-flag events.
//!
//! A row is an object with `trajectory`, the steps `{action, observation, thought, state}`, and `history`, the chat the
//! model saw. Turns are the steps; where there are none (`history` alone), a message with an `action` and the
//! observation that follows it. Taken: `thought` as reasoning, `state` as the state before the next action (version 0
//! notes it as text before an action, version 1 as an object after it), the first user message as the task, the
//! commands' documentation of `replay_config` (else the system prompt) as action space. The prompt's trailer `(Open
//! file: …) (Current directory: …) bash-$` is cut from what it follows and kept as the state. Left out: the copies of
//! the history on each step (`messages`, `response`), times, costs and patches of `info`; demonstrations, counted. A
//! line end after an action is the parser's and cut.
//!
//! Task group: the repository of the instance (`replay_config.problem_statement.id`, else the directory the agent works
//! in, else `environment`, else the file's name), so that all issues of a repository stay together; of a
//! capture-the-flag event category and challenge.

use worldloom_schema::{ActionKind, Domain, Turn};

use super::format::{Drafts, RowFormat, is_clipped, one, repository, spoken};
use super::{Draft, Origin};
use crate::episode::turn;
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "swe-agent",
    description: "SWE-agent and EnIGMA .traj files, versions 0 and 1",
    example: r#"{"environment": "swe_main", "trajectory": [{"action": "ls\n", "observation": "main.py\n", "thought": "Look first.", "state": "{\"open_file\": \"n/a\", \"working_dir\": \"/owner__name\"}"}], "history": [{"role": "user", "content": "Fix the test.", "agent": "primary"}], "info": {}}"#,
    detects,
    read,
};

/// How the trailer of SWE-agent's prompts begins.
const TRAILER: &str = "(Open file: ";
/// How it ends.
const PROMPT: &str = "bash-$";

/// Whether these are the fields of a trajectory of SWE-agent.
fn detects(fields: &Fields<'_>) -> bool {
    let first = |name| json::objects(fields, name).ok().and_then(|items| items.into_iter().next());
    let is_step = |step: Fields<'_>| step.contains_key("action") && step.contains_key("observation");
    let is_message = |message: Fields<'_>| {
        message.contains_key("role") && (message.contains_key("agent") || message.contains_key("message_type"))
    };
    match fields.contains_key("trajectory") {
        true => fields.contains_key("history") && first("trajectory").is_none_or(is_step),
        false => first("history").is_some_and(is_message),
    }
}

/// The one episode of a row.
fn read(fields: &Fields<'_>, origin: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let history = History::read(fields, counts)?;
    let steps = json::objects(fields, "trajectory")?;
    let Told { turns, first_state, directory } = match steps.is_empty() {
        true => history.turns()?,
        false => turns_of(&steps, counts)?,
    };
    let config = config(fields)?;
    let domain = if history.is_challenge { Domain::Terminal } else { Domain::Swe };
    let task_group = task_group(&config, directory.as_deref(), fields, origin.file)?;
    let mut draft = Draft { domain: Some(domain), task_group, turns, ..Draft::default() };
    draft.system.task_description = history.task;
    draft.system.action_space = config.commands.or(spoken(Some(history.system)));
    draft.system.initial_state = first_state.or(history.first_state);
    Ok(one(draft))
}

/// What the steps say.
struct Told {
    turns: Vec<Turn>,
    first_state: Option<String>,
    /// Where the agent works at first.
    directory: Option<String>,
}

fn turns_of(steps: &[Fields<'_>], counts: &mut Counts) -> Result<Told, Refusal> {
    let mut told = Told { turns: Vec::new(), first_state: None, directory: None };
    let mut state_after = None;
    for (at, step) in steps.iter().enumerate() {
        let field = |name| json::text(step, name).map_err(|refusal| refusal.at("trajectory", at));
        let (Some(action), Some(observation)) = (field("action")?, field("observation")?) else {
            count(counts, "steps_without_action_or_observation", 1);
            continue;
        };
        let (before, after) = state(step).map_err(|refusal| refusal.at("trajectory", at))?;
        told.directory = told.directory.or_else(|| directory(before.as_deref().or(after.as_deref())?));
        let mut turn = command(&action, observation);
        turn.reasoning = spoken(field("thought")?);
        let before = before.or(std::mem::replace(&mut state_after, after));
        if told.turns.is_empty() {
            told.first_state = before
        } else {
            turn.pre_state = before
        }
        told.turns.push(turn);
    }
    Ok(told)
}

fn command(action: &str, observation: String) -> Turn {
    let action = action.strip_suffix('\n').unwrap_or(action);
    let is_clipped = is_clipped(&observation);
    let mut turn = turn(action.into(), ActionKind::Command, observation);
    turn.truncated = is_clipped;
    turn
}

/// The state of a step: (before its action, after it).
fn state(step: &Fields<'_>) -> Result<(Option<String>, Option<String>), Refusal> {
    let Some(raw) = step.get("state") else { return Ok((None, None)) };
    Ok(match Value::of(raw)? {
        Value::Text(text) => (spoken(Some(text)), None),
        Value::Null => (None, None),
        _ => (None, Some(json::respace(raw.get()))),
    })
}

/// The working directory of a state's JSON.
fn directory(state: &str) -> Option<String> {
    match Value::parse(state).ok()? {
        Value::Object(fields) => json::text(&fields, "working_dir").ok()?,
        _ => None,
    }
}

/// What the chat says.
struct History<'a> {
    system: String,
    task: String,
    first_state: Option<String>,
    is_challenge: bool,
    messages: Vec<Fields<'a>>,
}

impl<'a> History<'a> {
    /// Reads the chat but for its demonstrations.
    fn read(fields: &Fields<'a>, counts: &mut Counts) -> Result<Self, Refusal> {
        let mut history = Self {
            system: String::new(),
            task: String::new(),
            first_state: None,
            is_challenge: false,
            messages: vec![],
        };
        for (at, message) in json::objects(fields, "history")?.into_iter().enumerate() {
            if json::boolean(&message, "is_demo")? == Some(true) {
                count(counts, "demonstrations_left_out", 1);
                continue;
            }
            let role = json::text(&message, "role")?.unwrap_or_default();
            if role == "system" && history.system.is_empty() {
                history.system = content(&message, counts).map_err(|refusal| refusal.at("history", at))?;
            } else if role == "user" && history.task.is_empty() {
                let text = content(&message, counts).map_err(|refusal| refusal.at("history", at))?;
                let (task, state) = split_trailer(&text);
                (history.task, history.first_state) = (task.trim().into(), state);
            }
            history.messages.push(message);
        }
        let is_challenge = |text: &str| text.contains("CTF challenge");
        history.is_challenge = is_challenge(&history.system) || is_challenge(&history.task);
        Ok(history)
    }

    /// Turns from the messages: an action and the message after it.
    fn turns(&self) -> Result<Told, Refusal> {
        let mut told = Told { turns: Vec::new(), first_state: None, directory: None };
        let mut state = self.first_state.clone();
        for pair in self.messages.windows(2) {
            let [message, reply] = pair else { continue };
            let Some(action) = json::text(message, "action")? else { continue };
            if json::text(reply, "role")?.is_none_or(|role| role == "assistant") {
                continue;
            }
            let text = content(reply, &mut Counts::new())?;
            let (observation, state_after) = split_trailer(&text);
            let mut turn = command(&action, observation.into());
            turn.reasoning = spoken(json::text(message, "thought")?);
            turn.pre_state = state.take().filter(|_| !told.turns.is_empty());
            told.turns.push(turn);
            told.directory = told.directory.or_else(|| working_directory(state_after.as_deref()?));
            state = state_after;
        }
        Ok(told)
    }
}

fn content(message: &Fields<'_>, counts: &mut Counts) -> Result<String, Refusal> {
    Ok(super::content::read(message.get("content").copied(), counts)?.text)
}

/// Splits the trailer of a prompt off: (the rest, the trailer).
fn split_trailer(text: &str) -> (&str, Option<String>) {
    let end = text.trim_end();
    let start = text.rfind(TRAILER).filter(|start| *start == 0 || text[..*start].ends_with('\n'));
    match start {
        Some(start) if end.ends_with(PROMPT) => {
            let rest = &text[..start];
            (rest.strip_suffix('\n').unwrap_or(rest), Some(end[start..].to_string()))
        }
        _ => (text, None),
    }
}

/// The directory a trailer names.
fn working_directory(trailer: &str) -> Option<String> {
    let (_, rest) = trailer.split_once("(Current directory: ")?;
    Some(rest.split_once(')')?.0.to_string())
}

/// What `replay_config` says, an object or the text of one.
#[derive(Default)]
struct Config {
    instance: Option<String>,
    commands: Option<String>,
}

fn config(fields: &Fields<'_>) -> Result<Config, Refusal> {
    let Some(raw) = fields.get("replay_config") else { return Ok(Config::default()) };
    let text = match Value::of(raw)? {
        Value::Text(text) => text,
        _ => raw.get().to_string(),
    };
    let Ok(Value::Object(fields)) = Value::parse(&text) else { return Ok(Config::default()) };
    let problem = json::object(&fields, "problem_statement")?.unwrap_or_default();
    let agent = json::object(&fields, "agent")?.unwrap_or_default();
    let tools = json::object(&agent, "tools")?.unwrap_or_default();
    Ok(Config { instance: json::text(&problem, "id")?, commands: spoken(json::text(&tools, "command_docs")?) })
}

fn task_group(
    config: &Config,
    directory: Option<&str>,
    fields: &Fields<'_>,
    file: &str,
) -> Result<Option<String>, Refusal> {
    let folder = directory.map(|path| path.trim_end_matches('/').rsplit('/').next().unwrap_or(path));
    let environment = json::text(fields, "environment")?;
    let file = file.rsplit('/').next().unwrap_or(file).strip_suffix(".traj");
    let names = [config.instance.as_deref(), folder, environment.as_deref(), file];
    Ok(names.into_iter().flatten().find_map(repository))
}
