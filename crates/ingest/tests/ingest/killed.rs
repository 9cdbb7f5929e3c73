//! Runs that are killed by the signal that cannot be caught.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use worldloom_ingest::run;

use crate::common::{config, row, write};

/// Tells the child where its input lies.
const FOLDER: &str = "WORLDLOOM_TEST_INGEST";

#[test]
fn a_child_ingests_where_it_is_asked_to() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (input, out) = (Path::new(&folder).join("in"), Path::new(&folder).join("out"));
    let say = |done: u64, _: u64| writeln!(std::io::stdout(), "\nread {done}").unwrap();
    run(&config(&[input]), &out, &say).unwrap();
}

/// Runs the child in this folder, part after part; kills it once it has read so many bytes. Whether it was alive.
fn ingest_until(folder: &Path, bytes: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_child_ingests_where_it_is_asked_to", "--nocapture"])
        .env(FOLDER, folder)
        .env("RAYON_NUM_THREADS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for said in BufReader::new(child.stdout.take().unwrap()).lines() {
        let said = said.unwrap();
        if said.strip_prefix("read ").is_some_and(|read| read.parse::<u64>().unwrap() >= bytes) {
            child.kill().unwrap();
            break;
        }
    }
    !child.wait().unwrap().success()
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().into(), fs_err::read(path).unwrap())).collect()
}

#[test]
fn a_run_killed_at_five_moments_ends_with_the_bytes_of_a_straight_one() {
    const FILES: u64 = 4;
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        // 50 MB each: two files are a part.
        let rows = (0..500).map(|at| {
            let text: String = (0..2_500).map(|line| format!("file {file} row {at} line {line} end\n")).collect();
            row(&format!("task {at}"), &format!("cat {file}/{at}"), &text[..text.len().min(90_000)], "")
        });
        write(&folder.path().join("in"), &format!("{file}.jsonl"), rows.collect::<Vec<_>>().join("\n"));
    }
    let bytes: u64 = files(&folder.path().join("in")).values().map(|content| content.len() as u64).sum();
    let straight = folder.path().join("straight");
    run(&config(&[folder.path().join("in")]), &straight, &|_, _| {}).unwrap();
    let out = folder.path().join("out");
    for share in [1, 3, 5, 6, 7] {
        assert!(ingest_until(folder.path(), bytes * share / 8), "it was killed after {share} eighths");
        assert!(!out.join("report.json").exists());
        assert_eq!(out.join(".parts/000000.json").exists(), share > 4, "the first part is half of the input");
    }
    let before = fs_err::metadata(out.join(".parts/000000.made.parquet")).unwrap().modified().unwrap();
    let kept = std::sync::Mutex::new(None);
    run(&config(&[folder.path().join("in")]), &out, &|_, _| {
        let made = fs_err::metadata(out.join(".parts/000000.made.parquet"));
        kept.lock().unwrap().get_or_insert(made.unwrap().modified().unwrap());
    })
    .unwrap();
    assert_eq!(kept.into_inner().unwrap(), Some(before), "the first part was not read again");
    assert!(files(&out) == files(&straight));
}
