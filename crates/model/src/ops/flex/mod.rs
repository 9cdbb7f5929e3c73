//! The kernels of `worldloom-kernels` on burn's CPU backend.

mod slices;

use super::kernels::{DecoderOps, Float, Kernels};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::IntTensor;
use half::bf16;
use slices::{dims, flat, floats, heads, integers, last, like, tensor, total_then_rows, weights, with_last};
use worldloom_kernels as kernels;
use worldloom_kernels::attention::Attended;
use worldloom_kernels::convolution::Tokens;
use worldloom_kernels::cross_entropy::Targets;
use worldloom_kernels::delta_rule::{DeltaHeads, DeltaInputs};
use worldloom_kernels::experts::{Choices, Experts};
use worldloom_kernels::matmul::{MatmulPrecision, Weight};
use worldloom_kernels::rotary::Rotary;

impl Kernels for Flex {
    fn embedding_forward(weight: &FlexTensor, tokens: &FlexTensor) -> FlexTensor {
        let [batch, seq] = dims(tokens);
        let [_, width] = dims(weight);
        // Only the rows that are wanted are widened.
        let y = match weight.as_slice::<bf16>() {
            Some(table) => kernels::embedding::embedding(table, &integers(tokens), width),
            None => kernels::embedding::embedding(&weights(weight), &integers(tokens), width),
        };
        tensor(y, &[batch, seq, width])
    }

    fn embedding_gradient(tokens: &FlexTensor, dy: &FlexTensor, vocabulary: usize) -> FlexTensor {
        let width = last(dy);
        let dw = kernels::embedding::embedding_backward(&integers(tokens), &floats(dy), vocabulary, width);
        tensor(dw, &[vocabulary, width])
    }

    fn linear_forward(x: &FlexTensor, weight: &FlexTensor, precision: MatmulPrecision) -> FlexTensor {
        let [outputs, inputs] = dims(weight);
        let weight = Weight { values: &weights(weight), inputs, precision };
        tensor(kernels::matmul::linear(&floats(x), weight), &with_last(x, outputs))
    }

    fn linear_backward_input(weight: &FlexTensor, dy: &FlexTensor, precision: MatmulPrecision) -> FlexTensor {
        let inputs = last(weight);
        let weight = Weight { values: &weights(weight), inputs, precision };
        tensor(kernels::matmul::linear_backward_input(weight, &floats(dy)), &with_last(dy, inputs))
    }

    fn linear_backward_weight(x: &FlexTensor, dy: &FlexTensor, precision: MatmulPrecision) -> FlexTensor {
        let (inputs, outputs) = (last(x), last(dy));
        let dw = kernels::matmul::linear_backward_weight(&floats(x), &floats(dy), inputs, precision);
        tensor(dw, &[outputs, inputs])
    }

    fn rms_norm_forward(x: &FlexTensor, weight: &FlexTensor, eps: f32) -> [FlexTensor; 2] {
        let (y, inverse_rms) = kernels::norm::rms_norm(&floats(x), &floats(weight), eps);
        [like(y, x), flat(inverse_rms)]
    }

    fn rms_norm_backward(
        x: &FlexTensor,
        weight: &FlexTensor,
        inverse_rms: &FlexTensor,
        dy: &FlexTensor,
    ) -> [FlexTensor; 2] {
        let (dx, dw) = kernels::norm::rms_norm_backward(&floats(x), &floats(weight), &floats(inverse_rms), &floats(dy));
        [like(dx, x), like(dw, weight)]
    }

    fn norm_rotary_forward(
        x: &FlexTensor,
        weight: &FlexTensor,
        tables: &[FlexTensor; 2],
        positions: &FlexTensor,
        eps: f32,
    ) -> [FlexTensor; 2] {
        let [_, _, heads, _] = dims(x);
        let (cos, sin, positions) = (floats(&tables[0]), floats(&tables[1]), integers(positions));
        let rotary = Rotary { half: last(&tables[0]), cos: &cos, sin: &sin, positions: &positions };
        let (y, inverse_rms) = kernels::rotary::norm_rotary(&floats(x), &floats(weight), rotary, heads, eps);
        [like(y, x), flat(inverse_rms)]
    }

