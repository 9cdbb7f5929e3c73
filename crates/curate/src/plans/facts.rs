//! From texts to facts, and from facts to the rules of turns and trajectories.

use std::path::Path;

use datafusion::arrow::datatypes::DataType;
use datafusion::functions::string::expr_fn::lower;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::when;
use datafusion::prelude::{DataFrame, Expr, JoinType, cast, coalesce, col, get_field, lit};
use worldloom_schema::hash_file;

use super::{Frame, ORIGIN, Plans, has_rule, is_left, number, settings, text};
use crate::error::Result;
use crate::functions::{FactSettings, OVERLAP, OverlapSettings, TRAJECTORY_FACTS, TURN_FACTS};

/// Of a turn, besides trajectory, domain and rule.
const TURN_COLUMNS: [&str; 7] = ["index", "turn_key", "overlap", "novelty", "ratio", "words", "is_error"];

impl Plans<'_> {
    /// One row per trajectory, numbered among those of the same content in the order of where they came from. The only
    /// plan that reads the texts, but for those that look at the evaluation pool and the one that sorts.
    pub(crate) fn facts(&self, evaluation: Option<&Path>) -> Result<Frame> {
        let input = self.engine.read("facts", &self.inputs.paths)?;
        let system = |name: &str| text(get_field(col("system"), name));
        let domain = || text(col("domain"));
        let arguments = vec![domain(), system("initial_state"), col("turns"), settings(&self.config.rules)?];
        let turn_facts = self.call(TURN_FACTS, arguments)?.alias("turn_facts");
        let wanted = FactSettings { rules: self.config.rules.clone(), near_duplicates: self.config.near_duplicates };
        let arguments =
            vec![domain(), system("task_description"), system("action_space"), col("turns"), settings(&wanted)?];
        let facts = self.call(TRAJECTORY_FACTS, arguments)?.alias("facts");
        let shared = match evaluation {
            Some(runs) => vec![self.overlap("trajectory_id", col("turns"), runs)?.alias("shared")],
            None => Vec::new(),
        };
        let part = |name: &str| get_field(col("facts"), name).alias(name);
        let (share, longest) = match evaluation {
            Some(_) => (get_field(col("shared"), "share"), get_field(col("shared"), "longest")),
            None => (lit(0f64), lit(0u64)),
        };
        let frame = || {
            let known = vec![
                col("trajectory_id"),
                domain().alias("domain"),
                lower(coalesce(vec![text(col("licence")), text(lit(""))])).alias("licence"),
            ];
            let parts = ["total_chars", "language", "own_rule", "signature"].map(part).to_vec();
            let kept = ["trajectory_id", "domain", "licence", "turn_facts"].map(col).to_vec();
            let shared_parts = vec![share.alias("shared_share"), longest.alias("shared_longest")];
            input
                .select([known, ORIGIN.map(col).to_vec(), vec![turn_facts, facts], shared].concat())?
                .select([kept, ORIGIN.map(col).to_vec(), parts, shared_parts].concat())?
                .with_column("copy", number(&["trajectory_id"], &ORIGIN)?)
        };
        Ok(frame())
    }

    /// What the turns or the text of a row share with evaluation texts.
    pub(super) fn overlap(&self, id: &str, texts: Expr, runs: &Path) -> Result<Expr> {
        let wanted = OverlapSettings { runs: runs.into(), hash: hash_file(runs)? };
        self.call(OVERLAP, vec![col(id), texts, settings(&wanted)?])
    }

    /// Whether what is shared is a leak.
    pub(super) fn is_leak(&self, longest: Expr, share: Expr) -> Expr {
        match &self.config.decontaminate {
            Some(limits) => longest.gt_eq(lit(limits.longest_run)).or(share.gt(lit(limits.largest_share))),
            None => lit(false),
        }
    }

    /// Whether the licence is none that is allowed.
    pub(super) fn other_licence(&self) -> Expr {
        let Some(rule) = &self.config.rules.licences else { return lit(false) };
        let allowed = rule.allow.iter().map(|licence| text(lit(licence.to_lowercase())));
        let unknown = rule.keep_unknown.then(|| text(lit("")));
        col("licence").in_list(allowed.chain(unknown).collect(), true)
    }

    /// Whether the language can be told and is none that is allowed.
    pub(super) fn other_language(&self) -> Expr {
        let Some(rule) = &self.config.rules.languages else { return lit(false) };
        let allowed = rule.allow.iter().map(|code| text(lit(code.as_str()))).chain([text(lit(""))]);
        col("language").in_list(allowed.collect(), true)
    }

    /// First copies.
    pub(super) fn first_copies(&self) -> Result<Frame> {
        Ok(self.engine.table("facts")?.filter(col("copy").eq(lit(1u64))))
    }

    /// The rule that removes a turn: its own (`empty_action`, `image_only`, `harness_text`, `retry_cycle`, `no_change`, patterns of the
    /// config); from the first action or observation that is too long on `long_action` or `long_observation`; then
    /// `beyond_max_turns`.
    pub(crate) fn turns(&self) -> Result<Frame> {
        let facts = self.first_copies()?;
        let columns = [&["trajectory_id", "domain"], &TURN_COLUMNS[..], &["rule"]].concat();
        let frame = || {
            let part = |name: &str| get_field(col("turn_facts"), name).alias(name);
            let parts = [&TURN_COLUMNS[..], &["own_rule", "chars", "action_chars"]].concat();
            let turns = facts?
                .select(["trajectory_id", "domain", "turn_facts"].map(col).to_vec())?
                .unnest_columns(&["turn_facts"])?
                .select([vec![col("trajectory_id"), col("domain")], parts.into_iter().map(part).collect()].concat())?
                .filter(col("index").is_not_null())?;
            let cut = self.with_cuts(turns)?.select_columns(&columns)?;
            let most = self.limit(Some(self.config.max_turns), |limits| limits.max_turns)?;
            let beyond = when(col("position").gt(most), text(lit("beyond_max_turns"))).otherwise(text(lit("")))?;
            cut.clone()
                .filter(is_left())?
                .with_column("position", number(&["trajectory_id"], &["index"])?)?
                .with_column("rule", beyond)?
                .select_columns(&columns)?
                .union(cut.filter(has_rule())?)
        };
        Ok(frame())
    }

    /// Turns with their own rule, or that of the cut before them.
    fn with_cuts(&self, turns: DataFrame) -> Frame {
        let config = self.config;
        let longest = self.limit(Some(config.max_observation_chars), |limits| limits.max_observation_chars)?;
        let longest_action = self.limit(config.max_action_chars, |limits| limits.max_action_chars)?;
        let is_long = [col("chars").gt(longest), col("action_chars").gt(longest_action)];
        let [observation, action] = is_long.clone().map(|is_long| when(is_long, col("index")).end());
        let cuts = turns
            .clone()
            .filter(col("own_rule").eq(text(lit(""))).and(is_long.into_iter().fold(lit(false), Expr::or)))?
            .aggregate(
                vec![col("trajectory_id")],
                vec![min(observation?).alias("cut"), min(action?).alias("action_cut")],
            )?
            .select(vec![col("trajectory_id").alias("cut_id"), col("cut"), col("action_cut")])?;
        // Of two cuts the first counts; of a turn with both the observation's.
        let never = || lit(u32::MAX);
        let (cut, action_cut) = (coalesce(vec![col("cut"), never()]), coalesce(vec![col("action_cut"), never()]));
        let rule = when(col("own_rule").not_eq(text(lit(""))), col("own_rule"))
            .when(col("index").gt_eq(cut.clone()).and(cut.lt_eq(action_cut.clone())), text(lit("long_observation")))
            .when(col("index").gt_eq(action_cut), text(lit("long_action")))
            .otherwise(text(lit("")))?;
        turns.join(cuts, JoinType::Left, &["trajectory_id"], &["cut_id"], None)?.with_column("rule", rule)
    }

    /// The rule that drops a trajectory, in the order of [`TRAJECTORY_RULES`](crate::rules::TRAJECTORY_RULES) up to
    /// `few_turns`.
    pub(crate) fn trajectories(&self, evaluation_groups: &[String]) -> Result<Frame> {
        let (turns, facts) = (self.engine.table("turns")?, self.first_copies()?);
        let name = |rule: &str| text(lit(rule));
        let has_image_rule = when(col("rule").eq(name("image_only")), lit(1i64)).end();
        let counts = |column: &str| cast(coalesce(vec![col(column), lit(0i64)]), DataType::UInt64);
        let frame = || {
            let remaining = turns
                .aggregate(
                    vec![col("trajectory_id")],
                    vec![
                        count(when(is_left(), lit(1i64)).end()?).alias("left"),
                        count(has_image_rule?).alias("images"),
                    ],
                )?
                .select(vec![col("trajectory_id").alias("turn_id"), col("left"), col("images")])?;
            let in_evaluation = match evaluation_groups {
                [] => lit(false),
                groups => text(col("task_group")).in_list(groups.iter().map(|group| name(group)).collect(), false),
            };
            let fewest = self.limit(Some(self.config.min_turns), |limits| limits.min_turns)?;
            let longest = self.limit(self.config.max_trajectory_chars, |limits| limits.max_trajectory_chars)?;
            let with_images = col("num_turns") + counts("images");
            let rule = when(self.other_licence(), name("licence"))
                .when(in_evaluation, name("evaluation_group"))
                .when(self.is_leak(col("shared_longest"), col("shared_share")), name("evaluation_overlap"))
                .when(self.other_language(), name("language"))
                .when(col("own_rule").not_eq(name("")), col("own_rule"))
                .when(col("total_chars").gt(longest), name("long_trajectory"))
                .when(col("num_turns").lt(fewest.clone()).and(with_images.gt_eq(fewest.clone())), name("image_only"))
                .when(col("num_turns").lt(fewest), name("few_turns"))
                .otherwise(name(""))?;
            let columns = ["trajectory_id", "task_group", "domain", "source", "num_turns", "total_chars", "rule"];
            facts?
                .join(remaining, JoinType::Left, &["trajectory_id"], &["turn_id"], None)?
                .with_column("num_turns", counts("left"))?
                .with_column("rule", rule)?
                .select_columns(&columns)
        };
        Ok(frame())
    }
}
