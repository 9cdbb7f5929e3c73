//! What is written is read back: every table type, shards by row number, artifacts whole or not at all.

use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use worldloom_schema::*;

fn trajectory(number: u64) -> Trajectory {
    let system = System {
        task_description: format!("task {number} 🦀"),
        action_space: Some(r#"[{"n":9007199254740993}]"#.into()),
        ..System::default()
    };
    let turn = |index: u32, observation: &str| Turn {
        index,
        action: "cat a\r\n".into(),
        action_kind: ActionKind::Command,
        observation: observation.into(),
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: Some(String::new()),
        trace: Some("cwd: ~".into()),
        is_error: (index > 0).then_some(true),
        truncated: false,
        flags: vec!["class:state".into(), "family:read".into()],
        keep_class: Some(KeepClass::Retrieval),
        keep: None,
    };
    let turns = vec![turn(0, ""), turn(1, "fig\u{2028}\n\0")];
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: "test".into(),
        source_path: "a.jsonl".into(),
        source_row: number,
        format: "chat".into(),
        domain: Domain::Terminal,
        task_group: "g".into(),
        licence: None,
        system,
        turns,
        outcome: Outcome { reward: Some(0.5), success: None },
        pool: Some(Pool::Sft),
    }
}

#[test]
fn trajectories_come_back_as_they_were_across_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(TRAJECTORY_FILE);
    let rows: Vec<_> = (0..2500).map(trajectory).collect();
    assert_eq!(write_table(&path, rows.clone()).unwrap(), 2500);
    assert_eq!(read_table::<Trajectory>(&path).unwrap(), rows);
    assert_eq!(TableReader::<Trajectory>::open(&path).unwrap().num_rows(), 2500);
    assert_eq!(rows[0].turns[0].flag("class"), Some("state"));
}

#[test]
fn row_groups_are_as_long_as_asked_for_or_end_where_the_writer_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(TRAJECTORY_FILE);
    let groups = |rows_per_group: Option<usize>| -> Vec<i64> {
        let writer = match rows_per_group {
            Some(rows) => TableWriter::create_with(&path, rows),
            None => TableWriter::create(&path),
        };
        let mut writer = writer.unwrap();
        for number in 0..2500 {
            writer.push(trajectory(number)).unwrap();
            if number == 2299 {
                writer.end_group().unwrap();
            }
        }
        writer.finish().unwrap();
        assert_eq!(read_table::<Trajectory>(&path).unwrap(), (0..2500).map(trajectory).collect::<Vec<_>>());
        let file = SerializedFileReader::new(fs_err::File::open(&path).unwrap().into_parts().0).unwrap();
        file.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
    };
    assert_eq!(groups(None), [1024, 1024, 252, 200]);
    assert_eq!(groups(Some(2048)), [2048, 252, 200]);
    assert_eq!(groups(Some(10_000)), [2300, 200]);
}

#[test]
fn a_prompt_says_what_stood_before_its_turn_and_that_an_observation_was_cut() {
    let mut episode = trajectory(0);
    episode.turns[1].truncated = true;
    let prompt = Prompt::of(&episode, 1, vec![7]);
    assert_eq!((prompt.prompt_id.as_str(), prompt.turn), (format!("{}#1", episode.trajectory_id).as_str(), 1));
    assert_eq!(prompt.history, [PromptTurn { action: "cat a\r\n".into(), observation: String::new() }]);
    assert_eq!((prompt.action.as_str(), prompt.observation.as_str()), ("cat a\r\n", "fig\u{2028}\n\0"));
    assert_eq!(prompt.flags, ["class:state", "family:read", "truncated"]);
    // Said once, and only where it is so.
    episode.turns[1].flags.push("truncated".into());
    assert_eq!(Prompt::of(&episode, 1, vec![7]).flags, prompt.flags);
    assert_eq!(Prompt::of(&episode, 0, vec![7]).flags, ["class:state", "family:read"]);
}

#[test]
fn every_table_type_has_a_schema_and_empty_tables_read() {
    fn check<T: Table + PartialEq + std::fmt::Debug>(folder: &Path) {
        let path = folder.join(T::NAME);
        write_table::<T>(&path, []).unwrap();
        assert_eq!(read_table::<T>(&path).unwrap(), []);
    }
    let folder = tempfile::tempdir().unwrap();
    check::<Trajectory>(folder.path());
    check::<Reject>(folder.path());
    check::<Prompt>(folder.path());
    check::<Rollout>(folder.path());
}

