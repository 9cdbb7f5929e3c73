//! Carries the decisions back to the trajectories: both come sorted by trajectory id and are merged as streams. What is
//! done to a trajectory needs nothing of the others, so a chunk of them is done on all cores and written in order.

use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worldloom_schema::{Pool, REJECT_FILE, Reject, Table, TableReader, TableWriter, Trajectory};

use crate::config::CurateConfig;
use crate::documents::DocumentReport;
use crate::engine::Resources;
use crate::error::{Error, Result};
use crate::mask::class_of;
use crate::plans::Plans;
use crate::report::Report;
use crate::run::pool_file;
use crate::secrets::{Masker, SecretCounts};

/// Bytes of a chunk, and of a row group of a pool.
const CHUNK_BYTES: usize = 16 << 20;
/// Trajectories of a chunk, at most.
const CHUNK_ROWS: usize = 1024;

/// Everything decided about one turn; a row of the plan `verdicts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    trajectory_id: String,
    index: u32,
    trajectory_rule: String,
    turn_rule: String,
    pool: String,
    keep_class: String,
    is_duplicate: bool,
    keep: bool,
}

impl Table for Verdict {
    const NAME: &'static str = "verdict";
    const VERSION: u32 = 1;
}

/// A trajectory before it is decided.
struct Open {
    trajectory: Trajectory,
    is_copy: bool,
    verdicts: Arc<Vec<Verdict>>,
}

/// A trajectory with what became of it.
pub(crate) struct Decided {
    /// With the turns that are left, if it is in a pool; else as it came.
    pub(crate) trajectory: Trajectory,
    /// Turns it came with.
    pub(crate) turns_read: u64,
    /// The rule that dropped it, or the pool it is in.
    pub(crate) fate: std::result::Result<Pool, String>,
    /// The rules that removed its turns, if it is in a pool.
    pub(crate) removed: Vec<String>,
    /// Secrets masked in it.
    pub(crate) secrets: SecretCounts,
    rejects: Vec<Reject>,
}

/// A pool's file, whose row groups end where they hold enough.
struct PoolWriter {
    pool: Pool,
    writer: TableWriter<Trajectory>,
    pending_bytes: usize,
}

/// Writes the pools and the rejects.
pub(crate) struct Apply {
    pools: Vec<PoolWriter>,
    rejects: TableWriter<Reject>,
    report: Report,
    drop_copies: bool,
    masker: Option<Masker>,
    threads: rayon::ThreadPool,
}

impl Apply {
    /// Starts the files in `out`.
    pub(crate) fn create(out: &Path, config: &CurateConfig, resources: Resources<'_>) -> Result<Self> {
        let mut pools = Vec::new();
        for pool in Pool::ALL {
            let writer = TableWriter::create(&out.join(pool_file(pool)))?;
            pools.push(PoolWriter { pool, writer, pending_bytes: 0 });
        }
        let rejects = TableWriter::create(&out.join(REJECT_FILE))?;
        let masker = config.secrets.as_ref().map(|secrets| Masker::new(secrets, config.seed)).transpose()?;
        let threads = rayon::ThreadPoolBuilder::new().num_threads(resources.num_threads.max(1)).build();
        let threads = threads.map_err(|error| Error::Io(std::io::Error::other(error)))?;
        let report = Report::start(&config.rules);
        Ok(Self { pools, rejects, report, drop_copies: config.drop_exact_duplicates, masker, threads })
    }

    /// Merges trajectories and verdicts; `progress` is called for each trajectory.
    pub(crate) fn merge(
        &mut self,
        trajectories: TableReader<Trajectory>,
        verdicts: TableReader<Verdict>,
        progress: &mut dyn FnMut(),
    ) -> Result<()> {
        let mut verdicts = verdicts.peekable();
        let mut current: (String, Arc<Vec<Verdict>>) = Default::default();
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for trajectory in trajectories {
            let trajectory = trajectory?;
            let is_copy = current.0 == trajectory.trajectory_id;
            if !is_copy {
                let id = trajectory.trajectory_id.clone();
                current = (id.clone(), Arc::new(verdicts_of(&id, &mut verdicts)?));
            }
            bytes += text_bytes(&trajectory);
            chunk.push(Open { trajectory, is_copy, verdicts: Arc::clone(&current.1) });
            if bytes >= CHUNK_BYTES || chunk.len() >= CHUNK_ROWS {
                self.write(std::mem::take(&mut chunk), progress)?;
                bytes = 0;
            }
        }
        self.write(chunk, progress)
    }

    fn write(&mut self, chunk: Vec<Open>, progress: &mut dyn FnMut()) -> Result<()> {
        let (drop_copies, masker) = (self.drop_copies, self.masker.as_ref());
        let decide = |open: Open| {
            let mut decided = decide(open, drop_copies);
            if let (Some(masker), Ok(_)) = (masker, &decided.fate) {
                masker.mask_trajectory(&mut decided.trajectory, &mut decided.secrets);
            }
            decided
        };
        let chunk: Vec<Decided> = self.threads.install(|| chunk.into_par_iter().map(decide).collect());
        for mut decided in chunk {
            self.report.add(&decided);
            for reject in std::mem::take(&mut decided.rejects) {
                self.rejects.push(reject)?;
            }
            if let Ok(pool) = decided.fate
                && let Some(writer) = self.pools.iter_mut().find(|writer| writer.pool == pool)
            {
                writer.push(decided.trajectory)?;
            }
            progress();
        }
        Ok(())
    }

