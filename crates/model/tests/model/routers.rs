//! The routers' losses: those of the reference with every gradient, whatever the micro-batches, and nothing without them.

use crate::support::{Golden, golden_dir, random_tokens, relative_norm, small_config_of};
use burn::module::Module;
use burn::tensor::Device;
use std::ops::Range;
use worldloom_model::{
    Decoder, ExpertLoad, Gradients, Layout, Losses, Objective, RouterLoss, RouterTerm, load, token_tensor,
};

/// A padded batch: what is predicted, with which weight, and which tokens count.
struct Batch {
    tokens: Vec<u32>,
    targets: Vec<u32>,
    weights: Vec<f32>,
    counted: Vec<bool>,
    seq: usize,
}

impl Batch {
    /// Every row predicts itself; tokens that do not count have no weight either way.
    fn new(tokens: Vec<u32>, counted: Vec<bool>, seq: usize) -> Batch {
        let next = |at: usize| !(at + 1).is_multiple_of(seq) && counted[at + 1];
        let targets = (0..tokens.len()).map(|at| if next(at) { tokens[at + 1] } else { 0 }).collect();
        let weights = (0..tokens.len()).map(|at| f32::from(u8::from(next(at)))).collect();
        Batch { tokens, targets, weights, counted, seq }
    }

    fn random(seed: u64) -> Batch {
        let counted = (0..4 * 20).map(|at| at % 20 < 20 - at / 20 * 3).collect();
        Batch::new(random_tokens(4 * 20, 97, seed), counted, 20)
    }

    fn places(&self, rows: Range<usize>) -> Range<usize> {
        rows.start * self.seq..rows.end * self.seq
    }

    fn load(&self, decoder: &Decoder, rows: Range<usize>) -> ExpertLoad {
        let (device, batch, places) = (decoder.devices()[0].clone(), rows.len(), self.places(rows));
        let tokens = token_tensor(&self.tokens[places.clone()], batch, self.seq, &device);
        decoder.expert_load(tokens, &Layout::causal(batch, self.seq, &device), &self.counted[places])
    }

    fn accumulate(
        &self,
        decoder: &Decoder,
        rows: Range<usize>,
        (loss, recompute): (Option<&RouterLoss>, bool),
        gradients: &mut Gradients,
    ) -> Losses {
        let (device, batch, places) = (decoder.devices()[0].clone(), rows.len(), self.places(rows));
        let tokens = token_tensor(&self.tokens[places.clone()], batch, self.seq, &device);
        let layout = Layout::causal(batch, self.seq, &device);
        let (targets, weights) = (&self.targets[places.clone()], &self.weights[places.clone()]);
        let routers = loss.map(|loss| RouterTerm { loss, counted: &self.counted[places] });
        let objective = Objective { targets, weights, weigh: None, temperature: 1.0, routers };
        match recompute {
            true => decoder.accumulate_recomputed(tokens, &layout, &objective, gradients),
            false => decoder.accumulate(tokens, &layout, &objective, gradients),
        }
    }
}

#[test]
fn both_losses_and_every_gradient_equal_the_reference_with_padding() {
    for (case, tolerance) in [("qwen3-moe-nonorm", 1e-4), ("qwen3_5-moe", 2e-3)] {
        let golden = Golden::open("router-losses", &format!("{case}.safetensors"));
        let (decoder, _) = load(&golden_dir(case), &Device::flex().autodiff()).unwrap();
        let [rows, seq] = golden.shape("input_ids").try_into().unwrap();
        let counted = golden.integers("mask").into_iter().map(|mask| mask == 1).collect();
        let batch = Batch::new(golden.tokens("input_ids"), counted, seq);
        let [balance, z] = golden.floats("factors").try_into().unwrap();
        let load = batch.load(&decoder, 0..rows);
        let value = |balance: f64, z: f64| {
            let loss = RouterLoss::new(&load, balance, z);
            let mut ignored = Gradients::zeros(&decoder);
            f64::from(batch.accumulate(&decoder, 0..rows, (Some(&loss), false), &mut ignored).routers)
        };
        for (name, found) in [("balance", value(1.0, 0.0)), ("z", value(0.0, 1.0))] {
            let expected = f64::from(golden.floats(name)[0]);
            assert!((found / expected - 1.0).abs() < tolerance, "{case}: {name} {found}, expected {expected}");
        }
        let loss = RouterLoss::new(&load, f64::from(balance), f64::from(z));
        let mut gradients = Gradients::zeros(&decoder);
        let losses = batch.accumulate(&decoder, 0..rows, (Some(&loss), false), &mut gradients);
        let expected = f64::from(golden.floats("nll")[0]);
        assert!((f64::from(losses.nll) / expected - 1.0).abs() < tolerance, "{case}: {losses:?}, expected {expected}");
        for (name, found) in gradients.iter() {
            let norm = found.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt();
            let expected = f64::from(golden.floats(&format!("norm.{name}"))[0]);
            assert!((norm / expected - 1.0).abs() < tolerance, "{case}: norm of {name} {norm}, expected {expected}");
        }
        let names = golden.names();
        let whole: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
        assert!(whole.iter().filter(|name| name.ends_with("mlp.gate.weight")).count() >= 2, "{case}: {whole:?}");
        for name in whole {
            let error = relative_norm(gradients.get(name), &golden.floats(&format!("grad.{name}")));
            assert!(error < tolerance, "{case}: gradient of {name}: relative norm of the error {error}");
        }
    }
}

