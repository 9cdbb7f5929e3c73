//! Files of columns, also damaged ones.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
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

#[test]
fn a_format_with_an_episode_in_several_rows_reads_files_of_columns_and_records() {
    let text = |values: [&str; 3]| Arc::new(StringArray::from(values.to_vec())) as _;
    let number = |values: [i64; 3]| Arc::new(Int64Array::from(values.to_vec())) as _;
    let batch = RecordBatch::try_from_iter([
        ("episode_id", text(["7", "7", "7"])),
        ("step_id", number([0, 1, 2])),
        ("goal_info", text(["home", "home", "home"])),
        ("results/action_type", number([5, 6, 10])),
    ])
    .unwrap();
    let mut file = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for format in [None, Some("aitw")] {
        let (trajectories, rejects) = read_bytes("steps.parquet", file.clone(), format).unwrap();
        assert_eq!((trajectories.len(), trajectories[0].turns.len(), rejects.len()), (1, 2, 0), "{rejects:?}");
    }

    let packed = "tests/gui/fixtures/aitw/general-00000-of-00321.tfrecord.gz";
    let packed = fs_err::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(packed)).unwrap();
    let mut records = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut records).unwrap();
    let cut = records[..records.len() - 1].to_vec();
    let (trajectories, rejects) = read_bytes("general-00000-of-00321", cut, None).unwrap();
    assert_eq!((trajectories.len(), trajectories[0].turns.len()), (1, 1), "the last step is lost");
    let third = records.len() as u64 * 2 / 3;
    let [reject] = &rejects[..] else { panic!("{rejects:?}") };
    assert_eq!((reject.rule.as_str(), reject.row), ("cut", 2));
    assert!(reject.byte_offset.abs_diff(third) < 20, "{} of {}", reject.byte_offset, records.len());
}
