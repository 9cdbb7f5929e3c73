//! Rows of completions: the prompt once, and every completion of it as a branch.
//!
//! ```text
//! tokens     p p p | P a a a | P b b        P is the prompt's last token: each completion's first is predicted from it
//! segments   0 0 0 | 1 1 1 1 | 2 2 2
//! continues     -1 |       0 |     0
//! positions  0 1 2 | 3 4 5 6 | 3 4 5
//! weights    0 0 0 | 0 1 1 1 | 0 1 1
//! ```
//!
//! A branch sees what a row of its own would show it, at the same positions: losses and gradients are those of
//! separate rows, and the prompt is computed once.

use worldloom_schema::Row;

use super::config::RlConfig;
use super::rollout::Sample;
use crate::batch::{Batch, batches, micro_batches};

/// Samples in micro-batches. Every token of a completion weighs 1.
pub(super) struct SampleRows {
    pub(super) batches: Vec<Batch>,
    /// Of each micro-batch, row by row: number in the list that was given and tokens of the completions in it.
    inside: Vec<Vec<Vec<(usize, usize)>>>,
}

impl SampleRows {
    /// Samples of one prompt that follow each other share a row if the config says so. Completions without a token are left
    /// out.
    pub(super) fn new(samples: &[&Sample], config: &RlConfig) -> Self {
        let (mut rows, mut completions): (Vec<Row>, Vec<Vec<(usize, usize)>>) = (Vec::new(), Vec::new());
        let mut last_prompt = None;
        for (number, sample) in samples.iter().enumerate() {
            let num_tokens = sample.completion.tokens.len();
            if num_tokens == 0 {
                continue;
            }
            if !(config.share_prompts && last_prompt == Some(sample.prompt)) {
                rows.push(trunk(sample));
                completions.push(Vec::new());
                last_prompt = Some(sample.prompt);
            }
            if let (Some(row), Some(completions)) = (rows.last_mut(), completions.last_mut()) {
                push_branch(row, sample);
                completions.push((number, num_tokens));
            }
        }
        let numbers = micro_batches(&rows, config.rows_per_micro_batch);
        let of_batch = |rows: &Vec<usize>| rows.iter().map(|&row| completions[row].clone()).collect();
        Self { batches: batches(&rows, &numbers, 1.0), inside: numbers.iter().map(of_batch).collect() }
    }

    /// The log-probs of micro-batch `number`, given row by row, as those of each completion with its sample's number.
    pub(super) fn split(&self, number: usize, log_probs: Vec<Vec<f32>>) -> Vec<Vec<(usize, Vec<f64>)>> {
        let of_row = |(completions, log_probs): (&Vec<(usize, usize)>, Vec<f32>)| {
            let mut values = log_probs.into_iter().map(f64::from);
            let of = |&(sample, num_tokens): &(usize, usize)| (sample, values.by_ref().take(num_tokens).collect());
            completions.iter().map(of).collect()
        };
        self.inside[number].iter().zip(log_probs).map(of_row).collect()
    }
}

/// The prompt without its last token.
fn trunk(sample: &Sample) -> Row {
    let length = sample.prompt_length() - 1;
    Row {
        tokens: sample.tokens[..length].into(),
        weights: vec![0.0; length],
        positions: (0..length as u32).collect(),
        segments: vec![0; length],
        continues: if length > 0 { vec![-1] } else { Vec::new() },
        sources: if length > 0 { vec![String::new()] } else { Vec::new() },
    }
}

fn push_branch(row: &mut Row, sample: &Sample) {
    let start = sample.prompt_length() - 1;
    let tokens = &sample.tokens[start..];
    let segment = row.continues.len() as u32;
    row.tokens.extend_from_slice(tokens);
    row.weights.push(0.0);
    row.weights.extend(std::iter::repeat_n(1.0, tokens.len() - 1));
    row.positions.extend(start as u32..(start + tokens.len()) as u32);
    row.segments.extend(std::iter::repeat_n(segment, tokens.len()));
    // A prompt of one token has no trunk: every completion is a document.
    row.continues.push(if start > 0 { 0 } else { -1 });
    row.sources.push(String::new());
}
