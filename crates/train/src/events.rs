//! The metrics once more as an event file, for TensorBoard and what reads its format.
//!
//! `tensorboard/events.out.tfevents.worldloom` is made anew from `metrics.jsonl` whenever a run is opened and grows with
//! it, so that the two always say the same and no step is there twice. A record is a length, its checksum, a message and
//! its checksum; the message is protocol buffers' `Event`, of which three fields are needed
//! (tensorflow/core/util/event.proto, summary.proto).

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::error::Result;

const FOLDER: &str = "tensorboard";
const FILE: &str = "events.out.tfevents.worldloom";
/// Added to a rotated checksum, so that a checksum of data with checksums in it stays meaningful.
const MASK: u32 = 0xa282_ead8;

/// An event file that is being written.
pub(crate) struct EventFile {
    file: fs_err::File,
    /// Seconds since 1970 at the end of the last step.
    time: f64,
}

impl EventFile {
    /// Starts the file of a run's folder with the steps that are there.
    pub(crate) fn create(run: &Path, lines: &[Value]) -> Result<Self> {
        fs_err::create_dir_all(run.join(FOLDER))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let before: f64 = lines.iter().map(seconds).sum();
        let mut events = Self { file: fs_err::File::create(run.join(FOLDER).join(FILE))?, time: now - before };
        let mut version = Vec::new();
        fixed64(&mut version, 1, events.time);
        bytes(&mut version, 3, b"brain.Event:2");
        events.record(&version)?;
        lines.iter().try_for_each(|line| events.push(line))?;
        Ok(events)
    }

    /// Adds every number of a step, those in objects under a path.
    pub(crate) fn push(&mut self, line: &Value) -> Result<()> {
        self.time += seconds(line);
        let mut summary = Vec::new();
        add_numbers("", line, &mut summary);
        let mut event = Vec::new();
        fixed64(&mut event, 1, self.time);
        varint(&mut event, 2 << 3);
        varint(&mut event, line["step"].as_u64().unwrap_or(0));
        bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, message: &[u8]) -> Result<()> {
        let length = (message.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(message.len() + 16);
        record.extend(length);
        record.extend(checksum(&length).to_le_bytes());
        record.extend(message);
        record.extend(checksum(message).to_le_bytes());
        Ok(self.file.write_all(&record)?)
    }
}

fn seconds(line: &Value) -> f64 {
    line["clock"]["seconds"].as_f64().unwrap_or(0.0)
}

fn add_numbers(path: &str, value: &Value, summary: &mut Vec<u8>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| path.is_empty() || !name.is_empty()) {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                if inner != "step" {
                    add_numbers(&inner, value, summary);
                }
            }
        }
        Value::Number(number) => {
            let mut scalar = Vec::new();
            bytes(&mut scalar, 1, path.as_bytes());
            varint(&mut scalar, 2 << 3 | 5);
            scalar.extend((number.as_f64().unwrap_or(f64::NAN) as f32).to_le_bytes());
            bytes(summary, 1, &scalar);
        }
        _ => {}
    }
}

fn checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(MASK)
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn fixed64(out: &mut Vec<u8>, field: u64, value: f64) {
    varint(out, field << 3 | 1);
    out.extend(value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Records with their checksums verified.
    fn records(run: &Path) -> Vec<Vec<u8>> {
        let data = fs_err::read(run.join(FOLDER).join(FILE)).unwrap();
        let (mut at, mut found) = (0, Vec::new());
        let number = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        while at < data.len() {
            let length = u64::from_le_bytes(data[at..at + 8].try_into().unwrap()) as usize;
            assert_eq!(number(at + 8), checksum(&data[at..at + 8]));
            let message = &data[at + 12..at + 12 + length];
            assert_eq!(number(at + 12 + length), checksum(message));
            found.push(message.to_vec());
            at += length + 16;
        }
        found
    }

    #[test]
    fn a_step_is_a_record_with_every_number_under_its_path() {
        let run = tempfile::tempdir().unwrap();
        let line = |step: u64| json!({"step": step, "loss": 1.5, "flags": ["x"], "parts": {"web": 7}, "clock": {"seconds": 2.0}});
        let mut events = EventFile::create(run.path(), &[line(1)]).unwrap();
        events.push(&line(2)).unwrap();
        let found = records(run.path());
        assert_eq!(found.len(), 3);
        let has = |record: &[u8], part: &[u8]| record.windows(part.len()).any(|window| window == part);
        assert!(has(&found[0], b"brain.Event:2"));
        assert!(has(&found[2], &[&b"\x0a\x04loss\x15"[..], &1.5f32.to_le_bytes()].concat()));
        assert!(has(&found[2], b"parts/web") && has(&found[2], b"clock/seconds") && !has(&found[2], b"step"));
        assert_eq!(found[2][9..11], [2 << 3, 2]);
        let time = |record: &[u8]| f64::from_le_bytes(record[1..9].try_into().unwrap());
        assert!((time(&found[2]) - time(&found[1]) - 2.0).abs() < 1e-6);
        // Opened again after a kill, the file holds the kept steps once.
        EventFile::create(run.path(), &[line(1)]).unwrap();
        assert_eq!(records(run.path()).len(), 2);
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720, B.4: 32 bytes of zero.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }
}
