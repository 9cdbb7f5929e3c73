//! Files to rows: layouts, packed forms, broken files, limits, order.

use crate::common::{config, ingest, ingest_text, row, try_text, write};
use std::io::Write;
use std::path::Path;
use worldloom_ingest::{Error, IngestConfig};
use worldloom_schema::ActionKind;

fn many(count: usize) -> String {
    (0..count).map(|at| row(&format!("Task {at}"), &format!("ls {at}"), &format!("file{at}"), "") + "\n").collect()
}

#[test]
fn every_container_gives_the_same_trajectories() {
    let lines = many(3);
    let list = format!("[{}]", lines.trim().replace('\n', ","));
    let pretty: serde_json::Value = serde_json::from_str(&list).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(lines.as_bytes()).unwrap();
    let contents: [(&str, Vec<u8>); 8] = [
        ("a.jsonl", lines.clone().into()),
        ("a.ndjson", lines.replace('\n', "\r\n\n").into()),
        ("a.json", list.clone().into()),
        ("array.jsonl", list.into()),
        ("pretty.json", serde_json::to_vec_pretty(&pretty).unwrap()),
        ("a.jsonl.gz", packed.finish().unwrap()),
        ("a.jsonl.zst", zstd::encode_all(lines.as_bytes(), 1).unwrap()),
        ("mark.jsonl", format!("\u{feff}{lines}").into()),
    ];
    let ids = |name: &str, content: &[u8]| -> Vec<String> {
        ingest_text(name, content).trajectories.iter().map(|trajectory| trajectory.trajectory_id.clone()).collect()
    };
    let expected = ids("a.jsonl", lines.as_bytes());
    assert_eq!(expected.len(), 3);
    for (name, content) in &contents {
        assert_eq!(ids(name, content), expected, "{name}");
    }
}

#[test]
fn a_bare_list_of_messages_and_one_object_per_file_are_trajectories() {
    let object = row("t", "ls", "x", "");
    let start = object.find('[').unwrap();
    let bare = &object[start..object.len() - 1];
    assert_eq!(ingest_text("bare.json", bare).trajectories.len(), 1);
    assert_eq!(ingest_text("two.jsonl", format!("{bare}\n{bare}")).trajectories.len(), 2);
    assert_eq!(ingest_text("one.json", object).trajectories.len(), 1);
}

#[test]
fn every_broken_row_is_rejected_with_file_row_byte_rule_and_detail() {
    let good = row("t", "ls", "x", "");
    let broken = [
        ("{\"messages\": [", "cut"),
        ("{\"messages\": [}]}", "json"),
        ("{\"messages\": 5}", "field_type"),
        ("{\"steps\": []}", "no_messages"),
        ("{\"messages\": [7]}", "message_type"),
        ("{\"messages\": [{\"role\": \"judge\", \"content\": \"\"}]}", "role"),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"only words\"}]}", "no_turns"),
        ("{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": {}}]}", "field_type"),
        (
            "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\": {}}}]}]}",
            "call_name",
        ),
        ("7", "field_type"),
    ];
    let mut lines = vec![good.clone()];
    lines.extend(broken.iter().map(|(line, _)| line.to_string()));
    lines.extend([
        row("t", "ls", "x", ", \"domain\": \"moon\""),
        row("t", "ls", "x", ", \"source\": []"),
        good.clone(),
    ]);
    let output = ingest_text("x.jsonl", lines.join("\n"));
    assert_eq!(output.trajectories.len(), 2);
    let mut expected: Vec<&str> = broken.iter().map(|(_, rule)| *rule).collect();
    expected.extend(["domain", "field_type"]);
    let found: Vec<&str> = output.rejects.iter().map(|reject| reject.rule.as_str()).collect();
    assert_eq!(found, expected, "{:?}", output.rejects);
    let mut offset = 0;
    for (at, line) in lines.iter().enumerate() {
        if let Some(reject) = output.rejects.iter().find(|reject| reject.row == at as u64) {
            assert_eq!((reject.byte_offset, reject.file.as_str()), (offset, "x.jsonl"), "{reject:?}");
            assert!(!reject.detail.is_empty());
        }
        offset += line.len() as u64 + 1;
    }
    assert_eq!(output.report.rejects_by_rule["field_type"], 4);
}

