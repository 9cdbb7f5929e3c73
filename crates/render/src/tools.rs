//! Tools in one short line (names and argument names), or whole, one a line.

use serde_json::Value;
use serde_json::value::RawValue;

/// Longest tools text that is kept when it is not a list of tools, in characters.
const MAX_PLAIN: usize = 400;
/// Stands where it is cut.
const CUT: char = '…';

/// Whether the line shows less than there is.
pub(crate) fn is_cut(action_space: &str) -> bool {
    tools_line(action_space).ends_with(CUT) && !action_space.trim_end().ends_with(CUT)
}

/// `[{"type": "function", "function": {"name": "bash", …}}]` becomes `bash(command)`; what is not a JSON list of tools
/// is put on one line and cut.
pub(crate) fn tools_line(action_space: &str) -> String {
    match serde_json::from_str::<Value>(action_space) {
        Ok(Value::Array(tools)) => {
            let names: Option<Vec<String>> = tools.iter().map(signature).collect();
            names.map_or_else(|| one_line(action_space), |names| names.join(", "))
        }
        Ok(tool @ Value::Object(_)) => signature(&tool).unwrap_or_else(|| one_line(action_space)),
        _ => one_line(action_space),
    }
}

/// Each tool of a JSON list on a line of its own, as it is written there; anything else as it came.
pub(crate) fn tool_lines(action_space: &str) -> String {
    match serde_json::from_str::<Vec<&RawValue>>(action_space) {
        Ok(tools) => tools.iter().map(|tool| tool.get()).collect::<Vec<_>>().join("\n"),
        Err(_) => action_space.trim().into(),
    }
}

/// `name(argument, argument)`, from any of the usual shapes.
fn signature(tool: &Value) -> Option<String> {
    if let Value::String(name) = tool {
        return Some(name.clone());
    }
    let tool = tool.get("function").filter(|inner| inner.is_object()).unwrap_or(tool);
    let name = tool.get("name")?.as_str()?;
    let schema = ["parameters", "input_schema", "inputSchema", "arguments"].iter().find_map(|key| tool.get(key));
    let properties = schema.map(|schema| schema.get("properties").unwrap_or(schema));
    let arguments: Vec<&str> = match properties {
        Some(Value::Object(properties)) => properties.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    Some(format!("{name}({})", arguments.join(", ")))
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_PLAIN) {
        Some((at, _)) => format!("{}{CUT}", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_cut, tool_lines, tools_line};

    #[test]
    fn whole_tools_stand_one_a_line_and_keep_every_key() {
        let first = r#"{"name": "a", "parameters": {"default": null, "z": 1, "b": 184467440737095516150}}"#;
        assert_eq!(tool_lines(&format!(r#"[{first}, {{"name":"b"}} ]"#)), format!("{first}\n{{\"name\":\"b\"}}"));
        assert_eq!(tool_lines("click(x)\n type(y)\n"), "click(x)\n type(y)");
    }

    #[test]
    fn tools_become_one_short_line() {
        let check = |text: &str, expected: &str| assert_eq!(tools_line(text), expected, "{text}");
        let bash = r#"{"type":"function","function":{"name":"bash","description":"Runs it.","parameters":
            {"type":"object","properties":{"command":{"type":"string"}}}}}"#;
        check(&format!("[{bash}]"), "bash(command)");
        check(bash, "bash(command)");
        check(r#"[{"name":"a","inputSchema":{"properties":{"x":{},"y":{}}}},{"name":"b"}]"#, "a(x, y), b()");
        check(r#"["click","type"]"#, "click, type");
        check("click(x, y)\n  type(text)", "click(x, y) type(text)");
        check(r#"[1, 2]"#, "[1, 2]");
        assert_eq!(tools_line(&"é".repeat(500)).chars().count(), 401);
        assert!(
            is_cut(&"é".repeat(500)) && !is_cut(&"é".repeat(400)) && !is_cut(&format!("[{bash}]")) && !is_cut("a…")
        );
    }
}
