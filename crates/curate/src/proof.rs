//! The proof that pools are disjoint, on the files that were written.

use std::path::Path;

use datafusion::prelude::{DataFrame, JoinType, col};
use worldloom_schema::Pool;

use crate::engine::{Engine, plan_error};
use crate::error::{Error, Result};
use crate::report::SharedBetween;
use crate::run::pool_file;

/// Counts what every two pools share; anything is an error.
pub(crate) fn check_disjoint(engine: &Engine, out: &Path) -> Result<Vec<SharedBetween>> {
    let mut all = Vec::new();
    for (at, first) in Pool::ALL.into_iter().enumerate() {
        for second in Pool::ALL.into_iter().skip(at + 1) {
            let shared = |column: &str| count_shared(engine, out, first, second, column);
            let (groups, ids) = (shared("task_group")?, shared("trajectory_id")?);
            if groups + ids > 0 {
                return Err(Error::NotDisjoint { first, second, groups, ids });
            }
            all.push(SharedBetween { first, second, groups, ids });
        }
    }
    Ok(all)
}

fn count_shared(engine: &Engine, out: &Path, first: Pool, second: Pool, column: &str) -> Result<u64> {
    const PLAN: &str = "disjoint pools";
    let values = |pool: Pool| -> Result<DataFrame> {
        let frame = engine.read(PLAN, &[out.join(pool_file(pool))])?;
        let values = frame.select(vec![col(column).alias(pool.as_str())]).and_then(DataFrame::distinct);
        values.map_err(|error| plan_error(PLAN, error))
    };
    let joined = values(first)?
        .join(values(second)?, JoinType::Inner, &[first.as_str()], &[second.as_str()], None)
        .map_err(|error| plan_error(PLAN, error))?;
    engine.count(PLAN, joined)
}
