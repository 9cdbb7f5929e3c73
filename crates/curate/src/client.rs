//! What the client does between plans: it reads what is small, decides, and leaves tables that the next plans read.

use std::collections::HashSet;
use std::path::PathBuf;

use datafusion::arrow::array::{ArrayRef, AsArray, LargeStringArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, UInt64Type};

use crate::client_table::ClientTable;
use crate::clusters::{Clusters, Member};
use crate::engine::plan_error;
use crate::error::{Error, Result};
use crate::functions::TurnsView;
use crate::groups::{Group, Groups, Nearest};
use crate::inputs::MOST_BATCH_ROWS;
use crate::mixture::{Kind, quotas};
use crate::overlap::OverlapBuilder;
use crate::plans::Plans;
use crate::words::of_name;

impl Plans<'_> {
    /// Pairs of near duplicates to clusters.
    pub(crate) fn cluster(&self, from: &str, to: &str) -> Result<()> {
        if self.engine.has(to) {
            return Ok(());
        }
        let mut clusters = Clusters::default();
        self.engine.each_batch(from, |batch| {
            let [(one, one_turns, one_chars), (other, other_turns, other_chars)] =
                [member_columns(batch, "one")?, member_columns(batch, "other")?];
            for row in 0..batch.num_rows() {
                let first = Member { id: one.value(row), turns: one_turns.value(row), chars: one_chars.value(row) };
                let second =
                    Member { id: other.value(row), turns: other_turns.value(row), chars: other_chars.value(row) };
                clusters.add_pair(first, second);
            }
            Ok(())
        })?;
        let placed = clusters.finish();
        let mut table = ClientTable::create(self.engine, to, &["member", "kept"], &[])?;
        let mut rows = placed.iter().peekable();
        while rows.peek().is_some() {
            let (members, kept) = rows.by_ref().take(MOST_BATCH_ROWS).map(|placed| (placed.id, placed.kept)).unzip();
            table.write(vec![members, kept], vec![])?;
        }
        table.finish()
    }

    /// Task groups to pools. `rows`: trajectories read.
    pub(crate) fn assign_groups(&self, rows: u64) -> Result<()> {
        if self.engine.has("groups") {
            return Ok(());
        }
        self.check_sources()?;
        self.run("group_sizes", || self.group_sizes())?;
        let mut groups = Groups::new(self.config, self.engine.num_rows("group_sizes")?);
        self.engine.each_batch("group_sizes", |batch| {
            let names = texts(batch, "name")?;
            let (left, held) = (numbers(batch, "left")?, numbers(batch, "held")?);
            let group = |row| Group { name: names.value(row), left: left.value(row), held: held.value(row) };
            (0..batch.num_rows()).map(group).for_each(|group| groups.add(group));
            Ok(())
        })?;
        if groups.left() == 0 {
            return Err(Error::NothingLeft { rows, rules: self.dropped_by()? });
        }
        let pools = groups.assign(|name| self.nearest_groups(name))?;
        let mut pools = pools.into_iter();
        let mut table = ClientTable::create(self.engine, "groups", &["pool_group", "group_pool"], &[])?;
        self.engine.each_batch("group_sizes", |batch| {
            let names = texts(batch, "name")?;
            let assigned = names.iter().flatten().zip(pools.by_ref()).filter_map(|(name, pool)| Some((name, pool?)));
            let (names, pools) = assigned.map(|(name, pool)| (name, pool.as_str())).unzip();
            table.write(vec![names, pools], vec![])
        })?;
        table.finish()
    }

    fn nearest_groups(&self, name: &str) -> Result<String> {
        let mut nearest = Nearest::new(name);
        self.engine.each_batch("group_sizes", |batch| {
            texts(batch, "name")?.iter().flatten().for_each(|group| nearest.add(group));
            Ok(())
        })?;
        Ok(nearest.told())
    }

    fn check_sources(&self) -> Result<()> {
        let held_out = &self.config.holdout_sources;
        if held_out.is_empty() {
            return Ok(());
        }
        let mut known: Vec<String> = Vec::new();
        for batch in self.engine.collect("sources", self.sources()?)? {
            known.extend(texts(&batch, "name")?.iter().flatten().map(String::from));
        }
        match held_out.iter().find(|source| !known.contains(source)) {
            Some(source) => {
                let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                Err(Error::UnknownSource { source_name: source.clone(), known })
            }
            None => Ok(()),
        }
    }

    /// Each rule with the trajectories it dropped, copies not counted.
    fn dropped_by(&self) -> Result<String> {
        let mut rules = Vec::new();
        for batch in self.engine.collect("rule_counts", self.rule_counts()?)? {
            let (names, counts) = (texts(&batch, "rule")?, numbers(&batch, "trajectories")?);
            rules.extend((0..batch.num_rows()).map(|row| format!("{} {}", counts.value(row), names.value(row))));
        }
        Ok(rules.join(", "))
    }

    /// The runs of the evaluation pool to a file, where training is compared with it.
    pub(crate) fn evaluation_runs(&self, run_words: usize) -> Result<PathBuf> {
        let path = self.engine.file("pool.runs");
        self.run("evaluation_ids", || self.evaluation_ids())?;
        let mut ids: HashSet<u64> = HashSet::with_capacity(self.engine.num_rows("evaluation_ids")?);
        self.engine.each_batch("evaluation_ids", |batch| {
            ids.extend(texts(batch, "trajectory_id")?.iter().flatten().map(of_name));
            Ok(())
        })?;
        let mut runs = OverlapBuilder::new(run_words, self.engine.folder());
        let mut words = Vec::new();
        self.inputs.each_batch(&["trajectory_id", "turns"], |batch| {
            let found = texts(batch, "trajectory_id")?;
            let turns = TurnsView::read(column(batch, "turns")?).map_err(|error| plan_error("evaluation", error))?;
            for row in (0..batch.num_rows()).filter(|row| ids.contains(&of_name(found.value(*row)))) {
                words.clear();
                turns.words(row, &mut words);
                runs.add(&words)?;
                runs.name(found.value(row))?;
            }
            Ok(())
        })?;
        runs.write(&path)?;
        Ok(path)
    }

    /// How many of each kind stay in each training pool.
    pub(crate) fn mix(&self) -> Result<()> {
        let Some(mixture) = self.config.mixture.as_ref().filter(|_| !self.engine.has("quotas")) else { return Ok(()) };
        let mut kinds = Vec::new();
        for batch in self.engine.collect("mixture_sizes", self.mixture_sizes()?)? {
            let (pools, names) = (texts(&batch, "pool")?, texts(&batch, "name")?);
            let sizes = numbers(&batch, "trajectories")?;
            let kind = |row| Kind {
                pool: pools.value(row).into(),
                name: names.value(row).into(),
                trajectories: sizes.value(row),
            };
            kinds.extend((0..batch.num_rows()).map(kind));
        }
        let (pools, names) = kinds.iter().map(|kind| (kind.pool.as_str(), kind.name.as_str())).unzip();
        let mut table = ClientTable::create(self.engine, "quotas", &["quota_pool", "quota_name"], &["quota"])?;
        table.write(vec![pools, names], vec![quotas(&kinds, mixture)])?;
        table.finish()
    }
}

/// Ids, turns and characters of one side of the pairs.
fn member_columns(batch: &RecordBatch, side: &str) -> Result<(LargeStringArray, UInt64Array, UInt64Array)> {
    let number = |of: &str| numbers(batch, &format!("{side}_{of}"));
    Ok((texts(batch, side)?, number("turns")?, number("chars")?))
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    let missing = || Error::Plan { plan: "client".into(), detail: format!("a result without `{name}`") };
    batch.column_by_name(name).ok_or_else(missing)
}

/// A column of texts, in whichever form it is stored.
pub(crate) fn texts(batch: &RecordBatch, name: &str) -> Result<LargeStringArray> {
    let texts = cast(column(batch, name)?, &DataType::LargeUtf8).map_err(|error| plan_error("client", error.into()))?;
    Ok(texts.as_string::<i64>().clone())
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<UInt64Array> {
    let numbers = cast(column(batch, name)?, &DataType::UInt64).map_err(|error| plan_error("client", error.into()))?;
    Ok(numbers.as_primitive::<UInt64Type>().clone())
}
