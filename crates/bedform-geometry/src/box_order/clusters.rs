//! The order of boxes by clusters (dissertation of Tang, section 4.2.2, "Cluster-based approach",
//! algorithm 1).
//!
//! Each box begins as a cluster. The two nearest clusters are joined, again and again. A cluster
//! with the cells of a bulk request is full and takes no part any more. Boxes follow each other in
//! a spiral within a cluster, and the clusters follow each other depth-first over their minimum
//! spanning tree.
//!
//! Departures from the dissertation:
//! - It reports `O(n^3)` steps and shares the boxes out to processes. Here the nearest cluster is
//!   found in a tree ([`extent_tree`](super::extent_tree)) and the nearest pair in a heap, so `n`
//!   boxes take `O(n log n)` steps on one thread unless the boxes pile up, and the result does not
//!   depend on a division of the domain.
//! - It averages the Chebyshev distances of the boxes of two clusters. Here the largest one counts
//!   (complete linkage), by the cells of the boxes and not by their centres. Integers are enough
//!   for it, and it makes the clusters square. The sum over the axes decides between equal
//!   distances.
//! - It closes a cluster with more bytes than a bulk request. Here one with as many is full too,
//!   so that boxes whose cells divide a bulk request fill clusters of exactly one.
//! - It defines neither the spiral nor the start of the traversal: see [`spiral`](super::spiral)
//!   and [`spanning_tree`](super::spanning_tree).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::extent_tree::{ExtentTree, Reach, VACANT};
use super::spanning_tree::depth_first;
use super::spiral::sort_spiral;
use crate::box_tiles::{ListedBounds, tiled};

/// Returns the numbers of boxes in the order of clusters.
pub(super) fn cluster_order(boxes: ListedBounds<'_>, bulk_cells: u64) -> Vec<u32> {
    let clusters = Clusters::of(boxes, bulk_cells);
    let mut order = Vec::with_capacity(boxes.len());
    for cluster in depth_first(boxes.rank(), &clusters.bounds) {
        let first = order.len();
        order.extend(clusters.members(cluster));
        sort_spiral(boxes, &mut order[first..]);
    }
    order
}

/// Clusters of boxes.
struct Clusters {
    /// The bounds of each cluster, start then stop.
    bounds: Vec<i64>,
    /// The slot of the first box of each cluster.
    heads: Vec<u32>,
    /// For each slot the next one of the same cluster, or [`VACANT`].
    next: Vec<u32>,
    /// The number of the box in each slot.
    numbers: Vec<u32>,
}

impl Clusters {
    fn of(boxes: ListedBounds<'_>, bulk_cells: u64) -> Self {
        let numbers = tiled(boxes);
        let mut joining = Joining::new(boxes, &numbers, bulk_cells);
        joining.join_all();
        let heads: Vec<u32> =
            boxes.numbers().filter(|&slot| !joining.is_absorbed[slot as usize]).collect();
        let bounds = heads.iter().flat_map(|&head| joining.tree.slot(head)).copied().collect();
        Self { bounds, heads, next: joining.next, numbers }
    }

    /// Returns the numbers of the boxes of a cluster.
    fn members(&self, cluster: u32) -> impl Iterator<Item = u32> {
        let head = self.heads[cluster as usize];
        let after = |slot: &u32| Some(self.next[*slot as usize]).filter(|&next| next != VACANT);
        std::iter::successors(Some(head), after).map(|slot| self.numbers[slot as usize])
    }
}

/// A cluster and the nearest other one, at the time when the other one was looked for.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NearPair {
    reach: Reach,
    slot: u32,
    other: u32,
    /// The stamps of both at that time.
    stamp: u32,
    other_stamp: u32,
}

/// Clusters while they are joined. A cluster lies in the slot of its first box.
struct Joining {
    tree: ExtentTree,
    pairs: BinaryHeap<Reverse<NearPair>>,
    bulk_cells: u64,
    cells: Vec<u64>,
    /// Counts the changes of the cluster of each slot. A pair with another stamp is out of date.
    stamps: Vec<u32>,
    is_absorbed: Vec<bool>,
    next: Vec<u32>,
    /// The last box of the cluster of each slot.
    tails: Vec<u32>,
}

impl Joining {
    fn new(boxes: ListedBounds<'_>, numbers: &[u32], bulk_cells: u64) -> Self {
        let count = numbers.len();
        let (mut slots, mut cells) = (Vec::with_capacity(count * 2 * boxes.rank()), Vec::new());
        let mut labels: Vec<u32> = boxes.numbers().collect();
        for (&number, label) in numbers.iter().zip(&mut labels) {
            let cell_box = boxes.get(number);
            slots.extend_from_slice(cell_box.start);
            slots.extend_from_slice(cell_box.stop);
            cells.push(cell_box.cells());
            if cell_box.cells() >= bulk_cells {
                *label = VACANT;
            }
        }
        Self {
            tree: ExtentTree::new(boxes.rank(), slots, labels),
            pairs: BinaryHeap::with_capacity(count),
            bulk_cells,
            cells,
            stamps: vec![0; count],
            is_absorbed: vec![false; count],
            next: vec![VACANT; count],
            tails: boxes.numbers().collect(),
        }
    }

