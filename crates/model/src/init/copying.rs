//! A start that can copy: what every small model has to find first is there from the beginning.
//!
//! Attention that repeats earlier text is made of two parts that are useless without each other, which is why training
//! finds it late (Olsson et al., arXiv 2209.11895): heads that bring the tokens before it to each position, and heads
//! that look for the place where the same tokens stood before and copy what followed. Here the first block's heads look
//! one and two tokens back and write a projection of what they see into a part of the stream that embeddings leave
//! free; the second block's heads match that against the current token, or the one before it, and copy the token they
//! find; later heads copy what they see, wherever training lets them look. The rest is random but small. It is an initial
//! value like any other, in the spirit of mimetic initialisation (Trockman and Kolter, arXiv 2305.09828): the published
//! architecture, and training changes all of it.
//!
//! ```text
//! stream    [ content: the token, C | one back, R | two back, R | 1 ]
//! block 0   heads 0, 1: position − 1, − 2;  write P·content to `one back`, `two back`
//! block 1   first half of the heads:  P·content here = `one back` there;  copy content
//!           second half:              `one back` here = `two back` there; copy content
//! block 2…  heads copy content
//! ```

use super::normal;
use crate::design::Mixer;
use crate::{Error, ModelConfig};

/// Pairs of a head, of the fastest turning ones, that tell neighbouring positions apart.
const POSITION_PAIRS: usize = 6;
/// Scale of query and key heads in the first two blocks: attention is sharp from the start.
const SHARPNESS: f32 = 2.0;

/// Where things lie in the stream of a model that starts with copying heads.
pub(super) struct Copying {
    hidden: usize,
    head_dim: usize,
    heads: usize,
    /// Query heads that share a key head.
    group: usize,
    /// Width of the content.
    content: usize,
    /// Width of a projection of it.
    rank: usize,
    deviation: f32,
    rope_theta: f64,
    /// `[rank, content]`.
    projection: Vec<f32>,
}

impl Copying {
    /// Refuses shapes without room for it.
    pub(super) fn new(config: &ModelConfig, seed: u64) -> Result<Self, Error> {
        let wrong = |found: String, expected: &str| Err(crate::config::invalid("start", found, expected));
        let design = &config.design;
        if design.layers.iter().any(|layer| layer.mixer != Mixer::Attention) || !design.has_head_norms {
            return wrong("copying".into(), "`random`: copying is for blocks of attention with normed heads (Qwen3)");
        }
        let (hidden, head_dim, heads) = (config.hidden_size, config.head_dim, config.num_key_value_heads);
        if heads < 2 || config.num_hidden_layers < 2 || head_dim / 2 < POSITION_PAIRS {
            let found = format!("copying with {heads} key heads of {head_dim} in {} blocks", config.num_hidden_layers);
            return wrong(found, "2 key heads of 12 in 2 blocks, or more");
        }
        let content = heads / 2 * head_dim;
        let rank = hidden.saturating_sub(content + 1) / 2;
        if rank < 8 {
            let found = format!("copying with hidden_size {hidden} for {heads} key heads of {head_dim}");
            return wrong(found, &format!("hidden_size {} or more, or fewer key heads", content + 17));
        }
        let rank = rank.min(head_dim / 2);
        let deviation = 1.0 / (content as f64).sqrt();
        Ok(Self {
            hidden,
            head_dim,
            heads,
            group: config.num_attention_heads / heads,
            content,
            rank,
            deviation: config.initializer_range as f32,
            rope_theta: config.rope_theta,
            // A stream of its own: parameters count from 1.
            projection: normal(rank * content, deviation, seed, 0),
        })
    }

    /// Changes the random values of a parameter, `[outputs, inputs]`.
    pub(super) fn adjust(&self, path: &str, values: &mut [f32]) {
        let Some(rest) = path.strip_prefix("model.layers.") else {
            if path == "model.embed_tokens.weight" {
                self.embeddings(values);
            }
            return;
        };
        let Some((layer, part)) = rest.split_once('.') else { return };
        let layer: usize = layer.parse().unwrap_or(usize::MAX);
        match part {
            "mlp.down_proj.weight" => scale(values, 0.05),
            "self_attn.q_norm.weight" | "self_attn.k_norm.weight" if layer < 2 => values.fill(SHARPNESS),
            "self_attn.q_proj.weight" => self.queries(layer, values),
            "self_attn.k_proj.weight" => self.keys(layer, values),
            "self_attn.v_proj.weight" => self.values(layer, values),
            "self_attn.o_proj.weight" => self.outputs(layer, values),
            _ => {}
        }
    }

    fn one_back(&self, r: usize) -> usize {
        self.content + r
    }

