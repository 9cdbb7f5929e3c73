//! The plans, in the order in which they run. Each reads the input or what earlier plans left and leaves one table; no
//! plan holds state of this process, so that a cluster can run them.
//!
//! ```text
//! facts          one row per trajectory with a list of its turns: what rules, mask and duplicates look at
//! turns          one row per turn + the rule that removes it, or ""
//! trajectories   first copies + the rule that drops the trajectory, or ""
//! sketches       signatures of what is left                        ┐
//! bands          signatures by band, each with those it may equal  │ where near duplicates are asked for
//! pairs          those that are near duplicates                    ┘
//! (client)       pairs to clusters, see clusters.rs; task groups to pools, see groups.rs
//! pool_overlaps  what trajectories share with the evaluation pool, where asked for
//! (client)       how many of each pool and kind stay, see mixture.rs
//! fates          trajectories + the last rules, and the pool
//! decisions      remaining turns + class, duplicate, keep
//! verdicts       every turn with everything decided about it, sorted
//! sorted         the trajectories themselves, sorted by id
//! ```

mod documents;
mod duplicates;
mod facts;
mod fates;
mod verdicts;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::DataFusionError;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{ExprFunctionExt, when};
use datafusion::prelude::{DataFrame, Expr, cast, col, lit};
use worldloom_schema::{Domain, Trajectory};

use crate::apply::Verdict;
use crate::config::CurateConfig;
use crate::engine::{Engine, plan_error};
use crate::error::{Error, Result};
use crate::functions::DRAW;
use crate::inputs::Inputs;
use crate::settings::Limits;

/// What orders trajectories of the same content.
const ORIGIN: [&str; 4] = ["source", "source_path", "source_row", "task_group"];

/// Where the plans read: engine, config and the trajectory files.
pub(crate) struct Plans<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) config: &'a CurateConfig,
    pub(crate) inputs: &'a Inputs,
    pub(crate) documents: &'a Inputs,
}

type Frame = std::result::Result<DataFrame, DataFusionError>;

impl Plans<'_> {
    /// Number of plans that are always run, for progress.
    pub(crate) const COUNT: u64 = 7;

    /// Runs a plan unless a run before has.
    pub(crate) fn run(&self, name: &str, plan: impl FnOnce() -> Result<Frame>) -> Result<()> {
        if self.engine.has(name) {
            tracing::info!(plan = name, "plan done before");
            return Ok(());
        }
        self.engine.store(name, made(name, plan()?)?)?;
        tracing::debug!(plan = name, "plan done");
        Ok(())
    }

    /// Runs the plans that leave what the client merges, unless a run before has.
    pub(crate) fn run_tables(&self) -> Result<()> {
        if !self.engine.has("verdicts") {
            self.engine.store_table::<Verdict>("verdicts", made("verdicts", self.verdicts()?)?)?;
        }
        if !self.engine.has("sorted") {
            self.engine.store_table::<Trajectory>("sorted", made("sorted", self.sorted()?)?)?;
        }
        Ok(())
    }

    fn call(&self, function: &str, arguments: Vec<Expr>) -> Result<Expr> {
        Ok(self.engine.function(function)?.call(arguments))
    }

    /// A number in [0, 1) for an id and a number.
    fn draw(&self, purpose: &str, id: Expr, number: Expr) -> Result<Expr> {
        self.call(DRAW, vec![lit(self.config.seed), text(lit(purpose)), text(id), number])
    }

    /// A limit of the config, which some domains have their own of.
    fn limit<T: Copy + Into<u64>>(
        &self,
        of_all: Option<T>,
        own: impl Fn(&Limits) -> Option<T>,
    ) -> std::result::Result<Expr, DataFusionError> {
        let value = |limit: Option<T>| lit(limit.map_or(u64::MAX, Into::into));
        let limits = self.config.limits.iter().filter(|(_, limits)| own(limits).is_some());
        let is = |domain: &Domain| col("domain").eq(text(lit(domain.as_str())));
        let mut limits = limits.map(|(domain, limits)| (is(domain), value(own(limits))));
        let Some((condition, limit)) = limits.next() else { return Ok(value(of_all)) };
        let mut cases = when(condition, limit);
        for (condition, limit) in limits {
            cases = cases.when(condition, limit);
        }
        cases.otherwise(value(of_all))
    }
}

/// Settings of a function as its last argument.
fn settings(settings: &impl serde::Serialize) -> Result<Expr> {
    let json = serde_json::to_string(settings)
        .map_err(|error| Error::Plan { plan: "settings".into(), detail: error.to_string() })?;
    Ok(lit(json))
}

/// `row_number() over (partition by … order by …)`, from 1.
fn number(partition: &[&str], order: &[&str]) -> std::result::Result<Expr, DataFusionError> {
    row_number()
        .partition_by(partition.iter().copied().map(col).collect())
        .order_by(order.iter().copied().map(|name| col(name).sort(true, false)).collect())
        .build()
}

fn made(plan: &str, frame: Frame) -> Result<DataFrame> {
    frame.map_err(|error| plan_error(plan, error))
}

fn text(expression: Expr) -> Expr {
    cast(expression, DataType::LargeUtf8)
}

fn is_left() -> Expr {
    col("rule").eq(text(lit("")))
}

fn has_rule() -> Expr {
    col("rule").not_eq(text(lit("")))
}
