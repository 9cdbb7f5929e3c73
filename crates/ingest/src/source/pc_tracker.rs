//! Recordings of PC Tracker (PC Agent): a JSON line per event beside a Markdown page of the same name.
//!
//! A line is `{timestamp, action, screenshot, element, rect}`, the screenshot taken before the action. The page says what
//! was to be done (`**Description:**`). Taken: the action's words, the element's name as flag `target`. Left out:
//! screenshots (counted; the observation is empty, of kind image), the box of the element, the rest of the page, which
//! says the lines again. Task group: hash of the task; without a page, the name of the file.

use serde::Deserialize;
use worldloom_schema::{Domain, System};

use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::Value;
use crate::piece::{FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct PcTracker;

const NAME: &str = "pc-tracker";

impl Source for PcTracker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "A folder of PC Tracker: a JSON line per event, beside a Markdown page of the same name; screenshots only".into(),
            example: r#"{"timestamp": "2024-01-01_10:00:00", "action": "click (8, 9)", "screenshot": "1.png", "element": "Start", "rect": {"left": 0, "top": 0, "right": 40, "bottom": 20}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder() else { return false };
        let first = recordings(folder).next().and_then(|entry| folder.read(entry).ok());
        first.is_some_and(|bytes| {
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let text = String::from_utf8_lossy(line);
            let names = ["timestamp", "action", "screenshot", "element", "rect"];
            matches!(Value::parse(&text), Ok(Value::Object(fields)) if names.iter().all(|name| fields.contains_key(*name)))
        })
    }

    fn takes(&self, entry: &str) -> bool {
        !entry.contains('/') && (entry.ends_with(".jsonl") || entry.ends_with(".md"))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        for entry in recordings(folder) {
            let name = entry.strip_suffix(".jsonl").unwrap_or(entry);
            let page = format!("{name}.md");
            let events = folder.text(entry, out.counts)?;
            let page = if folder.has(&page) { Some(folder.text(&page, out.counts)?) } else { None };
            let file = if folder.name.is_empty() { entry.to_string() } else { format!("{}/{entry}", folder.name) };
            let origin = Origin { file: &file, ..*origin };
            if let Err(refusal) = read(&events, page.as_deref(), name, &origin, out) {
                out.refuse(0, 0, Refusal { detail: format!("{entry}: {}", refusal.detail), ..refusal });
            }
        }
        Ok(())
    }
}

/// The recordings that lie in the folder itself.
fn recordings<'a>(folder: &'a FolderPiece<'_>) -> impl Iterator<Item = &'a str> {
    folder.entries.iter().map(String::as_str).filter(|entry| !entry.contains('/') && entry.ends_with(".jsonl"))
}

#[derive(Deserialize)]
struct Event {
    action: String,
    element: Option<String>,
}

/// Reads the lines of a recording and the page beside it.
fn read(events: &str, page: Option<&str>, name: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let mut screens = Screens::default();
    for (at, line) in events.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let event: Event =
            serde_json::from_str(line).map_err(|error| Refusal::new("json", format!("line {}: {error}", at + 1)))?;
        screens.show(Screen::Image);
        let family = event.action.split([' ', ':']).next().unwrap_or_default().to_string();
        let act = Act::words(event.action).flag("family", &family);
        screens.act(match event.element.filter(|element| element != "Unknown") {
            Some(element) => act.flag("target", &element),
            None => act,
        });
    }
    let task = page.and_then(description).unwrap_or_default();
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Os),
        task_group: task.is_empty().then(|| format!("recording-{name}")),
        system: System { task_description: task, ..System::default() },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

/// What the page says was to be done.
fn description(page: &str) -> Option<String> {
    let rest = page.split_once("**Description:**")?.1;
    let end = rest.find("\n\n").unwrap_or(rest.len());
    Some(rest[..end].trim().to_string())
}
