//! AppAgent: dumps of UIAutomator with actions on numbered elements, as its runs and its recorder lay them out.
//!
//! A *run* is a folder of `tasks/`: a line of `log_….txt` for each step, `{step, prompt, image, response}`, where the image
//! is `NAME_1_labeled.png`, and the dump before the step in `NAME_1.xml`. A *demonstration* is a folder of `apps/…/demos/`:
//! `task_desc.txt`, `xml/NAME_1.xml`, … and a line of `record.txt` for each action, `tap(5):::the element's id`.
//!
//! Actions name elements by numbers that upstream paints on the screenshots; here they stand in the tree, counted by its
//! rule ([`numbers`]). Taken: trees ([`uiautomator`](super::uiautomator)), actions, the model's words before its action as
//! thoughts, the task and the functions that the prompt declares. Left out: screenshots, summaries, documentation of
//! elements; explorations (`log_explore_….txt`), which go back between steps without saying so here. Written after the
//! code, no file of upstream was at hand. Task group: hash of the task.

use std::collections::BTreeMap;

use worldloom_schema::{Domain, System};

use super::android_actions::read_answer;
use super::screens::{Act, Screen, Screens};
use super::tree::Place;
use super::uiautomator::{Dump, Escaped};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{self, Fields, Value, quote};
use crate::piece::{FilePiece, FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AppAgent;

const NAME: &str = "appagent";
const RECORD: &str = "record.txt";
const TASK: &str = "task_desc.txt";
/// How the names of images end that the model is shown.
const LABELED: &str = "_labeled.png";

impl Source for AppAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "A folder of an AppAgent run (`log_….txt`, a dump of UIAutomator a step) or of its recorder (`record.txt`, `task_desc.txt`, `xml/`)".into(),
            example: r#"{"step": 1, "prompt": "… The task you need to complete is to write a note. Your past actions …", "image": "task_Notes_1_labeled.png", "response": {"choices": [{"message": {"content": "Observation: A list.\nThought: I add one.\nAction: tap(2)\nSummary: I added a note."}}]}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.folder().is_some_and(|folder| is_demonstration(folder) || log(folder).is_some())
    }

    fn takes(&self, entry: &str) -> bool {
        let beside = ["xml/", "raw_screenshots/", "labeled_screenshots/"].iter().any(|part| entry.starts_with(part));
        let is_own = entry == RECORD
            || entry == TASK
            || is_log_name(entry)
            || [".xml", ".png"].iter().any(|ending| entry.ends_with(ending));
        beside || (is_own && !entry.contains('/'))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let (screens, system) = match log(folder).filter(|_| !is_demonstration(folder)) {
            Some((entry, bytes)) => read_run(folder, &entry, &bytes, out)?,
            None => read_demonstration(folder, out)?,
        };
        let draft = Draft { format: NAME, domain: Some(Domain::Android), system, ..Draft::default() };
        screens.give(draft, origin, out)
    }
}

fn is_demonstration(folder: &FolderPiece<'_>) -> bool {
    folder.has(RECORD) && folder.has(TASK) && folder.entries.iter().any(|entry| entry.starts_with("xml/"))
}

fn is_log_name(entry: &str) -> bool {
    entry.starts_with("log_") && entry.ends_with(".txt")
}

/// The log of a run, with its name.
fn log(folder: &FolderPiece<'_>) -> Option<(String, Vec<u8>)> {
    let entry = folder.entries.iter().find(|entry| is_log_name(entry))?;
    let bytes = folder.read(entry).ok()?;
    let line = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next()?).into_owned();
    let Ok(Value::Object(fields)) = Value::parse(&line) else { return None };
    let is_step = ["step", "prompt", "response"].iter().all(|name| fields.contains_key(*name));
    let dump = dump_of(&fields).ok()?;
    (is_step && folder.has(&dump)).then(|| (entry.clone(), bytes))
}

/// The dump of a step, beside the image that the model was shown.
fn dump_of(step: &Fields<'_>) -> Result<String, Refusal> {
    let image = json::text(step, "image")?.unwrap_or_default();
    let name = image
        .strip_suffix(LABELED)
        .ok_or_else(|| Refusal::field_type("image", "a name ending in `_labeled.png`", &format!("`{image}`")))?;
    Ok(format!("{name}.xml"))
}

