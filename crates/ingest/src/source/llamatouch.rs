//! LlamaTouch: dumps of UIAutomator with the actions between them, as its data set and its test bed lay them out.
//!
//! A *trace* (`llamatouch`) is a folder with a dump `0.xml`, `1.xml`, … before each action and after the last, the
//! actions in `eventStructs.txt`, a line each (`[Click] Screen Resolution (320, 720), Click Position (204, 170)`; older
//! ones are in Chinese), and the task in the second line of `instruction.txt`. A *run* (`llamatouch-run`) is what its
//! test bed captured of an agent: `xml/0.xml`, … and `action/0.action`, … with `CLICK|[0.0879 0.9069]|NULL|1080|2400`.
//!
//! Taken: trees ([`uiautomator`](super::uiautomator)), actions with their numbers, clicks of a trace in the units of the
//! screen they were recorded on. Left out: screenshots (a screen without a dump is an image, counted), `.vh` and `.json`,
//! which say the dump again, names of activities, annotations of essential states. A run does not say its task. Task
//! group: of a trace, hash of the task; of a run, the episode, which is the folder that it lies in.

use std::collections::BTreeSet;

use worldloom_schema::{Domain, System};

use super::screens::{Act, Screen, Screens};
use super::uiautomator::{self, Escaped};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::quote;
use crate::piece::{FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// A trace of the data set.
pub(crate) struct Trace;

/// A run of the test bed.
pub(crate) struct Run;

const TRACE: &str = "llamatouch";
const EVENTS: &str = "eventStructs.txt";
const INSTRUCTION: &str = "instruction.txt";

impl Source for Trace {
    fn name(&self) -> &'static str {
        TRACE
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: TRACE.into(),
            description: "A folder of a LlamaTouch trace: UIAutomator dumps `0.xml`, …, actions in `eventStructs.txt`, `instruction.txt`".into(),
            example: "[Click] Screen Resolution (320, 720), Click Position (204, 170)\n[Input] plum".into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece
            .folder()
            .is_some_and(|folder| folder.has(EVENTS) && folder.entries.iter().any(|entry| number(entry).is_some()))
    }

    fn takes(&self, entry: &str) -> bool {
        entry == EVENTS || entry == INSTRUCTION || number(entry).is_some()
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let text = folder.text(EVENTS, out.counts)?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let mut acts = lines.map(|line| event(line.trim())).collect::<Result<Vec<_>, _>>()?.into_iter();
        let mut screens = Screens::default();
        let shown: BTreeSet<usize> = folder.entries.iter().filter_map(|entry| number(entry)).collect();
        for at in 0..shown.last().map_or(0, |last| last + 1).max(acts.len()) {
            if shown.contains(&at) {
                screens.show(screen(folder, &format!("{at}.xml"), Escaped::Once, out)?);
            }
            acts.next().into_iter().for_each(|act| screens.act(act));
        }
        let instruction = if folder.has(INSTRUCTION) { folder.text(INSTRUCTION, out.counts)? } else { String::new() };
        let task = instruction.split_once('\n').map_or("", |(_, task)| task).trim();
        let draft = Draft {
            format: TRACE,
            domain: Some(Domain::Android),
            system: System { task_description: task.into(), ..System::default() },
            ..Draft::default()
        };
        screens.give(draft, origin, out)
    }
}

/// The number of the screen that a file of a trace is of: `3.xml`, `3.png`, `3_drawed.png`.
fn number(entry: &str) -> Option<usize> {
    let digits = entry.find(|letter: char| !letter.is_ascii_digit()).map(|end| &entry[..end])?;
    let is_of_screen = !entry.contains('/') && entry[digits.len()..].starts_with(['.', '_']);
    digits.parse().ok().filter(|number| is_of_screen && *number < MOST_SCREENS)
}

/// Screens of an episode, at most: a number in a name is no reason to count so far.
const MOST_SCREENS: usize = 10_000;

