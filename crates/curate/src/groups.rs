//! Task groups to pools. A group is never split.
//!
//! Groups with a trajectory of a held-out source are for evaluation, and so are those that the config lists; other groups
//! may be listed for a pool. The rest are taken in the order of a seeded hash of their names; each goes to the pool that
//! lacks most trajectories (share × all − what it has). So the shares hold to within the size of a group, and the result
//! depends on the names, sizes and the seed only.

use std::collections::BTreeMap;

use worldloom_schema::Pool;

use crate::config::CurateConfig;
use crate::error::{Error, Result};
use crate::functions::uniform;

/// Each group's pool.
pub(crate) type Assignment = BTreeMap<String, Pool>;

/// A group's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Trajectories that no rule dropped.
    pub(crate) left: u64,
    /// Trajectories of held-out sources.
    pub(crate) held: u64,
}

/// Assigns every group; a pool that has a share, or a list, and gets no trajectory is an error.
pub(crate) fn assign(groups: &[Group], config: &CurateConfig) -> Result<Assignment> {
    let mut assignment = Assignment::new();
    let listed = config.group_pools.iter().map(|(name, pool)| ("group_pools", name, *pool));
    for (list, name, pool) in config.eval_groups.iter().map(|name| ("eval_groups", name, Pool::Eval)).chain(listed) {
        let Some(group) = groups.iter().find(|group| group.name == *name) else {
            return Err(Error::UnknownGroup { list: list.into(), group: name.clone(), nearest: nearest(name, groups) });
        };
        if group.held > 0 && pool != Pool::Eval {
            return Err(Error::config(&format!("group_pools.{name}"), pool, "eval: a held-out source has this group"));
        }
        assignment.insert(name.clone(), pool);
    }
    let held = groups.iter().filter(|group| group.held > 0);
    assignment.extend(held.map(|group| (group.name.clone(), Pool::Eval)));
    let mut open: Vec<&Group> = groups.iter().filter(|group| !assignment.contains_key(&group.name)).collect();
    open.sort_by(|one, other| {
        draw(config.seed, one).total_cmp(&draw(config.seed, other)).then(one.name.cmp(&other.name))
    });
    let total: u64 = open.iter().map(|group| group.left).sum();
    let mut lacks = config.shares().map(|(pool, share)| (pool, share * total as f64));
    for group in open {
        let shared = lacks.iter_mut().filter(|(pool, _)| has_share(*pool, config));
        let Some((pool, lack)) = shared.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
            continue;
        };
        *lack -= group.left as f64;
        assignment.insert(group.name.clone(), *pool);
    }
    check_filled(groups, &assignment, config)?;
    Ok(assignment)
}

fn draw(seed: u64, group: &Group) -> f64 {
    uniform(seed, "pool", &group.name, 0)
}

fn has_share(pool: Pool, config: &CurateConfig) -> bool {
    config.shares().iter().any(|(known, share)| *known == pool && *share > 0.0)
}

/// Whether the config says that a pool should have trajectories.
pub(crate) fn is_wanted(pool: Pool, config: &CurateConfig) -> bool {
    let is_held_out = !config.eval_groups.is_empty() || !config.holdout_sources.is_empty();
    has_share(pool, config)
        || config.group_pools.values().any(|listed| *listed == pool)
        || (pool == Pool::Eval && is_held_out)
}

fn check_filled(groups: &[Group], assignment: &Assignment, config: &CurateConfig) -> Result<()> {
    let wanted = |pool: &Pool| is_wanted(*pool, config);
    let pools = Pool::ALL.iter().filter(|pool| wanted(pool)).count() as u64;
    let filled = |pool: Pool| groups.iter().any(|group| group.left > 0 && assignment.get(&group.name) == Some(&pool));
    match Pool::ALL.into_iter().find(|pool| wanted(pool) && !filled(*pool)) {
        Some(pool) => Err(Error::EmptyPool { pool, groups: groups.len() as u64, pools }),
        None => Ok(()),
    }
}

/// The three names most like this one.
fn nearest(name: &str, groups: &[Group]) -> String {
    let mut scored: Vec<(f64, &str)> =
        groups.iter().map(|group| (strsim::jaro_winkler(name, &group.name), group.name.as_str())).collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    scored.iter().take(3).map(|(_, name)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
