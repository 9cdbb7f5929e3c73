//! Near duplicates that meet over others are one cluster; the client finds them between two plans.
//!
//! Of a cluster the trajectory with the most turns is kept, of these the one with the most characters, of these the one
//! with the smallest id. The result depends on the set of pairs only, not on their order.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::words::of_name;

/// A member with what decides which of a cluster is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'i> {
    /// The id of the trajectory or document.
    pub id: &'i str,
    /// Its turns.
    pub turns: u64,
    /// Its characters.
    pub chars: u64,
}

/// A member of a cluster and the one that is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed<'c> {
    /// The member.
    pub id: &'c str,
    /// The one that is kept; the member itself, if it is.
    pub kept: &'c str,
}

/// Disjoint sets with union by size and path halving (Tarjan).
#[derive(Debug, Default)]
pub struct UnionFind {
    parents: Vec<u32>,
    sizes: Vec<u32>,
}

impl UnionFind {
    /// Adds a set of one and gives its number.
    pub fn add(&mut self) -> u32 {
        let number = self.parents.len() as u32;
        self.parents.push(number);
        self.sizes.push(1);
        number
    }

    /// The number that stands for the set of this one.
    pub fn find(&mut self, number: u32) -> u32 {
        let mut at = number;
        while self.parents[at as usize] != at {
            let above = self.parents[self.parents[at as usize] as usize];
            self.parents[at as usize] = above;
            at = above;
        }
        at
    }

    /// Makes two sets one.
    pub fn join(&mut self, first: u32, second: u32) {
        let (first, second) = (self.find(first), self.find(second));
        if first == second {
            return;
        }
        let (small, large) =
            if self.sizes[first as usize] < self.sizes[second as usize] { (first, second) } else { (second, first) };
        self.parents[small as usize] = large;
        self.sizes[large as usize] += self.sizes[small as usize];
    }
}

/// Collects pairs and gives clusters. There may be as many members as trajectories: one takes its id, which is held once,
/// and about 70 bytes.
#[derive(Debug, Default)]
pub struct Clusters {
    /// Members by a number of their ids, or the next one that was free.
    numbers: HashMap<u64, u32>,
    ids: String,
    ends: Vec<usize>,
    lengths: Vec<(u64, u64)>,
    sets: UnionFind,
}

/// The members, sorted by id, and which of each cluster is kept.
#[derive(Debug)]
pub struct Placement {
    clusters: Clusters,
    order: Vec<u32>,
    kept: Vec<u32>,
}

impl Clusters {
    /// Two that are near duplicates.
    pub fn add_pair(&mut self, first: Member<'_>, second: Member<'_>) {
        let (first, second) = (self.number(first), self.number(second));
        self.sets.join(first, second);
    }

    fn number(&mut self, member: Member<'_>) -> u32 {
        let mut key = of_name(member.id);
        while let Some(number) = self.numbers.get(&key).copied() {
            if self.id(number) == member.id {
                return number;
            }
            key = key.wrapping_add(1);
        }
        let number = self.sets.add();
        self.numbers.insert(key, number);
        self.ids.push_str(member.id);
        self.ends.push(self.ids.len());
        self.lengths.push((member.turns, member.chars));
        number
    }

    fn id(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.ids[start..self.ends[number]]
    }

    /// Every member with the one kept of its cluster.
    pub fn finish(mut self) -> Placement {
        self.numbers = HashMap::new();
        let mut order: Vec<u32> = (0..self.ends.len() as u32).collect();
        let mut kept = order.clone();
        for number in 0..order.len() as u32 {
            let set = self.sets.find(number) as usize;
            if self.rank(number) < self.rank(kept[set]) {
                kept[set] = number;
            }
        }
        order.sort_unstable_by(|one, other| self.id(*one).cmp(self.id(*other)));
        for number in 0..order.len() as u32 {
            let set = self.sets.find(number) as usize;
            kept[number as usize] = kept[set];
        }
        Placement { clusters: self, order, kept }
    }

