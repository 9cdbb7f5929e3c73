//! Any bytes under any name that detection looks at: no panic, and a reason for whatever is not read. The first byte
//! chooses the name.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../seeds.rs"]
mod seeds;

fuzz_target!(init: seeds::write("ingest"), |data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let name = seeds::NAMES[usize::from(*first) % seeds::NAMES.len()];
    let _ = worldloom_ingest::read_bytes(name, rest.to_vec(), None);
});
