//! Tokens per second of generation, by batch size, for a small decoder with fresh weights and prompts of 400 tokens.
//!
//! `bf16` holds the matrices in bfloat16. `large` is a model of 93 million parameters, which no cache of a processor holds,
//! with short prompts, one by one.
//!
//! The time of the prompts is that of a run with one new token; what the rest of the tokens add to it is decoding.
//!
//! ```text
//! cargo run --release --example generation_speed [f32|bf16] [large]
//! cargo run --release --example generation_speed -- MODEL_FOLDER PROMPTS GROUP PROMPT_TOKENS NEW_TOKENS RUNS [greedy]
//! ```
//!
//! The second form takes one case of a model in a folder, a line a run, the first completion's tokens at the end;
//! `bench/run.py` compares it with transformers.

use std::time::Instant;

use burn::tensor::Device;
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{Decoder, ModelConfig, Precision};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONFIG: &str = r#"{
    "model_type": "qwen3", "vocab_size": 2048, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 6,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "max_position_embeddings": 1024, "tie_word_embeddings": true
}"#;
const PROMPT_TOKENS: usize = 400;

/// A run: how many prompts of so many tokens, completions of each, and tokens of each completion.
struct Case {
    num_prompts: usize,
    group: usize,
    prompt_tokens: usize,
    new_tokens: usize,
    temperature: f32,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [folder, numbers @ ..] if numbers.len() >= 5 => of_folder(folder, numbers),
        _ => {
            table(&arguments);
            Ok(())
        }
    }
}

#[expect(clippy::print_stdout, reason = "an example shows its figures")]
fn of_folder(folder: &str, arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let numbers = arguments[..5].iter().map(|number| number.parse()).collect::<Result<Vec<usize>, _>>()?;
    let [num_prompts, group, prompt_tokens, new_tokens, runs] = numbers[..] else { return Err("five numbers".into()) };
    let temperature = if arguments.last().is_some_and(|word| word == "greedy") { 0.0 } else { 1.0 };
    let case = Case { num_prompts, group, prompt_tokens, new_tokens, temperature };
    let (generator, config) = Generator::load(folder.as_ref(), Precision::F32, &Device::flex())?;
    let mut first = Vec::new();
    for run in 1..=runs {
        let start = Instant::now();
        let mut completions = generator.generate(&requests(&case, config.vocab_size), &mut |_, _| ())?;
        let tokens: usize = completions.iter().flatten().map(|completion| completion.tokens.len()).sum();
        println!("run {run}: {tokens} tokens, all {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        first = completions.swap_remove(0).swap_remove(0).tokens;
    }
    println!("tokens {first:?}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows its figures")]
fn table(arguments: &[String]) {
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let mut config = ModelConfig::from_json(CONFIG).expect("the config above is valid");
    let mut cases = vec![(1, 1, 128), (1, 8, 128), (8, 1, 128), (8, 8, 64), (64, 1, 64)];
    if has("large") {
        (config.hidden_size, config.intermediate_size, config.vocab_size) = (1024, 4096, 16_384);
        cases = vec![(1, 1, 32), (1, 8, 32)];
    }
    let precision = if has("bf16") { Precision::BF16 } else { Precision::F32 };
    let decoder = Decoder::init(&config, 1, &Device::flex()).held_in(precision);
    let generator = Generator::new(&decoder, &config).expect("every parameter has the type it was made with");
    println!(
        "{} threads, {} parameters in {}",
        rayon::current_num_threads(),
        decoder.num_parameters(),
        precision.name()
    );
    for (num_prompts, group, new_tokens) in cases {
        let fastest = |new_tokens| {
            let case = Case { num_prompts, group, prompt_tokens: PROMPT_TOKENS, new_tokens, temperature: 1.0 };
            (0..5).map(|_| seconds(&generator, &case, config.vocab_size)).fold(f64::INFINITY, f64::min)
        };
        let (prompts, whole) = (fastest(1), fastest(new_tokens));
        let decoded = num_prompts * group * (new_tokens - 1);
        println!(
            "{num_prompts:>2} prompts x {group} completions x {new_tokens:>3} tokens: {whole:.3} s, of which the prompts \
             {prompts:.3} s ({:.0} tokens/s) and decoding {:.3} s ({:.0} tokens/s)",
            (num_prompts * PROMPT_TOKENS) as f64 / prompts,
            whole - prompts,
            decoded as f64 / (whole - prompts),
        );
    }
}

fn seconds(generator: &Generator, case: &Case, vocabulary: usize) -> f64 {
    let requests = requests(case, vocabulary);
    let start = Instant::now();
    generator.generate(&requests, &mut |_, _| ()).expect("the requests fit the model");
    start.elapsed().as_secs_f64()
}

fn requests(case: &Case, vocabulary: usize) -> Vec<Request> {
    let token = |salt: usize, i: usize| ((i * i * 31 + i * 7 + salt * 97) % vocabulary) as u32;
    let request = |seed| Request {
        prompt: (0..case.prompt_tokens).map(|i| token(seed, i)).collect(),
        num_completions: case.group,
        seed: seed as u64,
        sampling: Sampling::plain(case.new_tokens, case.temperature, vec![]),
    };
    (0..case.num_prompts).map(request).collect()
}
