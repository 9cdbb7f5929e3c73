//! Where the tokens of a batch stand: positions for the rotary turn, and documents for attention.

use burn::tensor::{Device, Int, Tensor, TensorData};

/// Positions and documents of `[batch, seq]` tokens.
///
/// A *segment* is a run of equal ids in a row: one document, or padding, which is a segment of its own. A token sees
/// the tokens of its segment up to itself. Two documents and two padding tokens in one row of eight:
///
/// ```text
/// tokens      a b c d e f · ·
/// segments    0 0 0 1 1 1 2 2
/// positions   0 1 2 0 1 2 0 1
/// first keys  0 0 0 3 3 3 6 6
/// ```
///
/// Branches that continue another segment (`continues` in the shard) get their place here when attention knows them.
#[derive(Clone, Debug)]
pub struct Layout {
    positions: Tensor<2, Int>,
    first_keys: Tensor<2, Int>,
    distinct_positions: Vec<u32>,
    position_rows: Tensor<2, Int>,
}

impl Layout {
    /// The layout of packed rows; both slices are `[batch, seq]`, row after row.
    pub fn new(positions: &[u32], segments: &[u32], batch: usize, seq: usize, device: &Device) -> Layout {
        assert_eq!(positions.len(), batch * seq, "layout: {batch} rows of {seq} positions");
        assert_eq!(segments.len(), batch * seq, "layout: {batch} rows of {seq} segments");
        let first_keys: Vec<u32> = segments.chunks(seq.max(1)).flat_map(first_keys_of_row).collect();
        let mut distinct_positions = positions.to_vec();
        distinct_positions.sort_unstable();
        distinct_positions.dedup();
        let row = |position: &u32| distinct_positions.partition_point(|other| other < position) as u32;
        let rows: Vec<u32> = positions.iter().map(row).collect();
        Layout {
            positions: token_tensor(positions, batch, seq, device),
            first_keys: token_tensor(&first_keys, batch, seq, device),
            position_rows: token_tensor(&rows, batch, seq, device),
            distinct_positions,
        }
    }

    /// The layout of whole rows: one document each, from position 0.
    pub fn causal(batch: usize, seq: usize, device: &Device) -> Layout {
        let positions: Vec<u32> = (0..batch).flat_map(|_| 0..seq as u32).collect();
        Layout::new(&positions, &vec![0; batch * seq], batch, seq, device)
    }

    /// Position of each token in its document, `[batch, seq]`.
    pub fn positions(&self) -> &Tensor<2, Int> {
        &self.positions
    }

    /// First position of the row that each token may see, `[batch, seq]`.
    pub fn first_keys(&self) -> &Tensor<2, Int> {
        &self.first_keys
    }

    /// The positions that occur, each once and in order: the rows of the rotary tables.
    pub(crate) fn distinct_positions(&self) -> &[u32] {
        &self.distinct_positions
    }

    /// Row of each token's position among the distinct ones, `[batch, seq]`.
    pub(crate) fn position_rows(&self) -> &Tensor<2, Int> {
        &self.position_rows
    }

    /// `[batch, seq]`.
    pub fn dims(&self) -> [usize; 2] {
        self.positions.dims()
    }
}

/// `[batch, seq]` token ids as a tensor, row after row.
pub fn token_tensor(tokens: &[u32], batch: usize, seq: usize, device: &Device) -> Tensor<2, Int> {
    assert_eq!(tokens.len(), batch * seq, "token tensor: {batch} rows of {seq}");
    Tensor::from_data(TensorData::new(integers(tokens), [batch, seq]), &device.clone().inner())
}

/// Integer tensors are signed; ids beyond 31 bits wrap here and are refused by the kernels.
pub(crate) fn integers(values: &[u32]) -> Vec<i32> {
    values.iter().map(|&value| value as i32).collect()
}

fn first_keys_of_row(segments: &[u32]) -> Vec<u32> {
    let mut first = 0;
    (0..segments.len())
        .map(|position| {
            if position > 0 && segments[position] != segments[position - 1] {
                first = position as u32;
            }
            first
        })
        .collect()
}
