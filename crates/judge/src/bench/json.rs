//! JSON as Python reads it.

use num_bigint::BigInt;

use super::python::{MAX_DIGITS, Value};

/// Lists and dictionaries within each other that Python's recursion limit lets pass, about.
const MAX_DEPTH: usize = 900;

/// Why a text is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Not JSON, at this byte: `json.JSONDecodeError`.
    Syntax(usize),
    /// JSON that Python will not hold: an integer too long, too deep.
    Unholdable,
}

/// `json.loads(text)`.
pub fn parse(text: &str) -> Result<Value, Failure> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    reader.space();
    let value = reader.value(0)?;
    reader.space();
    if reader.at < text.len() { Err(Failure::Syntax(reader.at)) } else { Ok(value) }
}

/// A JSON string, quoted and escaped as `json.dumps(…, ensure_ascii=False)` does.
pub(super) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn wrong<T>(&self) -> Result<T, Failure> {
        Err(Failure::Syntax(self.at))
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.bytes[self.at..].starts_with(word.as_bytes());
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        if depth > MAX_DEPTH {
            return Err(Failure::Unholdable);
        }
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        match self.peek() {
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'{') => self.dict(depth),
            Some(b'[') => self.list(depth),
            _ => match words.into_iter().find(|(word, _)| self.takes(word)) {
                Some((_, value)) => Ok(value),
                None => self.number(),
            },
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Failure> {
        self.at += 1;
        self.space();
        let mut items = Vec::new();
        if self.takes("]") {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.takes("]") {
                return Ok(Value::List(items));
            }
            if !self.takes(",") {
                return self.wrong();
            }
            self.space();
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Value, Failure> {
        self.at += 1;
        self.space();
        let mut dict = Value::Dict(Vec::new());
        if self.takes("}") {
            return Ok(dict);
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.wrong();
            }
            let key = self.string()?;
            self.space();
            if !self.takes(":") {
                return self.wrong();
            }
            self.space();
            let value = self.value(depth + 1)?;
            dict.set(&key, value);
            self.space();
            if self.takes("}") {
                return Ok(dict);
            }
            if !self.takes(",") {
                return self.wrong();
            }
            self.space();
        }
    }

    fn string(&mut self) -> Result<String, Failure> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek() {
                None | Some(0..=0x1f) => return self.wrong(),
                Some(b'"') => {
                    self.at += 1;
                    return String::from_utf8(out).or_else(|_| self.wrong());
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Failure> {
        let start = self.at;
        self.at += 2;
        let character = match self.bytes.get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let high = self.hex(start)?;
                let at = self.at;
                if (0xd800..0xdc00).contains(&high) && self.takes("\\u") {
                    match self.hex(at) {
                        Ok(low) if (0xdc00..0xe000).contains(&low) => {
                            let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                            return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                        }
                        // Not the other half: it is read again, as an escape of its own.
                        _ => self.at = at,
                    }
                }
                char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(Failure::Syntax(start)),
        };
        Ok(character)
    }

    fn hex(&mut self, start: usize) -> Result<u32, Failure> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(Failure::Syntax(start))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| Failure::Syntax(start))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    /// As much as reads as a number: `04` is a 0 with something behind it, `4.` a 4.
    fn number(&mut self) -> Result<Value, Failure> {
        let start = self.at;
        self.takes("-");
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => _ = self.digits(),
            _ => return Err(Failure::Syntax(start)),
        }
        let digits = self.at - start;
        let mut is_float = false;
        let before = self.at;
        if self.takes(".") {
            match self.digits() {
                0 => self.at = before,
                _ => is_float = true,
            }
        }
        let before = self.at;
        if self.takes("e") || self.takes("E") {
            _ = self.takes("+") || self.takes("-");
            match self.digits() {
                0 => self.at = before,
                _ => is_float = true,
            }
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).map_err(|_| Failure::Syntax(start))?;
        if is_float {
            return text.parse().map(Value::Float).map_err(|_| Failure::Syntax(start));
        }
        if digits > MAX_DIGITS {
            return Err(Failure::Unholdable);
        }
        text.parse::<BigInt>().map(Value::Int).map_err(|_| Failure::Syntax(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_keys_wins_in_the_place_of_the_first() {
        assert_eq!(parse(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap().to_json(), r#"{"a": 3, "b": 2}"#);
    }

    #[test]
    fn what_python_reads_comes_back_as_python_writes_it() {
        for (text, written) in [
            (r#"[NaN, -Infinity, 1e16, 18446744073709551616, -0]"#, "[NaN, -Infinity, 1e+16, 18446744073709551616, 0]"),
            (r#""\ud83d\ude00 \u00e9\/ \u001b""#, "\"😀 é/ \\u001b\""),
            (r#""\ud83dx""#, "\"\u{fffd}x\""),
            (r#""\ud83d\u0041""#, "\"\u{fffd}A\""),
        ] {
            assert_eq!(parse(text).unwrap().to_json(), written);
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for text in ["", "04", "4.", "+4", "[1,]", "{'a': 1}", "\"a\nb\"", "\"\\d\"", "[1] 2", "\u{feff}1", "\u{a0}1"] {
            assert!(matches!(parse(text), Err(Failure::Syntax(_))), "{text:?}");
        }
        assert_eq!(parse(&"9".repeat(4301)), Err(Failure::Unholdable));
        assert!(parse(&"9".repeat(4300)).is_ok());
        assert!(parse(&format!("{}{}", "[".repeat(200), "]".repeat(200))).is_ok());
        assert_eq!(parse(&"[".repeat(5000)), Err(Failure::Unholdable));
    }
}
