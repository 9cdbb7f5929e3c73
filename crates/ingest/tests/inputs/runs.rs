//! Runs besides: texts to documents, a run that goes on, an explanation.

use worldloom_ingest::{Access, CorpusConfig, Error, IngestConfig, run, run_corpus};
use worldloom_schema::{DOCUMENT_FILE, Document, TRAJECTORY_FILE, read_table};

use crate::common::{config, write};
use crate::content::line;

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
