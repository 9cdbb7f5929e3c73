//! Rotary positions (RoFormer, arXiv 2104.09864): the frequencies, and the tables of a layout.

use crate::ops::RotaryTables;
use crate::{Layout, ModelConfig};
use burn::tensor::{DType, Tensor, TensorData};

/// `theta^(−2i / d)`, stretched, for the `d` dimensions of a head that turn, in single precision as the reference has them: at far
/// positions one bit of a frequency turns a head by a visible angle.
pub(crate) fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let turning = config.rotary_dim();
    let theta = config.rope_theta as f32;
    let frequency = |i: usize| 1.0 / theta.powf((2 * i) as f32 / turning as f32);
    (0..turning / 2).map(|i| config.rope_scaling.stretch(frequency(i))).collect()
}

/// Cosines and sines for the positions that occur in `layout`, one row for each.
pub(crate) fn tables(frequencies: &[f32], layout: &Layout) -> RotaryTables {
    let positions = layout.distinct_positions();
    let angles: Vec<f32> = positions
        .iter()
        .flat_map(|&position| frequencies.iter().map(move |frequency| position as f32 * frequency))
        .collect();
    let device = layout.positions().device();
    let table = |of_angle: fn(f32) -> f32| {
        let values: Vec<f32> = angles.iter().copied().map(of_angle).collect();
        Tensor::from_data(TensorData::new(values, [positions.len(), frequencies.len()]), (&device, DType::F32))
    };
    RotaryTables { cos: table(f32::cos), sin: table(f32::sin), positions: layout.position_rows().clone() }
}