    fn rank(&self, number: u32) -> (Reverse<(u64, u64)>, &str) {
        (Reverse(self.lengths[number as usize]), self.id(number))
    }
}

impl Placement {
    /// Every member in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = Placed<'_>> {
        let id = |number: u32| self.clusters.id(number);
        self.order.iter().map(move |number| Placed { id: id(*number), kept: id(self.kept[*number as usize]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Labels by spreading the smallest one along the edges until nothing changes: slow and plain.
    fn labels(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
        let mut labels: Vec<usize> = (0..nodes).collect();
        loop {
            let before = labels.clone();
            for (one, other) in edges {
                let least = labels[*one].min(labels[*other]);
                (labels[*one], labels[*other]) = (least, least);
            }
            if labels == before {
                return labels;
            }
        }
    }

    fn clusters(edges: &[(usize, usize)]) -> Vec<(String, String)> {
        let ids: Vec<String> = (0..40).map(|at| format!("{at:03}")).collect();
        let member = |at: usize| Member { id: &ids[at], turns: (at % 3) as u64, chars: (at % 5) as u64 };
        let mut clusters = Clusters::default();
        edges.iter().for_each(|(one, other)| clusters.add_pair(member(*one), member(*other)));
        placed(clusters)
    }

    fn placed(clusters: Clusters) -> Vec<(String, String)> {
        clusters.finish().iter().map(|placed| (placed.id.into(), placed.kept.into())).collect()
    }

    proptest! {
        #[test]
        fn clusters_are_the_connected_parts_in_any_order_of_pairs(
            edges in prop::collection::vec((0usize..40, 0usize..40), 0..60), turn in 0usize..60,
        ) {
            let found = clusters(&edges);
            let labels = labels(40, &edges);
            let mut kept_of: BTreeMap<usize, &str> = BTreeMap::new();
            for (id, kept) in &found {
                let label = labels[id.parse::<usize>().unwrap()];
                prop_assert_eq!(labels[kept.parse::<usize>().unwrap()], label);
                prop_assert_eq!(*kept_of.entry(label).or_insert(kept), kept);
            }
            let mut other: Vec<(usize, usize)> = edges.iter().map(|(a, b)| (*b, *a)).collect();
            other.reverse();
            let middle = turn.min(other.len());
            other.rotate_left(middle);
            prop_assert_eq!(clusters(&other), found);
        }
    }

    #[test]
    fn the_longest_of_a_cluster_is_kept_then_the_smallest_id() {
        let member = |id, turns, chars| Member { id, turns, chars };
        let mut clusters = Clusters::default();
        clusters.add_pair(member("a", 2, 9), member("d", 3, 1));
        clusters.add_pair(member("c", 3, 5), member("d", 3, 1));
        clusters.add_pair(member("b", 3, 5), member("c", 3, 5));
        clusters.add_pair(member("x", 1, 1), member("y", 1, 2));
        let expected = [("a", "b"), ("b", "b"), ("c", "b"), ("d", "b"), ("x", "y"), ("y", "y")];
        assert_eq!(placed(clusters), expected.map(|(id, kept)| (id.to_string(), kept.to_string())));
    }

    #[test]
    fn ids_of_one_number_are_told_apart() {
        let mut clusters = Clusters::default();
        clusters.number(Member { id: "a", turns: 1, chars: 1 });
        clusters.numbers.insert(of_name("b"), 0);
        clusters.add_pair(Member { id: "b", turns: 1, chars: 1 }, Member { id: "c", turns: 1, chars: 1 });
        clusters.add_pair(Member { id: "c", turns: 1, chars: 1 }, Member { id: "b", turns: 1, chars: 1 });
        let expected = [("a", "a"), ("b", "b"), ("c", "b")];
        assert_eq!(placed(clusters), expected.map(|(id, kept)| (id.to_string(), kept.to_string())));
    }
}
