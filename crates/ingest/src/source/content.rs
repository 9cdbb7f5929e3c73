//! Message content: a string, a list of parts, null; and the thoughts inside it.

use serde_json::value::RawValue;

use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal, count};

/// Content as text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) text: String,
    /// Thoughts among the parts.
    pub(crate) thoughts: Vec<String>,
    pub(crate) images: u64,
}

/// Reads the content of a message: null and missing are empty, parts are joined by line ends, an image among text is
/// marked `[image]`.
pub(crate) fn read(raw: Option<&RawValue>, counts: &mut Counts) -> Result<Content, Refusal> {
    let Some(raw) = raw else { return Ok(Content::default()) };
    let content = match Value::of(raw)? {
        Value::Null => Content::default(),
        Value::Text(text) => Content { text, ..Content::default() },
        Value::List(parts) => match read_parts(&parts)? {
            Some(content) => content,
            None => Content { text: json::data(raw), ..Content::default() },
        },
        Value::Object(_) | Value::Number(_) | Value::Bool(_) => Content { text: json::data(raw), ..Content::default() },
    };
    count(counts, "images_left_out", content.images);
    Ok(content)
}

/// Reads some parts of a message.
pub(crate) fn read_list(parts: &[&RawValue], counts: &mut Counts) -> Result<Content, Refusal> {
    let content = read_parts(parts)?.unwrap_or_default();
    count(counts, "images_left_out", content.images);
    Ok(content)
}

/// None where the list is data rather than parts.
fn read_parts(parts: &[&RawValue]) -> Result<Option<Content>, Refusal> {
    let mut content = Content::default();
    let mut texts = Vec::new();
    for part in parts {
        match Value::of(part)? {
            Value::Text(text) => texts.push(text),
            Value::Object(fields) if fields.contains_key("type") => read_part(&fields, &mut texts, &mut content)?,
            _ => return Ok(None),
        }
    }
    if texts.iter().any(|text| text != "[image]") {
        content.text = texts.join("\n");
    }
    Ok(Some(content))
}

fn read_part(fields: &Fields<'_>, texts: &mut Vec<String>, content: &mut Content) -> Result<(), Refusal> {
    let kind = json::text(fields, "type")?.unwrap_or_default();
    if kind.contains("image") {
        content.images += 1;
        texts.push("[image]".into());
    } else if matches!(kind.as_str(), "thinking" | "reasoning") {
        content.thoughts.extend(json::text(fields, "thinking")?.or(json::text(fields, "text")?));
    } else if let Some(text) = json::text(fields, "text")? {
        texts.push(text);
    } else if kind == "file"
        && let Some(text) = json::text(fields, "content").ok().flatten()
    {
        let path = json::text(fields, "path")?.unwrap_or_default();
        texts.push(format!("<file path={}>\n{text}\n</file>", json::quote(&path)));
    } else {
        texts.push(format!("[{kind}]"));
    }
    Ok(())
}

/// Splits `<think>…</think>` off: (thoughts, the rest). A block that is not closed runs to the end; one that is not
/// opened began with the message, as some chat templates write it.
pub(crate) fn split_thoughts(text: &str) -> (Vec<String>, String) {
    let (mut thoughts, mut words) = (Vec::new(), String::new());
    let mut rest = text;
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(end) = rest.find(close).filter(|end| !rest[..*end].contains(open)) {
            thoughts.push(rest[..end].to_string());
            rest = &rest[end + close.len()..];
        }
    }
    loop {
        let tags = [("<think>", "</think>"), ("<thinking>", "</thinking>")];
        let first = tags.iter().filter_map(|(open, close)| Some((rest.find(open)?, *open, *close))).min();
        let Some((start, open, close)) = first else { break };
        words.push_str(&rest[..start]);
        let inner = &rest[start + open.len()..];
        let end = inner.find(close);
        thoughts.push(inner[..end.unwrap_or(inner.len())].to_string());
        rest = end.map_or("", |end| &inner[end + close.len()..]);
    }
    words.push_str(rest);
    (thoughts, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_split(text: &str, thoughts: &[&str], words: &str) {
        assert_eq!(split_thoughts(text), (thoughts.iter().map(|text| text.to_string()).collect(), words.into()));
    }

    #[test]
    fn thoughts_are_split_from_words() {
        check_split("a <think>b</think> c", &["b"], "a  c");
        check_split("<think>b</think><thinking>d</thinking>c", &["b", "d"], "c");
        check_split("b</think>c", &["b"], "c");
        check_split("a<think>b", &["b"], "a");
        check_split("no thoughts", &[], "no thoughts");
    }

    fn check_content(raw: &str, text: &str, images: u64) {
        let raw: &RawValue = serde_json::from_str(raw).unwrap();
        let mut counts = Counts::new();
        let content = read(Some(raw), &mut counts).unwrap();
        assert_eq!((content.text.as_str(), content.images), (text, images), "{}", raw.get());
        assert_eq!(counts.get("images_left_out").copied().unwrap_or(0), images);
    }

    #[test]
    fn content_is_a_string_or_parts_or_null_or_data() {
        check_content("null", "", 0);
        check_content("\"\"", "", 0);
        check_content("[]", "", 0);
        check_content(r#"[{"type":"text","text":"a"},"b"]"#, "a\nb", 0);
        check_content(r#"[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]"#, "a\n[image]", 1);
        check_content(r#"[{"type":"input_image","image_url":"data:"}]"#, "", 1);
        check_content(r#"{"rows": [1, 18446744073709551615]}"#, r#"{"rows": [1, 18446744073709551615]}"#, 0);
        check_content(r#"[{"id": 9007199254740993}]"#, r#"[{"id": 9007199254740993}]"#, 0);
    }
}
