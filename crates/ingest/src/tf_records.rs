//! TFRecord files as rows: each record, a `tf.train.Example`, becomes the text of a JSON object.
//!
//! A record is its length (eight bytes), a checksum of these, its bytes and their checksum, all little-endian; the first
//! checksum says that a file is one of records at all. An `Example` is a map from names to lists. Numbers stay numbers;
//! bytes that are text without control characters become a string, a picture (by its first bytes, or by TensorFlow's name
//! for one) `{"image_bytes": n}`, and all else `{"base64": "…"}`. A record longer than [`MOST_BYTES`] is refused.

use std::io::{BufRead, Read};

use base64::Engine;
use crc32c::crc32c;

use crate::json::quote;
use crate::refusal::Refusal;
use crate::rows::{MOST_BYTES, Row, unreadable};

/// Bytes before a record: its length and their checksum.
const HEAD_BYTES: usize = 12;
/// How pictures begin: PNG, JPEG.
const PICTURES: [&[u8]; 2] = [b"\x89PNG", b"\xff\xd8\xff"];

/// What TensorFlow's data sets call a picture, also one of bare pixels.
const PICTURE_NAME: &str = "image/encoded";

/// Whether these are the first bytes of a file of records.
pub(crate) fn is_first(head: &[u8]) -> bool {
    head.first_chunk::<HEAD_BYTES>().is_some_and(|head| length(head).is_some_and(|length| length > 0))
}

/// The length in the head of a record, if its checksum is right.
fn length(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    let [length, sum] = [&head[..8], &head[8..]];
    let sum = u32::from_le_bytes(sum.try_into().ok()?);
    // The checksum of TFRecord is rotated, so that one of data that holds checksums stays strong.
    let expected = crc32c(length).rotate_right(15).wrapping_add(0xa282_ead8);
    (sum == expected).then_some(u64::from_le_bytes(length.try_into().ok()?))
}

/// The rows of a file of records.
pub(crate) fn rows(mut reader: impl BufRead + Send + 'static) -> Box<dyn Iterator<Item = Row> + Send> {
    let (mut number, mut offset, mut is_done) = (0, 0, false);
    Box::new(std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let (row, start) = (number, offset);
        let record = match record(&mut reader) {
            Ok(record) => record?,
            Err(refusal) => {
                is_done = true;
                return Some(Row { number: row, offset: start, bytes: Err(refusal) });
            }
        };
        number += 1;
        offset += record.len() as u64 + HEAD_BYTES as u64 + 4;
        // A record that is no example does not take the others with it.
        let text = example(&record).unwrap_or_else(|| "null".into());
        Some(Row { number: row, offset: start, bytes: Ok(text.into_bytes()) })
    }))
}

/// The bytes of the next record; none at the end.
fn record(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, Refusal> {
    if reader.fill_buf().map_err(|error| unreadable(&error))?.is_empty() {
        return Ok(None);
    }
    let mut head = [0; HEAD_BYTES];
    reader.read_exact(&mut head).map_err(|error| unreadable(&error))?;
    let length = length(&head).ok_or_else(|| Refusal::new("tfrecord", "the checksum of a record's length is wrong"))?;
    if length > MOST_BYTES {
        return Err(Refusal::new("tfrecord", format!("a record of {length} bytes; expected at most {MOST_BYTES}")));
    }
    let mut record = Vec::new();
    let read = reader.by_ref().take(length + 4).read_to_end(&mut record).map_err(|error| unreadable(&error))?;
    if read as u64 != length + 4 {
        return Err(Refusal::new("cut", format!("the file ends inside a record of {length} bytes")));
    }
    record.truncate(length as usize);
    Ok(Some(record))
}

/// `Example { features { feature: map<string, Feature> } }` as JSON.
fn example(bytes: &[u8]) -> Option<String> {
    let mut fields = Vec::new();
    for features in Message(bytes).bytes_of(1)? {
        for entry in Message(features).bytes_of(1)? {
            let name = std::str::from_utf8(Message(entry).bytes_of(1)?.first()?).ok()?.to_string();
            let is_picture = name == PICTURE_NAME;
            let feature = Message(entry).bytes_of(2)?.into_iter().next();
            let value = feature.map_or(Some("[]".into()), |feature| list(feature, is_picture))?;
            fields.push(format!("{}: {value}", quote(&name)));
        }
    }
    fields.sort();
    Some(format!("{{{}}}", fields.join(", ")))
}

/// `Feature { bytes_list | float_list | int64_list }`, each with its values in field 1.
fn list(feature: &[u8], is_picture: bool) -> Option<String> {
    let mut values = Vec::new();
    for (kind, value) in Message(feature) {
        let Wire::Bytes(list) = value else { return None };
        for (field, value) in Message(list) {
            match (kind, field, value) {
                (1, 1, Wire::Bytes(bytes)) => values.push(bytes_text(bytes, is_picture)),
                (2, 1, Wire::Bytes(packed)) => {
                    let (floats, _) = packed.as_chunks::<4>();
                    values.extend(floats.iter().map(|bytes| float_text(f32::from_le_bytes(*bytes))));
                }
                (2, 1, Wire::Four(bytes)) => values.push(float_text(f32::from_le_bytes(bytes))),
                (3, 1, Wire::Number(number)) => values.push((number as i64).to_string()),
                (3, 1, Wire::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        values.push((varint(&mut packed)? as i64).to_string());
                    }
                }
                _ => return None,
            }
        }
    }
    Some(format!("[{}]", values.join(", ")))
}