    /// Joins the nearest two clusters until one or none is not full.
    fn join_all(&mut self) {
        self.look_for_pairs();
        while let Some(pair) = self.nearest_pair() {
            self.join(pair.slot.min(pair.other), pair.slot.max(pair.other));
        }
    }

    /// Adds the pair of each cluster that is not full.
    fn look_for_pairs(&mut self) {
        for place in 0..self.tails.len() {
            // Each box is the last of its own cluster.
            let slot = self.tails[place];
            if self.tree.labels()[place] != VACANT {
                self.look_for_pair(slot);
            }
        }
    }

    /// Takes the nearest two clusters that are not full out of the heap.
    fn nearest_pair(&mut self) -> Option<NearPair> {
        loop {
            let Reverse(pair) = self.pairs.pop()?;
            let stamp = |slot: u32| self.stamps[slot as usize];
            if stamp(pair.slot) != pair.stamp {
                continue;
            }
            if stamp(pair.other) == pair.other_stamp {
                return Some(pair);
            }
            self.look_for_pair(pair.slot);
        }
    }

    /// Adds the pair of a cluster and the nearest one that is not full.
    fn look_for_pair(&mut self, slot: u32) {
        if let Some((reach, other)) = self.tree.nearest(slot, None) {
            let [stamp, other_stamp] = [slot, other].map(|slot| self.stamps[slot as usize]);
            self.pairs.push(Reverse(NearPair { reach, slot, other, stamp, other_stamp }));
        }
    }

    /// Joins two clusters in the slot of the first.
    fn join(&mut self, kept: u32, other: u32) {
        let (at, from) = (kept as usize, other as usize);
        self.stamps[at] += 1;
        self.stamps[from] += 1;
        self.is_absorbed[from] = true;
        self.next[self.tails[at] as usize] = other;
        self.tails[at] = self.tails[from];
        self.cells[at] = self.cells[at].saturating_add(self.cells[from]);
        self.tree.join(kept, other);
        if self.cells[at] >= self.bulk_cells {
            self.tree.vacate(kept);
        } else {
            self.look_for_pair(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::extent_tree::reach;
    use super::*;
    use crate::boxes::BoxList;

    /// Equal boxes of 4 x 4 cells in a square, row by row.
    fn square(side: i64) -> BoxList {
        let mut boxes = BoxList::new(2).unwrap();
        for place in 0..side * side {
            let start = [place / side * 4, place % side * 4];
            boxes.push(&start, &start.map(|start| start + 4)).unwrap();
        }
        boxes
    }

    #[test]
    fn equal_boxes_of_a_square_form_square_clusters_of_one_bulk_request() {
        let boxes = square(8);
        let clusters = Clusters::of(ListedBounds::of(&boxes).unwrap(), 16 * 16);
        assert_eq!(clusters.heads.len(), 4);
        for bounds in clusters.bounds.chunks(4) {
            assert_eq!([bounds[2] - bounds[0], bounds[3] - bounds[1]], [16, 16], "{bounds:?}");
        }
    }

    #[test]
    fn boxes_as_large_as_a_bulk_request_stay_alone() {
        let boxes = square(3);
        let clusters = Clusters::of(ListedBounds::of(&boxes).unwrap(), 16);
        assert_eq!(clusters.heads.len(), 9);
        let one = Clusters::of(ListedBounds::of(&boxes).unwrap(), u64::MAX);
        assert_eq!(one.heads.len(), 1);
    }

    proptest! {
        #[test]
        fn the_pair_that_is_joined_is_the_nearest_of_all(
            boxes in prop::collection::vec((-30_i64..30, -30_i64..30, 1_i64..9, 1_i64..9), 0..60),
            bulk_cells in 0_u64..600,
        ) {
            let mut list = BoxList::new(2).unwrap();
            for (x, y, width, height) in boxes {
                list.push(&[x, y], &[x + width, y + height]).unwrap();
            }
            let boxes = ListedBounds::of(&list).unwrap();
            let mut joining = Joining::new(boxes, &tiled(boxes), bulk_cells);
            joining.look_for_pairs();
            let open = |joining: &Joining| -> Vec<u32> {
                let labels = joining.tree.labels();
                labels.iter().copied().filter(|&label| label != VACANT).collect()
            };
            while let Some(pair) = joining.nearest_pair() {
                let slots = open(&joining);
                let pairs = slots.iter().flat_map(|a| slots.iter().map(move |b| (a, b)));
                let least = pairs
                    .filter(|(a, b)| a != b)
                    .map(|(a, b)| reach(joining.tree.slot(*a), joining.tree.slot(*b)))
                    .min();
                prop_assert_eq!(Some(pair.reach), least);
                joining.join(pair.slot.min(pair.other), pair.slot.max(pair.other));
            }
            prop_assert!(open(&joining).len() <= 1);
            let clusters = Clusters::of(boxes, bulk_cells);
            let cells = |cluster| {
                clusters.members(cluster).map(|number| boxes.get(number).cells()).sum::<u64>()
            };
            let count = u32::try_from(clusters.heads.len()).unwrap();
            let small = (0..count).filter(|&cluster| cells(cluster) < bulk_cells).count();
            prop_assert!(small <= 1, "{small} clusters are smaller than a bulk request");
        }
    }
}
