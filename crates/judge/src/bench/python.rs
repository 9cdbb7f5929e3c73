//! Values and text as Python has them, where the benchmark's published evaluator shows it.
//!
//! JSON is Python's: NaN and infinities are numbers, integers have no bound, the last of two equal keys wins. `str()`
//! of a value is what an f-string prints of it. White space is `str.isspace`, which has four control characters more
//! than Unicode's. A lone surrogate, which no Rust string holds, becomes U+FFFD.

use std::fmt::Write;
use std::sync::LazyLock;

use num_bigint::BigInt;
use regex::Regex;

use super::json::write_string;

/// Most digits that Python's `int` reads from text.
pub(super) const MAX_DIGITS: usize = 4300;

/// A JSON value as `json.loads` gives it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `None`.
    Null,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number of any size.
    Int(BigInt),
    /// A number with a point or an exponent, NaN and infinities included.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A dictionary, in the order of the text.
    Dict(Vec<(String, Value)>),
}

impl Value {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Dict(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Sets a key, in its place where it is there already, else at the end; other values than dictionaries stay.
    pub fn set(&mut self, key: &str, value: Value) {
        if let Value::Dict(entries) = self {
            match entries.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value,
                None => entries.push((key.into(), value)),
            }
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number, if it is a small one; `True` is 1.
    pub fn as_index(&self) -> Option<i64> {
        match self {
            Value::Bool(truth) => Some(i64::from(*truth)),
            Value::Int(number) => i64::try_from(number).ok(),
            _ => None,
        }
    }

    /// Whether `if value:` holds.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Null => false,
            Value::Bool(truth) => *truth,
            Value::Int(number) => *number != BigInt::ZERO,
            Value::Float(number) => *number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Dict(entries) => !entries.is_empty(),
        }
    }

    /// `str(value)`.
    pub fn to_str(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            other => other.repr(),
        }
    }

    fn repr(&self) -> String {
        let mut out = String::new();
        self.write_repr(&mut out);
        out
    }

    fn write_repr(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("None"),
            Value::Bool(truth) => out.push_str(if *truth { "True" } else { "False" }),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::Float(number) => out.push_str(&float_repr(*number)),
            Value::Text(text) => text_repr(text, out),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    item.write_repr(out);
                }
                out.push(']');
            }
            Value::Dict(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    text_repr(key, out);
                    out.push_str(": ");
                    value.write_repr(out);
                }
                out.push('}');
            }
        }
    }

    /// JSON on one line, as `json.dumps(value, ensure_ascii=False)` writes it.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::Float(number) if number.is_nan() => out.push_str("NaN"),
            Value::Float(number) if number.is_infinite() => {
                out.push_str(if *number > 0.0 { "Infinity" } else { "-Infinity" });
            }
            Value::Float(number) => out.push_str(&float_repr(*number)),
            Value::Text(text) => write_string(text, out),
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    item.write_json(out);
                }
                out.push(']');
            }
            Value::Dict(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index > 0 { ", " } else { "" });
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

/// `repr` of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

static UNPRINTABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\p{C}\p{Z}]$"));

fn text_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    let mut buffer = [0; 4];
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            ' '..='~' => out.push(character),
            c if UNPRINTABLE.is_match(c.encode_utf8(&mut buffer)) => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// A pattern of ours.
pub(super) fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("our own patterns are well formed")
}

/// `str.isspace` of one character.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// `str.strip()`.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

static DIGIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\p{Nd}$"));

/// The value of a decimal digit of any script: the blocks of ten stand one after another, each from 0 on.
fn digit_value(character: char) -> Option<u8> {
    let is_digit = |c: char| DIGIT.is_match(c.encode_utf8(&mut [0; 4]));
    if let Some(value) = character.to_digit(10) {
        return Some(value as u8);
    }
    if !is_digit(character) {
        return None;
    }
    let before = (0..u32::from(character)).rev().map_while(char::from_u32).take_while(|c| is_digit(*c)).count();
    Some((before % 10) as u8)
}

/// `int(text)`, where it does not raise.
pub(super) fn int_of(text: &str) -> Option<BigInt> {
    let text = strip(text);
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let mut ascii = String::new();
    let mut may_separate = false;
    for character in digits.chars() {
        if character == '_' {
            if !may_separate {
                return None;
            }
            may_separate = false;
            continue;
        }
        ascii.push(char::from(b'0' + digit_value(character)?));
        may_separate = true;
    }
    if !may_separate || ascii.len() > MAX_DIGITS {
        return None;
    }
    let number: BigInt = ascii.parse().ok()?;
    Some(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_python_prints_them() {
        let cases = [
            (1.0, "1.0"),
            (2.5, "2.5"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1e-5, "1e-05"),
            (0.0001, "0.0001"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, expected) in cases {
            assert_eq!(float_repr(number), expected);
        }
    }

    #[test]
    fn whole_numbers_are_read_as_python_reads_them() {
        let of = |text: &str| int_of(text).map(|number| number.to_string());
        for (text, expected) in [("1_0", "10"), (" +4\u{a0}", "4"), ("04", "4"), ("٤", "4"), ("𝟗", "9"), ("-0", "0")]
        {
            assert_eq!(of(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "_1", "1_", "1__0", "²", "- 4", "4.0", "0x4", "1 2"] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
