//! Rollouts: prompts, completions and scores on token ids, and the two traits behind which text lives.

use std::path::Path;

use worldloom_model::Decoder;
use worldloom_model::generate::Completion;
use worldloom_schema::RolloutOutcome;

use super::config::RlConfig;

/// Any error of a sampler or scorer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a completion starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlPrompt {
    /// Name for messages and dumps.
    pub id: String,
    /// The tokens, up to and including the opening of the answer.
    pub tokens: Vec<u32>,
    /// What it is grouped by in metrics and dumps, such as its domain; empty for nothing.
    pub label: String,
    /// The true answer with its stop token, where its likelihood is trained too (`truth_nll`).
    pub truth: Option<Vec<u32>>,
}

/// What the scorer says of a completion.
#[derive(Debug, Clone, PartialEq)]
pub enum Score {
    /// It was scored.
    Scored {
        /// The reward.
        reward: f64,
        /// What it was made of, by name.
        parts: Vec<(String, f64)>,
    },
    /// The policy answered something that cannot be scored: reward 0, and it stays in the statistics.
    PolicyFault {
        /// Kind of fault, such as `no closed tag`.
        reason: String,
        /// Scores that could be given all the same.
        parts: Vec<(String, f64)>,
    },
    /// The scorer failed: nobody knows, and the sample leaves the statistics.
    Unavailable {
        /// Kind of failure, such as `unparseable`.
        reason: String,
    },
}

impl Score {
    /// The reward that enters the statistics.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Score::Scored { reward, .. } => Some(*reward),
            Score::PolicyFault { .. } => Some(0.0),
            Score::Unavailable { .. } => None,
        }
    }

    /// Named parts.
    pub fn parts(&self) -> &[(String, f64)] {
        match self {
            Score::Scored { parts, .. } | Score::PolicyFault { parts, .. } => parts,
            Score::Unavailable { .. } => &[],
        }
    }

    /// Why there is no reward of its own: the fault or the scorer's failure.
    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Score::Scored { .. } => None,
            Score::PolicyFault { reason, .. } | Score::Unavailable { reason } => Some(reason),
        }
    }

    pub(super) fn outcome(&self) -> RolloutOutcome {
        match self {
            Score::Scored { .. } => RolloutOutcome::Scored,
            Score::PolicyFault { .. } => RolloutOutcome::PolicyFault,
            Score::Unavailable { .. } => RolloutOutcome::Unavailable,
        }
    }
}

/// What a batch of completions is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the batch.
    pub seed: u64,
    /// Steps that made the weights: under the same number they are the same.
    pub version: u64,
    /// Whether older weights will do. A measurement wants these.
    pub may_be_old: bool,
}

/// Samples completions from the policy.
pub trait Sampler: Send {
    /// `group_size` completions of each prompt, in the order of the prompts. The random stream of a completion is a
    /// function of the draw's seed, the prompt's place in the list and the number of the completion, and of nothing else.
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure>;

    /// Writes into a checkpoint's folder what later answers depend on beside their arguments, after so many steps.
    /// Default: nothing.
    fn save(&self, _version: u64, _folder: &Path) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes it up again from the checkpoint that a run goes on from.
    fn resume(&mut self, _folder: &Path) -> Result<(), Failure> {
        Ok(())
    }

    /// Batches of rollouts that the weights of the last answer were older than those it was given. Default: 0.
    fn staleness(&self) -> u64 {
        0
    }
}

/// A prompt's completions, to be scored.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Number of the prompt in the list the run was given.
    pub prompt: usize,
    /// Its completions.
    pub completions: &'a [Completion],
}

