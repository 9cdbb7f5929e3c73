//! One persistent `bash`, driven over pipes.
//!
//! The shell is interactive (`-i`, but `--noediting`, which would repeat our input), so its error texts are those a
//! person sees (`bash: foo: command not found`, without the line number a script would add), and its prompt tells us
//! when a command has ended: `PS1` holds a secret mark and `$?`. Nothing need be run between two commands, so `$?`
//! stays as the command left it. A command may have several lines (a here-document) but must end at one prompt.
//!
//! stdout and stderr are two datagram sockets with one reader: their order is the order of the writes, and the
//! sender's address still says which of the two a piece came from. `setsid` takes the shell off our terminal (an
//! interactive shell would fight for it) and makes it the leader of a group that can be killed as a whole. The shell
//! keeps an idle terminal of its own for its settings, or it would complain about them after each killed command.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::lab::Owner;
use crate::Error;

/// Longest observation that is kept; a command that prints more is killed.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// How long a fresh shell may take to its first prompt, on a machine that is busy.
const START_SECONDS: u64 = 60;
/// Starts the shell with a terminal as descriptor 2 and the socket as 9; the first line typed puts the socket back.
const LAUNCH: &str = "exec bash --noprofile --norc --noediting -i 9>&2 2<>/dev/ptmx";
const POLL: Duration = Duration::from_millis(50);
const MARK: char = '\u{1d}';

/// What one command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    /// stdout and stderr in the order of the writes.
    pub(crate) text: String,
    /// Whether any of it went to stderr.
    pub(crate) on_stderr: bool,
    /// How the command ended.
    pub(crate) end: End,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The next prompt came, with this exit status.
    Status(i32),
    /// It ran past its time limit and was killed, and the shell with it.
    TimedOut,
    /// It printed more than is kept and was killed, and the shell with it.
    TooLong,
    /// The shell itself ended.
    Exited,
}

/// Where and as whom a shell runs.
pub(crate) struct Place<'a> {
    /// Where the sockets are made (and removed at once); the shell cannot write here.
    pub(crate) slot: &'a Path,
    /// The shell's home and first working directory.
    pub(crate) home: &'a Path,
    /// The value of `USER`.
    pub(crate) user: &'a str,
    /// The account to run as, where we may choose one.
    pub(crate) owner: Option<Owner>,
}

/// A running `bash`; killed with all its children when dropped.
pub(crate) struct Shell {
    child: Child,
    stdin: ChildStdin,
    receiver: UnixDatagram,
    mark: String,
    buffer: Vec<u8>,
    running: bool,
}

impl Shell {
    /// Starts a shell in `place` and waits for its first prompt. `secret` must not be guessable by the commands.
    pub(crate) fn start(place: &Place<'_>, secret: u64) -> Result<Shell, Error> {
        let (receiver, [stdout, stderr]) = output_sockets(place.slot)?;
        receiver.set_read_timeout(Some(POLL))?;
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", LAUNCH]).env_clear();
        command.envs([("LC_ALL", "C"), ("TZ", "UTC"), ("PATH", "/usr/bin:/bin"), ("TERM", "dumb")]);
        command.env("HOME", place.home).env("USER", place.user).current_dir(place.home);
        command.stdin(Stdio::piped()).stdout(OwnedFd::from(stdout)).stderr(OwnedFd::from(stderr));
        if let Some(owner) = place.owner {
            command.uid(owner.uid).gid(owner.gid);
        }
        let start = |source| Error::Start { program: "setsid bash", source };
        let mut child = command.spawn().map_err(start)?;
        let stdin = child.stdin.take().ok_or_else(|| start(ErrorKind::BrokenPipe.into()))?;
        let mark = format!("{MARK}{secret:016x}:");
        let mut shell = Shell { child, stdin, receiver, mark, buffer: vec![0; 256 * 1024], running: true };
        shell.set_up()?;
        Ok(shell)
    }

