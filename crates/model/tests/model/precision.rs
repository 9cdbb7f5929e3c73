//! Matrices in bfloat16: the numbers of their rounded weights in single precision, to the bit; and types that do not
//! belong together are refused at the border.

use crate::support::{
    Golden, bits, golden_dir, largest_difference, read_tensors, relative_norm, small_config, small_config_of,
};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor};
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{
    Decoder, Gradients, Layout, LoraConfig, MatmulPrecision, ModelConfig, NewToken, Precision, SaveDType, load,
    load_in, ops, save, token_tensor,
};

const CASES: [&str; 9] = [
    "qwen3-tied",
    "qwen3-untied",
    "qwen2-untied",
    "qwen3-moe-norm",
    "qwen3-moe-nonorm",
    "qwen3-next",
    "qwen3_5-dense",
    "qwen3_5-moe",
    "qwen3_5-moe-vl",
];

/// The case held in bfloat16, and the same numbers held in single precision.
fn both(case: &str, device: &Device) -> ([Decoder; 2], ModelConfig) {
    let (held, config) = load_in(&golden_dir(case), Precision::BF16, device).unwrap();
    let dir = tempfile::tempdir().unwrap();
    save(&held, &config, dir.path(), SaveDType::F32).unwrap();
    let (wide, _) = load(dir.path(), device).unwrap();
    assert_eq!((held.precision(), wide.precision()), (Precision::BF16, Precision::F32), "{case}");
    assert_eq!(bits(&held), bits(&wide), "{case}");
    ([held, wide], config)
}

/// Bits of the logits, the losses and all gradients.
fn results(decoder: &Decoder, device: &Device) -> (Vec<u32>, Vec<(String, Vec<u32>)>) {
    let tokens: Vec<u32> = (0..60).map(|at| at * 7 % 90).collect();
    let targets: Vec<u32> = tokens.iter().map(|token| (token * 3 + 1) % 90).collect();
    let segments: Vec<u32> = (0..60).map(|at| at % 30 / 13).collect();
    let positions: Vec<u32> = (0..60).map(|at| at % 30 % 13).collect();
    let layout = Layout::new(&positions, &segments, 2, 30, device);
    let input = || token_tensor(&tokens, 2, 30, device);
    let logits = decoder.logits(input(), &layout).into_data().iter::<f32>().map(f32::to_bits).collect();
    let mut gradients = Gradients::zeros(decoder);
    gradients.accumulate(decoder, decoder.weighted_nll(input(), &layout, &targets, &[0.1; 60], 0.9));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    (logits, gradients.iter().map(|(name, values)| (name.to_owned(), bits(values))).collect())
}

#[test]
fn what_is_held_in_bfloat16_computes_what_its_numbers_compute_in_single_precision() {
    let device = Device::flex().autodiff();
    for case in CASES {
        let ([held, wide], config) = both(case, &device);
        assert!(results(&held, &device) == results(&wide, &device), "{case}");
        let sampling = Sampling::plain(12, 1.0, vec![]);
        let request = Request { prompt: vec![3, 17, 5, 80], num_completions: 3, seed: 4, sampling };
        let made = [held, wide].map(|decoder| {
            Generator::new(&decoder, &config).unwrap().generate(std::slice::from_ref(&request), &mut |_, _| ()).unwrap()
        });
        assert_eq!(made[0], made[1], "{case}");
        let (loaded, _) = Generator::load(&golden_dir(case), Precision::BF16, &device).unwrap();
        assert_eq!(loaded.generate(&[request], &mut |_, _| ()).unwrap(), made[0], "{case}: packed from the files");
    }
}

#[test]
fn products_of_bfloat16_move_logits_and_gradients_by_their_rounding_and_no_more() {
    let device = Device::flex().autodiff();
    for case in CASES {
        let (decoder, _) = load(&golden_dir(case), &device).unwrap();
        let (logits, gradients) = results(&decoder, &device);
        let (rounded, of_rounded) = results(&decoder.multiplied_in(MatmulPrecision::Bf16Emulated), &device);
        let numbers = |bits: &[u32]| bits.iter().map(|&bits| f32::from_bits(bits)).collect::<Vec<_>>();
        let error = relative_norm(&numbers(&rounded), &numbers(&logits));
        // As far as transformers in bfloat16 may be (docs/models.md). A router may choose another expert where two were
        // near each other, and the states of delta-nets carry what was rounded on.
        let bound = match case {
            _ if case.contains("next") || case.contains("3_5") => 0.3,
            _ if case.contains("moe") => 0.1,
            _ => 0.03,
        };
        assert!((1e-4..bound).contains(&error), "{case}: logits {error}");
        // Together: a parameter that hardly matters may have a gradient of rounding alone. Those of this case are large
        // where a head's output is near zero, and the rounding of its weights alone moves them by 0.43.
        if case == "qwen3-next" {
            continue;
        }
        let all = |of: &[(String, Vec<u32>)]| of.iter().flat_map(|(_, bits)| numbers(bits)).collect::<Vec<_>>();
        let error = relative_norm(&all(&of_rounded), &all(&gradients));
        assert!((1e-4..3.0 * bound).contains(&error), "{case}: gradients {error}");
    }
}

