//! What the client does between plans: it reads what is small, decides, and leaves tables that the next plans read.

use std::collections::HashSet;
use std::path::PathBuf;

use datafusion::arrow::array::{ArrayRef, AsArray, LargeStringArray, RecordBatch, UInt64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, UInt64Type};

use crate::clusters::{Clusters, Member};
use crate::engine::plan_error;
use crate::error::{Error, Result};
use crate::functions::TurnsView;
use crate::groups::{Group, assign};
use crate::mixture::{Kind, quotas};
use crate::overlap::OverlapBuilder;
use crate::plans::{Plans, client_table};

impl Plans<'_> {
    /// Pairs of near duplicates to clusters.
    pub(crate) fn cluster(&self, from: &str, to: &str) -> Result<()> {
        if self.engine.has(to) {
            return Ok(());
        }
        let mut clusters = Clusters::default();
        for batch in self.engine.batches(from)? {
            let batch = batch.map_err(|error| plan_error(from, error.into()))?;
            let members = |side: &str| -> Result<Vec<Member>> {
                let (ids, turns) = (texts(&batch, side)?, numbers(&batch, &format!("{side}_turns"))?);
                let chars = numbers(&batch, &format!("{side}_chars"))?;
                let member =
                    |row| Member { id: ids.value(row).into(), turns: turns.value(row), chars: chars.value(row) };
                Ok((0..batch.num_rows()).map(member).collect())
            };
            for (one, other) in members("one")?.into_iter().zip(members("other")?) {
                clusters.add_pair(one, other);
            }
        }
        let placed = clusters.finish();
        let (members, kept) = placed.iter().map(|placed| (placed.id.as_str(), placed.kept.as_str())).unzip();
        let table = client_table(to, &[("member", members), ("kept", kept)], &[])?;
        self.engine.store(to, self.engine.values(to, table)?)
    }

    /// Task groups to pools. `rows`: trajectories read.
    pub(crate) fn assign_groups(&self, rows: u64) -> Result<()> {
        if self.engine.has("groups") {
            return Ok(());
        }
        self.check_sources()?;
        let mut groups = Vec::new();
        for batch in self.engine.collect("group_sizes", self.group_sizes()?)? {
            let names = texts(&batch, "name")?;
            let (left, held) = (numbers(&batch, "left")?, numbers(&batch, "held")?);
            let group = |row| Group { name: names.value(row).into(), left: left.value(row), held: held.value(row) };
            groups.extend((0..batch.num_rows()).map(group));
        }
        if groups.iter().all(|group| group.left == 0) {
            return Err(Error::NothingLeft { rows, rules: self.dropped_by()? });
        }
        let assignment = assign(&groups, self.config)?;
        let (names, pools) = assignment.iter().map(|(group, pool)| (group.as_str(), pool.as_str())).unzip();
        let table = client_table("groups", &[("pool_group", names), ("group_pool", pools)], &[])?;
        self.engine.store("groups", self.engine.values("groups", table)?)
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
        let mut ids: HashSet<String> = HashSet::new();
        for batch in self.engine.collect("evaluation_ids", self.evaluation_ids()?)? {
            ids.extend(texts(&batch, "trajectory_id")?.iter().flatten().map(String::from));
        }
        let mut runs = OverlapBuilder::new(run_words, self.engine.folder());
        let mut words = Vec::new();
        self.inputs.each_batch(&["trajectory_id", "turns"], |batch| {
            let found = texts(batch, "trajectory_id")?;
            let turns = TurnsView::read(column(batch, "turns")?).map_err(|error| plan_error("evaluation", error))?;
            for row in (0..batch.num_rows()).filter(|row| ids.contains(found.value(*row))) {
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
        let texts = [("quota_pool", pools), ("quota_name", names)];
        let table = client_table("quotas", &texts, &[("quota", quotas(&kinds, mixture))])?;
        self.engine.store("quotas", self.engine.values("quotas", table)?)
    }
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef> {
    let missing = || Error::Plan { plan: "client".into(), detail: format!("a result without `{name}`") };
    batch.column_by_name(name).ok_or_else(missing)
}

fn texts(batch: &RecordBatch, name: &str) -> Result<LargeStringArray> {
    let texts = cast(column(batch, name)?, &DataType::LargeUtf8).map_err(|error| plan_error("client", error.into()))?;
    Ok(texts.as_string::<i64>().clone())
}

fn numbers(batch: &RecordBatch, name: &str) -> Result<UInt64Array> {
    let numbers = cast(column(batch, name)?, &DataType::UInt64).map_err(|error| plan_error("client", error.into()))?;
    Ok(numbers.as_primitive::<UInt64Type>().clone())
}
