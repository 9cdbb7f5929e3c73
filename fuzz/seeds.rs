//! What fuzzing starts from: the example of each format and the tests' fixtures, as files, as files of columns, packed, and
//! as archives. A target writes its own into `corpus/` when it starts.

use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};

/// A name with each ending that a reader looks at; the first byte of an input chooses one.
pub const NAMES: [&str; 19] = [
    "x.json",
    "x.jsonl",
    "x.ndjson",
    "x.traj",
    "x.cast",
    "x.eval",
    "x.har",
    "x.xml",
    "x.txt",
    "x.log",
    "x.yaml",
    "x.ipynb",
    "x.parquet",
    "x.arrow",
    "x.csv",
    "x.tfrecord",
    "x.jsonl.gz",
    "x.tfrecord.gz",
    "x.jsonl.zst",
];

/// Writes the seeds of a target. One that cannot be written ends the fuzzing.
pub fn write(target: &str) {
    let seeds = match target {
        "formats" => formats(),
        "archives" => archives(),
        _ => files(),
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let written = std::fs::create_dir_all(&folder).and_then(|()| {
        let seeds = seeds?;
        seeds.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes))
    });
    written.expect("the seeds can be written");
}

type Seeds = Result<Vec<(String, Vec<u8>)>>;

fn chosen(at: usize, content: &[u8]) -> Vec<u8> {
    [&[at as u8], content].concat()
}

fn formats() -> Seeds {
    let formats = worldloom_ingest::formats().into_iter().enumerate();
    Ok(formats.map(|(at, format)| (format.name, chosen(at, format.example.as_bytes()))).collect())
}

fn files() -> Seeds {
    let place = |name: &str| NAMES.iter().position(|known| *known == name).expect("a name of the list");
    let mut seeds = Vec::new();
    for format in worldloom_ingest::formats() {
        seeds.push((format.name, chosen(place("x.jsonl"), format.example.as_bytes())));
    }
    for path in fixtures().into_iter().flat_map(walkdir::WalkDir::new) {
        let path = path?.into_path();
        let name = path.to_string_lossy().replace('/', "_");
        let ending = |known: &&str| path.is_file() && name.ends_with(known.trim_start_matches('x'));
        if let Some(at) = NAMES.iter().rposition(|known| ending(&known)) {
            let short = name.rsplit_once("tests_").map_or(name.as_str(), |(_, short)| short);
            seeds.push((short.into(), chosen(at, &std::fs::read(&path)?)));
        }
    }
    let row = br#"[{"role": "user", "content": "List."}, {"role": "assistant", "content": "`ls`"}]"#;
    let csv =
        [b"messages\n\"".as_slice(), String::from_utf8_lossy(row).replace('"', "\"\"").as_bytes(), b"\"\n"].concat();
    let column: StringArray = [str::from_utf8(row).ok(), None].into_iter().collect();
    let batch = RecordBatch::try_from_iter([("messages", Arc::new(column) as _)]).expect("one column");
    let (mut parquet, mut arrow) = (Vec::new(), Vec::new());
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut arrow, &batch.schema()).expect("memory");
    writer.write(&batch).and_then(|()| writer.finish()).expect("memory");
    drop(writer);
    let line = [b"{\"messages\": ".as_slice(), row, b"}\n"].concat();
    let zst = zstd::encode_all(line.as_slice(), 1)?;
    for (name, content) in
        [("x.csv", csv), ("x.parquet", parquet), ("x.arrow", arrow), ("x.jsonl.gz", gzip(&line)?), ("x.jsonl.zst", zst)]
    {
        seeds.push((name.into(), chosen(place(name), &content)));
    }
    Ok(seeds)
}

fn archives() -> Seeds {
    let mut seeds = Vec::new();
    for folder in fixtures() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path().is_dir() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let mut archive = tar::Builder::new(Vec::new());
                archive.append_dir_all(".", entry.path())?;
                let tar = archive.into_inner()?;
                seeds.push((format!("{name}.tar.gz"), chosen(2, &gzip(&tar)?)));
                seeds.push((format!("{name}.tar"), chosen(0, &tar)));
            }
        }
    }
    Ok(seeds)
}

fn fixtures() -> [PathBuf; 2] {
    ["fixtures/agents", "gui/fixtures"]
        .map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ingest/tests").join(path))
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes)?;
    packed.finish()
}
