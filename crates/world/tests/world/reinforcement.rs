//! The sampler and the scorer behind the trainer's traits.

use std::sync::atomic::AtomicBool;

use worldloom_judge::{BuiltinJudge, Judge, JudgeContext, JudgeOutcome};
use worldloom_model::Decoder;
use worldloom_render::{Control, Renderer};
use worldloom_schema::{Domain, Prompt, PromptTurn};
use worldloom_train::rl::{self, Completion, Group, RlConfig, Sampler, Score, Scorer};
use worldloom_train::{Control as RunControl, Job, Silent};
use worldloom_world::{Asked, GeneratorSampler, JudgeScorer, ScorerConfig, rl_prompts};

use crate::support::{Workplace, device, eval_episodes};

pub(crate) fn prompts(renderer: &Renderer) -> Vec<Prompt> {
    let episode = &eval_episodes()[1];
    let prompt = |turn: usize| Prompt {
        prompt_id: format!("{}#{turn}", episode.trajectory_id),
        trajectory_id: episode.trajectory_id.clone(),
        turn: turn as u32,
        domain: Domain::Terminal,
        task_group: "test".into(),
        tokens: renderer.render_prompt(episode, turn, Asked::Tagged.style(renderer)).unwrap().tokens,
        initial_state: None,
        history: episode.turns[..turn]
            .iter()
            .map(|turn| PromptTurn { action: turn.action.clone(), observation: turn.observation.clone() })
            .collect(),
        action: episode.turns[turn].action.clone(),
        observation: episode.turns[turn].observation.clone(),
        flags: Vec::new(),
    };
    (0..4).map(prompt).collect()
}

pub(crate) fn completion(renderer: &Renderer, text: &str, stopped: bool) -> Completion {
    let mut tokens = renderer.tokenizer().encode_trusted(text).unwrap();
    if stopped {
        tokens.push(renderer.tokenizer().require(Control::TurnEnd).unwrap());
    }
    let log_probs = vec![-1.0; tokens.len()];
    Completion { tokens, log_probs, stopped }
}

pub(crate) fn tagged(observation: &str) -> String {
    format!("<think>\ncwd: ~\n</think>\n<predicted_observation>\n{observation}\n</predicted_observation>")
}

struct Silence;

impl Judge for Silence {
    fn score(&self, _: &JudgeContext<'_>, _: &str, _: &str) -> JudgeOutcome {
        JudgeOutcome::Unavailable
    }
}