    fn two_back(&self, r: usize) -> usize {
        self.content + self.rank + r
    }

    fn embeddings(&self, values: &mut [f32]) {
        for row in values.chunks_exact_mut(self.hidden) {
            row[self.content..].fill(0.0);
            row[self.hidden - 1] = 2.0 * self.deviation;
        }
    }

    /// Dimension of a head for entry `r` of a projection: the slowest pairs, which distance does not turn.
    fn slow(&self, r: usize) -> usize {
        let half = self.head_dim / 2;
        let pairs = self.rank.div_ceil(2);
        half - pairs + r % pairs + if r >= pairs { half } else { 0 }
    }

    /// A head whose value depends on the position alone, turned by `back` positions.
    fn position_head(&self, head: &mut [f32], back: f64) {
        scale(head, 0.05);
        let half = self.head_dim / 2;
        for pair in 0..POSITION_PAIRS {
            let frequency = self.rope_theta.powf(-(pair as f64) / half as f64);
            head[pair * self.hidden + self.hidden - 1] = (back * frequency).cos() as f32;
            head[(half + pair) * self.hidden + self.hidden - 1] = -(back * frequency).sin() as f32;
        }
    }

    /// The query head that uses a key head, `[head_dim, hidden]`.
    fn query_head<'a>(&self, head: usize, values: &'a mut [f32]) -> &'a mut [f32] {
        let size = self.head_dim * self.hidden;
        &mut values[head * self.group * size..][..size]
    }

    fn key_head<'a>(&self, head: usize, values: &'a mut [f32]) -> &'a mut [f32] {
        let size = self.head_dim * self.hidden;
        &mut values[head * size..][..size]
    }

    fn queries(&self, layer: usize, values: &mut [f32]) {
        match layer {
            0 => (0..2).for_each(|head| self.position_head(self.query_head(head, values), (head + 1) as f64)),
            1 => {
                for head in 0..self.heads / 2 * 2 {
                    let query = self.query_head(head, values);
                    query.fill(0.0);
                    for r in 0..self.rank {
                        let row = &mut query[self.slow(r) * self.hidden..][..self.hidden];
                        match head < self.heads / 2 {
                            true => row[..self.content]
                                .copy_from_slice(&self.projection[r * self.content..][..self.content]),
                            false => row[self.one_back(r)] = 1.0,
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn keys(&self, layer: usize, values: &mut [f32]) {
        match layer {
            0 => (0..2).for_each(|head| self.position_head(self.key_head(head, values), 0.0)),
            1 => {
                for head in 0..self.heads / 2 * 2 {
                    let key = self.key_head(head, values);
                    key.fill(0.0);
                    for r in 0..self.rank {
                        let from = if head < self.heads / 2 { self.one_back(r) } else { self.two_back(r) };
                        key[self.slow(r) * self.hidden + from] = 1.0;
                    }
                }
            }
            _ => {}
        }
    }

    /// First content dimension that a head copies.
    fn copied(&self, head: usize) -> usize {
        head % (self.heads / 2) * self.head_dim
    }

    fn values(&self, layer: usize, values: &mut [f32]) {
        let heads = if layer == 0 { 2 } else { self.heads / 2 * 2 };
        for head in 0..heads {
            let from = self.copied(head);
            let value = self.key_head(head, values);
            if layer < 2 {
                value.fill(0.0);
            }
            match layer {
                0 => {
                    for r in 0..self.rank {
                        value[r * self.hidden..][..self.content]
                            .copy_from_slice(&self.projection[r * self.content..][..self.content]);
                    }
                }
                _ => (0..self.head_dim).for_each(|r| value[r * self.hidden + from + r] += 0.3),
            }
        }
    }

    /// `[hidden, query heads · head_dim]`.
    fn outputs(&self, layer: usize, values: &mut [f32]) {
        scale(values, 0.1);
        let width = values.len() / self.hidden;
        let heads = if layer == 0 { 2 } else { self.heads / 2 * 2 };
        for head in 0..heads {
            let column = head * self.group * self.head_dim;
            if layer < 2 {
                values.chunks_exact_mut(width).for_each(|row| row[column..column + self.head_dim].fill(0.0));
            }
            let (count, factor) = match layer {
                0 => (self.rank, 1.5),
                1 => (self.head_dim, 5.0),
                _ => (self.head_dim, 2.0),
            };
            for r in 0..count {
                let to = match (layer, head) {
                    (0, 0) => self.one_back(r),
                    (0, _) => self.two_back(r),
                    _ => self.copied(head) + r,
                };
                values[to * width + column + r] += factor * self.deviation;
            }
        }
    }
}

fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}
