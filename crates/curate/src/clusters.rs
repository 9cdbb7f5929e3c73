//! Near duplicates that meet over others are one cluster; the client finds them between two plans.
//!
//! Of a cluster the trajectory with the most turns is kept, of these the one with the most characters, of these the one
//! with the smallest id. The result depends on the set of pairs only, not on their order.

use std::cmp::Reverse;
use std::collections::HashMap;

/// A member with what decides which of a cluster is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id of the trajectory or document.
    pub id: String,
    /// Its turns.
    pub turns: u64,
    /// Its characters.
    pub chars: u64,
}

/// A member of a cluster and the one that is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// The member.
    pub id: String,
    /// The one that is kept; the member itself, if it is.
    pub kept: String,
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

/// Collects pairs and gives clusters.
#[derive(Debug, Default)]
pub struct Clusters {
    numbers: HashMap<String, u32>,
    members: Vec<Member>,
    sets: UnionFind,
}

impl Clusters {
    /// Two that are near duplicates.
    pub fn add_pair(&mut self, first: Member, second: Member) {
        let (first, second) = (self.number(first), self.number(second));
        self.sets.join(first, second);
    }

    fn number(&mut self, member: Member) -> u32 {
        if let Some(number) = self.numbers.get(&member.id) {
            return *number;
        }
        let number = self.sets.add();
        self.numbers.insert(member.id.clone(), number);
        self.members.push(member);
        number
    }

    /// Every member with the one kept of its cluster, sorted by id.
    pub fn finish(mut self) -> Vec<Placed> {
        let mut best: HashMap<u32, u32> = HashMap::new();
        for number in 0..self.members.len() as u32 {
            let set = self.sets.find(number);
            let best = best.entry(set).or_insert(number);
            if rank(&self.members[number as usize]) < rank(&self.members[*best as usize]) {
                *best = number;
            }
        }
        let mut placed: Vec<Placed> = (0..self.members.len() as u32)
            .map(|number| {
                let kept = best[&self.sets.find(number)];
                Placed { id: self.members[number as usize].id.clone(), kept: self.members[kept as usize].id.clone() }
            })
            .collect();
        placed.sort();
        placed
    }
}

fn rank(member: &Member) -> (Reverse<u64>, Reverse<u64>, &str) {
    (Reverse(member.turns), Reverse(member.chars), &member.id)
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

    fn member(at: usize) -> Member {
        Member { id: format!("{at:03}"), turns: (at % 3) as u64, chars: (at % 5) as u64 }
    }

    fn clusters(edges: &[(usize, usize)]) -> Vec<Placed> {
        let mut clusters = Clusters::default();
        edges.iter().for_each(|(one, other)| clusters.add_pair(member(*one), member(*other)));
        clusters.finish()
    }

    proptest! {
        #[test]
        fn clusters_are_the_connected_parts_in_any_order_of_pairs(
            edges in prop::collection::vec((0usize..40, 0usize..40), 0..60), turn in 0usize..60,
        ) {
            let found = clusters(&edges);
            let labels = labels(40, &edges);
            let mut kept_of: BTreeMap<usize, &str> = BTreeMap::new();
            for placed in &found {
                let label = labels[placed.id.parse::<usize>().unwrap()];
                prop_assert_eq!(labels[placed.kept.parse::<usize>().unwrap()], label);
                prop_assert_eq!(*kept_of.entry(label).or_insert(&placed.kept), &placed.kept);
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
        let member = |id: &str, turns, chars| Member { id: id.into(), turns, chars };
        let mut clusters = Clusters::default();
        clusters.add_pair(member("a", 2, 9), member("d", 3, 1));
        clusters.add_pair(member("c", 3, 5), member("d", 3, 1));
        clusters.add_pair(member("b", 3, 5), member("c", 3, 5));
        clusters.add_pair(member("x", 1, 1), member("y", 1, 2));
        let kept: Vec<(String, String)> = clusters.finish().into_iter().map(|one| (one.id, one.kept)).collect();
        let expected = [("a", "b"), ("b", "b"), ("c", "b"), ("d", "b"), ("x", "y"), ("y", "y")];
        assert_eq!(kept, expected.map(|(id, kept)| (id.to_string(), kept.to_string())));
    }
}
