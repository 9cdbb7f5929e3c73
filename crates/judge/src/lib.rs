//! Scores a predicted observation: extraction, rubric, rule, reward.
