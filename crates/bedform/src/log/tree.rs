//! A packed R-tree over boxes: it finds the boxes that overlap a region without a look at all.
//!
//! A node has sixteen consecutive boxes, or sixteen nodes of the level below, and the tree has the
//! bounding box of each node. Boxes are ordered by their starts; mostly they were written in this
//! order, and no permutation is stored. The boxes themselves stay with their owner; a tree takes
//! about an eighth of their memory.

/// Number of children of a node.
const FAN: usize = 16;

/// A tree over boxes that its owner keeps.
#[derive(Debug, Default)]
pub(super) struct BoxTree {
    rank: usize,
    count: usize,
    /// The numbers of the boxes in the order of the tree; empty if that is their own order.
    order: Vec<u32>,
    /// From the lowest level to the highest: start and end of each node, axis by axis.
    levels: Vec<Vec<u64>>,
}

/// The start and exclusive end of a box, by its number, along an axis.
pub(super) trait BoxBounds: Fn(usize, usize) -> (u64, u64) {}
impl<F: Fn(usize, usize) -> (u64, u64)> BoxBounds for F {}

impl BoxTree {
    /// Builds the tree of `count` boxes of `rank` axes.
    pub(super) fn new(rank: usize, count: usize, bounds: &impl BoxBounds) -> Self {
        let mut tree = Self { rank, count, order: Vec::new(), levels: Vec::new() };
        let Ok(count_narrow) = u32::try_from(count) else { return tree };
        if count <= FAN || rank == 0 {
            return tree;
        }
        let starts = |at: usize| (0..rank).map(move |axis| bounds(at, axis).0);
        if !(1..count).all(|at| starts(at - 1).le(starts(at))) {
            tree.order = (0..count_narrow).collect();
            tree.order.sort_by(|a, b| starts(*a as usize).cmp(starts(*b as usize)));
        }
        let mut below = count;
        while below > FAN {
            let level = tree.level_above(below, bounds);
            below = level.len() / (2 * rank);
            tree.levels.push(level);
        }
        tree
    }

    /// Returns the bounding box of each sixteen nodes of the highest level, or of each sixteen
    /// boxes if there is no level.
    fn level_above(&self, below: usize, bounds: &impl BoxBounds) -> Vec<u64> {
        let mut level = Vec::with_capacity(below.div_ceil(FAN) * 2 * self.rank);
        for first in (0..below).step_by(FAN) {
            for axis in 0..self.rank {
                let (mut low, mut high) = (u64::MAX, 0);
                for at in first..below.min(first + FAN) {
                    let (start, end) = match self.levels.last() {
                        Some(level) => self.node(level, at, axis),
                        None => bounds(self.number(at), axis),
                    };
                    (low, high) = (low.min(start), high.max(end));
                }
                level.extend([low, high]);
            }
        }
        level
    }

    fn node(&self, level: &[u64], at: usize, axis: usize) -> (u64, u64) {
        let place = 2 * (at * self.rank + axis);
        (level[place], level[place + 1])
    }

    fn number(&self, at: usize) -> usize {
        self.order.get(at).map_or(at, |number| *number as usize)
    }

    /// Returns the bytes that it takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let levels = self.levels.iter().map(|level| 8 * level.len() as u64 + 24);
        4 * self.order.len() as u64 + levels.sum::<u64>()
    }

    /// Visits the numbers of the boxes that overlap the region from `low` to `high`, exclusive,
    /// until `visit` returns false. Returns true if it has visited all.
    pub(super) fn visit(
        &self,
        low: &[u64],
        high: &[u64],
        bounds: &impl BoxBounds,
        visit: &mut impl FnMut(usize) -> bool,
    ) -> bool {
        let top = self.levels.len();
        let nodes = match self.levels.last() {
            Some(level) => level.len() / (2 * self.rank),
            None => self.count,
        };
        self.visit_nodes(top, 0..nodes, low, high, bounds, visit)
    }

    fn visit_nodes(
        &self,
        level: usize,
        nodes: std::ops::Range<usize>,
        low: &[u64],
        high: &[u64],
        bounds: &impl BoxBounds,
        visit: &mut impl FnMut(usize) -> bool,
    ) -> bool {
        for at in nodes {
            let meets =
                |(start, end): (u64, u64), axis: usize| start < high[axis] && end > low[axis];
            let Some(under) = level.checked_sub(1) else {
                let number = self.number(at);
                let is_hit = (0..self.rank).all(|axis| meets(bounds(number, axis), axis));
                if is_hit && !visit(number) {
                    return false;
                }
                continue;
            };
            let own = &self.levels[under];
            if (0..self.rank).all(|axis| meets(self.node(own, at, axis), axis)) {
                let count = match under.checked_sub(1) {
                    Some(lower) => self.levels[lower].len() / (2 * self.rank),
                    None => self.count,
                };
                let children = at * FAN..count.min((at + 1) * FAN);
                if !self.visit_nodes(under, children, low, high, bounds, visit) {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_finds_what_a_look_at_every_box_finds() {
        let mut seed = 3_u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for (rank, count) in [(1, 0), (0, 3), (1, 16), (1, 17), (2, 300), (3, 5000)] {
            for sorted in [false, true] {
                let mut boxes: Vec<Vec<(u64, u64)>> = (0..count)
                    .map(|_| {
                        let mut side = || {
                            let start = below(100);
                            (start, start + 1 + below(9))
                        };
                        (0..rank).map(|_| side()).collect()
                    })
                    .collect();
                if sorted {
                    boxes.sort();
                }
                let bounds = |at: usize, axis: usize| -> (u64, u64) { boxes[at][axis] };
                let tree = BoxTree::new(rank, count, &bounds);
                let allowed = 100 + (4 + 2 * rank as u64) * count as u64;
                assert!(tree.memory_bytes() <= allowed);
                for _ in 0..20 {
                    let low: Vec<u64> = (0..rank).map(|_| below(100)).collect();
                    let high: Vec<u64> = low.iter().map(|low| low + 1 + below(20)).collect();
                    let mut found = Vec::new();
                    tree.visit(&low, &high, &bounds, &mut |number| {
                        found.push(number);
                        true
                    });
                    found.sort_unstable();
                    let is_hit = |number: &usize| {
                        (0..rank).all(|axis| {
                            let (start, end) = boxes[*number][axis];
                            start < high[axis] && end > low[axis]
                        })
                    };
                    assert_eq!(found, (0..count).filter(is_hit).collect::<Vec<_>>());
                }
            }
        }
    }
}
