//! Lists of boxes of cells, as the levels of refined meshes have them.

use crate::error::{GeometryError, check_rank, check_ranks_equal};

/// Half-open boxes of one rank, in cells. Lower bounds may be negative. No box is empty.
///
/// Takes 16 bytes per box and axis.
///
/// ```
/// use bedform_geometry::BoxList;
/// let mut boxes = BoxList::new(2)?;
/// boxes.push(&[-8, 0], &[0, 8])?;
/// assert_eq!(boxes.len(), 1);
/// assert_eq!(boxes.get(0).unwrap().shape().collect::<Vec<_>>(), [8, 8]);
/// assert!(boxes.push(&[0, 0], &[0, 8]).is_err());
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxList {
    rank: usize,
    /// For each box its start, then its stop.
    bounds: Vec<i64>,
}

/// A box of a [`BoxList`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellBox<'a> {
    /// The lowest cell on each axis.
    pub start: &'a [i64],
    /// The first cell after the box on each axis.
    pub stop: &'a [i64],
}

impl BoxList {
    /// Makes an empty list for boxes of `rank` axes.
    ///
    /// # Errors
    /// [`GeometryError::RankTooLarge`], and [`GeometryError::RankMismatch`] for no axes.
    pub fn new(rank: usize) -> Result<Self, GeometryError> {
        check_rank(rank)?;
        if rank == 0 {
            return Err(GeometryError::RankMismatch { expected: 1, found: 0 });
        }
        Ok(Self { rank, bounds: Vec::new() })
    }

    /// Adds the box from `start` up to and excluding `stop`.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`]; [`GeometryError::EmptyBox`] where a stop is not above its
    /// start; [`GeometryError::BoxTooLarge`] if 63 bits cannot hold the number of cells.
    pub fn push(&mut self, start: &[i64], stop: &[i64]) -> Result<(), GeometryError> {
        check_ranks_equal(self.rank, start.len())?;
        check_ranks_equal(self.rank, stop.len())?;
        let mut cells = 1_i64;
        for (axis, (&start, &stop)) in start.iter().zip(stop).enumerate() {
            let length = stop.checked_sub(start).ok_or(GeometryError::BoxTooLarge)?;
            if length <= 0 {
                return Err(GeometryError::EmptyBox { axis, start, stop });
            }
            cells = cells.checked_mul(length).ok_or(GeometryError::BoxTooLarge)?;
        }
        self.bounds.extend_from_slice(start);
        self.bounds.extend_from_slice(stop);
        Ok(())
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of boxes.
    pub fn len(&self) -> usize {
        self.bounds.len() / (2 * self.rank)
    }

    /// Returns true for a list without boxes.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Returns box `number`; `None` after the last.
    pub fn get(&self, number: usize) -> Option<CellBox<'_>> {
        let at = number.checked_mul(2 * self.rank)?;
        let bounds = self.bounds.get(at..at.checked_add(2 * self.rank)?)?;
        let (start, stop) = bounds.split_at(self.rank);
        Some(CellBox { start, stop })
    }

    /// The start, then the stop of each box, one box after the other.
    pub(crate) fn bounds(&self) -> &[i64] {
        &self.bounds
    }

    /// Visits the boxes in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CellBox<'_>> + Clone {
        self.bounds.chunks_exact(2 * self.rank).map(|bounds| {
            let (start, stop) = bounds.split_at(self.rank);
            CellBox { start, stop }
        })
    }
}

impl CellBox<'_> {
    /// The number of cells on each axis.
    pub fn shape(self) -> impl ExactSizeIterator<Item = u64> {
        self.start.iter().zip(self.stop).map(|(start, stop)| stop.abs_diff(*start))
    }

    /// The number of cells.
    pub fn cells(self) -> u64 {
        self.shape().product()
    }

    /// Returns true if the boxes, of one rank, have a cell in common.
    pub fn overlaps(self, other: CellBox<'_>) -> bool {
        let axes = self.start.iter().zip(self.stop).zip(other.start.iter().zip(other.stop));
        axes.into_iter().all(|((start, stop), (from, to))| start < to && from < stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(boxes: &[([i64; 2], [i64; 2])]) -> BoxList {
        let mut found = BoxList::new(2).unwrap();
        for (start, stop) in boxes {
            found.push(start, stop).unwrap();
        }
        found
    }

    #[test]
    fn a_list_gives_its_boxes_in_order() {
        let boxes = list(&[([-2, 0], [0, 3]), ([5, 5], [6, 9])]);
        assert_eq!(boxes.len(), 2);
        let second = boxes.get(1).unwrap();
        assert_eq!((second.start, second.stop), (&[5, 5][..], &[6, 9][..]));
        assert_eq!(boxes.iter().map(CellBox::cells).collect::<Vec<_>>(), [6, 4]);
        assert_eq!(boxes.get(2), None);
        assert_eq!(boxes.get(usize::MAX), None);
    }

    #[test]
    fn boxes_overlap_that_share_a_cell_and_not_those_that_touch() {
        let boxes = list(&[([0, 0], [4, 4]), ([3, 3], [8, 8]), ([4, 0], [8, 3])]);
        let [a, b, c] = [0, 1, 2].map(|number| boxes.get(number).unwrap());
        assert!(a.overlaps(b) && b.overlaps(a));
        assert!(!a.overlaps(c) && !b.overlaps(c));
    }

    #[test]
    fn empty_boxes_and_boxes_without_a_count_of_cells_are_refused() {
        let mut boxes = BoxList::new(2).unwrap();
        assert!(matches!(
            boxes.push(&[0, 3], &[1, 3]),
            Err(GeometryError::EmptyBox { axis: 1, start: 3, stop: 3 })
        ));
        assert!(matches!(
            boxes.push(&[i64::MIN, 0], &[i64::MAX, 1]),
            Err(GeometryError::BoxTooLarge)
        ));
        assert!(matches!(
            boxes.push(&[0, 0], &[1 << 32, 1 << 32]),
            Err(GeometryError::BoxTooLarge)
        ));
        assert!(boxes.push(&[0], &[1]).is_err());
        assert!(boxes.is_empty() && BoxList::new(0).is_err());
    }
}
