//! Paths into JSON: `items[0].name`, names with other letters in quotes: `a["b c"]`.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// The value at a path; the whole for an empty one.
pub(super) fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    parse(path).ok()?.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Item(at) => value.get(at),
    })
}

pub(super) fn validate(path: &str) -> Result<(), String> {
    parse(path).map(|_| ())
}

/// A path one step longer.
pub(super) fn field(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    match (is_plain, path.is_empty()) {
        (true, true) => name.into(),
        (true, false) => format!("{path}.{name}"),
        (false, _) => format!("{path}[{}]", Value::from(name)),
    }
}

fn parse(path: &str) -> Result<Vec<Step>, String> {
    let (mut steps, mut rest) = (Vec::new(), path);
    let wrong = || format!("`{path}` is no path such as `items[0].name`");
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let mut values = serde_json::Deserializer::from_str(inside).into_iter::<Value>();
            let step = match values.next() {
                Some(Ok(Value::String(name))) => Step::Field(name),
                Some(Ok(Value::Number(at))) => Step::Item(at.as_u64().ok_or_else(wrong)? as usize),
                _ => return Err(wrong()),
            };
            steps.push(step);
            rest = inside[values.byte_offset()..].strip_prefix(']').ok_or_else(wrong)?;
        } else {
            let name = if steps.is_empty() { rest } else { rest.strip_prefix('.').ok_or_else(wrong)? };
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err(wrong());
            }
            steps.push(Step::Field(name[..end].into()));
            rest = &name[end..];
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_they_name() {
        let value = json!({"a": [{"b c": 1}, 2], "d": {"e": null}});
        assert_eq!(find(&value, "a[0][\"b c\"]"), Some(&json!(1)));
        assert_eq!(find(&value, "a[1]"), Some(&json!(2)));
        assert_eq!(find(&value, "d.e"), Some(&Value::Null));
        assert_eq!(find(&value, ""), Some(&value));
        assert_eq!((find(&value, "a[2]"), find(&value, "d.f"), find(&value, "a.b")), (None, None, None));
        assert_eq!(field(&field("", "a"), "b c"), "a[\"b c\"]");
        assert_eq!(field("a", "b"), "a.b");
        for wrong in ["a..b", ".a", "a[", "a[x]", "a[-1]", "a]b[", "a[0]b"] {
            assert!(validate(wrong).is_err(), "{wrong}");
        }
    }
}
