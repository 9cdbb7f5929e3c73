//! Where the tokens of a batch stand: positions for the rotary turn, and documents for attention.

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use std::ops::Range;

/// Positions, documents and branches of `[batch, seq]` tokens.
///
/// A *segment* is a run of equal ids in a row: one document, or padding, which is a segment of its own. A token sees
/// the tokens of its segment up to itself. A segment that *continues* an earlier one sees that one whole, with all
/// that it sees, and its positions go on from there: a *branch*, or, where it follows at once, more of the same run.
/// A prompt, two branches of it and a padding token:
///
/// ```text
/// tokens      p p p a a b b ·
/// segments    0 0 0 1 1 2 2 3
/// continues   0:-1  1:0 2:0
/// positions   0 1 2 3 4 3 4 0
/// visible     0-0+0 ×3 (own run) · 0-0+0 (1 follows 0 at once) · 0-3+5 (prefix 0-3, own from 5) · 7-7+7
/// ```
#[derive(Clone, Debug)]
pub struct Layout {
    positions: Tensor<2, Int>,
    visible: Tensor<3, Int>,
    distinct_positions: Vec<u32>,
    position_rows: Tensor<2, Int>,
}

impl Layout {
    /// The layout of packed rows of documents; both slices are `[batch, seq]`, row after row.
    pub fn new(positions: &[u32], segments: &[u32], batch: usize, seq: usize, device: &Device) -> Layout {
        Self::with_branches(positions, segments, &vec![Vec::new(); batch], seq, device)
    }

    /// The layout of packed rows with branches: `continues` has, per row and segment, the segment it continues or -1;
    /// segments beyond its end continue none. Panics where [`visible_keys`] refuses: rows are checked when read.
    pub fn with_branches(
        positions: &[u32],
        segments: &[u32],
        continues: &[Vec<i32>],
        seq: usize,
        device: &Device,
    ) -> Layout {
        let batch = continues.len();
        assert_eq!(positions.len(), batch * seq, "layout: {batch} rows of {seq} positions");
        assert_eq!(segments.len(), batch * seq, "layout: {batch} rows of {seq} segments");
        let rows = segments.chunks(seq.max(1)).zip(continues);
        let visible: Vec<[u32; 3]> = rows
            .flat_map(|(segments, continues)| match visible_keys(segments, continues) {
                Ok(visible) => visible,
                Err(wrong) => panic!("layout: {wrong}"),
            })
            .collect();
        let mut distinct_positions = positions.to_vec();
        distinct_positions.sort_unstable();
        distinct_positions.dedup();
        let row = |position: &u32| distinct_positions.partition_point(|other| other < position) as u32;
        let rows: Vec<u32> = positions.iter().map(row).collect();
        let numbers = TensorData::new(integers(visible.as_flattened()), [batch, seq, 3]);
        Layout {
            positions: token_tensor(positions, batch, seq, device),
            visible: Tensor::from_data(numbers, (&device.clone().inner(), DType::I32)),
            position_rows: token_tensor(&rows, batch, seq, device),
            distinct_positions,
        }
    }

    /// The layout of whole rows: one document each, from position 0.
    pub fn causal(batch: usize, seq: usize, device: &Device) -> Layout {
        let positions: Vec<u32> = (0..batch).flat_map(|_| 0..seq as u32).collect();
        Layout::new(&positions, &vec![0; batch * seq], batch, seq, device)
    }

    /// The same tokens, of which those that do not count see themselves alone; one word per token, row after row.
    pub(crate) fn narrowed(&self, counts: &[bool]) -> Layout {
        let ([batch, seq], device) = (self.dims(), self.visible.device());
        let left_out = counts.iter().flat_map(|counts| [!counts; 3]).collect();
        let left_out = Tensor::<3, Bool>::from_data(TensorData::new(left_out, [batch, seq, 3]), &device);
        let themselves: Vec<i32> = (0..batch * seq).flat_map(|at| [(at % seq) as i32; 3]).collect();
        let themselves = Tensor::from_data(TensorData::new(themselves, [batch, seq, 3]), (&device, DType::I32));
        Layout { visible: self.visible.clone().mask_where(left_out, themselves), ..self.clone() }
    }

