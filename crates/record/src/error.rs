//! What can go wrong while recording.

use std::path::PathBuf;

/// Why a recording or a replay stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The name of the output file does not say which format to write.
    #[error("write raw log `{}`: the name must end in `.jsonl` or `.jsonl.zst`", path.display())]
    UnknownFormat {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The output file lies in a folder that does not exist.
    #[error("write raw log `{}`: the folder `{}` does not exist", path.display(), folder.display())]
    MissingFolder {
        /// The path that was asked for.
        path: PathBuf,
        /// The folder it should lie in.
        folder: PathBuf,
    },
    /// The output path names a folder.
    #[error("write raw log `{}`: it is a folder, expected a file name", path.display())]
    IsFolder {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// Zero episodes were asked for.
    #[error("record terminal: 0 episodes were asked for, expected at least 1")]
    NoEpisodes,
    /// Every lab directory is in use or belongs to somebody else.
    #[error("no free lab directory among `{root}/lab-00` to `{root}/lab-99`")]
    NoLab {
        /// The folder that holds the lab directories.
        root: String,
    },
    /// A program that the recorder needs could not be started.
    #[error("start `{program}`: {source}")]
    Start {
        /// The program.
        program: &'static str,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The shell printed no first prompt.
    #[error("bash printed no prompt within {seconds} s; it printed {printed:?}")]
    NoPrompt {
        /// How long the recorder waited.
        seconds: u64,
        /// What came instead.
        printed: String,
    },
    /// A condition of the axis `control` could not be imposed.
    #[error("impose `{name}` on the shell: it printed {printed:?}")]
    Condition {
        /// The condition.
        name: &'static str,
        /// What came instead of silence.
        printed: String,
    },
    /// An episode could not be written as JSON.
    #[error("write episode {id} as JSON: {source}")]
    Encode {
        /// The episode's name.
        id: String,
        /// What the encoder answered.
        source: serde_json::Error,
    },
    /// A message of an episode is not as this recorder writes it.
    #[error("episode {id}: message {message}: {problem}")]
    Malformed {
        /// The episode's name.
        id: String,
        /// The index of the message.
        message: usize,
        /// What is wrong with it.
        problem: String,
    },
}
