//! Judges calibrated on predictions beside the truth.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use worldloom_judge::endpoint::scripted::{Answer, Seen, Server};
use worldloom_world::JudgePlace;
use worldloom_world::calibrate::{CalibrateInputs, Calibration, calibrate};

use crate::support::{Workplace, device, eval_episodes};

/// Predictions of three predictors for all eight turns: one is right but for `pwd`, one says `nonsense`, one has no tag.
fn write_predictions(path: &Path) {
    let mut lines = Vec::new();
    for episode in eval_episodes() {
        for (number, turn) in episode.turns.iter().enumerate() {
            let near = if turn.action == "pwd" { "/home/nearly" } else { turn.observation.as_str() };
            let said = |text: &str, fault: Option<&str>| json!({"text": text, "fault": fault});
            lines.push(json!({
                "id": format!("{}#{number}", episode.trajectory_id),
                "truth": turn.observation,
                "predictions": {
                    "near": said(near, None), "far": said("nonsense", None), "mute": said("", Some("missing_tag")),
                },
            }));
        }
    }
    let text: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs_err::write(path, text.concat()).unwrap();
}

fn evaluation(level: u8) -> Answer {
    let scores =
        ["format", "factuality", "consistency", "realism", "quality"].map(|name| format!("\"{name}\": {level}"));
    Answer::chat(&format!("<final_evaluation>{{\"scores\": {{{}}}}}</final_evaluation>", scores.join(", ")))
}

/// Knows nonsense when it sees it, and takes the first of two texts otherwise; `nearly` makes it stammer.
fn critic(seen: &Seen) -> Answer {
    let question = seen.body["messages"][1]["content"].as_str().unwrap();
    let nonsense = question.find("nonsense");
    match question.find("<second-") {
        Some(second) if nonsense.is_some_and(|nonsense| nonsense < second) => Answer::chat("<real>second</real>"),
        Some(_) => Answer::chat("<real>first</real>"),
        None if nonsense.is_some() => evaluation(1),
        None if question.contains("nearly") => Answer::chat("Well, well."),
        None => evaluation(5),
    }
}

fn run(workplace: &Workplace, config: &Value, folder: &Path) -> worldloom_world::Result<Calibration> {
    let predictions = workplace.path("predictions.jsonl");
    write_predictions(&predictions);
    let (stop, device) = (AtomicBool::new(false), device());
    let place = JudgePlace { folder, key: &|_| None, device: &device };
    let inputs = CalibrateInputs {
        predictions: &predictions,
        pool: &workplace.path("eval.parquet"),
        place: &place,
        stop: &stop,
        progress: &|_, _| (),
    };
    calibrate(&serde_json::from_value(config.clone()).unwrap(), &inputs, folder)
}

#[test]
fn blind_accuracy_levels_and_agreement_are_those_of_the_judges() {
    let workplace = Workplace::new();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(critic).unwrap();
    let endpoint = json!({"url": server.url(), "model": "critic", "attempts": 1, "first_pause_s": 0.001});
    let http = json!({"kind": "http", "endpoint": endpoint, "asking": {"tries": 2}});
    let config = json!({"seed": 3, "resamples": 200, "judges": {"code": {"kind": "builtin"}, "critic": http}});
    let found = run(&workplace, &config, folder.path()).unwrap();
    assert_eq!((found.turns, found.trajectories), (8, 2));
    assert_eq!(found.predictions, [("far".to_string(), 8), ("mute".to_string(), 0), ("near".to_string(), 8)].into());
    let critic = &found.judges["critic"];
    assert_eq!(critic.unscored, [("unparseable".to_string(), 2)].into(), "both `pwd` of `near`");
    assert_eq!(critic.by_predictor["near"].mean, 25.0);
    assert_eq!(critic.by_predictor["far"].mean, 5.0);
    assert_eq!(critic.rubric.unwrap().n, 14);
    let blind = critic.blind.as_ref().unwrap();
    // 8 of nonsense told in both orders, 2 of `nearly` by their place; 6 equal the truth.
    assert_eq!((blind.equal, blind.unanswered), (6, 0));
    assert!((blind.accuracy.unwrap().mean - 0.9).abs() < 1e-12);
    assert_eq!((blind.by_predictor["far"].mean, blind.by_predictor["near"].mean), (1.0, 0.5));
    assert!((blind.first_share.unwrap().mean - 0.6).abs() < 1e-12);
    assert_eq!(blind.by_domain["terminal"].clusters, 2);
    assert!(found.judges["code"].blind.is_none() && found.judges["code"].unscored.is_empty());
    assert_eq!(found.agreements.len(), 1);
    let agreement = &found.agreements[0];
    assert_eq!((agreement.one.as_str(), agreement.other.as_str()), ("code", "critic"));
    let predictions = agreement.predictions.unwrap();
    assert!(predictions.mean > 0.8 && predictions.n == 14 && predictions.clusters == 2, "{predictions:?}");
    assert_eq!(agreement.predictors, None, "two predictors rank nothing");
    assert!(found.table().iter().any(|line| line.contains("critic: 2 unscored, unparseable")), "{:?}", found.table());
    // What was answered is paid for once.
    let paid = server.seen().len();
    let again = run(&workplace, &config, folder.path()).unwrap();
    assert_eq!(again, found);
    assert_eq!(server.seen().len(), paid);
    let kept: Calibration =
        serde_json::from_slice(&fs_err::read(folder.path().join("calibration.json")).unwrap()).unwrap();
    // JSON numbers may come back with another last bit.
    assert_eq!(kept.table(), found.table());
}

#[test]
fn what_cannot_be_calibrated_is_named() {
    let workplace = Workplace::new();
    let folder = tempfile::tempdir().unwrap();
    let error = |config: Value| run(&workplace, &config, folder.path()).unwrap_err().to_string();
    assert!(error(json!({"seed": 1, "judges": {}})).contains("`judges`"));
    let builtin = json!({"code": {"kind": "builtin"}});
    let unknown = error(json!({"seed": 1, "judges": builtin, "predictors": ["sft"]}));
    assert!(unknown.contains("no `sft`") && unknown.contains("far, mute, near"), "{unknown}");
    assert!(error(json!({"seed": 1, "judges": builtin, "max_turns": 0})).contains("max_turns"));
    // Pools of another evaluation.
    let few = run(&workplace, &json!({"seed": 1, "judges": builtin, "max_turns": 3}), folder.path()).unwrap();
    assert_eq!(few.turns, 3);
    fs_err::copy(workplace.path("cpt.parquet"), workplace.path("eval.parquet")).unwrap();
    assert!(error(json!({"seed": 1, "judges": builtin})).contains("give the pools that were evaluated"));
}
