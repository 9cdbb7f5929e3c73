//! Any bytes under any name that detection looks at: no panic, and a reason for whatever is not read.

#![no_main]

use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 10] = [
    "x.json", "x.jsonl", "x.cast", "x.traj", "x.parquet", "x.csv", "x.yaml", "x.txt", "x.eval", "x.jsonl.gz",
];

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let name = NAMES[usize::from(*first) % NAMES.len()];
    let _ = worldloom_ingest::read_bytes(name, rest.to_vec(), None);
});
