//! The same model, data and updates on two devices, and how far they come out apart.

use burn::tensor::Device;
use serde::Serialize;
use worldloom_model::{Decoder, Gradients, Layout, ModelConfig, token_tensor};

use crate::optimizer::{Optimizer, OptimizerConfig};

const SEED: u64 = 1;
/// Rows of a batch and tokens of a row.
const SHAPE: [usize; 2] = [2, 32];

/// Differences between two devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Parity {
    /// Largest difference of a logit.
    pub logits: f64,
    /// Difference of the loss.
    pub loss: f64,
    /// Largest relative norm of the error of one parameter's gradient.
    pub gradients: f64,
    /// Relative difference of the norm of all gradients.
    pub gradient_norm: f64,
    /// Difference of the loss before the last update.
    pub last_loss: f64,
    /// Relative norm of the difference of all weights after the last update.
    pub weights: f64,
}

/// Trains fresh weights of a config for so many steps on each device, the same tokens and updates, and compares.
pub fn parity(model: &ModelConfig, steps: u64, first: &Device, second: &Device) -> Parity {
    let [first, second] = [first, second].map(|device| trace(model, steps, &device.clone().autodiff()));
    let gradients = first.gradients.iter().zip(second.gradients.iter());
    let gradients = gradients.map(|((_, expected), (_, found))| relative(expected, found)).fold(0.0, f64::max);
    let [norm, other] = [&first, &second].map(|trace| trace.gradients.squared_norm().sqrt());
    let last = |trace: &Trace| trace.losses.last().copied().unwrap_or(trace.loss);
    Parity {
        logits: first.logits.iter().zip(&second.logits).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max),
        loss: (first.loss - second.loss).abs(),
        gradients,
        gradient_norm: (norm - other).abs() / norm,
        last_loss: (last(&first) - last(&second)).abs(),
        weights: relative(&first.weights, &second.weights),
    }
}

/// What a device computed.
struct Trace {
    logits: Vec<f32>,
    loss: f64,
    gradients: Gradients,
    /// Before each update.
    losses: Vec<f64>,
    weights: Vec<f32>,
}

fn trace(model: &ModelConfig, steps: u64, device: &Device) -> Trace {
    let [batch, seq] = SHAPE;
    let mut decoder = Decoder::init(model, SEED, device);
    let config = OptimizerConfig::new(1e-3, 0.1, 1.0);
    let mut optimizer = Optimizer::new(&config, &decoder);
    let token = |at: usize| ((at * at * 7 + at * 3) % model.vocab_size) as u32;
    let tokens: Vec<u32> = (0..batch * seq).map(token).collect();
    let targets: Vec<u32> = (0..batch * seq).map(|at| token(at + 1)).collect();
    let weights = vec![1.0 / (batch * seq) as f32; batch * seq];
    let layout = Layout::causal(batch, seq, device);
    let loss = |decoder: &Decoder, gradients: &mut Gradients| {
        let tokens = token_tensor(&tokens, batch, seq, device);
        let loss = decoder.weighted_nll(tokens, &layout, &targets, &weights, 1.0);
        let value = f64::from(loss.clone().into_scalar::<f32>());
        gradients.accumulate(decoder, loss);
        value
    };
    let logits = decoder.logits(token_tensor(&tokens, batch, seq, device), &layout);
    let logits = logits.into_data().iter::<f32>().collect();
    let mut gradients = Gradients::zeros(&decoder);
    let first_loss = loss(&decoder, &mut gradients);
    let first_gradients = gradients.clone();
    let mut losses = Vec::new();
    for _ in 0..steps {
        gradients.reset();
        losses.push(loss(&decoder, &mut gradients));
        let norm = gradients.squared_norm().sqrt();
        decoder = optimizer.update(decoder, &mut gradients, norm, config.learning_rate);
    }
    let mut weights = Vec::new();
    decoder.for_each_parameter(&mut |_, _, values| weights.extend_from_slice(values));
    Trace { logits, loss: first_loss, gradients: first_gradients, losses, weights }
}

/// Norm of the difference over the norm of what is expected.
fn relative(expected: &[f32], found: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let pairs = expected.iter().zip(found);
    let error: f64 = pairs.map(|(&expected, &found)| square(f64::from(expected) - f64::from(found))).sum();
    let norm: f64 = expected.iter().map(|&value| square(f64::from(value))).sum();
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}
