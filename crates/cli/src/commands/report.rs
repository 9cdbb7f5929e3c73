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
    let (folders, left_out) = match run.join(METRICS).exists() {
        true => (vec![(folder_name(&run), run.clone())], Vec::new()),
        false => newest_of_each_step(inner_folders(&run)?),
    };
    let with = |file: &str| -> Vec<(String, PathBuf)> {
        folders.iter().filter(|(_, folder)| folder.join(file).exists()).cloned().collect()
    };
    let (stages, evaluations) = (with(METRICS), with(EVALUATION));
    if stages.is_empty() && evaluations.is_empty() {
        let error = UserError::new(format!("`{}` holds neither `{METRICS}` nor folders with one", run.display()));
        return Err(error.hint("give the folder of a training, or the folder of a pipeline below `runs`").into());
    }
    let reports = with(STEP_REPORT).into_iter().map(|(name, folder)| (name, folder.join(STEP_REPORT))).collect();
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
    let taken = evaluation.map_or("none".into(), folder_name);
    println!("{:28} {taken}", "evaluation");
    let passed_over = evaluations.iter().rev().skip(1).map(|(_, folder)| folder_name(folder));
    let left_out: Vec<String> = left_out.iter().map(|folder| folder_name(folder)).chain(passed_over).collect();
    if !left_out.is_empty() {
        println!("{:28} {}", "left out, as older", left_out.join(", "));
    }
    println!("{:28} {}", "written to", page.display());
    Ok(())
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Of folders in the order in which they were finished, the last of each step under the step's name; and the others.
fn newest_of_each_step(folders: Vec<PathBuf>) -> (Vec<(String, PathBuf)>, Vec<PathBuf>) {
    let steps: Vec<String> = folders.iter().map(|folder| step_of(&folder_name(folder)).to_string()).collect();
    let (mut newest, mut older) = (Vec::new(), Vec::new());
    for (index, folder) in folders.into_iter().enumerate() {
        match steps[index + 1..].contains(&steps[index]) {
            true => older.push(folder),
            false => newest.push((steps[index].clone(), folder)),
        }
    }
    (newest, older)
}

/// The step that an artifact `step-0123abcd` below a pipeline's folder is of; of another folder, its name.
fn step_of(name: &str) -> &str {
    let is_key = |key: &str| key.len() == 8 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once('-').filter(|(_, key)| is_key(key)).map_or(name, |(step, _)| step)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_folder_of_each_step_is_taken_and_the_others_are_told() {
        let folders = ["cpt-83f4a134", "sft-only-27a41a58", "mine", "cpt-7bc50ecf", "sft-42fd2e25"].map(PathBuf::from);
        let (newest, older) = newest_of_each_step(folders.to_vec());
        let named = newest.iter().map(|(step, folder)| (step.as_str(), folder_name(folder)));
        let expected =
            [("sft-only", "sft-only-27a41a58"), ("mine", "mine"), ("cpt", "cpt-7bc50ecf"), ("sft", "sft-42fd2e25")];
        assert_eq!(named.collect::<Vec<_>>(), expected.map(|(step, folder)| (step, folder.to_string())));
        assert_eq!(older, [PathBuf::from("cpt-83f4a134")]);
    }
}
