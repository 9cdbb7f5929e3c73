//! The same operations from burn's own, differentiable by burn: slower, the reference of the fused ones, and what devices
//! without kernels of ours compute.
//!
//! They keep what burn's graph keeps: `[batch, heads, seq, seq]` scores, and the logits of a micro-batch. No tensor of
//! logits is larger than [`LOGITS`], since devices bound their buffers. Weights in bfloat16 are read exactly, as by the
//! kernels; burn rounds their gradients.

use super::{DeltaInputs, RotaryTables, RowLoss, RowTargets};
use burn::tensor::{Bool, DType, Int, IntDType, Tensor, TensorData, activation};

/// Numbers of one tensor of logits, unless a single row has more: 64 MiB.
const LOGITS: usize = 1 << 24;
/// In place of a score that does not count; finite, since not every language of shaders has infinities.
const HIDDEN: f32 = -1e30;

/// In single precision.
fn single<const D: usize>(weight: Tensor<D>) -> Tensor<D> {
    if weight.dtype() == DType::F32 { weight } else { weight.cast(DType::F32) }
}

/// See [`super::embedding`].
pub fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    let ([batch, seq], [_, hidden]) = (tokens.dims(), weight.dims());
    single(weight.select(0, tokens.reshape([batch * seq]))).reshape([batch, seq, hidden])
}

/// See [`super::linear`].
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
    let mut shape = x.dims();
    let ([outputs, inputs], elements) = (weight.dims(), shape.iter().product::<usize>());
    shape[D - 1] = outputs;
    x.reshape([elements / inputs, inputs]).matmul(single(weight).transpose()).reshape(shape)
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
    let hidden = hidden_keys(visible).expand([batch, query_heads, seq, seq]);
    let weights = activation::softmax(scores.mask_fill(hidden, HIDDEN), 3);
    weights.matmul(repeated(v)).swap_dims(1, 2)
}