#[test]
fn micro_batches_of_any_size_have_the_routers_loss_of_the_whole_step() {
    let device = Device::flex().autodiff();
    for family in ["qwen3_moe", "qwen3_5_moe_text"] {
        let (decoder, batch) = (Decoder::init(&small_config_of(family), 3, &device), Batch::random(8));
        let of_size = |size: usize, recompute: bool| {
            let mut load = ExpertLoad::default();
            (0..4).step_by(size).for_each(|row| load.add(&batch.load(&decoder, row..row + size)));
            let loss = RouterLoss::new(&load, 2.0, 0.1);
            let mut gradients = Gradients::zeros(&decoder);
            let mut sum = 0.0;
            for row in (0..4).step_by(size) {
                let part = batch.accumulate(&decoder, row..row + size, (Some(&loss), recompute), &mut gradients);
                sum += f64::from(part.routers);
            }
            (load, sum, gradients)
        };
        let whole = of_size(4, false);
        for (size, recompute) in [(2, false), (1, false), (4, true), (1, true)] {
            let parts = of_size(size, recompute);
            assert_eq!(parts.0, whole.0, "{family}: the same choices");
            assert!((parts.1 / whole.1 - 1.0).abs() < 1e-5, "{family}: {} {}", parts.1, whole.1);
            for (name, expected) in whole.2.iter() {
                let error = relative_norm(parts.2.get(name), expected);
                assert!(
                    error < 1e-5,
                    "{family}: rows by {size}, again {recompute}: gradient of {name} differs by {error}"
                );
            }
        }
    }
}

#[test]
fn a_coefficient_of_zero_changes_no_gradient_and_a_larger_one_moves_the_routers() {
    let device = Device::flex().autodiff();
    let (decoder, batch) = (Decoder::init(&small_config_of("qwen3_moe"), 3, &device), Batch::random(9));
    let with = |loss: Option<&RouterLoss>| {
        let mut gradients = Gradients::zeros(&decoder);
        let losses = batch.accumulate(&decoder, 0..4, (loss, false), &mut gradients);
        (losses, gradients)
    };
    let load = batch.load(&decoder, 0..4);
    let (plain, without) = with(None);
    let (zero, none) = with(Some(&RouterLoss::new(&load, 0.0, 0.0)));
    assert_eq!((plain.nll, 0.0, 0.0), (zero.nll, plain.routers, zero.routers));
    let router = "model.layers.1.mlp.gate.weight";
    assert!(without.iter().all(|(name, values)| values == none.get(name)));
    assert!(with(Some(&RouterLoss::new(&load, 1.0, 0.0))).1.get(router) != without.get(router));
    assert!(with(Some(&RouterLoss::new(&load, 0.0, 1.0))).1.get(router) != without.get(router));
}

#[test]
fn the_load_counts_every_choice_of_what_counts_and_is_even_at_one() {
    let device = Device::flex();
    let (decoder, batch) = (Decoder::init(&small_config_of("qwen3_moe"), 3, &device), Batch::random(10));
    let load = batch.load(&decoder, 0..4);
    let shares = load.shares();
    assert_eq!(shares.len(), 5);
    assert!((shares.iter().sum::<f64>() - 2.0).abs() < 1e-12, "two experts per token: {shares:?}");
    let busiest = shares.iter().fold(0.0, |most: f64, &share| most.max(share)) * 5.0 / 2.0;
    assert!((load.busiest() - busiest).abs() < 1e-12 && busiest >= 1.0);
    let dense = Decoder::init(&small_config_of("qwen3"), 3, &device);
    assert_eq!(batch.load(&dense, 0..4), ExpertLoad::default());
}
