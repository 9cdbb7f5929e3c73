//! Reading the keys of a configuration: each is taken, looked at, or refused by its name.

use super::{RopeScaling, invalid};
use crate::Error;
use crate::families::Family;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Written by us from the fields, or meaningless beside them.
const REPLACED: [&str; 4] = ["architectures", "rope_scaling", "partial_rotary_factor", "hidden_act"];

/// Rotary constants of images, beside those of texts.
const AXES: [&str; 2] = ["mrope_section", "mrope_interleaved"];

/// The keys not yet taken.
pub(crate) struct Keys(Map<String, Value>);

impl Keys {
    /// The keys of the text model, and those around them where it is part of a larger one.
    pub(super) fn of_the_text_model(object: Map<String, Value>) -> Result<(Keys, Option<Map<String, Value>>), Error> {
        let mut outer = object;
        match outer.shift_remove("text_config") {
            None => Ok((Keys(outer), None)),
            Some(Value::Object(inner)) => {
                let outer = Keys(outer);
                outer.only("quantization_config", &Value::Null)?;
                Ok((Keys(inner), Some(outer.0)))
            }
            Some(found) => Err(invalid("text_config", found, "an object")),
        }
    }

    /// Takes a key that must be there.
    pub(crate) fn required<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }

    /// Takes a key; one that is absent or null is none.
    pub(crate) fn optional<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, Error> {
        let value = self.look(key);
        self.0.shift_remove(key);
        value
    }

    /// Reads a key and leaves it among the others, to be written back as it came.
    pub(crate) fn look<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value.clone()) {
                Ok(read) => Ok(Some(read)),
                Err(_) => Err(invalid(key, value, std::any::type_name::<T>())),
            },
        }
    }

    /// As [`Keys::look`], for a key that decides a result.
    pub(crate) fn look_required<T: DeserializeOwned>(&self, key: &str) -> Result<T, Error> {
        self.look(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }

    pub(super) fn token_ids(&mut self, key: &str) -> Result<Vec<u32>, Error> {
        match self.0.get(key) {
            Some(Value::Array(_)) => Ok(self.optional(key)?.unwrap_or_default()),
            _ => Ok(self.optional::<u32>(key)?.into_iter().collect()),
        }
    }

    /// Whether the head is the embedding: the larger model's word counts before the text model's.
    pub(super) fn tie_word_embeddings(&mut self, outer: &Option<Map<String, Value>>) -> Result<bool, Error> {
        let key = "tie_word_embeddings";
        let inner = self.optional(key)?;
        let outer = outer.as_ref().and_then(|outer| outer.get(key)).and_then(Value::as_bool);
        Ok(outer.or(inner).unwrap_or(false))
    }

    /// Base of the rotary angles and share of a head that turns, in either spelling.
    pub(super) fn rotary(&mut self, family: &Family) -> Result<(f64, f64), Error> {
        let theta = self.rotary_number("rope_theta")?.or(family.default_rope_theta);
        let theta = theta.ok_or_else(|| Error::MissingKey { key: "rope_theta".to_owned() })?;
        let factor = self.rotary_number("partial_rotary_factor")?;
        Ok((theta, factor.unwrap_or(family.default_partial_rotary_factor)))
    }

    /// A number that stands at the top, in `rope_parameters`, or in both alike.
    fn rotary_number(&mut self, key: &str) -> Result<Option<f64>, Error> {
        let nested = self.0.get("rope_parameters").and_then(|nested| nested.get(key)).filter(|value| !value.is_null());
        let number =
            |value: &Value| value.as_f64().ok_or_else(|| invalid(&format!("rope_parameters.{key}"), value, "a number"));
        match (nested.map(number).transpose()?, self.optional::<f64>(key)?) {
            (Some(nested), Some(top)) if nested != top => {
                Err(invalid(key, top, &format!("{nested}, as in `rope_parameters`")))
            }
            (nested, top) => Ok(nested.or(top)),
        }
    }

    /// Names the first key whose value asks for something that no family here computes.
    pub(super) fn refuse_other_computations(&mut self, family: &Family) -> Result<(), Error> {
        let only = [
            ("hidden_act", json!("silu")),
            ("attention_bias", json!(false)),
            ("mlp_bias", json!(false)),
            ("attention_dropout", json!(0.0)),
            ("is_encoder_decoder", json!(false)),
        ];
        for (key, value) in only {
            self.only(key, &value)?;
        }
        self.only("quantization_config", &Value::Null)?;
        if family.default_partial_rotary_factor == 1.0 {
            self.only("partial_rotary_factor", &json!(1.0))?;
        }
        self.refuse_sliding_window(family)
    }

    /// Refuses a key unless it is absent or null, or has the one value that is implemented.
    pub(crate) fn only(&self, key: &str, value: &Value) -> Result<(), Error> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(()),
            Some(found) => supported(key, found, value),
        }
    }

    /// How the rotary frequencies are stretched, in either spelling.
    pub(super) fn rope_scaling(&self, family: &Family) -> Result<RopeScaling, Error> {
        let mut scaling = RopeScaling::None;
        for key in ["rope_parameters", "rope_scaling"] {
            let Some(Value::Object(parameters)) = self.0.get(key) else {
                self.only(key, &Value::Null)?;
                continue;
            };
            let mut passed_over = vec!["rope_theta"];
            if family.default_partial_rotary_factor != 1.0 {
                passed_over.push("partial_rotary_factor");
            } else if let Some(factor) = parameters.get("partial_rotary_factor").filter(|factor| !factor.is_null()) {
                supported(&format!("{key}.partial_rotary_factor"), factor, &json!(1.0))?;
                passed_over.push("partial_rotary_factor");
            }
            if family.has_axes {
                // The three axes of an image have one position each; those of a text are all the same.
                passed_over.extend(AXES);
            }
            let found = RopeScaling::read(key, parameters, &passed_over)?;
            if scaling != RopeScaling::None && found != RopeScaling::None && found != scaling {
                return Err(invalid(key, Value::Object(parameters.clone()), "the same as in `rope_parameters`"));
            }
            scaling = if found == RopeScaling::None { scaling } else { found };
        }
        Ok(scaling)
    }

    fn refuse_sliding_window(&self, family: &Family) -> Result<(), Error> {
        let layers = self.0.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0);
        let full_layers = self.0.get("max_window_layers").and_then(Value::as_u64).unwrap_or(28);
        let window = self.0.get("sliding_window").is_some_and(|window| !window.is_null());
        if window && full_layers < layers {
            self.only("use_sliding_window", &json!(false))?;
        }
        if let Some(Value::Array(kinds)) = self.0.get("layer_types") {
            for (layer, kind) in kinds.iter().enumerate() {
                if !(family.is_hybrid && kind == "linear_attention") {
                    supported(&format!("layer_types[{layer}]"), kind, &json!("full_attention"))?;
                }
            }
            if kinds.len() as u64 != layers {
                return Err(invalid("layer_types", kinds.len(), &format!("{layers} entries")));
            }
        }
        Ok(())
    }

    /// What is kept and written back.
    pub(super) fn rest(mut self, family: &Family) -> Map<String, Value> {
        for key in REPLACED {
            self.0.shift_remove(key);
        }
        if let Some(Value::Object(nested)) = self.0.get_mut("rope_parameters") {
            nested.retain(|key, _| family.has_axes && AXES.contains(&key.as_str()));
            if nested.is_empty() {
                self.0.shift_remove("rope_parameters");
            }
        }
        self.0
    }
}

fn supported(key: &str, found: &Value, value: &Value) -> Result<(), Error> {
    let equal = match (found.as_f64(), value.as_f64()) {
        (Some(found), Some(value)) => found == value,
        _ => found == value,
    };
    let refused = || Error::Unsupported {
        key: key.to_owned(),
        found: found.to_string(),
        supported: if value.is_null() { "none".to_owned() } else { value.to_string() },
    };
    if equal { Ok(()) } else { Err(refused()) }
}