    fn norm_rotary_backward(
        x: &FlexTensor,
        weight: &FlexTensor,
        tables: &[FlexTensor; 2],
        positions: &FlexTensor,
        inverse_rms: &FlexTensor,
        dy: &FlexTensor,
    ) -> [FlexTensor; 2] {
        let [_, _, heads, _] = dims(x);
        let (cos, sin, positions) = (floats(&tables[0]), floats(&tables[1]), integers(positions));
        let rotary = Rotary { half: last(&tables[0]), cos: &cos, sin: &sin, positions: &positions };
        let (dx, dw) = kernels::rotary::norm_rotary_backward(
            &floats(x),
            &floats(weight),
            rotary,
            heads,
            &floats(inverse_rms),
            &floats(dy),
        );
        [like(dx, x), like(dw, weight)]
    }

    fn rotary_forward(x: &FlexTensor, tables: &[FlexTensor; 2], positions: &FlexTensor) -> FlexTensor {
        let [_, _, heads, dim] = dims(x);
        let (cos, sin, positions) = (floats(&tables[0]), floats(&tables[1]), integers(positions));
        let rotary = Rotary { half: last(&tables[0]), cos: &cos, sin: &sin, positions: &positions };
        like(kernels::rotary::rotary(&floats(x), rotary, heads, dim), x)
    }

    fn rotary_backward(tables: &[FlexTensor; 2], positions: &FlexTensor, dy: &FlexTensor) -> FlexTensor {
        let [_, _, heads, dim] = dims(dy);
        let (cos, sin, positions) = (floats(&tables[0]), floats(&tables[1]), integers(positions));
        let rotary = Rotary { half: last(&tables[0]), cos: &cos, sin: &sin, positions: &positions };
        like(kernels::rotary::rotary_backward(rotary, heads, dim, &floats(dy)), dy)
    }

    fn swiglu_forward(gate: &FlexTensor, up: &FlexTensor) -> FlexTensor {
        like(kernels::swiglu::swiglu(&floats(gate), &floats(up)), gate)
    }

    fn swiglu_backward(gate: &FlexTensor, up: &FlexTensor, dy: &FlexTensor) -> [FlexTensor; 2] {
        let (dgate, dup) = kernels::swiglu::swiglu_backward(&floats(gate), &floats(up), &floats(dy));
        [like(dgate, gate), like(dup, up)]
    }

    fn attention_forward(inputs: &[FlexTensor; 3], visible: &FlexTensor) -> [FlexTensor; 2] {
        let [q, k, v] = inputs;
        let (out, log_sums) =
            kernels::attention::attention(&floats(q), &floats(k), &floats(v), &integers(visible), heads(q, k));
        [like(out, q), flat(log_sums)]
    }

    fn attention_backward(
        inputs: &[FlexTensor; 3],
        visible: &FlexTensor,
        outputs: &[FlexTensor; 2],
        dy: &FlexTensor,
    ) -> [FlexTensor; 3] {
        let [q, k, v] = inputs;
        let [out, log_sums] = outputs;
        let attended = Attended {
            inputs: [&floats(q), &floats(k), &floats(v)],
            visible: &integers(visible),
            out: &floats(out),
            log_sums: &floats(log_sums),
        };
        let [dq, dk, dv] = kernels::attention::attention_backward(attended, &floats(dy), heads(q, k));
        [like(dq, q), like(dk, k), like(dv, v)]
    }

    fn experts_forward(inputs: &[FlexTensor; 4], choices: &FlexTensor, precision: MatmulPrecision) -> FlexTensor {
        let y = with_experts(inputs, choices, precision, |experts, choices, x| {
            kernels::experts::experts(x, experts, choices)
        });
        like(y, &inputs[0])
    }

    fn experts_backward(
        inputs: &[FlexTensor; 4],
        choices: &FlexTensor,
        dy: &FlexTensor,
        precision: MatmulPrecision,
    ) -> [FlexTensor; 4] {
        let gradients = with_experts(inputs, choices, precision, |experts, choices, x| {
            kernels::experts::experts_backward(x, experts, choices, &floats(dy))
        });
        let [x, gate_up, down, weights] = inputs;
        [
            like(gradients.x, x),
            like(gradients.gate_up, gate_up),
            like(gradients.down, down),
            like(gradients.weights, weights),
        ]
    }

