//! A file as rows: lines, the elements of an array, whole documents; one at a time, with the byte each starts at.
//!
//! The layout is found from the first line. A line that is a whole value means one value a line. A line that is not
//! means values that span lines: an array is read element by element, documents one after the other. An array whose
//! elements are messages is one row. A row may have [`MOST_BYTES`], so that a file that unpacks to far more than its size
//! is refused; of a longer first line, such as that of an array without line ends, only the beginning is looked at.

use std::io::{BufRead, Read};

use serde::de::IgnoredAny;

use crate::json::Fields;
use crate::refusal::Refusal;

/// Bytes of a row, at most.
pub(crate) const MOST_BYTES: u64 = 1 << 30;
/// Bytes of a file that are looked at to find its layout, at most.
const LOOKED_AT_BYTES: u64 = 64 << 20;

/// One row as it lies in the file.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    /// Number in the file, from 0.
    pub(crate) number: u64,
    /// Where it starts, in bytes of the unpacked file.
    pub(crate) offset: u64,
    /// Its bytes, or why there are none. Nothing follows a row without bytes.
    pub(crate) bytes: Result<Vec<u8>, Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Lines,
    Documents,
    Array,
}

/// Iterator over the rows of a file.
pub(crate) struct Rows<'a> {
    reader: Box<dyn BufRead + Send + 'a>,
    layout: Layout,
    number: u64,
    offset: u64,
    refusal: Option<Refusal>,
    is_done: bool,
    most_bytes: u64,
}

impl<'a> Rows<'a> {
    /// Looks at the first line of `reader`; `name` (without the ending of a packed form) breaks ties.
    pub(crate) fn open(mut reader: Box<dyn BufRead + Send + 'a>, name: &str) -> Self {
        let mut head = Vec::new();
        let found =
            skip_mark(&mut reader).and_then(|skipped| Ok((skipped, find_layout(&mut reader, &mut head, name)?)));
        let (offset, layout, refusal) = match found {
            Ok((offset, layout)) => (offset, layout, None),
            Err(refusal) => (0, Layout::Documents, Some(refusal)),
        };
        let reader: Box<dyn BufRead + Send + 'a> = Box::new(std::io::Cursor::new(head).chain(reader));
        let mut rows = Self { reader, layout, number: 0, offset, refusal, is_done: false, most_bytes: MOST_BYTES };
        if layout == Layout::Array {
            rows.enter_array();
        }
        rows
    }

    /// Skips the opening bracket.
    fn enter_array(&mut self) {
        while let Ok(Some(byte)) = self.peek() {
            self.skip(1);
            if byte == b'[' {
                return;
            }
        }
    }

    fn row(&mut self, offset: u64, bytes: Result<Vec<u8>, Refusal>) -> Row {
        self.is_done |= bytes.is_err();
        self.number += 1;
        Row { number: self.number - 1, offset, bytes }
    }

    fn peek(&mut self) -> Result<Option<u8>, Refusal> {
        Ok(self.reader.fill_buf().map_err(|error| unreadable(&error))?.first().copied())
    }

    fn skip(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.offset += bytes as u64;
    }

    fn next_line(&mut self) -> Option<Row> {
        loop {
            let offset = self.offset;
            let mut line = Vec::new();
            let most = self.most_bytes;
            if let Err(error) = self.reader.as_mut().take(most + 1).read_until(b'\n', &mut line) {
                return Some(self.row(offset, Err(unreadable(&error))));
            }
            if line.len() as u64 > most {
                return Some(self.row(offset, Err(too_large(most))));
            }
            if line.is_empty() {
                return None;
            }
            self.offset += line.len() as u64;
            if !line.trim_ascii().is_empty() {
                return Some(self.row(offset, Ok(line)));
            }
        }
    }

