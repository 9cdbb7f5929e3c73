//! Files of columns, also damaged ones.

use worldloom_ingest::read_bytes;

use crate::common::ingest_text;
use crate::content::tables;

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