#[test]
fn a_checkpoint_of_bfloat16_loses_nothing_when_it_is_held_in_bfloat16() {
    let device = Device::flex();
    for case in CASES {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (decoder, config) = load(&golden_dir(case), &device).unwrap();
        save(&decoder, &config, folders[0].path(), SaveDType::BF16).unwrap();
        let [held, wide] = [Precision::BF16, Precision::F32]
            .map(|precision| load_in(folders[0].path(), precision, &device).unwrap().0);
        assert_eq!(bits(&held), bits(&wide), "{case}");
        save(&held, &config, folders[1].path(), SaveDType::BF16).unwrap();
        let [once, twice] = folders.each_ref().map(|dir| read_tensors(&dir.path().join("model.safetensors")));
        assert!(once == twice, "{case}");
    }
}

#[test]
fn logits_of_matrices_in_bfloat16_equal_the_reference_with_rounded_weights() {
    for (case, tolerance) in [
        ("qwen3-tied", 1e-4),
        ("qwen2-untied", 1e-4),
        ("qwen3-moe-norm", 1e-4),
        ("qwen3-next", 2e-3),
        ("qwen3_5-dense", 2e-3),
    ] {
        let (golden, device) = (Golden::open("bf16", &format!("{case}.safetensors")), Device::flex());
        let (decoder, _) = load_in(&golden_dir(case), Precision::BF16, &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        let found: Vec<f32> =
            decoder.logits(tokens, &Layout::causal(batch, seq, &device)).into_data().iter::<f32>().collect();
        let error = largest_difference(&found, &golden.floats("logits"));
        assert!(error < tolerance, "{case}: logits differ by {error}");
    }
}

#[test]
fn norms_routers_and_convolutions_stay_in_single_precision() {
    let (held, _) = load_in(&golden_dir("qwen3-next"), Precision::BF16, &Device::flex()).unwrap();
    let (exact, _) = load(&golden_dir("qwen3-next"), &Device::flex()).unwrap();
    for ((name, held), (_, exact)) in bits(&held).into_iter().zip(bits(&exact)) {
        let is_exact = ["norm", ".mlp.gate.", "shared_expert_gate", "conv1d", "A_log", "dt_bias"];
        let stays = is_exact.iter().any(|part| name.contains(part));
        assert_eq!(held == exact, stays, "{name}");
        assert!(stays || held.iter().all(|bits| bits & 0xffff == 0), "{name}");
    }
}

#[test]
fn adapters_beside_matrices_in_bfloat16_learn_as_beside_their_numbers_in_single_precision() {
    let device = Device::flex().autodiff();
    for case in ["qwen3-tied", "qwen3_5-moe"] {
        let lora = LoraConfig { rank: 3, alpha: 6.0, dropout: 0.0, targets: "proj".into() };
        let (decoders, config) = both(case, &device);
        let [held, wide] = decoders.map(|decoder| {
            let adapted = decoder.with_lora(&lora, 5, &device).unwrap();
            // Both matrices of an adapter must be there for all of them to have gradients.
            adapted.update_parameters(&mut |_, _, values| values.iter_mut().for_each(|value| *value += 0.01))
        });
        assert_eq!(held.precision(), Precision::BF16);
        assert!(results(&held, &device) == results(&wide, &device), "{case}");
        let dir = tempfile::tempdir().unwrap();
        save(&held, &config, dir.path(), SaveDType::F32).unwrap();
        assert_eq!(bits(&load(dir.path(), &device).unwrap().0), bits(&wide), "{case}: merged in single precision");
    }
}

#[test]
fn an_update_of_matrices_in_bfloat16_is_made_in_single_precision_and_rounded() {
    let (held, _) = load_in(&golden_dir("qwen3-tied"), Precision::BF16, &Device::flex().autodiff()).unwrap();
    let before = bits(&held);
    let updated = held.update_parameters(&mut |_, _, values| values.iter_mut().for_each(|value| *value *= 1.01));
    assert_eq!(updated.precision(), Precision::BF16);
    for ((name, before), (_, after)) in before.into_iter().zip(bits(&updated)) {
        for (before, after) in before.into_iter().zip(after) {
            let exact = f32::from_bits(before) * 1.01;
            let expected = if name.contains("norm") { exact } else { SaveDType::BF16.round(exact) };
            assert_eq!(f32::from_bits(after), expected, "{name}");
        }
    }
}

#[test]
fn more_tokens_leave_the_precision_as_it_is() {
    let device = Device::flex();
    let (held, config) = load_in(&golden_dir("qwen3-untied"), Precision::BF16, &device).unwrap();
    let token = NewToken { id: config.vocab_size as u32 + 2, pieces: vec![4, 9] };
    let (larger, _) = held.extend_vocabulary(&config, &[token], &device).unwrap();
    assert_eq!(larger.precision(), Precision::BF16);
    assert!(larger.check_dtypes().is_ok());
}

/// Casts the final norm, as a caller with burn's own tools could.
struct Cast(usize);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        match self.0 {
            3 => param.map(|tensor| tensor.cast(DType::F16)),
            _ => param,
        }
    }
}

