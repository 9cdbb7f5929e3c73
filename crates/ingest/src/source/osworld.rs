//! Runs of OSWorld: a folder for each task, with a line of `traj.jsonl` for each action.
//!
//! A line is `{step_num, action_timestamp, action, response, reward, done, info, screenshot_file}`; the screenshot was
//! taken after the action, and one answer of the agent may give several lines of one `step_num`. Upstream keeps pictures
//! only. Runners that keep the accessibility tree too write it into the line (`accessibility_tree`, `a11y_tree`) or into
//! a file named like the screenshot, as XML or as the table that agents are shown; it is taken as it came.
//!
//! Taken: pyautogui code, names such as `WAIT`, actions as objects; what the agent said before its code as thoughts; the
//! score of `result.txt`; the instruction from a line or from a JSON file in the folder. Left out: screenshots (counted),
//! lines without an action, which say that the harness gave up (counted). Written after the documentation, no file of
//! upstream was at hand. Task group: the task's id, which is the folder's name, else the hash of the instruction.

use worldloom_schema::{Domain, Outcome, System};

use super::format::folder_name;
use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{self, Fields, Value};
use crate::piece::{FilePiece, FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct OsWorld;

const NAME: &str = "osworld";
const LINES: &str = "traj.jsonl";
const SCORE: &str = "result.txt";
/// What a runner may call the tree of the screen.
const TREES: [&str; 3] = ["accessibility_tree", "a11y_tree", "axtree"];
/// Files of a run besides.
const ENDINGS: [&str; 4] = [".json", ".xml", ".txt", ".log"];

impl Source for OsWorld {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "A folder of an OSWorld run: `traj.jsonl` with a line per action, `result.txt`; trees where the runner kept them".into(),
            example: r#"{"step_num": 1, "action_timestamp": "20240101@100000", "action": "pyautogui.click(8, 9)", "response": "I click.", "reward": 0, "done": false, "info": {}, "screenshot_file": "step_1.png", "accessibility_tree": "<desktop-frame/>"}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder().filter(|folder| folder.has(LINES)) else { return false };
        let Ok(bytes) = folder.read(LINES) else { return false };
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let text = String::from_utf8_lossy(line);
        matches!(Value::parse(&text), Ok(Value::Object(fields))
            if fields.contains_key("step_num") && fields.contains_key("action"))
    }

    fn takes(&self, entry: &str) -> bool {
        !entry.contains('/') && (entry == LINES || ENDINGS.iter().any(|ending| entry.ends_with(ending)))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let bytes = folder.read(LINES)?;
        let rows = FilePiece { name: LINES, bytes: &bytes, rows: &[], first_row: None }.rows(out.counts);
        let mut run = Run::default();
        for row in rows {
            let added = row.text.and_then(|text| match Value::parse(&text).map_err(|error| Refusal::json(&error))? {
                Value::Object(fields) => run.add(&fields, folder, out),
                other => Err(Refusal::field_type("row", "an object", other.kind())),
            });
            if let Err(refusal) = added {
                out.refuse(row.number, row.offset, refusal);
            }
        }
        let instruction = match run.instruction {
            Some(instruction) => instruction,
            None => instruction_beside(folder, out)?.unwrap_or_default(),
        };
        let score = match folder.has(SCORE) {
            true => folder.text(SCORE, out.counts)?.trim().parse().ok(),
            false => None,
        };
        let draft = Draft {
            format: NAME,
            domain: Some(Domain::Os),
            task_group: folder_name(folder.name),
            system: System { task_description: instruction, ..System::default() },
            outcome: Outcome { reward: score, success: score.map(|score: f64| score >= 1.0) },
            ..Draft::default()
        };
        run.screens.give(draft, origin, out)
    }
}

/// The lines read so far.
#[derive(Default)]
struct Run {
    screens: Screens,
    step: Option<String>,
    instruction: Option<String>,
}

impl Run {
    fn add(&mut self, fields: &Fields<'_>, folder: &FolderPiece<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let action = match fields.get("action").map(|raw| Value::of(raw)).transpose()? {
            None => {
                self.screens.leave_out("lines_without_an_action", 1);
                return Ok(());
            }
            Some(Value::Null) => None,
            Some(Value::Text(text)) => Some(Act::code(text)),
            Some(Value::Object(_)) => Some(Act::from_object(fields["action"].get(), "action_type")?),
            Some(other) => return Err(Refusal::field_type("action", "a string or an object", other.kind())),
        };
        let screen = screen(fields, folder, out)?;
        self.instruction = self.instruction.take().or(json::text(fields, "instruction")?);
        if let Some(action) = action {
            let step = json::text(fields, "step_num")?;
            let is_first = self.step.is_none() || self.step != step;
            self.step = step;
            let words = fields.get("response").filter(|_| is_first).map(|raw| Value::of(raw)).transpose()?;
            self.screens.act(match words {
                Some(Value::Text(words)) => action.because(words.split("```").next().map(str::to_string)),
                _ => action,
            });
        }
        self.screens.show(screen);
        Ok(())
    }
}

/// The tree of the screen in the line, in what it calls the observation, or in a file named like the screenshot.
fn screen(fields: &Fields<'_>, folder: &FolderPiece<'_>, out: &mut Sink<'_>) -> Result<Screen, Refusal> {
    let inner = ["observation", "obs"].into_iter().find_map(|name| json::object(fields, name).ok().flatten());
    for fields in std::iter::once(fields).chain(&inner) {
        for name in TREES {
            if let Some(tree) = json::text(fields, name)?.filter(|tree| !tree.trim().is_empty()) {
                return Ok(Screen::Tree(tree.trim().to_string()));
            }
        }
    }
    let picture = json::text(fields, "screenshot_file")?.unwrap_or_default();
    let stem = picture.rsplit_once('.').map_or(picture.as_str(), |(stem, _)| stem);
    let beside = [".xml", ".txt"].into_iter().map(|ending| format!("{stem}{ending}")).find(|name| folder.has(name));
    match beside {
        Some(name) => Ok(Screen::Tree(folder.text(&name, out.counts)?.trim().to_string())),
        None => Ok(Screen::Image),
    }
}

/// The instruction of the task's own file, where a runner put that into the folder.
fn instruction_beside(folder: &FolderPiece<'_>, out: &mut Sink<'_>) -> Result<Option<String>, Refusal> {
    for entry in folder.entries.iter().filter(|entry| !entry.contains('/') && entry.ends_with(".json")) {
        let text = folder.text(entry, out.counts)?;
        if let Ok(Value::Object(fields)) = Value::parse(&text)
            && let Ok(Some(instruction)) = json::text(&fields, "instruction")
        {
            return Ok(Some(instruction));
        }
    }
    Ok(None)
}
