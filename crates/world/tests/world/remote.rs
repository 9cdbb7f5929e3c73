//! RL with a remote engine: a scripted server with vLLM's fields that loads what is handed over.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use worldloom_judge::BuiltinJudge;
use worldloom_judge::endpoint::scripted::{Answer, Seen, Server};
use worldloom_judge::endpoint::{BlockingEndpoint, Endpoint};
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_train::rl::{self, RlConfig, RlStepMetrics};
use worldloom_train::{Control, Job, Observer};
use worldloom_world::{JudgeScorer, PromptConfig, RemoteConfig, RemoteSampler, add_truths, rl_prompts, select_prompts};

use crate::reinforcement::prompts;
use crate::support::{Workplace, device};

/// Answers as vLLM does, with the weights of the folder it was told last.
fn serve(seen: &Seen, folder: &Mutex<Option<PathBuf>>, spoil: &str) -> Answer {
    if seen.path == "/update_weights_from_disk" {
        *folder.lock().unwrap() = seen.body["model_path"].as_str().map(PathBuf::from);
        return Answer::json(&json!({"success": true}));
    }
    let folder = folder.lock().unwrap().clone().unwrap();
    let (decoder, config) = worldloom_model::load(&folder, &device()).unwrap();
    let number = |name: &str| seen.body[name].as_u64().unwrap();
    let ids = |name: &str| -> Vec<u32> { serde_json::from_value(seen.body[name].clone()).unwrap() };
    let temperature = seen.body["temperature"].as_f64().unwrap() as f32;
    let request = Request {
        prompt: ids("prompt"),
        num_completions: number("n") as usize,
        seed: number("seed"),
        sampling: Sampling::plain(number("max_tokens") as usize, temperature, ids("stop_token_ids")),
    };
    let generator = Generator::new(&decoder, &config).unwrap();
    let group = generator.generate(&[request], &mut |_, _| {}).unwrap().remove(0);
    let choice = |(index, completion): (usize, &worldloom_model::generate::Completion)| {
        let mut choice = json!({
            "index": index, "text": "", "finish_reason": if completion.stopped { "stop" } else { "length" },
            "token_ids": completion.tokens, "prompt_token_ids": ids("prompt"),
            "logprobs": {"tokens": [], "token_logprobs": completion.log_probs},
        });
        match spoil {
            "ids" => choice["token_ids"] = Value::Null,
            "prompt" => choice["prompt_token_ids"] = json!([1, 2]),
            "length" => choice["logprobs"]["token_logprobs"] = json!([-1.0]),
            "policy" => {
                choice["logprobs"]["token_logprobs"] =
                    json!(completion.log_probs.iter().map(|l| l - 0.01).collect::<Vec<_>>())
            }
            _ => {}
        }
        choice
    };
    let choices: Vec<Value> = group.iter().enumerate().map(choice).collect();
    Answer::json(&json!({"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
}

struct Kept<'a> {
    steps: Vec<RlStepMetrics>,
    stop_after: Option<u64>,
    stop: &'a AtomicBool,
}

impl Observer for Kept<'_> {
    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        self.steps.push(metrics.clone());
        if self.stop_after == Some(metrics.step) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn rl_config(changes: Value) -> RlConfig {
    let mut config = json!({
        "steps": 2, "prompts_per_step": 2, "group_size": 3, "mini_batches": 1, "rows_per_micro_batch": 2,
        "max_completion_tokens": 8, "temperature": 0.8, "seed": 5, "normalisation": "group", "truth_nll": 0.1,
        "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.0, "clip_norm": 1.0},
        "schedule": {"shape": "constant", "warmup_steps": 0}, "checkpoints": {"every": 1, "keep": 1},
        "max_fault_share_at_start": 1.0,
    });
    for (name, value) in changes.as_object().unwrap() {
        config[name] = value.clone();
    }
    serde_json::from_value(config).unwrap()
}

/// What each step of a call told, and the paths that its server was asked for.
type Told = (Result<Vec<RlStepMetrics>, String>, Vec<String>);

/// RL in the workplace's `rl`, up to a step or to its end, with a server that was just started and has no weights; `every`
/// so many steps it is given new ones.
fn train_in(
    workplace: &Workplace,
    config: &RlConfig,
    every: u64,
    stop_after: Option<u64>,
    spoil: &'static str,
) -> Told {
    let renderer = workplace.renderer();
    let folder = Mutex::new(None);
    let server = Server::start(move |seen| serve(seen, &folder, spoil)).unwrap();
    let (prompts, taken) = select_prompts(prompts(&renderer), &several()).unwrap();
    assert!(taken.taken == 4 && taken.several_turns == 1 && taken.prefix_overlap > 0.3, "{taken:?}");
    let device = device().autodiff();
    let start = workplace.path("start");
    if !start.exists() {
        workplace.model("start", 1, 2048);
    }
    let (decoder, model) = worldloom_model::load(&start, &device).unwrap();
    let remote: RemoteConfig = serde_json::from_value(json!({
        "endpoint": server.config("policy"),
        "reload": {"path": "/update_weights_from_disk", "field": "model_path", "every": every},
    }))
    .unwrap();
    let endpoint = BlockingEndpoint::new(Endpoint::new(remote.endpoint.clone(), None).unwrap()).unwrap();
    let sampling = (8, 0.8, renderer.tokenizer().stop_tokens());
    let mut sampler =
        RemoteSampler::new(remote, endpoint, model.clone(), &workplace.path("handed-over"), sampling).unwrap();
    let mut ids = rl_prompts(&prompts);
    assert_eq!(add_truths(&mut ids, &prompts, &renderer, 200).unwrap(), 0);
    let scorer = serde_json::from_value(json!({"rule": "next_state"})).unwrap();
    let mut scorer = JudgeScorer::new(scorer, renderer, Box::new(BuiltinJudge), prompts).unwrap();
    let mut partners = rl::Partners { sampler: &mut sampler, scorer: &mut scorer };
    let (out, stop) = (workplace.path("rl"), AtomicBool::new(false));
    let mut kept = Kept { steps: Vec::new(), stop_after, stop: &stop };
    let mut control = Control { observer: &mut kept, stop: &stop };
    let job = Job { decoder, model, out: &out, device: &device };
    let outcome = rl::run(config, job, &ids, &mut partners, &mut control);
    let chain = |error: worldloom_train::Error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    let paths = server.seen().iter().map(|seen| seen.path.clone()).collect();
    (outcome.map(|_| kept.steps).map_err(chain), paths)
}

/// Two steps of RL.
fn train(spoil: &'static str) -> Told {
    train_in(&Workplace::new(), &rl_config(json!({})), 1, None, spoil)
}

fn num_reloads(paths: &[String]) -> usize {
    paths.iter().filter(|path| *path == "/update_weights_from_disk").count()
}

/// What a run leaves: weights, figures without the clock, and the rollouts of each step.
fn left(workplace: &Workplace, steps: u64) -> (Vec<u8>, Vec<Value>, Vec<Vec<u8>>) {
    let out = workplace.path("rl");
    let figures = fs_err::read_to_string(out.join("metrics.jsonl")).unwrap();
    let without_clock = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("clock");
        line
    };
    let rollouts = (1..=steps).map(|step| fs_err::read(out.join(format!("rollouts/step-{step:06}.parquet"))).unwrap());
    let weights = fs_err::read(out.join("model/model.safetensors")).unwrap();
    (weights, figures.lines().map(without_clock).collect(), rollouts.collect())
}

#[test]
fn a_run_with_a_server_goes_on_as_if_neither_had_been_away() {
    let validation = json!({"every": 3, "held_out_prompts": 1});
    for changes in [
        json!({"steps": 5}),
        json!({"steps": 5, "ahead": true, "max_staleness": 2}),
        json!({"steps": 5, "validation": validation}),
    ] {
        let config = rl_config(changes);
        let straight = Workplace::new();
        let (steps, paths) = train_in(&straight, &config, 2, None, "nothing");
        let staleness: Vec<Option<u64>> = steps.unwrap().iter().map(|step| step.staleness).collect();
        let expected: [u64; 5] = match (config.ahead, config.validation.is_some()) {
            // Sampled with the weights that the step before starts from: 0, 0, 1, 2, 3, of which 0 and 2 are given.
            (true, _) => [0, 1, 2, 1, 2],
            // Measured after step 3, with its weights: the batch of step 4 is theirs, too.
            (_, true) => [0, 1, 0, 0, 0],
            _ => [0, 1, 0, 1, 0],
        };
        assert_eq!(staleness, expected.map(Some));
        let before = num_reloads(&paths);
        for at in 1..5 {
            let stopped = Workplace::new();
            train_in(&stopped, &config, 2, Some(at), "nothing").0.unwrap();
            let (_, paths) = train_in(&stopped, &config, 2, None, "nothing");
            assert!(num_reloads(&paths) <= before);
            assert_eq!(left(&stopped, 5), left(&straight, 5), "stopped after step {at}");
        }
    }
}

fn several() -> PromptConfig {
    PromptConfig { several_turns: true, ..PromptConfig::default() }
}

#[test]
fn a_server_that_loads_what_it_is_handed_samples_the_policy_itself() {
    let (outcome, paths) = train("nothing");
    let steps = outcome.unwrap();
    assert_eq!(steps.len(), 2);
    // The weights move between the steps: log-probs of the first weights would be refused in the second.
    assert!(steps.iter().all(|step| step.sampler_gap <= 1e-4 && step.truth_nll > 0.0), "{steps:?}");
    assert_eq!((num_reloads(&paths), paths.len()), (2, 2 + 2 * 2));
}

#[test]
fn a_server_that_answers_something_else_is_refused_with_the_reason() {
    for (spoil, reason) in [
        ("ids", "no token ids"),
        ("prompt", "other tokens"),
        ("length", "1 log-probs"),
        ("policy", "more than 0.001 apart"),
    ] {
        let error = train(spoil).0.unwrap_err();
        assert!(error.contains(reason), "{spoil}: {error}");
    }
}

#[test]
fn one_turn_per_trajectory_is_enforced_and_long_prompts_are_left_out() {
    let workplace = Workplace::new();
    let renderer = workplace.renderer();
    let error = select_prompts(prompts(&renderer), &PromptConfig::default()).unwrap_err().to_string();
    assert!(error.contains("prompts.several_turns") && error.contains("1 trajectories"), "{error}");
    let one = vec![prompts(&renderer).remove(0)];
    assert_eq!(select_prompts(one.clone(), &PromptConfig::default()).unwrap().1.taken, 1);
    let short = PromptConfig { max_tokens: 3, ..PromptConfig::default() };
    assert_eq!(select_prompts(one, &short).unwrap().1.too_long, 1);
}

#[test]
fn truncated_sampling_is_refused() {
    let server = Server::start(|_| Answer::HangUp).unwrap();
    let workplace = Workplace::new();
    let (_, model) = workplace.decoder(1, 64);
    for extra in [
        json!({"top_p": 0.9}),
        json!({"top_k": 20}),
        json!({"top_k": 1}),
        json!({"min_p": 0.1}),
        json!({"temperature": 0.0}),
        json!({"repetition_penalty": 1.1}),
        json!({"logit_bias": {"5": -100}}),
        json!({"use_beam_search": true}),
    ] {
        let remote: RemoteConfig =
            serde_json::from_value(json!({"endpoint": server.config("m"), "extra": extra})).unwrap();
        let endpoint = BlockingEndpoint::new(Endpoint::new(remote.endpoint.clone(), None).unwrap()).unwrap();
        let sampler = RemoteSampler::new(remote, endpoint, model.clone(), &workplace.path("w"), (8, 1.0, vec![1]));
        assert!(sampler.err().unwrap().to_string().contains("whole distribution"));
    }
}