#[test]
fn a_file_cut_in_the_middle_keeps_what_is_whole() {
    let lines = many(4000);
    let packed = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    let output = ingest_text("cut.jsonl.zst", &packed[..packed.len() - 10]);
    assert_eq!(output.report.rejects_by_rule.get("cut"), Some(&1), "{:?}", output.rejects);
    assert!(output.trajectories.len() > 2000, "{}", output.trajectories.len());
    let list = format!("[{}]", many(3).trim().replace('\n', ","));
    let output = ingest_text("cut.json", &list[..list.len() - 30]);
    assert_eq!((output.trajectories.len(), output.rejects.len()), (2, 1));
    assert_eq!(output.rejects[0].rule, "cut");
}

#[test]
fn a_file_of_another_kind_is_one_reject_beside_the_others() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "good.jsonl", many(2));
    write(folder.path(), "package.json", "{\"name\": \"x\", \"version\": \"1\"}");
    write(folder.path(), "words.json", "# not JSON\nat all\n");
    write(folder.path(), "README.md", "# words");
    write(folder.path(), ".hidden.json", "{}");
    let output = ingest(&config(&[folder.path().into()])).unwrap();
    assert_eq!(output.count("files_skipped"), 2);
    assert_eq!(output.trajectories.len(), 2);
    let found: Vec<_> = output.rejects.iter().map(|reject| (reject.file.as_str(), reject.rule.as_str())).collect();
    assert_eq!(found, [("package.json", "unknown_format"), ("words.json", "not_json")]);
}

fn error(config: &IngestConfig) -> (String, String) {
    let error = match ingest(config) {
        Ok(_) => panic!("expected an error"),
        Err(error) => error,
    };
    (error.to_string(), error.hint().unwrap_or_default())
}

#[test]
fn nothing_to_read_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let (message, hint) = error(&config(&[folder.path().into()]));
    assert!(message.starts_with("no file to read in `") && hint.contains(".jsonl"), "{message} {hint}");
    let empty = write(folder.path(), "empty.jsonl", "");
    let (message, hint) = error(&config(&[empty]));
    assert!(message.contains("all empty") && hint.contains("at least one"), "{message} {hint}");
    let words = write(folder.path(), "words.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n");
    let (message, hint) = error(&config(&[words]));
    assert!(message.contains("no_turns") && hint.contains("chat, agent-instruct, sharegpt"), "{message} {hint}");
    let (message, _) = error(&config(&[folder.path().join("missing.jsonl")]));
    assert!(message.contains("missing.jsonl` does not exist"), "{message}");
    let (message, _) = error(&config(&[]));
    assert!(message.contains("an empty list of inputs"), "{message}");
}

#[test]
fn too_many_rejects_name_the_commonest_rule_and_its_first_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl", many(6) + "{\"messages\": 5}\n{\"messages\": 6}\n{\"a\"\n");
    let mut limited = IngestConfig { max_reject_share: 0.34, ..config(&[path]) };
    assert_eq!(ingest(&limited).unwrap().rejects.len(), 3);
    limited.max_reject_share = 0.33;
    let (message, hint) = error(&limited);
    assert!(message.contains("3 of 9 rows rejected (33.3 %)"), "{message}");
    assert!(message.contains("2 by rule `field_type`, such as `x.jsonl` row 6 at byte"), "{message}");
    assert!(hint.contains("max_reject_share"));
    limited.max_reject_share = 1.5;
    assert!(error(&limited).0.contains("max_reject_share = 1.5, expected 0 to 1"));
}

#[test]
fn strict_stops_at_the_first_reject() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl", many(1) + "{\"messages\": 5}\n{\"a\"\n");
    let (message, _) = error(&IngestConfig { strict: true, ..config(&[path]) });
    assert!(message.contains("`x.jsonl` row 1 at byte") && message.contains("field_type"), "{message}");
}

#[test]
fn a_forced_format_reads_what_detection_would_not_and_an_unknown_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl", many(1));
    let forced = |name: &str| IngestConfig { format: Some(name.into()), ..config(std::slice::from_ref(&path)) };
    assert_eq!(ingest(&forced("chat")).unwrap().trajectories.len(), 1);
    assert!(error(&forced("sharegpt")).0.contains("no_messages"));
    let (message, hint) = error(&forced("chatt"));
    assert!(
        message.contains("unknown format `chatt`; known: ")
            && message.contains("chat, agent-instruct, sharegpt")
            && hint.contains("detected"),
        "{message}"
    );
}

