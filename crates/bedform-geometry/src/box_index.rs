//! An index of boxes by place: the boxes that a region touches, and boxes that overlap.
//!
//! A packed R-tree: the boxes lie in the order of [`box_tiles`](crate::box_tiles), and each node
//! has the bounds of the boxes below it. The tree is made at once and never changes.

use std::ops::ControlFlow;

use crate::box_tiles::{LEAF_BOXES, ListedBounds, leaf_count, tiled};
use crate::boxes::{BoxList, CellBox};
use crate::error::{GeometryError, check_ranks_equal};

/// An index that finds the boxes that a region touches.
///
/// Keeps a copy of the boxes. Takes at most 24 bytes per box and axis and 4 bytes per box, for
/// lists of 8 boxes and more.
///
/// ```
/// use bedform_geometry::{BoxIndex, BoxList};
/// let mut boxes = BoxList::new(2)?;
/// boxes.push(&[0, 0], &[8, 8])?;
/// boxes.push(&[8, 0], &[16, 8])?;
/// boxes.push(&[-8, -8], &[0, 0])?;
/// let index = BoxIndex::new(&boxes)?;
/// assert_eq!(index.touching(&[4, 4], &[12, 8])?, [0, 1]);
/// assert_eq!(index.touching(&[0, 8], &[99, 99])?, []);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BoxIndex {
    rank: usize,
    /// The numbers of the boxes, in the order of the tree.
    numbers: Vec<u32>,
    /// The bounds of the boxes, in the order of the tree.
    bounds: Vec<i64>,
    leaves: usize,
    /// The bounds of the nodes; those of node 0 are unused.
    nodes: Vec<i64>,
}

impl BoxIndex {
    /// Indexes the boxes of a list, in `O(n log n)` steps for `n` boxes.
    ///
    /// # Errors
    /// [`GeometryError::TooManyBoxes`] for more than [`BOXES_MAX`](crate::BOXES_MAX) boxes.
    pub fn new(boxes: &BoxList) -> Result<Self, GeometryError> {
        let listed = ListedBounds::of(boxes)?;
        let rank = boxes.rank();
        let numbers = tiled(listed);
        let mut bounds = Vec::with_capacity(boxes.bounds().len());
        for &number in &numbers {
            let cells = listed.get(number);
            bounds.extend_from_slice(cells.start);
            bounds.extend_from_slice(cells.stop);
        }
        let leaves = leaf_count(numbers.len());
        let empty = [vec![i64::MAX; rank], vec![i64::MIN; rank]].concat();
        let mut nodes = empty.repeat(2 * leaves);
        let packed = ListedBounds::new(rank, &bounds);
        for slot in packed.numbers() {
            let node = leaves + slot as usize / LEAF_BOXES;
            include(&mut nodes[node * 2 * rank..(node + 1) * 2 * rank], packed.get(slot));
        }
        for node in (1..leaves).rev() {
            let (above, below) = nodes.split_at_mut(2 * node * 2 * rank);
            for child in below[..4 * rank].chunks_exact(2 * rank) {
                let (start, stop) = child.split_at(rank);
                let parent = &mut above[node * 2 * rank..(node + 1) * 2 * rank];
                include(parent, CellBox { start, stop });
            }
        }
        Ok(Self { rank, numbers, bounds, leaves, nodes })
    }

    /// The number of boxes.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns true for an index of no boxes.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the numbers of the boxes that have a cell in the region from `start` up to and
    /// excluding `stop`, in ascending order. A region without cells touches no box.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`].
    pub fn touching(&self, start: &[i64], stop: &[i64]) -> Result<Vec<u32>, GeometryError> {
        check_ranks_equal(self.rank, start.len())?;
        check_ranks_equal(self.rank, stop.len())?;
        let mut found = Vec::new();
        if start.iter().zip(stop).all(|(start, stop)| start < stop) {
            let add = |number| {
                found.push(number);
                ControlFlow::<()>::Continue(())
            };
            // `add` never breaks off.
            let _ = self.visit(CellBox { start, stop }, add);
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Passes the number of each box that overlaps `region` on, until `visitor` breaks off.
    fn visit<B>(
        &self,
        region: CellBox<'_>,
        mut visitor: impl FnMut(u32) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let nodes = ListedBounds::new(self.rank, &self.nodes);
        let boxes = ListedBounds::new(self.rank, &self.bounds);
        let mut pending = vec![1_u32];
        while let Some(node) = pending.pop() {
            if !nodes.get(node).overlaps(region) {
                continue;
            }
            let Some(leaf) = (node as usize).checked_sub(self.leaves) else {
                pending.extend([2 * node + 1, 2 * node]);
                continue;
            };
            let first = leaf * LEAF_BOXES;
            let numbers = &self.numbers[first..self.numbers.len().min(first + LEAF_BOXES)];
            for (&number, slot) in numbers.iter().zip(boxes.numbers().skip(first)) {
                if boxes.get(slot).overlaps(region) {
                    visitor(number)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Enlarges the bounds of a node, start then stop, so that they include a box.
fn include(node: &mut [i64], cells: CellBox<'_>) {
    let (start, stop) = node.split_at_mut(cells.start.len());
    for (node, bound) in start.iter_mut().zip(cells.start) {
        *node = (*node).min(*bound);
    }
    for (node, bound) in stop.iter_mut().zip(cells.stop) {
        *node = (*node).max(*bound);
    }
}

/// Returns the numbers of two boxes that overlap, the lower one first; `None` if no box overlaps
/// another, as on a level of a refined mesh. The same list always gives the same pair.
///
/// Asks a [`BoxIndex`] for the neighbours of each box, up to the first pair: `O(n log n)` steps
/// for boxes of which each has few others near it.
///
/// ```
/// use bedform_geometry::{BoxList, overlapping_pair};
/// let mut boxes = BoxList::new(1)?;
/// boxes.push(&[0], &[4])?;
/// boxes.push(&[4], &[8])?;
/// assert_eq!(overlapping_pair(&boxes)?, None);
/// boxes.push(&[3], &[4])?;
/// assert_eq!(overlapping_pair(&boxes)?, Some((0, 2)));
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
///
/// # Errors
/// [`GeometryError::TooManyBoxes`] for more than [`BOXES_MAX`](crate::BOXES_MAX) boxes.
pub fn overlapping_pair(boxes: &BoxList) -> Result<Option<(usize, usize)>, GeometryError> {
    let index = BoxIndex::new(boxes)?;
    let packed = ListedBounds::new(index.rank, &index.bounds);
    for (&number, slot) in index.numbers.iter().zip(packed.numbers()) {
        let other = index.visit(packed.get(slot), |other| {
            if other == number { ControlFlow::Continue(()) } else { ControlFlow::Break(other) }
        });
        if let ControlFlow::Break(other) = other {
            return Ok(Some((number.min(other) as usize, number.max(other) as usize)));
        }
    }
    Ok(None)
}
