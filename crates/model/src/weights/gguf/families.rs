//! What GGUF calls the parts of a decoder, and how it differs from published checkpoints.

use super::Gguf;
use crate::{Error, ModelConfig};
use serde_json::{Value, json};

/// An architecture that is read.
pub(super) struct Family {
    /// `general.architecture`, and the published `model_type`.
    name: &'static str,
    /// Whether rows of queries and keys lie in rotary pairs, not in halves.
    is_interleaved: bool,
}

const FAMILIES: [Family; 3] = [
    Family { name: "llama", is_interleaved: true },
    Family { name: "qwen2", is_interleaved: false },
    Family { name: "qwen3", is_interleaved: false },
];

/// The published and the GGUF name of what stands in every block.
const PARTS: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Keys below the architecture's name that change the computation in a way that is not read.
const REFUSED: [&str; 7] = [
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "expert_count",
    "attention.sliding_window",
    "attention.clamp_kqv",
    "attention.causal",
];

pub(super) fn family_of(gguf: &Gguf) -> Result<&'static Family, Error> {
    let found = gguf.text("general.architecture").unwrap_or_default();
    let unknown = || {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let reason = format!("`general.architecture` is `{found}`, expected one of {}", names.join(", "));
        Error::Gguf { path: gguf.path().to_owned(), reason }
    };
    FAMILIES.iter().find(|family| family.name == found).ok_or_else(unknown)
}

/// The GGUF name of a parameter; that of a parameter which no GGUF has is not in the file either.
pub(super) fn gguf_name(parameter: &str) -> String {
    match parameter {
        "model.embed_tokens.weight" => return "token_embd.weight".to_owned(),
        "model.norm.weight" => return "output_norm.weight".to_owned(),
        "lm_head.weight" => return "output.weight".to_owned(),
        _ => {}
    }
    let in_block = parameter.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
    let Some((layer, rest)) = in_block else { return parameter.to_owned() };
    let (part, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let known = PARTS.iter().find(|(published, _)| *published == part);
    format!("blk.{layer}.{}.{kind}", known.map_or(part, |(_, name)| name))
}

/// Puts rows in rotary pairs (0, 1, 2, 3, .. of a head are 0, half, 1, half + 1, ..) back into halves.
pub(super) fn into_halves(values: &[f32], heads: usize, width: usize) -> Vec<f32> {
    let rows = values.len() / width / heads;
    let mut turned = Vec::with_capacity(values.len());
    for head in values.chunks_exact(rows * width) {
        for side in 0..2 {
            for pair in 0..rows / 2 {
                turned.extend_from_slice(&head[(2 * pair + side) * width..][..width]);
            }
        }
    }
    turned
}

impl Family {
    /// How many heads' rows a parameter has in rotary pairs.
    pub(super) fn interleaved_heads(&self, parameter: &str, config: &ModelConfig) -> Option<usize> {
        let is_of = |part: &str| self.is_interleaved && parameter.contains(part);
        if is_of(".self_attn.q_proj.") {
            Some(config.num_attention_heads)
        } else if is_of(".self_attn.k_proj.") {
            Some(config.num_key_value_heads)
        } else {
            None
        }
    }

    /// The `config.json` of a published checkpoint with this metadata.
    pub(super) fn config(&self, gguf: &Gguf) -> Result<Value, Error> {
        let keys = Keys { gguf, prefix: self.name };
        keys.refuse_other_computations()?;
        let embedding = gguf.shape("token_embd.weight").and_then(|shape| shape.first());
        let vocab_size = embedding.ok_or_else(|| keys.wrong("tensor `token_embd.weight` is missing"))?;
        let (hidden_size, heads) = (keys.size("embedding_length")?, keys.size("attention.head_count")?);
        let head_dim = keys.gguf.integer(&keys.name("attention.key_length"));
        let head_dim = head_dim.unwrap_or(hidden_size / heads.max(1));
        if let Some(turned) = gguf.integer(&keys.name("rope.dimension_count")).filter(|turned| *turned != head_dim) {
            return Err(keys.wrong(&format!("`rope.dimension_count` is {turned}, expected a head's {head_dim}")));
        }
        let mut config = json!({
            "model_type": self.name,
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "intermediate_size": keys.size("feed_forward_length")?,
            "num_hidden_layers": keys.size("block_count")?,
            "num_attention_heads": heads,
            "num_key_value_heads": gguf.integer(&keys.name("attention.head_count_kv")).unwrap_or(heads),
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": keys.size("context_length")?,
            "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon")?,
            "rope_theta": gguf.number(&keys.name("rope.freq_base")).unwrap_or(10_000.0),
            "tie_word_embeddings": gguf.shape("output.weight").is_none(),
        });
        let ids = [("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")];
        for (key, name) in ids {
            if let Some(id) = gguf.integer(&format!("tokenizer.ggml.{name}_token_id")) {
                config[key] = json!(id);
            }
        }
        Ok(config)
    }
}

/// The metadata below the architecture's name.
struct Keys<'a> {
    gguf: &'a Gguf,
    prefix: &'static str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn wrong(&self, reason: &str) -> Error {
        Error::Gguf { path: self.gguf.path().to_owned(), reason: reason.to_owned() }
    }

    fn size(&self, key: &str) -> Result<usize, Error> {
        let missing = || self.wrong(&format!("key `{}` is missing or no size", self.name(key)));
        self.gguf.integer(&self.name(key)).ok_or_else(missing)
    }

    fn number(&self, key: &str) -> Result<f64, Error> {
        let missing = || self.wrong(&format!("key `{}` is missing or no number", self.name(key)));
        self.gguf.number(&self.name(key)).ok_or_else(missing)
    }

    fn refuse_other_computations(&self) -> Result<(), Error> {
        for key in REFUSED.map(|key| self.name(key)) {
            match self.gguf.value(&key) {
                None => {}
                Some(super::GgufValue::Text(kind)) if kind == "none" => {}
                Some(super::GgufValue::Integer(0)) => {}
                Some(found) => {
                    return Err(self.wrong(&format!("key `{key}` is {found:?}: that computation is not implemented")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_pairs_go_back_into_halves_head_by_head() {
        let rows: Vec<f32> = (0..12).flat_map(|row| [row as f32, row as f32 + 0.5]).collect();
        let turned = into_halves(&rows, 3, 2);
        let order: Vec<f32> = turned.iter().copied().step_by(2).collect();
        assert_eq!(order, [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0, 8.0, 10.0, 9.0, 11.0]);
        assert!(turned.chunks(2).all(|row| row[1] == row[0] + 0.5), "rows stay whole");
    }

    #[test]
    fn every_part_has_its_name() {
        assert_eq!(gguf_name("model.layers.7.self_attn.q_proj.bias"), "blk.7.attn_q.bias");
        assert_eq!(gguf_name("model.layers.12.mlp.down_proj.weight"), "blk.12.ffn_down.weight");
        assert_eq!(gguf_name("lm_head.weight"), "output.weight");
    }
}
