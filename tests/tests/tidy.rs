//! The invariants of ARCHITECTURE.md, held by reading the sources.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// All Rust files below `crates/` and `tests/`, relative to the root.
fn sources() -> Vec<(String, String)> {
    let (root, mut paths) = (root(), Vec::new());
    for folder in ["crates", "tests"] {
        rust_files(&root.join(folder), &mut paths);
    }
    assert!(paths.len() > 50, "found only {} files", paths.len());
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs_err::read_to_string(path).unwrap())).collect()
}

fn manifest(crate_name: &str) -> toml::Table {
    let path = match crate_name {
        "tests" => root().join("tests/Cargo.toml"),
        name => root().join("crates").join(name).join("Cargo.toml"),
    };
    fs_err::read_to_string(path).unwrap().parse().unwrap()
}

fn crates() -> Vec<String> {
    let folders = fs_err::read_dir(root().join("crates")).unwrap();
    let mut names: Vec<String> =
        folders.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.push("tests".into());
    names.sort();
    names
}

/// Dependencies of a crate, without its tests' own.
fn dependencies(crate_name: &str) -> BTreeSet<String> {
    let manifest = manifest(crate_name);
    let table = if crate_name == "tests" { "dev-dependencies" } else { "dependencies" };
    manifest[table].as_table().unwrap().keys().cloned().collect()
}

fn ours(crate_name: &str) -> BTreeSet<String> {
    dependencies(crate_name).iter().filter_map(|name| name.strip_prefix("worldloom-")).map(String::from).collect()
}

/// The rows of the crate table in ARCHITECTURE.md: crate, and what it uses.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs_err::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let uses = |cell: &str| cell.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
    cells.map(|cells| (cells[1].trim_matches('`').to_string(), uses(cells[3]))).collect()
}

#[test]
fn the_crate_graph_is_the_one_in_architecture_md() {
    let found: BTreeMap<String, BTreeSet<String>> =
        crates().into_iter().map(|name| (name.clone(), ours(&name))).collect();
    assert_eq!(documented(), found);
}

#[test]
fn the_data_plane_does_not_know_burn_and_the_trainer_does_not_know_text() {
    for name in ["schema", "record", "ingest", "curate", "render", "judge", "report", "kernels"] {
        let dependencies = dependencies(name);
        assert!(!dependencies.contains("burn"), "{name} depends on burn");
        assert!(!dependencies.contains("worldloom-model"), "{name} depends on the model");
    }
    for unwanted in ["tokenizers", "minijinja", "worldloom-render", "worldloom-judge"] {
        assert!(!dependencies("train").contains(unwanted), "train depends on {unwanted}");
    }
}

#[test]
fn every_source_file_opens_with_what_it_is() {
    let silent: Vec<_> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "no //! at the top of {silent:?}");
}

#[test]
fn only_the_program_chooses_devices_and_reads_the_environment() {
    let forbidden = ["Device::default()", "std::env::var", "env::var(", "Device::flex()"];
    let mut found = Vec::new();
    for (name, text) in sources() {
        let is_library = name.starts_with("crates/") && name.contains("/src/") && !name.starts_with("crates/cli/");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        if is_library && !name.ends_with("/tests.rs") {
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.extend(
                lines
                    .filter(|line| forbidden.iter().any(|word| line.contains(word)))
                    .map(|line| format!("{name}: {line}")),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn unsafe_code_stands_only_where_it_is_named() {
    let allowed = [
        "crates/kernels/",
        "crates/schema/src/shard.rs",
        "crates/model/src/weights/",
        "crates/cli/src/allocator.rs",
        "crates/cli/src/main.rs",
        "tests/tests/tidy.rs",
    ];
    let mut found = Vec::new();
    for (name, text) in sources() {
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let is_unsafe =
            |line: &str| line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl");
        if code.into_iter().any(is_unsafe) && !allowed.iter().any(|prefix| name.starts_with(prefix)) {
            found.push(name);
        }
    }
    assert!(found.is_empty(), "unsafe code in {found:?}");
}

#[test]
fn nothing_is_switched_off_or_unfinished() {
    let words = [["#[ign", "ore"].concat(), ["to", "do!("].concat(), ["unimple", "mented!("].concat()];
    let found: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| words.iter().any(|word| text.contains(word)))
        .map(|(name, _)| name)
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn every_crate_keeps_the_workspace_lints() {
    for name in crates() {
        let manifest = manifest(&name);
        let inherits = manifest["lints"].get("workspace").and_then(toml::Value::as_bool) == Some(true);
        assert!(inherits || name == "kernels", "{name} has lints of its own");
    }
}