    fn next_value(&mut self) -> Option<Row> {
        let start = match self.next_start() {
            Ok(start) => start?,
            Err(refusal) => {
                let offset = self.offset;
                return Some(self.row(offset, Err(refusal)));
            }
        };
        let offset = self.offset;
        let mut value = Vec::new();
        if let Err(refusal) = self.read_value(start, &mut value) {
            return Some(self.row(offset, Err(refusal)));
        }
        if self.layout == Layout::Array && self.number == 0 && is_message(&value) {
            return Some(self.whole_array(offset, value));
        }
        Some(self.row(offset, Ok(value)))
    }

    /// The first byte of the next value, or none after the last.
    fn next_start(&mut self) -> Result<Option<u8>, Refusal> {
        loop {
            match self.peek()? {
                None if self.layout == Layout::Array => {
                    return Err(Refusal::new("cut", "the file ends inside an array"));
                }
                None => return Ok(None),
                Some(byte) if byte.is_ascii_whitespace() || byte == b',' => self.skip(1),
                Some(b']') if self.layout == Layout::Array => {
                    self.skip(1);
                    self.layout = Layout::Documents;
                }
                Some(byte @ (b']' | b'}')) => {
                    return Err(Refusal::new("json", format!("`{}` that closes nothing", byte as char)));
                }
                Some(byte) => return Ok(Some(byte)),
            }
        }
    }

    /// Reads one value: to its closing bracket or quote, or a bare word to its end.
    fn read_value(&mut self, start: u8, value: &mut Vec<u8>) -> Result<(), Refusal> {
        let is_bare = !matches!(start, b'{' | b'[' | b'"');
        let mut scan = Scan::default();
        loop {
            let buffer = self.reader.fill_buf().map_err(|error| unreadable(&error))?;
            if buffer.is_empty() {
                return if is_bare { Ok(()) } else { Err(Refusal::new("cut", "the file ends inside a value")) };
            }
            let end = match is_bare {
                true => buffer.iter().position(|byte| byte.is_ascii_whitespace() || b",]}".contains(byte)),
                false => buffer.iter().position(|byte| scan.closes(*byte)).map(|last| last + 1),
            };
            let taken = end.unwrap_or(buffer.len());
            value.extend_from_slice(&buffer[..taken]);
            self.skip(taken);
            if value.len() as u64 > self.most_bytes {
                return Err(too_large(self.most_bytes));
            }
            if end.is_some() {
                return Ok(());
            }
        }
    }

    /// The array as one row: its elements are messages.
    fn whole_array(&mut self, offset: u64, first: Vec<u8>) -> Row {
        let mut array = vec![b'['];
        array.extend_from_slice(&first);
        let most = self.most_bytes;
        if let Err(error) = self.reader.as_mut().take(most + 1).read_to_end(&mut array) {
            return self.row(offset, Err(unreadable(&error)));
        }
        if array.len() as u64 > most {
            return self.row(offset, Err(too_large(most)));
        }
        self.is_done = true;
        self.row(offset, Ok(array))
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.is_done {
            return None;
        }
        if let Some(refusal) = self.refusal.take() {
            return Some(self.row(0, Err(refusal)));
        }
        if self.layout == Layout::Lines { self.next_line() } else { self.next_value() }
    }
}

