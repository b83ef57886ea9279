//! The order of clusters: depth-first over a minimum spanning tree (dissertation of Tang, section
//! 4.2.2, algorithm 1, lines 14 and 15).
//!
//! The weight of an edge is the [`Reach`] of two clusters, the distance by which they were made.
//! The dissertation leaves the root and the order of the children open. The root is the cluster
//! with the lowest start. Of the branches at a cluster the smallest comes first: the way back from
//! it is short, and there is none from the last.
//!
//! The graph has an edge for every two clusters, too many to list. So the tree grows as in
//! Boruvka's algorithm: in each round, every component is joined to its nearest neighbour, which a
//! search finds.

use super::extent_tree::{ExtentTree, Reach};
use crate::box_tiles::{ListedBounds, tiled};

/// The parent of the root.
const NO_PARENT: u32 = u32::MAX;

/// Returns the numbers of boxes, given by start and stop, depth-first over their minimum spanning
/// tree.
pub(super) fn depth_first(rank: usize, bounds: &[i64]) -> Vec<u32> {
    let boxes = ListedBounds::new(rank, bounds);
    let numbers = tiled(boxes);
    let start_of = |slot: &u32| (boxes.get(numbers[*slot as usize]), numbers[*slot as usize]);
    let by_start = |slot: &u32| {
        let (cells, number) = start_of(slot);
        (cells.start, cells.stop, number)
    };
    let Some(root) = boxes.numbers().min_by(|a, b| by_start(a).cmp(&by_start(b))) else {
        return Vec::new();
    };
    let mut slots = Vec::with_capacity(bounds.len());
    for &number in &numbers {
        slots.extend_from_slice(boxes.get(number).start);
        slots.extend_from_slice(boxes.get(number).stop);
    }
    let edges = spanning_edges(rank, slots, boxes.numbers().collect());
    let neighbours = Adjacency::new(numbers.len(), &edges);
    neighbours.traverse(root).into_iter().map(|slot| numbers[slot as usize]).collect()
}

/// Returns the edges of a minimum spanning tree of boxes in the order of the tree.
pub(super) fn spanning_edges(rank: usize, slots: Vec<i64>, labels: Vec<u32>) -> Vec<(u32, u32)> {
    let mut roots = labels.clone();
    let mut tree = ExtentTree::new(rank, slots, labels);
    let count = roots.len();
    let mut edges = Vec::with_capacity(count.saturating_sub(1));
    let mut nearest: Vec<Option<(Reach, u32, u32)>> = vec![None; count];
    // A slot's distance to other components only grows: no search is needed below an earlier one.
    let mut least: Vec<Option<Reach>> = vec![None; count];
    while edges.len() + 1 < count {
        nearest.fill(None);
        for (slot, least) in (0_u32..).zip(&mut least) {
            let best = &mut nearest[tree.labels()[slot as usize] as usize];
            let limit = best.map(|(reach, _, _)| reach);
            if limit.is_some_and(|limit| least.is_some_and(|least| least >= limit)) {
                continue;
            }
            let found = tree.nearest(slot, limit);
            *least = found.map(|(reach, _)| reach).or(limit);
            if let Some((reach, other)) = found {
                *best = Some((reach, slot, other));
            }
        }
        for (_, slot, other) in nearest.iter().flatten() {
            let [one, another] = [*slot, *other].map(|slot| find(&mut roots, slot));
            if one != another {
                roots[one.max(another) as usize] = one.min(another);
                edges.push((*slot, *other));
            }
        }
        tree.relabel(|label| find(&mut roots, label));
    }
    edges
}

/// Returns the component of a slot and shortens the way to it.
fn find(roots: &mut [u32], mut slot: u32) -> u32 {
    while roots[slot as usize] != slot {
        let above = roots[roots[slot as usize] as usize];
        roots[slot as usize] = above;
        slot = above;
    }
    slot
}

/// The neighbours of each slot of a tree.
struct Adjacency {
    /// For each slot the end of its neighbours in the list; they begin where those before it end.
    ends: Vec<usize>,
    neighbours: Vec<u32>,
}

