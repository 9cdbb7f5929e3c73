//! Files at addresses.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStoreExt;
use worldloom_ingest::{Access, Error, run_with};
use worldloom_schema::{TRAJECTORY_FILE, Trajectory, read_table};

use crate::common::config;
use crate::content::{batch, gzip, line, zip};

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