fn scorer(renderer: &Renderer, judge: Box<dyn Judge>) -> JudgeScorer {
    let config: ScorerConfig = serde_json::from_str(r#"{"rule": "next_state"}"#).unwrap();
    JudgeScorer::new(config, renderer.clone(), judge, prompts(renderer)).unwrap()
}

fn score(scorer: &mut JudgeScorer, prompt: usize, completions: &[Completion]) -> Vec<Score> {
    scorer.score(&[Group { prompt, completions }]).unwrap().remove(0)
}

#[test]
fn the_truth_earns_everything_and_part_of_it_less() {
    let renderer = Workplace::new().renderer();
    let texts = [tagged("a.txt\nb.txt"), tagged("a.txt")];
    let completions = texts.map(|text| completion(&renderer, &text, true));
    let scores = score(&mut scorer(&renderer, Box::new(BuiltinJudge)), 0, &completions);
    let Score::Scored { reward, parts } = &scores[0] else { panic!("{:?}", scores[0]) };
    assert_eq!(*reward, 25.0);
    let part = |name: &str| parts.iter().find(|(found, _)| found == name).unwrap().1;
    for dimension in ["format", "factuality", "consistency", "realism", "quality"] {
        assert_eq!(part(dimension), 5.0, "{dimension}");
    }
    assert_eq!([part("rubric"), part("rule"), part("match")], [25.0, 25.0, 1.0]);
    let less = scores[1].reward().unwrap();
    assert!(0.0 < less && less < 22.5, "{less}");
}

#[test]
fn faults_have_their_reason_and_reward_0() {
    let renderer = Workplace::new().renderer();
    let block = "<predicted_observation>\nx\n</predicted_observation>";
    let cases = [
        ("a.txt".to_string(), true, "missing_tag"),
        ("<predicted_observation>\na.txt".to_string(), true, "unclosed_tag"),
        (format!("{block}{block}"), true, "several_blocks"),
        (tagged("a.txt"), false, "cut_by_length"),
    ];
    let mut scorer = scorer(&renderer, Box::new(BuiltinJudge));
    for (text, stopped, expected) in cases {
        let found = score(&mut scorer, 0, &[completion(&renderer, &text, stopped)]).remove(0);
        assert_eq!(found, Score::PolicyFault { reason: expected.into(), parts: Vec::new() });
        assert_eq!(found.reward(), Some(0.0));
    }
}

#[test]
fn a_silent_judge_is_unavailable_and_no_fault() {
    let renderer = Workplace::new().renderer();
    let mut scorer = scorer(&renderer, Box::new(Silence));
    let completions = [tagged("a.txt"), "no tag".into()].map(|text| completion(&renderer, &text, true));
    let scores = score(&mut scorer, 0, &completions);
    assert_eq!(scores[0], Score::Unavailable { reason: "no_answer".into() });
    assert!(matches!(scores[1], Score::PolicyFault { .. }), "a fault is known without a judge");
}

#[test]
fn every_completion_is_scored_in_its_place_against_its_own_prompt() {
    let renderer = Workplace::new().renderer();
    let truths: Vec<String> = prompts(&renderer).iter().map(|prompt| tagged(&prompt.observation)).collect();
    let completions: Vec<Completion> = truths.iter().map(|text| completion(&renderer, text, true)).collect();
    let mut scorer = scorer(&renderer, Box::new(BuiltinJudge));
    let groups = [2, 0, 3, 1].map(|prompt| Group { prompt, completions: &completions });
    let scores = scorer.score(&groups).unwrap();
    for (group, scores) in groups.iter().zip(&scores) {
        let full: Vec<bool> = scores.iter().map(|score| score.reward() == Some(25.0)).collect();
        assert_eq!(full, (0..4).map(|index| index == group.prompt).collect::<Vec<_>>());
    }
    assert_eq!(scorer.text(&completions[0].tokens).unwrap(), truths[0]);
    let absent = [Group { prompt: 4, completions: &completions }];
    assert!(scorer.score(&absent).unwrap_err().to_string().contains("there are 4"));
}

#[test]
fn weights_of_reward_must_sum_to_1() {
    let renderer = Workplace::new().renderer();
    let config: ScorerConfig =
        serde_json::from_str(r#"{"rule":"next_state","reward":{"rubric_weight":0.9,"rule_weight":0.2}}"#).unwrap();
    assert!(JudgeScorer::new(config, renderer, Box::new(BuiltinJudge), Vec::new()).is_err());
}

#[test]
fn the_sampler_follows_the_weights_and_the_seed() {
    let workplace = Workplace::new();
    let renderer = workplace.renderer();
    let prompts = rl_prompts(&prompts(&renderer));
    let asked: Vec<_> = prompts.iter().collect();
    let (first, config) = workplace.decoder(1, 2048);
    let (second, _) = workplace.decoder(2, 2048);
    let mut sampler = GeneratorSampler::new(config, 8, 1.0, renderer.tokenizer().stop_tokens());
    let draw = |seed| rl::Draw { seed, version: 0, may_be_old: true };
    let mut sample = |decoder: &Decoder, seed| sampler.sample(decoder, &asked, 3, draw(seed)).unwrap();
    let groups = sample(&first, 9);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [3; 4]);
    assert!(groups.iter().flatten().all(|c| c.tokens.len() == c.log_probs.len() && c.tokens.len() <= 8));
    assert_eq!(sample(&first, 9), groups);
    assert_ne!(sample(&first, 10), groups);
    assert_ne!(sample(&second, 9), groups, "other weights, other completions");
    assert_ne!(groups[0][0].tokens, groups[0][1].tokens);
}

#[test]
fn rl_runs_on_the_sampler_and_scorer_and_agrees_with_their_log_probs() {
    let workplace = Workplace::new();
    let renderer = workplace.renderer();
    let prompts = prompts(&renderer);
    let device = device().autodiff();
    let model = workplace.model("start", 1, 2048);
    let (decoder, config) = worldloom_model::load(&model, &device).unwrap();
    let rl_config: RlConfig = serde_json::from_value(serde_json::json!({
        "steps": 2, "prompts_per_step": 2, "group_size": 3, "mini_batches": 1, "rows_per_micro_batch": 2,
        "max_completion_tokens": 8, "temperature": 1.0, "seed": 5, "normalisation": "group",
        "optimizer": {"learning_rate": 1e-3, "weight_decay": 0.0, "clip_norm": 1.0},
        "schedule": {"shape": "constant", "warmup_steps": 0}, "checkpoints": {"every": 1, "keep": 1},
        "max_fault_share_at_start": 1.0,
    }))
    .unwrap();
    let mut sampler = GeneratorSampler::new(config.clone(), 8, 1.0, renderer.tokenizer().stop_tokens());
    let mut scorer = scorer(&renderer, Box::new(BuiltinJudge));
    let mut partners = rl::Partners { sampler: &mut sampler, scorer: &mut scorer };
    let (out, stop) = (workplace.path("rl"), AtomicBool::new(false));
    fs_err::create_dir(&out).unwrap();
    let mut control = RunControl { observer: &mut Silent, stop: &stop };
    let job = Job { decoder, model: config, out: &out, device: &device };
    let report = rl::run(&rl_config, job, &rl_prompts(&prompts), &mut partners, &mut control).unwrap();
    assert_eq!(report.steps, 2);
    assert_eq!(report.figures["fault_share"], 1.0, "an untrained model closes no tag");
}
