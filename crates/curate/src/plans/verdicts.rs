//! What becomes of each turn, and the trajectories in the order in which they are written.

use datafusion::logical_expr::when;
use datafusion::prelude::{JoinType, coalesce, col, lit};
use worldloom_schema::Pool;

use super::{Frame, ORIGIN, Plans, is_left, number, text};
use crate::error::Result;

/// The index in the one verdict of a trajectory without turns.
const NO_TURN: u32 = u32::MAX;

impl Plans<'_> {
    /// Class, duplicate and keep of the turns that are left. Of equal turns one is trained or evaluated: one in a
    /// training pool before one in evaluation, then by id.
    pub(crate) fn decisions(&self) -> Result<Frame> {
        let (turns, fates) = (self.engine.table("turns")?, self.engine.table("fates")?);
        let (class, keep_share) = (self.config.turn_mask.class()?, self.config.turn_mask.keep_share()?);
        let draw = |purpose: &str| self.draw(purpose, col("trajectory_id"), col("index"));
        let (keep_draw, target_draw) = (draw("keep")?, draw("target")?);
        let per_trajectory = self.config.turns_per_trajectory;
        let is_copy = col("copy").gt(lit(1u64)).and(lit(self.config.drop_exact_duplicates));
        let is_target = |most: u32| col("rank").lt_eq(lit(u64::from(most)));
        let in_pool = |pool: Pool| col("pool").eq(text(lit(pool.as_str())));
        let frame = || {
            let left = fates.filter(is_left())?.select(vec![col("trajectory_id").alias("left_id"), col("pool")])?;
            let keep = when(col("is_duplicate"), lit(false))
                .when(in_pool(Pool::Cpt), keep_draw.lt(col("keep_share")))
                .when(in_pool(Pool::Sft), is_target(per_trajectory.sft))
                .when(in_pool(Pool::Rl), is_target(per_trajectory.rl))
                .otherwise(lit(true))?;
            turns
                .filter(is_left())?
                .join(left, JoinType::Inner, &["trajectory_id"], &["left_id"], None)?
                .with_column("is_eval", in_pool(Pool::Eval))?
                .with_column("copy", number(&["turn_key"], &["is_eval", "trajectory_id", "index"])?)?
                .with_column("is_duplicate", is_copy)?
                .with_column("keep_class", class)?
                .with_column("keep_share", keep_share)?
                .with_column("target_draw", target_draw)?
                .with_column("rank", number(&["trajectory_id", "is_duplicate"], &["target_draw", "index"])?)?
                .with_column("keep", keep)?
                .select(vec![
                    col("trajectory_id").alias("decided_id"),
                    col("index").alias("decided_index"),
                    col("keep_class"),
                    col("is_duplicate"),
                    col("keep"),
                ])
        };
        Ok(frame())
    }

    /// Every turn with everything decided about it, in the order of trajectory id and turn; a trajectory without turns has
    /// one row with the index [`NO_TURN`].
    pub(crate) fn verdicts(&self) -> Result<Frame> {
        let (turns, fates) = (self.engine.table("turns")?, self.engine.table("fates")?);
        let decisions = self.engine.table("decisions")?;
        let frame = || {
            let fates = fates.select(vec![
                col("trajectory_id").alias("fate_id"),
                col("rule").alias("trajectory_rule"),
                when(is_left(), col("pool")).otherwise(text(lit("")))?.alias("pool"),
            ])?;
            let decided =
                decisions.select_columns(&["decided_id", "decided_index", "keep_class", "is_duplicate", "keep"])?;
            let (left, right) = (["trajectory_id", "index"], ["decided_id", "decided_index"]);
            let turns = turns.join(decided, JoinType::Left, &left, &right, None)?.select_columns(&[
                "trajectory_id",
                "index",
                "rule",
                "keep_class",
                "is_duplicate",
                "keep",
            ])?;
            fates
                .join(turns, JoinType::Left, &["fate_id"], &["trajectory_id"], None)?
                .select(vec![
                    col("fate_id").alias("trajectory_id"),
                    coalesce(vec![col("index"), lit(NO_TURN)]).alias("index"),
                    col("trajectory_rule"),
                    coalesce(vec![col("rule"), text(lit("no_turn"))]).alias("turn_rule"),
                    col("pool"),
                    coalesce(vec![col("keep_class"), text(lit(""))]).alias("keep_class"),
                    coalesce(vec![col("is_duplicate"), lit(false)]).alias("is_duplicate"),
                    coalesce(vec![col("keep"), lit(false)]).alias("keep"),
                ])?
                .sort_by(vec![col("trajectory_id"), col("index")])
        };
        Ok(frame())
    }

    /// The trajectories in the order of id and origin.
    pub(crate) fn sorted(&self) -> Result<Frame> {
        let order = [vec![col("trajectory_id")], ORIGIN.map(col).to_vec()].concat();
        Ok(self.engine.read("sorted", &self.inputs.paths)?.sort_by(order))
    }
}
