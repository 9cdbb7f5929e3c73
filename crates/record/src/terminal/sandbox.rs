//! A real bash for others to try commands in, one after the other: the shell and the lab that episodes are recorded in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::episode::Episode;
use super::groups;
use super::lab::{Lab, Owner};
use super::session;
use super::shell::{End, Shell};
use crate::Error;

/// What one command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// What a person sees; a command that was killed says so in a last line.
    pub text: String,
    /// The exit status; none where the command was killed or the shell ended: nothing more can be run then.
    pub exit_code: Option<i32>,
}

/// A shell in a fresh, private home. All of it is gone when it is dropped.
pub struct Sandbox {
    // Before the lab: the shell has to end before its home goes.
    shell: Shell,
    limit: Duration,
    home: PathBuf,
    _lab: Lab,
}

impl Sandbox {
    /// Starts a shell in lab `number` below `lab_root`, or in the next free one, as `user`. A command that takes longer
    /// than `limit` is killed.
    pub fn start(lab_root: &Path, number: u64, user: &str, limit: Duration) -> Result<Self, Error> {
        Self::in_lab(Lab::claim(lab_root, number)?, user, limit)
    }

    /// Records an episode as [`record`](super::record()) does with this seed, in `/tmp` with 10 s per command, and starts a
    /// shell where it started: in the same home, empty again.
    pub fn with_episode(seed: u64, number: u64) -> Result<(Episode, Self), Error> {
        let (root, limit) = (Path::new(super::DEFAULT_LAB_ROOT), super::DEFAULT_COMMAND_LIMIT);
        let groups = groups::shuffled(&mut super::generator(seed, 0));
        let group = &groups[(number % groups.len() as u64) as usize];
        let lab = Lab::claim(root, seed.wrapping_add(number))?;
        let episode = super::record_in(&lab, seed, number, group, None, limit)?;
        let (_, user) = home_in(&episode.initial_state).expect("a recorded episode names its home");
        let sandbox = Self::in_lab(lab, user, limit)?;
        Ok((episode, sandbox))
    }

    fn in_lab(lab: Lab, user: &str, limit: Duration) -> Result<Self, Error> {
        let home = lab.fresh_home(user)?;
        let shell = session::start_shell(&lab, user, 0x5eed)?;
        Ok(Self { shell, limit, home, _lab: lab })
    }

    /// The home directory, which commands may print.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs one command line.
    pub fn run(&mut self, command: &str) -> Printed {
        let output = self.shell.run(command, self.limit);
        let exit_code = match output.end {
            End::Status(status) => Some(status),
            _ => None,
        };
        Printed { text: session::observation(output, self.limit), exit_code }
    }

    /// Whether shells run as an account of their own, which has no rights: so it is where we are root.
    pub fn is_apart() -> bool {
        Owner::unprivileged().is_some()
    }
}

/// Number of the lab and name of the user in the home that an `initial_state` begins with.
pub(super) fn home_in(initial_state: &str) -> Option<(u64, &str)> {
    let home = initial_state.split(' ').next()?;
    let (slot, user) = home.rsplit_once('/')?;
    Some((slot.rsplit_once("/lab-")?.1.parse().ok()?, user))
}