    /// Runs one command line and waits for the next prompt, at most `limit`.
    pub(crate) fn run(&mut self, command: &str, limit: Duration) -> Output {
        if !self.running || writeln!(self.stdin, "{command}").is_err() {
            self.kill();
            return Output { text: String::new(), on_stderr: false, end: End::Exited };
        }
        let output = self.read_to_prompt(limit);
        if !matches!(output.end, End::Status(_)) {
            self.kill();
        }
        output
    }

    /// The shell's working directory, as the system knows it.
    pub(crate) fn working_directory(&self) -> Result<PathBuf, Error> {
        Ok(fs_err::read_link(format!("/proc/{}/cwd", self.child.id()))?)
    }

    fn set_up(&mut self) -> Result<(), Error> {
        let secret = &self.mark[1..];
        let line = format!(
            "exec 2>&9 9>&-; set +o history; set +H; ulimit -f 4096; umask 022; unset OLDPWD; PS2= PS1=$'\\x1d{secret}$?\\x1d'"
        );
        let output = self.run(&line, Duration::from_secs(START_SECONDS));
        match output.end {
            End::Status(_) => Ok(()),
            _ => Err(Error::NoPrompt { seconds: START_SECONDS, printed: output.text }),
        }
    }

    fn read_to_prompt(&mut self, limit: Duration) -> Output {
        let deadline = Instant::now() + limit;
        let (mut text, mut on_stderr_bytes) = (Vec::new(), 0);
        loop {
            match self.receiver.recv_from(&mut self.buffer) {
                Ok((length, sender)) => {
                    text.extend_from_slice(&self.buffer[..length]);
                    if sender.as_pathname().is_some_and(|path| path.ends_with("stderr")) {
                        on_stderr_bytes += length;
                    }
                    if let Some((printed, status)) = split_prompt(&text, &self.mark) {
                        let prompt_bytes = text.len() - printed.len();
                        return output(printed, on_stderr_bytes > prompt_bytes, End::Status(status));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !matches!(self.child.try_wait(), Ok(None)) {
                        return output(&text, on_stderr_bytes > 0, End::Exited);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return output(&text, on_stderr_bytes > 0, End::Exited),
            }
            if text.len() > MAX_OUTPUT_BYTES {
                return output(&text[..MAX_OUTPUT_BYTES], on_stderr_bytes > 0, End::TooLong);
            }
            if Instant::now() >= deadline {
                return output(&text, on_stderr_bytes > 0, End::TimedOut);
            }
        }
    }

    /// Kills the shell and everything it started; the receiver is closed first, so that no writer waits for us.
    fn kill(&mut self) {
        if !self.running {
            return;
        }
        self.running = false;
        let _ = self.receiver.shutdown(Shutdown::Both);
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.kill();
    }
}

fn output(text: &[u8], on_stderr: bool, end: End) -> Output {
    Output { text: String::from_utf8_lossy(text).into_owned(), on_stderr, end }
}

/// The text before the prompt that ends `text`, and the exit status in that prompt.
fn split_prompt<'a>(text: &'a [u8], mark: &str) -> Option<(&'a [u8], i32)> {
    let body = text.strip_suffix(&[MARK as u8])?;
    let start = body.iter().rposition(|byte| *byte == MARK as u8)?;
    let status = body[start..].strip_prefix(mark.as_bytes())?;
    Some((&text[..start], std::str::from_utf8(status).ok()?.parse().ok()?))
}

/// One receiver and the two senders that will be stdout and stderr. Their names vanish at once; the addresses stay.
fn output_sockets(folder: &Path) -> Result<(UnixDatagram, [UnixDatagram; 2]), Error> {
    let receiver_path = folder.join("receiver");
    let receiver = UnixDatagram::bind(&receiver_path)?;
    let sender = |name: &str| -> Result<UnixDatagram, Error> {
        let path = folder.join(name);
        let socket = UnixDatagram::bind(&path)?;
        socket.connect(&receiver_path)?;
        fs_err::remove_file(path)?;
        Ok(socket)
    };
    let senders = [sender("stdout")?, sender("stderr")?];
    fs_err::remove_file(receiver_path)?;
    Ok((receiver, senders))
}
