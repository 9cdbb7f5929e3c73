//! asciicast v1, v2 and v3: terminal recordings, rendered by a terminal emulator to what a person would have seen.
//!
//! Recordings with input events give keystrokes and what appeared after them; without, commands are read off the screen
//! where they were echoed after a prompt, and their output is what stands between them and the next prompt
//! (see [`session`](super::session)). An event that is none refuses its row and ends the recording there: no later screen
//! could be trusted. Left out: themes, idle limits, markers. Task group: the hash of title and first commands.

use worldloom_schema::{Domain, System};

use super::session::{Event, Kind, Session};
use super::{Draft, FormatInfo, Origin, Source, hash_task};
use crate::json::{self, Fields, Value};
use crate::piece::{FilePiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Largest terminal that is believed.
const MAX_SIDE: usize = 2000;

/// The format.
pub(crate) struct Asciicast;

impl Source for Asciicast {
    fn name(&self) -> &'static str {
        "asciicast"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "asciicast v1, v2, v3 terminal recordings, as screens a person would have seen".into(),
            example: concat!(
                r#"{"version": 2, "width": 40, "height": 10, "title": "Look"}"#,
                "\n",
                r#"[0.1, "o", "$ "]"#,
                "\n",
                r#"[1.0, "o", "ls"]"#,
                "\n",
                r#"[2.0, "o", "\r\nnotes.txt\r\n$ "]"#
            )
            .into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(fields) = piece.file().and_then(FilePiece::first_fields) else { return false };
        let has = |name: &str| fields.contains_key(name);
        match json::text(&fields, "version").ok().flatten().as_deref() {
            Some("1") => has("stdout"),
            Some("2") => has("width") && has("height"),
            Some("3") => has("term"),
            _ => false,
        }
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        let (header, events) = recording(file, out)?;
        let session = Session::play(header.columns, header.rows, &events)?;
        out.count("events_read", events.len() as u64);
        let commands: Vec<&str> = session.turns.iter().take(3).map(|turn| turn.action.as_str()).collect();
        let group = format!("{}\n{}", header.title.as_deref().unwrap_or_default(), commands.join("\n"));
        let size = format!("A terminal of {} columns and {} rows.", header.columns, header.rows);
        let title = header.title.map_or(size.clone(), |title| format!("{title}\n{size}"));
        let draft = Draft {
            format: self.name(),
            domain: Some(Domain::Terminal),
            task_group: Some(hash_task(&group)),
            system: System {
                task_description: title,
                initial_state: session.initial_state.filter(|text| !text.is_empty()),
                ..System::default()
            },
            turns: session.turns,
            ..Draft::default()
        };
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// The session of a recording that is part of something else; `name` is its own.
pub(crate) fn play(bytes: &[u8], name: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<Session, Refusal> {
    let (header, events) = recording(&FilePiece { name, bytes, rows: &[], first_row: None }, out)
        .map_err(|refusal| Refusal { detail: format!("{}: {}", origin.file, refusal.detail), ..refusal })?;
    Session::play(header.columns, header.rows, &events)
}

/// Header and events, up to the first that is none.
fn recording(file: &FilePiece<'_>, out: &mut Sink<'_>) -> Result<(Header, Vec<Event>), Refusal> {
    let mut rows = file.rows(out.counts).into_iter();
    let Some(first) = rows.next() else { return Err(Refusal::new("cast_header", "an empty file")) };
    let text = first.text?;
    let Value::Object(fields) = Value::parse(&text).map_err(|error| Refusal::json(&error))? else {
        return Err(Refusal::new("cast_header", "the first line is no object"));
    };
    let header = header(&fields)?;
    let mut events = Vec::new();
    if header.version == 1 {
        events = frames(&fields)?;
    }
    let mut time = 0.0;
    for row in rows {
        let event = match &row.text {
            Ok(text) if text.trim_start().starts_with('#') => continue,
            Ok(text) => event(text, &mut time, header.version == 3),
            Err(refusal) => Err(refusal.clone()),
        };
        match event {
            Ok(event) => events.push(event),
            Err(refusal) => {
                out.refuse(row.number, row.offset, refusal);
                break;
            }
        }
    }
    Ok((header, events))
}

/// The facts of a header that are used.
struct Header {
    version: u32,
    columns: usize,
    rows: usize,
    title: Option<String>,
}

fn header(fields: &Fields<'_>) -> Result<Header, Refusal> {
    let version = json::text(fields, "version")?.and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let term = json::object(fields, "term")?.unwrap_or_default();
    let (fields_of_size, names) = if version == 3 { (&term, ["cols", "rows"]) } else { (fields, ["width", "height"]) };
    let side = |name: &str| -> Result<usize, Refusal> {
        let digits = json::text(fields_of_size, name)?.unwrap_or_default();
        let side = digits.parse().ok().filter(|side| (1..=MAX_SIDE).contains(side));
        side.ok_or_else(|| Refusal::new("cast_header", format!("`{name}`: expected 1 to {MAX_SIDE}, found `{digits}`")))
    };
    let title = json::text(fields, "title")?.filter(|title| !title.trim().is_empty());
    Ok(Header { version, columns: side(names[0])?, rows: side(names[1])?, title })
}

/// The events of a v1 recording, whose delays are relative.
fn frames(fields: &Fields<'_>) -> Result<Vec<Event>, Refusal> {
    let frames = match fields.get("stdout").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::List(frames)) => frames,
        _ => return Err(Refusal::new("cast_header", "no list in field stdout")),
    };
    let mut time = 0.0;
    let mut events = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let wrong = |detail: &str| Refusal::new("cast_event", format!("stdout[{at}]: {detail}"));
        let Value::List(parts) = Value::of(frame)? else { return Err(wrong("expected [delay, text]")) };
        let [delay, data] = parts.as_slice() else { return Err(wrong("expected [delay, text]")) };
        time += seconds(delay).ok_or_else(|| wrong("expected a delay of 0 or more"))?;
        let Value::Text(data) = Value::of(data)? else { return Err(wrong("expected text")) };
        events.push(Event { time, kind: Kind::Output(data) });
    }
    Ok(events)
}

