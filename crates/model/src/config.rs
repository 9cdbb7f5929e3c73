//! The published `config.json` of a Qwen3 dense model.
//!
//! Keys that change the computation are either read or refused by name; all others are kept and written back.

use crate::Error;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Shape and constants of a decoder, by the published names.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward part.
    pub intermediate_size: usize,
    /// Blocks.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of a head; need not be `hidden_size / num_attention_heads`.
    pub head_dim: usize,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// Base of the rotary angles.
    pub rope_theta: f64,
    /// Positions the model is made for.
    pub max_position_embeddings: usize,
    /// Whether the output projection is the embedding table.
    pub tie_word_embeddings: bool,
    /// First token of a text, if any.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a text; one, several or none.
    pub eos_token_id: Vec<u32>,
    /// Deviation of fresh weights.
    pub initializer_range: f64,
    /// Keys we keep and write back, and do not use.
    pub other: Map<String, Value>,
}

impl ModelConfig {
    /// Reads a `config.json`.
    pub fn from_file(path: &Path) -> Result<ModelConfig, Error> {
        let text = fs_err::read_to_string(path)?;
        parse(&text, &path.display().to_string())
    }

    /// Reads the text of a `config.json`.
    pub fn from_json(text: &str) -> Result<ModelConfig, Error> {
        parse(text, "config")
    }

    /// The text of a `config.json` that `transformers` loads, with the rotary base in the hub's spelling.
    pub fn to_json(&self) -> String {
        let eos = match self.eos_token_id.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            several => json!(several),
        };
        let own = json!({
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": MODEL_TYPE,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "attention_bias": false,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": self.max_position_embeddings,
            "tie_word_embeddings": self.tie_word_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos,
            "initializer_range": self.initializer_range,
        });
        let mut keys = own.as_object().cloned().unwrap_or_default();
        keys.extend(self.other.clone());
        format!("{:#}\n", Value::Object(keys))
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key heads together.
    pub fn kv_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Refuses shapes that no decoder could have.
    pub fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (key, size) in sizes {
            if size == 0 || size > i32::MAX as usize {
                return Err(invalid(key, size, "a positive 32-bit number"));
            }
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            let expected = format!("a divisor of num_attention_heads ({})", self.num_attention_heads);
            return Err(invalid("num_key_value_heads", self.num_key_value_heads, &expected));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(invalid("head_dim", self.head_dim, "an even number"));
        }
        let positive = [("rms_norm_eps", self.rms_norm_eps), ("rope_theta", self.rope_theta)];
        for (key, value) in positive {
            if !(value.is_finite() && value > 0.0) {
                return Err(invalid(key, value, "a positive number"));
            }
        }
        if !(self.initializer_range.is_finite() && self.initializer_range >= 0.0) {
            return Err(invalid("initializer_range", self.initializer_range, "a number of at least 0"));
        }
        Ok(())
    }
}

const MODEL_TYPE: &str = "qwen3";
/// Written by us from the fields, or meaningless beside them.
const REPLACED: [&str; 3] = ["architectures", "rope_scaling", "partial_rotary_factor"];

fn parse(text: &str, origin: &str) -> Result<ModelConfig, Error> {
    let object: Map<String, Value> =
        serde_json::from_str(text).map_err(|source| Error::ConfigSyntax { origin: origin.to_owned(), source })?;
    let mut keys = Keys(object);
    keys.refuse_other_computations()?;
    let rope_theta = keys.rope_theta()?;
    let config = ModelConfig {
        vocab_size: keys.required("vocab_size")?,
        hidden_size: keys.required("hidden_size")?,
        intermediate_size: keys.required("intermediate_size")?,
        num_hidden_layers: keys.required("num_hidden_layers")?,
        num_attention_heads: keys.required("num_attention_heads")?,
        num_key_value_heads: keys.required("num_key_value_heads")?,
        // From here on, the defaults are those of `Qwen3Config`: published files may leave them out.
        head_dim: keys.optional("head_dim")?.unwrap_or(128),
        rms_norm_eps: keys.optional("rms_norm_eps")?.unwrap_or(1e-6),
        rope_theta,
        max_position_embeddings: keys.required("max_position_embeddings")?,
        tie_word_embeddings: keys.optional("tie_word_embeddings")?.unwrap_or(false),
        bos_token_id: keys.optional("bos_token_id")?,
        eos_token_id: keys.token_ids("eos_token_id")?,
        initializer_range: keys.optional("initializer_range")?.unwrap_or(0.02),
        other: keys.rest(),
    };
    config.check()?;
    Ok(config)
}