fn float_text(number: f32) -> String {
    if number.is_finite() { number.to_string() } else { "null".into() }
}

fn bytes_text(bytes: &[u8], is_picture: bool) -> String {
    if is_picture || PICTURES.iter().any(|start| bytes.starts_with(start)) {
        return format!("{{\"image_bytes\": {}}}", bytes.len());
    }
    let is_text = |text: &&str| !text.chars().any(|letter| letter.is_control() && !"\t\n\r".contains(letter));
    match std::str::from_utf8(bytes).ok().filter(is_text) {
        Some(text) => quote(text),
        None => format!("{{\"base64\": \"{}\"}}", base64::engine::general_purpose::STANDARD.encode(bytes)),
    }
}

/// A value of a field of a protocol buffer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wire<'a> {
    Number(u64),
    Four([u8; 4]),
    Eight,
    Bytes(&'a [u8]),
}

/// The fields of a protocol buffer, in order. What cannot be read ends them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a>(pub(crate) &'a [u8]);

impl<'a> Message<'a> {
    /// The values of a field that are bytes; none where it is of another type.
    pub(crate) fn bytes_of(self, field: u64) -> Option<Vec<&'a [u8]>> {
        let of = self.filter(|(found, _)| *found == field);
        of.map(|(_, value)| if let Wire::Bytes(bytes) = value { Some(bytes) } else { None }).collect()
    }
}

impl<'a> Iterator for Message<'a> {
    type Item = (u64, Wire<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Wire::Number(varint(&mut self.0)?),
            1 => self.0.split_off(..8).map(|_| Wire::Eight)?,
            2 => {
                let length = varint(&mut self.0)?;
                Wire::Bytes(self.0.split_off(..usize::try_from(length).ok()?)?)
            }
            5 => Wire::Four(self.0.split_off(..4)?.try_into().ok()?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

/// A number of seven bits a byte, the lowest first.
pub(crate) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes shorter than 128.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn feature(name: &str, kind: u8, values: &[u8]) -> Vec<u8> {
        field(1, &[field(1, name.as_bytes()), field(2, &field(kind, values))].concat())
    }

    fn framed(record: &[u8]) -> Vec<u8> {
        let length = (record.len() as u64).to_le_bytes();
        let masked = |bytes: &[u8]| crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        [&length[..], &masked(&length), record, &masked(record)].concat()
    }

    fn read(bytes: Vec<u8>) -> Vec<(u64, Result<String, &'static str>)> {
        let rows = rows(std::io::Cursor::new(bytes));
        let row = |row: Row| (row.offset, row.bytes.map(|bytes| String::from_utf8(bytes).unwrap()));
        rows.map(row).map(|(at, text)| (at, text.map_err(|refusal| refusal.rule))).collect()
    }

    #[test]
    fn the_checksum_is_crc_32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of the algorithm");
    }

    #[test]
    fn a_record_is_an_object_of_lists() {
        let features = [
            feature("goal", 1, &field(1, "Pay — now".as_bytes())),
            feature("tree", 1, &[field(1, b"\x08\x01"), field(1, b"\x89PNG\x0d\x0a\x1a\x0a")].concat()),
            feature("image/encoded", 1, &field(1, b"rgb")),
            feature("ids", 3, &field(1, &[7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])),
            feature("shares", 2, &field(1, &[0.5f32.to_le_bytes(), f32::NAN.to_le_bytes()].concat())),
        ];
        let record = framed(&field(1, &features.concat()));
        let text = r#"{"goal": ["Pay — now"], "ids": [7, -1], "image/encoded": [{"image_bytes": 3}], "shares": [0.5, null], "tree": [{"base64": "CAE="}, {"image_bytes": 8}]}"#;
        let bytes = record.len() as u64;
        assert_eq!(read([record.clone(), record].concat()), [(0, Ok(text.into())), (bytes, Ok(text.into()))]);
    }

    #[test]
    fn a_record_that_is_cut_or_none_is_refused_and_what_is_no_example_is_null() {
        let record = framed(&field(1, &feature("goal", 1, &field(1, b"x"))));
        for end in 1..record.len() {
            assert_eq!(read(record[..end].to_vec()), [(0, Err("cut"))], "{end}");
        }
        assert!(is_first(&record) && !is_first(b"{\"messages\": []}") && !is_first(&[0; 16]));
        assert_eq!(read([record.clone(), vec![1; 20]].concat())[1], (record.len() as u64, Err("tfrecord")));
        assert_eq!(read(framed(b"\xff\xff")), [(0, Ok("{}".into()))]);
        assert_eq!(read(framed(&field(1, &field(1, &field(1, b"\xff"))))), [(0, Ok("null".into()))]);
    }
}
