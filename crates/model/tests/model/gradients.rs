//! Gradients summed by name, and parameters changed in place.

use crate::support::{random_tokens, small_config, small_config_of};
use burn::tensor::{Device, Tensor};
use worldloom_model::{Decoder, Gradients, Layout, token_tensor};

fn loss(decoder: &Decoder, seed: u64, factor: f32) -> Tensor<1> {
    let device = Device::flex().autodiff();
    let tokens = random_tokens(40, 97, seed);
    let targets = random_tokens(40, 97, seed + 100);
    let layout = Layout::causal(2, 20, &device);
    decoder.weighted_nll(token_tensor(&tokens, 2, 20, &device), &layout, &targets, &[factor; 40], 1.0)
}

#[test]
fn accumulated_micro_batches_add_up() {
    let decoder = Decoder::init(&small_config(true), 1, &Device::flex().autodiff());
    let gradient = |losses: &[Tensor<1>]| {
        let mut gradients = Gradients::zeros(&decoder);
        losses.iter().for_each(|loss| gradients.accumulate(&decoder, loss.clone()));
        gradients
    };
    let first = gradient(&[loss(&decoder, 1, 0.1)]);
    let second = gradient(&[loss(&decoder, 2, 0.3)]);
    let both = gradient(&[loss(&decoder, 1, 0.1), loss(&decoder, 2, 0.3)]);
    for (name, sum) in both.iter() {
        for ((sum, first), second) in sum.iter().zip(first.get(name)).zip(second.get(name)) {
            assert_eq!(*sum, first + second, "{name}");
        }
    }
    let squares: f64 = both.iter().flat_map(|(_, values)| values).map(|&v| f64::from(v) * f64::from(v)).sum();
    assert!((both.squared_norm() / squares - 1.0).abs() < 1e-6);
}

#[test]
fn gradients_agree_with_finite_differences_of_the_loss() {
    // A choice of experts has no slope, and a delta-net's output norm bends too fast for single precision: their
    // gradients are left to the goldens.
    for family in ["llama", "qwen2", "qwen3"] {
        check_slopes(family);
    }
}

/// The slope of the loss along each parameter's gradient is the gradient's norm.
fn check_slopes(family: &str) {
    let device = Device::flex().autodiff();
    let decoder = Decoder::init(&small_config_of(family), 2, &device);
    let mut gradients = Gradients::zeros(&decoder);
    gradients.accumulate(&decoder, loss(&decoder, 3, 1.0));
    let names: Vec<String> = gradients.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let gradient = gradients.get(&name).to_vec();
        // Along the gradient the slope is its norm; single precision allows about a hundredth.
        let norm = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
        let step = 2e-2 / norm;
        let moved = |sign: f64| {
            let moved = decoder.clone().update_parameters(&mut |path, _, values| {
                if path == name {
                    values.iter_mut().zip(&gradient).for_each(|(v, &g)| *v += (sign * step * f64::from(g)) as f32);
                }
            });
            f64::from(loss(&moved, 3, 1.0).into_scalar::<f32>())
        };
        let slope = (moved(1.0) - moved(-1.0)) / (2.0 * step * norm);
        assert!((slope / norm - 1.0).abs() < 0.05, "{family}, {name}: slope {slope}, gradient norm {norm}");
    }
}

#[test]
fn scaling_and_resetting_reach_every_entry() {
    let decoder = Decoder::init(&small_config(true), 3, &Device::flex().autodiff());
    let mut gradients = Gradients::zeros(&decoder);
    gradients.accumulate(&decoder, loss(&decoder, 4, 1.0));
    let norm = gradients.squared_norm();
    gradients.scale(0.5);
    assert_eq!(gradients.squared_norm(), norm * 0.25);
    assert!(gradients.is_finite());
    if let Some((_, values)) = gradients.iter_mut().last() {
        values[0] = f32::NAN;
    }
    assert!(!gradients.is_finite());
    gradients.reset();
    assert_eq!(gradients.squared_norm(), 0.0);
}

#[test]
fn parameters_are_changed_in_place_and_stay_trainable() {
    let device = Device::flex().autodiff();
    let mut decoder = Decoder::init(&small_config(true), 4, &device);
    let addresses = |decoder: &Decoder| {
        let mut addresses = Vec::new();
        decoder.for_each_parameter(&mut |_, _, values| addresses.push(values.as_ptr() as usize));
        addresses
    };
    let before = addresses(&decoder);
    let mut losses = Vec::new();
    for _ in 0..40 {
        let loss = loss(&decoder, 5, 1.0 / 40.0);
        losses.push(loss.clone().into_scalar::<f32>());
        let mut gradients = Gradients::zeros(&decoder);
        gradients.accumulate(&decoder, loss);
        decoder = decoder.update_parameters(&mut |name, _, values| {
            values.iter_mut().zip(gradients.get(name)).for_each(|(value, gradient)| *value -= 0.3 * gradient);
        });
        assert_eq!(addresses(&decoder), before, "no buffer was copied");
    }
    assert!(losses[39] < 0.5 * losses[0], "the loss falls: {losses:?}");
}

#[test]
fn a_step_on_one_decoder_leaves_its_clone_alone() {
    let decoder = Decoder::init(&small_config(true), 5, &Device::flex());
    let clone = decoder.clone();
    let changed = decoder.update_parameters(&mut |_, _, values| values.fill(7.0));
    changed.for_each_parameter(&mut |_, _, values| assert!(values.iter().all(|&value| value == 7.0)));
    clone.for_each_parameter(&mut |_, _, values| assert!(values.iter().any(|&value| value != 7.0)));
}

#[test]
fn names_and_shapes_are_the_published_ones_and_the_tied_head_counts_once() {
    let config = small_config(true);
    let mut names = Vec::new();
    Decoder::init(&config, 6, &Device::flex()).for_each_parameter(&mut |name, shape, values| {
        assert_eq!(shape.iter().product::<usize>(), values.len());
        names.push(format!("{name} {shape:?}"));
    });
    let block = |layer: usize| {
        [
            "input_layernorm.weight [40]",
            "self_attn.q_proj.weight [60, 40]",
            "self_attn.k_proj.weight [20, 40]",
            "self_attn.v_proj.weight [20, 40]",
            "self_attn.o_proj.weight [40, 60]",
            "self_attn.q_norm.weight [10]",
            "self_attn.k_norm.weight [10]",
            "post_attention_layernorm.weight [40]",
            "mlp.gate_proj.weight [56, 40]",
            "mlp.up_proj.weight [56, 40]",
            "mlp.down_proj.weight [40, 56]",
        ]
        .map(|name| format!("model.layers.{layer}.{name}"))
    };
    let mut expected = vec!["model.embed_tokens.weight [97, 40]".to_owned()];
    expected.extend(block(0).into_iter().chain(block(1)));
    expected.push("model.norm.weight [40]".to_owned());
    assert_eq!(names, expected);
    let untied = Decoder::init(&small_config(false), 6, &Device::flex());
    let tied = Decoder::init(&config, 6, &Device::flex());
    assert_eq!(untied.num_parameters() - tied.num_parameters(), 97 * 40);
}

#[test]
fn fresh_weights_depend_on_the_seed_alone() {
    let bytes = |seed| {
        let mut bits = Vec::new();
        let decoder = Decoder::init(&small_config(false), seed, &Device::flex());
        decoder.for_each_parameter(&mut |_, _, values| bits.extend(values.iter().map(|v| v.to_bits())));
        bits
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}