/// A dump as a screen; without one, an image.
fn screen(folder: &FolderPiece<'_>, dump: &str, escaped: Escaped, out: &mut Sink<'_>) -> Result<Screen, Refusal> {
    if !folder.has(dump) {
        return Ok(Screen::Image);
    }
    let xml = folder.text(dump, out.counts)?;
    match xml.trim() {
        "" => Ok(Screen::Image),
        xml => Ok(Screen::Tree(uiautomator::tree(xml, escaped).map_err(|refusal| refusal.of(dump))?)),
    }
}

/// What the recorder of old wrote in place of English.
const CHINESE: [(&str, &str); 5] =
    [("Home键", "Home"), ("Back键", "Back"), ("点击事件", "Click"), ("滑动事件", "Swipe"), ("键盘输入", "Input")];

/// A line such as `[Swipe] Screen Resolution (320, 720), Start Position (9, 9), End Position (9, 1)`.
fn event(line: &str) -> Result<Act, Refusal> {
    let bracketed = |open: char, close: char| line.strip_prefix(open)?.split_once(close);
    let (kind, rest) = bracketed('[', ']')
        .or_else(|| bracketed('【', '】'))
        .ok_or_else(|| Refusal::new("action", format!("`{EVENTS}`: expected `[Name] …`, found `{line}`")))?;
    let kind = CHINESE.iter().find(|(chinese, _)| *chinese == kind).map_or(kind, |(_, english)| english);
    let name = kind.to_lowercase().replace(' ', "_");
    let rest = rest.trim();
    if name == "input" {
        return Ok(Act::call(&name, [("text", quote(rest))]));
    }
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty());
    let numbers: Vec<String> = digits.map(|digits| digits.trim_start_matches('0')).map(or_zero).collect();
    let (screen, points) = numbers.split_at(numbers.len().min(2));
    if !matches!(numbers.len(), 0 | 4 | 6) {
        let detail = format!("`{EVENTS}`: expected a screen and one or two points, found `{line}`");
        return Err(Refusal::new("action", detail));
    }
    let points = ["x", "y", "end_x", "end_y"].into_iter().zip(points);
    let arguments = points.chain(["screen_width", "screen_height"].into_iter().zip(screen));
    Ok(Act::call(&name, arguments.map(|(name, digits)| (name, digits.clone()))))
}

/// Digits without zeros before them, as JSON has them.
fn or_zero(digits: &str) -> String {
    if digits.is_empty() { "0".into() } else { digits.into() }
}

const RUN: &str = "llamatouch-run";

impl Source for Run {
    fn name(&self) -> &'static str {
        RUN
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: RUN.into(),
            description: "A folder that LlamaTouch's test bed captured: UIAutomator dumps `xml/0.xml`, …, actions `action/0.action`, …".into(),
            example: "CLICK|[0.0879 0.9069]|NULL|1080|2400".into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.folder().is_some_and(|folder| folder.has("xml/0.xml") && folder.has("action/0.action"))
    }

    fn takes(&self, entry: &str) -> bool {
        let parts = ["xml/", "action/", "activity/", "screenshot/", "view_hierarchy/", "installed_apps/"];
        parts.iter().any(|part| entry.starts_with(part))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let mut screens = Screens::default();
        for at in 0..MOST_SCREENS {
            let (dump, action) = (format!("xml/{at}.xml"), format!("action/{at}.action"));
            let pictured = folder.has(&format!("screenshot/{at}.png"));
            if !(folder.has(&dump) || pictured || folder.has(&action)) {
                break;
            }
            if folder.has(&dump) || pictured {
                screens.show(screen(folder, &dump, Escaped::Twice, out)?);
            }
            if folder.has(&action) {
                let text = folder.text(&action, out.counts)?;
                screens.act(captured(text.trim()).map_err(|refusal| refusal.of(&action))?);
            }
        }
        let above = folder.name.split('/').rfind(|part| !part.is_empty() && *part != "captured_data");
        let draft = Draft {
            format: RUN,
            domain: Some(Domain::Android),
            task_group: Some(format!("llamatouch-{}", above.unwrap_or(origin.source))),
            ..Draft::default()
        };
        screens.give(draft, origin, out)
    }
}

