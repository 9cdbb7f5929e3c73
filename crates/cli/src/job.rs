//! The processes of a job: one, or as many as `mpirun` or Slurm started together for one training.

use anyhow::Result;
use clap::ArgMatches;
use worldloom_train::{Alone, Ranks};

use crate::config::UserError;

/// Where launchers say how many processes they started: Open MPI, those that speak PMI, Slurm.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
/// What several processes can do together.
const SHARED: [(&str, &str); 2] = [("train", "cpt"), ("train", "sft")];

/// The processes that were started together.
pub(crate) enum Job {
    /// This one.
    Alone(Alone),
    /// As many as there are ranks.
    #[cfg(feature = "mpi")]
    Several(crate::mpi::Mpi),
}

impl Job {
    /// Joins the other processes, if there are any; a command that they cannot share is refused.
    pub(crate) fn open(matches: &ArgMatches) -> Result<Self> {
        let started = SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok());
        let Some(started) = started.filter(|&started| started > 1) else { return Ok(Self::Alone(Alone)) };
        let names = matches.subcommand().and_then(|(name, inner)| Some((name, inner.subcommand_name()?)));
        if !names.is_some_and(|names| SHARED.contains(&names)) {
            let error = UserError::new(format!("{started} processes were started together for what is done in one"));
            return Err(error.hint("`train cpt` and `train sft` share their work; start the others alone").into());
        }
        Self::join(started)
    }

    #[cfg(feature = "mpi")]
    fn join(started: usize) -> Result<Self> {
        Ok(Self::Several(crate::mpi::Mpi::join(started)?))
    }

    #[cfg(not(feature = "mpi"))]
    fn join(started: usize) -> Result<Self> {
        let error =
            UserError::new(format!("{started} processes were started together, but this program is built for one"));
        Err(error.hint("build it with the feature `mpi`, see docs/train.md").into())
    }

    /// What they have in common.
    pub(crate) fn ranks(&self) -> &dyn Ranks {
        match self {
            Self::Alone(alone) => alone,
            #[cfg(feature = "mpi")]
            Self::Several(mpi) => mpi,
        }
    }

    /// Whether this is the process that writes and speaks.
    pub(crate) fn is_first(&self) -> bool {
        self.ranks().rank() == 0
    }

    /// Which process an error is of, for messages; whether another process tells it.
    pub(crate) fn teller(&self, error: &anyhow::Error) -> Teller {
        let of_rank = error.chain().find_map(|cause| match cause.downcast_ref() {
            Some(worldloom_train::Error::Rank { rank, .. }) => Some(*rank),
            _ => None,
        });
        match of_rank {
            Some(rank) if rank != self.ranks().rank() => Teller::Another,
            None if self.ranks().count() > 1 => Teller::Rank(self.ranks().rank()),
            _ => Teller::Program,
        }
    }

    /// Ends all processes of a job in which this one failed; does nothing where it is alone.
    pub(crate) fn end_all(&self, _code: u8) {
        #[cfg(feature = "mpi")]
        if let Self::Several(mpi) = self {
            mpi.end_all(_code);
        }
    }
}

/// Who tells an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// The program; its words say which process it was, where that matters.
    Program,
    /// One of several processes.
    Rank(usize),
    /// Another process, which ends this one.
    Another,
}
