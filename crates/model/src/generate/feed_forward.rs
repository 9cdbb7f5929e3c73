//! Feed-forward parts of the engine: one for all rows, or the experts that a router chooses for each.

use rayon::prelude::*;
use worldloom_kernels::decode::{PackedMatrix, Store, exponentials, sigmoid, swiglu};

use super::forward::Workspace;
use super::weights::zeros;
use crate::parts::moe::largest;
use crate::{ExpertShape, ModelConfig, Precision};

pub(super) enum FeedForward {
    Dense(Mlp),
    Experts(Experts),
}

/// `down(silu(gate) · up)`.
pub(super) struct Mlp {
    inner: usize,
    /// Rows of the gate and up projections.
    gate_up: PackedMatrix,
    down: PackedMatrix,
}

pub(super) struct Experts {
    shape: ExpertShape,
    router: PackedMatrix,
    experts: Vec<Mlp>,
    shared: Option<Mlp>,
    shared_gate: Vec<f32>,
}

impl FeedForward {
    /// Packs a parameter of `mlp`; false where there is none of this name.
    pub(super) fn set(&mut self, config: &ModelConfig, name: &str, values: &[f32]) -> bool {
        match self {
            FeedForward::Dense(mlp) => mlp.set(name, values),
            FeedForward::Experts(experts) => experts.set(config.hidden_size, name, values),
        }
    }

    /// Adds to the stream what the normed stream gives.
    pub(super) fn forward(&self, hidden: usize, workspace: &mut Workspace) {
        let Workspace { stream, normed, gate_up, activated, .. } = workspace;
        match self {
            FeedForward::Dense(mlp) => mlp.forward(normed, stream, Store::Add, [gate_up, activated]),
            FeedForward::Experts(experts) => experts.forward(hidden, normed, stream, [gate_up, activated]),
        }
    }
}

impl Mlp {
    pub(super) fn zeros(precision: Precision, hidden: usize, inner: usize) -> Mlp {
        let (gate_up, down) = (zeros(precision, 2 * inner, hidden), zeros(precision, hidden, inner));
        Mlp { inner, gate_up, down }
    }

    fn set(&mut self, name: &str, values: &[f32]) -> bool {
        match name {
            "gate_proj.weight" => self.gate_up.set_rows(0, values),
            "up_proj.weight" => self.gate_up.set_rows(self.inner, values),
            "down_proj.weight" => self.down.set_rows(0, values),
            _ => return false,
        }
        true
    }

    fn forward(&self, input: &[f32], output: &mut [f32], store: Store, [gate_up, activated]: [&mut Vec<f32>; 2]) {
        let num_rows = output.len() / self.down.outputs();
        gate_up.resize(num_rows * 2 * self.inner, 0.0);
        self.gate_up.multiply(input, gate_up, Store::Replace);
        activated.resize(num_rows * self.inner, 0.0);
        swiglu(gate_up, self.inner, activated);
        self.down.multiply(activated, output, store);
    }
}

impl Experts {
    pub(super) fn zeros(precision: Precision, hidden: usize, shape: &ExpertShape) -> Experts {
        let mlp = |inner: usize| Mlp::zeros(precision, hidden, inner);
        Experts {
            shape: *shape,
            // In single precision always, as everywhere.
            router: PackedMatrix::zeros(shape.num_experts, hidden),
            experts: (0..shape.num_experts).map(|_| mlp(shape.moe_intermediate_size)).collect(),
            shared: shape.shared_expert_intermediate_size.map(mlp),
            shared_gate: Vec::new(),
        }
    }

    fn set(&mut self, hidden: usize, name: &str, values: &[f32]) -> bool {
        let inner = self.shape.moe_intermediate_size;
        let experts = self.experts.iter_mut();
        match (name, name.strip_prefix("shared_expert.")) {
            ("gate.weight", _) => self.router.set_rows(0, values),
            ("experts.gate_up_proj", _) => experts
                .zip(values.chunks_exact(2 * inner * hidden))
                .for_each(|(expert, rows)| expert.gate_up.set_rows(0, rows)),
            ("experts.down_proj", _) => experts
                .zip(values.chunks_exact(inner * hidden))
                .for_each(|(expert, rows)| expert.down.set_rows(0, rows)),
            ("shared_expert_gate.weight", _) => self.shared_gate = values.to_vec(),
            (_, Some(name)) => return self.shared.as_mut().is_some_and(|shared| shared.set(name, values)),
            _ => return false,
        }
        true
    }

    fn forward(&self, hidden: usize, input: &[f32], stream: &mut [f32], buffers: [&mut Vec<f32>; 2]) {
        let choices = self.route(hidden, input);
        let per_token = self.shape.num_experts_per_tok;
        let mut by_expert: Vec<Vec<usize>> = vec![Vec::new(); self.shape.num_experts];
        choices.iter().enumerate().for_each(|(choice, &(expert, _))| by_expert[expert].push(choice));
        let of_expert = |(expert, chosen): (&Mlp, &Vec<usize>)| {
            let rows: Vec<f32> =
                chosen.iter().flat_map(|choice| &input[choice / per_token * hidden..][..hidden]).copied().collect();
            let mut output = vec![0f32; rows.len()];
            expert.forward(&rows, &mut output, Store::Replace, [&mut Vec::new(), &mut Vec::new()]);
            output
        };
        let outputs: Vec<Vec<f32>> = self.experts.par_iter().zip(&by_expert).map(of_expert).collect();
        // The place of a choice among those of its expert.
        let mut places = vec![0; choices.len()];
        by_expert
            .iter()
            .flat_map(|chosen| chosen.iter().enumerate())
            .for_each(|(place, &choice)| places[choice] = place);
        let mut sums = vec![0f32; stream.len()];
        for (token, sum) in sums.chunks_exact_mut(hidden).enumerate() {
            for choice in token * per_token..(token + 1) * per_token {
                let (expert, weight) = choices[choice];
                let output = &outputs[expert][places[choice] * hidden..][..hidden];
                sum.iter_mut().zip(output).for_each(|(sum, value)| *sum += weight * value);
            }
        }
        if let Some(shared) = &self.shared {
            let mut output = vec![0f32; stream.len()];
            shared.forward(input, &mut output, Store::Replace, buffers);
            let rows = sums.chunks_exact_mut(hidden).zip(output.chunks_exact(hidden)).zip(input.chunks_exact(hidden));
            for ((sum, output), input) in rows {
                let open = sigmoid(input.iter().zip(&self.shared_gate).fold(0.0, |sum, (x, w)| x.mul_add(*w, sum)));
                sum.iter_mut().zip(output).for_each(|(sum, value)| *sum += open * value);
            }
        }
        stream.iter_mut().zip(&sums).for_each(|(value, sum)| *value += sum);
    }

    /// The experts of every row and their weights, row after row.
    fn route(&self, hidden: usize, input: &[f32]) -> Vec<(usize, f32)> {
        let mut logits = vec![0f32; input.len() / hidden * self.shape.num_experts];
        self.router.multiply(input, &mut logits, Store::Replace);
        let mut choices = Vec::with_capacity(input.len() / hidden * self.shape.num_experts_per_tok);
        for row in logits.chunks_exact_mut(self.shape.num_experts) {
            let chosen = largest(row, self.shape.num_experts_per_tok);
            let (_, sum) = exponentials(row);
            let total = match self.shape.norm_topk_prob {
                true => chosen.iter().map(|&expert| row[expert]).sum(),
                false => sum,
            };
            choices.extend(chosen.into_iter().map(|expert| (expert, row[expert] / total)));
        }
        choices
    }
}
