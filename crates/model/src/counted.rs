//! The positions whose loss counts: in the last block, nothing else needs more than its keys and values.
//!
//! Two thirds to nine tenths of the tokens of SFT and RL rows are context. What leaves the last block at a position is
//! read by that position's loss alone; so the last block computes keys and values everywhere, and queries' sums, output
//! projection and feed-forward part where a loss counts. Losses and gradients are the same but for the order of sums.

use crate::Layout;
use burn::tensor::{DType, Int, Tensor, TensorData};

/// The positions of `[batch, seq]` that count, in order; all of them where none does.
pub(crate) struct Counted {
    /// Their places among the `batch · seq` positions.
    places: Vec<usize>,
    tokens: usize,
    /// Where some are left out: the places, `[rows]`, and the layout of the last block's attention, in which every other
    /// position sees itself alone.
    narrowed: Option<(Tensor<1, Int>, Layout)>,
}

impl Counted {
    /// Those where `counts` holds, of one word per position, row after row.
    pub(crate) fn new(counts: impl Iterator<Item = bool>, layout: &Layout) -> Counted {
        let counts: Vec<bool> = counts.collect();
        let tokens = counts.len();
        let places: Vec<usize> = (0..tokens).filter(|&at| counts[at]).collect();
        if places.is_empty() || places.len() == tokens {
            return Counted { places: (0..tokens).collect(), tokens, narrowed: None };
        }
        let numbers = places.iter().map(|&at| at as i32).collect();
        let data = TensorData::new(numbers, [places.len()]);
        let index = Tensor::from_data(data, (&layout.visible().device(), DType::I32));
        Counted { narrowed: Some((index, layout.narrowed(&counts))), places, tokens }
    }

    /// Those whose loss has a weight.
    pub(crate) fn weighed(weights: &[f32], layout: &Layout) -> Counted {
        Counted::new(weights.iter().map(|&weight| weight != 0.0), layout)
    }

    /// The layout of the last block's attention, where positions are left out.
    pub(crate) fn narrowed_layout(&self) -> Option<&Layout> {
        self.narrowed.as_ref().map(|(_, layout)| layout)
    }

    /// Of `[batch, seq, width]` the positions that count, `[1, rows, width]`.
    pub(crate) fn rows(&self, values: Tensor<3>) -> Tensor<3> {
        let width = values.dims()[2];
        let values = values.reshape([self.tokens, width]);
        let rows = match &self.narrowed {
            Some((index, _)) => values.select(0, index.clone()),
            None => values,
        };
        rows.unsqueeze()
    }

    /// Of one value per position those that count.
    pub(crate) fn pick<T: Copy>(&self, values: &[T]) -> Vec<T> {
        self.places.iter().map(|&at| values[at]).collect()
    }

    /// One value per position from those that count, `T::default()` elsewhere.
    pub(crate) fn spread<T: Copy + Default>(&self, values: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut all = vec![T::default(); self.tokens];
        self.places.iter().zip(values).for_each(|(&at, value)| all[at] = value);
        all
    }
}
