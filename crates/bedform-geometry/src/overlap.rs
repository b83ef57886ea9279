//! The overlap of two selections.
//!
//! Counts distinct elements without visiting each: orthogonal selections and unions become disjoint
//! boxes of positions per axis, and the overlap of two boxes is a product over the axes. Points are
//! looked up one by one.

use std::collections::BTreeSet;

use crate::coverage::RegionSet;
use crate::positions::AxisRange;
use crate::selection::{AxisSelection, Points, Selection};

impl AxisSelection {
    /// Returns the number of distinct positions that both select. Ranges take constant time;
    /// coordinates are sorted.
    ///
    /// ```
    /// use bedform_geometry::{AxisRange, AxisSelection};
    /// let even = AxisSelection::Range(AxisRange::new(0, 2, 50)?);
    /// let third = AxisSelection::Range(AxisRange::new(99, -3, 34)?);
    /// assert_eq!(even.overlap(&third), 17); // 0, 6, ... 96
    /// assert_eq!(even.overlap(&AxisSelection::Coords(vec![7, 8, 8])), 1);
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    pub fn overlap(&self, other: &Self) -> u64 {
        Distinct::of(self).common(&Distinct::of(other))
    }
}

impl Selection {
    /// Returns the number of distinct elements that both select, or `None` if 64 bits cannot count
    /// them. Selections of different rank share none.
    ///
    /// ```
    /// use bedform_geometry::{Region, Selection};
    /// let map = Selection::from(Region::new([3, 0, 0], [1, 10, 10])?);
    /// let series = Selection::from(Region::new([0, 5, 5], [100, 1, 1])?);
    /// assert_eq!(map.overlap(&series), Some(1));
    /// # Ok::<(), bedform_geometry::GeometryError>(())
    /// ```
    pub fn overlap(&self, other: &Self) -> Option<u64> {
        if self.rank() != other.rank() {
            return Some(0);
        }
        match (self, other) {
            (Self::Points(a), Self::Points(b)) => {
                let (a, b) = (distinct_points(a), distinct_points(b));
                Some(a.intersection(&b).count() as u64)
            }
            (Self::Points(points), boxes) | (boxes, Self::Points(points)) => {
                let boxes = boxes.disjoint_boxes();
                let holds = |point: &Vec<u64>| boxes.iter().any(|one| box_holds(one, point));
                Some(distinct_points(points).iter().filter(|point| holds(point)).count() as u64)
            }
            _ => {
                let (a, b) = (self.disjoint_boxes(), other.disjoint_boxes());
                let mut pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
                pairs.try_fold(0_u64, |count, (a, b)| count.checked_add(box_overlap(a, b)?))
            }
        }
    }

    /// Returns the number of axes, or `None` for an empty union.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Orthogonal(axes) => Some(axes.len()),
            Self::Points(points) => Some(points.rank()),
            Self::Union(regions) => regions.first().map(crate::Region::rank),
        }
    }

    /// Returns disjoint boxes that contain exactly the selected elements; none for points.
    fn disjoint_boxes(&self) -> Vec<Vec<Distinct>> {
        match self {
            Self::Orthogonal(axes) => vec![axes.iter().map(Distinct::of).collect()],
            Self::Points(_) => Vec::new(),
            Self::Union(regions) => {
                let Some(Ok(mut set)) = self.rank().map(RegionSet::new) else {
                    return Vec::new();
                };
                for region in regions {
                    // A valid selection has regions of one rank.
                    let _ = set.insert(region);
                }
                let ranges = |region: &crate::Region| {
                    let axes = region.start().iter().zip(region.shape());
                    axes.map(|(&start, &len)| Distinct::Range(AxisRange::derived(start, 1, len)))
                        .collect()
                };
                set.regions().iter().map(ranges).collect()
            }
        }
    }
}

/// Distinct positions along one axis; lists ascend.
enum Distinct {
    Range(AxisRange),
    Sorted(Vec<u64>),
}

