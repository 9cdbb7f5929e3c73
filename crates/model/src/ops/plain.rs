//! The same operations from burn's own, differentiable by burn: slower, and the reference of the fused ones.

use super::{DeltaInputs, RotaryTables, RowLoss, RowTargets};
use burn::tensor::{Bool, Int, Tensor, TensorData, activation};

/// See [`super::embedding`].
pub fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    let ([batch, seq], [_, hidden]) = (tokens.dims(), weight.dims());
    weight.select(0, tokens.reshape([batch * seq])).reshape([batch, seq, hidden])
}

/// See [`super::linear`].
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
    let mut shape = x.dims();
    let ([outputs, inputs], elements) = (weight.dims(), shape.iter().product::<usize>());
    shape[D - 1] = outputs;
    x.reshape([elements / inputs, inputs]).matmul(weight.transpose()).reshape(shape)
}

/// See [`super::rms_norm`].
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f32) -> Tensor<D> {
    x.clone() / (x.square().mean_dim(D - 1) + eps).sqrt() * weight.unsqueeze()
}

/// See [`super::norm_rotary`].
pub fn norm_rotary(x: Tensor<4>, weight: Tensor<1>, tables: &RotaryTables, eps: f32) -> Tensor<4> {
    rotary(rms_norm(x, weight, eps), tables)
}

/// See [`super::rotary`].
pub fn rotary(x: Tensor<4>, rotary: &RotaryTables) -> Tensor<4> {
    let ([batch, seq, _, head_dim], [_, half]) = (x.dims(), rotary.cos.dims());
    let rows = rotary.positions.clone().reshape([batch * seq]);
    let of_tokens = |table: &Tensor<2>| table.clone().select(0, rows.clone()).reshape([batch, seq, 1, half]);
    let (cos, sin) = (of_tokens(&rotary.cos), of_tokens(&rotary.sin));
    let (first, second) = (x.clone().narrow(3, 0, half), x.clone().narrow(3, half, half));
    let mut turned = vec![first.clone() * cos.clone() - second.clone() * sin.clone(), second * cos + first * sin];
    if 2 * half < head_dim {
        turned.push(x.narrow(3, 2 * half, head_dim - 2 * half));
    }
    Tensor::cat(turned, 3)
}

/// See [`super::swiglu`].
pub fn swiglu<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    activation::silu(gate) * up
}

/// See [`super::attention`].
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, visible: Tensor<3, Int>) -> Tensor<4> {
    let ([batch, seq, query_heads, head_dim], [_, _, kv_heads, _]) = (q.dims(), k.dims());
    let repeated = |heads: Tensor<4>| {
        let heads = heads.swap_dims(1, 2).unsqueeze_dim::<5>(2).repeat_dim(2, query_heads / kv_heads);
        heads.reshape([batch, query_heads, seq, head_dim])
    };
    let scores = q.swap_dims(1, 2).matmul(repeated(k).swap_dims(2, 3)) / (head_dim as f32).sqrt();
    let weights = activation::softmax(scores.mask_fill(hidden_keys(visible, query_heads), f32::NEG_INFINITY), 3);
    weights.matmul(repeated(v)).swap_dims(1, 2)
}

/// True where a position may not see a key, `[batch, heads, seq, seq]`.
fn hidden_keys(visible: Tensor<3, Int>, heads: usize) -> Tensor<4, Bool> {
    let ([batch, seq, _], device) = (visible.dims(), visible.device());
    let visible: Vec<i64> = visible.into_data().iter::<i64>().collect();
    let sees = |position: usize, key: usize| {
        let (sight, at) = (&visible[position * 3..][..3], key as i64);
        (sight[0]..sight[1]).contains(&at) || (at >= sight[2] && key <= position % seq)
    };
    let hidden: Vec<bool> = (0..batch * seq)
        .flat_map(|position| (0..seq).map(move |key| (position, key)))
        .map(|(position, key)| !sees(position, key))
        .collect();
    Tensor::<4, Bool>::from_data(TensorData::new(hidden, [batch, 1, seq, seq]), &device).repeat_dim(1, heads)
}

/// See [`super::experts`]: every expert for every token, with weight 0 where it was not chosen.
pub fn experts(
    x: Tensor<3>,
    gate_up: Tensor<3>,
    down: Tensor<3>,
    weights: Tensor<3>,
    choices: Tensor<3, Int>,
) -> Tensor<3> {
    let [num_experts, both, hidden] = gate_up.dims();
    let of_expert = |expert: usize| {
        let gate_up = gate_up.clone().narrow(0, expert, 1).reshape([both, hidden]);
        let gate_up = linear(x.clone(), gate_up);
        let activated = swiglu(gate_up.clone().narrow(2, 0, both / 2), gate_up.narrow(2, both / 2, both / 2));
        let chosen = choices.clone().equal_elem(expert as i32);
        let weight = (weights.clone() * Tensor::<3>::from_inner(chosen.float())).sum_dim(2);
        linear(activated, down.clone().narrow(0, expert, 1).reshape([hidden, both / 2])) * weight
    };
    (0..num_experts).map(of_expert).reduce(|sum, part| sum + part).expect("at least one expert")
}