/// Where a JSON value ends.
#[derive(Default)]
struct Scan {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Whether this byte is the last of the value.
    fn closes(&mut self, byte: u8) -> bool {
        if self.in_string {
            self.in_string = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return !self.in_string && self.depth == 0;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        matches!(byte, b'}' | b']') && self.depth == 0
    }
}

/// Reads lines into `head` until one has something in it, and says how the file is laid out.
fn find_layout(reader: &mut (dyn BufRead + Send), head: &mut Vec<u8>, name: &str) -> Result<Layout, Refusal> {
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        head.append(&mut line);
        let left = LOOKED_AT_BYTES.saturating_sub(head.len() as u64);
        if (&mut *reader).take(left).read_until(b'\n', &mut line).map_err(|error| unreadable(&error))? == 0 {
            return Ok(Layout::Documents);
        }
    }
    let is_looked_at_whole = line.ends_with(b"\n") || ((head.len() + line.len()) as u64) < LOOKED_AT_BYTES;
    let first = line.trim_ascii();
    let mut blank = Vec::new();
    let is_lines_name = name.ends_with(".jsonl") || name.ends_with(".ndjson");
    let is_whole = is_looked_at_whole && is_json(first);
    let layout = match first.first() {
        Some(b'[') if is_whole && has_more(reader, &mut blank)? => Layout::Lines,
        Some(b'[') => Layout::Array,
        Some(b'{') if is_whole || (is_looked_at_whole && is_lines_name && first.len() > 1) => Layout::Lines,
        Some(b'{') => Layout::Documents,
        _ if is_lines_name => Layout::Lines,
        _ => return Err(Refusal::new("not_json", "the file starts with neither `{` nor `[`")),
    };
    head.append(&mut line);
    head.append(&mut blank);
    Ok(layout)
}

/// Skips a byte order mark; says how many bytes it had.
fn skip_mark(reader: &mut (dyn BufRead + Send)) -> Result<u64, Refusal> {
    let start = reader.fill_buf().map_err(|error| unreadable(&error))?;
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(Refusal::new("encoding", "UTF-16; expected UTF-8"));
    }
    let skipped = if start.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
    reader.consume(skipped);
    Ok(skipped as u64)
}

/// Whether anything but white space follows; the white space goes to `blank`.
fn has_more(reader: &mut (dyn BufRead + Send), blank: &mut Vec<u8>) -> Result<bool, Refusal> {
    loop {
        let buffer = reader.fill_buf().map_err(|error| unreadable(&error))?;
        if buffer.is_empty() {
            return Ok(false);
        }
        let at = buffer.iter().position(|byte| !byte.is_ascii_whitespace());
        let taken = at.unwrap_or(buffer.len());
        blank.extend_from_slice(&buffer[..taken]);
        reader.consume(taken);
        if at.is_some() || blank.len() as u64 > LOOKED_AT_BYTES {
            return Ok(at.is_some());
        }
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// Whether an element of an array is a message rather than a trajectory.
fn is_message(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    serde_json::from_str::<Fields<'_>>(&text).is_ok_and(|fields| {
        fields.contains_key("role") || (fields.contains_key("from") && fields.contains_key("value"))
    })
}

fn too_large(most_bytes: u64) -> Refusal {
    Refusal::new("row_too_large", format!("a row of more than {most_bytes} bytes; the rest of the file is not read"))
}

