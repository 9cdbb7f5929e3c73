//! Rows of unequal length as one batch, shifted so that each position predicts the next token.
//!
//! ```text
//! row      tokens  [7, 4, 9, 5]   weights [0, 0, 1, 1]     weight of predicting THIS token
//! batch    tokens  [7, 4, 9]      targets [4, 9, 5]        weights [0, 1, 1]
//! ```
//!
//! What follows a row's last target is not computed: nothing that counts depends on it.

use burn::tensor::{Device, Int, Tensor};
use worldloom_model::{
    Decoder, ExpertLoad, Gradients, Layout, Losses, Objective, RouterLoss, RouterTerm, RowStatistics, Weigh,
    token_tensor,
};
use worldloom_schema::Row;

/// A micro-batch, padded to its longest row with a segment of its own and weight 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Token ids, `[rows, length]`.
    pub tokens: Vec<u32>,
    /// Positions in their document.
    pub positions: Vec<u32>,
    /// Document numbers in their row; padding is one more.
    pub segments: Vec<u32>,
    /// The token predicted at each position.
    pub targets: Vec<u32>,
    /// Its weight.
    pub weights: Vec<f32>,
    /// Whether each position is one of a row, not padding.
    pub is_row: Vec<bool>,
    /// Per row and document number: the one it continues, or -1.
    pub continues: Vec<Vec<i32>>,
    /// Number of rows.
    pub rows: usize,
    /// Length of the longest.
    pub length: usize,
    /// Its place among the step's micro-batches, from 0: what dropout's masks follow.
    pub number: u64,
}

impl Batch {
    /// Pads and shifts rows; weights are divided by `denominator`.
    pub fn new(rows: &[&Row], denominator: f64) -> Self {
        let length = rows.iter().map(|row| predicting_length(row)).max().unwrap_or(0).max(1);
        let size = rows.len() * length;
        let empty = || Vec::with_capacity(size);
        let mut batch = Self {
            tokens: empty(),
            positions: empty(),
            segments: empty(),
            targets: empty(),
            weights: Vec::with_capacity(size),
            is_row: Vec::with_capacity(size),
            continues: Vec::with_capacity(rows.len()),
            rows: rows.len(),
            length,
            number: 0,
        };
        for row in rows {
            batch.push(row, denominator);
        }
        batch
    }

    /// Those of `rows` with these numbers.
    pub(crate) fn of(rows: &[Row], numbers: &[usize], denominator: f64) -> Self {
        Self::new(&numbers.iter().map(|&at| &rows[at]).collect::<Vec<_>>(), denominator)
    }

    fn push(&mut self, row: &Row, denominator: f64) {
        let used = predicting_length(row);
        self.tokens.extend(&row.tokens[..used]);
        self.positions.extend(&row.positions[..used]);
        self.segments.extend(&row.segments[..used]);
        if used > 0 {
            self.targets.extend(&row.tokens[1..=used]);
            self.weights.extend(row.weights[1..=used].iter().map(|&w| (f64::from(w) / denominator) as f32));
        }
        let padding = self.length - used;
        let padding_segment = row.segments[..used].last().map_or(0, |last| last + 1);
        self.continues.push(row.continues[..row.continues.len().min(padding_segment as usize)].into());
        self.tokens.extend(std::iter::repeat_n(0, padding));
        self.positions.extend(0..padding as u32);
        self.segments.extend(std::iter::repeat_n(padding_segment, padding));
        self.targets.extend(std::iter::repeat_n(0, padding));
        self.weights.extend(std::iter::repeat_n(0.0, padding));
        self.is_row.extend((0..self.length).map(|at| at < used));
    }

    /// Whether no target counts.
    pub fn is_untrained(&self) -> bool {
        self.weights.iter().all(|&weight| weight == 0.0)
    }

    /// `Σ weight · nll`, with its graph.
    pub fn loss(&self, decoder: &Decoder, temperature: f32, device: &Device) -> Tensor<1> {
        let (tokens, layout) = self.tensors(device);
        decoder.weighted_nll(tokens, &layout, &self.targets, &self.weights, temperature)
    }

