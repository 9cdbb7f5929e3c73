//! How rotary frequencies are stretched for longer contexts than a model was first trained on.

use super::invalid;
use crate::Error;
use serde_json::{Map, Value, json};

/// What happens to the frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Nothing.
    #[default]
    None,
    /// All are divided by the factor.
    Linear {
        /// How much longer contexts become.
        factor: f64,
    },
    /// Llama 3.1: low frequencies are divided by the factor, high ones stay, and those between go over smoothly.
    Llama3 {
        /// How much longer contexts become.
        factor: f64,
        /// Waves longer than the old context over this are low.
        low_freq_factor: f64,
        /// Waves shorter than the old context over this are high.
        high_freq_factor: f64,
        /// Positions before the stretching.
        original_max_position_embeddings: f64,
    },
}

impl RopeScaling {
    /// Reads `rope_scaling`, or what stands of it in `rope_parameters`; refuses other kinds by name. None where no kind is
    /// said.
    pub(super) fn read(
        key: &str,
        keys: &Map<String, Value>,
        passed_over: &[&str],
    ) -> Result<Option<RopeScaling>, Error> {
        let kind = ["rope_type", "type"].iter().filter_map(|name| keys.get(*name)).find(|kind| !kind.is_null());
        let number = |name: &str| {
            let value = keys.get(name).and_then(Value::as_f64).filter(|value| *value > 0.0);
            let found = || keys.get(name).cloned().unwrap_or(Value::Null);
            value.ok_or_else(|| invalid(&format!("{key}.{name}"), found(), "a positive number"))
        };
        let (scaling, used): (RopeScaling, &[&str]) = match kind.and_then(Value::as_str) {
            None | Some("default") => (RopeScaling::None, &[]),
            Some("linear") => (RopeScaling::Linear { factor: number("factor")? }, &["factor"]),
            Some("llama3") => (
                RopeScaling::Llama3 {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_max_position_embeddings: number("original_max_position_embeddings")?,
                },
                &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
            ),
            Some(_) => (RopeScaling::None, &[]),
        };
        if let RopeScaling::Llama3 { low_freq_factor: low, high_freq_factor: high, .. } = scaling
            && low >= high
        {
            return Err(invalid(
                &format!("{key}.low_freq_factor"),
                low,
                &format!("less than high_freq_factor ({high})"),
            ));
        }
        for (name, value) in keys {
            let refused = |supported: &str| Error::Unsupported {
                key: format!("{key}.{name}"),
                found: value.to_string(),
                supported: supported.to_owned(),
            };
            match name.as_str() {
                "rope_type" | "type" if value.is_null() => {}
                "rope_type" | "type" if !matches!(value.as_str(), Some("default" | "linear" | "llama3")) => {
                    return Err(refused("\"default\", \"linear\" or \"llama3\""));
                }
                "rope_type" | "type" => {}
                name if value.is_null() || used.contains(&name) || passed_over.contains(&name) => {}
                _ => return Err(refused("none")),
            }
        }
        Ok(kind.map(|_| scaling))
    }

    /// As published; none where nothing is stretched.
    pub(super) fn to_keys(self) -> Option<Map<String, Value>> {
        let keys = match self {
            RopeScaling::None => return None,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                json!({
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low_freq_factor,
                    "high_freq_factor": high_freq_factor,
                    "original_max_position_embeddings": original_max_position_embeddings as u64,
                })
            }
        };
        keys.as_object().cloned()
    }

    /// The stretched frequency, in single precision as the reference has it.
    pub(crate) fn stretch(self, frequency: f32) -> f32 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor as f32,
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let (factor, low, high) = (factor as f32, low_freq_factor as f32, high_freq_factor as f32);
                let old_context = original_max_position_embeddings as f32;
                let wave = 2.0 * std::f32::consts::PI / frequency;
                if wave > old_context / low {
                    return frequency / factor;
                }
                if wave < old_context / high {
                    return frequency;
                }
                let smooth = (old_context / wave - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}
