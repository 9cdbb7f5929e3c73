//! InterCode's result logs: bash, SQL, Python and capture-the-flag tasks as parallel lists.
//!
//! A row is an object whose values are episodes (`"0"`, `"1"`, …), or one episode: `{environment, query, turn_history:
//! {actions, observations, rewards, valid_action, thoughts?}}`; the logs of people have `trajectory` in its place.
//! Action k pairs with observation k; an action beyond the observations was not run and is counted. Taken:
//! `valid_action` as the opposite of an error, `thoughts` and `steps` as reasoning, the best reward as outcome. A ReAct
//! run writes its commands as `execute[…]`, which is unwrapped; its `submit` runs nothing and repeats the last
//! observation, and the harness itself answers an action that is no command: flag `skip:harness_text`. Left out:
//! rewards by turn, gold answers, `info`.
//!
//! Task group: the data set and the task's number (`nl2bash_fs_1/7`, `dev_spider/809`), else the hash of the query.

use worldloom_schema::{ActionKind, Domain, Turn};

use super::format::{Drafts, HARNESS_TEXT, RowFormat, episodes, holds, spoken};
use super::{Draft, Origin};
use crate::episode::turn;
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "intercode",
    description: "InterCode result logs (bash, SQL), an object of episodes with parallel lists",
    example: r#"{"0": {"environment": "ic_bash", "dataset": "./data/nl2bash/nl2bash_fs_1.json", "task_id": 0, "query": "List the files.", "turn_history": {"actions": ["ls"], "observations": ["a.txt\n"], "rewards": [1.0], "valid_action": [true]}, "summary": {"max_reward": 1.0}}}"#,
    detects,
    read,
};

/// How the harness answers an action without a command.
const NO_COMMAND: &str = "Error executing query: Your last `execute` action did not contain";
/// The data set of the SQL tasks, where an episode does not name it.
const SQL_TASKS: &str = "dev_spider";

fn detects(fields: &Fields<'_>) -> bool {
    holds(fields, is_episode)
}

fn is_episode(fields: &Fields<'_>) -> bool {
    let is_named = fields.contains_key("environment") && fields.contains_key("query");
    is_named && (fields.contains_key("turn_history") || fields.contains_key("trajectory"))
}

/// The episodes of a row.
fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    episodes(fields, is_episode, episode, counts)
}

fn episode(fields: &Fields<'_>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let environment = json::text(fields, "environment")?.unwrap_or_default();
    let kind =
        if environment == "ic_sql" || environment == "ic_python" { ActionKind::Code } else { ActionKind::Command };
    let turns = match json::object(fields, "turn_history")? {
        Some(history) => turns(&Lists::read(&history)?, kind, counts),
        None => told_turns(&json::objects(fields, "trajectory")?, kind)?,
    };
    let task_group = task_group(fields, &environment)?;
    let mut draft = Draft { domain: Some(Domain::Terminal), task_group, turns, ..Draft::default() };
    draft.system.task_description = json::text(fields, "query")?.unwrap_or_default();
    draft.system.action_space = (!environment.is_empty()).then_some(environment);
    let summary = json::object(fields, "summary")?.unwrap_or_default();
    draft.outcome.reward = json::number(&summary, "max_reward")?.or(json::number(fields, "reward")?);
    draft.outcome.success = draft.outcome.reward.map(|reward| reward >= 1.0);
    Ok(draft)
}

/// The parallel lists of an episode.
struct Lists {
    actions: Vec<String>,
    observations: Vec<String>,
    thoughts: Option<Vec<String>>,
    steps: Option<Vec<String>>,
    valid: Vec<bool>,
}

impl Lists {
    fn read(history: &Fields<'_>) -> Result<Self, Refusal> {
        let mut valid = Vec::new();
        for raw in json::list(history, "valid_action")?.unwrap_or_default() {
            valid.extend(matches!(Value::of(raw)?, Value::Bool(_)).then(|| raw.get() == "true"));
        }
        Ok(Self {
            actions: texts(history, "actions")?.unwrap_or_default(),
            observations: texts(history, "observations")?.unwrap_or_default(),
            thoughts: texts(history, "thoughts")?,
            steps: texts(history, "steps")?,
            valid,
        })
    }
}

/// A list of strings; anything else in it keeps its JSON text.
fn texts(fields: &Fields<'_>, name: &str) -> Result<Option<Vec<String>>, Refusal> {
    let Some(items) = json::list(fields, name)? else { return Ok(None) };
    let text = |raw: &&serde_json::value::RawValue| match Value::of(raw)? {
        Value::Text(text) => Ok(text),
        Value::Null => Ok(String::new()),
        _ => Ok(json::data(raw)),
    };
    items.iter().map(text).collect::<Result<Vec<_>, Refusal>>().map(Some)
}

fn turns(lists: &Lists, kind: ActionKind, counts: &mut Counts) -> Vec<Turn> {
    let (actions, observations) = (lists.actions.len(), lists.observations.len());
    count(counts, "calls_without_a_result", actions.saturating_sub(observations) as u64);
    count(counts, "results_without_a_call", observations.saturating_sub(actions) as u64);
    let is_react = lists.thoughts.is_some();
    let pairs = lists.actions.iter().zip(&lists.observations).enumerate();
    pairs
        .map(|(at, (action, observation))| {
            let unwrapped = if is_react { unwrap_execute(action) } else { action };
            let mut turn = turn(unwrapped.into(), kind, observation.clone());
            if is_react && (action.trim() == "submit" || observation.starts_with(NO_COMMAND)) {
                turn.flags.push(HARNESS_TEXT.into());
            }
            turn.is_error = lists.valid.get(at).map(|is_valid| !is_valid);
            let thoughts = lists.thoughts.as_ref().or(lists.steps.as_ref());
            turn.reasoning = thoughts.and_then(|thoughts| spoken(thoughts.get(at).cloned()));
            turn
        })
        .collect()
}

fn told_turns(steps: &[Fields<'_>], kind: ActionKind) -> Result<Vec<Turn>, Refusal> {
    let told = |step: &Fields<'_>| {
        let action = json::text(step, "action")?.unwrap_or_default();
        Ok(turn(action, kind, json::text(step, "observation")?.unwrap_or_default()))
    };
    let numbered = steps.iter().enumerate();
    numbered.map(|(at, step)| told(step).map_err(|refusal: Refusal| refusal.at("trajectory", at))).collect()
}

/// The command in `execute[…]`, to the last bracket, as the harness found it.
fn unwrap_execute(action: &str) -> &str {
    let inner = action.trim_start().strip_prefix("execute[");
    inner.and_then(|inner| Some(inner.rsplit_once(']')?.0)).unwrap_or(action)
}

fn task_group(fields: &Fields<'_>, environment: &str) -> Result<Option<String>, Refusal> {
    let path = json::text(fields, "dataset")?;
    let stem = path.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path).trim_end_matches(".json"));
    let stem = stem.or((environment == "ic_sql").then_some(SQL_TASKS));
    let number = json::text(fields, "task_id")?.or(json::text(fields, "query_idx")?);
    Ok(stem.zip(number).map(|(stem, number)| format!("{stem}/{number}")))
}
