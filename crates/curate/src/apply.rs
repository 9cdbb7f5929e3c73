//! Carries the decisions back to the trajectories: both come sorted by trajectory id and are merged as streams.

use std::iter::Peekable;
use std::path::Path;

use serde::{Deserialize, Serialize};
use worldloom_schema::{Pool, REJECT_FILE, Reject, Table, TableReader, TableWriter, Trajectory};

use crate::error::Result;
use crate::mask::class_of;
use crate::report::Report;
use crate::run::pool_file;

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

/// Writes the pools and the rejects.
pub(crate) struct Apply {
    pools: Vec<(Pool, TableWriter<Trajectory>)>,
    rejects: TableWriter<Reject>,
    report: Report,
    drop_copies: bool,
}

impl Apply {
    /// Starts the files in `out`.
    pub(crate) fn create(out: &Path, drop_copies: bool) -> Result<Self> {
        let mut pools = Vec::new();
        let mut report = Report::default();
        for pool in Pool::ALL {
            pools.push((pool, TableWriter::create(&out.join(pool_file(pool)))?));
            report.pools.insert(pool.as_str().into(), Default::default());
        }
        let rejects = TableWriter::create(&out.join(REJECT_FILE))?;
        Ok(Self { pools, rejects, report, drop_copies })
    }

    /// Merges trajectories and verdicts; `progress` is called for each trajectory.
    pub(crate) fn merge(
        &mut self,
        trajectories: TableReader<Trajectory>,
        verdicts: TableReader<Verdict>,
        progress: &mut dyn FnMut(),
    ) -> Result<()> {
        let mut verdicts = verdicts.peekable();
        let mut current: (String, Vec<Verdict>) = Default::default();
        for trajectory in trajectories {
            let trajectory = trajectory?;
            self.report.add("trajectories_read", 1);
            self.report.add("turns_read", trajectory.turns.len() as u64);
            let is_copy = current.0 == trajectory.trajectory_id;
            if !is_copy {
                let id = trajectory.trajectory_id.clone();
                current = (id.clone(), verdicts_of(&id, &mut verdicts)?);
            }
            if is_copy && self.drop_copies {
                self.drop_trajectory(&trajectory, "exact_duplicate", "the content of one kept")?;
            } else {
                self.apply(trajectory, &current.1)?;
            }
            progress();
        }
        Ok(())
    }

    fn apply(&mut self, mut trajectory: Trajectory, verdicts: &[Verdict]) -> Result<()> {
        let pool = verdicts.iter().find_map(|verdict| Pool::ALL.into_iter().find(|pool| pool.as_str() == verdict.pool));
        let Some(pool) = pool else {
            let rule = verdicts.first().map_or("few_turns", |verdict| verdict.trajectory_rule.as_str());
            let left = verdicts.iter().filter(|verdict| verdict.turn_rule.is_empty()).count();
            let detail = format!("{} turns, {left} after the turn rules", trajectory.turns.len());
            return self.drop_trajectory(&trajectory, rule, &detail);
        };
        self.decide_turns(&mut trajectory, verdicts)?;
        trajectory.pool = Some(pool);
        self.report.add("trajectories", 1);
        self.report.add("turns", trajectory.turns.len() as u64);
        self.report.pools.entry(pool.as_str().into()).or_default().add(&trajectory);
        for (known, writer) in &mut self.pools {
            if *known == pool {
                return Ok(writer.push(trajectory)?);
            }
        }
        Ok(())
    }

    /// Removes turns by rule, sets class and keep of the others and numbers them anew.
    fn decide_turns(&mut self, trajectory: &mut Trajectory, verdicts: &[Verdict]) -> Result<()> {
        for mut turn in std::mem::take(&mut trajectory.turns) {
            let verdict = verdicts.iter().find(|verdict| verdict.index == turn.index);
            let Some(verdict) = verdict.filter(|verdict| verdict.turn_rule.is_empty()) else {
                let rule = verdict.map_or("unknown_turn", |verdict| verdict.turn_rule.as_str());
                *self.report.removed_turns.entry(rule.into()).or_default() += 1;
                let detail = format!("trajectory {}: turn {} removed", trajectory.trajectory_id, turn.index);
                self.rejects.push(reject(trajectory, rule, detail))?;
                continue;
            };
            turn.index = trajectory.turns.len() as u32;
            turn.keep_class = class_of(&verdict.keep_class);
            turn.keep = Some(verdict.keep);
            if verdict.is_duplicate {
                self.report.add("duplicate_turns", 1);
                turn.flags.push("duplicate:turn".into());
            }
            trajectory.turns.push(turn);
        }
        Ok(())
    }

    fn drop_trajectory(&mut self, trajectory: &Trajectory, rule: &str, detail: &str) -> Result<()> {
        *self.report.dropped_trajectories.entry(rule.into()).or_default() += 1;
        let detail = format!("trajectory {}: {detail}", trajectory.trajectory_id);
        Ok(self.rejects.push(reject(trajectory, rule, detail))?)
    }

    /// Closes the files.
    pub(crate) fn finish(self) -> Result<Report> {
        for (_, writer) in self.pools {
            writer.finish()?;
        }
        self.rejects.finish()?;
        Ok(self.report)
    }
}

fn verdicts_of(id: &str, verdicts: &mut Peekable<TableReader<Verdict>>) -> Result<Vec<Verdict>> {
    let mut found = Vec::new();
    while let Some(verdict) = verdicts.next_if(|next| next.as_ref().map_or(true, |next| next.trajectory_id == id)) {
        found.push(verdict?);
    }
    Ok(found)
}

fn reject(trajectory: &Trajectory, rule: &str, detail: String) -> Reject {
    Reject {
        source: trajectory.source.clone(),
        file: trajectory.source_path.clone(),
        row: trajectory.source_row,
        byte_offset: 0,
        rule: rule.into(),
        detail,
    }
}
