//! Five scores for a prediction, given by a judge that sees the truth beside it.

mod bash;
mod builtin;
mod consistency;
mod factuality;
mod format;
mod headline;
mod parts;
mod prose;
mod quality;
mod realism;
mod results;
mod structure;
mod values;
mod words;

pub use builtin::BuiltinJudge;
pub(crate) use consistency::known_texts;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worldloom_schema::{Domain, Trajectory, Turn};

use crate::error::{Error, Result};

/// What is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Same kind and shape of output.
    Format,
    /// The content that follows from the history, reproduced.
    Factuality,
    /// Agreement with the directory, files and values of earlier turns.
    Consistency,
    /// Looks as the environment itself would print it.
    Realism,
    /// Nothing missing, nothing invented, right length.
    Quality,
}

impl Dimension {
    /// All five, in the order of the recipe.
    pub const ALL: [Dimension; 5] =
        [Dimension::Format, Dimension::Factuality, Dimension::Consistency, Dimension::Realism, Dimension::Quality];

    /// The name as it is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            Dimension::Format => "format",
            Dimension::Factuality => "factuality",
            Dimension::Consistency => "consistency",
            Dimension::Realism => "realism",
            Dimension::Quality => "quality",
        }
    }
}

/// A whole number from 1 (no value) to 5 (fully meets). Anything else cannot be held, and is refused, not clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Score(u8);

impl Score {
    /// The lowest.
    pub const MIN: Score = Score(1);
    /// The highest.
    pub const MAX: Score = Score(5);

    /// The score, if it is one.
    pub fn new(score: u8) -> Result<Self> {
        if (1..=5).contains(&score) { Ok(Score(score)) } else { Err(Error::ScoreOutOfRange { found: score }) }
    }

    /// The score as a number to calculate with.
    pub fn value(self) -> f64 {
        f64::from(self.0)
    }

    /// The score of a share from 0 to 1: 5 from the first threshold on, 4 from the second, and so on; else 1.
    fn graded(share: f64, thresholds: [f64; 4]) -> Score {
        Score(1 + thresholds.iter().filter(|threshold| share >= **threshold).count() as u8)
    }

    /// `points` lower, but never below 1.
    fn lowered(self, points: u8) -> Score {
        Score(self.0.saturating_sub(points).max(1))
    }
}

impl TryFrom<u8> for Score {
    type Error = Error;

    fn try_from(score: u8) -> Result<Self> {
        Score::new(score)
    }
}

impl From<Score> for u8 {
    fn from(score: Score) -> u8 {
        score.0
    }
}

/// The five scores of one prediction.
///
/// ```
/// use worldloom_judge::Scores;
/// let scores = Scores::try_from([5, 3, 4, 5, 3])?;
/// assert_eq!((scores.mean(), scores.rubric_0_100()), (4.0, 75.0));
/// # Ok::<(), worldloom_judge::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scores {
    /// [`Dimension::Format`].
    pub format: Score,
    /// [`Dimension::Factuality`].
    pub factuality: Score,
    /// [`Dimension::Consistency`].
    pub consistency: Score,
    /// [`Dimension::Realism`].
    pub realism: Score,
    /// [`Dimension::Quality`].
    pub quality: Score,
}

impl Scores {
    /// Five in everything.
    pub const FULL: Scores = Scores {
        format: Score::MAX,
        factuality: Score::MAX,
        consistency: Score::MAX,
        realism: Score::MAX,
        quality: Score::MAX,
    };

    /// One in everything.
    pub const LEAST: Scores = Scores {
        format: Score::MIN,
        factuality: Score::MIN,
        consistency: Score::MIN,
        realism: Score::MIN,
        quality: Score::MIN,
    };

    /// Each dimension by a rule of its own.
    pub(crate) fn of(level: impl Fn(Dimension) -> Score) -> Scores {
        Scores {
            format: level(Dimension::Format),
            factuality: level(Dimension::Factuality),
            consistency: level(Dimension::Consistency),
            realism: level(Dimension::Realism),
            quality: level(Dimension::Quality),
        }
    }

    /// One of the five.
    pub fn get(&self, dimension: Dimension) -> Score {
        match dimension {
            Dimension::Format => self.format,
            Dimension::Factuality => self.factuality,
            Dimension::Consistency => self.consistency,
            Dimension::Realism => self.realism,
            Dimension::Quality => self.quality,
        }
    }

    /// Mean of the five, from 1 to 5.
    pub fn mean(&self) -> f64 {
        Dimension::ALL.iter().map(|dimension| self.get(*dimension).value()).sum::<f64>() / 5.0
    }

    /// The mean on the scale of the published tables, `(mean − 1) / 4 · 100`.
    pub fn rubric_0_100(&self) -> f64 {
        (self.mean() - 1.0) / 4.0 * 100.0
    }
}

impl TryFrom<[u8; 5]> for Scores {
    type Error = Error;

    /// In the order of [`Dimension::ALL`].
    fn try_from([format, factuality, consistency, realism, quality]: [u8; 5]) -> Result<Self> {
        Ok(Scores {
            format: Score::new(format)?,
            factuality: Score::new(factuality)?,
            consistency: Score::new(consistency)?,
            realism: Score::new(realism)?,
            quality: Score::new(quality)?,
        })
    }
}