#[test]
fn a_table_that_is_cut_or_of_another_kind_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write_table(&path, [trajectory(0)]).unwrap();
    let error = read_table::<Reject>(&path).unwrap_err().to_string();
    assert!(error.contains("holds a trajectory table, expected a reject table"), "{error}");
    let bytes = fs_err::read(&path).unwrap();
    fs_err::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = read_table::<Trajectory>(&path).unwrap_err().to_string();
    assert!(error.contains("t.parquet") && error.contains("not a readable Parquet file"), "{error}");
    fs_err::write(&path, "").unwrap();
    assert!(read_table::<Trajectory>(&path).is_err());
}

fn row(number: u32) -> Row {
    let length = 3 + number % 5;
    Row {
        tokens: (0..length).map(|at| number * 10 + at).collect(),
        weights: (0..length).map(|at| if at > 1 { 1.0 } else { 0.0 }).collect(),
        positions: (0..length).collect(),
        segments: vec![0; length as usize],
        continues: vec![-1],
        sources: vec![format!("t{number}")],
    }
}

#[test]
fn shard_rows_are_read_by_number() {
    let folder = tempfile::tempdir().unwrap();
    for (name, numbers) in [("00000.shard", 0..150u32), ("00001.shard", 150..151)] {
        let mut writer = ShardWriter::create(&folder.path().join(name)).unwrap();
        numbers.clone().for_each(|number| writer.push(row(number)).unwrap());
        assert_eq!(writer.finish().unwrap(), numbers.len() as u64);
    }
    let set = ShardSet::open(folder.path()).unwrap();
    assert_eq!(set.len(), 151);
    for number in [150, 0, 63, 64, 149, 7] {
        assert_eq!(set.row(number).unwrap(), row(number as u32));
    }
    assert!(set.row(151).is_err());
}

#[test]
fn reasons_are_read_back_by_name_and_rows_without_are_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.shard");
    let mut writer = ShardWriter::create_explained(&path, None, &["context", "observation"]).unwrap();
    let reasons = |number: u32| row(number).weights.iter().map(|&weight| u8::from(weight > 0.0)).collect::<Vec<u8>>();
    (0..130).for_each(|number| writer.push_explained(row(number), reasons(number)).unwrap());
    for (wrong, words) in [(vec![0], "1 reasons, expected 5"), (vec![0, 0, 2, 1, 1], "reason 2 has no name")] {
        let error = writer.push_explained(row(2), wrong).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("row 130"), "{error}");
    }
    assert_eq!(writer.finish().unwrap(), 130);
    let set = ShardSet::open(folder.path()).unwrap();
    assert_eq!(set.reasons(), ["context", "observation"]);
    for number in [0, 63, 64, 129] {
        assert_eq!(set.row(number).unwrap(), row(number as u32));
        let names: Vec<&str> =
            reasons(number as u32).iter().map(|&r| ["context", "observation"][usize::from(r)]).collect();
        assert_eq!(set.row_reasons(number).unwrap(), Some(names));
    }
    assert!(set.row_reasons(130).is_err());
    let mut plain = ShardWriter::create(&path).unwrap();
    plain.push(row(1)).unwrap();
    assert!(plain.push_explained(row(1), vec![0; 4]).unwrap_err().to_string().contains("expected 0"));
    plain.finish().unwrap();
    let set = ShardSet::open(folder.path()).unwrap();
    assert_eq!((set.row_reasons(0).unwrap(), set.reasons().len(), set.row(0).unwrap()), (None, 0, row(1)));
}

#[test]
fn a_row_that_breaks_the_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = ShardWriter::create(&folder.path().join("a.shard")).unwrap();
    let mut bad = row(4);
    bad.weights[0] = 1.0;
    let error = writer.push(bad).unwrap_err().to_string();
    assert!(error.contains("nothing predicts it"), "{error}");
    let mut bad = row(4);
    bad.weights.pop();
    assert!(writer.push(bad).is_err());
}

#[test]
fn a_damaged_shard_is_an_error_at_every_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.shard");
    let mut writer = ShardWriter::create(&path).unwrap();
    (0..5).for_each(|number| writer.push(row(number)).unwrap());
    writer.finish().unwrap();
    let bytes = fs_err::read(&path).unwrap();
    for length in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let cut = folder.path().join("cut.shard");
        fs_err::write(&cut, &bytes[..length]).unwrap();
        let error = Shard::open(&cut).err().expect("a cut shard must not open").to_string();
        assert!(error.contains("cut.shard"), "{error}");
    }
}

