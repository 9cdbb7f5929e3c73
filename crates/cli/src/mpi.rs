//! The processes of a training over MPI, with the feature `mpi`: one for each device, and the sums between them.
//!
//! MPI itself ends the job where one of its calls fails or a process is gone, so that no call here returns an error.

use std::thread::available_parallelism;

use anyhow::{Context, Result};
use mpi::collective::{CommunicatorCollectives, Root, SystemOperation};
use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::{Threading, initialize_with_threading};
use worldloom_train::Ranks;

use crate::config::UserError;

/// Numbers or bytes that a call takes at once: MPI counts in 32 bits.
const AT_ONCE: usize = 1 << 24;

/// The processes of the job.
pub(crate) struct Mpi {
    world: SimpleCommunicator,
    /// MPI is left when this goes, which waits for all processes.
    _universe: Universe,
}

impl Mpi {
    /// Joins the processes that a launcher says it has started.
    pub(crate) fn join(started: usize) -> Result<Self> {
        let (universe, _) = initialize_with_threading(Threading::Funneled).context("MPI is in use already")?;
        let world = universe.world();
        if world.size() as usize != started {
            let found = world.size();
            let error = UserError::new(format!("{started} processes were started together, but MPI sees {found}"));
            return Err(error.hint("start them with `mpirun`, or with `srun --mpi=pmix`").into());
        }
        share_processors(&world)?;
        Ok(Self { world, _universe: universe })
    }

    /// Ends every process of the job; the launcher's exit code is this one.
    pub(crate) fn end_all(&self, code: u8) {
        self.world.abort(i32::from(code));
    }

    fn sum<T: Equivalence + Copy + Default>(&self, values: &mut [T]) {
        let mut sums = vec![T::default(); values.len().min(AT_ONCE)];
        for part in values.chunks_mut(AT_ONCE) {
            let sums = &mut sums[..part.len()];
            self.world.all_reduce_into(&*part, &mut *sums, SystemOperation::sum());
            part.copy_from_slice(sums);
        }
    }
}

impl Ranks for Mpi {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn count(&self) -> usize {
        self.world.size() as usize
    }

    fn sum_f32(&self, values: &mut [f32]) -> worldloom_train::Result<()> {
        self.sum(values);
        Ok(())
    }

    fn sum_f64(&self, values: &mut [f64]) -> worldloom_train::Result<()> {
        self.sum(values);
        Ok(())
    }

    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> worldloom_train::Result<()> {
        let root = self.world.process_at_rank(from as i32);
        let mut length = bytes.len() as u64;
        root.broadcast_into(&mut length);
        bytes.resize(length as usize, 0);
        bytes.chunks_mut(AT_ONCE).for_each(|part| root.broadcast_into(part));
        Ok(())
    }
}

/// Divides the machine's processors among its processes, unless the launcher or the user has.
fn share_processors(world: &SimpleCommunicator) -> Result<()> {
    let here = world.split_shared(world.rank()).size() as usize;
    let threads = available_parallelism().map_or(1, usize::from);
    if is_bound() || std::env::var_os("RAYON_NUM_THREADS").is_some() {
        return Ok(());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads((threads / here).max(1));
    pool.build_global().context("start the threads of this process")
}

/// Whether the launcher left this process only some of the machine's processors.
fn is_bound() -> bool {
    let allowed = fs_err::read_to_string("/proc/self/status").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_string())
    });
    let online = fs_err::read_to_string("/sys/devices/system/cpu/online").ok();
    matches!((allowed, online), (Some(allowed), Some(online)) if allowed != online.trim())
}
