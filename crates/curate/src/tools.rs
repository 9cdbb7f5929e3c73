//! Which tools an action space declares, and which an action calls.

use std::collections::BTreeSet;

use serde_json::Value;

/// Signs that an object with a `name` declares a tool.
const SCHEMA_FIELDS: [&str; 6] =
    ["description", "parameters", "input_schema", "inputSchema", "arguments", "output_schema"];

/// The names an action space declares: tools as OpenAI, Anthropic or MCP list them, or an object by name. None where the
/// text is no JSON or names nothing: then nothing can be told.
pub(crate) fn declared(action_space: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    match serde_json::from_str(action_space) {
        Ok(value) => collect(&value, &mut names),
        Err(_) => {
            for line in action_space.lines().filter(|line| !line.trim().is_empty()) {
                collect(&serde_json::from_str(line).ok()?, &mut names);
            }
        }
    }
    (!names.is_empty()).then_some(names)
}

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(name) => {
            names.insert(name.clone());
        }
        Value::Array(tools) => tools.iter().for_each(|tool| collect(tool, names)),
        Value::Object(fields) => {
            let inner = ["function", "tools", "functions", "tool"].iter().find_map(|name| fields.get(*name));
            let is_schema = SCHEMA_FIELDS.iter().any(|name| fields.contains_key(*name)) || fields.len() == 1;
            match (inner, fields.get("name").and_then(Value::as_str)) {
                (Some(inner @ (Value::Object(_) | Value::Array(_))), _) => collect(inner, names),
                (_, Some(name)) if is_schema || fields.contains_key("type") => {
                    names.insert(name.into());
                }
                _ if fields.values().all(Value::is_object) => names.extend(fields.keys().cloned()),
                _ => {}
            }
        }
        _ => {}
    }
}

/// The tools an action calls: a call with `name`, a list of calls, or calls under `tool_calls`. Empty for other actions.
pub(crate) fn called(action: &str) -> Vec<String> {
    if !action.trim_start().starts_with(['{', '[']) {
        return Vec::new();
    }
    serde_json::from_str(action).map(|value: Value| names_of(&value)).unwrap_or_default()
}

fn names_of(value: &Value) -> Vec<String> {
    match value {
        Value::Array(calls) => calls.iter().flat_map(names_of).collect(),
        Value::Object(fields) => {
            let name = fields.get("name").or_else(|| fields.get("function")?.get("name"));
            match name.and_then(Value::as_str) {
                Some(name) => vec![name.into()],
                None => fields.get("tool_calls").map(names_of).unwrap_or_default(),
            }
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_declared(action_space: &str, expected: &[&str]) {
        let found = declared(action_space).unwrap_or_default();
        assert_eq!(found, expected.iter().map(|name| name.to_string()).collect(), "{action_space}");
    }

    #[test]
    fn tools_are_read_in_every_form_they_are_listed_in() {
        check_declared(r#"[{"type":"function","function":{"name":"plum","parameters":{}}}]"#, &["plum"]);
        check_declared(r#"[{"name":"plum","input_schema":{}},{"name":"fig","description":"x"}]"#, &["fig", "plum"]);
        check_declared(r#"{"tools":[{"name":"plum","inputSchema":{}}]}"#, &["plum"]);
        check_declared(r#"{"plum":{"parameters":{}},"fig":{}}"#, &["fig", "plum"]);
        check_declared("{\"name\":\"plum\",\"parameters\":{}}\n{\"name\":\"fig\",\"parameters\":{}}", &["fig", "plum"]);
        check_declared(r#"["plum","fig"]"#, &["fig", "plum"]);
    }

    #[test]
    fn an_action_space_in_prose_declares_nothing_that_can_be_told() {
        for text in ["click(x, y): clicks", "", "[]", "7", "{\"a\": 1}"] {
            assert_eq!(declared(text), None, "{text}");
        }
    }

    #[test]
    fn calls_are_read_one_by_one_and_in_lists() {
        for (action, expected) in [
            (r#"{"name":"plum","arguments":{"name":"x"}}"#, vec!["plum"]),
            (r#"[{"name":"plum"},{"function":{"name":"fig"}}]"#, vec!["plum", "fig"]),
            (r#"{"tool_calls":[{"name":"plum"}]}"#, vec!["plum"]),
            ("plum(1)", vec![]),
            ("{broken", vec![]),
        ] {
            assert_eq!(called(action), expected, "{action}");
        }
    }
}
