//! Decontamination: a planted leak is caught, in any form of evaluation set.

use crate::common::{Output, config, crowd, curate, only_cpt, trajectory, turn, write};
use std::path::PathBuf;
use worldloom_curate::{CurateConfig, Decontaminate};
use worldloom_schema::{Pool, Trajectory};

const QUESTION: &str =
    "the grey heron stood in the shallow water beside the old mill and waited for the small fish to come back at noon";

fn against(paths: &[PathBuf]) -> CurateConfig {
    let decontaminate = Decontaminate {
        against: paths.into(),
        own_evaluation: false,
        run_words: 13,
        longest_run: 13,
        largest_share: 0.5,
    };
    CurateConfig { decontaminate: Some(decontaminate), ..only_cpt() }
}

/// A leak in the middle of other text, one that is too short, and clean ones.
fn trajectories() -> Vec<Trajectory> {
    let around = |text: &str| format!("before {} after", text);
    let short = QUESTION.split(' ').take(12).collect::<Vec<_>>().join(" ");
    let one = |state: &str, text: &str| trajectory("g", state, vec![turn("cat fig", text), turn("ls", "plum pear")]);
    vec![
        one("leak", &around(&QUESTION.to_uppercase().replace(' ', "\n"))),
        one("short", &around(&short)),
        one("clean", "nothing of it"),
    ]
}

fn check(file: &str, content: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    fs_err::write(&path, content).unwrap();
    for set in [path, folder.path().to_path_buf()] {
        let output = curate(&against(&[set]), &trajectories()).unwrap();
        assert_eq!(output.states(), ["clean", "short"], "{file}");
        assert_eq!(output.dropped("evaluation_overlap"), 1, "{file}");
    }
}

#[test]
fn a_planted_leak_is_caught_in_every_form_of_evaluation_set() {
    check("set.txt", &format!("Some words first. {QUESTION}."));
    check("rows.jsonl", &format!("{{\"question\": \"{QUESTION}\", \"n\": 3}}\n\n{{\"question\": \"x\"}}\n"));
    check("list.json", &format!("[{{\"deep\": [{{\"text\": \"{QUESTION}\"}}]}}]"));
    let row = serde_json::json!({ "prompt": ["### Turn 1"], "response": [QUESTION], "system_str": "cat fig before" });
    check("terminal_test.jsonl", &row.to_string());
}

#[test]
fn trajectories_and_pools_are_evaluation_sets_by_words_and_by_task_group() {
    let folder = tempfile::tempdir().unwrap();
    let held = trajectory("held", "e", vec![turn("x", QUESTION), turn("y", "z")]);
    write(folder.path(), "eval.parquet", &[held]);
    write(folder.path(), "cpt.parquet", &[trajectory("g", "trained", vec![turn("ls", "plum pear"), turn("a", "b")])]);
    let mut all = trajectories();
    all.push(trajectory("held", "same group", vec![turn("a", "b"), turn("c", "d")]));
    let output = curate(&against(&[folder.path().into()]), &all).unwrap();
    assert_eq!(output.states(), ["clean", "short"], "of pools only the evaluation pool is read");
    assert_eq!((output.dropped("evaluation_overlap"), output.dropped("evaluation_group")), (1, 1));
}

#[test]
fn the_share_of_words_counts_where_no_run_is_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.txt");
    fs_err::write(&path, QUESTION).unwrap();
    let limits = |longest_run: u64, largest_share: f64| {
        let mut config = against(std::slice::from_ref(&path));
        let decontaminate = config.decontaminate.as_mut().unwrap();
        (decontaminate.longest_run, decontaminate.largest_share) = (longest_run, largest_share);
        curate(&config, &trajectories()).unwrap().dropped("evaluation_overlap")
    };
    // The leak has 23 words of the question among 30.
    assert_eq!((limits(23, 1.0), limits(24, 1.0)), (1, 0));
    assert_eq!((limits(100, 0.76), limits(100, 0.77)), (1, 0));
}

#[test]
fn training_is_compared_with_the_evaluation_pool_of_the_same_run() {
    let mut all = crowd(6, 4);
    let held = |state: &str| trajectory("group-00", state, vec![turn("x", QUESTION), turn("y", "z")]);
    all.push(held("held"));
    all.push(trajectory("group-03", "leak", vec![turn("other", &format!("so {QUESTION}")), turn("more", "words")]));
    let mut config = CurateConfig { eval_groups: vec!["group-00".into()], eval_share: 0.0, ..config() };
    config.decontaminate = Some(Decontaminate {
        against: vec![],
        own_evaluation: true,
        run_words: 13,
        longest_run: 13,
        largest_share: 1.0,
    });
    let output = curate(&config, &all).unwrap();
    let names = |pool: Pool| -> Vec<String> {
        output.pools[&pool].iter().filter_map(|one| one.system.initial_state.clone()).collect()
    };
    assert_eq!(output.dropped("pool_overlap"), 1);
    assert!(names(Pool::Eval).contains(&"held".to_string()), "evaluation keeps its own");
    assert!(!output.states().contains(&"leak".to_string()));
}

#[test]
fn evaluation_sets_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let fails = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs_err::write(&path, content).unwrap();
        let result: Result<Output, _> = curate(&against(&[path]), &trajectories());
        result.err().unwrap().to_string()
    };
    assert!(fails("broken.jsonl", "{\"a\": \"b\"}\n{\"a\"\n").contains("broken.jsonl`, row 1: "));
    assert!(fails("empty.txt", " \n").contains("empty.txt` holds no text"));
    assert!(fails("no.parquet", "PAR1").contains("no.parquet"));
    let missing = curate(&against(&["/nowhere/set.txt".into()]), &trajectories()).err().unwrap().to_string();
    assert!(missing.contains("/nowhere/set.txt"), "{missing}");
    let mut config = against(&[]);
    assert!(curate(&config, &trajectories()).err().unwrap().to_string().contains("or own_evaluation = true"));
    config.decontaminate.as_mut().unwrap().own_evaluation = true;
    config.decontaminate.as_mut().unwrap().run_words = 0;
    assert!(curate(&config, &trajectories()).err().unwrap().to_string().contains("expected 1 or more"));
}
