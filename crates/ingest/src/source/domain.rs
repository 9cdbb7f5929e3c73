//! The kind of environment, guessed from the tools an agent called, for logs that do not say.

use worldloom_schema::{ActionKind, Domain, Turn};

use crate::episode::is_shell;
use crate::json::{self, Value};

/// Tools that only agents on a code repository have.
const EDITORS: [&str; 16] = [
    "str_replace_editor",
    "str_replace_based_edit_tool",
    "file_editor",
    "apply_patch",
    "edit",
    "multiedit",
    "notebookedit",
    "editor",
    "replace_in_file",
    "write_to_file",
    "search_replace",
    "read_files",
    "grep",
    "glob",
    "edit_file_by_replace",
    "replace",
];
const BROWSERS: [&str; 8] =
    ["navigate", "goto", "open_url", "page_goto", "go_to_url", "click_element", "web_browser_go", "browser_use"];
const SEARCHES: [&str; 9] = [
    "search",
    "web_search",
    "websearch",
    "google_search",
    "visit",
    "webfetch",
    "web_fetch",
    "wikipedia_search",
    "lookup",
];

/// `terminal` where half of the actions run command lines and no editor is called; `swe` where an editor is; `web` where
/// a browser is driven; `search` where half of the actions search; else `mcp`.
pub(crate) fn guess(turns: &[Turn]) -> Domain {
    guess_with(turns, 2)
}

/// The same for agents that do everything through a shell and small helpers beside it: a fifth of the actions is enough
/// for `terminal`.
pub(crate) fn guess_of_coding_agent(turns: &[Turn]) -> Domain {
    guess_with(turns, 5)
}

/// One action in `parts` must run command lines for `terminal`.
fn guess_with(turns: &[Turn], parts: usize) -> Domain {
    let (mut commands, mut editors, mut browsers, mut searches) = (0, 0, 0, 0);
    for turn in turns {
        let name = tool(turn);
        let bare = name.rsplit("__").next().unwrap_or(&name).to_lowercase();
        commands += usize::from(turn.action_kind == ActionKind::Command || is_shell(&name));
        editors += usize::from(EDITORS.contains(&bare.as_str()));
        browsers += usize::from(BROWSERS.contains(&bare.as_str()) || bare.starts_with("browser_"));
        searches += usize::from(SEARCHES.contains(&bare.as_str()));
    }
    match () {
        () if editors > 0 => Domain::Swe,
        () if browsers > 0 => Domain::Web,
        () if commands > 0 && parts * commands >= turns.len() => Domain::Terminal,
        () if 2 * searches >= turns.len() => Domain::Search,
        () => Domain::Mcp,
    }
}

/// The tool of a call; empty for other actions.
fn tool(turn: &Turn) -> String {
    if turn.action_kind != ActionKind::ToolCall {
        return String::new();
    }
    let Ok(Value::Object(fields)) = Value::parse(&turn.action) else { return String::new() };
    json::text(&fields, "name").ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tools: &[&str], expected: Domain) {
        let call = |name: &&str| {
            let action = format!("{{\"name\": \"{name}\", \"arguments\": {{\"timeout\": 3}}}}");
            crate::episode::turn(action, ActionKind::ToolCall, "x".into())
        };
        assert_eq!(guess(&tools.iter().map(call).collect::<Vec<_>>()), expected, "{tools:?}");
    }

    #[test]
    fn the_tools_called_say_the_domain() {
        check(&["bash", "str_replace_editor"], Domain::Swe);
        check(&["Bash", "Edit", "Bash"], Domain::Swe);
        check(&["mcp__sandbox__sandbox_run", "mcp__sandbox__sandbox_write"], Domain::Terminal);
        check(&["navigate", "screenshot"], Domain::Web);
        check(&["search", "visit"], Domain::Search);
        check(&["get_user_details", "search"], Domain::Search);
        check(&["route", "execute-tool"], Domain::Mcp);
    }
}
