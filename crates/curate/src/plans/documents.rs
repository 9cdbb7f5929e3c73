//! Documents: the rules that a text without turns can break. Duplicates and overlaps are found as those of trajectories.

use std::path::Path;

use datafusion::functions::string::expr_fn::lower;
use datafusion::logical_expr::when;
use datafusion::prelude::{DataFrame, Expr, JoinType, coalesce, col, get_field, lit};

use super::{Frame, Plans, has_rule, is_left, made, number, settings, text};
use crate::documents::Documents;
use crate::error::Result;
use crate::functions::{DOCUMENT_FACTS, FactSettings};

/// What orders documents of the same text.
const ORIGIN: [&str; 3] = ["source", "source_path", "source_row"];

impl Plans<'_> {
    /// One row per document, numbered among those of the same text in the order of where they came from.
    pub(crate) fn document_facts(&self, evaluation: Option<&Path>, pool: Option<&Path>) -> Result<Frame> {
        let input = self.engine.read("document_facts", &self.documents.paths)?;
        let wanted = FactSettings { rules: self.config.rules.clone(), near_duplicates: self.config.near_duplicates };
        let facts = self.call(DOCUMENT_FACTS, vec![text(col("text")), settings(&wanted)?])?.alias("facts");
        let mut read = vec![
            text(col("document_id")).alias("document_id"),
            lower(coalesce(vec![text(col("licence")), text(lit(""))])).alias("licence"),
            facts,
        ];
        let mut kept = ["document_id", "licence", "source", "source_path", "source_row"].map(col).to_vec();
        let part = |column: &str, name: &str, alias: &str| get_field(col(column), name).alias(alias);
        kept.extend(["total_chars", "language", "signature"].map(|name| part("facts", name, name)));
        for (name, runs) in [("evaluation", evaluation), ("pool", pool)] {
            let [share, longest] = [format!("{name}_share"), format!("{name}_longest")];
            match runs {
                Some(runs) => {
                    read.push(self.overlap("document_id", text(col("text")), runs)?.alias(name));
                    kept.extend([part(name, "share", &share), part(name, "longest", &longest)]);
                }
                None => kept.extend([lit(0f64).alias(share), lit(0u64).alias(longest)]),
            }
        }
        let frame = || {
            input
                .select([read, ORIGIN.map(col).to_vec()].concat())?
                .select(kept)?
                .with_column("copy", number(&["document_id"], &ORIGIN)?)
        };
        Ok(frame())
    }

    /// First copies with the rule that drops the document, or "".
    pub(crate) fn document_rules(&self, documents: &Documents) -> Result<Frame> {
        let facts = self.engine.table("document_facts")?;
        let name = |rule: &str| text(lit(rule));
        let is_leak = |set: &str| self.is_leak(col(format!("{set}_longest")), col(format!("{set}_share")));
        let frame = || {
            let rule = when(self.other_licence(), name("licence"))
                .when(is_leak("evaluation"), name("evaluation_overlap"))
                .when(is_leak("pool"), name("pool_overlap"))
                .when(self.other_language(), name("language"))
                .when(col("total_chars").lt(lit(documents.min_chars)), name("short_document"))
                .when(col("total_chars").gt(lit(documents.max_chars)), name("long_document"))
                .otherwise(name(""))?;
            facts.filter(col("copy").eq(lit(1u64)))?.with_column("rule", rule)?.select_columns(&[
                "document_id",
                "total_chars",
                "signature",
                "rule",
            ])
        };
        Ok(frame())
    }

    /// Documents that no rule dropped, with their signatures, as [`Plans::bands`] reads them.
    pub(crate) fn document_sketches(&self) -> Result<Frame> {
        let rules = self.engine.table("document_rules")?;
        let frame = || {
            rules.filter(is_left().and(col("signature").is_not_null()))?.select(vec![
                col("document_id").alias("trajectory_id"),
                lit(1u64).alias("num_turns"),
                col("total_chars"),
                col("signature"),
            ])
        };
        Ok(frame())
    }

    /// Each different document with what becomes of it, sorted.
    pub(crate) fn document_verdicts(&self) -> Result<DataFrame> {
        let rules = self.engine.table("document_rules")?.select_columns(&["document_id", "rule"]);
        let rules = made("document_verdicts", rules)?;
        if self.config.near_duplicates.is_none() {
            return made("document_verdicts", rules.sort_by(vec![col("document_id")]));
        }
        let clusters = self.engine.table("document_clusters")?;
        let frame = || {
            let is_other = col("kept").is_not_null().and(col("kept").not_eq(col("document_id")));
            let rule =
                when(has_rule(), col("rule")).when(is_other, text(lit("near_duplicate"))).otherwise(text(lit("")))?;
            rules
                .join(clusters, JoinType::Left, &["document_id"], &["member"], None)?
                .with_column("rule", rule)?
                .select_columns(&["document_id", "rule"])?
                .sort_by(vec![col("document_id")])
        };
        made("document_verdicts", frame())
    }

    /// The documents in the order of id and origin.
    pub(crate) fn sorted_documents(&self) -> Result<DataFrame> {
        let order: Vec<Expr> = [&["document_id"], &ORIGIN[..]].concat().into_iter().map(col).collect();
        made("sorted_documents", self.engine.read("sorted_documents", &self.documents.paths)?.sort_by(order))
    }
}
