//! Where logs come from: archives, files of columns, addresses; maps, texts, explanations; a run that goes on.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "ingest/common.rs"]
mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use common::{Output, config, ingest, ingest_text, row, try_text, write};
use object_store::ObjectStoreExt;
use worldloom_ingest::{Access, CorpusConfig, Error, IngestConfig, read_bytes, run, run_corpus, run_with};
use worldloom_schema::{ActionKind, DOCUMENT_FILE, Document, Domain, TRAJECTORY_FILE, Trajectory, read_table};

fn line(number: u64) -> String {
    row(&format!("Task {number}"), &format!("ls {number}"), &format!("file{number}"), "")
}

/// A tar of (name, content); a name is written as it is, however hostile.
fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
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

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn archives_are_read_like_folders_and_may_lie_in_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (line(1), line(2));
    let files = [("a/one.jsonl", one.as_str()), ("two.json", two.as_str()), ("README.md", "# no log")];
    let bytes: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    let inner = zip(&bytes);
    for (name, content) in [
        ("x.tar", tar(&files)),
        ("x.tar.gz", gzip(&tar(&files))),
        ("x.tgz", gzip(&tar(&files))),
        ("x.tar.zst", zstd::encode_all(tar(&files).as_slice(), 1).unwrap()),
        ("x.zip", inner.clone()),
        ("nested.zip", zip(&[("deep/inner.zip", &inner)])),
    ] {
        let path = write(folder.path(), name, content);
        let output = ingest(&config(&[path])).unwrap();
        let found: Vec<_> = output.trajectories.iter().map(|trajectory| trajectory.source_path.as_str()).collect();
        let start = if name == "nested.zip" { "nested.zip/deep/inner.zip" } else { name };
        assert_eq!(found, [format!("{start}/a/one.jsonl"), format!("{start}/two.json")], "{:?}", output.rejects);
        assert!(output.trajectories.iter().all(|trajectory| trajectory.source == name.split('.').next().unwrap()));
        assert_eq!(output.count("files_skipped"), 1);
    }
    let output = ingest(&config(&[folder.path().into()])).unwrap();
    assert_eq!(output.trajectories.len(), 12, "archives in a folder are found");
}

#[test]
fn hostile_and_broken_archives_are_refused_with_a_reason_and_leave_nothing_behind() {
    let text = line(1);
    let bomb = zip(&[("bomb.json", vec![b' '; 300 << 20].as_slice())]);
    for (name, content, rule) in [
        ("up.tar", tar(&[("../evil.json", &text)]), "archive_path"),
        ("root.tar", tar(&[("/tmp/evil.json", &text)]), "archive_path"),
        ("hidden.tar", tar(&[("a/../../evil.json", &text)]), "archive_path"),
        ("up.zip", zip(&[("../evil.json", text.as_bytes())]), "archive_path"),
        ("windows.zip", zip(&[("..\\evil.json", text.as_bytes())]), "archive_path"),
        ("bomb.zip", bomb, "archive_bomb"),
        ("cut.zip", zip(&[("a.json", text.as_bytes())])[..60].to_vec(), "archive"),
        ("cut.tar", tar(&[("a.json", &text)])[..700].to_vec(), "archive"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let input = root.path().join("in");
        write(&input, name, content);
        write(&input, "good.json", line(7));
        let out = root.path().join("out");
        let report = run(&config(&[input]), &out, &|_, _| {}).unwrap();
        assert_eq!(report.rejects_by_rule.keys().collect::<Vec<_>>(), [rule], "{name}");
        assert_eq!(report.counts["trajectories"], 1, "{name}");
        let mut left: Vec<_> =
            fs_err::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["rejects.parquet", "report.json", "trajectories.parquet"], "{name}");
        assert_eq!(fs_err::read_dir(root.path()).unwrap().count(), 2, "{name}: nothing beside");
    }
    assert!(!Path::new("/tmp/evil.json").exists());
}

#[test]
fn links_in_archives_are_passed_over_and_counted() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link.json", "/etc/passwd").unwrap();
    let mut file = tar::Header::new_gnu();
    file.set_size(line(1).len() as u64);
    file.set_mode(0o644);
    builder.append_data(&mut file, "a.json", line(1).as_bytes()).unwrap();
    let output = ingest_text("x.tar", builder.into_inner().unwrap());
    assert_eq!((output.trajectories.len(), output.count("archive_links_skipped")), (1, 1));
}

