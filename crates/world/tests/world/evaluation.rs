//! Evaluation: baselines, faults, intervals and determinism.

use std::path::Path;

use worldloom_judge::BuiltinJudge;
use worldloom_schema::{Evaluation, Predictor, PredictorKind, write_table};
use worldloom_world::evaluate::{EvaluateConfig, Inputs, PREDICTIONS_FILE, REPORT_FILE, Report, Stage, run};
use worldloom_world::{Asked, Result};

use crate::support::{Workplace, device, eval_episodes};

fn config() -> EvaluateConfig {
    let config =
        serde_json::json!({"seed": 7, "family": "compact", "max_new_tokens": 5, "resamples": 50, "examples": 4});
    serde_json::from_value(config).unwrap()
}

fn evaluate(workplace: &Workplace, config: &EvaluateConfig, stages: &[Stage], out: &Path) -> Result<Report> {
    let inputs = Inputs {
        stages,
        eval_pool: &workplace.path("eval.parquet"),
        training_pool: &workplace.path("cpt.parquet"),
        judge: &BuiltinJudge,
        device: &device(),
    };
    run(config, &inputs, out, &|_, _| ())
}

fn stage(workplace: &Workplace, name: &str, asked: Asked, seed: u64, positions: usize) -> Stage {
    Stage {
        name: name.into(),
        model: workplace.model(name, seed, positions),
        asked,
        is_ablation: name.ends_with("-only"),
    }
}

fn stages(workplace: &Workplace) -> Vec<Stage> {
    vec![
        stage(workplace, "base", Asked::Plain, 1, 2048),
        stage(workplace, "cpt", Asked::Plain, 2, 2048),
        stage(workplace, "sft", Asked::Tagged, 3, 2048),
    ]
}

fn predictor<'a>(evaluation: &'a Evaluation, name: &str) -> &'a Predictor {
    evaluation.predictors.iter().find(|predictor| predictor.name == name).unwrap()
}

#[test]
fn baselines_are_exact_on_hand_made_trajectories() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let evaluation = evaluate(&workplace, &config(), &[], out.path()).unwrap().evaluation;
    assert_eq!((evaluation.turns, evaluation.episodes), (8, 2));
    assert_eq!(evaluation.class_shares["state"], 3.0 / 8.0);
    let expected = [
        // `echo hi` answers `hi` twice in a row.
        ("repeat last", 1.0 / 8.0, [("echo", 1.0 / 2.0), ("empty", 0.0), ("error", 0.0), ("state", 0.0)]),
        // Both `echo`, the first `pwd`, `touch` and `rm`; `cat` was never seen and takes the most frequent of all.
        ("most frequent", 5.0 / 8.0, [("echo", 1.0), ("empty", 1.0), ("error", 0.0), ("state", 1.0 / 3.0)]),
        ("empty", 2.0 / 8.0, [("echo", 0.0), ("empty", 1.0), ("error", 0.0), ("state", 0.0)]),
        ("echo arguments", 2.0 / 8.0, [("echo", 1.0), ("empty", 0.0), ("error", 0.0), ("state", 0.0)]),
    ];
    assert_eq!(evaluation.predictors.len(), expected.len());
    for (name, all, classes) in expected {
        let predictor = predictor(&evaluation, name);
        assert_eq!(predictor.kind, PredictorKind::Baseline);
        assert_eq!(predictor.all.normalised.mean, all, "{name}");
        assert_eq!((predictor.all.exact.n, predictor.all.exact.clusters), (8, 2));
        assert!(predictor.all.faults.is_empty());
        for (class, share) in classes {
            assert_eq!(predictor.by_class[class].normalised.mean, share, "{name} on {class}");
        }
    }
    let empty = predictor(&evaluation, "empty");
    assert_eq!(empty.by_family["create"].rubric.mean, 100.0, "a right prediction has the full rubric");
    assert!(empty.by_family["list"].rubric.mean < 100.0);
    assert!(evaluation.differences.is_empty(), "without a stage there is nothing to compare");
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_any_number_of_threads() {
    let workplace = Workplace::new();
    let stages = stages(&workplace);
    let files = |threads: usize, active: usize| {
        let out = tempfile::tempdir().unwrap();
        let config = EvaluateConfig { temperature: 1.0, max_active_sequences: active, ..config() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| evaluate(&workplace, &config, &stages, out.path())).unwrap();
        ["evaluation.json", PREDICTIONS_FILE, REPORT_FILE].map(|file| fs_err::read(out.path().join(file)).unwrap())
    };
    assert_eq!(files(1, 64), files(2, 3));
}

