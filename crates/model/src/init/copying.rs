//! A start that can copy: what every small model has to find first is there from the beginning.
//!
//! Attention that repeats earlier text is made of two parts that are useless without each other, which is why training
//! finds it late (Olsson et al., arXiv 2209.11895): heads that bring the tokens before it to each position, and heads
//! that look for the place where the same tokens stood before and copy what followed. Here the first block's heads look
//! one to four tokens back and write a projection of what they see into a part of the stream that embeddings leave
//! free; the second block's heads match that against the current token and those before it, all at once, and copy the
//! token they find; later heads copy what they see, wherever training lets them look. The rest is random but small. One
//! token would not do: in text whose words are pieces of their own, every other token is a space, a quote or a line break.
//! It is an initial value like any other, in the spirit of mimetic initialisation (Trockman and Kolter, arXiv 2305.09828):
//! the published architecture, and training changes all of it; a lower rate for the attention of these two blocks keeps it
//! alive (`docs/log.md`).
//!
//! ```text
//! stream    [ content: the token, C | 1 back, R | 2 back, R | 3 back, R | 4 back, R | 1 ]
//! block 0   heads 0…3: position − 1 … − 4;  write P·content to `1 back` … `4 back`
//! block 1   first half of the heads:  P·content, `1 back`, `2 back`, `3 back` here = `1 back` … `4 back` there
//!           second half:              `1 back`, `2 back`, `3 back` here = `2 back`, `3 back`, `4 back` there
//!           both copy content: the second also where the token before differs, such as another separator
//! block 2…  heads copy content
//! ```

use super::normal;
use crate::design::Mixer;
use crate::{Error, ModelConfig};

/// Pairs of a head, of the fastest turning ones, that tell neighbouring positions apart.
const POSITION_PAIRS: usize = 6;
/// Tokens that are looked back, as far as there are heads.
const MOST_BACK: usize = 4;
/// Numbers that hold a token that is looked back at, at least.
const LEAST_RANK: usize = 4;
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
    /// Tokens that are looked back.
    back: usize,
    /// Width of a projection of it.
    rank: usize,
    /// How many numbers of a projection are matched.
    matched: usize,
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
        let back = heads.min(MOST_BACK);
        let rank = (hidden.saturating_sub(content + 1) / back).min(head_dim);
        if rank < LEAST_RANK {
            let found = format!("copying with hidden_size {hidden} for {heads} key heads of {head_dim}");
            let needed = content + 1 + LEAST_RANK * back;
            return wrong(found, &format!("hidden_size {needed} or more, or fewer key heads"));
        }
        // Three quarters of a head's pairs turn slowly enough to be compared over a few hundred tokens.
        let matched = rank.min(head_dim * 3 / 4 / back);
        let deviation = 1.0 / (content as f64).sqrt();
        Ok(Self {
            hidden,
            head_dim,
            heads,
            group: config.num_attention_heads / heads,
            content,
            back,
            rank,
            matched,
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

    /// Where the stream holds entry `r` of the token `back` positions before.
    fn slot(&self, back: usize, r: usize) -> usize {
        self.content + (back - 1) * self.rank + r
    }

    fn embeddings(&self, values: &mut [f32]) {
        for row in values.chunks_exact_mut(self.hidden) {
            row[self.content..].fill(0.0);
            row[self.hidden - 1] = 2.0 * self.deviation;
        }
    }

    /// Dimension of a head for entry `at` of `count`: the slowest pairs, which distance does not turn.
    fn slow(&self, at: usize, count: usize) -> usize {
        let half = self.head_dim / 2;
        let pairs = count.div_ceil(2);
        half - pairs + at % pairs + if at >= pairs { half } else { 0 }
    }

    /// How far back a head of the second block compares, here; there it is one further. The current token is 0 back.
    fn compared(&self, head: usize) -> std::ops::Range<usize> {
        let first = if head < self.heads / 2 { 0 } else { 1 };
        first..self.back
    }

    /// Fills a head of the second block; `shift` is 0 for its query and 1 for its key.
    fn matching_head(&self, head: usize, shift: usize, rows: &mut [f32]) {
        rows.fill(0.0);
        let compared = self.compared(head);
        let count = compared.len() * self.matched;
        for (number, back) in compared.enumerate() {
            for r in 0..self.matched {
                let row = &mut rows[self.slow(number * self.matched + r, count) * self.hidden..][..self.hidden];
                match back + shift {
                    0 => row[..self.content].copy_from_slice(&self.projection[r * self.content..][..self.content]),
                    back => row[self.slot(back, r)] = 1.0,
                }
            }
        }
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
            0 => (0..self.back).for_each(|head| self.position_head(self.query_head(head, values), (head + 1) as f64)),
            1 => (0..self.heads / 2 * 2).for_each(|head| self.matching_head(head, 0, self.query_head(head, values))),
            _ => {}
        }
    }

    fn keys(&self, layer: usize, values: &mut [f32]) {
        match layer {
            0 => (0..self.back).for_each(|head| self.position_head(self.key_head(head, values), 0.0)),
            1 => (0..self.heads / 2 * 2).for_each(|head| self.matching_head(head, 1, self.key_head(head, values))),
            _ => {}
        }
    }

    /// First content dimension that a head copies.
    fn copied(&self, head: usize) -> usize {
        head % (self.heads / 2) * self.head_dim
    }

    fn values(&self, layer: usize, values: &mut [f32]) {
        let heads = if layer == 0 { self.back } else { self.heads / 2 * 2 };
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
        let heads = if layer == 0 { self.back } else { self.heads / 2 * 2 };
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
                let to = if layer == 0 { self.slot(head + 1, r) } else { self.copied(head) + r };
                values[to * width + column + r] += factor * self.deviation;
            }
        }
    }
}

fn scale(values: &mut [f32], factor: f32) {
    values.iter_mut().for_each(|value| *value *= factor);
}