    fn causal_convolution_forward(x: &FlexTensor, weight: &FlexTensor, visible: &FlexTensor) -> FlexTensor {
        let [_, seq, _] = dims(visible);
        let tokens = Tokens { seq, visible: &integers(visible) };
        like(kernels::convolution::causal_convolution(&floats(x), &floats(weight), tokens, last(weight)), x)
    }

    fn causal_convolution_backward(
        x: &FlexTensor,
        weight: &FlexTensor,
        visible: &FlexTensor,
        dy: &FlexTensor,
    ) -> [FlexTensor; 2] {
        let [_, seq, _] = dims(visible);
        let tokens = Tokens { seq, visible: &integers(visible) };
        let (dx, dw) = kernels::convolution::causal_convolution_backward(
            &floats(x),
            &floats(weight),
            tokens,
            last(weight),
            &floats(dy),
        );
        [like(dx, x), like(dw, weight)]
    }

    fn delta_rule_forward(inputs: &[FlexTensor; 5], visible: &FlexTensor) -> FlexTensor {
        like(with_delta_rule(inputs, visible, kernels::delta_rule::delta_rule), &inputs[2])
    }

    fn delta_rule_backward(inputs: &[FlexTensor; 5], visible: &FlexTensor, dy: &FlexTensor) -> [FlexTensor; 5] {
        let gradients = with_delta_rule(inputs, visible, |rule, heads| {
            kernels::delta_rule::delta_rule_backward(rule, heads, &floats(dy))
        });
        let [q, k, v, log_decay, beta] = inputs;
        [
            like(gradients.q, q),
            like(gradients.k, k),
            like(gradients.v, v),
            like(gradients.log_decay, log_decay),
            like(gradients.beta, beta),
        ]
    }