#[test]
fn a_model_that_knows_nothing_has_faults_and_nothing_else() {
    let workplace = Workplace::new();
    let stages = [stage(&workplace, "sft", Asked::Tagged, 3, 2048), stage(&workplace, "rl", Asked::Tagged, 4, 24)];
    let out = tempfile::tempdir().unwrap();
    let evaluation = evaluate(&workplace, &config(), &stages, out.path()).unwrap().evaluation;
    for stage in ["sft", "rl"] {
        let all = &predictor(&evaluation, stage).all;
        assert!((all.faults.values().sum::<f64>() - 1.0).abs() < 1e-12, "{:?}", all.faults);
        assert_eq!([all.exact.mean, all.normalised.mean, all.line_f1.mean, all.rubric.mean], [0.0; 4]);
        assert_eq!(all.rubric.n, 8, "faults are in the means");
    }
    assert_eq!(predictor(&evaluation, "rl").all.faults["prompt_too_long"], 1.0);
    assert!(!predictor(&evaluation, "sft").all.faults.contains_key("prompt_too_long"));
    let example = &evaluation.examples[0];
    assert!(example.predictions["sft"].fault.is_some());
}

#[test]
fn stages_are_compared_with_the_one_before_and_the_last_with_each_baseline() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let evaluation = evaluate(&workplace, &config(), &stages(&workplace), out.path()).unwrap().evaluation;
    let mut pairs: Vec<(&str, &str)> =
        evaluation.differences.iter().map(|difference| (difference.from.as_str(), difference.to.as_str())).collect();
    pairs.dedup();
    let expected = [
        ("base", "cpt"),
        ("cpt", "sft"),
        ("repeat last", "sft"),
        ("most frequent", "sft"),
        ("empty", "sft"),
        ("echo arguments", "sft"),
    ];
    assert_eq!(pairs, expected);
    // Four measures and five dimensions on all turns, on four classes and on one domain.
    assert_eq!(evaluation.differences.len(), expected.len() * (4 + 5) * (1 + 4 + 1));
    for difference in &evaluation.differences {
        let mean = |name: &str| {
            let predictor = predictor(&evaluation, name);
            let measures = match difference.turns.as_str() {
                "all" => &predictor.all,
                turns => match turns.strip_prefix("domain:") {
                    Some(domain) => &predictor.by_domain[domain],
                    None => &predictor.by_class[turns],
                },
            };
            match difference.measure.as_str() {
                "exact" => Some(measures.exact.mean),
                "normalised" => Some(measures.normalised.mean),
                "line_f1" => Some(measures.line_f1.mean),
                "rubric" => Some(measures.rubric.mean),
                dimension => measures.more.get(dimension).map(|interval| interval.mean),
            }
        };
        let (Some(before), Some(after)) = (mean(&difference.from), mean(&difference.to)) else {
            assert!(evaluation.predictors[0].by_class.contains_key(&difference.turns), "only classes lack dimensions");
            continue;
        };
        assert!((difference.interval.mean - (after - before)).abs() < 2e-9, "nine decimals are kept: {difference:?}");
    }
    assert_eq!(Evaluation::read(out.path()).unwrap(), evaluation);
}

