//! A library that panics on a damaged file makes a reject, and nothing is told to the program's panic hook. A test of its
//! own, since the hook is the process's.

use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, StringArray};
use worldloom_ingest::read_bytes;

#[test]
fn a_panic_that_becomes_a_reject_is_not_printed_and_another_is() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook_told = told.clone();
    std::panic::set_hook(Box::new(move |panic| hook_told.lock().unwrap().push(panic.to_string())));

    let texts = StringArray::from(vec!["fig", "plum", "fig"]);
    let batch = RecordBatch::try_from_iter([("messages", Arc::new(texts) as _)]).unwrap();
    let mut file = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let mut panics = 0;
    for at in 0..file.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= bits;
            let (_, rejects) = read_bytes("x.parquet", damaged, None).unwrap();
            panics += rejects.iter().filter(|reject| reject.detail.starts_with("damaged: ")).count();
        }
    }
    assert!(panics > 0, "the reader panics on some of these files, else nothing is tested");
    assert_eq!(*told.lock().unwrap(), [""; 0]);

    let own = std::panic::catch_unwind(|| panic!("our own"));
    assert!(own.is_err() && told.lock().unwrap().iter().any(|told| told.contains("our own")));
}
