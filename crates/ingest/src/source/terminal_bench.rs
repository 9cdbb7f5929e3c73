//! terminal-bench run folders: `results.json` beside the recording of the session and the agent's own logs.
//!
//! From the agent's logs, where they are: the action is the keystrokes of a response (its analysis and plan the
//! reasoning), the observation the terminal that the next prompt shows, and the last one the pane after the agent. Else
//! from the recording `sessions/agent.cast`, by its input events. Task group: `terminal-bench/` and the task id.

use worldloom_schema::{ActionKind, Domain, Outcome, System, Turn};

use super::{Draft, FormatInfo, Origin, Source, asciicast};
use crate::episode::turn;
use crate::json::{self, Fields, Value};
use crate::piece::{FolderPiece, Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal};
use crate::repair;

const RESULTS: &str = "results.json";
const RECORDING: &str = "sessions/agent.cast";
const LAST_PANE: &str = "panes/post-agent.txt";
/// What stands before the terminal in a prompt.
const TERMINAL_HEADS: [&str; 3] = ["New Terminal Output:", "Current Terminal Screen:", "Current terminal state:"];

/// The format.
pub(crate) struct TerminalBench;

impl Source for TerminalBench {
    fn name(&self) -> &'static str {
        "terminal-bench"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A folder of a terminal-bench run: results.json, sessions/agent.cast, agent-logs/episode-*"
                .into(),
            example: r#"{"task_id": "bake", "instruction": "Bake it.", "is_resolved": true}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.folder().is_some_and(|folder| {
            folder.has(RESULTS) && (folder.has(RECORDING) || folder.has("agent-logs/episode-0/prompt.txt"))
        })
    }

    fn takes(&self, entry: &str) -> bool {
        let parts = ["sessions/", "panes/", "agent-logs/"];
        [RESULTS, "commands.txt", "agent.log"].contains(&entry) || parts.iter().any(|part| entry.starts_with(part))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let text = text(folder, RESULTS, out.counts)?;
        let Value::Object(results) = Value::parse(&text).map_err(|error| Refusal::json(&error))? else {
            return Err(Refusal::new("field_type", "results.json: expected an object"));
        };
        let episodes = folder.entries.iter().filter(|entry| entry.ends_with("/prompt.txt")).count();
        let (initial_state, turns) = match episodes {
            0 => {
                let name = format!("{}/{RECORDING}", folder.name);
                let session = asciicast::play(&folder.read(RECORDING)?, &name, origin, out)?;
                (session.initial_state, session.turns)
            }
            episodes => logged(folder, episodes, out.counts)?,
        };
        let task = json::text(&results, "task_id")?.unwrap_or_else(|| folder.name.to_string());
        let draft = Draft {
            format: self.name(),
            domain: Some(Domain::Terminal),
            task_group: Some(format!("{}/{task}", self.name())),
            system: System {
                task_description: json::text(&results, "instruction")?.unwrap_or(task),
                initial_state,
                ..System::default()
            },
            turns,
            outcome: Outcome { reward: None, success: json::boolean(&results, "is_resolved")? },
            ..Draft::default()
        };
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

fn text(folder: &FolderPiece<'_>, entry: &str, counts: &mut Counts) -> Result<String, Refusal> {
    Ok(repair::to_text(folder.read(entry)?, counts))
}

/// The first state and the turns of the agent's logs.
fn logged(
    folder: &FolderPiece<'_>,
    episodes: usize,
    counts: &mut Counts,
) -> Result<(Option<String>, Vec<Turn>), Refusal> {
    let (mut initial_state, mut turns) = (None, Vec::<Turn>::new());
    for episode in 0..episodes {
        let entry = |name: &str| format!("agent-logs/episode-{episode}/{name}");
        if !folder.has(&entry("prompt.txt")) {
            return Err(Refusal::new("missing_file", format!("no `{}` in the folder", entry("prompt.txt"))));
        }
        let prompt = text(folder, &entry("prompt.txt"), counts)?;
        match turns.last_mut() {
            None => initial_state = Some(terminal(&prompt).to_string()).filter(|state| !state.is_empty()),
            Some(last) => last.observation = terminal(&prompt).to_string(),
        }
        let response = ["response.json", "response.txt"].map(entry).into_iter().find(|name| folder.has(name));
        let Some(response) = response else { break };
        turns.push(action(&text(folder, &response, counts)?));
    }
    match turns.last_mut() {
        Some(last) if folder.has(LAST_PANE) => last.observation = text(folder, LAST_PANE, counts)?.trim_end().into(),
        Some(_) => {
            turns.pop();
            crate::refusal::count(counts, "calls_without_a_result", 1);
        }
        None => {}
    }
    Ok((initial_state, turns))
}

/// The terminal that a prompt shows.
fn terminal(prompt: &str) -> &str {
    let start = TERMINAL_HEADS.iter().filter_map(|head| Some(prompt.rfind(head)? + head.len())).max();
    start.map_or(prompt, |start| &prompt[start..]).trim_matches('\n')
}

/// The keystrokes of a response; a response that is no JSON is the action as it is.
fn action(response: &str) -> Turn {
    let bare = response.trim().trim_start_matches("```json").trim_end_matches("```").trim();
    let Ok(Value::Object(fields)) = Value::parse(bare) else {
        return turn(response.to_string(), ActionKind::Text, String::new());
    };
    let keys = commands(&fields);
    let text = |name: &str| json::text(&fields, name).ok().flatten();
    let thoughts: Vec<String> =
        ["analysis", "plan", "state_analysis", "explanation"].iter().filter_map(|name| text(name)).collect();
    let reasoning = Some(thoughts.join("\n\n")).filter(|text| !text.is_empty());
    Turn { reasoning, ..turn(keys.concat(), ActionKind::Keystrokes, String::new()) }
}

fn commands(fields: &Fields<'_>) -> Vec<String> {
    let list = fields.get("commands").and_then(|raw| Value::of(raw).ok());
    let Some(Value::List(items)) = list else { return Vec::new() };
    let keys = |raw: &&serde_json::value::RawValue| match Value::of(raw) {
        Ok(Value::Object(command)) => json::text(&command, "keystrokes").ok().flatten(),
        Ok(Value::Text(text)) => Some(text),
        _ => None,
    };
    items.iter().filter_map(keys).collect()
}
