//! Answers that were paid for, one file each.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::{Failure, SetupError};

/// The hash of everything that decides an answer.
pub(super) fn key(server: &str, path: &str, body: &Value, draw: u32) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [server, path, &sorted(body).to_string(), &draw.to_string()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_string()
}

/// The same value with the fields of every object in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> =
                fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    body: Value,
}

pub(super) struct Cache {
    folder: PathBuf,
}

impl Cache {
    pub(super) fn open(folder: &Path) -> Result<Self, SetupError> {
        fs_err::create_dir_all(folder).map_err(|source| SetupError::Open { path: folder.into(), source })?;
        Ok(Self { folder: folder.into() })
    }

    /// The body kept under this key. A file that cannot be read is none.
    pub(super) fn read(&self, key: &str) -> Option<Value> {
        let bytes = fs_err::read(self.file(key)).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        (kept.key == key).then_some(kept.body)
    }

    /// Keeps a body, whole or not at all.
    pub(super) fn write(&self, key: &str, body: &Value) -> Result<(), Failure> {
        let file = self.file(key);
        let keep = || -> std::io::Result<()> {
            let folder = file.parent().unwrap_or(&self.folder);
            fs_err::create_dir_all(folder)?;
            let mut partial = tempfile::NamedTempFile::new_in(folder)?;
            let kept = Kept { key: key.into(), body: body.clone() };
            partial.write_all(&serde_json::to_vec(&kept)?)?;
            partial.persist(&file).map_err(|error| error.error)?;
            Ok(())
        };
        keep().map_err(|error| Failure::Keep { detail: format!("`{}`: {error}", file.display()) })
    }

    /// Keeps nothing under this key any more.
    pub(super) fn remove(&self, key: &str) -> Result<(), Failure> {
        match fs_err::remove_file(self.file(key)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::Keep { detail: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(&key[..2]).join(format!("{key}.json"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_key_changes_with_everything_but_the_order_of_fields() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
        let same = json!({"messages": [{"content": "a", "role": "user"}], "model": "m"});
        let of = |server, path, body, draw| key(server, path, body, draw);
        let one = of("http://h/v1", "chat/completions", &body, 0);
        assert_eq!(one, of("http://h/v1", "chat/completions", &same, 0));
        let others = [
            of("http://g/v1", "chat/completions", &body, 0),
            of("http://h/v1", "completions", &body, 0),
            of("http://h/v1", "chat/completions", &json!({"model": "m", "messages": []}), 0),
            of("http://h/v1", "chat/completions", &body, 1),
        ];
        assert!(others.iter().all(|other| *other != one));
    }

    #[test]
    fn what_is_kept_comes_back_and_a_torn_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let key = key("s", "p", &json!(1), 0);
        assert_eq!(cache.read(&key), None);
        cache.write(&key, &json!({"a": 1})).unwrap();
        assert_eq!(cache.read(&key), Some(json!({"a": 1})));
        fs_err::write(cache.file(&key), r#"{"key": "#).unwrap();
        assert_eq!(cache.read(&key), None);
        cache.write(&key, &json!({"a": 2})).unwrap();
        assert_eq!(cache.read(&key), Some(json!({"a": 2})));
        cache.remove(&key).unwrap();
        assert_eq!(cache.read(&key), None);
        cache.remove(&key).unwrap();
    }
}
