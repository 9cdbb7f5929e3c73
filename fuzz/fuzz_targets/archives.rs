//! Any bytes as an archive on disk, read as a run does: folders that are one episode are found in it, and rows are
//! trajectories and rejects. The first byte chooses the name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use worldloom_ingest::{IngestConfig, run};

#[path = "../seeds.rs"]
#[allow(dead_code, reason = "the names are for other targets")]
mod seeds;

const NAMES: [&str; 4] = ["x.tar", "x.zip", "x.tar.gz", "x.tar.zst"];

fuzz_target!(init: seeds::write("archives"), |data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(folder) = tempfile::tempdir() else { return };
    let input = folder.path().join(NAMES[usize::from(*first) % NAMES.len()]);
    std::fs::write(&input, rest).expect("the folder can be written");
    let config = IngestConfig { inputs: vec![input], format: None, map: None, max_reject_share: 1.0, strict: false };
    if let Ok(report) = run(&config, &folder.path().join("out"), &|_, _| {}) {
        let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
        assert_eq!(count("rows"), count("trajectories") + count("rejects"), "rows are conserved");
    }
});