fn written(folder: &Path, num_threads: usize) -> Vec<u8> {
    let out = tempfile::tempdir().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build().unwrap();
    let config = config(&[folder.into()]);
    pool.install(|| worldloom_ingest::run(&config, out.path(), &|_, _| {})).unwrap();
    let mut bytes = Vec::new();
    for name in ["trajectories.parquet", "rejects.parquet", "report.json"] {
        bytes.extend(fs_err::read(out.path().join(name)).unwrap());
    }
    bytes
}

#[test]
fn the_output_does_not_depend_on_threads_or_on_the_order_in_which_files_were_made() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, other) = (one.path().join("same"), other.path().join("same"));
    let names = ["b/x.jsonl", "a.jsonl", "b/a.json", "c.jsonl.zst"];
    let content = |name: &str| match name {
        "c.jsonl.zst" => zstd::encode_all(many(1500).as_bytes(), 1).unwrap(),
        "b/a.json" => row("single", "pwd", "/", "").into_bytes(),
        _ => (many(600).replace("Task", name) + "{\"cut\": ").into_bytes(),
    };
    names.iter().for_each(|name| drop(write(&one, name, content(name))));
    names.iter().rev().for_each(|name| drop(write(&other, name, content(name))));
    let expected = written(&one, 1);
    assert!(written(&one, 4) == expected);
    assert!(written(&other, 3) == expected);
}

#[test]
fn a_file_given_twice_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl", many(2));
    assert_eq!(ingest(&config(&[path.clone(), folder.path().into(), path])).unwrap().trajectories.len(), 2);
}

#[test]
fn progress_ends_at_the_size_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl.zst", zstd::encode_all(many(2000).as_bytes(), 1).unwrap());
    let last = std::sync::Mutex::new((0, 0));
    let out = tempfile::tempdir().unwrap();
    let config = config(std::slice::from_ref(&path));
    worldloom_ingest::run(&config, out.path(), &|done, total| *last.lock().unwrap() = (done, total)).unwrap();
    let size = fs_err::metadata(path).unwrap().len();
    assert_eq!(*last.lock().unwrap(), (size, size));
}

#[test]
fn a_line_of_200_megabytes_is_one_row() {
    let long = "x".repeat(200 << 20);
    let mut content = many(1).into_bytes();
    content.extend_from_slice(row("big", "cat big", &long, "").as_bytes());
    content.extend_from_slice(b"\n");
    content.extend_from_slice(many(1).as_bytes());
    drop(long);
    let output = ingest_text("big.jsonl", &content);
    let lengths: Vec<usize> =
        output.trajectories.iter().map(|trajectory| trajectory.turns[0].observation.len()).collect();
    assert_eq!(lengths, [5, 200 << 20, 5]);
}

#[test]
fn every_format_names_itself_and_its_example_is_read() {
    for format in worldloom_ingest::formats() {
        assert!(!format.description.is_empty() && !format.example.is_empty());
        // A folder is more than its example, which is one of its files; each has its own test.
        if !format.description.starts_with("A folder") {
            assert_eq!(ingest_text("x.jsonl", &format.example).only().format, format.name);
        }
    }
    assert!(matches!(try_text("x.jsonl", "{}"), Err(Error::NoTrajectories { .. })));
}

#[test]
fn the_bundled_sample_is_ingested_whole() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/terminal-sample.jsonl.zst");
    let output = ingest(&IngestConfig { strict: true, ..config(&[sample]) }).unwrap();
    assert!(output.trajectories.len() >= 2000);
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    assert!(turns().all(|turn| turn.action_kind == ActionKind::Command && turn.trace.is_some()));
    assert!(turns().all(|turn| turn.is_error.is_some() && turn.flag("class").is_some()));
    let odd: Vec<_> =
        output.report.counts.keys().filter(|name| name.contains("without") || name.contains("repaired")).collect();
    assert!(odd.is_empty(), "{odd:?}");
}
