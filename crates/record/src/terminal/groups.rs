//! Task groups: which families an episode draws from.
//!
//! A group is a composition of two or three families. The families stand in a ring; pairs are taken at a few fixed
//! distances and triples at two, so every family is in eight pairs and three triples, and a held-out group leaves
//! each of its families in many groups that remain.

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::forms::{FAMILIES, Family};

const PAIR_DISTANCES: [usize; 4] = [1, 5, 8, 11];
const TRIPLE_DISTANCES: [usize; 2] = [3, 10];

/// A composition of families.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Names of the families in alphabetical order, joined by `+`.
    pub(crate) name: String,
    pub(crate) families: Vec<&'static Family>,
}

/// Every group, in alphabetical order.
pub(crate) fn groups() -> Vec<Group> {
    let at = |index: usize| &FAMILIES[index % FAMILIES.len()];
    let mut groups = Vec::new();
    for start in 0..FAMILIES.len() {
        groups.extend(PAIR_DISTANCES.map(|distance| group(vec![at(start), at(start + distance)])));
        let [second, third] = TRIPLE_DISTANCES;
        groups.push(group(vec![at(start), at(start + second), at(start + third)]));
    }
    groups.sort_by(|left, right| left.name.cmp(&right.name));
    groups
}

/// The groups in the order in which a recording with this generator goes round them.
pub(crate) fn shuffled(random: &mut ChaCha8Rng) -> Vec<Group> {
    let mut groups = groups();
    groups.shuffle(random);
    groups
}

/// The sentence that states the task of an episode.
pub(crate) fn task(group: &Group, random: &mut ChaCha8Rng) -> String {
    let phrases: Vec<&str> = group.families.iter().map(|family| family.phrase).collect();
    let (last, first) = phrases.split_last().unwrap_or((&"", &[]));
    let work = format!("{} and {last}", first.join(", "));
    let start =
        ["Set up a few files, then", "Make some files to work on;", "In an empty folder,", "Start from nothing:"];
    let end = ["", " Check the results as you go.", " Look before you change things.", " Take one step at a time."];
    let choice = start.choose(random).unwrap_or(&start[0]);
    format!("{choice} {work}.{}", end[random.random_range(0..end.len())])
}

fn group(mut families: Vec<&'static Family>) -> Group {
    families.sort_by_key(|family| family.name);
    let names: Vec<&str> = families.iter().map(|family| family.name).collect();
    Group { name: names.join("+"), families }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn groups_are_different_and_every_family_is_in_eleven() {
        let groups = groups();
        let names: BTreeSet<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names.len(), groups.len());
        assert_eq!(groups.len(), 120);
        let mut uses = BTreeMap::new();
        for family in groups.iter().flat_map(|group| &group.families) {
            *uses.entry(family.name).or_insert(0) += 1;
        }
        assert_eq!(uses.len(), FAMILIES.len());
        assert!(uses.values().all(|count| *count == 11), "{uses:?}");
    }
}
