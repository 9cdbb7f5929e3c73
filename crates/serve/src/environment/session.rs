//! One episode as a client sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use worldloom_world::Error;
use worldloom_world::episode::{Episode, Scenario, Step};

use crate::app::App;
use crate::waiting::Seen;

/// Why a message is not done, in OpenEnv's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new("VALIDATION_ERROR", message)
    }

    fn of(error: &Error) -> Self {
        let code = match error {
            Error::TimedOut => "TIMEOUT",
            Error::Busy { .. } => "CAPACITY_REACHED",
            Error::EngineStopped => "ENGINE_STOPPED",
            _ => "EXECUTION_ERROR",
        };
        Self::new(code, error.to_string())
    }
}

/// An open episode with its name.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    episode: Episode,
    step_count: u64,
    last_used: Instant,
    has_ended: bool,
}

impl Session {
    /// A new episode from the data of a `reset`: the server's scenario, with what the data sets in it.
    pub(crate) fn reset(app: &App, data: Map<String, Value>) -> Result<Self, Refusal> {
        let mut data = data;
        let id = match data.remove("episode_id") {
            None | Some(Value::Null) => format!("{:016x}", rand::random::<u64>()),
            Some(Value::String(id)) if (1..=255).contains(&id.len()) => id,
            Some(other) => {
                return Err(Refusal::invalid(format!("`episode_id` is {other}, expected text of 1 to 255 bytes")));
            }
        };
        let set = data.into_iter().filter(|(_, value)| !value.is_null());
        let mut fields = match serde_json::to_value(&app.config.scenario) {
            Ok(Value::Object(fields)) => fields,
            _ => return Err(Refusal::new("FACTORY_ERROR", "the server's scenario cannot be written")),
        };
        fields.extend(set);
        let scenario: Scenario =
            serde_json::from_value(fields.into()).map_err(|error| Refusal::invalid(format!("reset: {error}")))?;
        let episode = Episode::start(scenario).map_err(|error| Refusal::invalid(format!("reset: {error}")))?;
        Ok(Self { id, episode, step_count: 0, last_used: Instant::now(), has_ended: false })
    }

    /// What a client sees before the first action.
    pub(crate) fn first(&self) -> Value {
        let Scenario { domain, task, tools, initial_state, .. } = self.episode.scenario();
        json!({
            "observation": {
                "text": initial_state.as_deref().unwrap_or_default(),
                "domain": domain,
                "task": task,
                "tools": tools,
                "episode_id": self.id,
                "turn": 0,
                "fault": null,
                "flags": [],
            },
            "reward": null,
            "done": false,
        })
    }

    /// Performs an action; blocks while the model works and the client waits.
    pub(crate) fn step(&mut self, app: &App, data: &Map<String, Value>, seen: &Seen) -> Result<Value, Refusal> {
        if self.has_ended {
            return Err(Refusal::new("SESSION_ERROR", format!("the episode `{}` was closed; reset first", self.id)));
        }
        self.last_used = Instant::now();
        let action = action_text(data)?;
        if let Some(control) = data.get("control") {
            let control = control.as_str().ok_or_else(|| Refusal::invalid("`control` is not text"))?;
            self.episode.control(control);
        }
        let step = self.episode.step_until(&app.engine, &app.config.play, &action, seen.patience());
        self.last_used = Instant::now();
        let step = step.map_err(|error| Refusal::of(&error))?;
        self.step_count += 1;
        app.metrics.stepped(step.observation.is_err());
        let Step { observation, flags, is_done, .. } = step;
        let (text, fault) = match observation {
            Ok(text) => (text, None),
            Err(fault) => (String::new(), Some(fault.as_str())),
        };
        Ok(json!({
            "observation": {
                "text": text,
                "episode_id": self.id,
                "turn": self.episode.turns().len(),
                "fault": fault,
                "flags": flags,
            },
            "reward": null,
            "done": is_done,
        }))
    }

    /// OpenEnv's state; what is hidden in the scenario stays hidden.
    pub(crate) fn state(&mut self) -> Value {
        self.last_used = Instant::now();
        json!({
            "episode_id": self.id,
            "step_count": self.step_count,
            "turns": self.episode.turns().len(),
            "domain": self.episode.scenario().domain,
            "done": self.episode.is_done(),
        })
    }

    /// How long nobody has asked for it.
    pub(crate) fn idle(&self) -> Duration {
        self.last_used.elapsed()
    }

    /// Takes no further step. The episode as a line of the log; none where nothing was done.
    pub(crate) fn end(&mut self) -> Option<String> {
        self.has_ended = true;
        if self.episode.turns().is_empty() {
            return None;
        }
        let mut trajectory = self.episode.trajectory();
        trajectory.source_path = self.id.clone();
        serde_json::to_string(&trajectory).ok()
    }
}

/// The text of an action, as the model reads it.
fn action_text(data: &Map<String, Value>) -> Result<String, Refusal> {
    let named = ["text", "action", "command", "message"].iter().find_map(|key| data.get(*key));
    match (named, data.get("name")) {
        (Some(Value::String(text)), _) => Ok(text.clone()),
        (Some(call @ Value::Object(_)), _) => Ok(call.to_string()),
        (None, Some(name)) => {
            let arguments = data.get("arguments").cloned().unwrap_or_else(|| json!({}));
            Ok(json!({"name": name, "arguments": arguments}).to_string())
        }
        (Some(other), _) => Err(Refusal::invalid(format!("the action is {other}, expected text or a tool call"))),
        (None, None) => Err(Refusal::invalid("the action needs `text`, or `name` and `arguments`")),
    }
}

/// Runs blocking work of the model off the threads that serve.
pub(crate) async fn blocking<T: Send + 'static>(
    app: Arc<App>,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || work(&app)).await;
    done.map_err(|error| Refusal::new("EXECUTION_ERROR", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(text: &str) -> Result<String, Refusal> {
        action_text(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn actions_come_as_text_or_as_tool_calls() {
        assert_eq!(action(r#"{"text": "ls"}"#).unwrap(), "ls");
        assert_eq!(action(r#"{"command": "ls", "metadata": {}}"#).unwrap(), "ls");
        let call = r#"{"name":"get","arguments":{"b":1,"a":2}}"#;
        assert_eq!(action(call).unwrap(), call);
        assert_eq!(action(&format!(r#"{{"action": {call}}}"#)).unwrap(), call);
        assert_eq!(action(r#"{"name": "get"}"#).unwrap(), r#"{"name":"get","arguments":{}}"#);
        for bad in [r#"{}"#, r#"{"text": 3}"#, r#"{"arguments": {}}"#] {
            assert_eq!(action(bad).unwrap_err().code, "VALIDATION_ERROR");
        }
    }
}
