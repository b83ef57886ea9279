//! The union of regions.

use crate::error::{GeometryError, check_rank, check_ranks_equal};
use crate::region::Region;

/// The union of regions of one rank, stored as disjoint boxes.
///
/// Adding a region compares it with each box. Boxes that form a larger box are joined, so that an
/// array written row by row stays a single box.
///
/// ```
/// use bedform_geometry::{Region, RegionSet};
/// let mut written = RegionSet::new(2)?;
/// for row in 0..4 {
///     written.insert(&Region::new([row, 0], [1, 10])?)?;
/// }
/// assert!(written.covers(&Region::new([1, 2], [3, 8])?));
/// assert_eq!(written.overlap(&Region::new([3, 8], [2, 4])?), Some(2));
/// assert_eq!(written.regions().len(), 1);
/// # Ok::<(), bedform_geometry::GeometryError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSet {
    rank: usize,
    regions: Vec<Region>,
}

impl RegionSet {
    /// Makes the empty set of regions of `rank`.
    ///
    /// # Errors
    /// [`GeometryError::RankTooLarge`].
    pub fn new(rank: usize) -> Result<Self, GeometryError> {
        check_rank(rank)?;
        Ok(Self { rank, regions: Vec::new() })
    }

    /// Adds the points of `region`.
    ///
    /// # Errors
    /// [`GeometryError::RankMismatch`]; the set is then unchanged.
    pub fn insert(&mut self, region: &Region) -> Result<(), GeometryError> {
        check_ranks_equal(self.rank, region.rank())?;
        if region.is_empty() || self.regions.iter().any(|known| known.contains_region(region)) {
            return Ok(());
        }
        self.regions.retain(|known| !region.contains_region(known));
        let mut pieces = vec![region.clone()];
        for known in &self.regions {
            if known.intersection(region).is_some() {
                pieces = pieces.iter().flat_map(|piece| piece.subtract(known)).collect();
            }
        }
        for piece in pieces {
            self.push_joined(piece);
        }
        Ok(())
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns disjoint, non-empty boxes that form the set. The division depends on the added
    /// regions and their order.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns true if the set has no points.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns the number of points, or `None` if 64 bits cannot count them.
    pub fn len(&self) -> Option<u64> {
        self.regions.iter().try_fold(0_u64, |count, region| count.checked_add(region.len()?))
    }

    /// Returns the number of points of `region` in the set, or `None` if 64 bits cannot count them.
    /// A region of another rank has none.
    pub fn overlap(&self, region: &Region) -> Option<u64> {
        self.regions
            .iter()
            .filter_map(|known| known.intersection(region))
            .try_fold(0_u64, |count, part| count.checked_add(part.len()?))
    }

    /// Returns the number of points in both sets, or `None` if 64 bits cannot count them.
    pub fn overlap_set(&self, other: &Self) -> Option<u64> {
        other
            .regions
            .iter()
            .try_fold(0_u64, |count, region| count.checked_add(self.overlap(region)?))
    }

    /// Returns true if `region` has the rank of the set and all its points are in the set.
    pub fn covers(&self, region: &Region) -> bool {
        if self.rank != region.rank() {
            return false;
        }
        match (region.len(), self.overlap(region)) {
            // The boxes are disjoint, so comparing cheap counts suffices.
            (Some(len), overlap) => overlap == Some(len),
            (None, _) => self.missing(region).is_empty(),
        }
    }

    /// Returns the points of `region` outside the set, as disjoint boxes.
    #[must_use]
    pub fn missing(&self, region: &Region) -> Vec<Region> {
        let mut left: Vec<Region> =
            if region.is_empty() { Vec::new() } else { vec![region.clone()] };
        for known in &self.regions {
            if known.intersection(region).is_some() {
                left = left.iter().flat_map(|piece| piece.subtract(known)).collect();
            }
        }
        left
    }

    /// Adds a box that overlaps no other, joined with the boxes that it extends.
    fn push_joined(&mut self, mut piece: Region) {
        while let Some((at, joined)) = self
            .regions
            .iter()
            .enumerate()
            .find_map(|(at, known)| Some((at, joined(known, &piece)?)))
        {
            self.regions.swap_remove(at);
            piece = joined;
        }
        self.regions.push(piece);
    }
}

/// Returns the box that two disjoint boxes form together, if they form one.
fn joined(a: &Region, b: &Region) -> Option<Region> {
    let mut differing = (0..a.rank())
        .filter(|&axis| (a.start()[axis], a.end(axis)) != (b.start()[axis], b.end(axis)));
    let axis = differing.next()?;
    let touching = a.end(axis) == b.start()[axis] || b.end(axis) == a.start()[axis];
    if differing.next().is_some() || !touching {
        return None;
    }
    a.bounding(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &[u64], shape: &[u64]) -> Region {
        Region::new(start, shape).unwrap()
    }

    #[test]
    fn tiles_written_in_any_order_become_one_box() {
        let mut set = RegionSet::new(2).unwrap();
        for (row, column) in [(0, 0), (4, 2), (0, 2), (4, 0)] {
            assert!(!set.covers(&region(&[0, 0], &[8, 4])));
            set.insert(&region(&[row, column], &[4, 2])).unwrap();
        }
        assert_eq!(set.regions(), [region(&[0, 0], &[8, 4])]);
    }

    #[test]
    fn a_set_without_axes_is_empty_or_whole() {
        let mut set = RegionSet::new(0).unwrap();
        let point = region(&[], &[]);
        assert!(!set.covers(&point) && set.is_empty());
        set.insert(&point).unwrap();
        set.insert(&point).unwrap();
        assert!(set.covers(&point));
        assert_eq!(set.len(), Some(1));
    }

    #[test]
    fn an_empty_region_is_covered_and_adds_nothing() {
        let mut set = RegionSet::new(1).unwrap();
        set.insert(&region(&[5], &[0])).unwrap();
        assert!(set.is_empty() && set.covers(&region(&[7], &[0])));
        assert!(!set.covers(&region(&[], &[])));
        assert!(set.insert(&region(&[1, 1], &[1, 1])).is_err());
    }

    #[test]
    fn regions_that_cannot_be_counted_are_covered_all_the_same() {
        let mut set = RegionSet::new(2).unwrap();
        set.insert(&region(&[0, 0], &[1 << 40, 1 << 40])).unwrap();
        assert_eq!((set.len(), set.overlap(&region(&[1, 1], &[1 << 39, 1 << 39]))), (None, None));
        assert!(set.covers(&region(&[1, 1], &[1 << 39, 1 << 39])));
        assert!(!set.covers(&region(&[1, 1], &[1 << 40, 1 << 39])));
    }
}
