//! JSON into the template engine.

use serde_json::Value;

/// A JSON value for a template; keys keep their order.
pub(crate) fn to_jinja(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(value) => minijinja::Value::from(*value),
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => minijinja::Value::from(items.iter().map(to_jinja).collect::<Vec<_>>()),
        Value::Object(map) => {
            minijinja::Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), to_jinja(value))))
        }
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => minijinja::Value::from(number),
            (_, Some(number), _) => minijinja::Value::from(number),
            (_, _, number) => minijinja::Value::from(number.unwrap_or(f64::NAN)),
        },
    }
}
