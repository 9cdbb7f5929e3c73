//! Weights with their adapters folded in, one parameter at a time.

use crate::Decoder;
use crate::parameters::ReadParameter;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// The adapters of a decoder as numbers, by the path of their projection.
pub(crate) struct Merge {
    factors: BTreeMap<String, Factors>,
    scale: f32,
}

#[derive(Default)]
struct Factors {
    /// `[rank, inputs]`, of one expert after the other.
    a: Vec<f32>,
    /// `[outputs, rank]`, of one expert after the other.
    b: Vec<f32>,
    rank: usize,
    inputs: usize,
}

impl Merge {
    /// None where there is nothing to fold in.
    pub(crate) fn of(decoder: &Decoder) -> Option<Merge> {
        let scale = decoder.lora_config()?.scale() as f32;
        let mut factors: BTreeMap<String, Factors> = BTreeMap::new();
        decoder.for_each_trained(&mut |name, shape, values| {
            let (path, matrix) = name.rsplit_once('.').expect("an adapter's name has its projection in front");
            let factors = factors.entry(path.to_owned()).or_default();
            match (matrix, shape) {
                ("lora_A", [.., rank, inputs]) => {
                    (factors.rank, factors.inputs) = (*rank, *inputs);
                    factors.a = values.to_vec();
                }
                _ => factors.b = values.to_vec(),
            }
        });
        Some(Merge { factors, scale })
    }

    /// Shows a parameter with what its adapters add.
    pub(crate) fn show(&self, name: &str, shape: &[usize], values: &[f32], read: ReadParameter<'_>) {
        let path = name.strip_suffix(".weight").unwrap_or(name);
        if let Some(factors) = self.factors.get(path) {
            let mut merged = values.to_vec();
            let experts = if let [experts, _, _] = shape { *experts } else { 1 };
            let len = merged.len() / experts;
            merged.chunks_mut(len).enumerate().for_each(|(expert, matrix)| factors.add(matrix, expert, self.scale));
            return read(name, shape, &merged);
        }
        let halves =
            path.strip_suffix("gate_up_proj").map(|layer| [format!("{layer}gate_proj"), format!("{layer}up_proj")]);
        let halves = halves.map(|paths| paths.map(|path| self.factors.get(&path)));
        match halves {
            None | Some([None, None]) => read(name, shape, values),
            Some(halves) => {
                let mut merged = values.to_vec();
                let len = merged.len() / shape[0];
                for (expert, matrix) in merged.chunks_mut(len).enumerate() {
                    let (gate, up) = matrix.split_at_mut(len / 2);
                    for (factors, matrix) in halves.iter().zip([gate, up]) {
                        factors.iter().for_each(|factors| factors.add(matrix, expert, self.scale));
                    }
                }
                read(name, shape, &merged);
            }
        }
    }
}

impl Factors {
    /// `matrix += scale · B A`, for one expert; the sum over the rank is added in its order.
    fn add(&self, matrix: &mut [f32], expert: usize, scale: f32) {
        let (rank, inputs) = (self.rank, self.inputs);
        let outputs = matrix.len() / inputs;
        let a = &self.a[expert * rank * inputs..][..rank * inputs];
        let b = &self.b[expert * outputs * rank..][..outputs * rank];
        matrix.par_chunks_mut(inputs).zip(b.par_chunks(rank)).for_each(|(row, b)| {
            let mut sum = vec![0f32; inputs];
            for (&b, a) in b.iter().zip(a.chunks_exact(inputs)) {
                sum.iter_mut().zip(a).for_each(|(sum, &a)| *sum += b * a);
            }
            row.iter_mut().zip(sum).for_each(|(value, sum)| *value += scale * sum);
        });
    }
}
