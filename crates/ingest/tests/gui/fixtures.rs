//! One fixture for each format, written by us, with what must come out of it.

use std::path::{Path, PathBuf};

use crate::common::{config, ingest};
use crate::show::show;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gui")
}

fn check(name: &str) {
    let output = ingest(&config(&[folder().join("fixtures").join(name)])).unwrap();
    assert!(output.trajectories.iter().all(|trajectory| trajectory.format == name));
    let expected = folder().join("expected").join(format!("{name}.txt"));
    expect_test::expect_file![expected].assert_eq(&show(&output));
}

#[test]
fn android_world_runs_are_screens_and_the_actions_between_them() {
    check("android-world");
}

#[test]
fn android_histories_are_read_though_their_elements_are_printed() {
    check("android-history");
}

#[test]
fn android_control_episodes_keep_their_actions_and_mark_their_images() {
    check("android-control");
}

#[test]
fn explorations_are_yaml_with_the_state_as_it_came() {
    check("droidbot-exploration");
}

#[test]
fn every_task_of_the_profiles_is_a_trajectory() {
    check("autodroid-profiles");
}

#[test]
fn browser_events_become_what_the_person_did() {
    check("miniwob");
}

#[test]
fn desktop_recordings_are_trees_and_code() {
    check("agentnet-recording");
}

#[test]
fn what_a_language_model_wrote_about_an_image_is_no_observation() {
    check("agentnet-bench");
}

#[test]
fn a_session_of_step_files_leaves_plans_and_negative_examples_out() {
    check("screenagent");
}

#[test]
fn a_recording_takes_its_task_from_the_page_beside_it() {
    check("pc-tracker");
}

#[test]
fn runs_of_a_desktop_are_a_line_an_action_with_a_tree_where_it_was_kept() {
    check("osworld");
}

#[test]
fn pages_of_a_browser_are_steps_of_an_object() {
    check("browsergym");
}

#[test]
fn pages_of_a_browser_are_steps_of_a_file() {
    check("browsergym-steps");
}

#[test]
fn published_android_episodes_are_records_with_windows_and_trees() {
    check("android-control-records");
}

#[test]
fn steps_of_screenshots_are_episodes_whoever_exported_them() {
    check("aitw");
    check("aitw-seeclick");
}

#[test]
fn dumps_of_uiautomator_are_trees_with_the_actions_between_them() {
    check("llamatouch");
    check("llamatouch-run");
    check("appagent");
}

#[test]
fn requests_and_their_responses_are_turns_and_the_looks_of_a_page_are_left_out() {
    check("har");
}

#[test]
fn all_fixtures_together_give_what_each_gives_alone() {
    let together = ingest(&config(&[folder().join("fixtures")])).unwrap();
    let names: Vec<String> = worldloom_ingest::formats().into_iter().map(|format| format.name).collect();
    let mut number = 0;
    for name in names.iter().filter(|name| folder().join("fixtures").join(name).is_dir()) {
        let alone = ingest(&config(&[folder().join("fixtures").join(name)])).unwrap();
        let ids = |trajectories: &[worldloom_schema::Trajectory]| {
            let of_format = trajectories.iter().filter(|trajectory| trajectory.format == *name);
            of_format.map(|trajectory| trajectory.trajectory_id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&together.trajectories), ids(&alone.trajectories), "{name}");
        number += alone.trajectories.len();
    }
    assert_eq!(number, together.trajectories.len());
}
