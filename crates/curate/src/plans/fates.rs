//! The last rules of trajectories, and their pools.

use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::when;
use datafusion::prelude::{DataFrame, JoinType, coalesce, col, get_field, lit};
use worldloom_schema::Pool;

use super::{Frame, Plans, has_rule, is_left, made, number, text};
use crate::error::Result;
use crate::settings::MixtureKey;

impl Plans<'_> {
    /// First copies with their rule up to `near_duplicate`.
    fn unique(&self) -> Result<DataFrame> {
        let trajectories = self.engine.table("trajectories")?;
        if self.config.near_duplicates.is_none() {
            return Ok(trajectories);
        }
        let clusters = self.engine.table("clusters")?;
        let frame = || {
            let is_other = is_left().and(col("kept").is_not_null()).and(col("kept").not_eq(col("trajectory_id")));
            let rule = when(is_other, text(lit("near_duplicate"))).otherwise(col("rule"))?;
            trajectories
                .join(clusters, JoinType::Left, &["trajectory_id"], &["member"], None)?
                .with_column("rule", rule)?
                .drop_columns(&["member", "kept"])
        };
        made("unique", frame())
    }

    /// Trajectories by task group: first copies without a rule, and all of sources that are held out. Read by the client.
    pub(crate) fn group_sizes(&self) -> Result<Frame> {
        let (facts, unique) = (self.engine.table("facts")?, self.unique()?);
        let frame = || {
            let rules = unique.select(vec![col("trajectory_id").alias("rule_id"), col("rule")])?;
            let is_counted = is_left().and(col("copy").eq(lit(1u64)));
            let left = when(is_counted, lit(1i64)).end()?;
            let sources = self.config.holdout_sources.iter().map(|source| text(lit(source.as_str())));
            let is_held = match self.config.holdout_sources.is_empty() {
                true => lit(false),
                false => text(col("source")).in_list(sources.collect(), false),
            };
            let held = when(is_held, lit(1i64)).end()?;
            facts
                .select(["trajectory_id", "task_group", "source", "copy"].map(col).to_vec())?
                .join(rules, JoinType::Left, &["trajectory_id"], &["rule_id"], None)?
                .aggregate(
                    vec![text(col("task_group")).alias("name")],
                    vec![count(left).alias("left"), count(held).alias("held")],
                )?
                .sort_by(vec![col("name")])
        };
        Ok(frame())
    }

    /// The sources there are. Read by the client where one is held out.
    pub(crate) fn sources(&self) -> Result<DataFrame> {
        let facts = self.engine.table("facts")?;
        let frame = || facts.select(vec![text(col("source")).alias("name")])?.distinct()?.sort_by(vec![col("name")]);
        made("sources", frame())
    }

    /// Trajectories by rule. Read by the client where nothing is left.
    pub(crate) fn rule_counts(&self) -> Result<DataFrame> {
        let frame = self
            .unique()?
            .aggregate(vec![text(col("rule")).alias("rule")], vec![count(lit(1)).alias("trajectories")])
            .and_then(|frame| frame.sort_by(vec![col("rule")]));
        made("rule_counts", frame)
    }

    /// First copies with their pool, and with their rule up to `pool_overlap`.
    pub(crate) fn placed(&self) -> Result<DataFrame> {
        let (unique, groups) = (self.unique()?, self.engine.table("groups")?);
        let frame = || {
            let pool = coalesce(vec![col("group_pool"), text(lit(""))]);
            let rule =
                when(is_left().and(col("pool").eq(text(lit("")))), text(lit("no_pool"))).otherwise(col("rule"))?;
            unique
                .join(groups, JoinType::Left, &["task_group"], &["pool_group"], None)?
                .with_column("pool", pool)?
                .with_column("rule", rule)?
                .drop_columns(&["pool_group", "group_pool"])
        };
        let placed = made("placed", frame())?;
        if !self.engine.has("pool_overlaps") {
            return Ok(placed);
        }
        let overlaps = self.engine.table("pool_overlaps")?;
        let frame = || {
            let is_training = is_left().and(col("pool").not_eq(text(lit(Pool::Eval.as_str()))));
            let rule = when(
                is_training.and(self.is_leak(col("shared_longest"), col("shared_share"))),
                text(lit("pool_overlap")),
            )
            .otherwise(col("rule"))?;
            placed
                .join(overlaps, JoinType::Left, &["trajectory_id"], &["overlap_id"], None)?
                .with_column("rule", rule)?
                .drop_columns(&["overlap_id", "shared_share", "shared_longest"])
        };
        made("placed", frame())
    }

    /// The trajectories of the evaluation pool. Read by the client.
    pub(crate) fn evaluation_ids(&self) -> Result<Frame> {
        let in_evaluation = is_left().and(col("pool").eq(text(lit(Pool::Eval.as_str()))));
        let id = || vec![text(col("trajectory_id")).alias("trajectory_id")];
        Ok(self.placed()?.filter(in_evaluation).and_then(|frame| frame.select(id())))
    }

    /// What every trajectory shares with the evaluation pool, whose runs lie in a file; nothing of those in the pool.
    pub(crate) fn pool_overlaps(&self, runs: &std::path::Path) -> Result<Frame> {
        let input = self.engine.read("pool_overlaps", &self.inputs.paths)?;
        let shared = self.overlap("trajectory_id", col("turns"), runs)?;
        let frame = || {
            input
                .select(vec![col("trajectory_id").alias("overlap_id"), shared.alias("shared")])?
                .select(vec![
                    col("overlap_id"),
                    get_field(col("shared"), "share").alias("shared_share"),
                    get_field(col("shared"), "longest").alias("shared_longest"),
                ])?
                .distinct()
        };
        Ok(frame())
    }

    /// The column that a mixture balances.
    pub(crate) fn mixture_column(&self) -> &'static str {
        match self.config.mixture.as_ref().map(|mixture| mixture.by) {
            Some(MixtureKey::Source) => "source",
            Some(MixtureKey::Domain) | None => "domain",
        }
    }

    /// Training trajectories by pool and by what the mixture balances. Read by the client.
    pub(crate) fn mixture_sizes(&self) -> Result<DataFrame> {
        let placed = self.placed()?;
        let frame = || {
            let keys = vec![text(col("pool")).alias("pool"), text(col(self.mixture_column())).alias("name")];
            placed
                .filter(is_left().and(col("pool").not_eq(text(lit(Pool::Eval.as_str())))))?
                .aggregate(keys, vec![count(lit(1)).alias("trajectories")])?
                .sort_by(vec![col("pool"), col("name")])
        };
        made("mixture_sizes", frame())
    }

    /// First copies with everything that is decided about them as a whole.
    pub(crate) fn fates(&self) -> Result<Frame> {
        let placed = self.placed()?;
        let columns = ["trajectory_id", "pool", "rule"];
        if self.config.mixture.is_none() {
            return Ok(placed.select_columns(&columns));
        }
        let quotas = self.engine.table("quotas")?;
        let draw = self.draw("mixture", col("trajectory_id"), lit(0u32))?;
        let frame = || {
            let key = self.mixture_column();
            let rank = number(&["pool", key], &["mixture_draw", "trajectory_id"])?;
            let is_beyond = col("pool")
                .not_eq(text(lit(Pool::Eval.as_str())))
                .and(col("rank").gt(coalesce(vec![col("quota"), lit(0u64)])));
            let rule = when(is_beyond, text(lit("mixture"))).otherwise(col("rule"))?;
            placed
                .clone()
                .filter(is_left())?
                .with_column("mixture_draw", draw)?
                .with_column("rank", rank)?
                .join(quotas, JoinType::Left, &["pool", key], &["quota_pool", "quota_name"], None)?
                .with_column("rule", rule)?
                .select_columns(&columns)?
                .union(placed.filter(has_rule())?.select_columns(&columns)?)
        };
        Ok(frame())
    }
}
