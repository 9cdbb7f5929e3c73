//! `report RUN`: the page of one training, or of all that a pipeline left, in the folder itself.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ArgMatches;
use worldloom_report::{HTML_FILE, ReportConfig, ReportInput};

use crate::config::UserError;

const METRICS: &str = "metrics.jsonl";
const EVALUATION: &str = "evaluation.json";
const STEP_REPORT: &str = "report.json";

pub(super) fn report_run(matches: &ArgMatches) -> Result<()> {
    let run = matches.get_one::<PathBuf>("RUN").cloned().unwrap_or_default();
    let folders = match run.join(METRICS).exists() {
        true => vec![run.clone()],
        false => inner_folders(&run)?,
    };
    let named = |file: &str| {
        let found: Vec<(String, PathBuf)> = folders
            .iter()
            .filter(|folder| folder.join(file).exists())
            .map(|folder| (folder.file_name().unwrap_or_default().to_string_lossy().into_owned(), folder.clone()))
            .collect();
        found
    };
    let (stages, evaluations) = (named(METRICS), named(EVALUATION));
    if stages.is_empty() && evaluations.is_empty() {
        let error = UserError::new(format!("`{}` holds neither `{METRICS}` nor folders with one", run.display()));
        return Err(error.hint("give the folder of a training, or the folder of a pipeline below `runs`").into());
    }
    let reports = named(STEP_REPORT).into_iter().map(|(name, folder)| (name, folder.join(STEP_REPORT))).collect();
    let evaluation = evaluations.last().map(|(_, folder)| folder.as_path());
    // The run's own report.json stays: the page alone is put beside it.
    let made = tempfile::tempdir()?;
    let config = ReportConfig { title: format!("Run {}", run.display()) };
    let report = worldloom_report::run(&config, &ReportInput { evaluation, stages, reports }, made.path())?;
    let page = run.join(HTML_FILE);
    fs_err::copy(made.path().join(HTML_FILE), &page)?;
    for (stage, figures) in &report.stages {
        println!("{stage}");
        for name in ["loss", "validation_loss", "validation.bits_per_byte", "validation.exact", "reward_mean"] {
            if let Some(value) = figures.get(name) {
                println!("  {name:26} {value:.4}");
            }
        }
    }
    println!("{:28} {}", "written to", page.display());
    Ok(())
}

/// Folders in a folder, in the order in which they were finished.
fn inner_folders(run: &Path) -> Result<Vec<PathBuf>> {
    if !run.is_dir() {
        return Err(UserError::new(format!("`{}` is no folder", run.display())).into());
    }
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(run)? {
        let path = entry?.path();
        if path.is_dir() {
            let sealed =
                fs_err::metadata(path.join(worldloom_schema::MANIFEST)).or_else(|_| fs_err::metadata(&path))?;
            folders.push((sealed.modified()?, path));
        }
    }
    folders.sort();
    Ok(folders.into_iter().map(|(_, path)| path).collect())
}
