//! The order in which trees hold boxes.
//!
//! The boxes are divided at the median of their centres, along the axis on which the centres spread
//! most, until [`LEAF_BOXES`] are left. A leaf holds `LEAF_BOXES` consecutive boxes. The nodes of a
//! complete binary tree are numbered as in a heap: the root is 1, the children of `node` are
//! `2 * node` and `2 * node + 1`, and leaf `leaf` of `leaves` is node `leaves + leaf`. The last
//! leaves may be empty.

use crate::boxes::{BoxList, CellBox};
use crate::error::GeometryError;
use crate::limits::BOXES_MAX;

/// The number of boxes in a leaf of a tree.
pub(crate) const LEAF_BOXES: usize = 8;

/// Bounds of boxes of one rank, without the limit that [`BoxList`] sets on the cells of a box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedBounds<'a> {
    rank: usize,
    bounds: &'a [i64],
}

impl<'a> ListedBounds<'a> {
    /// Reads the start, then the stop of each box from `bounds`.
    pub(crate) fn new(rank: usize, bounds: &'a [i64]) -> Self {
        Self { rank, bounds }
    }

    /// Returns the bounds of a list that is not longer than [`BOXES_MAX`].
    ///
    /// # Errors
    /// [`GeometryError::TooManyBoxes`].
    pub(crate) fn of(boxes: &'a BoxList) -> Result<Self, GeometryError> {
        if boxes.len() > BOXES_MAX {
            return Err(GeometryError::TooManyBoxes { boxes: boxes.len() as u128 });
        }
        Ok(Self::new(boxes.rank(), boxes.bounds()))
    }

    pub(crate) fn rank(self) -> usize {
        self.rank
    }

    pub(crate) fn len(self) -> usize {
        self.bounds.len() / (2 * self.rank)
    }

    /// Returns box `number`, which must be in the list.
    pub(crate) fn get(self, number: u32) -> CellBox<'a> {
        let at = number as usize * 2 * self.rank;
        let (start, stop) = self.bounds[at..at + 2 * self.rank].split_at(self.rank);
        CellBox { start, stop }
    }

    /// Returns the numbers of the boxes, from 0.
    #[expect(clippy::cast_possible_truncation, reason = "at most BOXES_MAX boxes")]
    pub(crate) fn numbers(self) -> std::ops::Range<u32> {
        0..self.len() as u32
    }
}

/// Returns the number of leaves, a power of two, of a tree of `boxes` boxes.
pub(crate) fn leaf_count(boxes: usize) -> usize {
    boxes.div_ceil(LEAF_BOXES).next_power_of_two()
}

/// Returns the numbers of the boxes in the order of the tree.
pub(crate) fn tiled(boxes: ListedBounds<'_>) -> Vec<u32> {
    let mut items: Vec<(i64, u32)> = boxes.numbers().map(|number| (0, number)).collect();
    divide(boxes, &mut items, leaf_count(boxes.len()));
    items.into_iter().map(|(_, number)| number).collect()
}

/// Orders the boxes under a node with `leaves` leaves.
fn divide(boxes: ListedBounds<'_>, items: &mut [(i64, u32)], leaves: usize) {
    let half = leaves / 2;
    if half == 0 {
        items.sort_unstable_by_key(|item| item.1);
        return;
    }
    if items.len() <= half * LEAF_BOXES {
        return divide(boxes, items, half);
    }
    let axis = widest_axis(boxes, items);
    for item in &mut *items {
        item.0 = centre(boxes.get(item.1), axis);
    }
    items.select_nth_unstable(half * LEAF_BOXES);
    let (low, high) = items.split_at_mut(half * LEAF_BOXES);
    divide(boxes, low, half);
    divide(boxes, high, half);
}

/// Returns the axis along which the centres of boxes lie farthest apart.
fn widest_axis(boxes: ListedBounds<'_>, items: &[(i64, u32)]) -> usize {
    let mut spread = vec![(i64::MAX, i64::MIN); boxes.rank];
    for &(_, number) in items {
        let cells = boxes.get(number);
        for (axis, (least, most)) in spread.iter_mut().enumerate() {
            let at = centre(cells, axis);
            *least = at.min(*least);
            *most = at.max(*most);
        }
    }
    let width = |axis: &usize| spread[*axis].1.abs_diff(spread[*axis].0);
    // The last of equal axes would be the result; the first is expected.
    (0..boxes.rank).rev().max_by_key(width).unwrap_or(0)
}

fn centre(cells: CellBox<'_>, axis: usize) -> i64 {
    cells.start[axis].midpoint(cells.stop[axis])
}
