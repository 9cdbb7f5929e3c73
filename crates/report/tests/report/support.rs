//! Hand-made results, and the page of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use worldloom_report::{HTML_FILE, ReportConfig, ReportInput, run};
use worldloom_schema::{
    CalibrationBin, Difference, Evaluation, Example, Interval, Measures, Prediction, Predictor, PredictorKind, System,
};

pub(crate) fn interval(mean: f64, spread: f64) -> Interval {
    Interval { mean, low: mean - spread, high: mean + spread, n: 1200, clusters: 150 }
}

pub(crate) fn measures(share: f64) -> Measures {
    Measures {
        exact: interval(share, 0.015),
        normalised: interval(share + 0.01, 0.015),
        line_f1: interval(share + 0.1, 0.02),
        rubric: interval(100.0 * share + 20.0, 1.25),
        faults: BTreeMap::from([("missing_tag".into(), 0.01), ("cut_by_length".into(), 0.005)]),
        more: BTreeMap::from([("factuality".into(), interval(40.0, 1.0)), ("unit_f1".into(), interval(share, 0.01))]),
    }
}

pub(crate) fn predictor(name: &str, kind: PredictorKind, share: f64) -> Predictor {
    let by_class = ["empty", "error", "state"].map(|class| (class.to_string(), measures(share)));
    let by_family = ["list", "read"].map(|family| (family.to_string(), measures(share)));
    Predictor {
        name: name.into(),
        kind,
        asked: "v0, thinking and tags".into(),
        all: measures(share),
        by_class: by_class.into(),
        by_family: by_family.into(),
        by_domain: BTreeMap::from([("terminal".into(), measures(share))]),
        by_kind: BTreeMap::from([("text".into(), measures(share))]),
        by_axis: BTreeMap::new(),
        calibration: vec![
            CalibrationBin { confidence: 0.4, matches: 0.1, n: 600 },
            CalibrationBin { confidence: 0.9, matches: 0.7, n: 600 },
        ],
        lengths: BTreeMap::from([(16, 300), (64, 900)]),
        cut_share: Some(0.025),
    }
}

pub(crate) fn evaluation() -> Evaluation {
    let difference = |from: &str, to: &str, measure: &str, mean: f64| Difference {
        from: from.into(),
        to: to.into(),
        measure: measure.into(),
        turns: "all".into(),
        interval: interval(mean, 0.02),
    };
    let prediction = |text: &str, fault: Option<&str>| Prediction {
        text: text.into(),
        thinking: Some("cwd: ~".into()),
        normalised: false,
        rubric: Some(40.0),
        fault: fault.map(String::from),
    };
    Evaluation {
        seed: 7,
        turns: 1200,
        episodes: 150,
        class_shares: [("empty", 0.12), ("error", 0.25), ("state", 0.63)].map(|(k, v)| (k.to_string(), v)).into(),
        predictors: vec![
            predictor("base", PredictorKind::Stage, 0.0),
            predictor("a-stage-with-a-very-long-name", PredictorKind::Stage, 0.45),
            predictor("repeat last", PredictorKind::Baseline, 0.11),
        ],
        differences: vec![
            difference("base", "sft", "normalised", 0.21),
            difference("base", "sft", "line_f1", -0.05),
            difference("repeat last", "sft", "normalised", 0.3),
        ],
        examples: vec![Example {
            id: "abc#2".into(),
            domain: "terminal".into(),
            class: "state".into(),
            family: "read".into(),
            system: System { task_description: "Find the <fig>".into(), ..System::default() },
            history: vec![("ls".into(), "notes.txt".into())],
            action: "cat <notes.txt".into(),
            truth: "<b>fig</b>\nplum".into(),
            predictions: [
                ("base".to_string(), prediction("</pre><script>alert(1)</script>", Some("missing_tag"))),
                ("repeat last".to_string(), prediction("<b>fig</b>\npear", None)),
            ]
            .into(),
        }],
    }
}

pub(crate) fn config(title: &str) -> ReportConfig {
    ReportConfig { title: title.into() }
}

pub(crate) fn page(input: &ReportInput<'_>, title: &str) -> String {
    let out = tempfile::tempdir().unwrap();
    run(&config(title), input, out.path()).unwrap();
    fs_err::read_to_string(out.path().join(HTML_FILE)).unwrap()
}

pub(crate) fn folder_with(file: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    fs_err::write(&path, text).unwrap();
    (folder, path)
}

/// A page with this evaluation.
pub(crate) fn page_of(evaluation: &Evaluation) -> String {
    let folder = tempfile::tempdir().unwrap();
    evaluation.write(folder.path()).unwrap();
    page(&ReportInput { evaluation: Some(folder.path()), ..ReportInput::default() }, "run")
}