/// The refusal of a file that cannot be read further.
pub(crate) fn unreadable(error: &std::io::Error) -> Refusal {
    let rule = if error.kind() == std::io::ErrorKind::UnexpectedEof { "cut" } else { "unreadable" };
    Refusal::new(rule, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(content: &str, name: &str) -> Vec<(u64, Result<String, &'static str>)> {
        let reader = std::io::BufReader::with_capacity(7, std::io::Cursor::new(content.as_bytes().to_vec()));
        let rows = Rows::open(Box::new(reader), name);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_string();
        rows.map(|row| (row.offset, row.bytes.map(text).map_err(|refusal| refusal.rule))).collect()
    }

    fn ok(offset: u64, text: &str) -> (u64, Result<String, &'static str>) {
        (offset, Ok(text.into()))
    }

    #[test]
    fn lines_start_at_their_bytes_and_blank_lines_are_no_rows() {
        let found = rows("\n{\"a\":1}\r\n\n  \n{\"a\":2}\n{\"a\":3}", "x.jsonl");
        assert_eq!(found, [ok(1, "{\"a\":1}"), ok(14, "{\"a\":2}"), ok(22, "{\"a\":3}")]);
    }

    #[test]
    fn an_array_is_read_by_element_whatever_its_lines() {
        let expected = [ok(1, "{\"a\":\"]}\"}"), ok(12, "{\"b\":[1,\"\\\"\"]}")];
        assert_eq!(rows("[{\"a\":\"]}\"},{\"b\":[1,\"\\\"\"]}]", "x.json"), expected);
        assert_eq!(rows("[\n {\"a\":\n1},\n {}\n]\n", "x.jsonl"), [ok(3, "{\"a\":\n1}"), ok(14, "{}")]);
    }

    #[test]
    fn an_array_of_messages_is_one_row_and_so_is_each_line_of_them() {
        let list = "[{\"role\":\"user\"},{\"role\":\"tool\"}]";
        assert_eq!(rows(list, "x.json"), [ok(1, list)]);
        let lines = format!("{list}\n\n{list}\n");
        assert_eq!(rows(&lines, "x.json"), [ok(0, list), ok(35, list)]);
    }

    #[test]
    fn a_document_may_span_lines_and_others_may_follow() {
        assert_eq!(rows("{\n\"a\": 1\n}\n{\n}\n", "x.json"), [ok(0, "{\n\"a\": 1\n}"), ok(11, "{\n}")]);
    }

    #[test]
    fn a_cut_file_ends_with_a_refused_row() {
        assert_eq!(rows("[{\"a\": 1}, {\"b\": ", "x.json"), [ok(1, "{\"a\": 1}"), (11, Err("cut"))]);
        assert_eq!(rows("[{\"a\": 1},", "x.json"), [ok(1, "{\"a\": 1}"), (10, Err("cut"))]);
        assert_eq!(rows("{\n\"a\": ", "x.json"), [(0, Err("cut"))]);
        assert_eq!(rows("{}\n{\"a\": \n{}", "x.jsonl"), [ok(0, "{}"), ok(3, "{\"a\":"), ok(10, "{}")]);
    }

    #[test]
    fn a_row_longer_than_may_be_ends_the_file_in_every_layout() {
        for (content, name) in [
            ("{\"a\": 1}\n{\"a\": \"123456789\"}\n{}", "x.jsonl"),
            ("[{\"a\": 1},{\"a\": \"123456789\"}, {}]", "x.json"),
            ("{\n\"a\": 1}\n{\"a\": \"123456789\"}\n{}", "x.json"),
        ] {
            let mut rows = Rows::open(Box::new(std::io::Cursor::new(content)), name);
            rows.most_bytes = 12;
            let found: Vec<_> = rows.map(|row| row.bytes.map_err(|refusal| refusal.rule)).collect();
            assert_eq!((found.len(), found[1].clone()), (2, Err("row_too_large")), "{content}");
        }
        let mut rows = Rows::open(Box::new(std::io::Cursor::new("[{\"role\": 1}, {\"role\": 2}]")), "x.json");
        rows.most_bytes = 14;
        assert_eq!(rows.next().unwrap().bytes.unwrap_err().rule, "row_too_large");
    }

    #[test]
    fn a_first_line_longer_than_is_looked_at_is_read_all_the_same() {
        let text = "x".repeat(LOOKED_AT_BYTES as usize);
        let array = format!("[{{\"a\": \"{text}\"}},{{\"b\": 2}}]");
        let lengths = |content: &str, name: &str| {
            let rows = Rows::open(Box::new(std::io::Cursor::new(content.to_string())), name);
            rows.map(|row| row.bytes.unwrap().trim_ascii().len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&array, "x.json"), [text.len() + 9, 8]);
        assert_eq!(lengths(&format!("{{\"a\": \"{text}\"}}\n{{\"b\": 2}}\n"), "x.jsonl"), [text.len() + 9, 8]);
    }

    #[test]
    fn a_file_that_is_not_json_is_one_refused_row_and_an_empty_one_none() {
        assert_eq!(rows("# Read me\n\nSee", "README.md"), [(0, Err("not_json"))]);
        assert_eq!(rows("", "x.json"), []);
        assert_eq!(rows(" \n\n", "x.jsonl"), []);
        assert_eq!(rows("\u{feff}{\"a\":1}", "x.jsonl"), [ok(3, "{\"a\":1}")]);
    }
}
