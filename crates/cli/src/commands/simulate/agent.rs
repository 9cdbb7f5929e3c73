//! An agent behind an OpenAI-compatible endpoint, which plays in place of a person.

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use worldloom_judge::endpoint::{BlockingEndpoint, ChatRequest, Endpoint, EndpointConfig, Message, Parameters};
use worldloom_world::episode::Scenario;

use crate::config::UserError;

/// What the agent answers when it has nothing more to do.
const DONE: &str = "DONE";

/// Adds the arguments.
pub(crate) fn agent_args(command: Command) -> Command {
    let text =
        |id: &'static str, name: &'static str, help: &'static str| Arg::new(id).long(id).value_name(name).help(help);
    command
        .arg(text("agent", "URL", "Let an agent play: an OpenAI-compatible endpoint, up to and with /v1"))
        .arg(text("agent-model", "NAME", "The agent's name there").requires("agent"))
        .arg(text("agent-key-env", "VARIABLE", "Environment variable with its key").requires("agent"))
        .arg(text("task", "TEXT", "What the agent is to do; default: the scenario's").requires("agent"))
        .arg(text("turns", "N", "Turns of the agent, at most").default_value("20").value_parser(value_parser!(u64)))
}

/// A conversation in which the agent's turns are actions and the user's are observations.
pub(crate) struct Agent {
    endpoint: BlockingEndpoint,
    messages: Vec<Message>,
}

impl Agent {
    pub(crate) fn new(matches: &ArgMatches, scenario: &Scenario) -> Result<Self> {
        let text = |id: &str| matches.get_one::<String>(id);
        let name = text("agent-model");
        let name =
            name.ok_or_else(|| UserError::new("--agent-model is missing").hint("the agent's name at the endpoint"))?;
        let key = match text("agent-key-env") {
            Some(variable) => Some(
                std::env::var(variable).map_err(|_| UserError::new(format!("the variable {variable} is not set")))?,
            ),
            None => None,
        };
        let config = EndpointConfig::new(text("agent").cloned().unwrap_or_default(), name);
        let endpoint = BlockingEndpoint::new(Endpoint::new(config, key)?)?;
        let task = text("task").unwrap_or(&scenario.task);
        let mut system = format!(
            "You act in a {} environment. Answer with the next action alone: no comment, no fence around it. When \
             nothing is left to do, answer {DONE}.",
            scenario.domain
        );
        if !task.trim().is_empty() {
            system.push_str(&format!("\n\nTask: {}", task.trim()));
        }
        if let Some(tools) = &scenario.tools {
            system.push_str(&format!("\n\nTools: {tools}\nAn action is a JSON object with `name` and `arguments`."));
        }
        let first = scenario.initial_state.as_deref().filter(|state| !state.trim().is_empty());
        let first = first.map_or("Begin.".to_string(), |state| format!("State: {state}\n\nBegin."));
        Ok(Self { endpoint, messages: vec![Message::system(system), Message::user(first)] })
    }

    /// The next action; none where the agent is done.
    pub(crate) fn act(&mut self) -> Result<Option<String>> {
        let parameters = Parameters { max_tokens: Some(1024), ..Parameters::default() };
        let reply = self.endpoint.chat(&ChatRequest::new(self.messages.clone(), parameters))?;
        let content = reply.choices.into_iter().next().and_then(|choice| choice.content).unwrap_or_default();
        let action = without_fence(content.trim()).to_string();
        if action.is_empty() || action == DONE {
            return Ok(None);
        }
        self.messages.push(Message::assistant(action.clone()));
        Ok(Some(action))
    }

    /// What came of it; none where the environment gave no answer.
    pub(crate) fn see(&mut self, observation: Option<&str>) {
        let text = match observation {
            None => "(the environment gave no answer; nothing was done)",
            Some("") => "(no output)",
            Some(text) => text,
        };
        self.messages.push(Message::user(text));
    }
}

/// The content of one fence around the whole text.
fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let Some((_, body)) = inner.and_then(|inner| inner.split_once('\n')) else { return text };
    body.trim()
}

#[cfg(test)]
mod tests {
    use super::without_fence;

    #[test]
    fn one_fence_around_an_action_is_taken_off() {
        assert_eq!(without_fence("```bash\nls -l\n```"), "ls -l");
        assert_eq!(without_fence("ls"), "ls");
        assert_eq!(without_fence("```ls```"), "```ls```");
    }
}