    /// Writes the documents that are left.
    pub(crate) fn write_documents(&mut self, plans: &Plans<'_>, out: &Path) -> Result<DocumentReport> {
        let rejects = &mut self.rejects;
        plans.write_documents(out, self.masker.as_ref(), &mut |reject| Ok(rejects.push(reject)?))
    }

    /// Closes the files.
    pub(crate) fn finish(self) -> Result<Report> {
        for pool in self.pools {
            pool.writer.finish()?;
        }
        self.rejects.finish()?;
        Ok(self.report)
    }
}

impl PoolWriter {
    fn push(&mut self, trajectory: Trajectory) -> Result<()> {
        self.pending_bytes += text_bytes(&trajectory);
        self.writer.push(trajectory)?;
        if self.pending_bytes >= CHUNK_BYTES {
            self.pending_bytes = 0;
            self.writer.end_group()?;
        }
        Ok(())
    }
}

/// The bytes of what is long in a trajectory.
fn text_bytes(trajectory: &Trajectory) -> usize {
    let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let of_turn = |turn: &worldloom_schema::Turn| {
        turn.action.len() + turn.observation.len() + of(&turn.pre_state) + of(&turn.reasoning) + of(&turn.trace)
    };
    trajectory.turns.iter().map(of_turn).sum::<usize>() + of(&trajectory.system.action_space)
}

fn verdicts_of(id: &str, verdicts: &mut Peekable<TableReader<Verdict>>) -> Result<Vec<Verdict>> {
    let mut found = Vec::new();
    while let Some(verdict) = verdicts.next_if(|next| next.as_ref().map_or(true, |next| next.trajectory_id == id)) {
        found.push(verdict?);
    }
    Ok(found)
}

/// Does to a trajectory what was decided.
fn decide(open: Open, drop_copies: bool) -> Decided {
    let Open { trajectory, is_copy, verdicts } = open;
    let pool = verdicts.first().and_then(|verdict| Pool::ALL.into_iter().find(|pool| pool.as_str() == verdict.pool));
    let rule = verdicts.first().map_or("few_turns", |verdict| verdict.trajectory_rule.as_str());
    let turns_read = trajectory.turns.len() as u64;
    let fate = match pool {
        _ if is_copy && drop_copies => Err("exact_duplicate".to_string()),
        Some(pool) => Ok(pool),
        None => Err(rule.to_string()),
    };
    let mut decided = Decided {
        trajectory,
        turns_read,
        fate,
        removed: Vec::new(),
        secrets: SecretCounts::new(),
        rejects: Vec::new(),
    };
    match decided.fate.clone() {
        Ok(pool) => {
            decided.trajectory.pool = Some(pool);
            decide_turns(&mut decided, &verdicts);
        }
        Err(rule) => {
            let left = verdicts.iter().filter(|verdict| verdict.turn_rule.is_empty()).count();
            let detail = match rule.as_str() {
                "exact_duplicate" => "the content of one kept".to_string(),
                _ => format!("{turns_read} turns, {left} after the turn rules"),
            };
            decided.reject(&rule, &detail);
        }
    }
    decided
}

/// Removes turns by rule, sets class and keep of the others and numbers them anew. The state shown before a turn that
/// could not be understood is shown before the next one.
fn decide_turns(decided: &mut Decided, verdicts: &[Verdict]) {
    let mut carried: Option<String> = None;
    for mut turn in std::mem::take(&mut decided.trajectory.turns) {
        let found = verdicts.binary_search_by_key(&turn.index, |verdict| verdict.index);
        let verdict = found.ok().map(|at| &verdicts[at]);
        let Some(verdict) = verdict.filter(|verdict| verdict.turn_rule.is_empty()) else {
            let rule = verdict.map_or("unknown_turn", |verdict| verdict.turn_rule.as_str());
            decided.removed.push(rule.into());
            decided.reject(rule, &format!("turn {} removed", turn.index));
            if rule == "retry_cycle" {
                carried = carried.or(turn.pre_state);
            }
            continue;
        };
        turn.index = decided.trajectory.turns.len() as u32;
        turn.keep_class = class_of(&verdict.keep_class);
        turn.keep = Some(verdict.keep);
        turn.pre_state = turn.pre_state.or(carried.take());
        if verdict.is_duplicate {
            turn.flags.push("duplicate:turn".into());
        }
        carried = None;
        decided.trajectory.turns.push(turn);
    }
}

impl Decided {
    fn reject(&mut self, rule: &str, detail: &str) {
        self.rejects.push(Reject {
            source: self.trajectory.source.clone(),
            file: self.trajectory.source_path.clone(),
            row: self.trajectory.source_row,
            byte_offset: 0,
            rule: rule.into(),
            detail: format!("trajectory {}: {detail}", self.trajectory.trajectory_id),
        });
    }
}
