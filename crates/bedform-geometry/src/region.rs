//! Half-open boxes in index space.

use crate::error::{GeometryError, check_rank, check_ranks_equal};
use crate::shape::element_count;

/// A half-open box in index space: a start and a shape, one entry per axis.
///
/// A value of this type
///
/// - has a start and a shape of equal rank, at most [`RANK_MAX`](crate::RANK_MAX);
/// - ends, on every axis, at an index that fits 64 bits.
///
/// It may be empty. With rank 0 it contains exactly one point.
///
/// ```
/// use bedform_geometry::Region;
/// let region = Region::new([2, 3], [4, 5])?;
/// assert!(region.contains(&[5, 7]) && !region.contains(&[6, 7]));
/// assert_eq!(region.len(), Some(20));
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    start: Vec<u64>,
    shape: Vec<u64>,
}

impl Region {
    /// Makes the box of `shape` at `start`.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`], [`GeometryError::RankTooLarge`], or
    /// [`GeometryError::RegionTooLarge`] if the end of an axis does not fit 64 bits.
    pub fn new(
        start: impl Into<Vec<u64>>,
        shape: impl Into<Vec<u64>>,
    ) -> Result<Self, GeometryError> {
        let (start, shape) = (start.into(), shape.into());
        check_ranks_equal(start.len(), shape.len())?;
        check_rank(start.len())?;
        for (axis, (&start, &size)) in start.iter().zip(&shape).enumerate() {
            if start.checked_add(size).is_none() {
                return Err(GeometryError::RegionTooLarge { axis, start, size });
            }
        }
        Ok(Self { start, shape })
    }

    /// Makes the box of a whole array of `shape`.
    ///
    /// # Errors
    /// [`GeometryError::RankTooLarge`].
    pub fn whole(shape: impl Into<Vec<u64>>) -> Result<Self, GeometryError> {
        let shape = shape.into();
        check_rank(shape.len())?;
        Ok(Self { start: vec![0; shape.len()], shape })
    }

    /// Makes the box from `start` up to and excluding `end`. The caller has checked that both have
    /// one rank, with `start <= end` on every axis.
    pub(crate) fn from_bounds(start: Vec<u64>, end: &[u64]) -> Self {
        let shape = start.iter().zip(end).map(|(start, end)| end - start).collect();
        Self { start, shape }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.start.len()
    }

    /// The lowest index on each axis.
    pub fn start(&self) -> &[u64] {
        &self.start
    }

    /// The size on each axis.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the first index on `axis` after the box. `axis` must be below the rank.
    pub fn end(&self, axis: usize) -> u64 {
        self.start[axis] + self.shape[axis]
    }

    /// The number of elements, or `None` if 64 bits cannot count them.
    pub fn len(&self) -> Option<u64> {
        element_count(&self.shape)
    }

    /// Returns true if the box has no points.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns true if `point` has the same rank and lies in the box.
    pub fn contains(&self, point: &[u64]) -> bool {
        self.rank() == point.len()
            && point
                .iter()
                .enumerate()
                .all(|(axis, &at)| self.start[axis] <= at && at < self.end(axis))
    }

    /// Returns true if `other` has the same rank and all its points lie in this box.
    ///
    /// An empty box lies in every box of its rank.
    pub fn contains_region(&self, other: &Self) -> bool {
        self.rank() == other.rank()
            && (other.is_empty()
                || (0..self.rank()).all(|axis| {
                    self.start[axis] <= other.start[axis] && other.end(axis) <= self.end(axis)
                }))
    }