/// A line such as `TYPE|plum|NULL|1080|2400`: the action, its point or text, a second point, the screen.
fn captured(line: &str) -> Result<Act, Refusal> {
    let wrong = || Refusal::new("action", format!("expected `NAME|…|…|width|height`, found `{line}`"));
    let (name, rest) = line.split_once('|').ok_or_else(wrong)?;
    // What was typed may have bars itself.
    let mut parts = rest.rsplitn(4, '|');
    let (_height, _width) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
    let (second, first) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
    let name = name.trim().to_lowercase();
    let arguments = match name.as_str() {
        "type" => vec![("text", quote(first))],
        _ => {
            let (from, to) = (point(first).ok_or_else(wrong)?, point(second).ok_or_else(wrong)?);
            ["x", "y", "end_x", "end_y"].into_iter().zip(from.into_iter().chain(to)).collect()
        }
    };
    Ok(Act::call(&name, arguments))
}

/// The numbers of a point such as `[0.8, 0.5]` or `[0.8 0.5]`; `NULL` has none.
fn point(text: &str) -> Option<Vec<String>> {
    if text.trim() == "NULL" {
        return Some(Vec::new());
    }
    let inside = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let numbers = inside.split([',', ' ']).filter(|part| !part.is_empty());
    let numbers: Option<Vec<String>> = numbers
        .map(|part| part.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number.to_string()))
        .collect();
    numbers.filter(|numbers| numbers.len() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(act: Result<Act, Refusal>) -> String {
        act.map_or_else(|refusal| format!("{}: {}", refusal.rule, refusal.detail), |act| act.text)
    }

    #[test]
    fn events_are_calls_in_either_language() {
        let click = r#"{"name": "click", "arguments": {"x": 204, "y": 0, "screen_width": 320, "screen_height": 720}}"#;
        assert_eq!(said(event("[Click] Screen Resolution (320, 720), Click Position (204, 0)")), click);
        assert_eq!(said(event("【点击事件】屏幕大小：（w320，h720），触摸位置：（x204，y00）")), click);
        let swipe = r#"{"name": "swipe", "arguments": {"x": 9, "y": 8, "end_x": 7, "end_y": 6, "screen_width": 320, "screen_height": 720}}"#;
        assert_eq!(
            said(event("[Swipe] Screen Resolution (320, 720), Start Position (9, 8), End Position (7, 6)")),
            swipe
        );
        assert_eq!(
            said(event("【滑动事件】屏幕大小：（w320，h720），起始位置：（x9，y8），结束位置：（x7，y6）")),
            swipe
        );
        assert_eq!(said(event("【键盘输入】a [1] 2")), r#"{"name": "input", "arguments": {"text": "a [1] 2"}}"#);
        assert_eq!(said(event("[App Switch]")), r#"{"name": "app_switch", "arguments": {}}"#);
        assert_eq!(said(event("click")), "action: `eventStructs.txt`: expected `[Name] …`, found `click`");
        assert!(said(event("[Click] 1, 2")).ends_with("one or two points, found `[Click] 1, 2`"));
    }

    #[test]
    fn captured_actions_are_calls() {
        let check = |line: &str, expected: &str| assert_eq!(said(captured(line)), expected);
        check("TYPE|a|b 'c'|NULL|1080|2400", r#"{"name": "type", "arguments": {"text": "a|b 'c'"}}"#);
        check("CLICK|[0.0879 1.]|NULL|1080|2400", r#"{"name": "click", "arguments": {"x": 0.0879, "y": 1}}"#);
        let swipe = r#"{"name": "swipe", "arguments": {"x": 0.8, "y": 0.5, "end_x": 0.2, "end_y": 0.5}}"#;
        check("SWIPE|[0.8, 0.5]|[0.2 0.5]|1080|2400", swipe);
        check("PRESS_HOME|NULL|NULL|1080|2400", r#"{"name": "press_home", "arguments": {}}"#);
        for wrong in ["None|None|None", "CLICK|[0.1]|NULL|1|1", "CLICK|[nan 1]|NULL|1|1", ""] {
            check(wrong, &format!("action: expected `NAME|…|…|width|height`, found `{wrong}`"));
        }
    }
}