#[test]
fn fewer_turns_are_drawn_by_seed_and_are_the_same_for_all() {
    let workplace = Workplace::new();
    let stages = [stage(&workplace, "cpt", Asked::Plain, 2, 2048)];
    let ids = |seed: u64| {
        let out = tempfile::tempdir().unwrap();
        let config = EvaluateConfig { seed, max_turns: Some(3), ..config() };
        let report = evaluate(&workplace, &config, &stages, out.path()).unwrap();
        assert_eq!((report.counts["turns"], report.counts["turns_in_pool"]), (3, 8));
        for predictor in &report.evaluation.predictors {
            assert_eq!(predictor.all.exact.n, 3);
        }
        let text = fs_err::read_to_string(out.path().join(PREDICTIONS_FILE)).unwrap();
        let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string();
        text.lines().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(7), ids(7));
    assert!((0..20).any(|seed| ids(seed) != ids(7)), "another seed draws other turns");
}

#[test]
fn repeated_turns_are_left_out_and_examples_are_spread_over_classes() {
    let workplace = Workplace::new();
    let mut episodes = eval_episodes();
    episodes[0].turns[1].keep = Some(false);
    write_table(&workplace.path("eval.parquet"), episodes).unwrap();
    let out = tempfile::tempdir().unwrap();
    let report = evaluate(&workplace, &config(), &stages(&workplace)[..1], out.path()).unwrap();
    assert_eq!((report.counts["turns"], report.counts["turns_left_out"]), (7, 1));
    let mut classes: Vec<&str> = report.evaluation.examples.iter().map(|example| example.class.as_str()).collect();
    classes.sort_unstable();
    assert_eq!(classes, ["echo", "empty", "error", "state"]);
    for example in &report.evaluation.examples {
        assert_eq!(example.predictions.keys().collect::<Vec<_>>(), ["base"]);
        assert!(["first", "second"].map(Some).contains(&example.system.initial_state.as_deref()));
        let turn: usize = example.id.split_once('#').unwrap().1.parse().unwrap();
        assert_eq!(example.history.len(), turn);
    }
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_its_name() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let stages = stages(&workplace);
    let refuses = |config: &EvaluateConfig, word: &str| {
        let message = evaluate(&workplace, config, &stages[..1], out.path()).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    };
    refuses(&EvaluateConfig { resamples: 0, ..config() }, "resamples");
    refuses(&EvaluateConfig { temperature: -1.0, ..config() }, "temperature");
    refuses(&EvaluateConfig { templates: Some("mine".into()), ..config() }, "family");
    refuses(&EvaluateConfig { max_turns: Some(0), ..config() }, "max_turns");
    write_table(&workplace.path("eval.parquet"), Vec::<worldloom_schema::Trajectory>::new()).unwrap();
    refuses(&config(), "no turn to evaluate");
    assert!(serde_json::from_str::<EvaluateConfig>(r#"{"seed":1,"max_new_tokens":5,"sead":2}"#).is_err());
}

#[test]
fn every_predictor_has_its_dimensions_its_domains_and_the_figures_that_need_no_judge() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let evaluation = evaluate(&workplace, &config(), &stages(&workplace), out.path()).unwrap().evaluation;
    for predictor in &evaluation.predictors {
        for name in ["format", "factuality", "consistency", "realism", "quality"] {
            assert_eq!(predictor.all.more[name].n, 8, "{}: {name}", predictor.name);
        }
        let rubric: f64 = ["format", "factuality", "consistency", "realism", "quality"]
            .iter()
            .map(|name| predictor.all.more[*name].mean)
            .sum();
        assert!((rubric / 5.0 - predictor.all.rubric.mean).abs() < 1e-9, "the rubric is the mean of its dimensions");
        for name in ["unit_f1", "error_class", "valid", "length_ratio"] {
            assert!((0.0..=1.0).contains(&predictor.all.more[name].mean), "{}: {name}", predictor.name);
        }
        assert_eq!(predictor.by_domain.keys().collect::<Vec<_>>(), ["terminal"]);
        assert_eq!(predictor.by_kind["text"].more, predictor.all.more);
        // One of the eight turns is an error; whoever gives no prediction for it misses it.
        assert_eq!(predictor.all.more["error_recall"].n, 1, "{}", predictor.name);
        let calibrated: u64 = predictor.calibration.iter().map(|bin| bin.n).sum();
        let predicted = (8.0 * (1.0 - predictor.all.faults.values().sum::<f64>())).round() as u64;
        assert_eq!(calibrated, if predictor.kind == PredictorKind::Stage { predicted } else { 0 });
        assert!(predictor.calibration.is_sorted_by(|a, b| a.confidence <= b.confidence));
    }
    assert_eq!(
        predictor(&evaluation, "repeat last").all.more["unit_f1"].mean,
        predictor(&evaluation, "repeat last").all.line_f1.mean
    );
    assert!(evaluation.examples.iter().all(|example| example.domain == "terminal"));
}

#[test]
fn answers_are_counted_by_length_with_the_share_that_was_cut() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let mut stages = stages(&workplace);
    stages.push(stage(&workplace, "rl", Asked::Tagged, 4, 24));
    let evaluation = evaluate(&workplace, &config(), &stages, out.path()).unwrap().evaluation;
    let text = fs_err::read_to_string(out.path().join(PREDICTIONS_FILE)).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for name in ["base", "cpt", "sft"] {
        let answers = lines.iter().map(|line| &line["predictions"][name]);
        let answers: Vec<(u64, bool)> =
            answers.map(|answer| (answer["tokens"].as_u64().unwrap(), answer["stopped"].as_bool().unwrap())).collect();
        assert!(answers.iter().all(|(tokens, stopped)| *tokens <= 5 && (*stopped || *tokens == 5)), "{answers:?}");
        let predictor = predictor(&evaluation, name);
        let cut = answers.iter().filter(|(_, stopped)| !stopped).count();
        assert_eq!(predictor.cut_share, Some(cut as f64 / 8.0));
        let at_most_four = answers.iter().filter(|(tokens, _)| *tokens <= 4).count() as u64;
        let counted: u64 = predictor.lengths.iter().filter(|(bound, _)| **bound <= 4).map(|(_, number)| number).sum();
        assert_eq!((counted, predictor.lengths.values().sum::<u64>()), (at_most_four, 8));
    }
    for name in ["rl", "empty"] {
        let predictor = predictor(&evaluation, name);
        assert!(predictor.lengths.is_empty() && predictor.cut_share.is_none(), "{name} wrote no completion");
    }
}

