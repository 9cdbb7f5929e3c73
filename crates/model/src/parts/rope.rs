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

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;
    use std::path::Path;

    #[test]
    fn frequencies_are_those_of_the_reference_to_the_last_bit() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/rope/tables.safetensors");
        let bytes = fs_err::read(path).unwrap();
        let golden = SafeTensors::deserialize(&bytes).unwrap();
        for (case, head_dim, theta, share) in [
            ("qwen3", 128, 1e6, 1.0),
            ("qwen3_5", 256, 1e7, 0.25),
            ("smollm2", 64, 1e5, 1.0),
            ("qwen3-tied", 16, 1e6, 1.0),
        ] {
            let config = ModelConfig::from_json(&format!(
                r#"{{"model_type": "qwen3_next", "vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1,
                    "intermediate_size": 8, "num_attention_heads": 1, "head_dim": {head_dim}, "rope_theta": {theta},
                    "partial_rotary_factor": {share}, "max_position_embeddings": 8, "num_experts": 1,
                    "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
                    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                    "linear_num_key_heads": 1, "linear_num_value_heads": 1}}"#
            ))
            .unwrap();
            let expected = golden.tensor(&format!("{case}.inv_freq")).unwrap();
            let expected = expected.data().chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
            let found = frequencies(&config);
            assert_eq!(found.len(), expected.len(), "{case}");
            // The reference's power is one off the rounded number in one place: dimension 37 of qwen3, where a bit turns the
            // farthest position by 8e-6.
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let may_be_off = u32::from((case, i) == ("qwen3", 37));
                assert!(found.to_bits().abs_diff(expected.to_bits()) <= may_be_off, "{case} {i}: {found} {expected}");
            }
        }
    }
}