fn event(text: &str, time: &mut f64, is_relative: bool) -> Result<Event, Refusal> {
    let wrong = |detail: &str| Refusal::new("cast_event", detail);
    let Value::List(parts) = Value::parse(text).map_err(|error| Refusal::json(&error))? else {
        return Err(wrong("expected [time, code, data]"));
    };
    let [moment, code, data] = parts.as_slice() else { return Err(wrong("expected [time, code, data]")) };
    let moment = seconds(moment).ok_or_else(|| wrong("expected a time of 0 or more"))?;
    *time = if is_relative { *time + moment } else { moment };
    let Value::Text(code) = Value::of(code)? else { return Err(wrong("expected a code of one letter")) };
    let Value::Text(data) = Value::of(data)? else { return Err(wrong("expected text")) };
    let kind = match code.as_str() {
        "o" => Kind::Output(data),
        "i" => Kind::Input(data),
        "r" => {
            let size =
                data.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
            let is_size = |side: usize| (1..=MAX_SIDE).contains(&side);
            match size {
                Some((columns, rows)) if is_size(columns) && is_size(rows) => Kind::Resize(columns, rows),
                _ => return Err(wrong("expected a size such as 80x24")),
            }
        }
        "x" => Kind::Exit(data),
        _ => Kind::Other,
    };
    Ok(Event { time: *time, kind })
}

fn seconds(raw: &serde_json::value::RawValue) -> Option<f64> {
    match Value::of(raw).ok()? {
        Value::Number(digits) => digits.parse().ok().filter(|seconds: &f64| *seconds >= 0.0 && seconds.is_finite()),
        _ => None,
    }
}