/// Two episodes with messages as a list of structs, as `datasets` writes them: a message has the fields of all.
fn batch() -> RecordBatch {
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
fn tables() -> Vec<(&'static str, Vec<u8>)> {
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

#[test]
fn parquet_arrow_and_csv_rows_are_read_like_json() {
    for (name, content) in tables() {
        let output = ingest_text(name, content);
        let turns: Vec<_> = output
            .trajectories
            .iter()
            .map(|trajectory| {
                (
                    trajectory.task_group.as_str(),
                    trajectory.turns[0].action.as_str(),
                    trajectory.turns[0].observation.as_str(),
                )
            })
            .collect();
        assert_eq!(turns, [("9007199254740993", "ls", "fig"), ("2", "ls -a", "plum")], "{name}: {:?}", output.rejects);
    }
    let (_, parquet) = &tables()[0];
    let broken = [&parquet[..parquet.len() - 9], b"broken..."].concat();
    let (_, rejects) = read_bytes("cut.parquet", broken, None).unwrap();
    assert_eq!((rejects.len(), rejects[0].rule.as_str()), (1, "parquet"));
    let (_, file) = &tables()[1];
    let fewer = [&file[..file.len() / 2], &file[file.len() - 400..]].concat();
    let (_, rejects) = read_bytes("fewer.arrow", fewer, None).unwrap();
    assert_eq!((rejects.len(), rejects[0].rule.as_str()), (1, "arrow"));
    let (_, rejects) = read_bytes("head.jsonl.gz", b"\x1f\x8bno gzip".to_vec(), None).unwrap();
    assert_eq!((rejects.len(), rejects[0].rule.as_str()), (1, "cut"), "{rejects:?}");
}

/// A server on loopback that knows one file.
fn serve(path: &'static str, body: Vec<u8>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}{path}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(request)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let found = request.split(' ').nth(1) == Some(path);
            let head = if found { "200 OK" } else { "404 Not Found" };
            let length = if found { body.len() } else { 0 };
            let _ = write!(
                stream,
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nETag: \"1\"\r\nLast-Modified: Sun, 29 Nov 2026 20:00:00 GMT\r\nConnection: close\r\n\r\n"
            );
            if found && request.starts_with("GET") {
                let _ = stream.write_all(&body);
            }
        }
    });
    address
}

fn run_from(inputs: &[String], access: &Access) -> Result<(Vec<Trajectory>, worldloom_ingest::Report), Error> {
    let out = tempfile::tempdir().unwrap();
    let inputs: Vec<_> = inputs.iter().map(Into::into).collect();
    let report = run_with(&config(&inputs), out.path(), access, &|_, _| {})?;
    Ok((read_table(&out.path().join(TRAJECTORY_FILE)).unwrap(), report))
}

#[test]
fn a_file_over_http_is_read_as_it_comes() {
    let body: String = (0..3000).map(|number| line(number) + "\n").collect();
    let address = serve("/logs/runs.jsonl.gz", gzip(body.as_bytes()));
    let (trajectories, _) = run_from(std::slice::from_ref(&address), &Access::default()).unwrap();
    assert_eq!(trajectories.len(), 3000);
    assert_eq!((trajectories[0].source_path.as_str(), trajectories[0].source.as_str()), ("runs.jsonl.gz", "logs"));
    let missing = address.replace("runs", "none");
    let error = run_from(&[missing], &Access::default()).unwrap_err().to_string();
    assert!(error.contains("none.jsonl.gz"), "{error}");
    let error = run_from(&[format!("{address}?token=1")], &Access::default()).unwrap_err().to_string();
    assert!(error.contains("query"), "{error}");
}

