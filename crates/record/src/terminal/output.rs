//! The raw log's file: JSON lines, compressed or not by its name, and there only when it is whole.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::episode::Episode;
use crate::Error;

const COMPRESSION_LEVEL: i32 = 19;

/// Writes episodes to a hidden file beside `path`, which takes that name at the end.
pub(crate) struct Output {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    Plain(BufWriter<NamedTempFile>),
    Compressed(zstd::Encoder<'static, BufWriter<NamedTempFile>>),
}

impl Output {
    /// Checks the path and makes the hidden file.
    pub(crate) fn create(path: &Path) -> Result<Output, Error> {
        let path = path.to_owned();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_compressed = file_name.ends_with(".jsonl.zst");
        if !is_compressed && !file_name.ends_with(".jsonl") {
            return Err(Error::UnknownFormat { path });
        }
        if path.is_dir() {
            return Err(Error::IsFolder { path });
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(Error::MissingFolder { path, folder });
        }
        let file = BufWriter::new(tempfile::Builder::new().prefix(".recording-").tempfile_in(&folder)?);
        let sink = match is_compressed {
            true => Sink::Compressed(zstd::Encoder::new(file, COMPRESSION_LEVEL)?),
            false => Sink::Plain(file),
        };
        Ok(Output { path, sink })
    }

    pub(crate) fn write(&mut self, episode: &Episode) -> Result<(), Error> {
        let encode = |source| Error::Encode { id: episode.id.clone(), source };
        let mut line = serde_json::to_vec(episode).map_err(encode)?;
        line.push(b'\n');
        match &mut self.sink {
            Sink::Plain(sink) => sink.write_all(&line)?,
            Sink::Compressed(sink) => sink.write_all(&line)?,
        }
        Ok(())
    }

    /// Gives the whole file its name.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let buffered = match self.sink {
            Sink::Plain(sink) => sink,
            Sink::Compressed(sink) => sink.finish()?,
        };
        let file = buffered.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        fs_err::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(self.path).map_err(|error| error.error)?;
        Ok(())
    }
}
