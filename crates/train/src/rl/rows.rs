//! Rows of completions: the prompt once, and every completion of it as a branch.
//!
//! ```text
//! tokens     p p p | P a a a | P b b        P is the prompt's last token: each completion's first is predicted from it
//! segments   0 0 0 | 1 1 1 1 | 2 2 2
//! continues     -1 |       0 |     0
//! positions  0 1 2 | 3 4 5 6 | 3 4 5
//! weights    0 0 0 | 0 w w w | 0 w w
//! ```
//!
//! A branch sees what a row of its own would show it, at the same positions: losses and gradients are those of
//! separate rows, and the prompt is computed once.

use worldloom_schema::Row;

use super::rollout::Sample;

/// Rows, and the samples inside each in the order of their branches.
pub(super) struct SampleRows {
    pub(super) rows: Vec<Row>,
    /// Numbers in the list that was given.
    pub(super) samples: Vec<Vec<usize>>,
}

impl SampleRows {
    /// Rows of samples with a weight for each completion token; samples of one prompt that follow each other share a
    /// row if `share` says so. `weights` has one list per sample; samples with an empty list are left out.
    pub(super) fn new(samples: &[&Sample], weights: &[Vec<f32>], share: bool) -> Self {
        let mut result = Self { rows: Vec::new(), samples: Vec::new() };
        let mut last_prompt = None;
        for (number, (sample, weights)) in samples.iter().zip(weights).enumerate() {
            if weights.is_empty() {
                continue;
            }
            if !(share && last_prompt == Some(sample.prompt)) {
                result.rows.push(trunk(sample));
                result.samples.push(Vec::new());
                last_prompt = Some(sample.prompt);
            }
            if let (Some(row), Some(numbers)) = (result.rows.last_mut(), result.samples.last_mut()) {
                push_branch(row, sample, weights);
                numbers.push(number);
            }
        }
        result
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

fn push_branch(row: &mut Row, sample: &Sample, weights: &[f32]) {
    let start = sample.prompt_length() - 1;
    let tokens = &sample.tokens[start..];
    let segment = row.continues.len() as u32;
    row.tokens.extend_from_slice(tokens);
    row.weights.push(0.0);
    row.weights.extend_from_slice(weights);
    row.positions.extend(start as u32..(start + tokens.len()) as u32);
    row.segments.extend(std::iter::repeat_n(segment, tokens.len()));
    // A prompt of one token has no trunk: every completion is a document.
    row.continues.push(if start > 0 { 0 } else { -1 });
    row.sources.push(String::new());
}