fn read_run(
    folder: &FolderPiece<'_>,
    entry: &str,
    bytes: &[u8],
    out: &mut Sink<'_>,
) -> Result<(Screens, System), Refusal> {
    let rows = FilePiece { name: entry, bytes, rows: &[], first_row: None }.rows(out.counts);
    let (mut screens, mut system, mut next) = (Screens::default(), System::default(), None);
    for row in rows {
        let added = row.text.and_then(|text| match Value::parse(&text).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => {
                let dump = dump_of(&fields)?;
                screens.show(screen(folder, &dump, out)?);
                if system.task_description.is_empty() {
                    (system.task_description, system.action_space) =
                        asked(&json::text(&fields, "prompt")?.unwrap_or_default());
                }
                screens.act(answered(&fields)?);
                next = after(&dump);
                Ok(())
            }
            other => Err(Refusal::field_type("row", "an object", other.kind())),
        });
        if let Err(refusal) = added {
            out.refuse(row.number, row.offset, refusal.of(entry));
        }
    }
    // The dump of a step that the model did not come to shows what the last action did.
    if let Some(dump) = next.filter(|dump| folder.has(dump)) {
        screens.show(screen(folder, &dump, out)?);
    }
    Ok((screens, system))
}

/// The task and the functions of a prompt, as upstream's templates have them.
fn asked(prompt: &str) -> (String, Option<String>) {
    let between = |start: &str, end: &str| {
        let (_, rest) = prompt.split_once(start)?;
        Some(rest.split_once(end).map_or(rest, |(inside, _)| inside).trim().to_string())
    };
    let task = between("The task you need to complete is to ", ". Your past actions").unwrap_or_default();
    let functions = between("to control the smartphone:", "The task you need to complete is");
    let functions =
        functions.map(|text| text.split("You also have access to").next().unwrap_or_default().trim().to_string());
    (task, functions.filter(|text| !text.is_empty()))
}

/// The action of an answer, which is a model's response as it came or its words.
fn answered(step: &Fields<'_>) -> Result<Act, Refusal> {
    let words = match step.get("response").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::Text(words)) => words,
        Some(Value::Object(response)) => {
            let choices = json::objects(&response, "choices")?;
            let message = choices.first().map(|choice| json::object(choice, "message")).transpose()?.flatten();
            let content = message.map(|message| json::text(&message, "content")).transpose()?.flatten();
            content.ok_or_else(|| Refusal::field_type("response", "a choice with a message", "none"))?
        }
        _ => return Err(Refusal::field_type("response", "an object or a string", "nothing")),
    };
    Ok(read_answer(words.split("\nSummary:").next().unwrap_or_default()))
}

/// The dump of the step after this one.
fn after(dump: &str) -> Option<String> {
    let (name, number) = dump.strip_suffix(".xml")?.rsplit_once('_')?;
    Some(format!("{name}_{}.xml", number.parse::<u32>().ok()?.checked_add(1)?))
}

fn read_demonstration(folder: &FolderPiece<'_>, out: &mut Sink<'_>) -> Result<(Screens, System), Refusal> {
    let dumps: BTreeMap<u32, &String> =
        folder.entries.iter().filter_map(|entry| Some((demonstrated(entry)?, entry))).collect();
    let record = folder.text(RECORD, out.counts)?;
    let mut lines = record.lines().filter(|line| !line.trim().is_empty() && line.trim() != "stop");
    let mut screens = Screens::default();
    for dump in dumps.values() {
        screens.show(screen(folder, dump, out)?);
        if let Some(line) = lines.next() {
            screens.act(recorded(line.trim())?);
        }
    }
    screens.leave_out("actions_without_a_screen", lines.count() as u64);
    let task_description = folder.text(TASK, out.counts)?.trim().to_string();
    Ok((screens, System { task_description, ..System::default() }))
}

/// The step of a dump such as `xml/demo_Notes_3.xml`.
fn demonstrated(entry: &str) -> Option<u32> {
    entry.strip_prefix("xml/")?.strip_suffix(".xml")?.rsplit_once('_')?.1.parse().ok()
}