/// True where a position may not see a key, `[batch, 1, seq, seq]`.
fn hidden_keys(visible: Tensor<3, Int>) -> Tensor<4, Bool> {
    let [batch, seq, _] = visible.dims();
    let counted = TensorData::new((0..seq as i32).collect::<Vec<_>>(), [seq]);
    let counted =
        Tensor::<1, Int>::from_data(counted, (&visible.device(), DType::I32)).cast(IntDType::from(visible.dtype()));
    let (keys, positions) = (counted.clone().reshape([1, 1, 1, seq]), counted.reshape([1, 1, seq, 1]));
    let bound = |at: usize| visible.clone().narrow(2, at, 1).reshape([batch, 1, seq, 1]);
    let in_prefix = keys.clone().greater_equal(bound(0)).bool_and(keys.clone().lower(bound(1)));
    let in_run = keys.clone().greater_equal(bound(2)).bool_and(keys.lower_equal(positions));
    in_prefix.bool_or(in_run).bool_not()
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
    let of_router =
        |chosen: Tensor<3>| if weights.device().is_autodiff() { Tensor::from_inner(chosen) } else { chosen };
    let of_expert = |expert: usize| {
        let gate_up = gate_up.clone().narrow(0, expert, 1).reshape([both, hidden]);
        let gate_up = linear(x.clone(), gate_up);
        let activated = swiglu(gate_up.clone().narrow(2, 0, both / 2), gate_up.narrow(2, both / 2, both / 2));
        let chosen = of_router(choices.clone().equal_elem(expert as i32).float().cast(DType::F32));
        let weight = (weights.clone() * chosen).sum_dim(2);
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
        let rows = TensorData::new(rows, [batch * seq]);
        let rows = Tensor::<1, Int>::from_data(rows, (&device.clone().inner(), DType::I32));
        let seen = Tensor::<2>::from_data(TensorData::new(seen, [batch * seq, 1]), (&device, DType::F32));
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
    let empty = Tensor::<4>::zeros([1, heads, key_dim, value_dim], (&v.device(), DType::F32));
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

/// See [`super::linear_cross_entropy`]; the logits are kept.
pub fn linear_cross_entropy(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets) -> RowLoss {
    losses(hidden, weight, targets, LOGITS)
}

fn losses(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets, most: usize) -> RowLoss {
    let (hidden, weight, targets) = counted(hidden, single(weight), targets);
    let of_part = |(start, rows): (usize, usize)| {
        let part = targets.narrow(start, rows);
        let nll = of_targets(log_probs(hidden.clone().narrow(0, start, rows), &weight, &part), &part).neg();
        ((nll.clone() * part.weights).sum(), nll.inner())
    };
    let (totals, nll): (Vec<Tensor<1>>, Vec<Tensor<1>>) = parts(&hidden, &weight, most).map(of_part).unzip();
    let total = totals.into_iter().reduce(|sum, part| sum + part).expect("at least one row");
    let uncounted = targets.weights.inner().equal_elem(0.0);
    RowLoss { total, nll: Tensor::cat(nll, 0).mask_fill(uncounted, 0.0) }
}

/// See [`super::row_statistics`].
pub fn row_statistics(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets) -> Tensor<2> {
    statistics(hidden, weight, targets, LOGITS)
}

fn statistics(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets, most: usize) -> Tensor<2> {
    let targets = RowTargets { weights: targets.weights.inner(), ..targets };
    let (hidden, weight, targets) = counted(hidden.inner(), single(weight.inner()), targets);
    let of_part = |(start, rows): (usize, usize)| {
        let part = targets.narrow(start, rows);
        let log_probs = log_probs(hidden.clone().narrow(0, start, rows), &weight, &part);
        let of_target = of_targets(log_probs.clone(), &part);
        let is_top = of_target.clone().greater_equal(log_probs.clone().max_dim(1).squeeze_dim::<1>(1));
        let entropy = (log_probs.clone().exp() * log_probs).sum_dim(1).squeeze_dim::<1>(1).neg();
        let found = Tensor::stack(vec![of_target.neg(), entropy, is_top.float().cast(DType::F32)], 1);
        let uncounted = part.weights.equal_elem(0.0).unsqueeze_dim::<2>(1).expand([rows, 3]);
        found.mask_fill(uncounted, 0.0)
    };
    Tensor::cat(parts(&hidden, &weight, most).map(of_part).collect(), 0)
}

/// With rows of weight 0 emptied: neither their numbers nor their targets are read.
fn counted(hidden: Tensor<2>, weight: Tensor<2>, targets: RowTargets) -> (Tensor<2>, Tensor<2>, RowTargets) {
    let (dims, [vocabulary, _]) = (hidden.dims(), weight.dims());
    let uncounted = targets.weights.clone().inner().equal_elem(0.0).unsqueeze_dim::<2>(1).expand(dims);
    let tokens = targets.tokens.clamp(0, vocabulary as i32 - 1);
    (hidden.mask_fill(uncounted, 0.0), weight, RowTargets { tokens, ..targets })
}

/// Start and length of the parts that rows of logits are made in, of so many numbers at most.
fn parts(hidden: &Tensor<2>, weight: &Tensor<2>, most: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
    let ([rows, _], [vocabulary, _]) = (hidden.dims(), weight.dims());
    let most = (most / vocabulary).max(1);
    (0..rows).step_by(most).map(move |start| (start, most.min(rows - start)))
}

fn log_probs(hidden: Tensor<2>, weight: &Tensor<2>, targets: &RowTargets) -> Tensor<2> {
    activation::log_softmax(linear(hidden, weight.clone()) / targets.temperature, 1)
}

/// What each row has at its target.
fn of_targets(log_probs: Tensor<2>, targets: &RowTargets) -> Tensor<1> {
    log_probs.gather(1, targets.tokens.clone().unsqueeze_dim::<2>(1)).squeeze_dim::<1>(1)
}

impl RowTargets {
    fn narrow(&self, start: usize, rows: usize) -> RowTargets {
        let RowTargets { tokens, weights, temperature } = self.clone();
        RowTargets { tokens: tokens.narrow(0, start, rows), weights: weights.narrow(0, start, rows), temperature }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn losses_and_gradients_do_not_depend_on_the_parts_that_logits_are_made_in() {
        let device = Device::flex().autodiff();
        let numbers = |shape: [usize; 2], step: f32| {
            let values = (0..shape[0] * shape[1]).map(|at| (at as f32 * step).sin()).collect::<Vec<_>>();
            Tensor::<2>::from_data(TensorData::new(values, shape), &device).require_grad()
        };
        let (hidden, weight) = (numbers([7, 5], 0.37), numbers([11, 5], 0.71));
        let targets = RowTargets {
            tokens: Tensor::from_data(TensorData::new((0..7).collect::<Vec<i32>>(), [7]), &device.clone().inner()),
            weights: Tensor::from_data(
                TensorData::new(vec![1.0f32, 0.0, 2.0, 0.5, 1.0, -1.0, 1.0], [7]),
                &device.clone().inner(),
            ),
            temperature: 0.7,
        };
        let found = |most: usize| {
            let loss = losses(hidden.clone(), weight.clone(), targets.clone(), most);
            let of_rows = statistics(hidden.clone(), weight.clone(), targets.clone(), most);
            let gradients = loss.total.clone().backward();
            let [dhidden, dweight] = [&hidden, &weight].map(|leaf| leaf.grad(&gradients).unwrap().into_data());
            [loss.total.inner().into_data(), loss.nll.into_data(), of_rows.into_data(), dhidden, dweight]
                .map(|data| data.iter::<f32>().collect::<Vec<_>>())
        };
        let whole = found(LOGITS);
        assert_eq!(parts(&hidden, &weight, 25).collect::<Vec<_>>(), [(0, 2), (2, 2), (4, 2), (6, 1)]);
        for most in [1, 25, 40] {
            for (part, whole) in found(most).iter().flatten().zip(whole.iter().flatten()) {
                assert!((part - whole).abs() < 1e-5, "{part} in parts of {most}, {whole} at once");
            }
        }
    }
}
