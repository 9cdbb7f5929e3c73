//! JSON into the template engine and out of it, written as Python writes it: that is what published templates expect.

use minijinja::value::ValueKind;
use serde_json::{Map, Number, Value};

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

/// A template's value as JSON. What JSON does not know is written as text.
pub(crate) fn from_jinja(value: &minijinja::Value) -> Value {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Value::Null,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::String => Value::String(value.as_str().unwrap_or_default().into()),
        ValueKind::Number => number(value),
        ValueKind::Seq | ValueKind::Iterable => {
            Value::Array(value.try_iter().into_iter().flatten().map(|item| from_jinja(&item)).collect())
        }
        ValueKind::Map => {
            let keys = value.try_iter().into_iter().flatten();
            let entry = |key: minijinja::Value| {
                let item = value.get_item(&key).unwrap_or_default();
                (key.to_string(), from_jinja(&item))
            };
            Value::Object(keys.map(entry).collect::<Map<_, _>>())
        }
        _ => Value::String(value.to_string()),
    }
}

fn number(value: &minijinja::Value) -> Value {
    if value.is_integer() {
        let text = value.to_string();
        let number = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
        if let Ok(number) = number {
            return Value::Number(number);
        }
    }
    f64::try_from(value.clone()).ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// As `json.dumps(value, ensure_ascii=False)` writes it: a space after every comma and colon.
pub(crate) fn python_json(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(python_json).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{}: {}", quoted(key), python_json(value));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => quoted(text),
        Value::Number(number) => python_number(number),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// As `str(value)` writes it, but for lists and objects, which are written as JSON.
pub(crate) fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        other => python_json(other),
    }
}

/// Control characters short where JSON has a short form; DEL and everything above ASCII as it is.
fn quoted(text: &str) -> String {
    Value::String(text.into()).to_string()
}

/// Floats as `repr` writes them: an exponent below 1e-4 and from 1e16 on, with a sign and two digits.
fn python_number(number: &Number) -> String {
    let Some(value) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{from_jinja, python_json, python_str, to_jinja};

    #[test]
    fn json_is_written_as_python_writes_it() {
        let check = |value: serde_json::Value, expected: &str| {
            assert_eq!(python_json(&value), expected);
            assert_eq!(from_jinja(&to_jinja(&value)), value);
        };
        check(
            json!({"b": [1, 2.0, "é\"\n\u{1}<&>"], "a": null}),
            "{\"b\": [1, 2.0, \"é\\\"\\n\\u0001<&>\"], \"a\": null}",
        );
        check(json!([1e16, 1.5e-5, 1e-4, 123456.75, 0.0, -1e22]), "[1e+16, 1.5e-05, 0.0001, 123456.75, 0.0, -1e+22]");
        check(json!([u64::MAX, i64::MIN, true, {}, []]), "[18446744073709551615, -9223372036854775808, true, {}, []]");
        assert_eq!(python_str(&json!(true)), "True");
        assert_eq!(python_str(&json!(null)), "None");
        assert_eq!(python_str(&json!("x")), "x");
        assert_eq!(python_str(&json!([true])), "[true]");
    }
}
