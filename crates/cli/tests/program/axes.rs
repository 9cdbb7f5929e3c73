//! The road of a rule-axis suite: recorded in a real bash, ingested, and evaluated.

use burn::tensor::Device;
use worldloom_judge::BuiltinJudge;
use worldloom_schema::{Trajectory, read_table};
use worldloom_world::evaluate::{self, Inputs};

use crate::support::succeeds;

#[test]
fn episodes_of_each_axis_are_recorded_ingested_and_evaluated_by_axis_and_distance() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let mut logs = Vec::new();
    for axis in ["control", "error", "long"] {
        let log = path(&format!("{axis}.jsonl"));
        let said = succeeds(&["record", "terminal", "--axis", axis, "--episodes", "5", "--seed", "3", "--out", &log]);
        assert!(said.contains("episodes     5"), "{said}");
        logs.push(log);
    }
    let artifact = path("ingested");
    let mut arguments = vec!["ingest", "--out", &artifact];
    arguments.extend(logs.iter().map(String::as_str));
    succeeds(&arguments);
    let pool = folder.path().join("ingested/trajectories.parquet");
    let episodes: Vec<Trajectory> = read_table(&pool).unwrap();
    assert_eq!(episodes.len(), 15);
    for episode in &episodes {
        let is_control = episode.source == "worldloom-terminal-control";
        assert_eq!(episode.system.simulation_instruction.is_some(), is_control, "{}", episode.source);
    }
    let flagged = |axis: &str| {
        let turns = episodes.iter().flat_map(|episode| &episode.turns);
        turns.filter(|turn| turn.flag("axis") == Some(axis)).count() as u64
    };

    let config = serde_json::json!({"seed": 7, "max_new_tokens": 5, "resamples": 20});
    let inputs =
        Inputs { stages: &[], eval_pool: &pool, training_pool: &pool, judge: &BuiltinJudge, device: &Device::flex() };
    let config = serde_json::from_value(config).unwrap();
    let found = evaluate::run(&config, &inputs, folder.path(), &|_, _| ()).unwrap().evaluation;
    let distances = [1, 2, 4, 8, 16].map(|distance: u32| format!("long, distance {distance:>2}"));
    for predictor in &found.predictors {
        let mut axes: Vec<&str> = predictor.by_axis.keys().map(String::as_str).collect();
        let mut expected = vec!["control", "error", "long"];
        expected.extend(distances.iter().map(String::as_str));
        axes.sort_unstable();
        expected.sort_unstable();
        assert_eq!(axes, expected, "{}", predictor.name);
        for axis in ["control", "error", "long"] {
            let measures = &predictor.by_axis[axis];
            assert_eq!(measures.normalised.n, flagged(axis), "{axis}");
            let checks = measures.more["checks"];
            assert!(checks.n > 0 && checks.mean >= measures.normalised.mean - 1e-9, "{axis}: {checks:?}");
        }
        assert!(distances.iter().all(|long| predictor.by_axis[long].normalised.n == 1));
    }
    let of = |name: &str| found.predictors.iter().find(|predictor| predictor.name == name).unwrap();
    assert_eq!(of("empty").by_axis["control"].normalised.mean, 0.0, "a condition that shows says something");
    assert!(of("empty").by_axis["long"].normalised.mean == 0.0 && of("empty").all.normalised.mean > 0.0);
    let table = worldloom_report::table(&found);
    assert!(table.contains("axis control") && table.contains("axis long") && !table.contains("distance"), "{table}");
}