#[test]
fn a_parameter_of_another_type_is_an_error_that_names_it_before_anything_is_computed_or_written() {
    let device = Device::flex();
    let config = small_config(true);
    let broken = Decoder::init(&config, 1, &device).map(&mut Cast(0));
    let expected = "parameter `model.layers.0.self_attn.q_proj.weight` is F16, expected F32: cast it, or load the \
                    checkpoint again";
    assert_eq!(broken.check_dtypes().unwrap_err().to_string(), expected);
    let dir = tempfile::tempdir().unwrap();
    let error = save(&broken, &config, &dir.path().join("out"), SaveDType::F32).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!dir.path().join("out").exists());
    assert_eq!(Generator::new(&broken, &config).map(drop).unwrap_err().to_string(), expected);
    let lora = LoraConfig { rank: 1, alpha: 1.0, dropout: 0.0, targets: "proj".into() };
    assert_eq!(broken.clone().with_lora(&lora, 1, &device).unwrap_err().to_string(), expected);
    assert_eq!(broken.extend_vocabulary(&config, &[], &device).unwrap_err().to_string(), expected);
}

/// What a panic says.
fn refusal(work: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(work).unwrap_err();
    payload.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn activations_of_another_type_are_refused_at_the_border_by_name() {
    let device = Device::flex();
    let decoder = Decoder::init(&small_config(true), 1, &device);
    let layout = Layout::causal(1, 4, &device);
    let stream = decoder.embed(token_tensor(&[1, 2, 3, 4], 1, 4, &device)).cast(DType::BF16);
    let block = {
        let (decoder, stream, rotary) = (decoder.clone(), stream.clone(), decoder.rotary(&layout));
        refusal(std::panic::AssertUnwindSafe(move || drop(decoder.block(0, stream, &rotary, &layout))))
    };
    assert_eq!(block, "rms_norm: x is BF16, expected F32; cast it before");
    let head = refusal(std::panic::AssertUnwindSafe(move || drop(decoder.norm_and_head(stream))));
    assert_eq!(head, "rms_norm: x is BF16, expected F32; cast it before");
    let x = || Tensor::<2>::zeros([2, 3], (&device, DType::F32));
    let weight =
        refusal(std::panic::AssertUnwindSafe(|| drop(ops::linear(x(), x().cast(DType::F16), MatmulPrecision::F32))));
    assert_eq!(weight, "linear: the weight is F16, expected F32 or BF16; cast it before");
}

#[test]
fn what_is_added_or_multiplied_without_a_kernel_is_looked_at_too() {
    let device = Device::flex();
    let refused = |mut decoder: Decoder, change: &dyn Fn(&mut Decoder)| {
        change(&mut decoder);
        let tokens = token_tensor(&[1, 2, 3, 4], 1, 4, &device);
        let layout = Layout::causal(1, 4, &device);
        refusal(std::panic::AssertUnwindSafe(move || drop(decoder.logits(tokens, &layout))))
    };
    let qwen2 = Decoder::init(&small_config_of("qwen2"), 1, &device);
    let bias = refused(qwen2, &|decoder| {
        let projection = &mut decoder.model.layers[0].self_attn.as_mut().unwrap().q_proj;
        projection.bias = projection.bias.take().map(|bias| bias.map(|bias| bias.cast(DType::F16)));
    });
    assert_eq!(bias, "linear: the bias is F16, expected F32; cast it before");
    let hybrid = || Decoder::init(&small_config_of("qwen3_5_text"), 1, &device);
    let steps = refused(hybrid(), &|decoder| {
        let delta_net = decoder.model.layers[0].linear_attn.as_mut().unwrap();
        delta_net.dt_bias = delta_net.dt_bias.clone().map(|bias| bias.cast(DType::BF16));
    });
    assert_eq!(steps, "delta_net: dt_bias is BF16, expected F32; cast it before");
    let decays = refused(hybrid(), &|decoder| {
        let delta_net = decoder.model.layers[0].linear_attn.as_mut().unwrap();
        delta_net.A_log = delta_net.A_log.clone().map(|rate| rate.cast(DType::F16));
    });
    assert_eq!(decays, "delta_net: A_log is F16, expected F32; cast it before");
}

#[test]
fn tokens_of_any_type_of_integers_are_the_same_tokens() {
    let device = Device::flex();
    for family in ["qwen3", "qwen3_5_moe_text"] {
        let decoder = Decoder::init(&small_config_of(family), 1, &device);
        let tokens = token_tensor(&(0..24).collect::<Vec<u32>>(), 2, 12, &device);
        let logits = |tokens| -> Vec<f32> {
            decoder.logits(tokens, &Layout::causal(2, 12, &device)).into_data().iter::<f32>().collect()
        };
        let expected = logits(tokens.clone());
        for dtype in [DType::I64, DType::I16, DType::I8, DType::U32, DType::U8] {
            assert!(logits(tokens.clone().cast(dtype)) == expected, "{family}: {dtype:?}");
        }
    }
}
