//! Fixtures cut, emptied and mixed up: every row is a trajectory or a reject, and nothing falls over.

use std::path::{Path, PathBuf};

use crate::common::{config, ingest, write};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gui/fixtures")
}

/// Every file of a fixture with its path below the folder of fixtures.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![fixtures()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(fixtures()).unwrap().to_string_lossy().replace('\\', "/");
            files.push((name, fs_err::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Ingests a folder with one file changed; the helper checks that rows are conserved.
fn check(changed: &str, content: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let kind = changed.split('/').next().unwrap();
    for (name, bytes) in files().iter().filter(|(name, _)| name.starts_with(&format!("{kind}/"))) {
        write(folder.path(), name, if name == changed { content } else { bytes });
    }
    match ingest(&config(&[folder.path().into()])) {
        Ok(_) => {}
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("no row") || message.contains("no trajectory"), "{changed}: {message}");
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_read_or_refused() {
    for (name, bytes) in files().into_iter().filter(|(name, _)| !name.ends_with(".png")) {
        for part in 0..8 {
            check(&name, &bytes[..bytes.len() * part / 8]);
        }
    }
}

#[test]
fn a_file_of_other_types_is_read_or_refused() {
    let is_text = |name: &str| ![".gz", ".png"].iter().any(|ending| name.ends_with(ending));
    for (name, bytes) in files().into_iter().filter(|(name, _)| is_text(name)) {
        let text = String::from_utf8(bytes).unwrap();
        for (old, new) in [("{", "["), ("}", "]"), (": \"", ": [\""), (": [", ": {"), (": 0", ": null"), ("\"", "'")] {
            check(&name, text.replacen(old, new, 3).as_bytes());
        }
        for (old, new) in [("null", "{}"), ("[", "[null, "), ("true", "\"yes\""), ("1", "1e999"), ("a", "\u{0}")] {
            check(&name, text.replace(old, new).as_bytes());
        }
    }
}

#[test]
fn a_tree_deeper_than_any_screen_is_refused() {
    let leaf = r#"{"tag":"I","ref":1,"left":0,"top":0,"width":1,"height":1,"children":["#;
    let dom = |depth: usize| format!("{}{}", leaf.repeat(depth), "]}".repeat(depth));
    let row = |depth: usize| {
        let event = r#"{"type":"scroll","timing":1}"#;
        let states = [("null", depth), (event, depth), (event, depth)]
            .map(|(action, depth)| format!(r#"{{"time":0,"action":{action},"dom":{}}}"#, dom(depth)));
        format!(r#"{{"taskName":"t","utterance":"u","states":[{}]}}"#, states.join(","))
    };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.json", row(40));
    write(folder.path(), "b.json", row(100_000));
    let output = ingest(&config(&[folder.path().into()])).unwrap();
    assert_eq!((output.trajectories.len(), output.rejects.len()), (1, 1));
}
