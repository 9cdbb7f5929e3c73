//! The output projection and the cross entropy as one operation, in chunks of rows: no `[rows, vocabulary]` matrix is
//! kept, and rows of weight 0 are not computed at all.

use crate::math::{exp_and_sum, maximum};
use crate::matmul::{Matrix, Threads, Weight};
use rayon::prelude::*;

/// Logits of one chunk, about.
const LOGITS_PER_CHUNK: usize = 1 << 20;

/// What each row should have said.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// The token of each row; not read where the weight is 0.
    pub tokens: &'a [u32],
    /// Factor of each row's loss; 0 leaves the row out, negative is allowed.
    pub weights: &'a [f32],
    /// The logits are divided by it.
    pub temperature: f32,
}

/// The weighted loss and what each row adds to it before weighting.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// `Σ weight · nll`, unnormalised, added in the order of the rows.
    pub total: f32,
    /// `−log softmax(hidden · weightᵀ / temperature)[token]`; 0 where the weight is 0.
    pub nll: Vec<f32>,
}

/// Gradients of the total loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossGradients {
    /// To the hidden states, `[rows, width]`.
    pub hidden: Vec<f32>,
    /// To the projection, `[vocabulary, width]`; empty where it is not wanted.
    pub weight: Vec<f32>,
}

/// The loss alone, for evaluation: `hidden` is `[rows, width]`, the projection `[vocabulary, width]`.
pub fn linear_cross_entropy(hidden: &[f32], projection: Weight<'_>, targets: Targets<'_>) -> Loss {
    compute(hidden, projection, targets, None)
}

/// The loss with its gradients: with `p` the softmax, `dlogits = weight / temperature · (p − onehot)`.
pub fn linear_cross_entropy_with_gradients(
    hidden: &[f32],
    projection: Weight<'_>,
    targets: Targets<'_>,
) -> (Loss, LossGradients) {
    let mut gradients = LossGradients { hidden: vec![0f32; hidden.len()], weight: vec![0f32; projection.values.len()] };
    let loss = compute(hidden, projection, targets, Some(&mut gradients));
    (loss, gradients)
}

/// The loss with its gradient to the hidden states alone, for a projection that is not trained.
pub fn linear_cross_entropy_with_hidden_gradient(
    hidden: &[f32],
    projection: Weight<'_>,
    targets: Targets<'_>,
) -> (Loss, Vec<f32>) {
    let mut gradients = LossGradients { hidden: vec![0f32; hidden.len()], weight: Vec::new() };
    let loss = compute(hidden, projection, targets, Some(&mut gradients));
    (loss, gradients.hidden)
}

/// What is worth knowing of one row's distribution when nothing is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowStatistics {
    /// `−log softmax(hidden · weightᵀ / temperature)[token]`.
    pub nll: f32,
    /// `−Σ p log p`, in nats.
    pub entropy: f32,
    /// Whether no token is more probable than the row's.
    pub is_top: bool,
}

/// Statistics of each row with a weight, zeros elsewhere; in the same chunks as the loss.
pub fn linear_cross_entropy_statistics(
    hidden: &[f32],
    projection: Weight<'_>,
    targets: Targets<'_>,
) -> Vec<RowStatistics> {
    let mut statistics = vec![RowStatistics::default(); hidden.len() / projection.inputs];
    for_each_chunk(hidden, projection, targets, &mut |rows, logits, _| {
        let vocabulary = projection.outputs();
        let found: Vec<RowStatistics> = logits
            .par_chunks_mut(vocabulary)
            .zip(rows)
            .map(|(logits, &row)| row_statistics(logits, targets.tokens[row] as usize))
            .collect();
        rows.iter().zip(found).for_each(|(&row, found)| statistics[row] = found);
    });
    statistics
}

fn row_statistics(logits: &mut [f32], target: usize) -> RowStatistics {
    assert!(target < logits.len(), "linear_cross_entropy: target {target} of a vocabulary of {}", logits.len());
    let (max, target_logit) = (maximum(logits), logits[target]);
    let shifted: Vec<f32> = logits.iter().map(|logit| logit - max).collect();
    let sum = exp_and_sum(logits, max);
    // A probability of 0 adds nothing, whatever its logit.
    let products = logits.iter().zip(&shifted).filter(|(exp, _)| **exp > 0.0);
    let mean_shift: f64 = products.map(|(&exp, &shift)| f64::from(exp) * f64::from(shift)).sum();
    RowStatistics {
        nll: max + sum.ln() - target_logit,
        entropy: (f64::from(sum).ln() - mean_shift / f64::from(sum)) as f32,
        is_top: target_logit >= max,
    }
}

