//! A tree that finds near boxes while boxes are joined.
//!
//! The distance of two boxes is their [`Reach`]: the sides of the box that holds both. By its
//! longest side it is the largest Chebyshev distance between a cell of one and a cell of the other,
//! plus one; the sum of the sides decides between equal ones, so that a neighbour at a face comes
//! before one at a corner.
//!
//! Each box lies in a slot, in the order of [`box_tiles`](crate::box_tiles). A slot has a label. A
//! search finds the nearest box with another label.

use crate::box_tiles::{LEAF_BOXES, leaf_count};

/// The label of a slot without a box.
pub(super) const VACANT: u32 = u32::MAX;

/// The label of a node over slots with different labels.
const MIXED: u32 = u32::MAX - 1;

/// The sides of the box that holds two boxes, in cells. The order is that of the distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reach {
    longest: u64,
    sum: u64,
}

/// Boxes in slots, with a search for near ones.
#[derive(Debug)]
pub(super) struct ExtentTree {
    rank: usize,
    leaves: usize,
    /// The start, then the stop of the box of each slot.
    slots: Vec<i64>,
    labels: Vec<u32>,
    /// For each node the largest start, then the smallest stop of the boxes below it: the box that
    /// is nearest to any other has none that is larger or smaller.
    nodes: Vec<i64>,
    node_labels: Vec<u32>,
}

impl ExtentTree {
    /// Makes the tree of boxes, in the order of the tree, with one label each.
    pub(super) fn new(rank: usize, slots: Vec<i64>, labels: Vec<u32>) -> Self {
        let leaves = leaf_count(labels.len());
        let nodes = vec![0; 2 * leaves * 2 * rank];
        let mut tree =
            Self { rank, leaves, slots, labels, nodes, node_labels: vec![VACANT; 2 * leaves] };
        tree.rebuild();
        tree
    }

    /// Returns the bounds of the box of a slot, its start then its stop.
    pub(super) fn slot(&self, slot: u32) -> &[i64] {
        row(&self.slots, slot as usize, self.rank)
    }

    pub(super) fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Gives each slot the label that `label` returns for its present one.
    pub(super) fn relabel(&mut self, mut label: impl FnMut(u32) -> u32) {
        for present in &mut self.labels {
            *present = label(*present);
        }
        self.rebuild();
    }

    /// Enlarges the box of a slot to hold that of another one, which becomes vacant.
    pub(super) fn join(&mut self, kept: u32, other: u32) {
        let rank = self.rank;
        for axis in 0..2 * rank {
            let bound = self.slots[other as usize * 2 * rank + axis];
            let own = &mut self.slots[kept as usize * 2 * rank + axis];
            *own = if axis < rank { bound.min(*own) } else { bound.max(*own) };
        }
        self.labels[other as usize] = VACANT;
        self.update(kept);
        self.update(other);
    }

    /// Makes a slot vacant. Its box keeps its bounds.
    pub(super) fn vacate(&mut self, slot: u32) {
        self.labels[slot as usize] = VACANT;
        self.update(slot);
    }

    /// Finds the slot with another label whose box is nearest to that of `slot`, if it is nearer
    /// than `best`.
    pub(super) fn nearest(&self, slot: u32, best: Option<Reach>) -> Option<(Reach, u32)> {
        let mut search = ReachSearch {
            tree: self,
            label: self.labels[slot as usize],
            bounds: self.slot(slot),
            best: best.map(|reach| (reach, VACANT)),
        };
        if search.admits(1) {
            search.descend(1);
        }
        search.best.filter(|(_, found)| *found != VACANT)
    }

    fn rebuild(&mut self) {
        for node in (1..2 * self.leaves).rev() {
            self.refresh(node);
        }
    }

    /// Brings the nodes above a slot up to date.
    fn update(&mut self, slot: u32) {
        let mut node = self.leaves + slot as usize / LEAF_BOXES;
        while node > 0 && self.refresh(node) {
            node /= 2;
        }
    }

    /// Recomputes a node from the slots or nodes below it; returns false if nothing changes.
    fn refresh(&mut self, node: usize) -> bool {
        let rank = self.rank;
        let (above, below) = self.nodes.split_at_mut((node + 1) * 2 * rank);
        let target = &mut above[node * 2 * rank..];
        let mut summary = LabelSummary { label: VACANT, changed: false };
        // The bounds are compared with the earlier ones axis by axis, without memory for both.
        let (labels, rows, first): (&[u32], &[i64], usize) = match node.checked_sub(self.leaves) {
            Some(leaf) => {
                let first = (leaf * LEAF_BOXES).min(self.labels.len());
                let last = (first + LEAF_BOXES).min(self.labels.len());
                (&self.labels[first..last], &self.slots, first)
            }
            None => {
                let first = 2 * node;
                (&self.node_labels[first..first + 2], below, first - (node + 1))
            }
        };
        for &label in labels {
            summary.add(label);
        }
        for (axis, bound) in target.iter_mut().enumerate() {
            let is_start = axis < rank;
            let mut value = if is_start { i64::MIN } else { i64::MAX };
            for (place, &label) in labels.iter().enumerate() {
                if label != VACANT {
                    let own = rows[(first + place) * 2 * rank + axis];
                    value = if is_start { own.max(value) } else { own.min(value) };
                }
            }
            summary.changed |= *bound != value;
            *bound = value;
        }
        summary.changed |= self.node_labels[node] != summary.label;
        self.node_labels[node] = summary.label;
        summary.changed
    }
}