/// Scores completions.
pub trait Scorer: Send {
    /// A score for each completion of each group, in their order.
    fn score(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<Score>>, Failure>;

    /// The completion as text for the dump, where the scorer knows it.
    fn text(&self, _tokens: &[u32]) -> Option<String> {
        None
    }

    /// The thinking in a completion, for the dump, where there is some.
    fn thinking(&self, _tokens: &[u32]) -> Option<String> {
        None
    }

    /// What it has to say about all it scored since it was last asked.
    fn take_notes(&mut self) -> Notes {
        Notes::default()
    }
}

/// A scorer's figures of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// Figures by name.
    pub figures: Vec<(String, f64)>,
    /// Alarms by name.
    pub alarms: Vec<String>,
}

/// Who makes and who judges completions.
pub struct Partners<'a> {
    /// Makes them.
    pub sampler: &'a mut dyn Sampler,
    /// Judges them.
    pub scorer: &'a mut dyn Scorer,
}

/// One completion with everything that is known about it.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// Number of the prompt.
    pub(super) prompt: usize,
    /// Number inside the group.
    pub(super) number: usize,
    /// Prompt and completion.
    pub(super) tokens: Vec<u32>,
    pub(super) completion: Completion,
    pub(super) score: Score,
    pub(super) advantage: Option<f64>,
    /// The trainer's log-probs of the completion before the first update.
    pub(super) old_log_probs: Vec<f64>,
    /// The reference's, where there is one.
    pub(super) reference_log_probs: Option<Vec<f64>>,
    /// Cut by length and left out of the loss; it stays in its group's statistics.
    pub(super) is_masked: bool,
    pub(super) said: Said,
}

/// A completion as text, where the scorer knows it, and the thinking in it: for the dump.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Said {
    pub(super) text: Option<String>,
    pub(super) thinking: Option<String>,
}

impl Sample {
    /// The true answer of a prompt as one more branch: it has no reward and stands outside the statistics.
    pub(super) fn of_truth(number: usize, prompt: &RlPrompt) -> Option<Self> {
        let truth = prompt.truth.clone().filter(|truth| !truth.is_empty())?;
        Some(Self {
            prompt: number,
            number: usize::MAX,
            tokens: [prompt.tokens.as_slice(), &truth].concat(),
            completion: Completion { tokens: truth, log_probs: Vec::new(), stopped: true },
            score: Score::Unavailable { reason: String::new() },
            advantage: None,
            old_log_probs: Vec::new(),
            reference_log_probs: None,
            is_masked: false,
            said: Said::default(),
        })
    }

    /// Tokens of the prompt.
    pub(super) fn prompt_length(&self) -> usize {
        self.tokens.len() - self.completion.tokens.len()
    }

    /// Whether it enters the denominators.
    pub(super) fn counts(&self) -> bool {
        self.advantage.is_some() && !self.completion.tokens.is_empty() && !self.is_masked
    }

    /// Whether it can push anything: a divergence or an entropy (`always`) does so without an advantage.
    pub(super) fn is_active(&self, always: bool) -> bool {
        self.counts() && (always || self.advantage.is_some_and(|advantage| advantage != 0.0))
    }
}

/// The groups of one step.
#[derive(Debug, Clone)]
pub(super) struct Rollouts {
    pub(super) groups: Vec<Vec<Sample>>,
    pub(super) zero_variance_groups: usize,
    pub(super) dropped_groups: usize,
    /// Groups that were drawn and put aside because nothing could be learnt from them.
    pub(super) refilled_groups: usize,
    /// Prompts drawn from the order.
    pub(super) drawn: u64,
    /// Those of them that were passed over.
    pub(super) rested: u64,
    /// Batches of rollouts between the weights that sampled and those that the step starts from; none where they are
    /// replayed, and nobody knows.
    pub(super) staleness: Option<u64>,
    /// What the scorer says of them as a whole.
    pub(super) notes: Notes,
}

impl Rollouts {
    /// Whether the scorer failed on no more completions than are allowed.
    pub(super) fn is_available(&self, config: &RlConfig) -> bool {
        let samples = || self.groups.iter().flatten();
        let unavailable = samples().filter(|sample| sample.score.reward().is_none()).count();
        config.allows_unavailable(unavailable as u64, samples().count() as u64)
    }
}
