//! What agents of AndroidWorld write: thoughts, then `Action:` with a JSON object or a call.
//!
//! ```text
//! Reason: The app is not on this screen.
//! Action: {"action_type": "open_app", "app_name": "Contacts"}
//! ```

use super::screens::Act;

/// The words before the thoughts.
const THOUGHT_LABELS: [&str; 2] = ["Reason:", "Thought:"];

/// An answer of the agent as an action with its thoughts. Without a line `Action:` all of it is the action.
pub(crate) fn read_answer(answer: &str) -> Act {
    let is_line_start = |at: &usize| *at == 0 || answer[..*at].ends_with('\n');
    let start = answer.match_indices("Action:").map(|(at, _)| at).filter(is_line_start).last();
    let (thoughts, action) = match start {
        Some(at) => (&answer[..at], &answer[at + "Action:".len()..]),
        None => ("", answer),
    };
    let thoughts = thoughts.trim();
    let thoughts = THOUGHT_LABELS.iter().find_map(|label| thoughts.strip_prefix(label)).unwrap_or(thoughts);
    read_action(action.trim()).because(Some(thoughts.into()))
}

/// An action: an object with `action_type`, a call such as `click(start_box='(500,260)')`, or words.
pub(crate) fn read_action(action: &str) -> Act {
    if let Ok(act) = Act::from_object(action, "action_type") {
        return act;
    }
    match action.split_once('(') {
        Some((name, rest)) if is_name(name) && rest.ends_with(')') => Act::code(action).flag("family", name),
        _ => Act::words(action),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The lines of an agent's prompt that declare an action each, such as
/// ``- Navigate back: `{"action_type": "navigate_back"}` ``.
pub(crate) fn action_list(prompt: &str) -> Option<String> {
    let lines: Vec<&str> =
        prompt.lines().filter(|line| line.starts_with("- ") && line.contains("{\"action_type\"")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use worldloom_schema::ActionKind;

    use super::*;

    fn check(answer: &str, action: &str, kind: ActionKind, thoughts: Option<&str>, flags: &[&str]) {
        let act = read_answer(answer);
        assert_eq!((act.text.as_str(), act.kind, act.reasoning.as_deref()), (action, kind, thoughts), "{answer}");
        assert_eq!(act.flags, flags, "{answer}");
    }

    #[test]
    fn an_answer_is_thoughts_and_an_action() {
        let call = r#"{"name": "click", "arguments": {"index": 6, "x": 1.50}}"#;
        let object = "Reason: The Action: is\nnear.  \n\nAction: {\"action_type\":\"click\",\"index\":6,\"x\":1.50}\n";
        check(object, call, ActionKind::ToolCall, Some("The Action: is\nnear."), &["family:click"]);
        let back = r#"{"name": "back", "arguments": {}}"#;
        check(r#"Action: {"action_type": "back", "index": null}"#, back, ActionKind::ToolCall, None, &["family:back"]);
        let code = "click(start_box='(500,260)')";
        check(&format!("Thought: a\nAction: {code}"), code, ActionKind::Code, Some("a"), &["family:click"]);
        check("I do not know (yet)", "I do not know (yet)", ActionKind::Text, None, &[]);
        check("Action: {\"action_type\": \"cut", "{\"action_type\": \"cut", ActionKind::Text, None, &[]);
        check("", "", ActionKind::Text, None, &[]);
    }

    #[test]
    fn the_action_list_is_what_the_prompt_declares() {
        let prompt = "You may:\n- Answer back\n- Go back: `{\"action_type\": \"back\"}`\n- Wait: `{\"action_type\": \"wait\"}`.\nGoal:";
        let expected = "- Go back: `{\"action_type\": \"back\"}`\n- Wait: `{\"action_type\": \"wait\"}`.";
        assert_eq!(action_list(prompt).as_deref(), Some(expected));
        assert_eq!(action_list("- Nothing"), None);
    }
}
