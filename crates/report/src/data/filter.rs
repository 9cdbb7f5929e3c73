//! Which trajectories a person wants to see.

use worldloom_schema::{Domain, Pool, Trajectory};

/// What must hold of a trajectory; an empty part lets everything through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its domain is one of these.
    pub domains: Vec<Domain>,
    /// Its source is one of these.
    pub sources: Vec<String>,
    /// Its pool is one of these.
    pub pools: Vec<Pool>,
    /// Somewhere in its system context, actions or observations stands this, in any case.
    pub text: String,
}

impl Filter {
    /// Whether the filter lets a trajectory through.
    pub fn lets_through(&self, trajectory: &Trajectory) -> bool {
        let among = |sources: &[String]| sources.is_empty() || sources.contains(&trajectory.source);
        (self.domains.is_empty() || self.domains.contains(&trajectory.domain))
            && among(&self.sources)
            && (self.pools.is_empty() || trajectory.pool.is_some_and(|pool| self.pools.contains(&pool)))
            && (self.text.is_empty() || self.has_text(trajectory))
    }

    fn has_text(&self, trajectory: &Trajectory) -> bool {
        let wanted = self.text.to_lowercase();
        let has = |text: &str| contains_in_any_case(text, &wanted);
        let system = &trajectory.system;
        let parts = [&system.action_space, &system.initial_state, &system.simulation_instruction];
        has(&system.task_description)
            || parts.into_iter().flatten().any(|text| has(text))
            || trajectory.turns.iter().any(|turn| has(&turn.action) || has(&turn.observation))
    }
}

/// Whether `text` has `wanted`, which is in lower case.
fn contains_in_any_case(text: &str, wanted: &str) -> bool {
    if wanted.is_ascii() {
        let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
        return text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted));
    }
    text.to_lowercase().contains(wanted)
}
