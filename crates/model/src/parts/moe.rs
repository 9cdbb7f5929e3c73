//! A mixture of experts: a router chooses a few of many gated feed-forward parts for each token (arXiv 1701.06538).

use super::{ExpertAdapter, Linear, Mlp, Source};
use crate::lora::Adapters;
use crate::ops;
use crate::{Error, ExpertShape, ModelConfig};
use burn::module::{Module, Param};
use burn::tensor::{DType, Int, Tensor, TensorData, activation};
use worldloom_kernels::matmul::MatmulPrecision;

/// The router and its experts, and the expert that every token passes where the family has one.
#[derive(Module, Debug)]
pub struct Moe {
    /// The router, `[experts, hidden]`.
    pub gate: Linear,
    /// The experts.
    pub experts: Experts,
    /// The expert that every token passes.
    pub shared_expert: Option<Mlp>,
    /// How open it is for each token, `[1, hidden]`.
    pub shared_expert_gate: Option<Linear>,
    num_experts_per_tok: usize,
    norm_topk_prob: bool,
    /// Of the experts' products; the router's are in single precision.
    #[module(skip)]
    pub(crate) matmul: MatmulPrecision,
}

/// The weights of all experts, each in one tensor.
#[derive(Module, Debug)]
pub struct Experts {
    /// `[experts, 2 · inner, hidden]`, per expert first the gate's rows.
    pub gate_up_proj: Param<Tensor<3>>,
    /// `[experts, hidden, inner]`.
    pub down_proj: Param<Tensor<3>>,
    /// What is trained in place of the gates' rows.
    pub gate_adapter: Option<ExpertAdapter>,
    /// What is trained in place of the rows of what passes.
    pub up_adapter: Option<ExpertAdapter>,
    /// What is trained in place of the way back.
    pub down_adapter: Option<ExpertAdapter>,
}

impl Experts {
    fn adapt(&mut self, path: &str, adapters: &mut Adapters<'_, '_>) -> Result<(), Error> {
        let [experts, hidden, inner] = self.down_proj.dims();
        self.gate_adapter = adapters.of_experts(&format!("{path}.gate_proj"), [experts, inner, hidden])?;
        self.up_adapter = adapters.of_experts(&format!("{path}.up_proj"), [experts, inner, hidden])?;
        self.down_adapter = adapters.of_experts(&format!("{path}.down_proj"), [experts, hidden, inner])?;
        Ok(())
    }

    /// The weights that tokens pass, what the adapters add included: `gate_up_proj`, `down_proj`.
    fn weights(&self) -> [Tensor<3>; 2] {
        let (gate_up, down) = (self.gate_up_proj.val(), self.down_proj.val());
        let [experts, hidden, inner] = down.dims();
        let delta = |adapter: &Option<ExpertAdapter>| match adapter {
            Some(adapter) => adapter.delta(),
            None => Tensor::zeros([experts, inner, hidden], (&gate_up.device(), DType::F32)),
        };
        let gate_up = match (&self.gate_adapter, &self.up_adapter) {
            (None, None) => gate_up,
            (gate, up) => {
                let delta = Tensor::cat(vec![delta(gate), delta(up)], 1);
                gate_up.cast(DType::F32) + delta
            }
        };
        let down = match &self.down_adapter {
            Some(adapter) => down.cast(DType::F32) + adapter.delta(),
            None => down,
        };
        [gate_up, down]
    }

    /// How many numbers [`Experts::weights`] makes for the adapters.
    pub(crate) fn num_made(&self) -> usize {
        let [experts, hidden, inner] = self.down_proj.dims();
        let matrices = match (&self.gate_adapter, &self.up_adapter) {
            (None, None) => 0,
            _ => 2,
        };
        (matrices + usize::from(self.down_adapter.is_some())) * experts * hidden * inner
    }
}

/// What the router says of every token.
#[derive(Clone, Debug)]
pub struct Routing {
    /// `[batch, seq, experts]`, before the softmax.
    pub logits: Tensor<3>,
    /// The chosen experts, the most probable first, `[batch, seq, chosen]`.
    pub choices: Tensor<3, Int>,
    /// The factor of each one's output, as `choices`.
    pub weights: Tensor<3>,
}

