//! Runs an ingest over files written by the test.

use std::io::Write;
use std::path::{Path, PathBuf};

use worldloom_ingest::{IngestConfig, Report, Result, run};
use worldloom_schema::{REJECT_FILE, Reject, TRAJECTORY_FILE, Trajectory, read_table};

/// What an ingest wrote.
pub(crate) struct Output {
    pub(crate) report: Report,
    pub(crate) trajectories: Vec<Trajectory>,
    pub(crate) rejects: Vec<Reject>,
}

impl Output {
    /// A count of the report; 0 where there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report.counts.get(name).copied().unwrap_or(0)
    }

    /// The only trajectory.
    pub(crate) fn only(&self) -> &Trajectory {
        let rejects = &self.rejects;
        assert_eq!(self.trajectories.len(), 1, "{rejects:?}");
        &self.trajectories[0]
    }
}

pub(crate) fn config(inputs: &[PathBuf]) -> IngestConfig {
    IngestConfig { inputs: inputs.to_vec(), format: None, map: None, max_reject_share: 1.0, strict: false }
}

/// Ingests with a config and reads what was written.
pub(crate) fn ingest(config: &IngestConfig) -> Result<Output> {
    let out = tempfile::tempdir().unwrap();
    let report = run(config, out.path(), &|_, _| {})?;
    let trajectories = read_table(&out.path().join(TRAJECTORY_FILE)).unwrap();
    let rejects = read_table(&out.path().join(REJECT_FILE)).unwrap();
    let text = fs_err::read_to_string(out.path().join("report.json")).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    let output = Output { report, trajectories, rejects };
    assert_eq!(output.count("rows"), output.count("trajectories") + output.count("rejects"), "rows are conserved");
    assert_eq!(output.count("trajectories"), output.trajectories.len() as u64);
    assert_eq!(output.count("rejects"), output.rejects.len() as u64);
    Ok(output)
}

/// Ingests one file with this content.
pub(crate) fn ingest_text(name: &str, content: impl AsRef<[u8]>) -> Output {
    try_text(name, content).unwrap()
}

/// The same, with its error.
pub(crate) fn try_text(name: &str, content: impl AsRef<[u8]>) -> Result<Output> {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), name, content);
    ingest(&config(&[path]))
}

pub(crate) fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::File::create(&path).unwrap().write_all(content.as_ref()).unwrap();
    path
}

/// A row of a user's words, one call and its result, with further fields.
pub(crate) fn row(task: &str, command: &str, observation: &str, more: &str) -> String {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let arguments = quote(&format!("{{\"command\": {}}}", quote(command)));
    let (task, observation) = (quote(task), quote(observation));
    format!(
        r#"{{"messages": [{{"role": "user", "content": {task}}}, {{"role": "assistant", "content": null, "tool_calls": [{{"id": "c", "type": "function", "function": {{"name": "bash", "arguments": {arguments}}}}}]}}, {{"role": "tool", "tool_call_id": "c", "content": {observation}}}]{more}}}"#
    )
}