/// The keys not yet read.
struct Keys(Map<String, Value>);

impl Keys {
    fn required<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, Error> {
        self.optional(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
    }

    /// A key that is absent or null is none.
    fn optional<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, Error> {
        match self.0.shift_remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value.clone()) {
                Ok(read) => Ok(Some(read)),
                Err(_) => Err(invalid(key, value, std::any::type_name::<T>())),
            },
        }
    }

    fn token_ids(&mut self, key: &str) -> Result<Vec<u32>, Error> {
        match self.0.get(key) {
            Some(Value::Array(_)) => Ok(self.optional(key)?.unwrap_or_default()),
            _ => Ok(self.optional::<u32>(key)?.into_iter().collect()),
        }
    }

    /// The base of the rotary angles, in either spelling.
    fn rope_theta(&mut self) -> Result<f64, Error> {
        let parameters: Option<Map<String, Value>> = self.optional("rope_parameters")?;
        let top_level = self.optional("rope_theta")?;
        match (parameters.and_then(|p| p.get("rope_theta").and_then(Value::as_f64)), top_level) {
            (Some(nested), Some(top)) if nested != top => {
                Err(invalid("rope_theta", top, &format!("{nested}, as in `rope_parameters`")))
            }
            (Some(theta), _) | (None, Some(theta)) => Ok(theta),
            (None, None) => Err(Error::MissingKey { key: "rope_theta".to_owned() }),
        }
    }

    /// Names the first key whose value asks for something this decoder does not compute.
    fn refuse_other_computations(&mut self) -> Result<(), Error> {
        let model_type: String = self.required("model_type")?;
        supported("model_type", &json!(model_type), &json!(MODEL_TYPE))?;
        let only = [
            ("hidden_act", json!("silu")),
            ("attention_bias", json!(false)),
            ("mlp_bias", json!(false)),
            ("attention_dropout", json!(0.0)),
            ("partial_rotary_factor", json!(1.0)),
            ("is_encoder_decoder", json!(false)),
        ];
        for (key, value) in only {
            self.only(key, &value)?;
        }
        self.only("quantization_config", &Value::Null)?;
        self.refuse_rope_scaling()?;
        self.refuse_sliding_window()
    }

    /// A key that is absent or null, or has the one value that is implemented.
    fn only(&self, key: &str, value: &Value) -> Result<(), Error> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(()),
            Some(found) => supported(key, found, value),
        }
    }

    fn refuse_rope_scaling(&self) -> Result<(), Error> {
        for key in ["rope_parameters", "rope_scaling"] {
            let Some(Value::Object(parameters)) = self.0.get(key) else {
                self.only(key, &Value::Null)?;
                continue;
            };
            for (name, value) in parameters {
                let default = match name.as_str() {
                    "rope_type" | "type" => json!("default"),
                    "partial_rotary_factor" => json!(1.0),
                    "rope_theta" => continue,
                    _ => Value::Null,
                };
                supported(&format!("{key}.{name}"), value, &default)?;
            }
        }
        Ok(())
    }

    fn refuse_sliding_window(&self) -> Result<(), Error> {
        let layers = self.0.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0);
        let full_layers = self.0.get("max_window_layers").and_then(Value::as_u64).unwrap_or(28);
        let window = self.0.get("sliding_window").is_some_and(|window| !window.is_null());
        if window && full_layers < layers {
            self.only("use_sliding_window", &json!(false))?;
        }
        if let Some(Value::Array(kinds)) = self.0.get("layer_types") {
            for (layer, kind) in kinds.iter().enumerate() {
                supported(&format!("layer_types[{layer}]"), kind, &json!("full_attention"))?;
            }
            if kinds.len() as u64 != layers {
                return Err(invalid("layer_types", kinds.len(), &format!("{layers} entries")));
            }
        }
        Ok(())
    }

    fn rest(mut self) -> Map<String, Value> {
        for key in REPLACED.into_iter().chain(["hidden_act", "attention_bias"]) {
            self.0.shift_remove(key);
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

fn invalid(key: &str, found: impl ToString, expected: &str) -> Error {
    Error::InvalidKey { key: key.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}
