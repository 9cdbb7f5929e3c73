//! The official row files, and the files of a run: JSON lines, split at line feeds alone (a row may hold U+2028).

use std::io::Write;
use std::path::{Path, PathBuf};

use super::row::{BenchRow, RowFault};

/// End of the names that are read from a folder.
pub const ROWS_SUFFIX: &str = "_test.jsonl";

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line that is no row.
    #[error("`{path}`: line {line}: {fault}")]
    Row {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        fault: RowFault,
    },
    /// A folder without row files.
    #[error("`{path}` holds no file named *{ROWS_SUFFIX}")]
    NoFiles {
        /// The folder.
        path: PathBuf,
    },
}

/// Reads a file of rows, or all `*_test.jsonl` of a folder in the order of their names.
pub fn read_rows(path: &Path) -> Result<Vec<BenchRow>, FileFault> {
    if !path.is_dir() {
        return read_file(path);
    }
    let mut files = Vec::new();
    for entry in fs_err::read_dir(path)? {
        let file = entry?.path();
        if file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ROWS_SUFFIX)) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(FileFault::NoFiles { path: path.into() });
    }
    let rows: Result<Vec<Vec<BenchRow>>, FileFault> = files.iter().map(|file| read_file(file)).collect();
    Ok(rows?.into_iter().flatten().collect())
}

fn read_file(path: &Path) -> Result<Vec<BenchRow>, FileFault> {
    let text = fs_err::read_to_string(path)?;
    let lines = text.split('\n').enumerate().filter(|(_, line)| !line.trim().is_empty());
    let row = |(index, line): (usize, &str)| {
        let fault = |fault| FileFault::Row { path: path.into(), line: index + 1, fault };
        BenchRow::parse(line.trim_start_matches('\u{feff}').trim()).map_err(fault)
    };
    lines.map(row).collect()
}

/// Writes rows, whole or not at all.
pub fn write_rows(path: &Path, rows: &[BenchRow]) -> Result<(), FileFault> {
    let part = path.with_extension("part");
    let mut file = std::io::BufWriter::new(fs_err::File::create(&part)?);
    for row in rows {
        writeln!(file, "{}", row.fields().to_json())?;
    }
    file.flush()?;
    file.get_ref().sync_all()?;
    drop(file);
    Ok(fs_err::rename(part, path)?)
}
