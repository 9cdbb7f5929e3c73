//! Records terminal episodes: `cargo run --release -p worldloom-record --example record_terminal -- N SEED FILE`.

use std::io::Write;

use worldloom_record::terminal::{RecordConfig, record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [episodes, seed, out] = arguments.as_slice() else { return Err("expected: N SEED FILE".into()) };
    let config = RecordConfig::new(episodes.parse()?, seed.parse()?, out);
    let tell = |done: u64, total: u64| {
        if done.is_multiple_of(250) || done == total {
            let _ = writeln!(std::io::stderr(), "{done}/{total} episodes");
        }
    };
    let summary = record(&config, &tell)?;
    serde_json::to_writer_pretty(std::io::stdout(), &summary)?;
    Ok(())
}
