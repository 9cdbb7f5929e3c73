//! Calls and results written as tags in the text of messages: Hermes and Qwen `<tool_call>`, OpenHands and SWE-agent
//! `<function=name>`, and the heads with which their harnesses send results back as user messages.

use crate::episode::{Answer, Call};
use crate::json::{self, Value, quote};
use crate::refusal::Refusal;

/// Heads of a user message that is a result: without and with the name of the tool.
const OBSERVATION_HEADS: [&str; 2] = ["OBSERVATION:", "Observation:"];
const NAMED_HEAD: &str = "EXECUTION RESULT of [";

/// The calls in a text, and the words around them.
pub(crate) fn calls(text: &str) -> Result<(Vec<Call>, String), Refusal> {
    let mut found = Vec::new();
    let (blocks, words) = split_tag(text, "<tool_call>", "</tool_call>");
    for block in blocks {
        found.extend(json_calls(&block)?);
    }
    if !words.contains("<function=") {
        return Ok((found, words));
    }
    let (blocks, words) = split_tag(&words, "<function=", "</function>");
    found.extend(blocks.iter().filter_map(|block| function_call(block)));
    Ok((found, words))
}

/// One call or a list of calls as JSON.
pub(crate) fn json_calls(text: &str) -> Result<Vec<Call>, Refusal> {
    match Value::parse(text.trim()).map_err(|error| Refusal::new("call_json", error.to_string()))? {
        Value::List(items) => items
            .iter()
            .map(|item| Value::parse(item.get()).map_err(|error| Refusal::json(&error)).and_then(json_call))
            .collect(),
        call => Ok(vec![json_call(call)?]),
    }
}

fn json_call(call: Value<'_>) -> Result<Call, Refusal> {
    let Value::Object(fields) = call else { return Err(Refusal::field_type("call", "an object", call.kind())) };
    let name = json::text(&fields, "name")?.unwrap_or_default();
    if name.is_empty() {
        return Err(Refusal::new("call_name", "a call without the name of its tool"));
    }
    let arguments = fields.get("arguments").or_else(|| fields.get("parameters"));
    Ok(Call { id: None, name, arguments: arguments.map(|raw| raw.get().to_string()) })
}

/// `name>` and `<parameter=key>value</parameter>` blocks. A value that is a JSON list or object stays one; all else is
/// a string, since the tags do not say the type.
fn function_call(block: &str) -> Option<Call> {
    let (name, body) = block.split_once('>')?;
    let mut fields = Vec::new();
    let mut rest = body;
    while let Some(start) = rest.find("<parameter=") {
        let (key, after) = rest[start + "<parameter=".len()..].split_once('>')?;
        let end = after.find("</parameter>");
        let value = trim_line_ends(&after[..end.unwrap_or(after.len())]);
        let is_json = value.starts_with(['[', '{']) && Value::parse(value).is_ok();
        fields.push(format!("{}: {}", quote(key.trim()), if is_json { value.into() } else { quote(value) }));
        rest = end.map_or("", |end| &after[end + "</parameter>".len()..]);
    }
    let arguments = Some(format!("{{{}}}", fields.join(", ")));
    Some(Call { id: None, name: name.trim().to_string(), arguments })
}

/// The results in a user message; none where it holds the user's own words.
pub(crate) fn answers(text: &str) -> Vec<Answer> {
    if text.contains("<tool_response>") {
        let (blocks, _) = split_tag(text, "<tool_response>", "</tool_response>");
        let answer = |block: &String| Answer { text: trim_line_ends(block).into(), ..Answer::default() };
        return blocks.iter().map(answer).collect();
    }
    if let Some((name, rest)) = text.strip_prefix(NAMED_HEAD).and_then(|rest| rest.split_once("]:")) {
        let text = rest.strip_prefix('\n').unwrap_or(rest).to_string();
        return vec![Answer { name: Some(name.into()), text, ..Answer::default() }];
    }
    let rest = OBSERVATION_HEADS.iter().find_map(|head| text.strip_prefix(head));
    let text = rest.map(|rest| rest.strip_prefix(['\n', ' ']).unwrap_or(rest).to_string());
    text.map(|text| Answer { text, ..Answer::default() }).into_iter().collect()
}

/// Without one line end at the start and one at the end.
fn trim_line_ends(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// The insides of all blocks of a tag, and the text around them. A block that is not closed runs to the end.
pub(crate) fn split_tag(text: &str, open: &str, close: &str) -> (Vec<String>, String) {
    let (mut blocks, mut around, mut rest) = (Vec::new(), String::new(), text);
    while let Some(start) = rest.find(open) {
        around.push_str(&rest[..start]);
        let inner = &rest[start + open.len()..];
        let end = inner.find(close);
        blocks.push(inner[..end.unwrap_or(inner.len())].to_string());
        rest = end.map_or("", |end| &inner[end + close.len()..]);
    }
    around.push_str(rest);
    (blocks, around)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)], words: &str) {
        let (found, around) = calls(text).unwrap();
        let found: Vec<_> =
            found.into_iter().map(|call| (call.name, call.arguments.unwrap_or_default())).collect::<Vec<_>>();
        let expected: Vec<_> =
            expected.iter().map(|(name, arguments)| (name.to_string(), arguments.to_string())).collect();
        assert_eq!((found, around.trim()), (expected, words), "{text}");
    }

    #[test]
    fn functions_and_tool_calls_are_found_in_text() {
        check("a <tool_call>{\"name\": \"f\", \"arguments\": {\"k\": 1}}</tool_call>", &[("f", "{\"k\": 1}")], "a");
        check(
            "b\n<function=edit>\n<parameter=path>/x</parameter>\n<parameter=range>[1, 2]</parameter>\n<parameter=text>\n a\n\n</parameter>\n</function>",
            &[("edit", "{\"path\": \"/x\", \"range\": [1, 2], \"text\": \" a\\n\"}")],
            "b",
        );
        check("<function=submit>\n</function>", &[("submit", "{}")], "");
        check("<function=bash>\n<parameter=command>ls", &[("bash", "{\"command\": \"ls\"}")], "");
        check("words only", &[], "words only");
    }

    #[test]
    fn results_are_told_from_words() {
        let texts = |text: &str| answers(text).into_iter().map(|answer| answer.text).collect::<Vec<_>>();
        assert_eq!(texts("OBSERVATION:\nfig\n"), ["fig\n"]);
        assert_eq!(texts("EXECUTION RESULT of [bash]:\nfig"), ["fig"]);
        assert_eq!(texts("<tool_response>\na\n</tool_response><tool_response>b</tool_response>"), ["a", "b"]);
        assert!(texts("Please go on.").is_empty());
    }
}