/// The label of a node, while the labels below it are added.
struct LabelSummary {
    label: u32,
    changed: bool,
}

impl LabelSummary {
    fn add(&mut self, label: u32) {
        self.label = match self.label {
            VACANT => label,
            own if label == VACANT || own == label => own,
            _ => MIXED,
        };
    }
}

/// A search for the nearest box.
struct ReachSearch<'a> {
    tree: &'a ExtentTree,
    label: u32,
    bounds: &'a [i64],
    best: Option<(Reach, u32)>,
}

impl ReachSearch<'_> {
    /// Returns true if a node may have a box with another label.
    fn admits(&self, node: usize) -> bool {
        let label = self.tree.node_labels[node];
        label != self.label && label != VACANT
    }

    fn is_nearer(&self, reach: Reach) -> bool {
        self.best.is_none_or(|(best, _)| reach < best)
    }

    /// Searches below a node that may have a nearer box.
    fn descend(&mut self, node: usize) {
        let tree = self.tree;
        if let Some(leaf) = node.checked_sub(tree.leaves) {
            let first = leaf * LEAF_BOXES;
            for slot in first..tree.labels.len().min(first + LEAF_BOXES) {
                let label = tree.labels[slot];
                if label == self.label || label == VACANT {
                    continue;
                }
                let reach = reach(self.bounds, row(&tree.slots, slot, tree.rank));
                if self.is_nearer(reach) {
                    self.best = u32::try_from(slot).ok().map(|slot| (reach, slot));
                }
            }
            return;
        }
        // Where the other child is nearer, it is searched first.
        let [low, high] = [2 * node, 2 * node + 1].map(|child| {
            self.admits(child)
                .then(|| (reach(self.bounds, row(&tree.nodes, child, tree.rank)), child))
        });
        let is_swapped = matches!((low, high), (Some((low, _)), Some((high, _))) if high < low);
        let children = if is_swapped { [high, low] } else { [low, high] };
        for (least, child) in children.into_iter().flatten() {
            if self.is_nearer(least) {
                self.descend(child);
            }
        }
    }
}

/// Returns the start and stop of one row of a table.
fn row(table: &[i64], number: usize, rank: usize) -> &[i64] {
    &table[number * 2 * rank..(number + 1) * 2 * rank]
}

/// Returns the sides of the box that holds two boxes. For the bounds of a node, no box below it is
/// nearer.
pub(super) fn reach(one: &[i64], other: &[i64]) -> Reach {
    let rank = one.len() / 2;
    let (mut longest, mut sum) = (0_u64, 0_u64);
    for axis in 0..rank {
        let start = one[axis].min(other[axis]);
        let stop = one[rank + axis].max(other[rank + axis]);
        let side = stop.abs_diff(start);
        longest = longest.max(side);
        sum = sum.saturating_add(side);
    }
    Reach { longest, sum }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_search_finds_a_nearest_box_with_another_label(
            boxes in prop::collection::vec(([-40_i64..40, -40_i64..40], 1_i64..9, 0_u32..5), 1..70),
            changes in prop::collection::vec((any::<bool>(), any::<u16>(), any::<u16>()), 0..60),
        ) {
            let slots = boxes.iter().flat_map(|&([x, y], side, _)| [x, y, x + side, y + side]);
            let labels = boxes.iter().map(|box_| box_.2).collect();
            let mut tree = ExtentTree::new(2, slots.collect(), labels);
            let slot_of = |word: u16| u32::from(word) % u32::try_from(boxes.len()).unwrap();
            for (is_join, one, other) in changes {
                let (one, other) = (slot_of(one), slot_of(other));
                let is_vacant = |slot: u32| tree.labels[slot as usize] == VACANT;
                if !is_join {
                    tree.vacate(other);
                } else if one != other && !is_vacant(one) && !is_vacant(other) {
                    tree.join(one, other);
                }
                let label = tree.labels[one as usize];
                let others = (0..boxes.len()).filter(|&at| ![VACANT, label].contains(&tree.labels[at]));
                let least = others.map(|at| reach(tree.slot(one), row(&tree.slots, at, 2))).min();
                let found = tree.nearest(one, None);
                prop_assert_eq!(found.map(|found| found.0), least);
                if let Some((distance, other)) = found {
                    prop_assert_eq!(reach(tree.slot(one), tree.slot(other)), distance);
                    prop_assert!(![VACANT, label].contains(&tree.labels[other as usize]));
                    prop_assert_eq!(tree.nearest(one, Some(distance)), None);
                }
            }
        }
    }
}
