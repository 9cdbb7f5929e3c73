//! Several judges as one.

use serde::{Deserialize, Serialize};

use crate::rubric::{Dimension, Judge, JudgeContext, JudgeOutcome, JudgeQuery, Score, Scores};

/// What the scores of several judges become, dimension by dimension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Combination {
    /// The middle one; of an even number the lower of the two in the middle. One judge that is fooled changes little.
    #[default]
    Median,
    /// The lowest: all must be convinced.
    Lowest,
}

/// Judges that are all asked. The outcome is scored if at least `quorum` of them scored; else it is what the first one
/// without scores said.
pub struct EnsembleJudge {
    judges: Vec<Box<dyn Judge>>,
    combination: Combination,
    quorum: usize,
}

impl EnsembleJudge {
    /// `quorum` is at least one and at most the number of judges.
    pub fn new(judges: Vec<Box<dyn Judge>>, combination: Combination, quorum: usize) -> Self {
        let quorum = quorum.clamp(1, judges.len().max(1));
        Self { judges, combination, quorum }
    }

    fn combine(&self, outcomes: &[JudgeOutcome]) -> JudgeOutcome {
        let scored: Vec<Scores> = outcomes.iter().filter_map(|outcome| outcome.scores()).collect();
        if scored.len() < self.quorum {
            let missing = outcomes.iter().find(|outcome| outcome.scores().is_none());
            return missing.copied().unwrap_or(JudgeOutcome::Unavailable);
        }
        JudgeOutcome::Scored(Scores::of(|dimension| self.level(&scored, dimension)))
    }

    fn level(&self, scored: &[Scores], dimension: Dimension) -> Score {
        let mut levels: Vec<Score> = scored.iter().map(|scores| scores.get(dimension)).collect();
        levels.sort_unstable();
        match self.combination {
            Combination::Median => levels[(levels.len() - 1) / 2],
            Combination::Lowest => levels[0],
        }
    }
}

impl Judge for EnsembleJudge {
    fn score(&self, context: &JudgeContext<'_>, truth: &str, prediction: &str) -> JudgeOutcome {
        let outcomes: Vec<JudgeOutcome> =
            self.judges.iter().map(|judge| judge.score(context, truth, prediction)).collect();
        self.combine(&outcomes)
    }

    fn score_all(&self, queries: &[JudgeQuery<'_>]) -> Vec<JudgeOutcome> {
        let by_judge: Vec<Vec<JudgeOutcome>> = self.judges.iter().map(|judge| judge.score_all(queries)).collect();
        let of = |at: usize| by_judge.iter().map(|outcomes| outcomes[at]).collect::<Vec<_>>();
        (0..queries.len()).map(|at| self.combine(&of(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use worldloom_schema::Domain;

    use super::*;

    struct Says(JudgeOutcome);

    impl Judge for Says {
        fn score(&self, _: &JudgeContext<'_>, _: &str, _: &str) -> JudgeOutcome {
            self.0
        }
    }

    fn scored(levels: [u8; 5]) -> JudgeOutcome {
        JudgeOutcome::Scored(Scores::try_from(levels).unwrap())
    }

    fn ensemble(outcomes: &[JudgeOutcome], combination: Combination, quorum: usize) -> JudgeOutcome {
        let judges = outcomes.iter().map(|&outcome| Box::new(Says(outcome)) as Box<dyn Judge>).collect();
        let judge = EnsembleJudge::new(judges, combination, quorum);
        let context = JudgeContext { domain: Domain::Web, initial_state: None, history: &[], action: "click" };
        let query = JudgeQuery { context, truth: "a", prediction: "b" };
        let one = judge.score(&context, "a", "b");
        assert_eq!(judge.score_all(&[query, query]), [one, one]);
        one
    }

    #[test]
    fn the_median_ignores_one_fooled_judge_and_the_lowest_needs_all() {
        let outcomes = [scored([5, 5, 5, 5, 5]), scored([2, 3, 1, 4, 2]), scored([1, 3, 2, 4, 3])];
        assert_eq!(ensemble(&outcomes, Combination::Median, 2), scored([2, 3, 2, 4, 3]));
        assert_eq!(ensemble(&outcomes, Combination::Lowest, 2), scored([1, 3, 1, 4, 2]));
        assert_eq!(ensemble(&outcomes[..2], Combination::Median, 1), scored([2, 3, 1, 4, 2]));
    }

    #[test]
    fn below_the_quorum_there_is_no_score_and_the_reason_stays() {
        let outcomes = [JudgeOutcome::Refused, scored([5; 5]), JudgeOutcome::Unavailable];
        assert_eq!(ensemble(&outcomes, Combination::Median, 1), scored([5; 5]));
        assert_eq!(ensemble(&outcomes, Combination::Median, 2), JudgeOutcome::Refused);
        assert_eq!(ensemble(&[], Combination::Median, 0), JudgeOutcome::Unavailable);
    }
}