fn compute(
    hidden: &[f32],
    projection: Weight<'_>,
    targets: Targets<'_>,
    mut gradients: Option<&mut LossGradients>,
) -> Loss {
    let mut nll = vec![0f32; hidden.len() / projection.inputs];
    let vocabulary = projection.outputs();
    for_each_chunk(hidden, projection, targets, &mut |rows, logits, inputs| {
        let losses: Vec<f32> = logits
            .par_chunks_mut(vocabulary)
            .zip(rows)
            .map(|(logits, &row)| row_loss(logits, row, targets, gradients.is_some()))
            .collect();
        rows.iter().zip(losses).for_each(|(&row, loss)| nll[row] = loss);
        if let Some(gradients) = gradients.as_deref_mut() {
            let dlogits = Matrix::new(logits, rows.len(), vocabulary);
            add_gradients(gradients, rows, dlogits, inputs, projection);
        }
    });
    let selected = nll.iter().zip(targets.weights).filter(|(_, weight)| **weight != 0.0);
    let total: f64 = selected.map(|(&nll, &weight)| f64::from(weight) * f64::from(nll)).sum();
    Loss { total: total as f32, nll }
}

/// What is done with the rows of a chunk: their numbers, logits over the temperature, and inputs.
type OnChunk<'a> = &'a mut dyn FnMut(&[usize], &mut [f32], Matrix<'_>);

/// The logits of all rows with a weight, chunk by chunk.
fn for_each_chunk(hidden: &[f32], projection: Weight<'_>, targets: Targets<'_>, on_chunk: OnChunk<'_>) {
    let (width, vocabulary) = (projection.inputs, projection.outputs());
    let rows = hidden.len() / width;
    assert_eq!(targets.tokens.len(), rows, "linear_cross_entropy: one target per row");
    assert_eq!(targets.weights.len(), rows, "linear_cross_entropy: one weight per row");
    let selected: Vec<usize> = (0..rows).filter(|&row| targets.weights[row] != 0.0).collect();
    let chunk = rows_per_chunk(vocabulary);
    let (mut inputs, mut logits) = (Vec::new(), vec![0f32; chunk.min(selected.len()) * vocabulary]);
    let (columns, scale) = (projection.matrix().transposed(), 1.0 / targets.temperature);
    for rows in selected.chunks(chunk) {
        inputs.clear();
        rows.iter().for_each(|&row| inputs.extend_from_slice(&hidden[row * width..][..width]));
        let inputs = Matrix::new(&inputs, rows.len(), width);
        let logits = &mut logits[..rows.len() * vocabulary];
        projection.precision.multiply(logits, inputs, columns, scale, Threads::Pool);
        on_chunk(rows, logits, inputs);
    }
}

/// Rows of a chunk depend on the vocabulary alone, so that the order of additions is fixed.
pub fn rows_per_chunk(vocabulary: usize) -> usize {
    (LOGITS_PER_CHUNK / vocabulary.max(1)).clamp(64, 1024)
}

/// The loss of one row; leaves the gradient to the logits in their place if asked.
fn row_loss(logits: &mut [f32], row: usize, targets: Targets<'_>, with_gradient: bool) -> f32 {
    let target = targets.tokens[row] as usize;
    assert!(target < logits.len(), "linear_cross_entropy: target {target} of a vocabulary of {}", logits.len());
    let target_logit = logits[target];
    let max = maximum(logits);
    let sum = exp_and_sum(logits, max);
    if with_gradient {
        let coefficient = targets.weights[row] / targets.temperature;
        let factor = coefficient / sum;
        logits.iter_mut().for_each(|value| *value *= factor);
        logits[target] -= coefficient;
    }
    max + sum.ln() - target_logit
}

fn add_gradients(
    gradients: &mut LossGradients,
    rows: &[usize],
    dlogits: Matrix<'_>,
    inputs: Matrix<'_>,
    projection: Weight<'_>,
) {
    let (width, precision) = (projection.inputs, projection.precision);
    let mut dinputs = vec![0f32; rows.len() * width];
    precision.multiply(&mut dinputs, dlogits, projection.matrix(), 1.0, Threads::Pool);
    for (&row, dinput) in rows.iter().zip(dinputs.chunks_exact(width)) {
        gradients.hidden[row * width..][..width].copy_from_slice(dinput);
    }
    if !gradients.weight.is_empty() {
        precision.multiply_accumulate(&mut gradients.weight, dlogits.transposed(), inputs, 1.0, Threads::Pool);
    }
}
