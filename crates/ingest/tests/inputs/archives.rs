//! Archives, also hostile and broken ones.

use std::path::Path;

use worldloom_ingest::run;

use crate::common::{config, ingest, ingest_text, write};
use crate::content::{gzip, line, tar, zip};

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
