//! One token of a gated delta-net: the causal convolution over the last tokens, and the delta rule on a head's state.
//!
//! A token's result depends on the tokens before it alone, in an order of additions that is always the same, so a prompt
//! and its continuation token by token give the same bits.

use crate::math::{dot, exp, multiply_add};

/// `1 / (1 + exp(−x))`.
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `silu` of the convolution of the tokens in `window` (the oldest first, `[kernel − 1, channels]`) and of `input`, which
/// then enters the window. `weights` are `[kernel, channels]`, those of `input` last.
pub fn convolve_token(window: &mut [f32], input: &[f32], weights: &[f32], output: &mut [f32]) {
    let channels = input.len();
    assert_eq!(output.len(), channels, "one output per channel");
    assert_eq!(window.len() + channels, weights.len(), "a window of all tokens of the kernel but one");
    output.fill(0.0);
    let tokens = window.chunks_exact(channels).chain(std::iter::once(input));
    for (token, weights) in tokens.zip(weights.chunks_exact(channels)) {
        for ((sum, value), weight) in output.iter_mut().zip(token).zip(weights) {
            *sum = multiply_add(*weight, *value, *sum);
        }
    }
    output.iter_mut().for_each(|value| *value *= sigmoid(*value));
    if window.len() > channels {
        window.copy_within(channels.., 0);
    }
    if let Some(last) = window.len().checked_sub(channels) {
        window[last..].copy_from_slice(input);
    }
}

/// Scales a head to `scale` times its unit length: `x · scale / sqrt(Σ x² + epsilon)`.
pub fn scale_to_unit(head: &mut [f32], scale: f32, epsilon: f32) {
    let factor = scale / (dot(head, head) + epsilon).sqrt();
    head.iter_mut().for_each(|value| *value *= factor);
}

/// One token of the gated delta rule on a head's state, `[key_dim, value_dim]`: `S ← decay · S`,
/// `S ← S + k (beta (v − Sᵀ k))ᵀ`, `output = Sᵀ q`.
pub fn delta_token(state: &mut [f32], [q, k, v]: [&[f32]; 3], decay: f32, beta: f32, output: &mut [f32]) {
    let value_dim = v.len();
    assert_eq!(state.len(), k.len() * value_dim, "a state of {} by {value_dim}", k.len());
    assert!(q.len() == k.len() && output.len() == value_dim, "a query as the key, an output as the value");
    let mut update = vec![0f32; value_dim];
    for (row, key) in state.chunks_exact_mut(value_dim).zip(k) {
        for (sum, value) in update.iter_mut().zip(row) {
            *value *= decay;
            *sum = multiply_add(*key, *value, *sum);
        }
    }
    update.iter_mut().zip(v).for_each(|(update, value)| *update = beta * (value - *update));
    output.fill(0.0);
    for ((row, key), query) in state.chunks_exact_mut(value_dim).zip(k).zip(q) {
        for ((value, update), sum) in row.iter_mut().zip(&update).zip(output.iter_mut()) {
            *value = multiply_add(*key, *update, *value);
            *sum = multiply_add(*query, *value, *sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_holds_the_last_tokens() {
        let weights = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        let (mut window, mut output) = ([0.0; 4], [0.0; 2]);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        let tokens = [[1.0, -0.1], [0.5, 0.2], [-2.0, 0.3], [0.25, -0.2]];
        for (i, token) in tokens.iter().enumerate() {
            convolve_token(&mut window, token, &weights, &mut output);
            for channel in 0..2 {
                let past = |back: usize| if i >= back { tokens[i - back][channel] } else { 0.0 };
                let sum: f32 = (0..3).map(|back| weights[(2 - back) * 2 + channel] * past(back)).sum();
                assert!((output[channel] - silu(sum)).abs() < 1e-5, "token {i}, channel {channel}");
            }
        }
        assert_eq!(window, [-2.0, 0.3, 0.25, -0.2]);
        let mut alone = [0.0];
        convolve_token(&mut [], &[0.5], &[2.0], &mut alone);
        assert!((alone[0] - silu(1.0)).abs() < 1e-6, "a kernel of one token");
    }

    #[test]
    fn a_full_step_replaces_what_the_key_recalls() {
        let (mut state, mut output) = (vec![0.0; 6], [0.0; 3]);
        let k = [0.6, 0.8];
        delta_token(&mut state, [&k, &k, &[1.0, 2.0, 3.0]], 1.0, 1.0, &mut output);
        delta_token(&mut state, [&k, &k, &[-4.0, 5.0, 0.5]], 0.9, 1.0, &mut output);
        for (found, expected) in output.iter().zip([-4.0, 5.0, 0.5]) {
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        }
        // Another key is left alone but for the decay.
        delta_token(&mut state, [&[0.8, -0.6], &k, &[0.0; 3]], 0.5, 0.0, &mut output);
        assert!(output.iter().all(|value| value.abs() < 1e-5), "{output:?}");
    }

    #[test]
    fn a_unit_head_has_the_length_that_was_asked_for() {
        let mut head = [3.0, 0.0, -4.0];
        scale_to_unit(&mut head, 0.5, 0.0);
        assert_eq!(head, [0.3, 0.0, -0.4]);
    }
}