/// See [`super::causal_convolution`].
pub fn causal_convolution(x: Tensor<3>, weight: Tensor<3>, visible: Tensor<3, Int>) -> Tensor<3> {
    let ([batch, seq, channels], [_, _, kernel]) = (x.dims(), weight.dims());
    let (device, tokens) = (x.device(), x.reshape([batch * seq, channels]));
    let sights: Vec<i64> = visible.into_data().iter::<i64>().collect();
    // The place of the token that stands so far before each one.
    let before = |token: usize, back: usize| {
        let (row, position, sight) = (token / seq * seq, (token % seq) as i64, &sights[token * 3..][..3]);
        let mut at = position;
        for _ in 0..back {
            at = if at == sight[2] { sight[1] } else { at } - 1;
            let is_seen = (sight[2]..=position).contains(&at) || (sight[0]..sight[1]).contains(&at);
            is_seen.then_some(())?;
        }
        Some(row + at as usize)
    };
    let of_offset = |back: usize| {
        let places: Vec<Option<usize>> = (0..batch * seq).map(|token| before(token, back)).collect();
        let rows: Vec<i32> = places.iter().map(|place| place.unwrap_or(0) as i32).collect();
        let seen: Vec<f32> = places.iter().map(|place| if place.is_some() { 1.0 } else { 0.0 }).collect();
        let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [batch * seq]), &device.clone().inner());
        let seen = Tensor::<2>::from_data(TensorData::new(seen, [batch * seq, 1]), &device);
        let weight = weight.clone().narrow(2, kernel - 1 - back, 1).reshape([1, channels]);
        tokens.clone().select(0, rows) * seen * weight
    };
    let sum = (0..kernel).map(of_offset).reduce(|sum, part| sum + part).expect("a kernel of at least one");
    activation::silu(sum).reshape([batch, seq, channels])
}

/// See [`super::delta_rule`]: one token after the other, by the definition.
pub fn delta_rule(inputs: DeltaInputs) -> Tensor<4> {
    let DeltaInputs { q, k, v, log_decay, beta, visible } = inputs;
    let ([batch, seq, key_heads, key_dim], [_, _, heads, value_dim]) = (q.dims(), v.dims());
    let empty = Tensor::<4>::zeros([1, heads, key_dim, value_dim], &v.device());
    let sights: Vec<i64> = visible.into_data().iter::<i64>().collect();
    let repeated = |x: &Tensor<4>, position: usize| {
        let x = x.clone().narrow(1, position, 1).reshape([batch, key_heads, 1, key_dim]);
        x.repeat_dim(2, heads / key_heads).reshape([batch, heads, key_dim, 1])
    };
    let number = |x: &Tensor<3>, position: usize| x.clone().narrow(1, position, 1).reshape([batch, heads, 1, 1]);
    let mut states: Vec<Tensor<4>> = Vec::with_capacity(seq);
    let mut outputs = Vec::with_capacity(seq);
    for position in 0..seq {
        let before = |row: usize| {
            let sight = &sights[(row * seq + position) * 3..][..3];
            match (sight[2] < position as i64, sight[0] < sight[1]) {
                (true, _) => states[position - 1].clone().narrow(0, row, 1),
                (false, true) => states[sight[1] as usize - 1].clone().narrow(0, row, 1),
                (false, false) => empty.clone(),
            }
        };
        let state = Tensor::cat((0..batch).map(before).collect(), 0) * number(&log_decay, position).exp();
        let (q, k) = (repeated(&q, position), repeated(&k, position));
        let v = v.clone().narrow(1, position, 1).reshape([batch, heads, 1, value_dim]);
        let error = v - (state.clone() * k.clone()).sum_dim(2);
        let state = state + k * (error * number(&beta, position));
        outputs.push((state.clone() * q).sum_dim(2).reshape([batch, 1, heads, value_dim]));
        states.push(state);
    }
    Tensor::cat(outputs, 1)
}

/// See [`super::linear_cross_entropy`].
pub fn linear_cross_entropy(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets) -> RowLoss {
    let log_probs = activation::log_softmax(linear(hidden, weight) / targets.temperature, 1);
    let nll: Tensor<1> = log_probs.gather(1, targets.tokens.unsqueeze_dim::<2>(1)).squeeze_dim::<1>(1).neg();
    let counted = targets.weights.clone().inner().not_equal_elem(0.0);
    RowLoss { total: (nll.clone() * targets.weights).sum(), nll: nll.inner().mask_fill(counted.bool_not(), 0.0) }
}