#[test]
fn without_a_number_a_large_evaluation_shows_more_examples_of_all_domains() {
    let workplace = Workplace::new();
    let mut episodes: Vec<_> = std::iter::repeat_n(eval_episodes(), 100).flatten().collect();
    for episode in episodes.iter_mut().skip(190) {
        episode.domain = worldloom_schema::Domain::Swe;
    }
    write_table(&workplace.path("eval.parquet"), episodes).unwrap();
    let out = tempfile::tempdir().unwrap();
    let config = EvaluateConfig { examples: None, resamples: 2, ..config() };
    let examples = evaluate(&workplace, &config, &[], out.path()).unwrap().evaluation.examples;
    assert_eq!(examples.len(), 40, "one for 20 of the 800 turns");
    for class in ["echo", "empty", "error", "state"] {
        for domain in ["swe", "terminal"] {
            let found = examples.iter().filter(|example| example.class == class && example.domain == domain).count();
            assert_eq!(found, 5, "{class} of {domain}");
        }
    }
}

#[test]
fn an_ablation_is_compared_with_the_last_stage_and_is_no_step_between_stages() {
    let workplace = Workplace::new();
    let out = tempfile::tempdir().unwrap();
    let mut stages = stages(&workplace);
    stages.push(stage(&workplace, "rl-only", Asked::Tagged, 4, 2048));
    let evaluation = evaluate(&workplace, &config(), &stages, out.path()).unwrap().evaluation;
    assert_eq!(predictor(&evaluation, "rl-only").kind, PredictorKind::Ablation);
    let pairs: std::collections::BTreeSet<(&str, &str)> =
        evaluation.differences.iter().map(|difference| (difference.from.as_str(), difference.to.as_str())).collect();
    assert!(pairs.contains(&("cpt", "sft")) && pairs.contains(&("rl-only", "sft")));
    assert!(!pairs.iter().any(|(_, to)| *to == "rl-only"));
}
