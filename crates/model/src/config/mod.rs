//! The published `config.json` of a decoder.
//!
//! Keys that change the computation are either read or refused by name; all others are kept and written back. What a
//! family fixes beside the sizes is its [`Design`]; the families stand in `families/`.

mod keys;
mod rope;

pub(crate) use keys::Keys;
pub use rope::RopeScaling;

use crate::families::{self, Family};
use crate::parts::{Norm, Source};
use crate::{Design, Error};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Shape and constants of a decoder, by the published names.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The family, as the file names it.
    pub model_type: String,
    /// What the family computes.
    pub design: Design,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside a dense feed-forward part; 0 in a family that has none.
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
    /// Share of a head that turns.
    pub partial_rotary_factor: f64,
    /// How the rotary frequencies are stretched.
    pub rope_scaling: RopeScaling,
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
    /// Keys we keep and write back, those that the design was read from among them.
    pub other: Map<String, Value>,
    /// Keys around `text_config` where the text model is part of a larger one; they are kept and written back.
    pub outer: Option<Map<String, Value>>,
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

    /// The text of a `config.json` that `transformers` loads.
    pub fn to_json(&self) -> String {
        let mut keys = Map::new();
        let family = families::find(&self.model_type);
        if let (None, Some(family)) = (&self.outer, family) {
            keys.insert("architectures".to_owned(), json!([family.architecture]));
        }
        keys.insert("model_type".to_owned(), json!(self.model_type));
        let own = json!({
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.rms_norm_eps,
            "max_position_embeddings": self.max_position_embeddings,
            "tie_word_embeddings": self.tie_word_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": match self.eos_token_id.as_slice() {
                [] => Value::Null,
                [one] => json!(one),
                several => json!(several),
            },
            "initializer_range": self.initializer_range,
        });
        keys.extend(own.as_object().cloned().unwrap_or_default());
        if self.intermediate_size > 0 {
            keys.insert("intermediate_size".to_owned(), json!(self.intermediate_size));
        }
        let mut other = self.other.clone();
        self.write_rotary(family, &mut other);
        keys.extend(other);
        let keys = match &self.outer {
            None => keys,
            Some(outer) => {
                let mut outer = outer.clone();
                outer.insert("tie_word_embeddings".to_owned(), json!(self.tie_word_embeddings));
                outer.insert("text_config".to_owned(), Value::Object(keys));
                outer
            }
        };
        format!("{:#}\n", Value::Object(keys))
    }

    /// The rotary constants in the family's published spelling.
    fn write_rotary(&self, family: Option<&Family>, keys: &mut Map<String, Value>) {
        let nested = keys.shift_remove("rope_parameters");
        if family.is_none_or(|family| family.has_nested_rope) {
            let mut nested = nested.and_then(|nested| nested.as_object().cloned()).unwrap_or_default();
            nested.insert("rope_type".to_owned(), json!("default"));
            nested.extend(self.rope_scaling.to_keys().unwrap_or_default());
            nested.insert("rope_theta".to_owned(), json!(self.rope_theta));
            nested.insert("partial_rotary_factor".to_owned(), json!(self.partial_rotary_factor));
            keys.insert("rope_parameters".to_owned(), Value::Object(nested));
            return;
        }
        keys.insert("rope_theta".to_owned(), json!(self.rope_theta));
        if let Some(scaling) = self.rope_scaling.to_keys() {
            keys.insert("rope_scaling".to_owned(), Value::Object(scaling));
        }
        if self.partial_rotary_factor != 1.0 {
            keys.insert("partial_rotary_factor".to_owned(), json!(self.partial_rotary_factor));
        }
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Width of all key heads together.
    pub fn kv_width(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// How many dimensions of a head turn with the position.
    pub fn rotary_dim(&self) -> usize {
        (self.head_dim as f64 * self.partial_rotary_factor) as usize
    }

    /// Whether the family publishes a layer's experts in two tensors for all.
    pub(crate) fn has_fused_experts(&self) -> bool {
        families::find(&self.model_type).is_some_and(|family| family.has_fused_experts)
    }

    /// A norm of this model's kind.
    pub(crate) fn norm<E>(&self, source: &mut Source<'_, E>, path: &str, width: usize) -> Result<Norm, E> {
        Norm::new(source, path, width, self.rms_norm_eps, self.design.has_zero_centred_norms)
    }

    /// Refuses shapes that no decoder could have.
    pub fn check(&self) -> Result<(), Error> {
        let mut sizes = vec![
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if self.design.has_dense_layer() {
            sizes.push(("intermediate_size", self.intermediate_size));
        }
        sizes.extend(self.design.sizes());
        for (key, size) in sizes {
            if size == 0 || size > i32::MAX as usize {
                return Err(invalid(key, size, "a positive 32-bit number"));
            }
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            let expected = format!("a divisor of num_attention_heads ({})", self.num_attention_heads);
            return Err(invalid("num_key_value_heads", self.num_key_value_heads, &expected));
        }
        let turning = self.rotary_dim();
        if turning == 0 || turning > self.head_dim || !turning.is_multiple_of(2) {
            let found = format!("{} with partial_rotary_factor {}", self.head_dim, self.partial_rotary_factor);
            return Err(invalid("head_dim", found, "an even number of dimensions that turn, at least 2"));
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
        self.design.check()
    }
}

/// More than any decoder has; a wrong number must not become so many parts.
const MOST_LAYERS: usize = 1 << 16;

fn parse(text: &str, origin: &str) -> Result<ModelConfig, Error> {
    let object: Map<String, Value> =
        serde_json::from_str(text).map_err(|source| Error::ConfigSyntax { origin: origin.to_owned(), source })?;
    let (mut keys, outer) = Keys::of_the_text_model(object)?;
    let model_type: String = keys.required("model_type")?;
    let family = families::find(&model_type).ok_or_else(|| Error::Unsupported {
        key: "model_type".to_owned(),
        found: format!("\"{model_type}\""),
        supported: families::names(),
    })?;
    keys.refuse_other_computations(family)?;
    let (rope_theta, partial_rotary_factor) = keys.rotary(family)?;
    let rope_scaling = keys.rope_scaling(family)?;
    let num_hidden_layers = keys.required("num_hidden_layers")?;
    if num_hidden_layers > MOST_LAYERS {
        return Err(invalid("num_hidden_layers", num_hidden_layers, &format!("at most {MOST_LAYERS}")));
    }
    let design = (family.design)(&keys, num_hidden_layers)?;
    let (hidden_size, num_attention_heads): (usize, usize) =
        (keys.required("hidden_size")?, keys.required("num_attention_heads")?);
    let head_dim = family.default_head_dim.unwrap_or(hidden_size / num_attention_heads.max(1));
    let config = ModelConfig {
        model_type,
        vocab_size: keys.required("vocab_size")?,
        hidden_size,
        intermediate_size: match design.has_dense_layer() {
            true => keys.required("intermediate_size")?,
            false => keys.optional("intermediate_size")?.unwrap_or(0),
        },
        design,
        num_hidden_layers,
        num_attention_heads,
        // From here on, the defaults are those of the published configuration classes: files may leave them out.
        num_key_value_heads: keys.optional("num_key_value_heads")?.unwrap_or(num_attention_heads),
        head_dim: keys.optional("head_dim")?.unwrap_or(head_dim),
        rms_norm_eps: keys.optional("rms_norm_eps")?.unwrap_or(1e-6),
        rope_theta,
        partial_rotary_factor,
        rope_scaling,
        max_position_embeddings: keys.required("max_position_embeddings")?,
        tie_word_embeddings: keys.tie_word_embeddings(&outer)?,
        bos_token_id: keys.optional("bos_token_id")?,
        eos_token_id: keys.token_ids("eos_token_id")?,
        initializer_range: keys.optional("initializer_range")?.unwrap_or(0.02),
        other: keys.rest(family),
        outer,
    };
    config.check()?;
    Ok(config)
}

/// A key whose value no decoder could use.
pub(crate) fn invalid(key: &str, found: impl ToString, expected: &str) -> Error {
    Error::InvalidKey { key: key.to_owned(), found: found.to_string(), expected: expected.to_owned() }
}
