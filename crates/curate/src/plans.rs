//! The plans, in the order in which they run. Each reads the input or what earlier plans left and leaves one table; no
//! plan holds state of this process, so that a cluster can run them.
//!
//! ```text
//! copies        one row per trajectory, numbered among its equals
//! facts         one row per turn: key, measures, what the turn rules look at
//! turns         facts + the rule that removes the turn, or ""
//! trajectories  first copies + the rule that drops the trajectory, or ""
//! (client)      task groups to pools, see groups.rs
//! decisions     remaining turns + pool, class, duplicate, keep
//! verdicts      every turn with everything decided about it, sorted
//! sorted        the trajectories themselves, sorted by id
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{LargeStringArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::error::DataFusionError;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{ExprFunctionExt, when};
use datafusion::prelude::{DataFrame, Expr, JoinType, cast, coalesce, col, get_field, lit};
use worldloom_schema::{Pool, Trajectory};

use crate::apply::Verdict;
use crate::config::CurateConfig;
use crate::engine::{Engine, plan_error};
use crate::error::Result;
use crate::functions::{DRAW, IS_BLANK, TURN_KEYS, TURN_MEASURES};
use crate::groups::Assignment;

/// What orders trajectories of the same content.
const ORIGIN: [&str; 4] = ["source", "source_path", "source_row", "task_group"];

/// Where the plans read: engine, config and the trajectory files.
pub(crate) struct Plans<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) config: &'a CurateConfig,
    pub(crate) inputs: &'a [PathBuf],
}

type Frame = std::result::Result<DataFrame, DataFusionError>;
type Plan<P> = fn(&P) -> Result<Frame>;