#[test]
fn objects_of_a_store_are_listed_read_and_unpacked() {
    let store = object_store::memory::InMemory::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let parquet = {
        let mut bytes = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch().schema(), None).unwrap();
        writer.write(&batch()).unwrap();
        writer.close().unwrap();
        bytes
    };
    for (name, content) in [
        ("runs/b/two.jsonl", line(2).into_bytes()),
        ("runs/a.json", line(1).into_bytes()),
        ("runs/c.parquet", parquet),
        ("runs/d.zip", zip(&[("three.json", line(3).as_bytes())])),
        ("runs/notes.md", b"# no log".to_vec()),
        ("other/x.json", line(9).into_bytes()),
    ] {
        runtime.block_on(store.put(&name.into(), content.into())).unwrap();
    }
    let access = Access::default().with_store("s3://bucket", Arc::new(store));
    let (trajectories, report) = run_from(&["s3://bucket/runs".into()], &access).unwrap();
    let found: Vec<_> = trajectories.iter().map(|trajectory| trajectory.source_path.as_str()).collect();
    assert_eq!(found, ["a.json", "b/two.jsonl", "c.parquet", "c.parquet", "d.zip/three.json"]);
    assert_eq!(report.counts["files_skipped"], 1);
    let (one, _) = run_from(&["s3://bucket/other/x.json".into()], &access).unwrap();
    assert_eq!((one[0].source_path.as_str(), one[0].source.as_str()), ("x.json", "other"));
    let error = run_from(&["s3://bucket/nothing".into()], &access).unwrap_err().to_string();
    assert!(error.contains("no object of this name"), "{error}");
    let key = |address: &str| worldloom_ingest::address_key(Path::new(address), &access).unwrap();
    assert_ne!(key("s3://bucket/runs"), key("s3://bucket/other"));
}

const MAP: &str = r#"
messages = "log.entries"
role = "who"
content = "text"
action_kind = "command"
domain = "terminal"
task = "goal"
error = "failed"
[roles]
agent = ["bot"]
environment = ["shell"]
user = ["human"]
system = ["setup"]
thoughts = ["plan"]
ignore = ["debug"]
"#;

fn mapped(map: &str, content: &str) -> Result<Output, Error> {
    let folder = tempfile::tempdir().unwrap();
    let map = write(folder.path(), "map.toml", map);
    let path = write(folder.path(), "x.jsonl", content);
    ingest(&IngestConfig { map: Some(map), ..config(&[path]) })
}

#[test]
fn a_map_reads_json_of_any_shape() {
    let row = r#"{"goal": "Look.", "log": {"entries": [{"who": "setup", "text": "You have a shell."}, {"who": "debug", "text": "x"}, {"who": "plan", "text": "hm"}, {"who": "bot", "text": "ls"}, {"who": "shell", "text": "fig", "failed": false}, {"who": "bot", "text": "cat none"}, {"who": "shell", "text": "none", "failed": true}]}}"#;
    let output = mapped(MAP, row).unwrap();
    let trajectory = output.only();
    assert_eq!((trajectory.domain, trajectory.format.as_str()), (Domain::Terminal, "map"));
    assert_eq!(trajectory.system.task_description, "Look.");
    assert_eq!(trajectory.system.action_space.as_deref(), Some("You have a shell."));
    let turn = &trajectory.turns[0];
    assert_eq!((turn.action.as_str(), turn.action_kind, turn.observation.as_str()), ("ls", ActionKind::Command, "fig"));
    assert_eq!(
        (turn.reasoning.as_deref(), turn.is_error, trajectory.turns[1].is_error),
        (Some("hm"), Some(false), Some(true))
    );
    assert_eq!(output.count("messages_ignored_by_the_map"), 1);
    let steps = "messages = \"steps\"\naction = \"do\"\nobservation = \"saw.text\"\n";
    let output = mapped(steps, r#"{"steps": [{"do": "press", "saw": {"text": "lit"}}, {"do": "wait"}]}"#).unwrap();
    assert_eq!((output.only().turns.len(), output.only().turns[0].observation.as_str()), (1, "lit"));
    let output = mapped(MAP, &(row.to_string() + "\n" + &row.replace("\"plan\"", "\"judge\""))).unwrap();
    assert_eq!(output.rejects[0].rule, "role");
}

#[test]
fn a_map_that_cannot_be_used_says_why() {
    let refused = |map: &str| mapped(map, "{}").err().map(|error| error.to_string()).unwrap();
    assert!(refused("messages = 5").contains("invalid type"));
    assert!(refused(&MAP.replace("goal", "x").replace("task =", "tsak =")).contains("tsak"));
    assert!(refused("messages = \"m\"").contains("expected either"));
    assert!(refused(&MAP.replace("[\"shell\"]", "[]")).contains("environment"));
    assert!(refused(&MAP.replace("\"terminal\"", "\"moon\"")).contains("moon"));
}

#[test]
fn texts_become_documents() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "books/pie.md", "words\n# Pies\n\nA pie.\n");
    write(folder.path(), "books/plain.txt", "Only words.");
    write(
        folder.path(),
        "rows.jsonl",
        "{\"text\": \"One.\", \"title\": \"First\", \"license\": \"MIT\"}\n{\"text\": null}\n{\"text\": \"Two.\"}\n",
    );
    write(folder.path(), "rows.csv", "id,text\n1,\"Three, four.\"\n");
    write(folder.path(), "binary.txt", [b'a', 0, 255]);
    let corpus = |field: Option<&str>| CorpusConfig {
        inputs: vec![folder.path().into()],
        text_field: field.map(str::to_string),
        licence: Some("CC0-1.0".into()),
        max_reject_share: 1.0,
        strict: false,
    };
    let out = tempfile::tempdir().unwrap();
    let report = run_corpus(&corpus(None), out.path(), &Access::default(), &|_, _| {}).unwrap();
    let documents: Vec<Document> = read_table(&out.path().join(DOCUMENT_FILE)).unwrap();
    let found: Vec<_> = documents
        .iter()
        .map(|document| {
            (
                document.source_path.as_str(),
                document.title.as_deref(),
                document.text.as_str(),
                document.licence.as_deref(),
            )
        })
        .collect();
    let own = Some("CC0-1.0");
    assert_eq!(
        found,
        [
            ("books/pie.md", Some("Pies"), "words\n# Pies\n\nA pie.\n", own),
            ("books/plain.txt", None, "Only words.", own),
            ("rows.csv", None, "Three, four.", own),
            ("rows.jsonl", Some("First"), "One.", Some("MIT")),
            ("rows.jsonl", None, "Two.", own),
        ]
    );
    assert_eq!(documents[1].document_id, worldloom_schema::document_id("Only words."));
    let rules: Vec<_> = report.rejects_by_rule.iter().map(|(rule, count)| (rule.as_str(), *count)).collect();
    assert_eq!(rules, [("binary", 1), ("no_text", 1)]);
    assert_eq!((report.counts["documents"], report.counts["rows"]), (5, 7));
}

