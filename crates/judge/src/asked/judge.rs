//! A model as a judge.

use std::collections::HashMap;
use std::sync::Arc;

use crate::endpoint::Message;
use crate::rubric::{Judge, JudgeContext, JudgeOutcome, JudgeQuery};

use super::prompts::JudgePrompts;
use super::reading::{Reading, read_scores};

/// What a model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// This.
    Text(String),
    /// That it would not answer: a refusal or filter of its provider.
    Refused,
    /// Nothing: it could not be reached, or its answer was empty or cut.
    Nothing,
    /// Its server would not take the question: a wrong key, an unknown model, a prompt that is too long.
    Rejected,
    /// Something that could not be put into the cache or the log.
    NotKept,
}

/// Carries conversations to a model.
pub trait Respondent: Send + Sync {
    /// An answer to each, in their order. Another `draw` may be answered otherwise.
    fn respond(&self, conversations: &[Vec<Message>], draw: u32) -> Vec<Said>;
}

/// Asks a model for scores, and again where there is nothing to read, `tries` times in all.
pub struct ModelJudge {
    respondent: Arc<dyn Respondent>,
    prompts: JudgePrompts,
    tries: u32,
}

impl ModelJudge {
    /// `tries` of 0 count as one.
    pub fn new(respondent: Arc<dyn Respondent>, prompts: JudgePrompts, tries: u32) -> Self {
        Self { respondent, prompts, tries: tries.max(1) }
    }
}

impl Judge for ModelJudge {
    fn score(&self, context: &JudgeContext<'_>, truth: &str, prediction: &str) -> JudgeOutcome {
        let query = JudgeQuery { context: *context, truth, prediction };
        self.score_all(&[query]).pop().unwrap_or(JudgeOutcome::Unavailable)
    }

    /// Equal questions are asked once: completions of a group are often equal.
    fn score_all(&self, queries: &[JudgeQuery<'_>]) -> Vec<JudgeOutcome> {
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut conversations: Vec<Vec<Message>> = Vec::new();
        let places: Vec<usize> = queries
            .iter()
            .map(|query| {
                let conversation = self.prompts.conversation(query);
                let key = conversation.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\0");
                *numbers.entry(key).or_insert_with(|| {
                    conversations.push(conversation);
                    conversations.len() - 1
                })
            })
            .collect();
        let outcomes = self.ask(&conversations);
        places.into_iter().map(|place| outcomes[place]).collect()
    }
}

impl ModelJudge {
    fn ask(&self, conversations: &[Vec<Message>]) -> Vec<JudgeOutcome> {
        let mut outcomes = vec![JudgeOutcome::Unavailable; conversations.len()];
        let mut open: Vec<usize> = (0..conversations.len()).collect();
        for draw in 0..self.tries {
            let asked: Vec<Vec<Message>> = open.iter().map(|&number| conversations[number].clone()).collect();
            let said = self.respondent.respond(&asked, draw);
            for (&number, said) in open.iter().zip(said) {
                outcomes[number] = outcome_of(said);
            }
            open.retain(|&number| !matches!(outcomes[number], JudgeOutcome::Scored(_)));
            if open.is_empty() {
                break;
            }
        }
        outcomes
    }
}

fn outcome_of(said: Said) -> JudgeOutcome {
    match said {
        Said::Nothing => JudgeOutcome::Unavailable,
        Said::Rejected => JudgeOutcome::Rejected,
        Said::NotKept => JudgeOutcome::NotKept,
        Said::Refused => JudgeOutcome::Refused,
        Said::Text(text) => match read_scores(&text) {
            Reading::Scored(scores) => JudgeOutcome::Scored(scores),
            Reading::Refused => JudgeOutcome::Refused,
            Reading::Unparseable(why) => {
                tracing::debug!("a judge's reply cannot be read: {why}");
                JudgeOutcome::Unparseable
            }
        },
    }
}