impl Adjacency {
    fn new(count: usize, edges: &[(u32, u32)]) -> Self {
        let mut ends = vec![0_usize; count];
        for slot in edges.iter().flat_map(|&(one, other)| [one, other]) {
            ends[slot as usize] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            // For now the start: it moves to the end while the neighbours are filled in.
            total += std::mem::replace(end, total);
        }
        let mut neighbours = vec![0; total];
        for (slot, other) in edges.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
            let end = &mut ends[slot as usize];
            neighbours[*end] = other;
            *end += 1;
        }
        Self { ends, neighbours }
    }

    fn of(&self, slot: u32) -> &[u32] {
        let start = (slot as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.neighbours[start..self.ends[slot as usize]]
    }

    /// Visits the tree depth-first from its root, small branches first.
    fn traverse(&self, root: u32) -> Vec<u32> {
        let mut sizes = vec![1_u32; self.ends.len()];
        for &(slot, parent) in self.downwards(root, None).iter().rev() {
            if parent != NO_PARENT {
                sizes[parent as usize] += sizes[slot as usize];
            }
        }
        self.downwards(root, Some(&sizes)).into_iter().map(|(slot, _)| slot).collect()
    }

    /// Lists each slot after its parent, depth-first; small branches first if sizes are given.
    fn downwards(&self, root: u32, sizes: Option<&[u32]>) -> Vec<(u32, u32)> {
        let mut order = Vec::with_capacity(self.ends.len());
        let mut pending = vec![(root, NO_PARENT)];
        while let Some((slot, parent)) = pending.pop() {
            order.push((slot, parent));
            let first = pending.len();
            let children = self.of(slot).iter().filter(|&&child| child != parent);
            pending.extend(children.map(|&child| (child, slot)));
            if let Some(sizes) = sizes {
                // The last one is visited next.
                let largest_first = |&(child, _): &(u32, u32)| {
                    (std::cmp::Reverse(sizes[child as usize]), std::cmp::Reverse(child))
                };
                pending[first..].sort_unstable_by_key(largest_first);
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::extent_tree::reach;
    use super::*;

    /// Returns the sorted weights of a minimum spanning tree by Prim's algorithm.
    fn weights_by_prim(boxes: &[Vec<i64>]) -> Vec<Reach> {
        let mut outside: Vec<usize> = (1..boxes.len()).collect();
        let mut inside = vec![0];
        let mut weights = Vec::new();
        while !outside.is_empty() {
            let pairs = inside.iter().flat_map(|&a| outside.iter().map(move |&b| (a, b)));
            let (weight, next) =
                pairs.map(|(a, b)| (reach(&boxes[a], &boxes[b]), b)).min().unwrap();
            outside.retain(|&at| at != next);
            inside.push(next);
            weights.push(weight);
        }
        weights.sort_unstable();
        weights
    }

    proptest! {
        #[test]
        fn the_tree_weighs_as_little_as_that_of_prim(
            boxes in prop::collection::vec(([-30_i64..30, -30_i64..30], 1_i64..6), 1..60),
        ) {
            let boxes: Vec<Vec<i64>> =
                boxes.into_iter().map(|([x, y], side)| vec![x, y, x + side, y + side]).collect();
            let labels: Vec<u32> = (0..u32::try_from(boxes.len()).unwrap()).collect();
            let edges = spanning_edges(2, boxes.concat(), labels);
            let weight = |(a, b): &(u32, u32)| reach(&boxes[*a as usize], &boxes[*b as usize]);
            let mut weights: Vec<Reach> = edges.iter().map(weight).collect();
            weights.sort_unstable();
            prop_assert_eq!(weights, weights_by_prim(&boxes));
            let mut order = depth_first(2, &boxes.concat());
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..u32::try_from(boxes.len()).unwrap()));
        }
    }

    #[test]
    fn small_branches_are_visited_before_large_ones() {
        // A row of boxes, with a branch of one box at the third.
        let starts = [[0, 0], [0, 4], [0, 8], [3, 8], [0, 12], [0, 16]];
        let bounds = starts.map(|[x, y]| [x, y, x + 2, y + 2]).concat();
        assert_eq!(depth_first(2, &bounds), [0, 1, 2, 3, 4, 5]);
    }
}