    /// Returns the points in both boxes, or `None` if there are none or the ranks differ.
    ///
    /// ```
    /// use bedform_geometry::Region;
    /// let (a, b) = (Region::new([0, 0], [4, 4])?, Region::new([2, 3], [4, 4])?);
    /// assert_eq!(a.intersection(&b), Some(Region::new([2, 3], [2, 1])?));
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.rank() != other.rank() {
            return None;
        }
        let mut start = Vec::with_capacity(self.rank());
        let mut shape = Vec::with_capacity(self.rank());
        for axis in 0..self.rank() {
            let low = self.start[axis].max(other.start[axis]);
            let high = self.end(axis).min(other.end(axis));
            if low >= high {
                return None;
            }
            start.push(low);
            shape.push(high - low);
        }
        Some(Self { start, shape })
    }

    /// Returns the points of this box outside `other`, as disjoint boxes: at most two per axis, in
    /// an order that depends only on the two boxes. A box of another rank removes nothing.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Vec<Self> {
        if self.is_empty() {
            return Vec::new();
        }
        let Some(hole) = self.intersection(other) else {
            return vec![self.clone()];
        };
        let mut pieces = Vec::new();
        // `left` shrinks axis by axis to the hole; each axis splits off the part before the hole
        // and the part after it.
        let mut left = self.clone();
        for axis in 0..self.rank() {
            if left.start[axis] < hole.start[axis] {
                let mut front = left.clone();
                front.shape[axis] = hole.start[axis] - left.start[axis];
                pieces.push(front);
            }
            if hole.end(axis) < left.end(axis) {
                let mut back = left.clone();
                back.start[axis] = hole.end(axis);
                back.shape[axis] = left.end(axis) - hole.end(axis);
                pieces.push(back);
            }
            left.start[axis] = hole.start[axis];
            left.shape[axis] = hole.shape[axis];
        }
        pieces
    }

    /// Returns the box moved by `offsets`, one per axis.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`], or [`GeometryError::OffsetOutOfBounds`] if it would leave
    /// the index space.
    pub fn translated(&self, offsets: &[i64]) -> Result<Self, GeometryError> {
        self.moved(offsets.len(), |axis| i128::from(offsets[axis]))
    }

    /// Returns the box relative to `origin`: its start minus that point.
    ///
    /// ```
    /// use bedform_geometry::Region;
    /// let inside = Region::new([12, 7], [2, 2])?.relative_to(&[10, 5])?;
    /// assert_eq!(inside, Region::new([2, 2], [2, 2])?);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`], or [`GeometryError::OffsetOutOfBounds`] if the box starts
    /// before the origin.
    pub fn relative_to(&self, origin: &[u64]) -> Result<Self, GeometryError> {
        self.moved(origin.len(), |axis| -i128::from(origin[axis]))
    }

    /// Returns the bounding box of both, or `None` if the ranks differ.
    #[must_use]
    pub fn bounding(&self, other: &Self) -> Option<Self> {
        if self.rank() != other.rank() {
            return None;
        }
        if self.is_empty() {
            return Some(other.clone());
        }
        if other.is_empty() {
            return Some(self.clone());
        }
        let start = self.start.iter().zip(&other.start).map(|(a, b)| *a.min(b)).collect();
        let end: Vec<u64> =
            (0..self.rank()).map(|axis| self.end(axis).max(other.end(axis))).collect();
        Some(Self::from_bounds(start, &end))
    }

    /// Moves the box by `offset(axis)` on each of `rank` axes.
    fn moved(&self, rank: usize, offset: impl Fn(usize) -> i128) -> Result<Self, GeometryError> {
        check_ranks_equal(self.rank(), rank)?;
        let start = self.start.iter().enumerate().map(|(axis, &start)| {
            let offset = offset(axis);
            u64::try_from(i128::from(start) + offset)
                .map_err(|_| GeometryError::OffsetOutOfBounds { axis, start, offset })
        });
        Self::new(start.collect::<Result<Vec<_>, _>>()?, self.shape.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &[u64], shape: &[u64]) -> Region {
        Region::new(start, shape).unwrap()
    }

    #[test]
    fn a_region_that_leaves_the_index_space_is_refused() {
        assert_eq!(
            Region::new([0, u64::MAX], [1, 1]).unwrap_err().to_string(),
            "start 18446744073709551615 and size 1 along axis 1 exceed the largest index"
        );
        assert!(Region::new([u64::MAX], [0]).is_ok());
        assert_eq!(
            Region::new([1], [1, 2]),
            Err(GeometryError::RankMismatch { expected: 1, found: 2 })
        );
        assert_eq!(Region::whole([1; 33]), Err(GeometryError::RankTooLarge { rank: 33 }));
    }

    #[test]
    fn a_region_of_rank_zero_holds_one_point() {
        let point = region(&[], &[]);
        assert_eq!(point.len(), Some(1));
        assert!(point.contains(&[]) && !point.is_empty());
        assert_eq!(point.intersection(&point), Some(point.clone()));
        assert!(point.subtract(&point).is_empty());
    }

    #[test]
    fn translation_ends_at_the_borders_of_the_index_space() {
        let a = region(&[2, 3], &[4, 5]);
        assert_eq!(a.translated(&[-2, 7]), Ok(region(&[0, 10], &[4, 5])));
        assert_eq!(
            a.translated(&[-3, 0]).unwrap_err().to_string(),
            "start 2 along axis 0 cannot be moved by -3"
        );
        assert!(region(&[u64::MAX - 4], &[4]).translated(&[1]).is_err());
        assert!(a.relative_to(&[3, 0]).is_err());
    }

    #[test]
    fn a_bounding_box_ignores_what_is_empty() {
        let (a, none) = (region(&[2, 3], &[1, 1]), region(&[9, 9], &[0, 4]));
        assert_eq!(a.bounding(&none), Some(a.clone()));
        assert_eq!(none.bounding(&a), Some(a.clone()));
        assert_eq!(a.bounding(&region(&[0, 5], &[1, 1])), Some(region(&[0, 3], &[3, 3])));
        assert_eq!(a.bounding(&region(&[], &[])), None);
    }
}
