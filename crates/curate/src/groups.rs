//! Task groups to pools. A group is never split.
//!
//! Groups with a trajectory of a held-out source are for evaluation, and so are those that the config lists; other groups
//! may be listed for a pool. The rest are taken in the order of a seeded hash of their names; each goes to the pool that
//! lacks most trajectories (share × all − what it has). So the shares hold to within the size of a group, and the result
//! depends on the names, sizes and the seed only.
//!
//! There may be as many groups as trajectories, so that no name is held: a group is a number in the order of names, and
//! takes 17 bytes.

use std::collections::BTreeMap;

use worldloom_schema::Pool;

use crate::config::CurateConfig;
use crate::error::{Error, Result};
use crate::functions::uniform;

/// A group's size; a row of the plan `group_sizes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group<'n> {
    pub(crate) name: &'n str,
    /// Trajectories that no rule dropped.
    pub(crate) left: u64,
    /// Trajectories of held-out sources.
    pub(crate) held: u64,
}

/// Collects the groups, which come in the order of their names, and assigns them.
#[derive(Debug)]
pub(crate) struct Groups<'c> {
    config: &'c CurateConfig,
    listed: BTreeMap<&'c str, Pool>,
    /// The listed groups that there are, and whether a held-out source has them.
    found: BTreeMap<&'c str, bool>,
    pools: Vec<Option<Pool>>,
    open: Vec<Open>,
    left: u64,
    filled: Vec<Pool>,
}

/// A group whose pool is drawn.
#[derive(Debug, Clone, Copy)]
struct Open {
    draw: f64,
    number: u32,
    left: u32,
}

impl<'c> Groups<'c> {
    /// `most`: groups that there may be.
    pub(crate) fn new(config: &'c CurateConfig, most: usize) -> Self {
        let listed = lists(config).map(|(_, name, pool)| (name, pool)).collect();
        let (pools, open) = (Vec::with_capacity(most), Vec::with_capacity(most));
        Self { config, listed, found: BTreeMap::new(), pools, open, left: 0, filled: Vec::new() }
    }

    /// Adds the next group.
    pub(crate) fn add(&mut self, group: Group<'_>) {
        let (number, is_held) = (self.pools.len() as u32, group.held > 0);
        let listed = self.listed.get_key_value(group.name);
        if let Some((name, _)) = listed {
            self.found.insert(name, is_held);
        }
        let pool = if is_held { Some(Pool::Eval) } else { listed.map(|(_, pool)| *pool) };
        if pool.is_none() {
            let draw = uniform(self.config.seed, "pool", group.name, 0);
            self.open.push(Open { draw, number, left: u32::try_from(group.left).unwrap_or(u32::MAX) });
        }
        self.pools.push(pool);
        self.left += group.left;
        if group.left > 0 {
            self.filled.extend(pool.filter(|pool| !self.filled.contains(pool)));
        }
    }

    /// Trajectories that no rule dropped.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Each group's pool, in the order of names; a pool that has a share, or a list, and gets no trajectory is an error.
    /// `nearest` tells the names most like one that no group has.
    pub(crate) fn assign(mut self, nearest: impl Fn(&str) -> Result<String>) -> Result<Vec<Option<Pool>>> {
        self.check_lists(nearest)?;
        // Numbers are in the order of names, which decide where draws are equal.
        self.open.sort_unstable_by(|one, other| one.draw.total_cmp(&other.draw).then(one.number.cmp(&other.number)));
        let total: u64 = self.open.iter().map(|group| u64::from(group.left)).sum();
        let mut lacks = self.config.shares().map(|(pool, share)| (pool, share * total as f64));
        for group in &self.open {
            let shared = lacks.iter_mut().filter(|(pool, _)| has_share(*pool, self.config));
            let Some((pool, lack)) = shared.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
                continue;
            };
            *lack -= f64::from(group.left);
            self.pools[group.number as usize] = Some(*pool);
            if group.left > 0 && !self.filled.contains(pool) {
                self.filled.push(*pool);
            }
        }
        self.check_filled()?;
        Ok(self.pools)
    }

    fn check_lists(&self, nearest: impl Fn(&str) -> Result<String>) -> Result<()> {
        for (list, name, pool) in lists(self.config) {
            let Some(is_held) = self.found.get(name) else {
                return Err(Error::UnknownGroup { list: list.into(), group: name.into(), nearest: nearest(name)? });
            };
            if *is_held && pool != Pool::Eval {
                let expected = "eval: a held-out source has this group";
                return Err(Error::config(&format!("group_pools.{name}"), pool, expected));
            }
        }
        Ok(())
    }

    fn check_filled(&self) -> Result<()> {
        let wanted = |pool: &Pool| is_wanted(*pool, self.config);
        let pools = Pool::ALL.iter().filter(|pool| wanted(pool)).count() as u64;
        match Pool::ALL.into_iter().find(|pool| wanted(pool) && !self.filled.contains(pool)) {
            Some(pool) => Err(Error::EmptyPool { pool, groups: self.pools.len() as u64, pools }),
            None => Ok(()),
        }
    }
}

/// The groups that the config names: by which list, and for which pool. Of two pools the last counts.
fn lists(config: &CurateConfig) -> impl Iterator<Item = (&'static str, &str, Pool)> {
    let evaluated = config.eval_groups.iter().map(|name| ("eval_groups", name.as_str(), Pool::Eval));
    evaluated.chain(config.group_pools.iter().map(|(name, pool)| ("group_pools", name.as_str(), *pool)))
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

/// The names most like one.
pub(crate) struct Nearest<'n> {
    name: &'n str,
    best: Vec<(f64, String)>,
}

impl<'n> Nearest<'n> {
    /// How many are told.
    const MOST: usize = 3;

    pub(crate) fn new(name: &'n str) -> Self {
        Self { name, best: Vec::new() }
    }

    /// Compares a group's name.
    pub(crate) fn add(&mut self, group: &str) {
        let score = strsim::jaro_winkler(self.name, group);
        if self.best.len() == Self::MOST && self.best.last().is_some_and(|worst| score < worst.0) {
            return;
        }
        self.best.push((score, group.into()));
        self.best.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        self.best.truncate(Self::MOST);
    }

    /// The best, in words.
    pub(crate) fn told(&self) -> String {
        self.best.iter().map(|(_, name)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}
