//! JSON read one level at a time, the rest kept as the text it came as: integers stay exact and schemas are never
//! unioned.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// The fields of an object. Of a repeated key the last counts, as in Python.
pub(crate) type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// One level of JSON.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    /// The digits as they came.
    Number(&'a str),
    Text(String),
    List(Vec<&'a RawValue>),
    Object(Fields<'a>),
}

impl<'a> Value<'a> {
    /// Parses the outermost level.
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        Ok(match text.trim_start().bytes().next() {
            Some(b'{') => Value::Object(serde_json::from_str(text)?),
            Some(b'[') => Value::List(serde_json::from_str(text)?),
            Some(b'"') => Value::Text(serde_json::from_str(text)?),
            Some(b't' | b'f') => Value::Bool(serde_json::from_str(text)?),
            Some(b'n') => {
                serde_json::from_str::<()>(text)?;
                Value::Null
            }
            _ => Value::Number(serde_json::from_str::<&RawValue>(text)?.get()),
        })
    }

    /// Parses a part of a row that was already found to be JSON.
    pub(crate) fn of(raw: &'a RawValue) -> Result<Self, Refusal> {
        Self::parse(raw.get()).map_err(|error| Refusal::json(&error))
    }

    /// The type, as errors name it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// A field that is an object.
pub(crate) fn object<'a>(fields: &Fields<'a>, name: &str) -> Result<Option<Fields<'a>>, Refusal> {
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(Refusal::field_type(name, "an object", other.kind())),
    }
}

/// A field that is a list.
pub(crate) fn list<'a>(fields: &Fields<'a>, name: &str) -> Result<Option<Vec<&'a RawValue>>, Refusal> {
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::List(items)) => Ok(Some(items)),
        Some(other) => Err(Refusal::field_type(name, "a list", other.kind())),
    }
}

/// A field that is a list of objects. Missing and null are an empty list.
pub(crate) fn objects<'a>(fields: &Fields<'a>, name: &str) -> Result<Vec<Fields<'a>>, Refusal> {
    let object = |(at, raw): (usize, &'a RawValue)| match Value::of(raw)? {
        Value::Object(inner) => Ok(inner),
        other => Err(Refusal::field_type(&format!("{name}[{at}]"), "an object", other.kind())),
    };
    list(fields, name)?.unwrap_or_default().into_iter().enumerate().map(object).collect()
}

/// A field that is text; a number is taken as it is written. Missing and null are none, an empty string is a string.
pub(crate) fn text(fields: &Fields<'_>, name: &str) -> Result<Option<String>, Refusal> {
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(Value::Number(digits)) => Ok(Some(digits.into())),
        Some(other) => Err(Refusal::field_type(name, "a string", other.kind())),
    }
}

/// A field that is true or false.
pub(crate) fn boolean(fields: &Fields<'_>, name: &str) -> Result<Option<bool>, Refusal> {
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(other) => Err(Refusal::field_type(name, "true or false", other.kind())),
    }
}

/// A field that is a number.
pub(crate) fn number(fields: &Fields<'_>, name: &str) -> Result<Option<f64>, Refusal> {
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(digits)) => Ok(digits.parse().ok()),
        Some(Value::Bool(value)) => Ok(Some(f64::from(u8::from(value)))),
        Some(other) => Err(Refusal::field_type(name, "a number", other.kind())),
    }
}

/// Whether a field is a list whose first element is an object with this field.
pub(crate) fn first_has(fields: &Fields<'_>, list: &str, name: &str) -> bool {
    let items = fields.get(list).map(|raw| Value::of(raw));
    let Some(Ok(Value::List(items))) = items else { return false };
    let first = items.first().map(|raw| Value::of(raw));
    matches!(first, Some(Ok(Value::Object(first))) if first.contains_key(name))
}

/// The fields of an object in the order they came in, repeated keys included.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    struct Pairs;
    impl<'de> serde::de::Visitor<'de> for Pairs {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let pairs = serde::Deserializer::deserialize_map(&mut reader, Pairs)?;
    reader.end()?;
    Ok(pairs)
}

/// The same JSON with one space after each comma and colon and none elsewhere; strings and numbers are untouched.
pub(crate) fn respace(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for letter in text.chars() {
        if in_string {
            spaced.push(letter);
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            ' ' | '\t' | '\n' | '\r' => {}
            ',' | ':' => spaced.extend([letter, ' ']),
            _ => {
                in_string = letter == '"';
                spaced.push(letter);
            }
        }
    }
    spaced
}

/// Data that stands where a text is expected, as it came; the line ends and indents of a file that was written for people
/// are not the data's.
pub(crate) fn data(raw: &RawValue) -> String {
    match raw.get().contains('\n') {
        true => respace(raw.get()),
        false => raw.get().to_string(),
    }
}

/// Text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn respacing_leaves_strings_and_numbers_alone() {
        let text = "{\"a\" :[ 1,\n 18446744073709551615 ,1.50 ], \"b,: \": \"x \\\" , \\\\\"}";
        let expected = "{\"a\": [1, 18446744073709551615, 1.50], \"b,: \": \"x \\\" , \\\\\"}";
        assert_eq!(respace(text), expected);
        assert_eq!(respace(expected), expected);
    }

    #[test]
    fn data_of_a_file_written_for_people_is_on_one_line_and_other_data_as_it_came() {
        let Ok(Value::List(items)) = Value::parse("[{\n  \"a\" : [1,\n 2]}, {\"a\":[1,2]}, \"x\\n y\"]") else {
            panic!("a list")
        };
        assert_eq!(
            items.iter().map(|raw| data(raw)).collect::<Vec<_>>(),
            ["{\"a\": [1, 2]}", "{\"a\":[1,2]}", "\"x\\n y\""]
        );
    }

    #[test]
    fn pairs_keep_the_order_and_the_digits() {
        let text = r#"{"b": 18446744073709551616, "a": {"x": 1}, "b": null}"#;
        let pairs = pairs(text).unwrap();
        let found: Vec<(&str, &str)> = pairs.iter().map(|(key, raw)| (key.as_str(), raw.get())).collect();
        assert_eq!(found, [("b", "18446744073709551616"), ("a", "{\"x\": 1}"), ("b", "null")]);
        assert!(super::pairs("[1]").is_err() && super::pairs("{} x").is_err());
    }

    #[test]
    fn null_is_none_and_an_empty_string_is_a_string() {
        let Ok(Value::Object(fields)) = Value::parse(r#"{"a": null, "b": "", "c": 7, "c": 8, "d": []}"#) else {
            panic!("an object")
        };
        assert_eq!(text(&fields, "missing"), Ok(None));
        assert_eq!(text(&fields, "a"), Ok(None));
        assert_eq!(text(&fields, "b"), Ok(Some(String::new())));
        assert_eq!(text(&fields, "c"), Ok(Some("8".into())));
        assert_eq!(text(&fields, "d").unwrap_err().detail, "`d`: expected a string, found a list");
    }
}