    /// Position of each token in its document, `[batch, seq]`.
    pub fn positions(&self) -> &Tensor<2, Int> {
        &self.positions
    }

    /// The keys that each token sees, `[batch, seq, 3]`: start and end of the prefix that it branches from (equal where
    /// there is none), and the first key of its own run.
    pub fn visible(&self) -> &Tensor<3, Int> {
        &self.visible
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
    Tensor::from_data(TensorData::new(integers(tokens), [batch, seq]), (&device.clone().inner(), DType::I32))
}

/// Integer tensors are signed; ids beyond 31 bits wrap here and are refused by the kernels.
pub(crate) fn integers(values: &[u32]) -> Vec<i32> {
    values.iter().map(|&value| value as i32).collect()
}

/// Per token of a row: `[prefix start, prefix end, own start]`, as [`Layout::visible`]; or what cannot be laid out.
pub fn visible_keys(segments: &[u32], continues: &[i32]) -> Result<Vec<[u32; 3]>, String> {
    // Of each segment: what it sees at its end.
    let mut seen: Vec<Run> = Vec::new();
    let mut visible = Vec::with_capacity(segments.len());
    let mut start = 0;
    for of_segment in segments.chunk_by(|a, b| a == b) {
        let segment = of_segment[0] as usize;
        let end = start + of_segment.len();
        let own = |prefix: Range<usize>, own: usize| Run { segment, prefix, own, end };
        let run = match continues.get(segment).copied().unwrap_or(-1) {
            ..0 => own(start..start, start),
            parent => {
                let parent = seen.iter().find(|run| run.segment == parent as usize);
                let parent =
                    parent.ok_or_else(|| format!("segment {segment} continues one that does not stand before it"))?;
                match (parent.end == start, parent.prefix.is_empty()) {
                    (true, _) => own(parent.prefix.clone(), parent.own),
                    (false, true) => own(parent.own..parent.end, start),
                    (false, false) => {
                        return Err(format!("segment {segment} branches from a branch, segment {}", parent.segment));
                    }
                }
            }
        };
        let numbers = [run.prefix.start, run.prefix.end, run.own].map(|at| at as u32);
        visible.resize(end, numbers);
        seen.push(run);
        start = end;
    }
    Ok(visible)
}

/// What a segment sees at its end.
struct Run {
    segment: usize,
    prefix: Range<usize>,
    own: usize,
    end: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_see_themselves_trunks_go_on_and_branches_see_their_prefix() {
        // A trunk of two pieces, a branch of the first piece, one of both, a document, its branch.
        let segments = [0, 0, 1, 1, 2, 3, 3, 4, 4, 5];
        let visible = visible_keys(&segments, &[-1, 0, 0, 1, -1, 4]).unwrap();
        let (trunk, after_first, after_both) = ([0, 0, 0], [0, 2, 4], [0, 4, 5]);
        let document = [7, 7, 7];
        let expected = [trunk, trunk, trunk, trunk, after_first, after_both, after_both, document, document, document];
        assert_eq!(visible, expected);
    }

    #[test]
    fn a_branch_of_a_branch_and_a_parent_that_comes_later_are_refused() {
        assert!(visible_keys(&[0, 1, 2, 3], &[-1, 0, 0, 2]).is_ok());
        assert!(visible_keys(&[0, 1, 2, 3], &[-1, -1, 0, 2]).is_ok());
        let error = visible_keys(&[0, 1, 2, 3, 4], &[-1, -1, 0, -1, 2]).unwrap_err();
        assert!(error.contains("segment 4 branches from a branch, segment 2"), "{error}");
        let error = visible_keys(&[0, 1], &[1, -1]).unwrap_err();
        assert!(error.contains("segment 0 continues one"), "{error}");
    }
}