#[test]
fn an_artifact_appears_whole_and_replaces_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a");
    assert!(matches!(Artifact::open_any(&target), Err(Error::NoManifest { .. })));
    for text in ["one", "two"] {
        let writer = ArtifactWriter::create(&target).unwrap();
        fs_err::write(writer.path().join("x.txt"), text).unwrap();
        writer.finish(Manifest::new("letters", 1)).unwrap();
        let artifact = Artifact::open(&target, "letters").unwrap();
        artifact.verify(true).unwrap();
        assert_eq!(fs_err::read_to_string(target.join("x.txt")).unwrap(), text);
    }
    let dropped = ArtifactWriter::create(&target).unwrap();
    drop(dropped);
    assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    fs_err::write(target.join("x.txt"), "TWO").unwrap();
    let artifact = Artifact::open(&target, "letters").unwrap();
    artifact.verify(false).unwrap();
    assert!(artifact.verify(true).is_err());
    assert!(Artifact::open(&target, "numbers").is_err());
}

#[test]
fn the_hash_of_json_does_not_depend_on_the_order_of_keys() {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(hash_json(&parse(r#"{"a":1,"b":{"c":2,"d":3}}"#)), hash_json(&parse(r#"{"b":{"d":3,"c":2},"a":1}"#)));
    assert_ne!(hash_json(&parse(r#"{"a":1}"#)), hash_json(&parse(r#"{"a":2}"#)));
}

#[test]
fn joined_tables_are_the_rows_of_all_in_order_and_read_like_one() {
    let folder = tempfile::tempdir().unwrap();
    let reject = |row: u64| worldloom_schema::Reject {
        source: "s".into(),
        file: "f".into(),
        row,
        byte_offset: 0,
        rule: "r".into(),
        detail: "x".repeat(row as usize % 50),
    };
    let sizes = [3000_u64, 0, 1, 1024];
    let (mut paths, mut expected) = (Vec::new(), Vec::new());
    for (at, size) in sizes.iter().enumerate() {
        let path = folder.path().join(format!("{at}.parquet"));
        let rows: Vec<_> = (0..*size).map(|row| reject(row + 10_000 * at as u64)).collect();
        worldloom_schema::write_table(&path, rows.clone()).unwrap();
        expected.extend(rows);
        paths.push(path);
    }
    let out = folder.path().join("all.parquet");
    let rows = worldloom_schema::concat_tables::<worldloom_schema::Reject>(&paths, &out).unwrap();
    assert_eq!(rows, sizes.iter().sum::<u64>());
    assert_eq!(worldloom_schema::read_table::<worldloom_schema::Reject>(&out).unwrap(), expected);
    assert_eq!(worldloom_schema::concat_tables::<worldloom_schema::Reject>(&[], &out).unwrap(), 0);
    assert!(worldloom_schema::read_table::<worldloom_schema::Reject>(&out).unwrap().is_empty());
}

/// The columns that version 1 had.
#[derive(serde::Serialize, serde::Deserialize)]
struct FirstRollout {
    step: u64,
    prompt_id: String,
    sample: u32,
    tokens: Vec<u32>,
    sampled: Vec<bool>,
    sampler_log_probs: Vec<f32>,
    trainer_log_probs: Vec<f32>,
    stopped: bool,
    outcome: RolloutOutcome,
    scores: Vec<f64>,
    score_names: Vec<String>,
    reward: Option<f64>,
    advantage: Option<f64>,
    staleness: u32,
    text: Option<String>,
}

impl Table for FirstRollout {
    const NAME: &'static str = "rollout";
    const VERSION: u32 = 1;
}

#[test]
fn rollouts_of_the_first_version_still_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step-000001.parquet");
    let first = FirstRollout {
        step: 1,
        prompt_id: "p#0".into(),
        sample: 2,
        tokens: vec![1, 2],
        sampled: vec![false, true],
        sampler_log_probs: vec![-0.5],
        trainer_log_probs: vec![-0.5],
        stopped: true,
        outcome: RolloutOutcome::Scored,
        scores: vec![5.0],
        score_names: vec!["format".into()],
        reward: Some(25.0),
        advantage: None,
        staleness: 0,
        text: Some("a".into()),
    };
    write_table(&path, [first]).unwrap();
    let read: Rollout = read_table(&path).unwrap().remove(0);
    assert_eq!((read.prompt_id.as_str(), read.text.as_deref(), read.reward), ("p#0", Some("a"), Some(25.0)));
    assert_eq!((read.thinking, read.label, read.reason), (None, None, None));
}