    fn linear_cross_entropy_forward(
        hidden: &FlexTensor,
        weight: &FlexTensor,
        targets: &FlexTensor,
        row_weights: &FlexTensor,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> FlexTensor {
        let projection = Weight { values: &weights(weight), inputs: last(weight), precision };
        let targets = Targets { tokens: &integers(targets), weights: &floats(row_weights), temperature };
        total_then_rows(kernels::cross_entropy::linear_cross_entropy(&floats(hidden), projection, targets))
    }

    fn linear_cross_entropy_with_hidden_gradient(
        hidden: &FlexTensor,
        weight: &FlexTensor,
        targets: &FlexTensor,
        row_weights: &FlexTensor,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> [FlexTensor; 2] {
        let projection = Weight { values: &weights(weight), inputs: last(weight), precision };
        let targets = Targets { tokens: &integers(targets), weights: &floats(row_weights), temperature };
        let (loss, gradient) =
            kernels::cross_entropy::linear_cross_entropy_with_hidden_gradient(&floats(hidden), projection, targets);
        [total_then_rows(loss), like(gradient, hidden)]
    }

    fn linear_cross_entropy_with_gradients(
        hidden: &FlexTensor,
        weight: &FlexTensor,
        targets: &FlexTensor,
        row_weights: &FlexTensor,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> [FlexTensor; 3] {
        let projection = Weight { values: &weights(weight), inputs: last(weight), precision };
        let targets = Targets { tokens: &integers(targets), weights: &floats(row_weights), temperature };
        let (loss, gradients) =
            kernels::cross_entropy::linear_cross_entropy_with_gradients(&floats(hidden), projection, targets);
        [total_then_rows(loss), like(gradients.hidden, hidden), like(gradients.weight, weight)]
    }

    fn row_statistics_forward(
        hidden: &FlexTensor,
        weight: &FlexTensor,
        targets: &FlexTensor,
        row_weights: &FlexTensor,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> FlexTensor {
        let projection = Weight { values: &weights(weight), inputs: last(weight), precision };
        let targets = Targets { tokens: &integers(targets), weights: &floats(row_weights), temperature };
        let found = kernels::cross_entropy::linear_cross_entropy_statistics(&floats(hidden), projection, targets);
        let rows = found.len();
        let numbers = found.into_iter().flat_map(|row| [row.nll, row.entropy, f32::from(u8::from(row.is_top))]);
        tensor(numbers.collect(), &[rows, 3])
    }

    fn scale_by_first(mut x: FlexTensor, by: &FlexTensor) -> FlexTensor {
        let factor = floats(by)[0];
        if factor != 1.0 {
            kernels::scale(x.storage_mut::<f32>(), factor);
        }
        x
    }
}

impl DecoderOps for Flex {
    fn embedding(weight: Float<Self>, tokens: IntTensor<Self>) -> Float<Self> {
        Self::embedding_forward(&weight, &tokens)
    }

    fn linear(x: Float<Self>, weight: Float<Self>, precision: MatmulPrecision) -> Float<Self> {
        Self::linear_forward(&x, &weight, precision)
    }

    fn rms_norm(x: Float<Self>, weight: Float<Self>, eps: f32) -> Float<Self> {
        let [y, _] = Self::rms_norm_forward(&x, &weight, eps);
        y
    }

    fn norm_rotary(
        x: Float<Self>,
        weight: Float<Self>,
        cos: Float<Self>,
        sin: Float<Self>,
        positions: IntTensor<Self>,
        eps: f32,
    ) -> Float<Self> {
        let [y, _] = Self::norm_rotary_forward(&x, &weight, &[cos, sin], &positions, eps);
        y
    }

    fn rotary(x: Float<Self>, cos: Float<Self>, sin: Float<Self>, positions: IntTensor<Self>) -> Float<Self> {
        Self::rotary_forward(&x, &[cos, sin], &positions)
    }

    fn swiglu(gate: Float<Self>, up: Float<Self>) -> Float<Self> {
        Self::swiglu_forward(&gate, &up)
    }

    fn attention(q: Float<Self>, k: Float<Self>, v: Float<Self>, visible: IntTensor<Self>) -> Float<Self> {
        let [out, _] = Self::attention_forward(&[q, k, v], &visible);
        out
    }

    fn experts(
        x: Float<Self>,
        gate_up: Float<Self>,
        down: Float<Self>,
        weights: Float<Self>,
        choices: IntTensor<Self>,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        Self::experts_forward(&[x, gate_up, down, weights], &choices, precision)
    }

    fn causal_convolution(x: Float<Self>, weight: Float<Self>, visible: IntTensor<Self>) -> Float<Self> {
        Self::causal_convolution_forward(&x, &weight, &visible)
    }

    fn delta_rule(
        q: Float<Self>,
        k: Float<Self>,
        v: Float<Self>,
        log_decay: Float<Self>,
        beta: Float<Self>,
        visible: IntTensor<Self>,
    ) -> Float<Self> {
        Self::delta_rule_forward(&[q, k, v, log_decay, beta], &visible)
    }

    fn linear_cross_entropy(
        hidden: Float<Self>,
        weight: Float<Self>,
        targets: IntTensor<Self>,
        row_weights: Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        Self::linear_cross_entropy_forward(&hidden, &weight, &targets, &row_weights, temperature, precision)
    }

    fn row_statistics(
        hidden: Float<Self>,
        weight: Float<Self>,
        targets: IntTensor<Self>,
        row_weights: Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        Self::row_statistics_forward(&hidden, &weight, &targets, &row_weights, temperature, precision)
    }
}

/// Shows the experts, the choices and the tokens as slices.
fn with_experts<T>(
    [x, gate_up, down, weights]: &[FlexTensor; 4],
    choices: &FlexTensor,
    precision: MatmulPrecision,
    run: impl FnOnce(Experts<'_>, Choices<'_>, &[f32]) -> T,
) -> T {
    let [num_experts, both, hidden] = dims(gate_up);
    let (gate_up, down) = (self::weights(gate_up), self::weights(down));
    let experts = Experts { gate_up: &gate_up, down: &down, num_experts, hidden, inner: both / 2, precision };
    let chosen = Choices { experts: &integers(choices), weights: &floats(weights), per_token: last(weights) };
    run(experts, chosen, &floats(x))
}

/// Shows what the delta rule reads as slices.
fn with_delta_rule<T>(
    [q, k, v, log_decay, beta]: &[FlexTensor; 5],
    visible: &FlexTensor,
    run: impl FnOnce(DeltaInputs<'_>, DeltaHeads) -> T,
) -> T {
    let ([batch, seq, key_heads, key_dim], [_, _, value_heads, value_dim]) = (dims(q), dims(v));
    let rule = DeltaInputs {
        q: &floats(q),
        k: &floats(k),
        v: &floats(v),
        log_decay: &floats(log_decay),
        beta: &floats(beta),
        visible: &integers(visible),
    };
    run(rule, DeltaHeads { batch, seq, key_heads, value_heads, key_dim, value_dim })
}