impl Plans<'_> {
    /// Number of plans, for progress.
    pub(crate) const COUNT: u64 = 7;

    /// Runs the plans up to `trajectories`.
    pub(crate) fn run_rules(&self, progress: &mut dyn FnMut()) -> Result<()> {
        let plans: [(&str, Plan<Self>); 4] = [
            ("copies", Self::copies),
            ("facts", Self::facts),
            ("turns", Self::turns),
            ("trajectories", Self::trajectories),
        ];
        for (name, plan) in plans {
            self.engine.store(name, made(name, plan(self)?)?)?;
            tracing::debug!(plan = name, "plan done");
            progress();
        }
        Ok(())
    }

    /// Runs the plans after the pools are known.
    pub(crate) fn run_decisions(&self, assignment: &Assignment, progress: &mut dyn FnMut()) -> Result<()> {
        self.engine.store("groups", self.groups(assignment)?)?;
        self.engine.store("decisions", made("decisions", self.decisions()?)?)?;
        progress();
        self.engine.store_table::<Verdict>("verdicts", made("verdicts", self.verdicts()?)?)?;
        progress();
        self.engine.store_table::<Trajectory>("sorted", made("sorted", self.sorted()?)?)?;
        progress();
        Ok(())
    }

    /// The client's assignment as a table.
    fn groups(&self, assignment: &Assignment) -> Result<DataFrame> {
        let plan = "groups";
        let (groups, pools): (Vec<&str>, Vec<&str>) =
            assignment.iter().map(|(group, pool)| (group.as_str(), pool.as_str())).unzip();
        let field = |name: &str| Field::new(name, DataType::LargeUtf8, false);
        let schema = Arc::new(Schema::new(vec![field("pool_group"), field("pool")]));
        let columns = vec![Arc::new(LargeStringArray::from(groups)) as _, Arc::new(LargeStringArray::from(pools)) as _];
        let batch = RecordBatch::try_new(schema, columns).map_err(|error| plan_error(plan, error.into()))?;
        self.engine.values(plan, batch)
    }

    fn call(&self, function: &str, arguments: Vec<Expr>) -> Result<Expr> {
        Ok(self.engine.function(function)?.call(arguments))
    }

    fn draw(&self, purpose: &str) -> Result<Expr> {
        let purpose = text(lit(purpose));
        self.call(DRAW, vec![lit(self.config.seed), purpose, text(col("trajectory_id")), col("index")])
    }

    /// Trajectories numbered among those of the same content, in the order of where they came from.
    fn copies(&self) -> Result<Frame> {
        let input = self.engine.read("copies", self.inputs)?;
        Ok(input
            .select([vec![col("trajectory_id")], ORIGIN.map(col).to_vec()].concat())
            .and_then(|frame| frame.with_column("copy", number(&["trajectory_id"], &ORIGIN)?)))
    }

    /// What the rules and the mask look at, one row per turn; of equal trajectories the first copy's.
    fn facts(&self) -> Result<Frame> {
        let input = self.engine.read("facts", self.inputs)?;
        let state = text(get_field(col("system"), "initial_state"));
        let keys = self.call(TURN_KEYS, vec![text(col("domain")), state, col("turns")])?;
        let action = || text(get_field(col("turn"), "action"));
        let observation = || text(get_field(col("turn"), "observation"));
        let blank = self.call(IS_BLANK, vec![action()])?;
        let measures = self.call(TURN_MEASURES, vec![action(), observation()])?;
        let is_image = text(get_field(col("turn"), "observation_kind")).eq(lit("image"));
        let part = |name: &str| get_field(col("measures"), name).alias(name);
        let origin = || ORIGIN.map(col).to_vec();
        let frame = || {
            let keyed = vec![keys.alias("turn_key"), col("turns").alias("turn")];
            let facts = vec![
                col("trajectory_id"),
                cast(get_field(col("turn"), "index"), DataType::UInt32).alias("index"),
                col("turn_key"),
                blank.alias("is_blank"),
                is_image.and(observation().eq(lit(""))).alias("is_image"),
                measures.alias("measures"),
            ];
            let named = ["trajectory_id", "index", "turn_key", "is_blank", "is_image"].map(col).to_vec();
            let measured = ["overlap", "novelty", "ratio", "words", "chars"].map(part).to_vec();
            input
                .select([vec![col("trajectory_id")], origin(), keyed].concat())?
                .unnest_columns(&["turn_key", "turn"])?
                .select([facts, origin()].concat())?
                .with_column("copy", number(&["trajectory_id", "index"], &ORIGIN)?)?
                .filter(col("copy").eq(lit(1u64)))?
                .select([named, measured].concat())
        };
        Ok(frame())
    }

    /// The rule that removes a turn: `empty_action`, `image_only`; from the first observation that is too long
    /// `long_observation`; then `beyond_max_turns`.
    fn turns(&self) -> Result<Frame> {
        let longest = self.config.max_observation_chars;
        let most = u64::from(self.config.max_turns);
        let facts = self.engine.table("facts")?;
        let has_rule = || col("rule").not_eq(lit(""));
        let columns = ["trajectory_id", "index", "turn_key", "overlap", "novelty", "ratio", "words", "rule"];
        let frame = || {
            let own_rule = when(col("is_blank"), lit("empty_action"))
                .when(col("is_image"), lit("image_only"))
                .otherwise(lit(""))?;
            let facts = facts.with_column("own_rule", own_rule)?;
            let cuts = facts
                .clone()
                .filter(col("own_rule").eq(lit("")).and(col("chars").gt(lit(longest))))?
                .aggregate(vec![col("trajectory_id")], vec![min(col("index")).alias("cut")])?
                .select(vec![col("trajectory_id").alias("cut_id"), col("cut")])?;
            let rule = when(col("own_rule").not_eq(lit("")), col("own_rule"))
                .when(col("cut").is_not_null().and(col("index").gt_eq(col("cut"))), lit("long_observation"))
                .otherwise(lit(""))?;
            let cut = facts
                .join(cuts, JoinType::Left, &["trajectory_id"], &["cut_id"], None)?
                .with_column("rule", rule)?
                .select_columns(&columns)?;
            let beyond = when(col("position").gt(lit(most)), lit("beyond_max_turns")).otherwise(lit(""))?;
            cut.clone()
                .filter(col("rule").eq(lit("")))?
                .with_column("position", number(&["trajectory_id"], &["index"])?)?
                .with_column("rule", beyond)?
                .select_columns(&columns)?
                .union(cut.filter(has_rule())?)
        };
        Ok(frame())
    }

    /// The rule that drops a trajectory: `few_turns`.
    fn trajectories(&self) -> Result<Frame> {
        let fewest = u64::from(self.config.min_turns);
        let (turns, copies) = (self.engine.table("turns")?, self.engine.table("copies")?);
        let frame = || {
            let remaining = turns
                .filter(col("rule").eq(lit("")))?
                .aggregate(vec![col("trajectory_id")], vec![count(lit(1)).alias("counted")])?
                .select(vec![
                    col("trajectory_id").alias("turn_id"),
                    cast(col("counted"), DataType::UInt64).alias("counted"),
                ])?;
            let num_turns = coalesce(vec![col("counted"), lit(0u64)]);
            let rule = when(col("num_turns").lt(lit(fewest)), lit("few_turns")).otherwise(lit(""))?;
            copies
                .filter(col("copy").eq(lit(1u64)))?
                .join(remaining, JoinType::Left, &["trajectory_id"], &["turn_id"], None)?
                .with_column("num_turns", num_turns)?
                .with_column("rule", rule)?
                .select_columns(&["trajectory_id", "task_group", "num_turns", "rule"])
        };
        Ok(frame())
    }

    /// Trajectories by task group: all of them, and first copies without a rule. Read by the client.
    pub(crate) fn group_sizes(&self) -> Result<DataFrame> {
        let (copies, trajectories) = (self.engine.table("copies")?, self.engine.table("trajectories")?);
        let frame = || {
            let rules = trajectories.select(vec![col("trajectory_id").alias("rule_id"), col("rule")])?;
            let is_left = col("rule").eq(lit("")).and(col("copy").eq(lit(1u64)));
            let left = when(is_left, lit(1i64)).end()?;
            copies
                .join(rules, JoinType::Left, &["trajectory_id"], &["rule_id"], None)?
                .aggregate(
                    vec![text(col("task_group")).alias("name")],
                    vec![count(lit(1)).alias("all"), count(left).alias("left")],
                )?
                .sort_by(vec![col("name")])
        };
        made("group_sizes", frame())
    }

    /// Trajectories by rule. Read by the client where nothing is left.
    pub(crate) fn rule_counts(&self) -> Result<DataFrame> {
        let table = self.engine.table("trajectories")?;
        let frame = table
            .aggregate(vec![text(col("rule")).alias("rule")], vec![count(lit(1)).alias("trajectories")])
            .and_then(|frame| frame.sort_by(vec![col("rule")]));
        made("rule_counts", frame)
    }

    /// Pool, class, duplicate and keep of the turns that are left. Of equal turns one is trained or evaluated: one in a
    /// training pool before one in evaluation, then by id.
    fn decisions(&self) -> Result<Frame> {
        let (turns, trajectories) = (self.engine.table("turns")?, self.engine.table("trajectories")?);
        let groups = self.engine.table("groups")?;
        let (class, keep_share) = (self.config.turn_mask.class()?, self.config.turn_mask.keep_share()?);
        let (keep_draw, target_draw) = (self.draw("keep")?, self.draw("target")?);
        let per_trajectory = self.config.turns_per_trajectory;
        let is_copy = col("copy").gt(lit(1u64)).and(lit(self.config.drop_exact_duplicates));
        let is_target = |most: u32| col("rank").lt_eq(lit(u64::from(most)));
        let in_pool = |pool: Pool| col("pool").eq(lit(pool.as_str()));
        let frame = || {
            let left = trajectories
                .filter(col("rule").eq(lit("")))?
                .select(vec![col("trajectory_id").alias("left_id"), col("task_group")])?
                .join(groups, JoinType::Inner, &["task_group"], &["pool_group"], None)?;
            let keep = when(col("is_duplicate"), lit(false))
                .when(in_pool(Pool::Cpt), keep_draw.lt(col("keep_share")))
                .when(in_pool(Pool::Sft), is_target(per_trajectory.sft))
                .when(in_pool(Pool::Rl), is_target(per_trajectory.rl))
                .otherwise(lit(true))?;
            turns
                .filter(col("rule").eq(lit("")))?
                .join(left, JoinType::Inner, &["trajectory_id"], &["left_id"], None)?
                .with_column("is_eval", in_pool(Pool::Eval))?
                .with_column("copy", number(&["turn_key"], &["is_eval", "trajectory_id", "index"])?)?
                .with_column("is_duplicate", is_copy)?
                .with_column("keep_class", class)?
                .with_column("keep_share", keep_share)?
                .with_column("target_draw", target_draw)?
                .with_column("rank", number(&["trajectory_id", "is_duplicate"], &["target_draw", "index"])?)?
                .with_column("keep", keep)?
                .select_columns(&["trajectory_id", "index", "pool", "keep_class", "is_duplicate", "keep"])
        };
        Ok(frame())
    }

    /// Every turn with everything decided about it, in the order of trajectory id and turn.
    fn verdicts(&self) -> Result<Frame> {
        let (turns, trajectories) = (self.engine.table("turns")?, self.engine.table("trajectories")?);
        let decisions = self.engine.table("decisions")?;
        let frame = || {
            let dropped = trajectories
                .select(vec![col("trajectory_id").alias("dropped_id"), col("rule").alias("trajectory_rule")])?;
            let decided = decisions.select(vec![
                col("trajectory_id").alias("decided_id"),
                col("index").alias("decided_index"),
                col("pool"),
                col("keep_class"),
                col("is_duplicate"),
                col("keep"),
            ])?;
            let (left, right) = (["trajectory_id", "index"], ["decided_id", "decided_index"]);
            turns
                .join(dropped, JoinType::Left, &["trajectory_id"], &["dropped_id"], None)?
                .join(decided, JoinType::Left, &left, &right, None)?
                .select(vec![
                    col("trajectory_id"),
                    col("index"),
                    col("trajectory_rule"),
                    col("rule").alias("turn_rule"),
                    coalesce(vec![col("pool"), lit("")]).alias("pool"),
                    coalesce(vec![col("keep_class"), lit("")]).alias("keep_class"),
                    coalesce(vec![col("is_duplicate"), lit(false)]).alias("is_duplicate"),
                    coalesce(vec![col("keep"), lit(false)]).alias("keep"),
                ])?
                .sort_by(vec![col("trajectory_id"), col("index")])
        };
        Ok(frame())
    }

    /// The trajectories in the order of id and origin.
    fn sorted(&self) -> Result<Frame> {
        let order = [vec![col("trajectory_id")], ORIGIN.map(col).to_vec()].concat();
        Ok(self.engine.read("sorted", self.inputs)?.sort_by(order))
    }
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
