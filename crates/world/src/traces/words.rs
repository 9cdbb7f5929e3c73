//! The words of ours that a model judges with: they decide which traces are kept, so they are part of a run's key.

use std::sync::Mutex;

use worldloom_judge::asked::{JudgePrompts, ModelJudge, Pair, Respondent, Said, compare};
use worldloom_judge::endpoint::Message;
use worldloom_judge::{Judge, JudgeContext};
use worldloom_schema::{Domain, hash_json};

/// Hash of what a model is asked, as judge and when it compares, about one small turn of each domain.
pub fn words_hash() -> String {
    let listener = std::sync::Arc::new(Listener::default());
    let judge = ModelJudge::new(listener.clone(), JudgePrompts::bundled(), 1);
    for domain in Domain::ALL {
        let context = JudgeContext { domain, initial_state: Some("s"), history: &[("a", "o")], action: "a" };
        judge.score(&context, "t", "p");
        compare(listener.as_ref(), &[Pair { context, truth: "t", first: "p", second: "q" }]);
    }
    let heard = listener.heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    hash_json(&serde_json::json!(*heard))
}

/// Hears questions and says nothing.
#[derive(Default)]
struct Listener {
    heard: Mutex<Vec<Vec<Message>>>,
}

impl Respondent for Listener {
    fn respond(&self, conversations: &[Vec<Message>], _draw: u32) -> Vec<Said> {
        let mut heard = self.heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        heard.extend_from_slice(conversations);
        vec![Said::Nothing; conversations.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_domain_is_asked_about_and_the_hash_is_the_same_each_time() {
        assert_eq!(words_hash(), words_hash());
        let listener = std::sync::Arc::new(Listener::default());
        let judge = ModelJudge::new(listener.clone(), JudgePrompts::bundled(), 1);
        let context = JudgeContext { domain: Domain::Web, initial_state: None, history: &[], action: "a" };
        judge.score(&context, "t", "p");
        let heard = listener.heard.lock().unwrap();
        assert!(heard.len() == 1 && heard[0].len() == 2, "system and question: {heard:?}");
    }
}
