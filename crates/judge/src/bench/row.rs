//! Rows of the benchmark, and the messages made of them for the model under test and for the judge.
//!
//! A row is one turn to predict: `prompt` and `response` hold the turns up to it, the last of `prompt` with the
//! instruction for the answer at its end and `current_prompt` without. What the published script does with odd rows is
//! kept, and what stops it altogether is a [`RowFault`] here, of this row alone.

use super::json;
use super::prediction::{DOMAINS, extract_prediction, without_marker};
use super::prompts::JudgePrompts;
use super::python::Value;

/// The domain of a row that names no task.
const DEFAULT_TASK: &str = "mcp";

/// Why the published script cannot make messages of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}`: {detail}")]
pub struct RowFault {
    /// The field.
    pub field: &'static str,
    /// Expected and found.
    pub detail: String,
    /// The exception that Python raises there.
    pub python: &'static str,
}

impl RowFault {
    fn of(field: &'static str, python: &'static str, detail: impl Into<String>) -> Self {
        Self { field, detail: detail.into(), python }
    }

    fn kind(field: &'static str, expected: &str, found: &Value) -> Self {
        let found: String = found.to_json().chars().take(40).collect();
        Self::of(field, "TypeError", format!("expected {expected}, found {found}"))
    }
}

/// Who speaks in a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text; a row may hold other values, which go out as they are.
    pub content: Value,
}

/// The four variable parts of a judge's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeParts {
    /// Earlier turns under their heading; empty on the first turn.
    pub context: String,
    /// The turn to predict under its heading.
    pub world_model_input: String,
    /// The prediction in a fence.
    pub predicted_observation: String,
    /// The truth in a fence.
    pub ground_truth: String,
}

/// One turn to predict, with whatever further fields it has.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRow {
    fields: Value,
}

impl BenchRow {
    /// A row from one line of a file.
    pub fn parse(line: &str) -> Result<Self, RowFault> {
        match json::parse(line) {
            Ok(fields @ Value::Dict(_)) => Ok(Self { fields }),
            Ok(other) => Err(RowFault::kind("row", "a JSON object", &other)),
            Err(json::Failure::Syntax(byte)) => {
                Err(RowFault::of("row", "JSONDecodeError", format!("expected JSON, which breaks off at byte {byte}")))
            }
            Err(json::Failure::Unholdable) => Err(RowFault::of("row", "ValueError", "a number or a nesting too long")),
        }
    }

    /// All fields.
    pub fn fields(&self) -> &Value {
        &self.fields
    }

    /// Sets a field.
    pub fn set(&mut self, key: &str, value: Value) {
        self.fields.set(key, value);
    }

    /// What follows the last `/` of `task`.
    pub fn domain(&self) -> Result<&str, RowFault> {
        match self.fields.get("task") {
            None => Ok(DEFAULT_TASK),
            Some(Value::Text(task)) => Ok(task.rsplit('/').next().unwrap_or_default()),
            Some(other) => Err(RowFault::kind("task", "text", other)),
        }
    }

    /// The domain, if it is one of the seven.
    pub fn known_domain(&self) -> Option<&str> {
        self.domain().ok().filter(|domain| DOMAINS.contains(domain))
    }

    /// What tells its trajectory from others: ids are used twice in the official files, so what the model is told and
    /// the first turn count as well.
    pub fn trajectory_key(&self) -> String {
        let text = |key: &str| self.fields.get(key).map(Value::to_json).unwrap_or_default();
        let first = match self.fields.get("prompt") {
            Some(Value::List(prompts)) if prompts.len() > 1 => prompts.first().map(Value::to_json),
            _ => self.fields.get("current_prompt").map(Value::to_json),
        };
        [text("task"), text("id"), text("system_str"), first.unwrap_or_default()].join("\u{1f}")
    }

    /// The messages for the model under test: system, earlier turns, and the turn with its instruction.
    pub fn inference_messages(&self) -> Result<Vec<Message>, RowFault> {
        self.domain()?;
        let mut messages = Vec::new();
        if let Some(system) = self.fields.get("system_str").filter(|system| system.is_true()) {
            messages.push(Message { role: "system", content: system.clone() });
        }
        let number = self.fields.get("turn_idx");
        let number = number.ok_or_else(|| RowFault::of("turn_idx", "KeyError", "it is missing"))?;
        let turn = number.as_index().filter(|turn| turn.abs() < 1 << 40);
        let turn = turn.ok_or_else(|| RowFault::kind("turn_idx", "a whole number", number))?;
        let (prompts, responses) = (self.sequence("prompt"), self.sequence("response"));
        for (prompt, response) in prompts.before(turn - 1)?.into_iter().zip(responses.before(turn - 1)?) {
            messages.push(Message { role: "user", content: prompt });
            messages.push(Message { role: "assistant", content: response });
        }
        let content = prompts.indexed(turn - 1)?;
        messages.push(Message { role: "user", content });
        Ok(messages)
    }

