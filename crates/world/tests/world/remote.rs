//! RL with a remote engine: a scripted server with vLLM's fields that loads what is handed over.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

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

struct Kept(Vec<RlStepMetrics>);

impl Observer for Kept {
    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        self.0.push(metrics.clone());
    }
}

/// Two steps of RL; what each told, and the paths the server was asked for.
fn train(spoil: &'static str) -> (Result<Vec<RlStepMetrics>, String>, Vec<String>) {
    let workplace = Workplace::new();
    let renderer = workplace.renderer();
    let folder = Mutex::new(None);
    let server = Server::start(move |seen| serve(seen, &folder, spoil)).unwrap();
    let (prompts, taken) = select_prompts(prompts(&renderer), &several()).unwrap();
    assert!(taken.taken == 4 && taken.several_turns == 1 && taken.prefix_overlap > 0.3, "{taken:?}");
    let device = device().autodiff();
    let (decoder, config) = worldloom_model::load(&workplace.model("start", 1, 2048), &device).unwrap();
    let rl_config: RlConfig = serde_json::from_value(json!({
        "steps": 2, "prompts_per_step": 2, "group_size": 3, "mini_batches": 1, "rows_per_micro_batch": 2,
        "max_completion_tokens": 8, "temperature": 0.8, "seed": 5, "normalisation": "group", "truth_nll": 0.1,
        "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.0, "clip_norm": 1.0},
        "schedule": {"shape": "constant", "warmup_steps": 0}, "checkpoints": {"every": 1, "keep": 1},
        "max_fault_share_at_start": 1.0,
    }))
    .unwrap();
    let remote: RemoteConfig = serde_json::from_value(json!({
        "endpoint": server.config("policy"),
        "reload": {"path": "/update_weights_from_disk", "field": "model_path"},
    }))
    .unwrap();
    let endpoint = BlockingEndpoint::new(Endpoint::new(remote.endpoint.clone(), None).unwrap()).unwrap();
    let sampling = (8, 0.8, renderer.tokenizer().stop_tokens());
    let mut sampler =
        RemoteSampler::new(remote, endpoint, config.clone(), &workplace.path("handed-over"), sampling).unwrap();
    let mut ids = rl_prompts(&prompts);
    assert_eq!(add_truths(&mut ids, &prompts, &renderer, 200).unwrap(), 0);
    let scorer = serde_json::from_value(json!({"rule": "next_state"})).unwrap();
    let mut scorer = JudgeScorer::new(scorer, renderer, Box::new(BuiltinJudge), prompts).unwrap();
    let mut partners = rl::Partners { sampler: &mut sampler, scorer: &mut scorer };
    let (out, stop, mut kept) = (workplace.path("rl"), AtomicBool::new(false), Kept(Vec::new()));
    let mut control = Control { observer: &mut kept, stop: &stop };
    let job = Job { decoder, model: config, out: &out, device: &device };
    let outcome = rl::run(&rl_config, job, &ids, &mut partners, &mut control);
    let chain = |error: worldloom_train::Error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    let paths = server.seen().iter().map(|seen| seen.path.clone()).collect();
    (outcome.map(|_| kept.0).map_err(chain), paths)
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
    let reloads = paths.iter().filter(|path| *path == "/update_weights_from_disk").count();
    assert_eq!((reloads, paths.len()), (2, 2 + 2 * 2));
}

#[test]
fn a_server_that_answers_something_else_is_refused_with_the_reason() {
    for (spoil, reason) in [
        ("ids", "no token ids"),
        ("prompt", "other tokens"),
        ("length", "1 log-probs"),
        ("policy", "more than 0.0001 apart"),
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
    for extra in [json!({"top_p": 0.9}), json!({"top_k": 20}), json!({"min_p": 0.1})] {
        let remote: RemoteConfig =
            serde_json::from_value(json!({"endpoint": server.config("m"), "extra": extra})).unwrap();
        let endpoint = BlockingEndpoint::new(Endpoint::new(remote.endpoint.clone(), None).unwrap()).unwrap();
        let sampler = RemoteSampler::new(remote, endpoint, model.clone(), &workplace.path("w"), (8, 1.0, vec![1]));
        assert!(sampler.err().unwrap().to_string().contains("whole distribution"));
    }
}
