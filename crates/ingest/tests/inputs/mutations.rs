//! Bytes cut, flipped and moved: whatever they are, a reader ends with trajectories or reasons.

use std::path::Path;

use worldloom_ingest::{Error, read_bytes};

use crate::common::try_text;
use crate::content::{gzip, line, tables, tar, zip};

/// Numbers from a seed, for mutations.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// Whether it is nothing, or a list of nothing.
fn has_no_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| b"[], \t\r\n".contains(byte))
}

/// How often each input is mutated; `WORLDLOOM_MUTATIONS=50` does it 50 times as often.
fn mutations(number: usize) -> usize {
    number * std::env::var("WORLDLOOM_MUTATIONS").map_or(1, |factor| factor.parse().unwrap())
}

/// Cuts, flips, doubles or moves a piece of the bytes.
fn mutate(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut mutated = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(mutated.len());
        match numbers.below(6) {
            0 => mutated.truncate(at),
            1 if !mutated.is_empty() => mutated[at] ^= 1 << numbers.below(8),
            2 => {
                let end = (at + numbers.below(40)).min(mutated.len());
                let piece = mutated[at..end].to_vec();
                mutated.splice(at..at, piece);
            }
            3 => {
                let end = (at + numbers.below(40)).min(mutated.len());
                mutated.drain(at..end);
            }
            4 => mutated.insert(at, b"{}[]\",:\\\0\xff0n"[numbers.below(12)]),
            _ => {
                let words: [&[u8]; 6] = [b"null", b"[]", b"{}", b"-1e999", b"\"\\ud800\"", b"18446744073709551616"];
                let word = words[numbers.below(6)].to_vec();
                mutated.splice(at..at, word);
            }
        }
    }
    mutated
}

#[test]
fn no_bytes_make_a_reader_panic() {
    let mut numbers = Numbers(4);
    let formats = worldloom_ingest::formats();
    for format in formats.iter().filter(|format| !format.description.starts_with("A folder")) {
        let whole = read_bytes("x.jsonl", format.example.clone().into_bytes(), None).unwrap();
        assert_eq!(whole.0.len(), 1, "{}", format.name);
        for _ in 0..mutations(150) {
            let bytes = mutate(format.example.as_bytes(), &mut numbers);
            for forced in [None, Some(format.name.as_str())] {
                let (trajectories, rejects) = read_bytes("x.jsonl", bytes.clone(), forced).unwrap();
                let is_found = !trajectories.is_empty() || !rejects.is_empty();
                assert!(
                    is_found || has_no_value(&bytes),
                    "{} {forced:?} {}",
                    format.name,
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
    }
    for content in ["".into(), "\0".repeat(99), "[".repeat(200_000), "{\"a\":".repeat(200_000), "\u{feff}".into()] {
        for format in &formats {
            let _ = read_bytes("x.jsonl", content.clone().into_bytes(), Some(&format.name)).unwrap();
        }
        let _ = read_bytes("x.json", content.clone().into_bytes(), None).unwrap();
    }
}

#[test]
fn no_bytes_of_a_container_make_a_reader_panic() {
    let mut numbers = Numbers(9);
    let records = "tests/gui/fixtures/android-control-records/episodes.tfrecord.gz";
    let packed = fs_err::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(records)).unwrap();
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(packed), &mut unpacked).unwrap();
    let lines = zstd::encode_all(line(1).as_bytes(), 1).unwrap();
    for (name, whole) in tables().into_iter().chain([("x.tfrecord", unpacked), ("x.jsonl.zst", lines)]) {
        for _ in 0..mutations(300) {
            let bytes = mutate(&whole, &mut numbers);
            let (trajectories, rejects) = read_bytes(name, bytes.clone(), None).unwrap();
            // A header alone has no rows, and a stream may end after each of its messages.
            let may_be_empty = has_no_value(&bytes) || ["a.csv", "stream.arrow"].contains(&name);
            assert!(!trajectories.is_empty() || !rejects.is_empty() || may_be_empty, "{name} {bytes:?}");
        }
    }
    let texts = [line(1), line(2)];
    let files = [("a/one.jsonl", texts[0].as_str()), ("two.json", texts[1].as_str())];
    let bytes: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    for (name, whole) in [("x.tar", tar(&files)), ("x.zip", zip(&bytes)), ("x.tar.gz", gzip(&tar(&files)))] {
        for _ in 0..mutations(40) {
            match try_text(name, mutate(&whole, &mut numbers)) {
                Ok(_) | Err(Error::NoTrajectories { .. } | Error::NoRows { .. } | Error::NoFiles { .. }) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}
