//! Any bytes read as each format by force: the first byte chooses it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../seeds.rs"]
#[allow(dead_code, reason = "the names are for other targets")]
mod seeds;

fuzz_target!(init: seeds::write("formats"), |data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let formats = worldloom_ingest::formats();
    let format = &formats[usize::from(*first) % formats.len()];
    let _ = worldloom_ingest::read_bytes("x.jsonl", rest.to_vec(), Some(&format.name));
});
