//! Running the program, and the artifacts of the smoke pipeline.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn worldloom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_worldloom")).args(arguments).current_dir(root()).output().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs and expects exactly one `error:` line with these words, and this exit code.
pub(crate) fn refuses(arguments: &[&str], code: i32, words: &[&str]) {
    let output = worldloom(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error:")).count(), 1, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?}: no `{word}` in: {text}");
    }
}

/// Runs, expects success, and gives what was printed.
pub(crate) fn succeeds(arguments: &[&str]) -> String {
    let output = worldloom(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the steps of the smoke pipeline that come before one, into `folder/runs`.
pub(crate) fn run_before(step: &str, folder: &Path) {
    let text = fs_err::read_to_string(root().join("pipelines/smoke.toml")).unwrap();
    let steps = text.split(&format!("[[step]]\nname = \"{step}\"")).next().unwrap();
    let (file, runs) = (folder.join("before.toml"), folder.join("runs"));
    fs_err::write(&file, steps.replace("\"../", &format!("\"{}/", root().display()))).unwrap();
    succeeds(&["run", &file.to_string_lossy(), "--runs", &runs.to_string_lossy()]);
}

/// The folder of a step's artifact of the smoke pipeline below a runs folder.
pub(crate) fn artifact(runs: &Path, step: &str) -> PathBuf {
    artifact_of(runs, "smoke", step)
}

/// The same of a pipeline.
pub(crate) fn artifact_of(runs: &Path, pipeline: &str, step: &str) -> PathBuf {
    let entries = fs_err::read_dir(runs.join(pipeline)).unwrap().map(|entry| entry.unwrap().path());
    let is_step = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{step}-"));
    entries.into_iter().find(is_step).unwrap()
}

/// Its path as an argument.
pub(crate) fn made(runs: &Path, step: &str) -> String {
    artifact(runs, step).to_string_lossy().into_owned()
}