/// What a judge knows beside the two texts.
#[derive(Debug, Clone, Copy)]
pub struct JudgeContext<'a> {
    /// Kind of environment.
    pub domain: Domain,
    /// The state before the first action, where known.
    pub initial_state: Option<&'a str>,
    /// Earlier turns: what was done and what was really answered.
    pub history: &'a [(&'a str, &'a str)],
    /// The action whose observation is predicted.
    pub action: &'a str,
}

impl<'a> JudgeContext<'a> {
    /// Of one turn (from 0); `history` is what [`told`] makes of the turns before it.
    ///
    /// # Panics
    ///
    /// If the trajectory has no such turn.
    pub fn of(trajectory: &'a Trajectory, turn: usize, history: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            domain: trajectory.domain,
            initial_state: trajectory.system.initial_state.as_deref(),
            history,
            action: &trajectory.turns[turn].action,
        }
    }
}

/// Action and observation of each turn.
pub fn told(turns: &[Turn]) -> Vec<(&str, &str)> {
    turns.iter().map(|turn| (turn.action.as_str(), turn.observation.as_str())).collect()
}

/// What came of asking a judge. Only the first says something about the prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgeOutcome {
    /// Five scores.
    Scored(Scores),
    /// An answer without five scores in it.
    Unparseable,
    /// The judge would not judge.
    Refused,
    /// The judge did not answer.
    Unavailable,
    /// Its server would not take the question.
    Rejected,
    /// Its answer could not be kept.
    NotKept,
}

impl JudgeOutcome {
    /// The scores, if there are any.
    pub fn scores(&self) -> Option<Scores> {
        match self {
            JudgeOutcome::Scored(scores) => Some(*scores),
            _ => None,
        }
    }
}

/// A prediction to be scored.
#[derive(Debug, Clone, Copy)]
pub struct JudgeQuery<'a> {
    /// What is known beside the two texts.
    pub context: JudgeContext<'a>,
    /// What the environment really answered.
    pub truth: &'a str,
    /// The extracted prediction.
    pub prediction: &'a str,
}

/// Scores a prediction against the truth. It is given the extracted prediction only, never the thinking.
pub trait Judge: Send + Sync {
    /// Scores one prediction.
    fn score(&self, context: &JudgeContext<'_>, truth: &str, prediction: &str) -> JudgeOutcome;

    /// Scores many, in their order. Judges that wait for others ask for all of them at once.
    fn score_all(&self, queries: &[JudgeQuery<'_>]) -> Vec<JudgeOutcome> {
        queries.par_iter().map(|query| self.score(&query.context, query.truth, query.prediction)).collect()
    }
}

/// Whether a prediction praises itself in words the environment never used.
pub(crate) fn has_praise(context: &JudgeContext<'_>, truth: &str, prediction: &str) -> bool {
    prose::ProseFilter::new(context, truth).has_praise(prediction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_holds_1_to_5_and_nothing_else() {
        for score in 0..=255 {
            assert_eq!(Score::new(score).is_ok(), (1..=5).contains(&score));
            assert_eq!(serde_json::from_str::<Score>(&score.to_string()).is_ok(), (1..=5).contains(&score));
        }
        for not_a_score in ["-1", "4.5", "\"5\"", "true", "null"] {
            assert!(serde_json::from_str::<Score>(not_a_score).is_err());
        }
        assert!(Scores::try_from([5, 5, 6, 5, 5]).is_err());
    }

    #[test]
    fn a_reply_with_a_missing_or_a_further_dimension_is_no_score() {
        let reply = |text: &str| serde_json::from_str::<Scores>(text);
        assert!(reply(r#"{"format":5,"factuality":4,"consistency":3,"realism":2,"quality":1}"#).is_ok());
        assert!(reply(r#"{"format":5,"factuality":4,"consistency":3,"realism":2}"#).is_err());
        assert!(reply(r#"{"format":5,"factuality":4,"consistency":3,"realism":2,"quality":1,"charm":5}"#).is_err());
    }

    #[test]
    fn the_published_scale_runs_from_0_to_100() {
        assert_eq!(Scores::FULL.rubric_0_100(), 100.0);
        assert_eq!(Scores::try_from([1; 5]).unwrap().rubric_0_100(), 0.0);
        assert_eq!(Scores::try_from([3; 5]).unwrap().rubric_0_100(), 50.0);
    }

    #[test]
    fn a_share_is_graded_by_the_thresholds_it_reaches() {
        let thresholds = [0.9, 0.7, 0.5, 0.3];
        let grades = [1.0, 0.9, 0.89, 0.7, 0.5, 0.3, 0.29, 0.0].map(|share| u8::from(Score::graded(share, thresholds)));
        assert_eq!(grades, [5, 5, 4, 4, 3, 2, 1, 1]);
        assert_eq!([Score(5).lowered(2), Score(2).lowered(3)], [Score(3), Score(1)]);
    }
}
