//! What the tests here put into files: rows, archives, files of columns.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};

use crate::common::row;

/// The row of a numbered episode.
pub(crate) fn line(number: u64) -> String {
    row(&format!("Task {number}"), &format!("ls {number}"), &format!("file{number}"), "")
}

/// A tar of (name, content); a name is written as it is, however hostile.
pub(crate) fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A zip of (name, content).
pub(crate) fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The bytes packed.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Two episodes with messages as a list of structs, as `datasets` writes them: a message has the fields of all.
pub(crate) fn batch() -> RecordBatch {
    let role: ArrayRef = Arc::new(StringArray::from(vec!["user", "assistant", "tool", "user", "assistant", "tool"]));
    let content: ArrayRef =
        Arc::new(StringArray::from(vec![Some("List."), None, Some("fig"), Some("List."), None, Some("plum")]));
    let call: ArrayRef = Arc::new(StringArray::from(vec![None, Some("bash"), None, None, Some("bash"), None]));
    let arguments: ArrayRef = Arc::new(StringArray::from(vec![
        None,
        Some(r#"{"command": "ls"}"#),
        None,
        None,
        Some(r#"{"command": "ls -a"}"#),
        None,
    ]));
    let function =
        Fields::from(vec![Field::new("name", DataType::Utf8, true), Field::new("arguments", DataType::Utf8, true)]);
    let is_call = arrow::buffer::NullBuffer::from(vec![false, true, false, false, true, false]);
    let function_call: ArrayRef = Arc::new(StructArray::new(function.clone(), vec![call, arguments], Some(is_call)));
    let fields = Fields::from(vec![
        Field::new("role", DataType::Utf8, false),
        Field::new("content", DataType::Utf8, true),
        Field::new("function_call", DataType::Struct(function), true),
    ]);
    let messages = StructArray::new(fields.clone(), vec![role, content, function_call], None);
    let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
    let list: ArrayRef =
        Arc::new(ListArray::new(item.clone(), OffsetBuffer::from_lengths([3, 3]), Arc::new(messages), None));
    let number: ArrayRef = Arc::new(Int64Array::from(vec![9_007_199_254_740_993, 2]));
    let schema = Schema::new(vec![
        Field::new("messages", DataType::List(item), true),
        Field::new("task_group", DataType::Int64, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![list, number]).unwrap()
}

/// These episodes as a file of each kind of columns.
pub(crate) fn tables() -> Vec<(&'static str, Vec<u8>)> {
    let batch = batch();
    let mut parquet = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut ipc = Vec::new();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(&mut ipc, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let mut stream = Vec::new();
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let messages = |text: &str| {
        let row: serde_json::Value = serde_json::from_str(text).unwrap();
        row["messages"].to_string()
    };
    let rows = [row("List.", "ls", "fig", ""), row("List.", "ls -a", "plum", "")];
    let mut csv = String::from("task_group,messages\n");
    for (text, group) in rows.iter().zip(["9007199254740993", "2"]) {
        csv.push_str(&format!("{group},\"{}\"\n", messages(text).replace('"', "\"\"")));
    }
    let packed = gzip(&parquet);
    vec![
        ("a.parquet", parquet),
        ("a.arrow", ipc),
        ("stream.arrow", stream),
        ("a.csv", csv.into_bytes()),
        ("a.parquet.gz", packed),
    ]
}