impl Distinct {
    fn of(selection: &AxisSelection) -> Self {
        match selection {
            AxisSelection::Range(range) => Self::Range(*range),
            AxisSelection::Coords(coords) => {
                let mut coords = coords.clone();
                coords.sort_unstable();
                coords.dedup();
                Self::Sorted(coords)
            }
        }
    }

    fn holds(&self, at: u64) -> bool {
        match self {
            Self::Range(range) => range.holds(at),
            Self::Sorted(coords) => coords.binary_search(&at).is_ok(),
        }
    }

    /// Returns the number of positions in both.
    fn common(&self, other: &Self) -> u64 {
        match (self, other) {
            (Self::Range(a), Self::Range(b)) => a.overlap(b),
            (Self::Sorted(coords), other) | (other, Self::Sorted(coords)) => {
                coords.iter().filter(|&&at| other.holds(at)).count() as u64
            }
        }
    }
}

impl AxisRange {
    /// Returns true if `at` is one of the positions.
    pub(crate) fn holds(&self, at: u64) -> bool {
        self.bounds().is_some_and(|(lowest, highest)| {
            // The step of a range of one position is irrelevant.
            (lowest..=highest).contains(&at)
                && (at - lowest).is_multiple_of(self.step().unsigned_abs())
        })
    }

    /// Returns the number of positions in both ranges. A common position satisfies a congruence for
    /// each step; common positions are the least common multiple of the steps apart.
    fn overlap(&self, other: &Self) -> u64 {
        let (Some((a_low, a_high)), Some((b_low, b_high))) = (self.bounds(), other.bounds()) else {
            return 0;
        };
        let (low, high) = (i128::from(a_low.max(b_low)), i128::from(a_high.min(b_high)));
        let a_step = i128::from(self.step().unsigned_abs());
        let b_step = i128::from(other.step().unsigned_abs());
        let (divisor, inverse) = divisor_and_inverse(a_step, b_step);
        let distance = i128::from(b_low) - i128::from(a_low);
        if distance % divisor != 0 || low > high {
            return 0;
        }
        // The first position of `self`, extended without end in both directions, that is congruent
        // to `other`'s.
        let period = b_step / divisor;
        let steps = (distance / divisor).rem_euclid(period) * inverse.rem_euclid(period) % period;
        let meeting = i128::from(a_low) + steps * a_step;
        let multiple = a_step * period;
        let first = low + (meeting - low).rem_euclid(multiple);
        if first > high { 0 } else { u64::try_from((high - first) / multiple + 1).unwrap_or(0) }
    }
}

/// Returns the greatest common divisor of `a` and `b`, both positive, and an `x` with `a * x`
/// congruent to it modulo `b` (the extended Euclidean algorithm).
fn divisor_and_inverse(a: i128, b: i128) -> (i128, i128) {
    let (mut rest, mut next_rest) = (a, b);
    let (mut factor, mut next_factor) = (1, 0);
    while next_rest != 0 {
        let quotient = rest / next_rest;
        (rest, next_rest) = (next_rest, rest - quotient * next_rest);
        (factor, next_factor) = (next_factor, factor - quotient * next_factor);
    }
    (rest, factor)
}

/// Returns the distinct points.
fn distinct_points(points: &Points) -> BTreeSet<Vec<u64>> {
    if points.rank() == 0 {
        return (points.count() > 0).then(Vec::new).into_iter().collect();
    }
    let count = points.coords().first().map_or(0, Vec::len);
    (0..count).map(|i| points.coords().iter().map(|axis| axis[i]).collect()).collect()
}

/// Returns true if a box of the point's rank contains it.
fn box_holds(axes: &[Distinct], point: &[u64]) -> bool {
    axes.iter().zip(point).all(|(axis, &at)| axis.holds(at))
}

/// Returns the number of elements that two boxes of one rank share.
fn box_overlap(a: &[Distinct], b: &[Distinct]) -> Option<u64> {
    let common: Vec<u64> = a.iter().zip(b).map(|(a, b)| a.common(b)).collect();
    crate::shape::element_count(&common)
}
