//! YAML as the JSON it stands for, so that one reading serves both.
//!
//! Plain scalars follow the core schema: null, true, false and decimal numbers, digits untouched; every other scalar is
//! a string. One document; an alias is refused, since a few of them can stand for more text than there is memory.

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::json::quote;
use crate::refusal::Refusal;

/// What is open while writing.
enum Open {
    List { is_empty: bool },
    Object { is_empty: bool, has_key: bool },
}

/// The document as JSON text.
pub(crate) fn to_json(text: &str) -> Result<String, Refusal> {
    let mut writer = Writer { json: String::with_capacity(text.len()), open: Vec::new(), documents: 0 };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Refusal::new("yaml", error.to_string()))?;
        writer.take(event).map_err(|what| Refusal::new("yaml", format!("line {}: {what}", span.start.line())))?;
    }
    if writer.documents == 0 {
        return Err(Refusal::new("yaml", "no document"));
    }
    Ok(writer.json)
}

struct Writer {
    json: String,
    open: Vec<Open>,
    documents: usize,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("a second document");
                }
            }
            Event::Alias(_) => return Err("an alias"),
            Event::Scalar(value, style, _, tag) => {
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                self.scalar(&value, is_plain);
            }
            Event::SequenceStart(..) => self.start('[', Open::List { is_empty: true })?,
            Event::MappingStart(..) => self.start('{', Open::Object { is_empty: true, has_key: false })?,
            Event::SequenceEnd => self.end(']'),
            Event::MappingEnd => self.end('}'),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Writes what stands before the next value; says whether that value is a key.
    fn separate(&mut self) -> bool {
        match self.open.last_mut() {
            None => false,
            Some(Open::List { is_empty }) => {
                if !std::mem::take(is_empty) {
                    self.json.push(',');
                }
                false
            }
            Some(Open::Object { has_key, .. }) if *has_key => {
                *has_key = false;
                self.json.push(':');
                false
            }
            Some(Open::Object { is_empty, has_key }) => {
                *has_key = true;
                if !std::mem::take(is_empty) {
                    self.json.push(',');
                }
                true
            }
        }
    }

    fn scalar(&mut self, value: &str, is_plain: bool) {
        let is_key = self.separate();
        match plain(value).filter(|_| is_plain && !is_key) {
            Some(literal) => self.json.push_str(literal),
            None => self.json.push_str(&quote(value)),
        }
    }

    fn start(&mut self, bracket: char, open: Open) -> Result<(), &'static str> {
        if self.separate() {
            return Err("a list or an object as a key");
        }
        self.json.push(bracket);
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self, bracket: char) {
        self.open.pop();
        self.json.push(bracket);
    }
}

/// The JSON literal of a plain scalar that is no string.
fn plain(value: &str) -> Option<&str> {
    match value {
        "" | "~" | "null" | "Null" | "NULL" => Some("null"),
        "true" | "True" | "TRUE" => Some("true"),
        "false" | "False" | "FALSE" => Some("false"),
        _ => {
            let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit())
                && serde_json::from_str::<serde_json::Number>(value).is_ok();
            is_number.then_some(value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, json: &str) {
        let found = to_json(yaml).unwrap();
        assert_eq!(found, json);
        serde_json::from_str::<serde::de::IgnoredAny>(&found).unwrap();
    }

    #[test]
    fn yaml_stands_for_json() {
        check(
            "a: 1\nb: [x, 'y''s', \"z\\n\"]\nc:\n- - 2\n- d: ~\n",
            r#"{"a":1,"b":["x","y's","z\n"],"c":[[2],{"d":null}]}"#,
        );
        check("18446744073709551616", "18446744073709551616");
        check(
            "[-1, 1.50, 1e3, 0x10, 007, '5', .inf, yes, True, null, 'null', '']",
            r#"[-1,1.50,1e3,"0x10","007","5",".inf","yes",true,null,"null",""]"#,
        );
    }

    #[test]
    fn folded_text_is_unfolded() {
        check("a: 'one\n\n  two\n  three'\nb: \"x\\\n  \\ y\"\n", r#"{"a":"one\ntwo three","b":"x y"}"#);
    }

    #[test]
    fn what_has_no_json_is_refused_with_its_line() {
        let detail = |yaml: &str| to_json(yaml).unwrap_err().detail;
        assert_eq!(detail("a: &x 1\nb: *x"), "line 2: an alias");
        assert_eq!(detail("a\n---\nb"), "line 2: a second document");
        assert_eq!(detail("? [1]\n: 2"), "line 1: a list or an object as a key");
        assert_eq!(detail(""), "no document");
        assert!(detail("a: 'x").contains("line"));
    }
}