    /// Adds the gradient of `Σ weight · nll`, and of the routers' loss where there is one, and returns both values; adds
    /// nothing where they are not finite. With `recompute` the blocks are computed again in the backward pass.
    pub(crate) fn accumulate(
        &self,
        decoder: &Decoder,
        pass: &Pass<'_>,
        device: &Device,
        gradients: &mut Gradients,
    ) -> Losses {
        let (tokens, layout) = self.tensors(device);
        let (targets, weights) = (&self.targets, &self.weights);
        let routers = pass.routers.map(|loss| RouterTerm { loss, counted: &self.is_row });
        let weigh = pass.weigh.map(|weigh| |log_probs: &[f32]| self.weighed(log_probs, weigh));
        let weigh = weigh.as_ref().map(|weigh| weigh as &Weigh<'_>);
        let objective = Objective { targets, weights, weigh, temperature: pass.temperature, routers };
        match pass.recompute {
            true => decoder.accumulate_recomputed(tokens, &layout, &objective, gradients),
            false => decoder.accumulate(tokens, &layout, &objective, gradients),
        }
    }

    /// Whether each target counts.
    fn selected(&self) -> Vec<bool> {
        self.weights.iter().map(|&weight| weight != 0.0).collect()
    }

    /// What `weigh` makes of log-probs, `[rows × length]`, in the same places.
    fn weighed(&self, log_probs: &[f32], weigh: &WeighRows<'_>) -> Vec<f32> {
        let selected = self.selected();
        let mut weights = weigh(self.number, self.by_row(&selected, log_probs)).into_iter().flatten();
        let of = |selected: &bool| if *selected { weights.next().expect("one weight per log-prob") } else { 0.0 };
        selected.iter().map(of).collect()
    }

    /// What the routers choose for the positions of rows, without a graph.
    pub(crate) fn expert_load(&self, decoder: &Decoder, device: &Device) -> ExpertLoad {
        let (tokens, layout) = self.tensors(device);
        decoder.expert_load(tokens, &layout, &self.is_row)
    }

    /// Loss, entropy and place of every target whose weight is not 0, row by row, without a graph.
    pub(crate) fn statistics(&self, decoder: &Decoder, device: &Device) -> Vec<Vec<RowStatistics>> {
        let selected = self.selected();
        let (tokens, layout) = self.tensors(device);
        let values = decoder.token_statistics(tokens, &layout, &self.targets, &selected);
        self.by_row(&selected, &values)
    }

    /// Log-prob of every target whose weight is not 0, row by row, without a graph.
    pub fn log_probs(&self, decoder: &Decoder, temperature: f32, device: &Device) -> Vec<Vec<f32>> {
        let selected = self.selected();
        let (tokens, layout) = self.tensors(device);
        let values = decoder.token_log_probs(tokens, &layout, &self.targets, &selected, temperature);
        self.by_row(&selected, &values)
    }

    fn by_row<T: Copy>(&self, selected: &[bool], values: &[T]) -> Vec<Vec<T>> {
        let of_row = |row: usize| {
            let range = row * self.length..(row + 1) * self.length;
            range.filter(|&at| selected[at]).map(|at| values[at]).collect()
        };
        (0..self.rows).map(of_row).collect()
    }

    fn tensors(&self, device: &Device) -> (Tensor<2, Int>, Layout) {
        let layout = Layout::with_branches(&self.positions, &self.segments, &self.continues, self.length, device);
        (token_tensor(&self.tokens, self.rows, self.length, device), layout)
    }
}

/// Weights that follow from log-probs: takes a micro-batch's number and the log-probs of its targets, row by row, and gives a
/// weight for each.
pub(crate) type WeighRows<'a> = dyn Fn(u64, Vec<Vec<f32>>) -> Vec<Vec<f32>> + Sync + 'a;

/// How a batch goes through the decoder and back.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a> {
    pub(crate) temperature: f32,
    /// In place of the rows' weights, which then only say which targets are weighed.
    pub(crate) weigh: Option<&'a WeighRows<'a>>,
    /// The step's, where the routers have one.
    pub(crate) routers: Option<&'a RouterLoss>,
    pub(crate) recompute: bool,
}

/// Tokens that something is predicted from: those before the last target.
pub(crate) fn predicting_length(row: &Row) -> usize {
    row.weights.iter().rposition(|&weight| weight != 0.0).unwrap_or(0)
}

/// The micro-batches of rows with these numbers, weights over `denominator`.
pub(crate) fn batches(rows: &[Row], numbers: &[Vec<usize>], denominator: f64) -> Vec<Batch> {
    let batch =
        |(number, at): (usize, &Vec<usize>)| Batch { number: number as u64, ..Batch::of(rows, at, denominator) };
    numbers.iter().enumerate().map(batch).collect()
}

/// Row numbers in micro-batches: longest rows first, so that a batch pads little.
pub(crate) fn micro_batches(rows: &[Row], rows_per_micro_batch: usize) -> Vec<Vec<usize>> {
    let lengths: Vec<usize> = rows.iter().map(predicting_length).collect();
    micro_batches_by(&lengths, rows_per_micro_batch)
}

/// The same from the lengths that are computed.
pub(crate) fn micro_batches_by(lengths: &[usize], rows_per_micro_batch: usize) -> Vec<Vec<usize>> {
    let mut numbers: Vec<usize> = (0..lengths.len()).collect();
    numbers.sort_by_key(|&number| std::cmp::Reverse(lengths[number]));
    numbers.chunks(rows_per_micro_batch).map(<[usize]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tokens: &[u32], weights: &[f32], segments: &[u32]) -> Row {
        let mut positions = Vec::new();
        for at in 0..tokens.len() {
            let continues = at > 0 && segments[at] == segments[at - 1];
            positions.push(if continues { positions[at - 1] + 1 } else { 0 });
        }
        Row { tokens: tokens.into(), weights: weights.into(), segments: segments.into(), positions, ..Row::default() }
    }

    #[test]
    fn rows_are_shifted_padded_and_cut_after_the_last_target() {
        let first = row(&[7, 4, 9, 5, 3, 8], &[0.0, 1.0, 0.0, 0.0, 2.0, 0.0], &[0, 0, 0, 1, 1, 1]);
        let second = row(&[1, 2, 6], &[0.0, 0.0, 4.0], &[0, 0, 0]);
        let batch = Batch::new(&[&first, &second], 4.0);
        assert_eq!(batch.length, 4);
        assert_eq!(batch.tokens, [7, 4, 9, 5, 1, 2, 0, 0]);
        assert_eq!(batch.targets, [4, 9, 5, 3, 2, 6, 0, 0]);
        assert_eq!(batch.weights, [0.25, 0.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(batch.segments, [0, 0, 0, 1, 0, 0, 1, 1]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 0, 1, 0, 1]);
        assert_eq!(batch.is_row, [true, true, true, true, true, true, false, false]);
    }

    #[test]
    fn micro_batches_hold_every_row_once_and_the_longest_first() {
        let lengths = [2, 5, 3, 5, 4];
        let rows: Vec<Row> =
            lengths.iter().map(|&length| row(&vec![1; length], &vec![1.0; length], &vec![0; length])).collect();
        assert_eq!(micro_batches(&rows, 2), [vec![1, 3], vec![4, 2], vec![0]]);
    }
}