    /// The parts of the judge's message for a prediction.
    pub fn judge_parts(&self, prediction: &str) -> Result<JudgeParts, RowFault> {
        let domain = self.domain()?;
        let turn = match self.fields.get("turn_idx") {
            None => 1,
            Some(number) => number
                .as_index()
                .filter(|turn| turn.abs() < 1 << 40)
                .ok_or_else(|| RowFault::kind("turn_idx", "a whole number", number))?,
        };
        let target = (turn - 1).max(0) as usize;
        // Here a string is one turn, not a sequence of characters.
        let whole = |key| match self.fields.get(key) {
            Some(text @ Value::Text(_)) => Sequence { key, value: Some(Value::List(vec![text.clone()])) },
            _ => self.sequence(key),
        };
        let (prompts, responses) = (whole("prompt"), whole("response"));
        let mut context = String::new();
        for at in 0..target {
            let (Some(prompt), Some(response)) = (prompts.at(at)?, responses.at(at)?) else { continue };
            for (key, value, end) in [("prompt", prompt, "\n"), ("response", response, "\n\n")] {
                let text = value.as_text().ok_or_else(|| RowFault::kind(key, "texts", &value))?;
                context.push_str(text);
                context.push_str(end);
            }
        }
        if !context.is_empty() {
            context.insert_str(0, "# Context (Historical Interactions):\n\n");
        }
        let current = match self.fields.get("current_prompt").filter(|current| current.is_true()) {
            Some(current) => current.to_str(),
            None => match prompts.at(target)? {
                Some(prompt) => prompt.to_str(),
                None => self.fields.get("current_prompt").map_or(String::new(), Value::to_str),
            },
        };
        let truth = responses.at(target)?.unwrap_or(Value::Text(String::new()));
        let truth = match &truth {
            Value::Text(text) => without_marker(text, domain),
            other if DOMAINS.contains(&domain) => {
                let fault = RowFault::kind("response", "texts", other);
                return Err(RowFault { python: "AttributeError", ..fault });
            }
            other => other.to_str(),
        };
        let prediction = without_marker(prediction, domain);
        Ok(JudgeParts {
            context,
            world_model_input: format!("# Current Turn:\n\n{current}"),
            predicted_observation: format!("**World Model Output (Simulated):**\n```\n{prediction}\n```"),
            ground_truth: format!("**Ground Truth (Real Output):**\n```\n{truth}\n```"),
        })
    }

    /// What is asked of the judge about a completion, and the prediction in it; none where there is no completion.
    pub fn judge_request(&self, completion: &str, prompts: &JudgePrompts) -> Result<Option<JudgeRequest>, RowFault> {
        if completion.is_empty() {
            return Ok(None);
        }
        let prediction = extract_prediction(completion);
        let parts = self.judge_parts(&prediction)?;
        let system = prompts.system(self.domain()?).to_string();
        Ok(Some(JudgeRequest { system, user: prompts.user(&parts), prediction }))
    }

    /// The turns up to the target: the action in its fence, and the true observation without its marker.
    pub fn turns(&self) -> Result<Vec<(String, String)>, RowFault> {
        let domain = self.domain()?;
        let number = self.fields.get("turn_idx");
        let last = number.and_then(Value::as_index).filter(|turn| *turn > 0);
        let last = last.ok_or_else(|| RowFault::of("turn_idx", "KeyError", "expected a turn from 1 on"))? as usize;
        let (prompts, responses) = (self.sequence("prompt"), self.sequence("response"));
        let mut turns = Vec::new();
        for at in 0..last {
            let index = at as i64;
            let (prompt, response) = (prompts.indexed(index)?, responses.indexed(index)?);
            turns.push((action_in(&prompt.to_str()).to_string(), without_marker(&response.to_str(), domain)));
        }
        Ok(turns)
    }

    fn sequence(&self, key: &'static str) -> Sequence {
        Sequence { key, value: self.fields.get(key).cloned() }
    }
}

/// The fenced text below the heading of an action, or the whole text.
fn action_in(prompt: &str) -> &str {
    let Some((_, after)) = prompt.split_once("**Action:**\n") else { return prompt };
    let fence_len = after.len() - after.trim_start_matches('`').len();
    let fence = &after[..fence_len];
    let Some((_, body)) = after.split_once('\n').filter(|_| fence_len >= 3) else { return after };
    body.split_once(&format!("\n{fence}")).map_or(body, |(action, _)| action)
}

/// What goes to the judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeRequest {
    /// The system message; empty for an unknown domain.
    pub system: String,
    /// The user's message.
    pub user: String,
    /// The prediction that is judged, with its marker.
    pub prediction: String,
}

/// A field that is a list; missing, an empty one.
struct Sequence {
    key: &'static str,
    value: Option<Value>,
}

impl Sequence {
    fn len(&self) -> Result<usize, RowFault> {
        match &self.value {
            None => Ok(0),
            Some(Value::List(items)) => Ok(items.len()),
            Some(Value::Text(text)) => Ok(text.chars().count()),
            Some(other) => Err(RowFault::kind(self.key, "a list of texts", other)),
        }
    }

    /// The element, or nothing behind the end.
    fn at(&self, index: usize) -> Result<Option<Value>, RowFault> {
        self.len()?;
        Ok(match &self.value {
            Some(Value::List(items)) => items.get(index).cloned(),
            Some(Value::Text(text)) => text.chars().nth(index).map(|one| Value::Text(one.to_string())),
            _ => None,
        })
    }

    /// The elements before an index, which counts from the end where negative.
    fn before(&self, index: i64) -> Result<Vec<Value>, RowFault> {
        let len = self.len()? as i64;
        let end = if index < 0 { (index + len).max(0) } else { index.min(len) };
        let elements = (0..end as usize).map(|at| self.at(at));
        Ok(elements.collect::<Result<Vec<Option<Value>>, RowFault>>()?.into_iter().flatten().collect())
    }

    /// The element, counted from the end where negative; it must be there.
    fn indexed(&self, index: i64) -> Result<Value, RowFault> {
        let len = self.len()? as i64;
        let place = if index < 0 { index + len } else { index };
        let missing = || RowFault::of(self.key, "IndexError", format!("no turn {}, there are {len}", index + 1));
        usize::try_from(place).ok().map_or(Ok(None), |place| self.at(place))?.ok_or_else(missing)
    }
}
