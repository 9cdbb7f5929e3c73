//! Reading the keys of a configuration: each is taken, looked at, or refused by its name.

use super::{RopeScaling, invalid};
use crate::Error;
use crate::families::Family;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Written by us from the fields, or meaningless beside them.
const REPLACED: [&str; 5] = ["architectures", "rope_parameters", "rope_scaling", "partial_rotary_factor", "hidden_act"];

/// Where rotary constants may stand together, in the spelling of today and in that of before.
const ROTARY: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// What the reference takes where a config says nothing of it: the layers before the first that has a window.
const LAYERS_BEFORE_WINDOWS: usize = 28;

/// Rotary constants of images, beside those of texts.
const AXES: [&str; 2] = ["mrope_section", "mrope_interleaved"];

/// The keys not yet taken.
pub(crate) struct Keys(Map<String, Value>);

impl Keys {
    /// The keys of any object.
    pub(crate) fn of(object: Map<String, Value>) -> Keys {
        Keys(object)
    }

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

    /// A number that stands in `rope_parameters`, in `rope_scaling` or at the top; the same wherever it stands.
    fn rotary_number(&mut self, key: &str) -> Result<Option<f64>, Error> {
        let at_top = self.0.shift_remove(key);
        let nested =
            ROTARY.map(|place| (format!("{place}.{key}"), self.0.get(place).and_then(|nested| nested.get(key))));
        let mut known: Option<(String, f64)> = None;
        for (place, value) in nested.into_iter().chain([(key.to_owned(), at_top.as_ref())]) {
            let Some(value) = value.filter(|value| !value.is_null()) else { continue };
            let number = value.as_f64().ok_or_else(|| invalid(&place, value, "a number"))?;
            match known {
                Some((other, before)) if before != number => {
                    return Err(invalid(&place, value, &format!("{before}, as `{other}`")));
                }
                _ => known = Some((place, number)),
            }
        }
        Ok(known.map(|(_, number)| number))
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
        let mut known = None;
        for key in ROTARY {
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
            if known.is_some_and(|known| found.is_some_and(|found| found != known)) {
                return Err(invalid(key, Value::Object(parameters.clone()), "the same as in `rope_parameters`"));
            }
            known = known.or(found);
        }
        Ok(known.unwrap_or_default())
    }

    /// Refuses attention over a window of late tokens. Keys that are absent have the values of the reference's classes,
    /// where a window of null is none.
    fn refuse_sliding_window(&self, family: &Family) -> Result<(), Error> {
        let layers: usize = self.look_required("num_hidden_layers")?;
        let is_windowed = self.look("use_sliding_window")?.unwrap_or(false);
        let _: Option<u64> = self.look("sliding_window")?;
        let has_window = self.0.get("sliding_window").is_none_or(|window| !window.is_null());
        let before_windows: usize = self.look("max_window_layers")?.unwrap_or(LAYERS_BEFORE_WINDOWS);
        if is_windowed && has_window && (family.windows_every_layer || before_windows < layers) {
            self.only("use_sliding_window", &json!(false))?;
        }
        let kinds = match self.0.get("layer_types") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Array(kinds)) => kinds,
            Some(found) => return Err(invalid("layer_types", found, "a list")),
        };
        for (layer, kind) in kinds.iter().enumerate() {
            if !(family.is_hybrid && kind == "linear_attention") {
                supported(&format!("layer_types[{layer}]"), kind, &json!("full_attention"))?;
            }
        }
        match kinds.len() == layers {
            true => Ok(()),
            false => Err(invalid("layer_types", kinds.len(), &format!("{layers} entries"))),
        }
    }

    /// What is kept and written back.
    pub(super) fn rest(mut self, family: &Family) -> Map<String, Value> {
        let mut axes = Map::new();
        for (key, value) in ROTARY.iter().filter_map(|place| self.0.get(*place)?.as_object()).flatten() {
            if family.has_axes && AXES.contains(&key.as_str()) {
                axes.insert(key.clone(), value.clone());
            }
        }
        for key in REPLACED {
            self.0.shift_remove(key);
        }
        if !axes.is_empty() {
            self.0.insert("rope_parameters".to_owned(), Value::Object(axes));
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
