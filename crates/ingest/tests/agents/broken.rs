//! Broken logs: cut files and values of wrong types are rejects with a reason, and nothing else.

use std::path::{Path, PathBuf};

use serde_json::Value;
use worldloom_ingest::{Error, run};

use crate::common::config;

/// Values put in the place of others.
const OTHERS: [&str; 6] = ["null", "7", "[]", "{}", "\"\"", "[{\"type\": [7]}]"];
/// Broken files of a fixture at most; they are spread over all there are.
const BROKEN_FILES: usize = 60;

fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agents");
    let entries = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.is_file() && path.extension().is_none_or(|ending| ending != "expected")).collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    files
}

/// Ingests each content; what is not used is listed, and rows are what came out.
fn check(name: &str, contents: Vec<String>) {
    let step = contents.len().div_ceil(BROKEN_FILES).max(1);
    for content in contents.into_iter().step_by(step) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs_err::write(&path, &content).unwrap();
        check_rows(&path, &content);
    }
}

/// Ingests a path; what is not used is listed.
fn check_rows(path: &Path, content: &str) {
    let (out, name) = (tempfile::tempdir().unwrap(), path.display());
    match run(&config(&[path.into()]), out.path(), &|_, _| {}) {
        Ok(report) => {
            let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
            assert_eq!(count("rows"), count("trajectories") + count("rejects"), "{name}: {content}");
        }
        Err(Error::NoTrajectories { .. } | Error::NoRows { .. }) => {}
        Err(error) => panic!("{error}\n{name}: {content}"),
    }
}

#[test]
fn a_cut_file_is_read_to_the_cut() {
    for path in fixtures() {
        let text = fs_err::read_to_string(&path).unwrap();
        let ends: Vec<usize> = (0..text.len()).filter(|end| text.is_char_boundary(*end)).collect();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        check(&name, ends.iter().map(|end| text[..*end].to_string()).collect());
    }
}

#[test]
fn a_value_of_another_type_is_a_reject_or_read_as_it_is() {
    for path in fixtures() {
        let text = fs_err::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_lines = name.ends_with(".jsonl") && !text.starts_with('[');
        let rows: Vec<&str> = if is_lines { text.lines().collect() } else { vec![&text] };
        let mut broken = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let Ok(value) = serde_json::from_str::<Value>(row) else { continue };
            for changed in changed(&value) {
                let told = rows.iter().enumerate().map(|(other, row)| if other == at { changed.as_str() } else { row });
                broken.push(told.collect::<Vec<_>>().join("\n"));
            }
        }
        check(&name, broken);
    }
}

#[test]
fn a_folder_with_a_broken_file_is_read_or_refused() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agents");
    let mut num_folders = 0;
    for folder in fs_err::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        num_folders += 1;
        let (mut files, mut folders) = (Vec::new(), vec![folder.clone()]);
        while let Some(inner) = folders.pop() {
            for path in fs_err::read_dir(inner).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for broken in &files {
            let text = fs_err::read_to_string(broken).unwrap();
            let cut = (0..6).map(|part| text.len() * part / 6).filter(|end| text.is_char_boundary(*end));
            let mut contents: Vec<String> = cut.map(|end| text[..end].to_string()).collect();
            contents.extend(serde_json::from_str(&text).iter().flat_map(changed));
            let step = contents.len().div_ceil(BROKEN_FILES / 5).max(1);
            for content in contents.into_iter().step_by(step) {
                let copy = tempfile::tempdir().unwrap();
                for file in &files {
                    let path = copy.path().join("log").join(file.strip_prefix(&folder).unwrap());
                    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                    let text = if file == broken { content.clone() } else { fs_err::read_to_string(file).unwrap() };
                    fs_err::write(path, text).unwrap();
                }
                check_rows(copy.path(), &content);
            }
        }
    }
    assert_eq!(num_folders, 3);
}

/// The value with each of its parts replaced in turn.
fn changed(value: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    find_paths(value, String::new(), &mut paths);
    let replaced = paths.iter().enumerate().map(|(at, path)| {
        let mut copy = value.clone();
        *copy.pointer_mut(path).unwrap() = serde_json::from_str(OTHERS[at % OTHERS.len()]).unwrap();
        copy.to_string()
    });
    replaced.collect()
}

fn find_paths(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, inner)| {
            find_paths(inner, format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), paths);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, inner)| find_paths(inner, format!("{path}/{at}"), paths));
        }
        _ => {}
    }
    paths.push(path);
}