impl Moe {
    pub(crate) fn new<E>(
        source: &mut Source<'_, E>,
        path: &str,
        config: &ModelConfig,
        shape: &ExpertShape,
    ) -> Result<Moe, E> {
        let (hidden, inner, experts) = (config.hidden_size, shape.moe_intermediate_size, shape.num_experts);
        let gate = Linear::new(source, &format!("{path}.gate"), experts, hidden, false)?;
        let gate_up_proj = source.parameter(&format!("{path}.experts.gate_up_proj"), [experts, 2 * inner, hidden])?;
        let down_proj = source.parameter(&format!("{path}.experts.down_proj"), [experts, hidden, inner])?;
        let (shared_expert, shared_expert_gate) = match shape.shared_expert_intermediate_size {
            None => (None, None),
            Some(inner) => (
                Some(Mlp::new(source, &format!("{path}.shared_expert"), hidden, inner)?),
                Some(Linear::new(source, &format!("{path}.shared_expert_gate"), 1, hidden, false)?),
            ),
        };
        Ok(Moe {
            gate,
            experts: Experts { gate_up_proj, down_proj, gate_adapter: None, up_adapter: None, down_adapter: None },
            shared_expert,
            shared_expert_gate,
            num_experts_per_tok: shape.num_experts_per_tok,
            norm_topk_prob: shape.norm_topk_prob,
            matmul: MatmulPrecision::F32,
        })
    }

    pub(crate) fn adapt(&mut self, path: &str, adapters: &mut Adapters<'_, '_>) -> Result<(), Error> {
        self.experts.adapt(&format!("{path}.experts"), adapters)?;
        match &mut self.shared_expert {
            Some(shared) => Linear::adapt(shared.projections(), &format!("{path}.shared_expert"), adapters),
            None => Ok(()),
        }
    }

    /// `[batch, seq, hidden]` to the same; `watch` sees what the router says.
    pub fn forward(&self, x: Tensor<3>, watch: &mut dyn FnMut(&Routing)) -> Tensor<3> {
        let routing = self.route(x.clone());
        watch(&routing);
        let Routing { choices, weights, .. } = routing;
        let [gate_up, down] = self.experts.weights();
        let chosen = ops::experts(x.clone(), gate_up, down, weights, choices, self.matmul);
        match (&self.shared_expert, &self.shared_expert_gate) {
            (Some(shared), Some(gate)) => chosen + shared.forward(x.clone()) * activation::sigmoid(gate.forward(x)),
            _ => chosen,
        }
    }

    /// The router's choice for `x`, `[batch, seq, hidden]`: the largest of the softmax over all experts, which are also
    /// the weights, divided by their sum where the family does so.
    pub fn route(&self, x: Tensor<3>) -> Routing {
        let logits = self.gate.forward(x);
        let choices = most_probable(&logits, self.num_experts_per_tok);
        let weights = activation::softmax(logits.clone(), 2).gather(2, choices.clone());
        let weights = match self.norm_topk_prob {
            true => weights.clone() / weights.sum_dim(2),
            false => weights,
        };
        Routing { logits, choices, weights }
    }
}

/// The `count` largest of the last axis, in falling order; of equal ones the first.
fn most_probable(logits: &Tensor<3>, count: usize) -> Tensor<3, Int> {
    let [batch, seq, experts] = logits.dims();
    let logits = logits.clone().inner();
    let device = logits.device();
    let values: Vec<f32> = logits.into_data().iter::<f32>().collect();
    let mut choices: Vec<i32> = Vec::with_capacity(batch * seq * count);
    for row in values.chunks_exact(experts) {
        choices.extend(largest(row, count).into_iter().map(|expert| expert as i32));
    }
    Tensor::from_data(TensorData::new(choices, [batch, seq, count]), (&device, DType::I32))
}

/// Places of the `count` largest, in falling order; of equal ones the first.
pub(crate) fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    places.truncate(count);
    places
}
