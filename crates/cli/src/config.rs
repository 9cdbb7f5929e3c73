//! From TOML files and `--set` to typed configs: unknown keys are refused with the nearest known one.

use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

/// An error of the user's making, with a hint where we know one.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct UserError {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl UserError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Reads a TOML file as a table.
pub(crate) fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = fs_err::read_to_string(path)
        .map_err(|error| UserError::new(error.to_string()).hint("the path is relative to the current folder"))?;
    let table = text.parse::<toml::Table>();
    table.map_err(|error| UserError::new(format!("read `{}`: {}", path.display(), error.to_string().trim())).into())
}

/// Applies `a.b=c`; the value is TOML, or a string where it is not.
pub(crate) fn apply_set(table: &mut toml::Table, setting: &str) -> Result<()> {
    let (path, value) = setting
        .split_once('=')
        .ok_or_else(|| UserError::new(format!("`--set {setting}`: expected KEY=VALUE")).hint("e.g. --set seed=7"))?;
    let value = format!("v = {}", value.trim())
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.trim().into()));
    let mut keys: Vec<&str> = path.trim().split('.').collect();
    let last = keys.pop().filter(|key| !key.is_empty());
    let last = last.ok_or_else(|| UserError::new(format!("`--set {setting}`: the key is empty")))?;
    let mut table = table;
    for key in keys {
        let next = table.entry(key.to_string()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = next
            .as_table_mut()
            .ok_or_else(|| UserError::new(format!("`--set {setting}`: `{key}` is not a table in the config")))?;
    }
    table.insert(last.into(), value);
    Ok(())
}

/// Merges `over` into `base`, tables key by key.
pub(crate) fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// The typed config; `origin` says in errors where the table came from.
pub(crate) fn typed<T: DeserializeOwned>(table: &toml::Table, origin: &str) -> Result<T> {
    serde_path_to_error::deserialize(toml::Value::Table(table.clone())).map_err(|error| {
        let inner = error.inner().to_string();
        let message = inner.lines().next().unwrap_or_default().to_string();
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!(" `{path}`:") };
        let wrong = UserError::new(format!("{origin}:{place} {message}"));
        match nearest_key(&message) {
            Some(key) => wrong.hint(format!("did you mean `{key}`?")).into(),
            None => wrong.into(),
        }
    })
}

/// The known key nearest to the unknown one, from serde's own message.
fn nearest_key(message: &str) -> Option<String> {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (unknown, known) = quoted.split_first().filter(|_| message.starts_with("unknown "))?;
    nearest(unknown, known.iter().copied())
}

/// The most similar of the known names, if any is similar.
pub(crate) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let scored = known.map(|name| (strsim::jaro_winkler(unknown, name), name));
    let (score, name) = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.75).then(|| name.to_string())
}

/// A typed config as JSON with every default filled in.
pub(crate) fn resolved<T: serde::Serialize>(config: &T) -> Result<serde_json::Value> {
    serde_json::to_value(config).context("write the resolved config")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only parsed")]
        learning_rate: f64,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only parsed")]
        optimizer: Inner,
    }

    #[test]
    fn an_unknown_key_is_named_with_its_path_and_the_nearest_key() {
        let table = "[optimizer]\nlearning_rat = 1.0".parse().unwrap();
        let error = typed::<Outer>(&table, "`x.toml`").unwrap_err();
        let error = error.downcast_ref::<UserError>().unwrap();
        assert!(error.message.contains("`optimizer") && error.message.contains("learning_rat"), "{}", error.message);
        assert_eq!(error.hint.as_deref(), Some("did you mean `learning_rate`?"));
    }

    #[test]
    fn set_takes_toml_values_and_bare_words() {
        let mut table = toml::Table::new();
        for setting in ["a.b=3", "a.c=[1, 2]", "name=quick start", "on=true", "quoted=\"7\""] {
            apply_set(&mut table, setting).unwrap();
        }
        assert_eq!(table["a"]["b"].as_integer(), Some(3));
        assert_eq!(table["a"]["c"].as_array().map(Vec::len), Some(2));
        assert_eq!(table["name"].as_str(), Some("quick start"));
        assert_eq!((table["on"].as_bool(), table["quoted"].as_str()), (Some(true), Some("7")));
        assert!(apply_set(&mut table, "a").is_err() && apply_set(&mut table, "name.x=1").is_err());
    }
}