/// A line such as `text(3:sep:"plum"):::the element's id`.
fn recorded(line: &str) -> Result<Act, Refusal> {
    let wrong = || Refusal::new("action", format!("`{RECORD}`: expected `name(element):::id`, found `{line}`"));
    let (action, id) = line.rsplit_once(":::").ok_or_else(wrong)?;
    let (name, rest) = action.split_once('(').ok_or_else(wrong)?;
    let inside = rest.strip_suffix(')').ok_or_else(wrong)?;
    let (element, more) = inside.split_once(":sep:").map_or((inside, None), |(element, more)| (element, Some(more)));
    let element: u32 = element.parse().map_err(|_| wrong())?;
    let more = more.map(|more| match name {
        "text" => ("text", quote(more.strip_prefix('"').and_then(|more| more.strip_suffix('"')).unwrap_or(more))),
        _ => ("direction", quote(more)),
    });
    let arguments = std::iter::once(("element", element.to_string())).chain(more).chain([("id", quote(id))]);
    Ok(Act::call(name, arguments))
}

fn screen(folder: &FolderPiece<'_>, dump: &str, out: &mut Sink<'_>) -> Result<Screen, Refusal> {
    if !folder.has(dump) {
        return Ok(Screen::Image);
    }
    let xml = folder.text(dump, out.counts)?;
    let dump = Dump::read(&xml, Escaped::Once).map_err(|refusal| refusal.of(dump))?;
    Ok(Screen::Tree(dump.tree(&numbers(&dump))))
}

/// Elements whose centres are closer than this many pixels have one number (`MIN_DIST` of upstream's `config.yaml`).
const MIN_DISTANCE: f64 = 30.0;

/// The numbers of elements, by their place: from 1, the clickable ones in order, then the focusable ones; one too near to
/// another of its own kind, or to a clickable one, has none.
fn numbers(dump: &Dump) -> BTreeMap<usize, i64> {
    let kind = |fact: &str| {
        let mut kept: Vec<(usize, [f64; 2])> = Vec::new();
        for (at, node) in dump.nodes.iter().enumerate().filter(|(_, node)| node.is(fact)) {
            let Some(centre) = node.place().map(centre) else { continue };
            if !is_near(centre, &kept) {
                kept.push((at, centre));
            }
        }
        kept
    };
    let mut all = kind("clickable");
    let clickable = all.len();
    for (at, centre) in kind("focusable") {
        if !is_near(centre, &all[..clickable]) {
            all.push((at, centre));
        }
    }
    let mut numbers = BTreeMap::new();
    for ((at, _), number) in all.into_iter().zip(1..) {
        numbers.insert(at, number);
    }
    numbers
}

fn centre(place: Place) -> [f64; 2] {
    [((place.left + place.right) / 2.0).floor(), ((place.top + place.bottom) / 2.0).floor()]
}

fn is_near(centre: [f64; 2], others: &[(usize, [f64; 2])]) -> bool {
    others.iter().any(|(_, other)| (centre[0] - other[0]).hypot(centre[1] - other[1]) <= MIN_DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_numbered_as_upstream_paints_them() {
        let node = |facts: &str, bounds: &str| format!("<node {facts} bounds=\"{bounds}\"/>");
        let xml = [
            node("focusable=\"true\"", "[0,500][100,600]"),
            node("clickable=\"true\"", "[0,0][100,100]"),
            node("clickable=\"true\"", "[0,10][100,110]"),
            node("focusable=\"true\"", "[0,30][100,130]"),
            node("clickable=\"true\" focusable=\"true\"", "[0,200][100,300]"),
            node("focusable=\"true\"", "[0,531][100,631]"),
            node("focusable=\"true\"", "[0,561][100,661]"),
        ];
        let dump = Dump::read(&format!("<hierarchy>{}</hierarchy>", xml.concat()), Escaped::Once).unwrap();
        assert_eq!(numbers(&dump), BTreeMap::from([(2, 1), (5, 2), (1, 3), (6, 4)]));
    }

    #[test]
    fn recorded_actions_are_calls() {
        let check = |line: &str, expected: &str| assert_eq!(recorded(line).unwrap().text, expected);
        check("tap(5):::com.fig.id_add_0", r#"{"name": "tap", "arguments": {"element": 5, "id": "com.fig.id_add_0"}}"#);
        let text = r#"{"name": "text", "arguments": {"element": 3, "text": "a\":::(b)", "id": "x"}}"#;
        check(r#"text(3:sep:"a":::(b)"):::x"#, text);
        let swipe = r#"{"name": "swipe", "arguments": {"element": 4, "direction": "up", "id": "x"}}"#;
        check("swipe(4:sep:up):::x", swipe);
        for wrong in ["tap(5)", "tap:::x", "tap(x):::x", "tap(5:::x"] {
            assert_eq!(recorded(wrong).unwrap_err().rule, "action", "{wrong}");
        }
    }
}