#[test]
fn a_killed_run_goes_on_from_its_finished_parts() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "x.jsonl", format!("{}\n{}", line(1), line(2)));
    let out = folder.path().join("out");
    let limited = IngestConfig { max_reject_share: 0.0, ..config(std::slice::from_ref(&input)) };
    let broken = write(folder.path(), "broken.jsonl", "{\"messages\": 5}\n");
    let both = IngestConfig { inputs: vec![input.clone(), broken], ..limited.clone() };
    assert!(matches!(run(&both, &out, &|_, _| {}), Err(Error::TooManyRejects { .. })));
    assert!(out.join("rejects.parquet").exists(), "the rejects are there to be read");
    let part = out.join(".parts/000000.made.parquet");
    let written = fs_err::metadata(&part).unwrap().modified().unwrap();
    // The part is finished: only its share was too high. It is not read again, as a note in its record shows.
    let record = out.join(".parts/000000.json");
    let marked = fs_err::read_to_string(&record).unwrap().replace("\"rows\":3", "\"rows\":3,\"kept\":1");
    fs_err::write(&record, marked).unwrap();
    let report = run(&IngestConfig { max_reject_share: 1.0, ..both.clone() }, &out, &|_, _| {}).unwrap();
    assert_eq!((report.counts["trajectories"], report.counts["kept"]), (2, 1));
    assert!(written <= fs_err::metadata(out.join(TRAJECTORY_FILE)).unwrap().modified().unwrap());
    assert!(!out.join(".parts").exists());
    // Another input is another part.
    let report = run(&limited, &out, &|_, _| {}).unwrap();
    assert_eq!((report.counts["rows"], report.counts.get("kept")), (2, None));
}

#[test]
fn an_explanation_says_the_format_and_shows_the_first_trajectory() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.jsonl", format!("{{\"messages\": 5}}\n{}\n{}", line(1), line(2)));
    let explained = worldloom_ingest::explain(&config(&[path]), folder.path(), &Access::default()).unwrap();
    assert_eq!((explained.format.as_deref(), explained.shape, explained.rows), (Some("chat"), "row", 2));
    assert_eq!(explained.trajectory.unwrap().system.task_description, "Task 1");
    assert_eq!(explained.rejects[0].rule, "field_type");
    let path = write(folder.path(), "y.json", "{\"a\": 1}");
    let explained = worldloom_ingest::explain(&config(&[path]), folder.path(), &Access::default()).unwrap();
    assert_eq!((explained.format, explained.rejects[0].rule.as_str()), (None, "unknown_format"));
}

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
