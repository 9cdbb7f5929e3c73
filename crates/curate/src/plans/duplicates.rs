//! Near duplicates: signatures, the bands in which they meet, and the pairs that are alike.

use datafusion::functions_aggregate::expr_fn::count;
use datafusion::functions_window::expr_fn::{first_value, lag};
use datafusion::logical_expr::ExprFunctionExt;
use datafusion::prelude::{Expr, JoinType, col, lit};

use super::{Frame, Plans, is_left};
use crate::error::Result;
use crate::functions::{BAND_KEYS, SIMILARITY};
use crate::settings::NearDuplicates;

/// Those of a band's bucket that each of it is compared with: the first, and those just before it.
const OTHERS: [&str; 4] = ["first", "before_1", "before_2", "before_3"];

impl Plans<'_> {
    /// From sketches to clusters, of trajectories or of what the prefix names.
    pub(crate) fn find_clusters(&self, near: &NearDuplicates, of: &str) -> Result<()> {
        self.run(&format!("{of}bands"), || self.bands(near, of))?;
        self.run(&format!("{of}pairs"), || self.pairs(near, of))?;
        self.cluster(&format!("{of}pairs"), &format!("{of}clusters"))
    }

    /// Trajectories that no rule dropped and that say something, with their signatures.
    pub(crate) fn sketches(&self) -> Result<Frame> {
        let (trajectories, facts) = (self.engine.table("trajectories")?, self.first_copies()?);
        let frame = || {
            let signatures = facts?
                .filter(col("signature").is_not_null())?
                .select(vec![col("trajectory_id").alias("sketch_id"), col("signature")])?;
            trajectories
                .filter(is_left())?
                .join(signatures, JoinType::Inner, &["trajectory_id"], &["sketch_id"], None)?
                .select_columns(&["trajectory_id", "num_turns", "total_chars", "signature"])
        };
        Ok(frame())
    }

    /// Each trajectory once per band that it shares, with those of the bucket it is compared with.
    fn bands(&self, near: &NearDuplicates, of: &str) -> Result<Frame> {
        let sketches = self.engine.table(&format!("{of}sketches"))?;
        let keys = self.call(BAND_KEYS, vec![col("signature"), lit(near.rows_per_band() as u64)])?;
        let frame = || {
            let in_bucket = |function: Expr| {
                function.partition_by(vec![col("band")]).order_by(vec![col("trajectory_id").sort(true, false)]).build()
            };
            let all = sketches.select(vec![col("trajectory_id"), keys.alias("band")])?.unnest_columns(&["band"])?;
            // Nearly every bucket has one member; a window takes its time for each.
            let shared = all
                .clone()
                .aggregate(vec![col("band")], vec![count(lit(1i64)).alias("members")])?
                .filter(col("members").gt(lit(1i64)))?
                .select(vec![col("band").alias("shared_band")])?;
            let mut bands = all
                .join(shared, JoinType::LeftSemi, &["band"], &["shared_band"], None)?
                .with_column(OTHERS[0], in_bucket(first_value(col("trajectory_id")))?)?;
            for (at, name) in OTHERS.iter().enumerate().skip(1) {
                let before = lag(col("trajectory_id"), Some(at as i64), None);
                bands = bands.with_column(name, in_bucket(before)?)?;
            }
            Ok(bands)
        };
        Ok(frame())
    }

    /// Pairs whose estimated similarity reaches the threshold, with what decides which of a cluster is kept.
    fn pairs(&self, near: &NearDuplicates, of: &str) -> Result<Frame> {
        let table = |name: &str| self.engine.table(&format!("{of}{name}"));
        let (bands, sketches) = (table("bands")?, table("sketches")?);
        let similarity = self.call(SIMILARITY, vec![col("one_signature"), col("other_signature")])?;
        let frame = || {
            let pairs_with = |other: &str| {
                bands
                    .clone()
                    .filter(col(other).is_not_null().and(col(other).not_eq(col("trajectory_id"))))?
                    .select(vec![col("trajectory_id").alias("one"), col(other).alias("other")])
            };
            let mut pairs = pairs_with(OTHERS[0])?;
            for other in &OTHERS[1..] {
                pairs = pairs.union(pairs_with(other)?)?;
            }
            let member = |side: &str| {
                let name = |column: &str| format!("{side}_{column}");
                sketches.clone().select(vec![
                    col("trajectory_id").alias(name("id")),
                    col("num_turns").alias(name("turns")),
                    col("total_chars").alias(name("chars")),
                    col("signature").alias(name("signature")),
                ])
            };
            pairs
                .distinct()?
                .join(member("one")?, JoinType::Inner, &["one"], &["one_id"], None)?
                .join(member("other")?, JoinType::Inner, &["other"], &["other_id"], None)?
                .filter(similarity.gt_eq(lit(near.threshold)))?
                .select_columns(&["one", "one_turns", "one_chars", "other", "other_turns", "other_chars"])
        };
        Ok(frame())
    }
}
