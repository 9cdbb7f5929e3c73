//! Fresh weights, the same bytes everywhere for one seed.
//!
//! Normal numbers come from arithmetic that IEEE 754 fixes (no library logarithm), one random stream per tensor.

mod copying;

use crate::parts::Source;
use crate::{Decoder, Error, ModelConfig, Precision};
use burn::tensor::Device;
use copying::Copying;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

/// What fresh weights already can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Nothing.
    #[default]
    Random,
    /// Repeat earlier text: heads that look back and heads that copy are there. Its angles come from the platform's
    /// cosine, so that bytes may differ in the last bit between platforms.
    Copying,
}

impl Decoder {
    /// Fresh weights: norms scale by 1, biases are zeros, the delta-net's decays are spread, all else is normal with the
    /// config's `initializer_range` as its deviation.
    pub fn init(config: &ModelConfig, seed: u64, device: &Device) -> Decoder {
        Self::fresh(config, seed, None, device)
    }

    /// As [`Decoder::init`], with what `start` adds. Refuses a shape that has no room for it.
    pub fn init_from(config: &ModelConfig, seed: u64, start: Start, device: &Device) -> Result<Decoder, Error> {
        let copying = match start {
            Start::Random => None,
            Start::Copying => Some(Copying::new(config, seed)?),
        };
        Ok(Self::fresh(config, seed, copying.as_ref(), device))
    }

    fn fresh(config: &ModelConfig, seed: u64, copying: Option<&Copying>, device: &Device) -> Decoder {
        let mut stream = 0;
        let values = &mut |path: &str, shape: &[usize]| {
            stream += 1;
            let len = shape.iter().product();
            let scale = if config.design.has_zero_centred_norms { 0.0 } else { 1.0 };
            let mut values = match shape {
                [_] if path.ends_with(".bias") => vec![0.0; len],
                [_] if path.ends_with(".dt_bias") || path.ends_with("linear_attn.norm.weight") => vec![1.0; len],
                [_] if path.ends_with(".A_log") => rates(len, seed, stream),
                [_] => vec![scale; len],
                _ => normal(len, config.initializer_range, seed, stream),
            };
            if let Some(copying) = copying {
                copying.adjust(path, &mut values);
            }
            Ok::<_, Infallible>(values)
        };
        match Decoder::from_values(config, Source { values, device, precision: Precision::F32 }) {
            Ok(decoder) => decoder,
            Err(never) => match never {},
        }
    }
}

/// Logarithms of rates spread evenly between 0 and 16, as published.
fn rates(len: usize, seed: u64, stream: u64) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    (0..len).map(|_| natural_logarithm(16.0 * (1.0 - generator.random::<f64>())) as f32).collect()
}

fn normal(len: usize, deviation: f64, seed: u64, stream: u64) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    let mut values = Vec::with_capacity(len + 1);
    while values.len() < len {
        let [first, second] = normal_pair(&mut generator);
        values.extend([(first * deviation) as f32, (second * deviation) as f32]);
    }
    values.truncate(len);
    values
}

/// Two independent standard normal numbers (Marsaglia's polar method).
fn normal_pair(generator: &mut ChaCha8Rng) -> [f64; 2] {
    loop {
        let [x, y] = [0; 2].map(|_| 2.0 * generator.random::<f64>() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            let factor = (-2.0 * natural_logarithm(square) / square).sqrt();
            return [x * factor, y * factor];
        }
    }
}

/// `ln x` for positive normal `x`: exponent, and the series of the inverse hyperbolic tangent for the mantissa.
fn natural_logarithm(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let mut exponent = ((x.to_bits() >> 52) as i64 - 1023) as f64;
    let mut mantissa = f64::from_bits(x.to_bits() & MANTISSA | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = (0..12).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent * std::f64::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_agrees_with_the_library() {
        for step in 1..10_000 {
            let x = f64::from(step) / 10_000.0;
            assert!((natural_logarithm(x) - x.ln()).abs() < 1e-13, "ln {x}");
        }
    }

    #[test]
    fn fresh_numbers_are_normal_and_depend_on_seed_and_stream() {
        let values = normal(100_001, 0.02, 7, 3);
        assert_eq!(values.len(), 100_001);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / values.len() as f64;
        let within_one = values.iter().filter(|v| v.abs() < 0.02).count() as f64 / values.len() as f64;
        assert!(mean.abs() < 3e-4, "mean {mean}");
        assert!((variance.sqrt() - 0.02).abs() < 2e-4, "deviation {}", variance.sqrt());
        assert!((within_one - 0.6827).abs() < 0.01, "share within one deviation {within_one}");
        assert_eq!(values, normal(100_001, 0.02, 7, 3));
        assert_ne!(values[..100], normal(100, 0.02, 7, 4));
        assert_ne!(values[..100], normal(100, 0.02, 8, 3));
    }
}
